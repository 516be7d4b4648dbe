-- |
-- Description : The cost of a thread that does not come back
--
-- A ticker thread sleeps for a millisecond at a time while another thread computes,
-- blocks in a GHC variable, is in a foreign call, or waits for a thunk that a third
-- evaluates. The figure is the ticker's largest delay. Beside it a ticker of GHC's
-- own threads, with the same stuck thread.
module Weft.Bench.Stall (StallSettings (..), stallRows) where

import Control.Concurrent (forkIO, setNumCapabilities, threadDelay)
import Control.Concurrent.MVar
import Control.Exception (evaluate)
import Control.Monad (forM, forM_, unless, void)
import Data.IORef
import Data.List (sort)
import Data.Text (Text)
import Foreign.C.Types (CInt (..), CUInt (..))
import Weft
import Weft.Bench.Measure (Nanoseconds (..), now)
import Weft.Bench.Report

-- | How long, and how many threads are stuck at once.
data StallSettings = StallSettings
  { -- | the length of each case, in seconds
    stallSeconds :: !Int,
    -- | threads that are stuck at the same time
    stallThreads :: !Int
  }

foreign import ccall safe "usleep" c_usleep :: CUInt -> IO CInt

-- | Ways to be stuck. Each is an action that ends after the flag is set, or by itself
-- when the time is over.
stuckIn :: Int -> [(Text, IORef Bool -> IO (IO ()))]
stuckIn seconds' =
  [ ("nothing", \_ -> pure (pure ())),
    ("computing", pure . computeUntil),
    ( "ghc-mvar",
      \_ -> do
        box <- newEmptyMVar
        void (forkIO (threadDelay (seconds' * 1_000_000) >> putMVar box ()))
        pure (readMVar box)
    ),
    ("foreign-call", \_ -> pure (void (c_usleep (fromIntegral (seconds' * 1_000_000))))),
    ( "black-hole",
      \_ -> do
        let thunk = busy (40_000_000 * seconds')
        pure (void (evaluate thunk))
    )
  ]

computeUntil :: IORef Bool -> IO ()
computeUntil over = go 1
  where
    go :: Integer -> IO ()
    go n = do
      enough <- readIORef over
      unless enough (evaluate (sum [n .. n + 100] `mod` 1_000_003) >>= go)

busy :: Int -> Integer
busy n = sum [fromIntegral (x * x `mod` 7) | x <- [1 .. n]]

-- | One row for each way to be stuck, number of capabilities, and kind of thread.
stallRows :: StallSettings -> IO [Row]
stallRows settings = fmap concat . forM [1, 2] $ \capabilities -> do
  setNumCapabilities capabilities
  fmap concat . forM (stuckIn (stallSeconds settings)) $ \(what, make) ->
    forM [("weft", weft capabilities), ("ghc", ghc)] $ \(kind, ticking) -> do
      over <- newIORef False
      stuck <- make over
      delays <- newIORef []
      ticking over stuck delays
      worst <- sort <$> readIORef delays
      let at p = figure (if null worst then Nothing else Just (worst !! min (length worst - 1) (floor (p * fromIntegral (length worst) :: Double))))
      pure
        [ ("benchmark", Name "stall"),
          ("threads", Name kind),
          ("stuck_in", Name what),
          ("stuck", Count (fromIntegral (stallThreads settings))),
          ("capabilities", Count (fromIntegral capabilities)),
          ("ticks", Count (fromIntegral (length worst))),
          ("median_delay_ms", at 0.5),
          ("p99_delay_ms", at 0.99),
          ("worst_delay_ms", at 1)
        ]
  where
    weft capabilities over stuck delays =
      runWith defaultSettings {settingWorkers = Just capabilities} $ do
        begin <- liftIO now
        -- The ticker first: it waits when the others get stuck.
        finished <- liftIO newEmptyMVar
        fork_ (tick (liftIO now) (sleep (milliseconds 1)) liftIO begin over delays >> liftIO (putMVar finished ()))
        forM_ [1 .. stallThreads settings] $ \_ -> fork_ (liftIO stuck)
        blocking (takeMVar finished)
    ghc over stuck delays = do
      begin <- now
      forM_ [1 .. stallThreads settings] $ \_ -> forkIO stuck
      tick now (threadDelay 1000) id begin over delays
    tick :: (Monad m) => m Nanoseconds -> m () -> (forall a. IO a -> m a) -> Nanoseconds -> IORef Bool -> IORef [Double] -> m ()
    tick clock nap io begin over delays = go
      where
        go = do
          before <- clock
          nap
          afterwards <- clock
          let delay = fromIntegral (unNanoseconds afterwards - unNanoseconds before) / 1e6 - 1
          io (modifyIORef' delays (delay :))
          if unNanoseconds afterwards - unNanoseconds begin > fromIntegral (stallSeconds settings) * 1_000_000_000
            then io (writeIORef over True)
            else go
    unNanoseconds (Nanoseconds n) = n
