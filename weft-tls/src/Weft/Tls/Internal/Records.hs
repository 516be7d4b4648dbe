{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Buffers bytes not taken by the TLS library, and bytes written by it but not sent. Threads fill and
-- flush around calls of the library, which never waits for a socket (Note [Where threads wait]).
module Weft.Tls.Internal.Records
  ( Records,
    newRecords,
    below,
    fill,
    firstByte,
    isComplete,
    hasEnded,
    flush,
    flushAnswers,
    hasOutput,
    takeRecords,
    takeComplete,
    NeedMore (..),
    put,
  )
where

import Control.Exception (Exception, throwIO)
import Control.Monad (void, when)
import Data.Bits (shiftL, (.|.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Foldable (toList)
import Data.IORef
import Data.Sequence (Seq, (|>))
import Data.Sequence qualified as Seq
import Data.Word (Word8)
import Foreign.Marshal.Utils (copyBytes, moveBytes)
import Foreign.Ptr (plusPtr)
import Foreign.Storable (peekByteOff)
import Weft
import Weft.Buffer
import Weft.Http.Server (Transport (..))
import Weft.Internal.Core.Buffer (unsafeSlice)
import Weft.Mask (mask_)
import Weft.Mutex
import Weft.Socket (dropBytes)
import Weft.Timeout (timeout)

-- Note [Where threads wait]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~
-- The library holds its locks (MVars) around whole operations. A thread suspended in the backend would
-- hold one, and the next thread to want it would block its worker, perhaps the one that must wake the
-- first: a deadlock. So after the handshake the backend never waits:
--
--   * Receiving: the library is called when a whole record is here. When it wants another (the
--     first was a session ticket, say) the backend raises `NeedMore`, only between two records,
--     where the library has stored its state. It is called again when more has come.
--   * Sending: the backend queues what it is given, and the queue is flushed afterwards (Note [Whose
--     turn it is to send]). Receiving may queue something, too: the answer to a key update.
--
-- Invariant: no Weft thread waits while a lock of the library is held. So one thread may receive and
-- another send, as with a socket.
--
-- The handshake is not of this kind: see "Weft.Tls.Internal.Handshake".

data Records = Records
  { -- | What carries the records.
    below :: !Transport,
    inbound :: !(IORef Inbound),
    -- | Oldest first.
    outbound :: !(IORef (Seq ByteString)),
    -- | Held to send, so that the records of two threads are not mixed.
    sending :: !Mutex
  }

-- | The received bytes are in the memory from the first offset to the second.
--
-- Invariant: if 'unread' is 0, a record begins at the first offset; headers are read only there.
data Inbound = Inbound
  { memory :: !(Maybe Buffer),
    from :: !Int,
    to :: !Int,
    -- | Bytes, header included, still to take of the record that the library has begun; else 0.
    unread :: !Int,
    -- | Did the last receive fill the buffer? Then more is likely.
    flowing :: !Bool,
    ended :: !Bool
  }

newRecords :: Transport -> Thread Records
newRecords transport =
  Records transport
    <$> liftIO (newIORef (Inbound Nothing 0 0 0 False False))
    <*> liftIO (newIORef Seq.empty)
    <*> newMutexNamed "TLS: sending"

-- | Wait for some bytes; false at the end of the stream. An interruption loses no bytes.
fill :: Records -> Thread Bool
fill r = mask_ $ do
  (buffer, at) <- liftIO (makeRoom r)
  let room = bufferSize buffer - at
  n <- transportReceive (below r) buffer at room `onException` liftIO (forgetBuffer r)
  liftIO . modifyIORef' (inbound r) $ \i ->
    if n == 0 then i {ended = True} else i {to = to i + n, flowing = n == room}
  pure (n > 0)

-- | Make room for at least one byte: little before a record, enough for one of known length.
makeRoom :: Records -> IO (Buffer, Int)
makeRoom r = do
  i <- readIORef (inbound r)
  let present = to i - from i
      use buffer at = do
        writeIORef (inbound r) i {memory = Just buffer, from = at - present, to = at}
        pure (buffer, at)
  -- More than is present, even if all wanted bytes are.
  wanted <- max (present + 1) <$> wantedSize i
  case memory i of
    Just buffer
      | present == 0, flowing i || bufferSize buffer <= idleSize -> use buffer 0
      | present > 0, from i + wanted <= bufferSize buffer -> pure (buffer, to i)
      | present > 0,
        wanted <= bufferSize buffer -> do
          withBuffer buffer $ \p -> moveBytes p (p `plusPtr` from i) present
          use buffer present
      | present > 0 -> do
          -- Room for two records of the largest size.
          larger <- newBuffer (if wanted <= middleSize then middleSize else max wanted (2 * (headerSize + largestRecord)))
          withBuffer buffer $ \p -> withBuffer larger $ \q -> copyBytes q (p `plusPtr` from i) present
          use larger present
    _ -> newBuffer idleSize >>= \buffer -> use buffer 0

-- | The buffer of an idle connection, which holds most requests.
idleSize :: Int
idleSize = 1024

middleSize :: Int
middleSize = 4096

headerSize :: Int
headerSize = 5

-- | The most that may follow a header (in TLS 1.2, RFC 5246, 6.2.3).
largestRecord :: Int
largestRecord = 16_384 + 2048

-- | Release an empty buffer when a wait is interrupted, since the connection may stay idle.
forgetBuffer :: Records -> IO ()
forgetBuffer r = modifyIORef' (inbound r) $ \i ->
  if from i == to i then i {memory = Nothing, from = 0, to = 0, flowing = False} else i

-- | The length of the record, or of its rest, at the first offset, as far as known. Of one that is too
-- long only the header, which the library refuses.
wantedSize :: Inbound -> IO Int
wantedSize i = case memory i of
  _ | unread i > 0 -> pure (unread i)
  Just buffer | to i - from i >= headerSize -> withBuffer buffer $ \p -> do
    high <- peekByteOff p (from i + 3) :: IO Word8
    low <- peekByteOff p (from i + 4) :: IO Word8
    let size = (fromIntegral high `shiftL` 8) .|. fromIntegral low
    pure (if size > largestRecord then headerSize else headerSize + size)
  _ -> pure headerSize

-- | Is a whole record here, or all the rest of one?
isComplete :: Records -> IO Bool
isComplete r = readIORef (inbound r) >>= complete

complete :: Inbound -> IO Bool
complete i = (to i - from i >=) <$> wantedSize i

-- | The first byte that was not taken.
firstByte :: Records -> IO (Maybe Word8)
firstByte r = do
  i <- readIORef (inbound r)
  pure (memory i >>= \buffer -> fst <$> B.uncons (unsafeSlice buffer (from i) (to i - from i)))

hasEnded :: Records -> IO Bool
hasEnded r = ended <$> readIORef (inbound r)

-- | A copy of the next bytes of a record, once the action has filled it; fewer at the end.
takeRecords :: Records -> IO () -> Int -> IO ByteString
takeRecords r wait count = go
  where
    go = do
      i <- readIORef (inbound r)
      whole <- complete i
      if whole || ended i || count == 0 then B.copy <$> takeFrom r i count else wait >> go

-- | The next bytes of a complete record, whose memory is reused. Throws 'NeedMore' before another.
takeComplete :: Records -> Int -> IO ByteString
takeComplete r count = do
  i <- readIORef (inbound r)
  whole <- complete i
  if whole || count == 0 then takeFrom r i count else throwIO NeedMore

-- | A slice within one record. The library takes the first header in two parts, to recognise SSL 2.
takeFrom :: Records -> Inbound -> Int -> IO ByteString
takeFrom r i count = do
  left <- wantedSize i
  let n = minimum [count, left, to i - from i]
  writeIORef (inbound r) i {from = from i + n, unread = if n == 0 then unread i else left - n}
  pure (maybe B.empty (\b -> unsafeSlice b (from i) n) (memory i))

-- | The library wants a record that is not here yet.
data NeedMore = NeedMore
  deriving stock (Show)

instance Exception NeedMore

-- | Queue bytes for the next 'flush'.
put :: Records -> ByteString -> IO ()
put r bytes = atomicModifyIORef' (outbound r) (\queued -> (queued |> bytes, ()))

hasOutput :: Records -> IO Bool
hasOutput r = not . null <$> readIORef (outbound r)

-- Note [Whose turn it is to send]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- A thread that sends waits for `sending`, and so for the peer: it queues no more than the peer takes. A
-- thread that receives has something to send at times, but must not wait while another sends: the peer
-- may send all of its own before it receives. So it leaves what is queued to the holder of `sending`, if
-- there is one, and goes on.
--
-- Invariant: while something is queued, a thread holds `sending` or is going to look at the queue, unless
-- the last holder was interrupted or has failed; then the next flush goes on. For the holder looks again
-- after it has let go: at what was queued after its last look by a thread that found `sending` held.

-- | Send what is queued; did the peer take it at once? After an interruption the next call goes on.
flush :: Records -> Thread Bool
flush r =
  liftIO (hasOutput r) >>= \case
    False -> pure True
    True -> withMutex (sending r) (sendQueued r) <* flushBeside r

-- | Send what is queued, unless another thread is sending: that one sends it.
flushBeside :: Records -> Thread ()
flushBeside r = do
  waiting <- liftIO (hasOutput r)
  when waiting $ do
    mine <- bracket (tryLock (sending r)) (`when` unlock (sending r)) (\mine -> mine <$ when mine (void (sendQueued r)))
    when mine (flushBeside r)

-- | 'flushBeside' for a receiver, which must not wait for long: the peer may send all of its own before it takes
-- anything. What is left then goes with what is sent next. A peer that asks for many answers and takes none has failed.
flushAnswers :: Records -> Thread ()
flushAnswers r = do
  _ <- timeout (seconds 1) (flushBeside r)
  queued <- liftIO (Seq.length <$> readIORef (outbound r))
  -- More than a sender queues at a time, and many answers.
  when (queued > 256) . liftIO . ioError $ userError "TLS: the peer asks for answers and takes none"

-- | Send until nothing is queued, holding 'sending': did the peer take it at once?
sendQueued :: Records -> Thread Bool
sendQueued r = go (0 :: Int)
  where
    go sends = do
      pieces <- liftIO (readIORef (outbound r))
      if null pieces
        then pure (sends <= 1)
        else do
          mask_ $ do
            n <- transportSend (below r) (toList pieces)
            liftIO (atomicModifyIORef' (outbound r) (\queued -> (Seq.fromList (dropBytes n (toList queued)), ())))
          go (sends + 1)
