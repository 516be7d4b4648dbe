{-# OPTIONS_GHC -O2 #-}

-- |
-- Description : The bytes between a socket and the TLS library
-- Stability   : not home
--
-- What was received and the library has not taken, and what the library has written and
-- was not sent. The library itself never waits for a socket here (Note [Who waits]):
-- threads fill and flush, before and after it is called.
module Weft.Tls.Internal.Records
  ( Records,
    newRecords,
    below,

    -- * Receiving
    fill,
    firstByte,
    isComplete,
    hasEnded,

    -- * Sending
    flush,
    hasOutput,

    -- * For the library
    takeRecords,
    takeComplete,
    NeedMore (..),
    put,
  )
where

import Control.Exception (Exception, throwIO)
import Data.Bits (shiftL, (.|.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.IORef
import Data.Maybe (isJust)
import Data.Word (Word8)
import Foreign.Marshal.Utils (copyBytes, moveBytes)
import Foreign.Ptr (plusPtr)
import Foreign.Storable (peekByteOff)
import Weft
import Weft.Buffer
import Weft.Http.Server (Transport (..))
import Weft.Internal.Buffer (unsafeSlice)
import Weft.Mask (mask_)
import Weft.Mutex

-- Note [Who waits]
-- ~~~~~~~~~~~~~~~~
-- The library takes its locks (MVars) around whole operations, the sending and receiving
-- of its backend included. A thread that was suspended in the backend would hold such a
-- lock meanwhile, and the next thread that wanted it would block its worker, perhaps the
-- one that is to wake the first: a deadlock. So after the handshake the backend never
-- waits:
--
--   * Receiving: the library is called when a whole record has come, and takes that. When
--     it wants another one (the first was a session ticket, say) and there is none, the
--     backend raises `NeedMore`. It does so between two records only, where the library
--     has nothing half done: what it had changed it has stored. It is called again when
--     more has come.
--   * Sending: the backend puts what it is given into a queue, which is flushed afterwards.
--
-- Invariant: no lock of the library is held while a thread of Weft waits for anything. Two
-- threads may therefore use a connection at a time, one to receive and one to send, as with
-- a socket; on two workers one may wait for the other for as long as a record takes to be
-- encrypted.
--
-- The handshake is not of this kind: see "Weft.Tls.Internal.Handshake".

-- | Both directions of a connection.
data Records = Records
  { -- | What carries the records.
    below :: !Transport,
    inbound :: !(IORef Inbound),
    outbound :: !(IORef Outbound),
    -- | Who sends; so that what two threads have the library write is not mixed.
    sending :: !Mutex
  }

-- | Received bytes lie in the memory from the first offset to the second.
--
-- Invariant: where 'unread' is 0 a record begins at the first offset, and nowhere else are
-- bytes read as a header.
data Inbound = Inbound
  { memory :: !(Maybe Buffer),
    from :: !Int,
    to :: !Int,
    -- | How many bytes of the record that the library has begun to take, its header
    -- included, it has not taken yet. 0: it has begun none.
    unread :: !Int,
    -- | Did the last bytes fill all the room there was? Then there are likely more.
    flowing :: !Bool,
    ended :: !Bool
  }

-- | Oldest first; then newest first.
data Outbound = Outbound [ByteString] [ByteString]

-- | Nothing received, nothing to be sent.
newRecords :: Transport -> Thread Records
newRecords transport =
  Records transport
    <$> liftIO (newIORef (Inbound Nothing 0 0 0 False False))
    <*> liftIO (newIORef (Outbound [] []))
    <*> newMutexNamed "TLS: sending"

-- | Wait for some bytes; false at the end of the stream. May be interrupted, and nothing is
-- lost then: what has come is there ('isComplete').
fill :: Records -> Thread Bool
fill r = mask_ $ do
  (buffer, at) <- liftIO (makeRoom r)
  let room = bufferSize buffer - at
  n <- transportReceive (below r) buffer at room `onException` liftIO (forgetBuffer r)
  liftIO . modifyIORef' (inbound r) $ \i ->
    if n == 0 then i {ended = True} else i {to = to i + n, flowing = n == room}
  pure (n > 0)

-- | Room for at least one byte after what is there. A connection that waits for a record has
-- little of it; once it is known how long a record is there is enough for that.
makeRoom :: Records -> IO (Buffer, Int)
makeRoom r = do
  i <- readIORef (inbound r)
  let present = to i - from i
      use buffer at = do
        writeIORef (inbound r) i {memory = Just buffer, from = at - present, to = at}
        pure (buffer, at)
  -- More than is there, also where all that is wanted has come.
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
          larger <- newBuffer (if wanted <= middleSize then middleSize else max wanted fullSize)
          withBuffer buffer $ \p -> withBuffer larger $ \q -> copyBytes q (p `plusPtr` from i) present
          use larger present
    _ -> newBuffer idleSize >>= \buffer -> use buffer 0

-- | What a connection holds that waits for something to come: most requests fit.
idleSize :: Int
idleSize = 1024

middleSize :: Int
middleSize = 4096

-- | Two records of the largest size, and a bit.
fullSize :: Int
fullSize = 2 * (headerSize + largestRecord)

headerSize :: Int
headerSize = 5

-- | The most that may follow a header (in TLS 1.2, RFC 5246, 6.2.3).
largestRecord :: Int
largestRecord = 16_384 + 2048

-- | A wait was interrupted: the connection may be idle for long, and an empty buffer is not
-- kept for that.
forgetBuffer :: Records -> IO ()
forgetBuffer r = modifyIORef' (inbound r) $ \i ->
  if from i == to i then i {memory = Nothing, from = 0, to = 0, flowing = False} else i

-- | How many bytes the record at the first offset has, its header included, or what is left
-- of it, as far as that is known yet. What is longer than allowed has its header only: the
-- library refuses it, and need not see the rest.
wantedSize :: Inbound -> IO Int
wantedSize i = case memory i of
  _ | unread i > 0 -> pure (unread i)
  Just buffer | to i - from i >= headerSize -> withBuffer buffer $ \p -> do
    high <- peekByteOff p (from i + 3) :: IO Word8
    low <- peekByteOff p (from i + 4) :: IO Word8
    let size = (fromIntegral high `shiftL` 8) .|. fromIntegral low
    pure (if size > largestRecord then headerSize else headerSize + size)
  _ -> pure headerSize

-- | Is there a whole record, or all that is left of one?
isComplete :: Records -> IO Bool
isComplete r = readIORef (inbound r) >>= complete

complete :: Inbound -> IO Bool
complete i = (to i - from i >=) <$> wantedSize i

-- | The first byte that was not taken.
firstByte :: Records -> IO (Maybe Word8)
firstByte r = do
  i <- readIORef (inbound r)
  pure (memory i >>= \buffer -> fst <$> B.uncons (unsafeSlice buffer (from i) (to i - from i)))

-- | Has the stream ended?
hasEnded :: Records -> IO Bool
hasEnded r = ended <$> readIORef (inbound r)

-- | The next bytes of a record, a number of them, after waiting for the whole of it by an
-- action that fills; fewer at the end of the stream. A copy: the library keeps the messages
-- of a handshake.
takeRecords :: Records -> IO () -> Int -> IO ByteString
takeRecords r wait count = go
  where
    go = do
      i <- readIORef (inbound r)
      whole <- complete i
      if whole || ended i || count == 0 then B.copy <$> takeFrom r i count else wait >> go

-- | The next bytes of a record that has come as a whole: its header, and then the rest.
-- Raises 'NeedMore' before a record that has not. The memory is used again when the library
-- has returned: it has decrypted the record then, to memory of its own.
takeComplete :: Records -> Int -> IO ByteString
takeComplete r count = do
  i <- readIORef (inbound r)
  whole <- complete i
  if whole || count == 0 then takeFrom r i count else throwIO NeedMore

-- | A slice of the memory, with bytes of one record. The library takes the first header of a
-- handshake in two parts, to tell SSL 2 from it.
takeFrom :: Records -> Inbound -> Int -> IO ByteString
takeFrom r i count = do
  left <- wantedSize i
  let n = minimum [count, left, to i - from i]
  writeIORef (inbound r) i {from = from i + n, unread = if n == 0 then unread i else left - n}
  pure (maybe B.empty (\b -> unsafeSlice b (from i) n) (memory i))

-- | The library wants a record that has not come yet.
data NeedMore = NeedMore
  deriving stock (Show)

instance Exception NeedMore

-- | Send this with the next 'flush'.
put :: Records -> ByteString -> IO ()
put r bytes = atomicModifyIORef' (outbound r) (\(Outbound old new) -> (Outbound old (bytes : new), ()))

-- | Is there anything to be sent?
hasOutput :: Records -> IO Bool
hasOutput r = isJust . oldest <$> readIORef (outbound r)
  where
    oldest (Outbound old new) = case (old, new) of
      ([], []) -> Nothing
      _ -> Just ()

-- | Send what was put; says whether the other end took it at once. When it is interrupted
-- the rest is sent by the next.
flush :: Records -> Thread Bool
flush r =
  liftIO (hasOutput r) >>= \case
    False -> pure True
    True -> withMutex (sending r) (go (0 :: Int))
  where
    go sends = do
      pieces <- liftIO $ atomicModifyIORef' (outbound r) $ \(Outbound old new) ->
        let pieces = if null new then old else old <> reverse new in (Outbound pieces [], pieces)
      if null pieces
        then pure (sends <= 1)
        else do
          mask_ $ do
            n <- transportSend (below r) pieces
            liftIO . atomicModifyIORef' (outbound r) $ \(Outbound old new) -> (Outbound (dropped n old) new, ())
          go (sends + 1)
    dropped _ [] = []
    dropped n (p : ps)
      | n >= B.length p = dropped (n - B.length p) ps
      | otherwise = B.drop n p : ps
