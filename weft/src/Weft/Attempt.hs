-- |
-- Sending and receiving at once or not at all, in plain 'IO'.
--
-- An operation of "Weft.Socket" may wait, and so only a thread can perform it. An attempt, which plain 'IO'
-- on any OS thread can make, does not: what a socket takes, or has, in this moment is the whole answer. A
-- server tries first and waits for the rest:
--
-- > sendQuickly :: Attempts -> Socket -> ByteString -> Thread ()
-- > sendQuickly tries socket bytes = do
-- >   n <- liftIO (trySend tries socket bytes)
-- >   sendAll socket (ByteString.drop n bytes)
--
-- The kernel of the run answers: a simulated one, too, where an attempt may take less than it could.
module Weft.Attempt (Attempts, attempts, trySend, trySendMore, trySendFile, tryReceive) where

import Data.ByteString (ByteString)
import Data.Int (Int64)
import Foreign.C.Error (Errno (..), eAGAIN, eBUSY, eINVAL, errnoToIOError)
import Weft.Internal.Core.SystemCall
import Weft.Internal.Core.Trace (Thread, call)

-- | The attempts of this run's kernel, for all workers and OS threads until the run ends.
attempts :: Thread Attempts
attempts = call KernelAttempts

-- | How many bytes the socket has taken: none, if it would have to wait, was closed, or has failed.
trySend :: Attempts -> Socket -> ByteString -> IO Int
trySend tries !socket !bytes = max 0 <$> attemptSend tries socket NothingMore bytes

-- | 'trySend' for bytes that more bytes follow at once: both leave in one packet.
trySendMore :: Attempts -> Socket -> ByteString -> IO Int
trySendMore tries socket bytes = max 0 <$> attemptSend tries socket MoreFollows bytes

-- | Send bytes, and after them a part of a file (its offset and size): how many of both
-- together the socket has taken. It may be none, as with 'trySend', and is where the part is not
-- in memory or is longer than 256 KiB. The caller owns the file and does not close it meanwhile.
trySendFile :: Attempts -> Socket -> ByteString -> File -> Int64 -> Int -> IO Int
trySendFile tries socket before file offset size = max 0 <$> attemptSendFile tries socket before file offset size

-- | Receive at most the given number of bytes into a buffer from an offset: how many have come, 0 at the
-- end of the stream; 'Nothing' if it would have to wait. Raises an 'IOError' where the socket
-- has failed or was closed, and where there is no room for a byte (@EINVAL@).
tryReceive :: Attempts -> Socket -> Buffer -> Int -> Int -> IO (Maybe Int)
tryReceive tries socket buffer offset count
  | offset < 0 || room <= 0 = failing eINVAL
  | otherwise =
      attemptReceive tries socket buffer offset room >>= \r ->
        if
          | r >= 0 -> pure (Just r)
          | Errno (fromIntegral (negate r)) `elem` [eAGAIN, eBUSY] -> pure Nothing
          | otherwise -> failing (Errno (fromIntegral (negate r)))
  where
    room = min count (bufferSize buffer - offset)
    failing e = ioError (errnoToIOError "receive" e Nothing Nothing)
