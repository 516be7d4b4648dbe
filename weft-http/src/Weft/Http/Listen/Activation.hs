{-# OPTIONS_HADDOCK not-home #-}

-- | The protocol of @sd_listen_fds(3)@: descriptors from 3 on, and variables that name them.
module Weft.Http.Listen.Activation (Activated (..), parseActivation, adoptListening, variables) where

import Control.Exception (IOException)
import Control.Monad (unless)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Maybe (fromMaybe)
import Foreign.C.Types (CInt)
import System.Posix.Types (ProcessID)
import Weft
import Weft.Http.Internal.Address (parseDecimal)
import Weft.Socket

-- | An inherited listening socket.
data Activated = Activated
  { -- | The service manager's name for it (@FileDescriptorName=@), or @unknown@.
    activatedName :: !ByteString,
    activatedSocket :: !Socket,
    activatedAddress :: !SockAddr
  }

variables :: [ByteString]
variables = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID"]

-- | Descriptors and their names, given our process and a lookup of variables; empty if not for us.
parseActivation :: ProcessID -> (ByteString -> Maybe ByteString) -> Either String [(CInt, ByteString)]
parseActivation me look = case (look "LISTEN_PID", look "LISTEN_FDS") of
  (Just pid, Just count) -> do
    forWhom <- number "LISTEN_PID" pid
    if forWhom /= fromIntegral me then Right [] else zip [3 ..] <$> (number "LISTEN_FDS" count >>= namesOf)
  _ -> Right []
  where
    number name text = maybe (Left (name <> " is no number: " <> show text)) Right (parseDecimal 999_999_999 text)
    namesOf n
      | n > 4096 = Left ("LISTEN_FDS is too large: " <> show n)
      | otherwise = case C.split ':' <$> look "LISTEN_FDNAMES" of
          Nothing -> Right (replicate n "unknown")
          Just names
            | length names == n -> Right names
            | otherwise -> Left ("LISTEN_FDNAMES has " <> show (length names) <> " names for " <> show n <> " descriptors")

-- | Adopt the descriptors. Closes all, and throws an 'IOError' that names one, if that is none for us.
adoptListening :: [(CInt, ByteString)] -> Thread [Activated]
adoptListening = go []
  where
    go taken [] = pure (reverse taken)
    go taken ((fd, name) : rest) = do
      one <- adopt fd name `onException` mapM_ (closeSocket . activatedSocket) taken
      go (one : taken) rest
    adopt fd name = do
      socket <- adoptSocket fd `catch` \e -> refuse fd name (show (e :: IOException))
      flip onException (closeSocket socket) $ do
        address <- localAddress socket
        kind <- getOption socket Type
        listening <- isListening socket
        unless (kind == streamType) (refuse fd name "it is no stream socket")
        unless listening (refuse fd name "it does not listen (Accept=yes is not for us)")
        pure (Activated name socket address)
    -- SOCK_STREAM on every system.
    streamType = 1
    refuse fd name why = throwM (userError ("inherited descriptor " <> show fd <> " (" <> C.unpack (fromMaybe name (B.stripSuffix ".socket" name)) <> "): " <> why))
