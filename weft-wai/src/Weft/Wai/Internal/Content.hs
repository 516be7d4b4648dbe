{-# OPTIONS_GHC -O2 #-}

-- |
-- Description : Running builders
-- Stability   : not home
--
-- Runs a builder as far as it fits into memory that one is willing to spend: then its
-- length is known before anything is sent. Nearly every response ends there.
module Weft.Wai.Internal.Content
  ( Content (..),
    gather,
    continue,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder (Builder)
import Data.ByteString.Builder.Extra (BufferWriter, Next (..), byteStringInsert, runBuilder)
import Data.ByteString.Internal (ByteString (BS), mallocByteString)
import Foreign.ForeignPtr (withForeignPtr)

-- | What a builder has built.
data Content
  = -- | All of it.
    Whole [ByteString]
  | -- | The beginning, newest first, and how it goes on: a writer that wants room.
    Begun [ByteString] !Int BufferWriter

-- | Run a builder until it has ended or built more than so many octets.
gather :: Int -> Builder -> IO Content
gather most builder = go [] 0 256 (runBuilder builder)
  where
    go pieces size room writer
      | size > most = pure (Begun pieces room writer)
      | otherwise = do
          (piece, next) <- step room writer
          let (pieces', size') = added piece pieces size
          case next of
            Done -> pure (Whole (reverse pieces'))
            More wanted writer' -> go pieces' size' (max wanted (min 16_384 (4 * room))) writer'
            Chunk bytes writer' -> let (pieces'', size'') = added bytes pieces' size' in go pieces'' size'' room writer'
    added piece pieces size
      | B.null piece = (pieces, size)
      | otherwise = (piece : pieces, size + B.length piece)

-- | What has been built goes to the action, and all that is built from there on.
continue :: (Monad m) => (forall a. IO a -> m a) -> (Builder -> m ()) -> [ByteString] -> Int -> BufferWriter -> m ()
continue lifting write pieces = \room writer -> mapM_ put (reverse pieces) >> go room writer
  where
    put bytes = if B.null bytes then pure () else write (byteStringInsert bytes)
    go room writer = do
      (piece, next) <- lifting (step (max 16_384 room) writer)
      put piece
      case next of
        Done -> pure ()
        More wanted writer' -> go wanted writer'
        Chunk bytes writer' -> put bytes >> go room writer'
{-# INLINE continue #-}

-- | Have so much room written to.
step :: Int -> BufferWriter -> IO (ByteString, Next)
step room writer = do
  content <- mallocByteString room
  (n, next) <- withForeignPtr content (`writer` room)
  pure (if n == 0 then B.empty else BS content n, next)
