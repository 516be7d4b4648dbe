-- |
-- Description : What clients and replicas say to each other
--
-- A message is a length of four bytes and so many bytes of body. Clients send requests,
-- and replicas send one reply for each, in order. What is not such a message raises
-- 'Garbage', and after that nothing more can be understood on the connection.
module Replicated.Wire
  ( -- * Messages
    Request (..),
    Reply (..),

    -- * As bytes
    encodeMessage,
    decodeMessage,
    longestMessage,

    -- * On connections
    sendMessage,
    receiveMessage,
    Garbage (..),
    tryConnection,
    familyOf,
  )
where

import Control.Exception (Exception (..))
import Control.Monad.Catch (Handler (..), catches)
import Data.Binary (Binary (..), encode, getWord8, putWord8)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Lazy qualified as Lazy
import Data.Text (Text)
import Data.Text qualified as Text
import Data.Text.Encoding (decodeUtf8Lenient, encodeUtf8)
import Data.Word (Word32)
import Replicated.Entry
import Weft
import Weft.Socket

-- | What a client asks of a replica.
data Request
  = -- | What do you hold for this key?
    Read !Key
  | -- | Hold this, unless you hold something newer. Doing it twice is doing it once.
    Store !Key !Entry
  deriving stock (Eq, Show)

-- | What a replica answers.
data Reply
  = -- | What it holds.
    Found !(Maybe Entry)
  | -- | It is on the disk: this, or something newer.
    Stored
  | -- | It could not do it, and why.
    Refused !Text
  deriving stock (Eq, Show)

instance Binary Request where
  put = \case
    Read key -> putWord8 1 <> putBytes key
    Store key entry -> putWord8 2 <> putBytes key <> put entry
  get =
    getWord8 >>= \case
      1 -> Read <$> getBytes "a key" longestKey
      2 -> Store <$> getBytes "a key" longestKey <*> get
      tag -> fail ("there is no request " <> show tag)

instance Binary Reply where
  put = \case
    Found Nothing -> putWord8 1
    Found (Just entry) -> putWord8 2 <> put entry
    Stored -> putWord8 3
    Refused why -> putWord8 4 <> putBytes (ByteString.take longestReason (encodeUtf8 why))
  get =
    getWord8 >>= \case
      1 -> pure (Found Nothing)
      2 -> Found . Just <$> get
      3 -> pure Stored
      4 -> Refused . decodeUtf8Lenient <$> getBytes "a reason" longestReason
      tag -> fail ("there is no reply " <> show tag)

longestReason :: Int
longestReason = 1000

-- | The greatest size of a body, in bytes.
longestMessage :: Int
longestMessage = longestKey + longestValue + 64

-- | With the length in front.
encodeMessage :: (Binary a) => a -> ByteString
encodeMessage message = Lazy.toStrict (encode (fromIntegral (Lazy.length body) :: Word32) <> body)
  where
    body = encode message

-- | A body, without the length.
decodeMessage :: (Binary a) => ByteString -> Either Text a
decodeMessage = decodeAll

-- | Send a message.
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

-- | So many bytes, or fewer if the stream ends before.
receiveUpTo :: Socket -> Int -> Thread ByteString
receiveUpTo connection = go []
  where
    go pieces missing = do
      piece <- if missing == 0 then pure ByteString.empty else receive connection missing
      if ByteString.null piece
        then pure (ByteString.concat (reverse pieces))
        else go (piece : pieces) (missing - ByteString.length piece)

-- | What was received is not of this protocol, and why not.
newtype Garbage = Garbage Text
  deriving stock (Eq, Show)

instance Exception Garbage where
  displayException (Garbage why) = "not a message: " <> Text.unpack why

-- | What goes wrong with a connection, as a value. The other end may do anything at any
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
