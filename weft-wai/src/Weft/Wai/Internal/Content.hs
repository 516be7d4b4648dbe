{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Runs a builder within a bound of memory, so that its length is known before anything is sent. The
-- builders of a stream run in the same memory, so that small ones become one piece.
module Weft.Wai.Internal.Content (Content (..), gather, continue, Page, newPage, write, handOn) where

import Control.Monad (when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder (Builder)
import Data.ByteString.Builder.Internal (BufferRange (..), BuildStep, fillWithBuildStep, runBuilder)
import Data.ByteString.Internal (ByteString (BS), mallocByteString)
import Data.IORef
import Data.Word (Word8)
import Foreign.ForeignPtr (ForeignPtr, plusForeignPtr)
import Foreign.Ptr (minusPtr, plusPtr)
import GHC.ForeignPtr (unsafeWithForeignPtr)

data Content
  = -- | All of it.
    Whole ![ByteString]
  | -- | The beginning, newest first, the size of the next buffer, and the rest of the builder.
    Begun [ByteString] !Int (BuildStep ())

-- | Run a builder until it has ended or built more than the given number of octets.
gather :: Int -> Builder -> IO Content
gather most builder = do
  content <- mallocByteString 256
  fill content 0 256 (runBuilder builder) >>= \case
    Ended n -> pure $! Whole [BS content n | n > 0]
    filled -> more [] 0 256 content filled
  where
    more pieces size room content = \case
      Ended n -> pure (Whole (reverse (piece content n <> pieces)))
      Full n wanted build -> go (piece content n <> pieces) (size + n) (max wanted (min 16_384 (4 * room))) build
      Inserted n bytes build -> go (bytes : piece content n <> pieces) (size + n + B.length bytes) room build
    go pieces size room build
      | size > most = pure (Begun pieces room build)
      | otherwise = do
          content <- mallocByteString room
          fill content 0 room build >>= more pieces size room content
    piece content n = [BS content n | n > 0]

-- | Pass what has been built, and then the output of the rest, to the action.
continue :: (Monad m) => (forall a. IO a -> m a) -> (ByteString -> m ()) -> [ByteString] -> Int -> BuildStep () -> m ()
continue lifting give pieces = \room build -> mapM_ give (reverse pieces) >> go room build
  where
    go wanted build = do
      let room = max 16_384 wanted
      content <- lifting (mallocByteString room)
      let piece n = when (n > 0) (give (BS content n))
      lifting (fill content 0 room build) >>= \case
        Ended n -> piece n
        Full n wanted' build' -> piece n >> go wanted' build'
        Inserted n bytes build' -> piece n >> give bytes >> go room build'

-- | The unsent output of a stream's builders. Used by one thread at a time.
newtype Page = Page (IORef Room)

-- | Memory; the offsets of the start and the end of the unsent output; and its size.
data Room = Room !(ForeignPtr Word8) !Int !Int !Int

newPage :: Int -> IO Page
newPage size = Page <$> (roomOf size >>= newIORef)

roomOf :: Int -> IO Room
roomOf size = (\content -> Room content 0 0 size) <$> mallocByteString size

-- | Run a builder. The action receives what does not fit, and the output before it.
write :: Page -> (ByteString -> IO ()) -> Builder -> IO ()
write (Page ref) give builder = readIORef ref >>= go (runBuilder builder)
  where
    go build room@(Room content from at end) =
      fill content at end build >>= \case
        Ended n -> writeIORef ref (Room content from (at + n) end)
        Full n wanted build' -> do
          room' <- roomOf (max 16_384 wanted)
          continueIn room' n
          go build' room'
        Inserted n bytes build' -> do
          let room' = Room content (at + n) (at + n) end
          continueIn room' n
          give bytes
          go build' room'
      where
        -- The store first, so that no output is passed twice.
        continueIn room' n = writeIORef ref room' >> mapM_ give (pieceOf room n)

handOn :: Page -> (ByteString -> IO ()) -> IO ()
handOn (Page ref) give = do
  room@(Room content _ at end) <- readIORef ref
  writeIORef ref (Room content at at end)
  mapM_ give (pieceOf room 0)

-- | The unsent output and the given number of bytes after it.
pieceOf :: Room -> Int -> Maybe ByteString
pieceOf (Room content from at _) n
  | at + n == from = Nothing
  | otherwise = Just (BS (content `plusForeignPtr` from) (at + n - from))

-- | How a builder has left its memory; first the number of bytes that it has written.
data Filled
  = -- | It has ended.
    Ended !Int
  | -- | It needs memory of this size.
    Full !Int !Int (BuildStep ())
  | -- | These bytes follow, and then it goes on.
    Inserted !Int !ByteString (BuildStep ())

-- | Run a builder on the memory between two offsets.
fill :: ForeignPtr Word8 -> Int -> Int -> BuildStep () -> IO Filled
fill content from to build =
  -- A step is a function that returns, of which GHC knows nothing else.
  unsafeWithForeignPtr content $ \base -> do
    let start = base `plusPtr` from
    fillWithBuildStep
      build
      (\end () -> pure (Ended (end `minusPtr` start)))
      (\end wanted build' -> pure (Full (end `minusPtr` start) wanted build'))
      (\end bytes build' -> pure (Inserted (end `minusPtr` start) bytes build'))
      (BufferRange start (base `plusPtr` to))
