{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : How servers end, and what they have too little of
--
-- A server that drains answers what it has taken, in its time; one that is cancelled, at any
-- step, leaves nothing that draining would not end; one that is short of descriptors or
-- has very many clients serves them all the same.
module Explore.HttpEnding (scenarios) where

import Control.Monad (forM, replicateM_, void, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.Either (fromRight)
import Data.IORef
import Data.List (isPrefixOf)
import Data.Text qualified as Text
import Explore.Draw
import Explore.HttpClient
import Explore.HttpRig
import Explore.Scenario
import Weft
import Weft.Event qualified as Event
import Weft.Http.Server
import Weft.Http.Status (ok200)
import Weft.IO (await, direct)
import Weft.Scope
import Weft.Sim hiding (Exception)
import Weft.Socket (SocketOption (KeepAlive), setOption)
import Weft.Time

scenarios :: [Scenario]
scenarios =
  [ weathered "http/draining" "a server that drains answers what it has taken, in its time" $ \seed ->
      draining (weatherOf seed) (draw seed (several 1 6 visitor)) (draw seed (between 0 40_000)),
    weathered "http/cancelled" "a server that is cancelled anywhere leaves nothing that draining does not end" $ \seed ->
      cancelled (draw seed (several 0 5 visitor)) (draw seed ((,) <$> between 0 60 <*> between 0 15_000)),
    weathered "http/drain-cancelled" "draining that is cancelled anywhere can be begun again" $ \seed ->
      drainCancelled (draw seed (several 0 4 visitor)) (draw seed ((,) <$> between 0 40 <*> between 0 15_000)),
    (weathered "http/grace" "handlers that do not end are left behind when the grace period is over" $ \_ -> grace)
      { scenarioConfig = \seed -> inWeather (if weatherOf seed == Stormy then Tight else weatherOf seed) (configOf seed)
      },
    (weathered "http/descriptors" "short of descriptors a server goes on with those it has" $ \seed -> crowd Lenient (weatherOf seed) id 12)
      { scenarioConfig = \seed -> fewDescriptors (draw seed (between 6 20)) (inWeather (weatherOf seed) (configOf seed))
      },
    -- Two for itself, and one for the file of each connection.
    (weathered "http/frugal" "a server that takes no more clients than it has descriptors for serves all" $ \seed -> crowd Strict (weatherOf seed) (\s -> s {serverMaxConnections = 3}) 12)
      { scenarioConfig = \seed -> fewDescriptors 8 (inWeather (weatherOf seed) (configOf seed))
      },
    weathered "http/limited" "no more connections than it may have, and all are served" $ \seed ->
      crowd Strict (weatherOf seed) (\s -> s {serverMaxConnections = draw seed (between 1 4)}) 12,
    (weathered "http/thousand" "very many clients at once: a thousand with one seed of fifty" $ \seed@(Seed n) -> crowd Strict Calm id (if n `mod` 50 == 0 then 1_000 else draw seed (between 10 60)))
      { scenarioConfig = \seed -> inWeather Calm (configOf seed) {configRaces = False}
      },
    weathered "http/last-request" "after a client's last request its connection is closed, and not waited for" $ \seed ->
      draw seed (lastRequest (weatherOf seed) <$> oneOf (map pure [defaultSetup, defaultSetup {setupPlain = Just files}]) <*> oneOf (map (pure . fst) site) <*> oneOf (map pure ["", "GET /more HTTP/1.1\r\n"])),
    small "http/draining-at-once" 2 "draining against a connection that comes" drainingAtOnce,
    small "http/cancelled-at-once" 2 "an acceptor that is cancelled between any two steps loses no connection" cancelledAtOnce,
    small "http/draining-kept" 2 "draining against the next request of a connection that is idle" drainingKept
  ]
  where
    -- Of the home machine: others have one or two open at a time.
    fewDescriptors n config = config {configConditions = (configConditions config) {descriptorLimit = n}}

-- | A client in the time before the end: when it comes and what it does.
data Visitor = Visitor Int Visit

data Visit
  = -- | One request after the other, so long as they are answered, with pauses.
    Regular Int
  | -- | All at once.
    Pipelining Int
  | -- | The first part of a request, and the rest when some time has passed.
    Hesitating Int Int
  | -- | It reads its answer slowly.
    Slow Int
  | -- | It says nothing.
    Silent
  deriving stock (Eq, Show)

visitor :: Draw Visitor
visitor = do
  micros <- between 0 50_000
  visit <-
    oneOf
      [ Regular <$> between 0 3_000,
        Pipelining <$> between 1 8,
        Hesitating <$> between 1 30 <*> between 0 100_000,
        Slow <$> between 1 200,
        pure Silent
      ]
  pure (Visitor micros visit)

-- | The targets of requests that reached the handler, and of responses that clients have in full.
data Score = Score (Log ByteString) (Log ByteString)

-- | Each visitor asks for targets of its own, which the handler writes down and answers
-- with themselves, and some padding.
scored :: Score -> Setup
scored (Score begun _) =
  defaultSetup
    { setupHandler = \_ request -> do
        let target = requestPath request
        say begun target
        yield
        pure (plain ok200 [] (padded target))
    }

padded :: ByteString -> ByteString
padded target = target <> ByteString.replicate 20_000 0x2e

-- | Complaints about wrong answers; those that are right are noted.
visit' :: Score -> Rig -> Int -> Visitor -> Thread Complaints
visit' (Score _ whole) rig number (Visitor micros what) = onNewMachine (Text.pack ("visitor" <> show number)) $ do
  sleep (microseconds micros)
  fromRight [] <$> attempt (withClient (rigAddress rig) body)
  where
    target i = Char8.pack ("/" <> show number <> "/" <> show (i :: Int))
    request i = ask (target i)
    expected client i =
      answer False client >>= \case
        Right a
          | answerStatus a == 408 -> pure ([], False)
          | answerBody a == padded (target i) -> ([], answerField "connection" a /= Just "close") <$ say whole (target i)
          | otherwise -> pure (["answer " <> show i <> " of visitor " <> show number <> " is wrong: " <> show (answerStatus a)], False)
        Left (Strange what') -> pure (["an answer that is none: " <> show what'], False)
        Left _ -> pure ([], False)
    body client = case what of
      Regular pause ->
        let go i
              | i > 30 = pure []
              | otherwise = do
                  sendIn [1_000] (pure ()) client (request i)
                  (wrong, more) <- expected client i
                  if more then sleep (microseconds pause) >> (wrong <>) <$> go (i + 1) else pure wrong
         in go 1
      Pipelining n -> do
        sendIn [1_000] (pure ()) client (ByteString.concat (map request [1 .. n]))
        concat <$> mapM (fmap fst . expected client) [1 .. n]
      Hesitating n later -> do
        let (now', rest) = ByteString.splitAt n (request 1)
        sendIn [1_000] (pure ()) client now'
        sleep (microseconds later)
        sendIn [1_000] (pure ()) client rest
        fst <$> expected client 1
      Slow ms -> do
        sendIn [1_000] (pure ()) client (request 1)
        sleep (milliseconds ms)
        fst <$> expected client 1
      -- Over links that lose packets the reset of a connection that the server never had may be lost: it asks whether that is there.
      Silent -> [] <$ (setOption (clientSocket client) KeepAlive 1 >> untilEnd client)

-- | Every request that reached the handler was answered, if connections last.
settled :: Weather -> Score -> Thread Complaints
settled weather (Score begun whole) = do
  begun' <- said begun
  whole' <- said whole
  pure (expect ("begun, but not answered: " <> show (filter (`notElem` whole') begun')) (weather == Stormy || all (`elem` whole') begun'))

newScore :: Thread Score
newScore = Score <$> newLog <*> newLog

draining :: Weather -> [Visitor] -> Int -> Thread Complaints
draining weather visitors micros = do
  score <- newScore
  servingBy (scored score) $ \rig -> withScope $ \scope -> do
    _ <- forkIn scope (serve (rigServer rig) (rigListener rig))
    children <- forM (zip [1 ..] visitors) $ \(i, v) -> forkIn scope (visit' score rig i v)
    sleep (microseconds micros)
    (ended, late) <- rigDrain rig
    wrong <- concat <$> mapM awaitChild children
    unanswered <- settled weather score
    -- A client that says nothing on a new connection may be waited for.
    let patient = any (\(Visitor _ v) -> v == Silent) visitors
    pure (late <> wrong <> unanswered <> expect "nobody was cut off" (ended || patient))

-- | Visitors; the server is cancelled after the given number of turns and this much time.
cancelled :: [Visitor] -> (Int, Int) -> Thread Complaints
cancelled visitors (turns, micros) = do
  score <- newScore
  servingBy (scored score) $ \rig -> withScope $ \scope -> do
    server <- forkTryIn scope (serve (rigServer rig) (rigListener rig))
    children <- forM (zip [1 ..] visitors) $ \(i, v) -> forkIn scope (visit' score rig i v)
    sleep (microseconds micros)
    replicateM_ turns yield
    cancel (childThread server)
    _ <- resultOf (server :: Child (Either Cancelled ()))
    (_, late) <- rigDrain rig
    wrong <- concat <$> mapM awaitChild children
    pure (late <> wrong)

-- | Visitors; draining is cancelled after the given number of turns and this much time.
drainCancelled :: [Visitor] -> (Int, Int) -> Thread Complaints
drainCancelled visitors (turns, micros) = do
  score <- newScore
  servingBy (scored score) $ \rig -> withScope $ \scope -> do
    _ <- forkIn scope (serve (rigServer rig) (rigListener rig))
    children <- forM (zip [1 ..] visitors) $ \(i, v) -> forkIn scope (visit' score rig i v)
    sleep (microseconds micros)
    first <- forkTryIn scope (void (rigDrain rig))
    replicateM_ turns yield
    cancel (childThread first)
    _ <- resultOf (first :: Child (Either Cancelled ()))
    (_, late) <- rigDrain rig
    wrong <- concat <$> mapM awaitChild children
    pure (late <> wrong)

-- | A handler that sleeps for an hour: draining does not wait for it, and the end of the run
-- ends it.
grace :: Thread Complaints
grace = do
  let setup = defaultSetup {setupHandler = \_ _ -> sleep (minutes 60) >> pure (plain ok200 [] "late"), setupServer = \s -> s {serverGrace = seconds 3}}
  servingBy setup $ \rig -> withScope $ \scope -> do
    _ <- forkIn scope (serve (rigServer rig) (rigListener rig))
    client <- forkIn scope . onNewMachine "alice" . attempt . withClient (rigAddress rig) $ \client -> do
      sendIn [1_000] (pure ()) client (ask "/")
      answer False client
    sleep (seconds 1)
    ((ended, _), took) <- within "draining" (3_000, 4_500) (rigDrain rig)
    got <- awaitChild client
    -- Its connection was cut off; the handler ends when it ends.
    sleep (minutes 61)
    pure (took <> expect "not drained" (not ended) <> expect ("an answer: " <> show got) (either (const True) (either (const True) (const False)) got))

-- | Must every client in a crowd be served in the end?
data Justice = Strict | Lenient
  deriving stock (Eq)

-- | Many clients at once; those that are told that the server is short of something, or are cut
-- off, come again, for a while. When all have gone one more comes, which must be served. There are never more
-- connections than the server may have.
crowd :: Justice -> Weather -> (ServerSettings -> ServerSettings) -> Int -> Thread Complaints
crowd justice weather settings count = serving defaultSetup {setupServer = settings} $ \rig -> do
  seen <- liftIO (newIORef 0)
  let one will i tries = do
        got <- attempt . withClient (rigAddress rig) $ \client -> do
          -- Some hold their connection before they ask.
          when (even i) $ sleep (milliseconds 5)
          sendIn [1_000] (pure ()) client (askWith "GET" "/small.txt" ["Connection: close"])
          got <- answer False client
          got <$ liftIO (connectionCount (rigServer rig) >>= modifyIORef' seen . max)
        case got of
          Right (Right a)
            | answerStatus a == 200 -> pure (body200 "in a crowd" (fileOf "small.txt") (Right a))
            | answerStatus a == 503, will == Lenient -> again will i tries
          _ | weather == Stormy -> again will i tries
          other -> pure ["in a crowd: " <> show other]
      again will i tries
        | tries > (0 :: Int) = sleep (milliseconds (20 + 7 * i)) >> one will i (tries - 1)
        | otherwise = pure (expect "in a crowd: never served" (will == Lenient))
  machines <- forM [1 .. min 10 count] $ \i -> newMachine (Text.pack ("crowd" <> show i))
  wrong <- gather [onMachine m (one justice i 50) | (i, m) <- zip [1 .. count] (cycle machines)]
  last' <- onNewMachine "last" (one Strict 1 (if weather == Stormy then 50 else 0))
  most <- liftIO (readIORef seen)
  told <- filter (not . ("the limit of " `isPrefixOf`)) <$> reportsOf rig
  pure (wrong <> last' <> expect (show most <> " connections at once") (most <= serverMaxConnections (settings defaultServerSettings)) <> expect ("the operator was told: " <> show (take 1 told)) (null told))

-- | A request after which the client has said to send nothing more. If it keeps its word the
-- server closes the connection at once, whether the client does or not; else it makes sure
-- first that the answer arrives.
lastRequest :: Weather -> Setup -> ByteString -> ByteString -> Thread Complaints
lastRequest weather setup name more = serving setup $ \rig -> do
  got <- onNewMachine "alice" . attempt . withClient (rigAddress rig) $ \client -> do
    sendIn [1_000] (pure ()) client (askWith "GET" ("/" <> name) ["Connection: close"] <> more)
    got <- answer False client
    sleep (seconds 1)
    open <- connections rig
    sleep (seconds 3)
    later <- connections rig
    pure (body200 "the last answer" (fileOf name) got <> expect "the client is waited for" (open == 0 || more /= "") <> expectEqual "connections in the end" 0 later)
  pure (either (\e -> expect ("no answer: " <> show e) (weather == Stormy)) (\wrong -> if weather == Stormy then [] else wrong) got)
  where
    connections = liftIO . connectionCount . rigServer

-- | The files of 'site' by an application in plain 'IO'.
files :: PlainApplication
files _ = pure . PlainAnswer (\first body -> direct (first >> body ())) $ \() request respond ->
  respond (plain ok200 [] (fileOf (ByteString.drop 1 (requestPath request)))) >>= mapM_ await

-- | One client, and draining at any moment.
drainingAtOnce :: Thread Complaints
drainingAtOnce = do
  score <- newScore
  servingBy (scored score) $ \rig -> withScope $ \scope -> do
    _ <- forkIn scope (serve (rigServer rig) (rigListener rig))
    client <- forkIn scope (visit' score rig 1 (Visitor 0 (Pipelining 1)))
    (ended, late) <- rigDrain rig
    wrong <- awaitChild client
    unanswered <- settled Calm score
    pure (expect "drained" ended <> late <> wrong <> unanswered)

-- | A second request on its way while draining begins: if it is taken, it is answered.
drainingKept :: Thread Complaints
drainingKept = do
  score <- newScore
  servingBy (scored score) $ \rig -> withScope $ \scope -> do
    _ <- forkIn scope (serve (rigServer rig) (rigListener rig))
    first <- Event.newEvent
    client <- forkIn scope . attempt . withClient (rigAddress rig) $ \client -> do
      let one target = do
            sendIn [1_000] (pure ()) client (ask target)
            got <- answer False client
            case got of
              Right a | answerBody a == padded target -> [] <$ note score target
              Left (Strange what) -> pure ["an answer that is none: " <> show what]
              Right a -> pure ["a wrong answer: " <> show a]
              Left _ -> pure []
      wrong <- one "/1"
      Event.set first
      (wrong <>) <$> one "/2"
    Event.wait first
    -- So long a request takes to arrive: now the two may come in either order.
    sleep (microseconds 5)
    (ended, late) <- rigDrain rig
    wrong <- fromRight [] <$> awaitChild client
    unanswered <- settled Calm score
    pure (expect "drained" ended <> late <> wrong <> unanswered)
  where
    note (Score _ whole) = say whole

-- | A connection waits already when the server begins and is cancelled.
cancelledAtOnce :: Thread Complaints
cancelledAtOnce = do
  score <- newScore
  servingBy (scored score) $ \rig -> withScope $ \scope -> do
    client <- forkIn scope (visit' score rig 1 (Visitor 0 (Pipelining 1)))
    sleep (milliseconds 1)
    server <- forkTryIn scope (serve (rigServer rig) (rigListener rig))
    replicateM_ 3 yield
    cancel (childThread server)
    _ <- resultOf (server :: Child (Either Cancelled ()))
    (ended, late) <- rigDrain rig
    wrong <- awaitChild client
    unanswered <- settled Calm score
    pure (expect "drained" ended <> late <> wrong <> unanswered)
