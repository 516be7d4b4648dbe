-- |
-- Description : Synchronization of Weft's threads beside GHC's
--
-- Runs each scenario with Weft and with GHC in turns and reports medians, and the
-- median of the ratios within a round.
module Weft.Bench.Sync (SyncSettings (..), measureSync) where

import Control.Concurrent (forkIO, newEmptyMVar, putMVar, setNumCapabilities, takeMVar)
import Control.Exception (SomeException, throwIO, try)
import Control.Monad (forM)
import Data.Map.Strict qualified as Map
import Weft (Settings (..), defaultSettings, liftIO, runWith)
import Weft.Bench.Measure
import Weft.Bench.Report
import Weft.Bench.Statistics
import Weft.Bench.Sync.Scenarios

-- | How it is measured.
data SyncSettings = SyncSettings
  { -- | workers for Weft, capabilities for GHC; at least 1
    syncWorkers :: !Int,
    -- | operations in a round of the cheap scenarios; at least 1
    syncOperations :: !Int,
    -- | rounds; at least 1
    syncRounds :: !Int
  }
  deriving stock (Eq, Show)

-- | A row for one scenario.
measureSync :: SyncSettings -> SyncScenario -> IO Row
measureSync settings scenario = do
  setNumCapabilities (syncWorkers settings)
  -- Not the same first in every round: the first finds another heap.
  rounds <- forM [1 .. syncRounds settings] $ \i ->
    if even i
      then weft >>= \w -> (,,) i w <$> ghc
      else ghc >>= \g -> weft >>= \w -> pure (i, w, g)
  let weftTimes = Map.fromList [(i, fst w) | (i, w, _) <- rounds]
      ghcTimes = Map.fromList [(i, fst g) | (i, _, g) <- rounds]
  pure
    [ ("benchmark", Name "sync"),
      ("scenario", Name (scenarioName scenario)),
      ("peer", Name (scenarioPeer scenario)),
      ("workers", Count (fromIntegral (syncWorkers settings))),
      ("operations", Count (fromIntegral operations)),
      ("rounds", Count (fromIntegral (syncRounds settings))),
      ("weft_ns", figure (median (Map.elems weftTimes))),
      ("ghc_ns", figure (median (Map.elems ghcTimes))),
      ("weft_to_ghc", figure (medianOfRatios weftTimes ghcTimes)),
      ("weft_bytes", figure (median [snd w | (_, w, _) <- rounds])),
      ("ghc_bytes", figure (median [snd g | (_, _, g) <- rounds]))
    ]
  where
    operations = max 200 (syncOperations settings `div` scenarioPart scenario)
    -- The clocks are read inside: starting and stopping a run is no part of this.
    weft = measured $ \timed -> runWith defaultSettings {settingWorkers = Just (syncWorkers settings)} $ do
      start <- liftIO now
      scenarioWeft scenario operations
      liftIO (elapsedSince start >>= timed)
    ghc = measured $ \timed -> inThread $ do
      start <- now
      scenarioGhc scenario operations
      elapsedSince start >>= timed
    measured :: ((Nanoseconds -> IO ()) -> IO ()) -> IO (Double, Double)
    measured act = do
      box <- newEmptyMVar
      before <- allocatedBytes
      act (putMVar box)
      Bytes allocated <- subtract before <$> allocatedBytes
      time <- takeMVar box
      pure (toDouble time / fromIntegral operations, fromIntegral allocated / fromIntegral operations)
    inThread act = do
      done <- newEmptyMVar
      _ <- forkIO (try act >>= putMVar done)
      takeMVar done >>= either (\e -> throwIO (e :: SomeException)) pure
