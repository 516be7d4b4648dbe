{-# OPTIONS_HADDOCK not-home #-}

-- | Running a load. The main thread starts the lanes, enforces their time limits, takes samples,
-- and gathers the counters. There may be more connections than one address has ports: on loopback
-- every 127.0.0.x has its own.
module Weft.Cli.Load.Run (runLoad, Result (..), Point (..), IdleResult (..), Secure, securedWithin) where

import Control.Monad (forM, forM_, replicateM, unless, void, when)
import Data.ByteString qualified as B
import Data.Foldable (for_)
import Data.IORef
import Data.Maybe (isJust)
import Foreign.C.Error (Errno (..), eADDRINUSE, eADDRNOTAVAIL)
import GHC.IO.Exception (IOException (..))
import Network.Socket (hostAddressToTuple, tupleToHostAddress)
import System.Posix.Signals (sigINT, sigTERM)
import Weft
import Weft.Buffer (newBuffer)
import Weft.Cli.Load.Cells
import Weft.Cli.Load.Control
import Weft.Cli.Load.Histogram
import Weft.Cli.Load.Lane
import Weft.Cli.Load.Plan
import Weft.Cli.Load.Source (newSource)
import Weft.Cli.Load.Tally
import Weft.Event
import Weft.Http.Transport
import Weft.Scope
import Weft.Semaphore
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
  dialer <- Dialer address secure (loadTimeout o) <$> liftIO (newCells 1)
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

data Origin = Origin !Instant !Int

-- | Connect, send requests, receive responses, and connect again, until nothing is left to send.
driveLane :: Origin -> Dialer -> Lane -> Thread ()
driveLane origin dialer lane = connecting (milliseconds 10)
  where
    connecting pause = do
      before <- liftIO clockNow
      try (dial dialer) >>= \case
        Left (_ :: IOException) -> refused pause
        Right (socket, transport) -> do
          useful <- (connected before socket transport >>= finished) `finally` closeSocket socket
          case useful of
            Nothing -> pure ()
            Just True -> connecting (milliseconds 10)
            -- The connection closed without a response: do not hurry.
            Just False -> sleep pause >> connecting (longer pause)
    refused pause = do
      more <- liftIO (withoutConnection lane)
      when more (sleep pause >> connecting (longer pause))
    longer pause = min (seconds 1) (pause <> pause)

    -- How a connection ended; 'Nothing' when the lane is done.
    finished = maybe (pure Nothing) (fmap Just . liftIO . ended lane)

    connected before socket transport = do
      under <- liftIO $ do
        t <- clockNow
        record (tallyConnect (laneTally lane)) (t - before)
        opened lane socket
        outstanding lane
      try (exchanging origin lane transport (under > 0)) >>= \case
        Right end -> pure end
        Left (_ :: IOException) -> pure (Just Lost)

-- | Carry out the steps of a connection; the flag: repeat the requests in progress first.
exchanging :: Origin -> Lane -> Transport -> Bool -> Thread (Maybe End)
exchanging (Origin instant zero) lane transport again = if again then liftIO (sendAgain lane) >>= sending else beginning
  where
    beginning = liftIO (maybe (beginClosed lane) (schedule lane) (sharedPace (laneShared lane))) >>= next
    next = \case
      Send bytes -> sending bytes
      Receive -> receiving
      Next -> beginning
      SleepUntil due -> do
        t <- liftIO clockNow
        when (due > t) (void (sleepUntil (after (nanoseconds (due - zero)) instant)))
        liftIO (sendDue lane due) >>= sending
      Finish -> pure Nothing
      Close -> pure (Just Agreed)
      Malformed -> pure (Just Nonsense)
    sending bytes = do
      n <- transportSend transport [bytes]
      if n < B.length bytes then sending (B.drop n bytes) else receiving
    receiving = do
      have <- liftIO (unread lane)
      n <- transportReceive transport (laneInput lane) have maxBound
      if n == 0 then pure (Just Lost) else liftIO (received lane n) >>= next

-- | Counters: 0 open, 1 reopened, 2 failed attempts, 3 connections that have opened or failed once.
newtype Idlers = Idlers Cells

idlersOpen, idlersReopened, idlersFailed :: Idlers -> IO Int
idlersOpen (Idlers cells) = peekCell cells 0
idlersReopened (Idlers cells) = peekCell cells 1
idlersFailed (Idlers cells) = peekCell cells 2

-- | Open this number of connections, on all workers, and wait until each has opened or failed once,
-- at most for this time. They do nothing, as most clients of a real server (O'Sullivan & Tibell
-- 2010, figure 2). One that the server closes is opened again.
openIdlers :: Scope -> Dialer -> Int -> Duration -> Thread Idlers
openIdlers scope dialer count limit = do
  cells <- liftIO (newCells 4)
  workers <- workerCount
  ready <- newEvent
  -- More at a time would overflow the server's listen queue.
  few <- newSemaphore 128
  let settledOnce = do
        before <- liftIO (addCell cells 3 1)
        when (before + 1 == count) (set ready)
      idler first pause =
        try (withPermit few (dial dialer)) >>= \case
          Left (_ :: IOException) -> do
            void (liftIO (addCell cells 2 1))
            when first settledOnce
            sleep pause
            idler False (min (seconds 1) (pause <> pause))
          Right (socket, transport) -> do
            let open = liftIO (addCell cells 0 1)
                closed = liftIO (addCell cells 0 (-1)) >> closeSocket socket
            (open >> when first settledOnce >> unasked transport `catch` gone) `finally` closed
            void (liftIO (addCell cells 1 1))
            -- A server may be closing all of them at once.
            sleep (milliseconds 10)
            idler False (milliseconds 10)
      unasked transport = liftIO (newBuffer 1) >>= \byte -> void (transportReceive transport byte 0 1)
      gone :: IOException -> Thread ()
      gone _ = pure ()
  forM_ [0 .. count - 1] $ \i ->
    forkDaemonInWith scope defaultForkOptions {forkLabel = "idle connection", forkWorker = Just (i `mod` workers)} (idler True (milliseconds 10))
  when (count > 0) (void (timeout limit (wait ready)))
  pure (Idlers cells)

-- | The server's address, TLS if any, the time limit of each step, and which local address is in
-- use: 0 lets the system choose.
data Dialer = Dialer !SockAddr !Secure !Duration !Cells

-- | Puts TLS around a connection, or nothing.
type Secure = Transport -> Thread Transport

-- | A new connection without Nagle's algorithm; the caller closes the socket. Throws 'IOError'.
dial :: Dialer -> Thread (Socket, Transport)
dial dialer@(Dialer _ secure limit _) = mask $ \restore -> do
  socket <- restore (dialSocket dialer)
  transport <- restore (securedWithin limit secure socket) `onException` closeSocket socket
  pure (socket, transport)

securedWithin :: Duration -> Secure -> Socket -> Thread Transport
securedWithin limit secure socket = timeout limit (secure (socketTransport socket)) >>= maybe (throwM (userError "the TLS handshake took too long")) pure

dialSocket :: Dialer -> Thread Socket
dialSocket dialer@(Dialer address _ limit own) = do
  from <- liftIO (peekCell own 0)
  try (attempt from) >>= \case
    Right socket -> pure socket
    Left e
      | noPorts e && onLoopback && from < 250 -> do
          -- The first thread that finds the ports used up moves on for all.
          now' <- liftIO (peekCell own 0)
          when (now' == from) (void (liftIO (addCell own 0 1)))
          dialSocket dialer
      | otherwise -> throwM e
  where
    attempt from = mask $ \restore -> do
      socket <- openSocket family Stream
      flip onException (closeSocket socket) $ do
        when (from > 0) (bind socket (SockAddrInet 0 (tupleToHostAddress (127, 0, 0, fromIntegral (from + 1)))))
        restore (connectBefore limit socket address)
        setOption socket NoDelay 1
        pure socket
    family = case address of
      SockAddrInet6 {} -> AF_INET6
      _ -> AF_INET
    onLoopback = case address of
      SockAddrInet _ host -> let (a, _, _, _) = hostAddressToTuple host in a == 127
      _ -> False
    noPorts e = ioe_errno e `elem` map (\(Errno n) -> Just n) [eADDRNOTAVAIL, eADDRINUSE]
