{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Running a load
--
-- Starts the lanes, enforces their time limits, takes samples, and gathers the counters. Runs as
-- the main thread of the program.
module Weft.Cli.Load.Run (runLoad, Result (..), Point (..), IdleResult (..)) where

import Control.Exception (IOException)
import Control.Monad (forM, forM_, replicateM, unless, when)
import Data.Foldable (for_)
import Data.IORef
import Data.Maybe (isJust)
import System.Posix.Signals (sigINT, sigTERM)
import Weft
import Weft.Cli.Load.Cells
import Weft.Cli.Load.Control
import Weft.Cli.Load.Dial
import Weft.Cli.Load.Driver
import Weft.Cli.Load.Histogram
import Weft.Cli.Load.Idle
import Weft.Cli.Load.Lane
import Weft.Cli.Load.Options
import Weft.Cli.Load.Plan
import Weft.Cli.Load.Source (newSource)
import Weft.Cli.Load.System
import Weft.Cli.Load.Tally
import Weft.Event
import Weft.Scope
import Weft.Signal
import Weft.Socket
import Weft.Time
import Weft.Timeout (timeout)

data Result = Result
  { resultName :: !String,
    resultWorkers :: !Int,
    resultConnections :: !Int,
    resultDepth :: !Int,
    resultRate :: !(Maybe Double),
    -- | From the start of the measured window to the last response, in nanoseconds.
    resultElapsed :: !Int,
    -- | For how long to send requests, if given.
    resultPlanned :: !(Maybe Int),
    resultTotals :: !Totals,
    -- | From the due time (see Note [Due and sent] in "Weft.Cli.Load.Lane").
    resultLatency :: !Distribution,
    -- | From the time of sending; the same where there is no schedule.
    resultService :: !Distribution,
    resultConnect :: !Distribution,
    resultSeries :: ![Point],
    resultUsage :: !Usage,
    resultIdle :: !(Maybe IdleResult),
    -- | A signal ended it early.
    resultInterrupted :: !Bool
  }

-- | The counters at a time after the start, in nanoseconds.
data Point = Point
  { pointTime :: !Int,
    pointResponses :: !Int,
    pointErrors :: !Int
  }
  deriving stock (Eq, Show)

-- | The idle connections.
data IdleResult = IdleResult
  { idleWanted :: !Int,
    -- | Open at the start and at the end of the load.
    idleAtStart :: !Int,
    idleAtEnd :: !Int,
    idleReopened :: !Int,
    idleFailed :: !Int
  }
  deriving stock (Eq, Show)

-- | Put the server at this address under load, perhaps over TLS. The action is called with the
-- progress: the time in nanoseconds since the start, responses and errors.
runLoad :: LoadOptions -> Plan -> Secure -> SockAddr -> (Point -> IO ()) -> Thread Result
runLoad o plan secure address progress = do
  workers <- workerCount
  control <- liftIO (newControl (case loadAmount o of Count n -> Just n; For _ -> Nothing))
  let connections = case loadAmount o of
        Count n -> min n (loadConnections o)
        For _ -> loadConnections o
      shared =
        Shared
          { sharedSource = newSource (loadPipeline o) (planRequests plan),
            sharedMethod = planMethod plan,
            sharedDepth = loadPipeline o,
            sharedPace = (1e9 /) <$> loadRate o,
            sharedInput = if connections > 2_000 then 16_384 else 65_536,
            sharedControl = control
          }
  tallies <- liftIO (replicateM workers newTally)
  lanes <- liftIO $ forM [0 .. connections - 1] $ \i -> newLane shared (tallies !! (i `mod` workers)) (loadSeed o * 1_000_003 + i)
  dialer <- liftIO (newDialer (loadTimeout o) secure address)
  interrupted <- liftIO (newIORef False)
  allEnded <- newEvent
  running <- liftIO (newCells 1 >>= \cells -> cells <$ pokeCell cells 0 connections)
  withSignals [sigINT, sigTERM] $ \signals -> withScope $ \scope -> do
    idlers <-
      if loadIdle o > 0 then Just <$> openIdlers scope dialer (loadIdle o) (seconds 60) else pure Nothing
    idleBefore <- liftIO (mapM idlersOpen idlers)
    before <- liftIO takeSample
    instant <- now
    zero <- liftIO clockNow
    let from = zero + fromIntegral (durationNanoseconds (loadWarmup o))
        to = case loadAmount o of
          For d -> from + fromIntegral (durationNanoseconds d)
          Count _ -> maxBound
        origin = Origin instant zero
    liftIO (setWindow control zero from to)
    -- A signal ends the load and keeps the results so far. A second one ends it at once.
    _ <- forkDaemonIn scope $ do
      _ <- nextSignal signals
      liftIO (writeIORef interrupted True >> clockNow >>= endNow control)
      _ <- nextSignal signals
      set allEnded
    children <- forM (zip [0 ..] lanes) $ \(i, lane) ->
      forkDaemonInWith scope defaultForkOptions {forkLabel = "lane", forkWorker = Just (i `mod` workers)} $
        driveLane origin dialer lane `finally` do
          left <- liftIO (addCell running 0 (-1))
          when (left == 1) (set allEnded)
    series <- overlook control from (zip lanes children) tallies allEnded
    after' <- liftIO takeSample
    idleAfter <- liftIO (mapM idlersOpen idlers)
    idle <- liftIO $ forM ((,,) <$> idlers <*> idleBefore <*> idleAfter) $ \(some, atStart, atEnd) ->
      IdleResult (loadIdle o) atStart atEnd <$> idlersReopened some <*> idlersFailed some
    liftIO $ do
      lastOne <- maximum . (from :) <$> mapM lastAnswer lanes
      counted <- totals tallies
      latency <- foldr merge emptyDistribution <$> mapM (freeze . tallyLatency) tallies
      service <- foldr merge emptyDistribution <$> mapM (freeze . tallyService) tallies
      connect' <- foldr merge emptyDistribution <$> mapM (freeze . tallyConnect) tallies
      cut <- readIORef interrupted
      pure
        Result
          { resultName = planName plan,
            resultWorkers = workers,
            resultConnections = connections,
            resultDepth = loadPipeline o,
            resultRate = loadRate o,
            resultElapsed = if totalResponses counted == 0 then max 1 (sampleTime after' - from) else max 1 (lastOne - from),
            resultPlanned = case loadAmount o of For d -> Just (fromIntegral (durationNanoseconds d)); Count _ -> Nothing,
            resultTotals = counted,
            resultLatency = latency,
            resultService = if isJust (loadRate o) then service else latency,
            resultConnect = connect',
            resultSeries = series,
            resultUsage = usageBetween before after',
            resultIdle = idle,
            resultInterrupted = cut
          }
  where
    limit = fromIntegral (durationNanoseconds (loadTimeout o)) :: Int

    -- Until the last lane ends: cut off what takes too long, and take samples, at first ten a
    -- second, and at most some hundreds in all.
    overlook control from lanes tallies allEnded = do
      points <- liftIO (newIORef [])
      let go n = do
            over <- timeout (milliseconds 100) (wait allEnded)
            t <- liftIO clockNow
            counted <- liftIO (totals tallies)
            let point = Point (t - from) (totalResponses counted) (totalErrors counted)
            when (t >= from) . liftIO $ do
              when (n `mod` stride n == 0) (modifyIORef' points (point :))
              progress point
            cutOff control t lanes
            unless (isJust over) (go (n + 1))
      go (0 :: Int)
      liftIO (reverse <$> readIORef points)
    stride n = max 1 (n `div` 300)

    cutOff control t lanes = do
      end <- liftIO (windowEnd control)
      for_ lanes $ \(lane, child) -> do
        under <- liftIO (outstanding lane)
        if under == 0
          then -- It waits for its time, which will not come.
            when (t - 200_000_000 > end) (cancel (childThread child))
          else do
            sent <- liftIO (oldestSent lane)
            when (t - sent > limit) $ do
              socket <- liftIO (flagTimeout lane >> readIORef (laneSocket lane))
              forM_ socket $ \s -> shutdown s ShutdownBoth `catch` \(_ :: IOException) -> pure ()
