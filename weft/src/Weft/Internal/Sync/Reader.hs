{-# LANGUAGE MultiWayIf #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The memory of a reader
--
-- A buffer and its received, unread part. It grows on demand and returns to its first size when
-- empty. Bytes are copied out, since the memory is reused. Used by the one thread that reads;
-- "Weft.Reader" has the public operations.
module Weft.Internal.Sync.Reader
  ( Reader,
    newReaderInto,
    newReaderFrom,
    receiveMore,
    received,
    takeBytes,
    peekBytes,

    -- * Deciding
    Verdict (..),
    Considered (..),
    consider,
  )
where

import Control.Monad.IO.Class (liftIO)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Unsafe (unsafeUseAsCStringLen)
import Data.IORef
import Foreign.Marshal.Utils (copyBytes, moveBytes)
import Foreign.Ptr (castPtr, plusPtr)
import Weft.Internal.Core.Buffer
import Weft.Internal.Core.Trace (Thread)

-- | A stream, and what was received of it and not read.
data Reader = Reader
  { readerState :: !(IORef ReaderState),
    -- | Wait for bytes and keep them: how many came, 0 at the end of the stream. Between
    -- their arrival and the state no system call is made, so nothing interrupts there.
    receiveMore :: !(Thread Int)
  }

-- | The bytes between the two offsets are there; the room after them is free.
data ReaderState = ReaderState
  { _stateBuffer :: !Buffer,
    stateFrom :: !Int,
    stateTo :: !Int
  }

-- | The size of a buffer that has not grown.
usual :: Int
usual = 4096

-- | A reader of what a function receives into a buffer, at an offset, at most that many bytes.
newReaderInto :: (Buffer -> Int -> Int -> Thread Int) -> Thread Reader
newReaderInto receiving = liftIO $ do
  state <- newState
  pure . Reader state $ do
    ReaderState buffer _ to <- liftIO (makeRoom state (usual `div` 4))
    n <- receiving buffer to (bufferSize buffer - to)
    n <$ liftIO (keep state n)

-- | A reader of anything that gives bytes, at most as many as it is asked for, and none at the
-- end: a connection with TLS, a pipe.
newReaderFrom :: (Int -> Thread ByteString) -> Thread Reader
newReaderFrom source = liftIO $ do
  state <- newState
  pure . Reader state $ do
    bytes <- source usual
    liftIO $ do
      let n = ByteString.length bytes
      ReaderState buffer _ to <- makeRoom state n
      unsafeUseAsCStringLen bytes (\(p, _) -> withBuffer buffer (\b -> copyBytes (b `plusPtr` to) (castPtr p) n))
      n <$ keep state n

newState :: IO (IORef ReaderState)
newState = newBuffer usual >>= \buffer -> newIORef (ReaderState buffer 0 0)

-- | Note that the given number of bytes were received.
keep :: IORef ReaderState -> Int -> IO ()
keep state n = modifyIORef' state (\st -> st {stateTo = stateTo st + n})

-- | Have room for the given number of bytes: move what is there to the beginning, or to a larger
-- buffer if it fills more than half of this one.
makeRoom :: IORef ReaderState -> Int -> IO ReaderState
makeRoom state n = do
  st@(ReaderState buffer from to) <- readIORef state
  let size = bufferSize buffer
      have = to - from
      moveTo target = withBuffer buffer $ \old -> withBuffer target $ \new -> moveBytes new (old `plusPtr` from) have
      becomes st' = st' <$ writeIORef state st'
  if
    | have == 0 && size > usual && n <= usual -> newBuffer usual >>= \b -> becomes (ReaderState b 0 0)
    | size - to >= n && have > 0 -> pure st
    | size >= n + have && 2 * have <= size -> moveTo buffer >> becomes (ReaderState buffer 0 have)
    | otherwise -> do
        larger <- newBuffer (max (n + have) (2 * size))
        moveTo larger
        becomes (ReaderState larger 0 have)

-- | How many bytes were received and not given out.
received :: Reader -> IO Int
received reader = (\st -> stateTo st - stateFrom st) <$> readIORef (readerState reader)

-- | Take at most the given number of bytes of those.
takeBytes :: Reader -> Int -> IO ByteString
takeBytes reader n = do
  bytes <- peekBytes reader n
  modifyIORef' (readerState reader) (\st -> st {stateFrom = stateFrom st + ByteString.length bytes})
  pure bytes

-- | A copy of at most the given number of bytes of those.
peekBytes :: Reader -> Int -> IO ByteString
peekBytes reader n = do
  ReaderState buffer from to <- readIORef (readerState reader)
  copyBuffer buffer from (min n (to - from))

-- | A decision about the bytes that were received.
data Verdict
  = -- | Give out as many bytes as the first number, and forget as many as the second.
    Take !Int !Int
  | -- | Leave it; no content ends within this number of bytes.
    Leave !Int

data Considered
  = Taken !ByteString
  | Remains !Int

-- | Look at what was received, where it lies, and take a part of it or leave it.
consider :: Reader -> (ByteString -> Verdict) -> IO Considered
consider reader judge = do
  st@(ReaderState buffer from to) <- readIORef (readerState reader)
  case judge (unsafeSlice buffer from (to - from)) of
    Leave n -> pure (Remains n)
    Take content whole -> do
      bytes <- copyBuffer buffer from content
      writeIORef (readerState reader) $! st {stateFrom = from + whole}
      pure (Taken bytes)
