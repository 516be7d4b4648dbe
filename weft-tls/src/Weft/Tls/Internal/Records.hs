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
    takeSome,
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
data Inbound = Inbound
  { memory :: !(Maybe Buffer),
    from :: !Int,
    to :: !Int,
    -- | Has the library taken a header, and not what belongs to it?
    inRecord :: !Bool,
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
    <$> liftIO (newIORef (Inbound Nothing 0 0 False False False))
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

-- | Room behind what is there. A connection that waits for a record has little of it; once
-- it is known how long a record is there is enough for that.
makeRoom :: Records -> IO (Buffer, Int)
makeRoom r = do
  i <- readIORef (inbound r)
  let present = to i - from i
      use buffer at = do
        writeIORef (inbound r) i {memory = Just buffer, from = at - present, to = at}
        pure (buffer, at)
  wanted <- wantedSize i
  case memory i of
    Just buffer
      | present == 0, flowing i || bufferSize buffer <= idleSize -> use buffer 0
      | present > 0, from i + wanted <= bufferSize buffer, to i < bufferSize buffer -> pure (buffer, to i)
      | present > 0,
        wanted <= bufferSize buffer -> do
          withBuffer buffer $ \p -> moveBytes p (p `plusPtr` from i) present
          use buffer present
      | present > 0 -> do
          larger <- newBuffer (if wanted <= middleSize then middleSize else fullSize)
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

-- | How many bytes the first record has, as far as that is known yet.
wantedSize :: Inbound -> IO Int
wantedSize i
  | to i - from i < headerSize = pure headerSize
  | otherwise = case memory i of
      Nothing -> pure headerSize
      Just buffer -> withBuffer buffer $ \p -> do
        high <- peekByteOff p (from i + 3) :: IO Word8
        low <- peekByteOff p (from i + 4)
        -- What is longer than allowed is refused by the library, which need not see it.
        let size = (fromIntegral high `shiftL` 8) .|. fromIntegral (low :: Word8)
        pure (if size > largestRecord then headerSize else headerSize + size)

-- | The first byte that was not taken.
firstByte :: Records -> IO (Maybe Word8)
firstByte r = do
  i <- readIORef (inbound r)
  pure (memory i >>= \buffer -> fst <$> B.uncons (unsafeSlice buffer (from i) (to i - from i)))

-- | Is there a whole record?
isComplete :: Records -> IO Bool
isComplete r = readIORef (inbound r) >>= complete

complete :: Inbound -> IO Bool
complete i
  | to i - from i < headerSize = pure False
  | otherwise = (to i - from i >=) <$> wantedSize i

-- | Has the stream ended?
hasEnded :: Records -> IO Bool
hasEnded r = ended <$> readIORef (inbound r)

-- | So many bytes, after waiting for them by an action that fills; fewer at the end of the
-- stream. A copy: the library keeps the messages of a handshake.
takeSome :: Records -> IO () -> Int -> IO ByteString
takeSome r wait count = go
  where
    go = do
      i <- readIORef (inbound r)
      if to i - from i >= count || ended i
        then do
          bytes <- maybe (pure B.empty) (\b -> copyBuffer b (from i) (min count (to i - from i))) (memory i)
          writeIORef (inbound r) i {from = from i + B.length bytes}
          pure bytes
        else wait >> go

-- | So many bytes of a record that has come as a whole: its header, and then the rest.
-- Raises 'NeedMore' before a record that has not. The memory is used again when the library
-- has returned: it has decrypted the record then, to memory of its own.
takeComplete :: Records -> Int -> IO ByteString
takeComplete r count = do
  i <- readIORef (inbound r)
  available <- if inRecord i then pure True else complete i
  if not available
    then throwIO NeedMore
    else do
      let bytes = maybe B.empty (\b -> unsafeSlice b (from i) (min count (to i - from i))) (memory i)
      writeIORef (inbound r) i {from = from i + B.length bytes, inRecord = not (inRecord i)}
      pure bytes

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
