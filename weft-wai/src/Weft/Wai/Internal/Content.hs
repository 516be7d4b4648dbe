{-# OPTIONS_GHC -O2 #-}

-- |
-- Description : Running builders
-- Stability   : not home
--
-- Runs a builder as far as it fits into memory that one is willing to spend: then its
-- length is known before anything is sent. Nearly every response ends there, and most of
-- them in the first piece of memory.
module Weft.Wai.Internal.Content
  ( Content (..),
    gather,
    continue,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder (Builder)
import Data.ByteString.Builder.Extra (byteStringInsert)
import Data.ByteString.Builder.Internal (BufferRange (..), BuildStep, fillWithBuildStep, runBuilder)
import Data.ByteString.Internal (ByteString (BS), mallocByteString)
import Foreign.Ptr (minusPtr, plusPtr)
import GHC.ForeignPtr (unsafeWithForeignPtr)

-- | What a builder has built.
data Content
  = -- | All of it.
    Whole [ByteString]
  | -- | The beginning, newest first, and how it goes on in so much room.
    Begun [ByteString] !Int (BuildStep ())

-- | Run a builder until it has ended or built more than so many octets.
gather :: Int -> Builder -> IO Content
gather most builder =
  fill 256 (runBuilder builder) >>= \case
    Ended piece -> pure (Whole [piece | not (B.null piece)])
    other -> more [] 0 256 other
  where
    more pieces size room = \case
      Ended piece -> pure (Whole (reverse (added piece pieces)))
      Full piece wanted build -> go (added piece pieces) (size + B.length piece) (max wanted (min 16_384 (4 * room))) build
      Inserted piece bytes build -> go (added bytes (added piece pieces)) (size + B.length piece + B.length bytes) room build
    go pieces size room build
      | size > most = pure (Begun pieces room build)
      | otherwise = fill room build >>= more pieces size room
    added piece pieces = if B.null piece then pieces else piece : pieces

-- | What has been built goes to the action, and all that is built from there on.
continue :: (Monad m) => (forall a. IO a -> m a) -> (Builder -> m ()) -> [ByteString] -> Int -> BuildStep () -> m ()
continue lifting write pieces = \room build -> mapM_ put (reverse pieces) >> go room build
  where
    put bytes = if B.null bytes then pure () else write (byteStringInsert bytes)
    go room build =
      lifting (fill (max 16_384 room) build) >>= \case
        Ended piece -> put piece
        Full piece wanted build' -> put piece >> go wanted build'
        Inserted piece bytes build' -> put piece >> put bytes >> go room build'
{-# INLINE continue #-}

-- | How a builder has left the room that it was given; each with what it has written.
data Filled
  = -- | It has ended.
    Ended !ByteString
  | -- | It wants this much room.
    Full !ByteString !Int (BuildStep ())
  | -- | These bytes come behind, and then it goes on.
    Inserted !ByteString !ByteString (BuildStep ())

-- | Have so much room filled.
fill :: Int -> BuildStep () -> IO Filled
fill room build = do
  content <- mallocByteString room
  let written start end = if end == start then B.empty else BS content (end `minusPtr` start)
  -- A step is a function that returns, of which GHC knows nothing else.
  unsafeWithForeignPtr content $ \start ->
    fillWithBuildStep
      build
      (\end () -> pure (Ended (written start end)))
      (\end wanted build' -> pure (Full (written start end) wanted build'))
      (\end bytes build' -> pure (Inserted (written start end) bytes build'))
      (BufferRange start (start `plusPtr` room))
