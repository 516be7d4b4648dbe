-- |
-- Description : How much memory an idle connection takes
--
-- A hundred thousand established connections with all options, each in a variable and a slot of a
-- table, and the live bytes that they add. It fails above the figure that the README promises.
module Main (main) where

import Control.Monad (forM_, when)
import Data.Array.IO (IOArray, newArray, readArray, writeArray)
import Data.IORef
import Data.List qualified as List
import GHC.Stats
import System.Exit (exitFailure)
import System.Mem (performMajorGC)
import Weft.Tcp.Connection
import Weft.Tcp.Segment
import Weft.Tcp.Sequence

-- Established, and one exchange each way.
idle :: Int -> Tcb
idle n = List.foldl' (\t (now, i) -> stepTcb (step now i t)) begun inputs
  where
    iss = Seq (fromIntegral n)
    first = Seq (fromIntegral n * 7)
    begun = maybe (error "no SYN") stepTcb (passiveOpen defaultSettings iss 0 0 (segment first 0 syn offered 0))
    offered = Options (Just 1460) (Just 7) True (Just (Timestamps 1 0)) []
    stamped v = noOptions {optionTimestamps = Just (Timestamps v 0)}
    segment at a f = Segment at (Seq a) f 500 0
    one = first `advance` 1
    inputs =
      [ (100, Arrived (segment one (fromIntegral n + 1) ack (stamped 2) 0)),
        (200, Arrived (segment one (fromIntegral n + 1) (ack <> psh) (stamped 3) 100)),
        (210, Consumed 100),
        (220, Wrote 200),
        (400, Arrived (segment (one `advance` 100) (fromIntegral n + 201) ack (stamped 4) 0))
      ]

main :: IO ()
main = do
  let count = 100000 :: Int
  table <- newArray (0, count - 1) undefined :: IO (IOArray Int (IORef Tcb))
  forM_ [0 .. count - 1] (\n -> writeArray table n =<< (newIORef $! idle n))
  live <- liveBytes
  -- The table lives until here, and holds what was meant.
  forM_ [0 .. count - 1] $ \n -> do
    t <- readIORef =<< readArray table n
    when (tcbState t /= Established) (putStrLn "not all are established" >> exitFailure)
  let each = fromIntegral live / fromIntegral count :: Double
  putStrLn ("bytes of an idle connection: " ++ show each)
  when (each > 250) exitFailure
  where
    liveBytes = do
      performMajorGC
      gcdetails_live_bytes . gc <$> getRTSStats
