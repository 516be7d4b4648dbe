{-# LANGUAGE CApiFFI #-}
{-# OPTIONS_GHC -optc-D_GNU_SOURCE #-}

-- |
-- Description : Pairs of threads that send each other bytes over pipes
--
-- In each pair one thread sends the given number of bytes and waits for as many, over and
-- over; the other answers. Beside them threads wait, each at a FIFO without a writer (Li &
-- Zdancewic 2007, figures 20 and 21; Li 2008, figures 3.15, 5.6 and 5.7).
module Weft.Bench.Contest.Pipes (pipesWork) where

import Control.Monad (forM_, replicateM, unless, void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as Bytes
import Data.ByteString.Unsafe (unsafeUseAsCString)
import Data.Text qualified as Text
import Data.Word (Word8)
import Foreign.C.Error (throwErrnoIfMinus1_)
import Foreign.C.Types (CInt (..))
import Foreign.Marshal.Alloc (allocaBytes)
import Foreign.Ptr (Ptr, castPtr, plusPtr)
import System.FilePath ((</>))
import System.Posix.IO (OpenFileFlags (..), OpenMode (..), createPipe, defaultFileFlags, openFd)
import System.Posix.Types (Fd (..))
import Weft (Thread, fork_, liftIO)
import Weft.Bench.Contest
import Weft.Bench.Contest.Calls
import Weft.Bench.Contest.Kind
import Weft.Bench.Measure (times)
import Weft.Buffer
import Weft.File qualified as Weft (OpenMode (..))
import Weft.IO qualified as IO
import Weft.Pipe
import Weft.Time (milliseconds, sleep)

data Traffic = Traffic
  { trafficPairs :: !Int,
    trafficBytes :: !Int,
    trafficCapacity :: !Int,
    trafficRounds :: !Int,
    -- | where the FIFOs are at which threads wait
    trafficIdle :: ![FilePath]
  }

-- | By threads of a kind. The point: @processors@, @pairs@, @bytes@, @capacity@, @idle@,
-- @total@ (bytes, which are the operations), and @fifos@ if any are idle.
pipesWork :: Kind -> Point -> Either String (IO Work)
pipesWork kind point = do
  processors <- number point "processors"
  pairs <- number point "pairs"
  bytes <- number point "bytes"
  capacity <- number point "capacity"
  idle <- number point "idle"
  total <- number point "total"
  directory <- if idle == 0 then Right "" else maybe (Left "fifos is missing") (Right . Text.unpack) (lookup "fifos" point)
  let rounds = max 1 (total `div` (2 * bytes * pairs))
      traffic = Traffic pairs bytes capacity rounds [directory </> show i | i <- [0 .. idle - 1]]
  pure . runKind processors (rounds * 2 * bytes * pairs) $ case kind of
    Monadic backend -> InWeft backend False (monadic traffic)
    MonadicOnHecs backend -> InWeftOnHecs backend (monadic traffic)
    Direct backend -> InWeft backend False (direct traffic)
    _ | Just library <- concLibOf kind -> InConcLib library (plain (concLibCalls library) traffic)
    _ -> InGhc False (plain ghcCalls traffic)

-- | The pipes of a pair: what the first reads and writes, and the second.
pipesOf :: Traffic -> Thread ((Pipe, Pipe), (Pipe, Pipe))
pipesOf traffic = do
  (r1, w1) <- openPipe
  (r2, w2) <- openPipe
  forM_ [w1, w2] (`setPipeCapacity` trafficCapacity traffic)
  pure ((r2, w1), (r1, w2))

-- | Once all wait.
idling :: Traffic -> (Pipe -> Thread ()) -> Thread ()
idling traffic waiting = do
  forM_ (trafficIdle traffic) $ \path -> openFifo path Weft.ReadWrite >>= fork_ . waiting
  unless (null (trafficIdle traffic)) (sleep (milliseconds 50))

monadic :: Traffic -> Thread [Thread ()]
monadic traffic = do
  idling traffic $ \pipe -> liftIO (newBuffer 1) >>= \b -> void (readPipeInto pipe b 0 1)
  fmap concat . replicateM (trafficPairs traffic) $ do
    ((r2, w1), (r1, w2)) <- pipesOf traffic
    x <- liftIO (newBuffer (trafficBytes traffic))
    y <- liftIO (newBuffer (trafficBytes traffic))
    pure
      [ times (trafficRounds traffic) (writePipe w1 token >> whole x r2 (trafficBytes traffic)),
        times (trafficRounds traffic) (whole y r1 (trafficBytes traffic) >> writePipe w2 token)
      ]
  where
    token = tokenOf traffic
    whole :: Buffer -> Pipe -> Int -> Thread ()
    whole !buffer !pipe !left
      | left <= 0 = pure ()
      | otherwise = readPipeInto pipe buffer 0 left >>= \n -> whole buffer pipe (left - n)

direct :: Traffic -> Thread [Thread ()]
direct traffic = do
  idling traffic $ \pipe -> IO.direct (newBuffer 1 >>= \b -> void (IO.readPipeInto pipe b 0 1))
  fmap concat . replicateM (trafficPairs traffic) $ do
    ((r2, w1), (r1, w2)) <- pipesOf traffic
    x <- liftIO (newBuffer (trafficBytes traffic))
    y <- liftIO (newBuffer (trafficBytes traffic))
    pure
      [ IO.direct (times (trafficRounds traffic) (IO.writePipe w1 token >> whole x r2 (trafficBytes traffic))),
        IO.direct (times (trafficRounds traffic) (whole y r1 (trafficBytes traffic) >> IO.writePipe w2 token))
      ]
  where
    token = tokenOf traffic
    whole :: Buffer -> Pipe -> Int -> IO ()
    whole !buffer !pipe !left
      | left <= 0 = pure ()
      | otherwise = IO.readPipeInto pipe buffer 0 left >>= \n -> whole buffer pipe (left - n)

plain :: Calls -> Traffic -> IO [IO ()]
plain calls traffic = do
  forM_ (trafficIdle traffic) $ \path -> do
    fd <- openFd path ReadWrite defaultFileFlags {nonBlock = True}
    callsAdopt calls fd
    callsFork calls (allocaBytes 1 (\b -> whole (callsRead calls fd) b 1))
  unless (null (trafficIdle traffic)) (callsSettle calls)
  fmap concat . replicateM (trafficPairs traffic) $ do
    (r1, w1) <- pipe
    (r2, w2) <- pipe
    pure
      [ allocaBytes size $ \b -> times (trafficRounds traffic) (put w1 >> whole (callsRead calls r2) b size),
        allocaBytes size $ \b -> times (trafficRounds traffic) (whole (callsRead calls r1) b size >> put w2)
      ]
  where
    size = trafficBytes traffic
    token = tokenOf traffic
    pipe = do
      (r@(Fd number'), w) <- createPipe
      throwErrnoIfMinus1_ "F_SETPIPE_SZ" (c_fcntl number' c_setpipe_sz (fromIntegral (trafficCapacity traffic)))
      (r, w) <$ mapM_ (callsAdopt calls) [r, w]
    put fd = unsafeUseAsCString token $ \p -> whole (callsWrite calls fd) (castPtr p) size
    whole :: (Ptr Word8 -> Int -> IO Int) -> Ptr Word8 -> Int -> IO ()
    whole call = go
      where
        go !p !left
          | left <= 0 = pure ()
          | otherwise = call p left >>= \n -> if n == 0 then errorWithoutStackTrace "the end of a pipe" else go (p `plusPtr` n) (left - n)

tokenOf :: Traffic -> ByteString
tokenOf traffic = Bytes.replicate (trafficBytes traffic) 120

foreign import capi unsafe "fcntl.h fcntl" c_fcntl :: CInt -> CInt -> CInt -> IO CInt

foreign import capi unsafe "fcntl.h value F_SETPIPE_SZ" c_setpipe_sz :: CInt
