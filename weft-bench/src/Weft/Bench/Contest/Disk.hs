{-# LANGUAGE CApiFFI #-}
{-# OPTIONS_GHC -optc-D_GNU_SOURCE #-}

-- |
-- Description : Random reads of a large file, past the page cache
--
-- Each thread reads blocks of 4 KB at random places of one file that is opened with
-- @O_DIRECT@ (Li & Zdancewic 2007, figure 19; Li 2008, figures 3.14 and 5.4).
module Weft.Bench.Contest.Disk (diskWork, makeFile) where

import Control.Monad (unless, when)
import Data.ByteString qualified as Bytes
import Data.Text qualified as Text
import Data.Text.Encoding qualified as Text
import Data.Word (Word8)
import Foreign.C.Error (throwErrnoIfMinus1)
import Foreign.C.String (CString, withCString)
import Foreign.C.Types (CInt (..), CSize (..))
import Foreign.Ptr (Ptr)
import System.IO (IOMode (..), withBinaryFile)
import System.Posix.Types (COff (..), CSsize (..), Fd (..))
import Weft (Thread, liftIO)
import Weft.Bench.Contest
import Weft.Bench.Contest.Kind
import Weft.Bench.Contest.Random
import Weft.Buffer
import Weft.ConcLib.IO qualified as ConcLib
import Weft.File
import Weft.IO qualified as IO

-- | By threads of a kind. The point: @processors@, @threads@, @reads@ (of all together),
-- @file@, @file-bytes@. GHC's threads read with a @safe@ foreign call: there is nothing else
-- for them, and each holds an OS thread meanwhile.
diskWork :: Kind -> Point -> Either String (IO Work)
diskWork kind point = do
  processors <- number point "processors"
  threads <- number point "threads"
  total <- number point "reads"
  size <- number point "file-bytes"
  path <- maybe (Left "file is missing") Right (lookup "file" point)
  when (size < block) (Left "the file has no block")
  let reads' = max 1 (total `div` threads)
      place x = fromIntegral (upTo (fromIntegral (size `div` block)) x) * block
      loop :: (Monad m) => (Int -> m Int) -> State -> m ()
      loop readAt' = go reads'
        where
          go 0 _ = pure ()
          go k x = do
            let y = next x
            n <- readAt' (place y)
            unless (n == block) (errorWithoutStackTrace ("a read of " ++ show block ++ " bytes gave " ++ show n))
            go (k - 1 :: Int) y
      weft :: (File -> Buffer -> State -> Thread ()) -> Thread [Thread ()]
      weft body = do
        file <- openFileAt CurrentDirectory (Text.encodeUtf8 path) ReadOnly defaultOpenFlags {openDirect = True}
        pure [liftIO (newAlignedBuffer block block) >>= \b -> body file b (seeded i) | i <- [0 .. threads - 1]]
      monadic = weft (\f b -> loop (\at -> readAtInto f (fromIntegral at) b 0 block))
      plain :: (CInt -> Ptr Word8 -> Int -> IO Int) -> IO [IO ()]
      plain readAt' = do
        fd <- withCString (Text.unpack path) $ \p -> throwErrnoIfMinus1 "open" (c_open p c_direct)
        pure [newAlignedBuffer block block >>= \b -> withBuffer b (\p -> loop (readAt' fd p) (seeded i)) | i <- [0 .. threads - 1]]
  pure . runKind processors (reads' * threads) $ case kind of
    Monadic backend -> InWeft backend False monadic
    MonadicOnHecs backend -> InWeftOnHecs backend monadic
    Direct backend -> InWeft backend False (weft (\f b x -> IO.direct (loop (\at -> IO.readAtInto f (fromIntegral at) b 0 block) x)))
    _ | Just library <- concLibOf kind -> InConcLib library (plain (\fd p at -> ConcLib.readAt (Fd fd) p block at))
    _ -> InGhc False (plain (\fd p at -> fromIntegral <$> throwErrnoIfMinus1 "pread" (c_pread fd p (fromIntegral block) (fromIntegral at))))
  where
    block = 4_096

-- | A file of this length in bytes, none of them a hole.
makeFile :: FilePath -> Int -> IO ()
makeFile path size = withBinaryFile path WriteMode (`go` size)
  where
    piece = Bytes.replicate 1_048_576 87
    go h left = when (left > 0) $ Bytes.hPut h (Bytes.take left piece) >> go h (left - Bytes.length piece)

foreign import capi unsafe "fcntl.h open" c_open :: CString -> CInt -> IO CInt

foreign import ccall safe "pread" c_pread :: CInt -> Ptr a -> CSize -> COff -> IO CSsize

foreign import capi unsafe "fcntl.h value O_DIRECT" c_direct :: CInt
