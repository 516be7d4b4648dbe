{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Handlers and clients that take their time
--
-- A client that has reset its connection need not be worked for; one that has only said all it has to say
-- is answered. A handler has its time, and no more. An idle connection rests, and wakes; it is
-- closed when its time is up, counted from when it fell idle, and at once when the server
-- drains.
module Explore.HttpPatience (scenarios) where

import Control.Monad (forM, forM_, forever, void, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Builder (byteString)
import Data.ByteString.Char8 qualified as Char8
import Data.Foldable (toList)
import Data.IORef
import Data.Text qualified as Text
import Explore.Draw
import Explore.HttpBodies (echoing)
import Explore.HttpClient
import Explore.HttpRig
import Explore.Scenario
import Weft
import Weft.Http.Server
import Weft.Http.Server.Phase (currentPhase)
import Weft.Http.Server.State (Open (..), Phase (..), Server (..))
import Weft.Http.Status
import Weft.Scope
import Weft.Socket hiding (Raw)
import Weft.Time

scenarios :: [Scenario]
scenarios =
  [ weathered "http/resets" "a handler whose client has reset the connection is cancelled, once and soon" $ \seed ->
      resetting (draw seed (several 1 4 working)),
    weathered "http/half-closed" "a client that has said all it has to say is answered" $ \seed ->
      halfClosed (weatherOf seed) (draw seed (several 1 3 ((,) <$> place <*> between 0 9_000))),
    weathered "http/handler-time" "a handler has its time, and no more" $ \seed ->
      handlerTime (weatherOf seed) (draw seed (several 1 4 task)),
    weathered "http/handler-edge" "a handler that answers in the moment in which its time is over has answered, or has not" $ \seed ->
      handlerEdge (weatherOf seed) (draw seed (several 1 3 instant)),
    weathered "http/resting" "an idle connection rests, and wakes, until its time is up" $ \seed ->
      resting (weatherOf seed) (draw seed (several 1 4 nap)),
    weathered "http/resting-drained" "draining does not wait for connections that rest, and loses nothing of one that wakes" $ \seed ->
      draw seed (restingDrained (weatherOf seed) <$> several 1 3 instant <*> instant <*> chance 70),
    weathered "http/sluggish" "whatever many clients are slow in, others are served" $ \seed ->
      sluggish (weatherOf seed) (draw seed (several 4 12 sloth))
  ]

-- | The part of an answer that takes its time.
data Place = InHandler | InStream | InProtocol
  deriving stock (Eq, Show, Enum, Bounded)

place :: Draw Place
place = oneOf (map pure [minBound ..])

-- | Sleep for this time in that place, and then answer.
sleeping :: Thread () -> Place -> ByteString -> Response
sleeping work what said' = case what of
  InStream -> streamed ok200 [] (\sink -> sinkWrite sink "early" >> sinkFlush sink >> work >> sinkWrite sink (byteString said'))
  InProtocol -> Response switchingProtocols101 [] (Switch (\duplex -> work >> duplexSend duplex [said'])) Nothing
  InHandler -> plain ok200 [] said'

-- | A client: where its handler works, when it resets, and whether with a body.
data Working = Working Place Int Bool
  deriving stock (Eq, Show)

working :: Draw Working
working = Working <$> place <*> weighted [(1, between 0 30_000), (2, between 30_000 4_000_000)] <*> chance 40

resetting :: [Working] -> Thread Complaints
resetting clients = do
  begun <- newLog
  ended <- newLog
  let handler request = do
        let number = requestPath request
            what = toEnum (asked request)
            work = do
              say begun number
              sleep (minutes 5) `onException` (now >>= \t -> say ended (number, t))
        _ <- readBody 1_000 request
        when (what == InHandler) work
        pure (sleeping work what "late")
  serving (answering handler) $ \rig -> do
    resets <- newLog
    withScope $ \scope -> forM_ (zip [1 :: Int ..] clients) $ \(i, Working what micros body) ->
      forkIn_ scope . onNewMachine (Text.pack ("client" <> show i)) . void . attempt $ do
        let target = "/" <> text i <> "?" <> text (fromEnum what)
        withClient (rigAddress rig) $ \client -> do
          setOption (clientSocket client) Linger 0
          sendIn [50] (pure ()) client (if body then askWith "POST" target ["Content-Length: 5"] <> "hello" else ask target)
          sleep (microseconds micros)
        now >>= \t -> say resets ("/" <> text i, t)
    sleep (seconds 4)
    started <- said begun
    finished <- said ended
    at <- said resets
    let times number = [t | (n, t) <- finished, n == number]
        late = [(number, r `since` t) | number <- started, t <- times number, Just r <- [lookup number at], r `since` t > milliseconds 2_300]
    pure
      ( expectEqual "handlers that were cancelled, and how often" [(n, 1) | n <- started] [(n, length (times n)) | n <- started]
          <> expectEqual "handlers that were cancelled too late" [] late
      )

text :: Int -> ByteString
text = Char8.pack . show

-- | The number in the query.
asked :: Request -> Int
asked = maybe 0 fst . Char8.readInt . ByteString.drop 1 . requestQuery

halfClosed :: Weather -> [(Place, Int)] -> Thread Complaints
halfClosed weather clients =
  serving (answering handler) $ \rig ->
    gather
      [ onNewMachine (Text.pack ("client" <> show i)) . lossyIn weather . withClient (rigAddress rig) $ \client -> do
          sendIn [50] (pure ()) client (ask ("/?" <> text (fromEnum what * 100_000 + ms)))
          finish client
          all' <- untilEnd client
          pure (expect (show what <> ": answered with " <> show all') (weather == Stormy || wanted what `ByteString.isSuffixOf` all'))
        | (i, (what, ms)) <- zip [1 :: Int ..] clients
      ]
  where
    wanted = \case
      InHandler -> "\r\n\r\nlate"
      InStream -> "5\r\nearly\r\n4\r\nlate\r\n0\r\n\r\n"
      InProtocol -> "\r\n\r\nlate"
    handler request = do
      let (what, ms) = asked request `divMod` 100_000
          work = sleep (milliseconds ms)
      when (toEnum what == InHandler) work
      pure (sleeping work (toEnum what) "late")

lossyIn :: Weather -> Thread Complaints -> Thread Complaints
lossyIn weather act = attempt act >>= either (\e -> pure (expect ("a connection failed: " <> show e) (weather == Stormy))) pure

-- The time of handlers -------------------------------------------------------------

-- | How long a handler works before and after a body that comes after this long.
data Task = Task Int Int Int
  deriving stock (Eq, Show)

task :: Draw Task
task = Task <$> long <*> weighted [(1, pure 0), (1, between 0 4_000)] <*> long
  where
    long = weighted [(2, between 0 2_500), (1, between 2_500 9_000)]

handlerTime :: Weather -> [Task] -> Thread Complaints
handlerTime weather tasks = do
  counts <- liftIO (newIORef (0 :: Int, 0 :: Int))
  let count f = liftIO (modifyIORef' counts f)
      handler request = do
        let (before, behind) = asked request `divMod` 100_000
        bracket_ (count (\(a, b) -> (a + 1, b))) (count (\(a, b) -> (a, b + 1))) $ do
          sleep (milliseconds before)
          _ <- readBody 100 request
          sleep (milliseconds behind)
        pure (plain ok200 [] "done")
      setup = (answering handler) {setupServer = \s -> s {serverTimeouts = defaultTimeouts {timeoutHandler = Just (seconds 3)}}}
  wrong <- serving setup $ \rig ->
    gather
      [ onNewMachine (Text.pack ("client" <> show i)) . lossyIn weather . withClient (rigAddress rig) $ \client -> do
          begin <- now
          sendIn [50] (pure ()) client (askWith "POST" ("/?" <> text (before * 100_000 + behind)) ["Content-Length: 4"])
          _ <- attempt (sleep (milliseconds pause) >> sendIn [1] (pure ()) client "body")
          got <- answer False client
          end <- now
          let took = durationNanoseconds (begin `since` end) `div` 1_000_000
              -- From the end of the head, or the last piece, to the end of the work.
              second = if pause > before then behind else before + behind - (if pause > before then before else 0)
              longest = max before second
              code = either (const 0) answerStatus got
          pure $
            expect (show (Task before pause behind) <> " was answered with " <> show got) (code == 200 || code == 503 || weather == Stormy)
              <> expect (show (Task before pause behind) <> " had not all its time") (code /= 503 || longest >= 2_900)
              <> expect (show (Task before pause behind) <> " had more than its time") (code /= 200 || max before behind <= 5_200)
              <> expect (show (Task before pause behind) <> " took " <> show took <> " ms") (weather == Stormy || took <= fromIntegral (max before pause) + 5_400 + 200)
              <> expect "a handler that was too slow ends its connection" (code /= 503 || either (const False) ((== Just "close") . answerField "connection") got)
        | (i, Task before pause behind) <- zip [1 :: Int ..] tasks
      ]
  (begun, ended) <- liftIO (readIORef counts)
  pure (wrong <> expectEqual "handlers that let go of what they held" begun ended)

-- | Each request is worked for until such a moment; after one that was answered comes another,
-- which nothing that was meant for the first may end.
handlerEdge :: Weather -> [Moment] -> Thread Complaints
handlerEdge weather moments = serving setup $ \rig ->
  gather
    [ onNewMachine (Text.pack ("client" <> show i)) . lossyIn weather . withClient (rigAddress rig) $ \client -> do
        let talk which = sendIn [1_000] (pure ()) client (ask (which <> "?" <> text i)) >> answer False client
        first <- talk "/first"
        case answerStatus <$> first of
          Right 503 -> expectEqual "after a 503" "" <$> untilEnd client
          Right 200 -> do
            others <- mapM talk ["/1", "/2", "/3"]
            pure (expect ("after an answer in the last moment: " <> show others) (weather == Stormy || map (fmap answerStatus) others == replicate 3 (Right 200)))
          _ -> pure (expect ("no answer: " <> show first) (weather == Stormy))
      | (i, _) <- zip [1 ..] moments
    ]
  where
    setup = (answering handler) {setupServer = \s -> s {serverTimeouts = defaultTimeouts {timeoutHandler = Just (seconds 2)}}}
    -- The first of a connection is answered in the moment drawn, the others soon.
    handler request = do
      if requestPath request == "/first" then awaitMoment (moments !! (asked request - 1)) else sleep (milliseconds 300)
      pure (plain ok200 [] "done")

-- Idle connections -----------------------------------------------------------------

-- | How long a connection is idle, in milliseconds, and in which pieces its next request
-- comes.
data Nap = Nap Int Int
  deriving stock (Eq, Show)

nap :: Draw Nap
nap = Nap <$> weighted [(2, between 0 1_500), (4, between 1_500 4_500), (2, between 4_500 58_500), (1, between 58_500 64_000), (1, between 64_000 70_000)] <*> oneOf (map pure [1, 7, 1_000])

resting :: Weather -> [Nap] -> Thread Complaints
resting weather naps = serving (answering echoing) $ \rig -> onNewMachine "alice" . lossyIn weather . withClient (rigAddress rig) $ \client -> do
  let go [] = pure []
      go (Nap ms size : rest) = do
        sleep (milliseconds ms)
        phases <- liftIO (phasesOf (rigServer rig))
        let rests = expect ("idle for " <> show ms <> " ms and " <> show phases) (weather == Stormy || ms < 4_200 || all (`elem` [Dormant]) phases)
        got <- attempt (sendIn [size] (pure ()) client (ask "/a") >> answer False client)
        case got of
          Right (Right a) -> (expect ("idle for " <> show ms <> " ms, and answered with " <> show a) (answerBody a == "ignored" && ms <= 62_500) <>) . (rests <>) <$> go rest
          _ -> pure (rests <> expect ("idle for " <> show ms <> " ms, and " <> show got) (ms >= 59_500 || weather == Stormy))
  first <- sendIn [1_000] (pure ()) client (ask "/a") >> answer False client
  (expect ("at first " <> show first) (either (const (weather == Stormy)) ((== 200) . answerStatus) first) <>) <$> go naps

phasesOf :: Server -> IO [Phase]
phasesOf server = do
  open <- readIORef (serverConnections server)
  forM (toList (openConnections open)) (fmap (\(phase, _, _) -> phase) . currentPhase)

-- | After this number of turns of the wall clock's second, when the server looks after its
-- connections, and microseconds more or less.
type Moment = (Int, Int)

instant :: Draw Moment
instant = (,) <$> between 2 5 <*> weighted [(3, pure 0), (3, between (-50) 150), (2, between (-8_000) 8_000), (1, between 0 999_999)]

awaitMoment :: Moment -> Thread ()
awaitMoment (turns, micros) = do
  wall <- wallClock
  sleep (nanoseconds (fromIntegral (fromIntegral turns * 1_000_000_000 - wall `mod` 1_000_000_000)) <> microseconds micros)

-- | Connections that were used once; then, about when they are asked to rest, some are used
-- again and the server drains.
restingDrained :: Weather -> [Moment] -> Moment -> Bool -> Thread Complaints
restingDrained weather wakes moment again = do
  begun <- newLog
  let handler request = do
        let target = requestPath request
        plain ok200 [] target <$ say begun target
  (answered, wrong) <- do
    whole <- newLog
    wrong <- servingBy (answering handler) $ \rig -> withScope $ \scope -> do
      forkIn_ scope (serve (rigServer rig) (rigListener rig))
      children <- forM (zip [1 :: Int ..] wakes) $ \(i, wake) ->
        forkIn scope . onNewMachine (Text.pack ("client" <> show i)) . lossyIn Stormy . withClient (rigAddress rig) $ \client -> do
          let request target = do
                sendIn [9] (pure ()) client (ask target)
                got <- answer False client
                case got of
                  Right a | answerBody a == target -> [] <$ say whole target
                  Right a -> pure ["answered with " <> show a]
                  Left (Strange what) -> pure ["what is no answer: " <> show what]
                  Left _ -> pure []
          wrong <- request ("/" <> text i <> "/1")
          if again
            then awaitMoment wake >> (wrong <>) <$> request ("/" <> text i <> "/2")
            else wrong <$ untilEnd client
      awaitMoment moment
      ((ended, late), took) <- within "draining" (0, 2_500) (rigDrain rig)
      wrong <- concat <$> mapM awaitChild children
      pure (wrong <> late <> (if weather == Stormy then [] else took) <> expect "drained" ended)
    (,wrong) <$> said whole
  begun' <- said begun
  pure (wrong <> expect ("begun, and not answered: " <> show (filter (`notElem` answered) begun')) (weather == Stormy || all (`elem` answered) begun'))

-- Slow clients ---------------------------------------------------------------------

-- | The part in which a client is slow.
data Sloth = Heads | Bodies | Reading | Between | Silence | Protocol | Continue
  deriving stock (Eq, Show, Enum, Bounded)

sloth :: Draw Sloth
sloth = oneOf (map pure [minBound ..])

sluggish :: Weather -> [Sloth] -> Thread Complaints
sluggish weather sloths = serving (answering handler) $ \rig -> do
  wrong <- withScope $ \scope -> do
    forM_ (zip [1 :: Int ..] sloths) $ \(i, what) ->
      forkDaemonIn scope . onNewMachine (Text.pack ("sloth" <> show i)) . void . attempt . withClient (rigAddress rig) $ slow what
    onNewMachine "witness" . fmap concat . forM [1 :: Int .. 5] $ \_ -> do
      sleep (seconds 4)
      (found, took) <- within "somebody else" (0, 1_000) . lossyIn weather . withClient (rigAddress rig) $ \client -> do
        sendIn [1_000] (pure ()) client (askWith "POST" "/Whole" ["Content-Length: 5"] <> "hello")
        got <- answer False client
        pure (expect ("somebody else: " <> show got) (weather == Stormy || either (const False) ((== "hello") . answerBody) got))
      pure (found <> (if weather == Stormy then [] else took))
  -- Their machines have closed their connections; all that was theirs has gone.
  sleep (seconds 5)
  left <- liftIO (phasesOf (rigServer rig))
  pure (wrong <> expectEqual "connections of slow clients" [] left)
  where
    slow what client = case what of
      Heads -> trickle client (ask "/a" <> ask (ByteString.replicate 300 0x2f))
      Bodies -> sendIn [1_000] (pure ()) client (askWith "POST" "/Back" ["Content-Length: 1000"]) >> trickle client (ByteString.replicate 1_000 0x61)
      Reading -> do
        sendIn [1_000] (pure ()) client (ask "/endless")
        forever (receive (clientSocket client) 100 >> sleep (seconds 1))
      Between -> forever (sendIn [1_000] (pure ()) client (ask "/a") >> answer False client >> sleep (seconds 6))
      Silence -> void (untilEnd client)
      Protocol -> sendIn [1_000] (pure ()) client (ask "/protocol") >> void (untilEnd client)
      Continue -> sendIn [1_000] (pure ()) client (askWith "POST" "/Whole" ["Content-Length: 9", "Expect: 100-continue"]) >> void (untilEnd client)
    trickle = sendIn [1] (sleep (seconds 1))
    handler request = case requestPath request of
      "/endless" -> pure (streamed ok200 [] (\sink -> forever (sinkWrite sink (byteString (ByteString.replicate 5_000 0x61)) >> sinkFlush sink)))
      "/protocol" -> pure (Response switchingProtocols101 [] (Switch (void . duplexReceive)) Nothing)
      _ -> echoing request
