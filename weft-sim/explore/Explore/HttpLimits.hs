{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : The limits of a server: connections and requests that it refuses
--
-- No client has more connections than one peer may have; more connections than there may be are
-- refused only while there are that many; and when twice as much is asked of a server as it can
-- do, what it takes on is answered as promptly as ever.
module Explore.HttpLimits (scenarios) where

import Control.Monad (forM)
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Data.List (sort)
import Data.Map.Strict qualified as Map
import Data.Text qualified as Text
import Explore.Draw
import Explore.HttpClient
import Explore.HttpRig
import Explore.Scenario
import Weft
import Weft.Http.Server
import Weft.Http.Status
import Weft.Mutex
import Weft.Scope
import Weft.Sim (Config (..), newMachine, onMachine)
import Weft.Socket (SockAddr (..))
import Weft.Time

scenarios :: [Scenario]
scenarios =
  [ weathered "http/peers" "no peer has more connections than it may, and all are served in the end" $ \seed ->
      peers (weatherOf seed) (draw seed (between 1 3)) (draw seed (several 1 3 (between 1 4))),
    weathered "http/refusing" "clients are refused while there are too many, and only then" $ \seed ->
      refusing (weatherOf seed) (draw seed (between 1 3)) (draw seed (several 2 10 arrival)),
    weathered "http/refusing-cancelled" "an acceptor that refuses is cancelled anywhere, and nothing stays counted" $ \seed ->
      refusingCancelled (draw seed (several 0 6 arrival)) (draw seed (between 0 60_000)),
    weathered "http/requests" "a connection has as many requests as it may" $ \seed ->
      requestsEach (weatherOf seed) (draw seed (between 1 4)) (draw seed (several 1 3 (between 1 9))),
    overloaded "http/overload-handlers" "twice the load, bounded handlers: prompt answers" (\s -> s {serverMaxHandlers = 4}),
    overloaded "http/overload-connections" "twice the load, bounded connections: prompt answers" (\s -> s {serverMaxConnections = 4, serverOverload = RefuseQuickly 1})
  ]
  where
    overloaded name about settings =
      (weathered name about (\seed -> overload settings (draw seed (several 3 9 (between 0 4)))))
        { scenarioConfig = \seed -> inWeather Calm (configOf seed) {configRaces = False}
        }

-- | Clients come again so long as they are told to; in rough weather also when they were cut
-- off.
persistent :: Weather -> Rig -> Thread Complaints
persistent weather rig = go (200 :: Int)
  where
    go 0 = pure ["never served"]
    go n = do
      got <- attempt . withClient (rigAddress rig) $ \client -> do
        sendIn [1_000] (pure ()) client (askWith "GET" "/" ["Connection: close"])
        answer False client
      case got of
        Right (Right a)
          | answerStatus a == 200 -> pure []
          | answerStatus a == 503 -> sleep (milliseconds 23) >> go (n - 1)
        _ | weather == Stormy -> sleep (milliseconds 23) >> go (n - 1)
        other -> pure ["not served: " <> show other]

-- | Counts the handlers at work for each peer.
peers :: Weather -> Int -> [Int] -> Thread Complaints
peers weather most counts = do
  atWork <- liftIO (newIORef (Map.empty, 0))
  let handler request = do
        let peer = case clientAddress (requestClient request) of
              SockAddrInet _ host -> host
              _ -> 0
            change by = liftIO . atomicModifyIORef' atWork $ \(now', top) ->
              let next = Map.insertWith (+) peer by now' in ((next, max top (Map.findWithDefault 0 peer next)), ())
        bracket_ (change 1) (change (-1)) (sleep (milliseconds 7))
        pure (plain ok200 [] "ok")
  wrong <- serving (answering handler) {setupServer = \s -> s {serverMaxPerPeer = most}} $ \rig -> do
    machines <- forM (zip [1 :: Int ..] counts) $ \(i, n) -> (n,) <$> newMachine (Text.pack ("peer" <> show i))
    gather [onMachine m (persistent weather rig) | (n, m) <- machines, _ <- [1 .. n]]
  (_, top) <- liftIO (readIORef atWork)
  pure (wrong <> expect (show top <> " at a time of one peer, where " <> show most <> " may be") (top <= most))

-- | When a client comes and how long its handler takes, in microseconds.
data Arrival = Arrival Int Int
  deriving stock (Eq, Show)

arrival :: Draw Arrival
arrival = Arrival <$> between 0 60_000 <*> between 0 40_000

working :: Handler
working request = do
  sleep (microseconds (maybe 0 fst (Char8.readInt (Char8.drop 1 (requestPath request)))))
  pure (plain ok200 [] "done")

limitedTo :: Int -> ServerSettings -> ServerSettings
limitedTo most s = s {serverMaxConnections = most, serverOverload = RefuseQuickly 3}

-- | A client that comes once: the status of its answer, 0 for none.
once :: Weather -> Rig -> Int -> Arrival -> Thread (Int, Complaints)
once weather rig i (Arrival comes takes) = do
  sleep (microseconds comes)
  got <- onNewMachine (Text.pack ("client" <> show i)) . attempt . withClient (rigAddress rig) $ \client -> do
    -- One that is refused may have ended the connection already.
    _ <- attempt (sendIn [1_000] (pure ()) client (askWith "GET" ("/" <> Char8.pack (show takes)) ["Connection: close"]))
    answer False client
  pure $ case got of
    Right (Right a)
      | answerStatus a == 200 -> (200, [])
      | answerStatus a == 503 -> (503, expectEqual "Retry-After" (Just "3") (answerField "retry-after" a))
    other -> (0, expect ("neither served nor refused: " <> show other) (weather == Stormy))

-- | Answered with 200 or 503, and no more at once than is allowed; no client is refused where there is room, or when all have gone.
refusing :: Weather -> Int -> [Arrival] -> Thread Complaints
refusing weather most arrivals = do
  inside <- liftIO (newIORef (0 :: Int))
  seen <- liftIO (newIORef 0)
  let counted request = bracket_ (liftIO (modifyIORef' inside (+ 1) >> readIORef inside >>= modifyIORef' seen . max)) (liftIO (modifyIORef' inside (subtract 1))) (working request)
  serving (answering counted) {setupServer = limitedTo most} $ \rig -> do
    results <- withScope $ \scope -> do
      children <- forM (zip [1 ..] arrivals) (\(i, a) -> forkIn scope (once weather rig i a))
      mapM awaitChild children
    sleep (seconds 5)
    (last', more) <- once weather rig 0 (Arrival 0 0)
    top <- liftIO (readIORef seen)
    pure
      ( concatMap snd results
          <> more
          <> expect (show top <> " served at once") (top <= most)
          <> expect "somebody was refused where there was room for all" (length arrivals > most || all ((/= 503) . fst) results)
          <> expect ("who came last was answered with " <> show last') (weather == Stormy || last' == 200)
      )

refusingCancelled :: [Arrival] -> Int -> Thread Complaints
refusingCancelled arrivals micros = servingBy (answering working) {setupServer = limitedTo 1} $ \rig -> withScope $ \scope -> do
  server <- forkTryIn scope (serve (rigServer rig) (rigListener rig))
  children <- forM (zip [1 ..] arrivals) (\(i, a) -> forkIn scope (once Stormy rig i a))
  sleep (microseconds micros)
  cancel (childThread server)
  _ <- resultOf (server :: Child (Either Cancelled ()))
  ((ended, late), took) <- within "draining" (0, 4_000) (rigDrain rig)
  wrong <- concatMap snd <$> mapM awaitChild children
  pure (wrong <> late <> took <> expect "drained" ended)

-- | Pipelined, and one after the other on new connections for what was not answered.
requestsEach :: Weather -> Int -> [Int] -> Thread Complaints
requestsEach weather most counts = do
  serving (answering (const (pure (plain ok200 [] "ok")))) {setupServer = \s -> s {serverMaxRequests = most}} $ \rig ->
    gather [onNewMachine (Text.pack ("client" <> show i)) (one rig n) | (i, n) <- zip [1 :: Int ..] counts]
  where
    one rig n =
      attempt (withClient (rigAddress rig) (\client -> sendIn [40] (pure ()) client (mconcat (replicate n (ask "/"))) >> answers client (replicate n False))) >>= \case
        Right (got, end)
          | weather == Stormy -> pure (expect (show (length got) <> " answers") (length got <= most))
          | otherwise ->
              pure
                ( expectEqual "answers" (min n most) (length got)
                    <> expectEqual "which of them is the last" [i == most | i <- [1 .. length got]] [answerField "connection" a == Just "close" | a <- got]
                    <> expectEqual "after the last" (if n > most then Just Ended else Nothing) end
                )
        Left e -> pure (expect (show e) (weather == Stormy))

-- | Requests come every five milliseconds, each on a connection of its own, whatever became of
-- those before; each takes ten milliseconds of something there is one of.
overload :: (ServerSettings -> ServerSettings) -> [Int] -> Thread Complaints
overload settings jitter = do
  tool <- newMutex
  let handler _ = withMutex tool (sleep (milliseconds 10)) >> pure (plain ok200 [] "done")
      count = 300 :: Int
  serving (answering handler) {setupServer = settings} $ \rig -> do
    machine <- newMachine "clients"
    results <- withScope $ \scope -> do
      children <- forM (zip [1 .. count] (cycle jitter)) $ \(_, late) -> do
        sleep (milliseconds 5)
        forkIn scope . onMachine machine $ do
          sleep (milliseconds late)
          begin <- now
          got <- attempt . withClient (rigAddress rig) $ \client -> do
            _ <- attempt (sendIn [1_000] (pure ()) client (askWith "GET" "/" ["Connection: close"]))
            answer False client
          end <- now
          pure (either (const 0) (either (const 0) answerStatus) got, durationNanoseconds (begin `since` end) `div` 1_000_000)
      mapM awaitChild children
    let served = sort [took | (200, took) <- results]
        refused = [took | (503, took) <- results]
    pure
      ( expectEqual "neither served nor refused" 0 (count - length served - length refused)
          <> expect ("only " <> show (length served) <> " of " <> show count <> " were served") (10 * length served >= 4 * count)
          <> expect ("the slowest answer took " <> show (last (0 : served)) <> " ms") (all (<= 60) served)
          <> expect ("the slowest refusal took " <> show (maximum (0 : refused)) <> " ms") (all (<= 10) refused)
      )
