-- |
-- Description : Messages on connections
--
-- Clients send requests, and replicas send one reply for each, in order. Bytes that are not a
-- message raise 'Garbage', and after that nothing more can be understood on the
-- connection.
module Replicated.Wire (sendMessage, receiveMessage, Garbage (..), tryConnection, familyOf) where

import Control.Exception (Exception (..))
import Control.Monad.Catch (Handler (..), catches)
import Data.Binary (Binary)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.Text (Text)
import Data.Text qualified as Text
import Replicated.Message
import Weft
import Weft.Socket

sendMessage :: (Binary a) => Socket -> a -> Thread ()
sendMessage connection = sendAll connection . encodeMessage

-- | The next message; none if the connection ends here. Raises 'Garbage'.
receiveMessage :: (Binary a) => Socket -> Thread (Maybe a)
receiveMessage connection = do
  header <- receiveUpTo connection 4
  case ByteString.foldl' (\n byte -> n * 256 + fromIntegral byte) (0 :: Int) header of
    _ | ByteString.null header -> pure Nothing
    size
      | ByteString.length header < 4 -> throwM cutShort
      | size > longestMessage -> throwM (Garbage ("a message of " <> Text.pack (show size) <> " bytes"))
      | otherwise -> do
          body <- receiveUpTo connection size
          if ByteString.length body < size
            then throwM cutShort
            else either (throwM . Garbage) (pure . Just) (decodeMessage body)
  where
    cutShort = Garbage "the connection ended in the middle of a message"

-- | This number of bytes, or fewer if the stream ends before.
receiveUpTo :: Socket -> Int -> Thread ByteString
receiveUpTo connection = go []
  where
    go pieces missing = do
      piece <- if missing == 0 then pure ByteString.empty else receive connection missing
      if ByteString.null piece
        then pure (ByteString.concat (reverse pieces))
        else go (piece : pieces) (missing - ByteString.length piece)

-- | The received bytes are not of this protocol, and why.
newtype Garbage = Garbage Text
  deriving stock (Eq)

instance Show Garbage where
  show (Garbage why) = "not a message: " <> Text.unpack why

instance Exception Garbage

-- | Run the body and return the failure of its connection as a value. The other end may do anything at any
-- time, so this is no failure of ours.
tryConnection :: Thread a -> Thread (Either Text a)
tryConnection body =
  catches
    (Right <$> body)
    [ Handler $ \(e :: IOError) -> pure (Left (Text.pack (show e))),
      Handler $ \(e :: Garbage) -> pure (Left (Text.pack (displayException e)))
    ]

-- | The family of sockets for an address.
familyOf :: SockAddr -> Family
familyOf = \case
  SockAddrInet {} -> AF_INET
  SockAddrInet6 {} -> AF_INET6
  SockAddrUnix {} -> AF_UNIX
