-- |
-- Description : How threads that compute spread over workers
--
-- So many threads of equal work, all forked on one worker, with one worker and with two.
-- The number of threads is that of Li & Zdancewic 2007, figure 18, whose threads also
-- yield and share a transactional variable.
module Weft.Bench.Spread
  ( SpreadSettings (..),
    spreadRows,
  )
where

import Control.Concurrent (setNumCapabilities)
import Control.Concurrent.MVar
import Control.Exception (evaluate)
import Control.Monad (forM, forM_, unless)
import Data.IORef
import Data.Map.Strict qualified as Map
import Weft
import Weft.Bench.Measure (Nanoseconds (..), Spent (..), spending)
import Weft.Bench.Report
import Weft.Bench.Statistics (median, medianOfRatios)

-- | What is spread.
data SpreadSettings = SpreadSettings
  { spreadThreads :: !Int,
    -- | additions in each thread
    spreadWork :: !Int,
    spreadRounds :: !Int
  }

-- | A row for each number of workers, the rounds interleaved.
spreadRows :: SpreadSettings -> IO [Row]
spreadRows s = do
  setNumCapabilities 2
  measured <- forM [1 .. spreadRounds s] $ \i -> forM [1, 2] $ \workers -> do
    spent <- once workers
    pure ((workers, i), spent)
  let times w = Map.fromList [(i, seconds' (spentTime spent)) | ((v, i), spent) <- concat measured, v == w]
      cpus w = [seconds' (spentCpu spent) | ((v, _), spent) <- concat measured, v == w]
  pure
    [ [ ("benchmark", Name "spread"),
        ("workers", Count (fromIntegral w)),
        ("threads", Count (fromIntegral (spreadThreads s))),
        ("rounds", Count (fromIntegral (spreadRounds s))),
        ("seconds", figure (median (Map.elems (times w)))),
        ("cpu_seconds", figure (median (cpus w))),
        ("times_faster", figure (medianOfRatios (times 1) (times w)))
      ]
      | w <- [1 :: Int, 2]
    ]
  where
    seconds' (Nanoseconds n) = fromIntegral n / 1e9 :: Double
    once workers = fst <$> spending (runWith defaultSettings {settingWorkers = Just workers} everybody)
    everybody = do
      left <- liftIO (newIORef (spreadThreads s))
      finished <- liftIO newEmptyMVar
      forM_ [1 .. spreadThreads s] $ \i -> fork_ . liftIO $ do
        _ <- evaluate (work i (spreadWork s))
        n <- atomicModifyIORef' left (\n -> (n - 1, n - 1))
        unless (n > 0) (putMVar finished ())
      blocking (takeMVar finished)

-- | Allocates nothing, so that the collector has no part in the figure, and gives the
-- run-time system no place to interrupt it.
work :: Int -> Int -> Int
work = go
  where
    go !a 0 = a
    go a n = go ((a * 1_103_515_245 + 12_345) `mod` 2_147_483_647) (n - 1)
{-# NOINLINE work #-}
