{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Clients that are slow, that vanish, that mean harm
--
-- None of them may keep the server from others, nor stay longer than the server's time limits
-- say.
module Explore.HttpClients (scenarios) where

import Control.Monad (forM_, void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.Either (fromRight)
import Data.IORef
import Data.Text (Text)
import Data.Text qualified as Text
import Explore.Draw
import Explore.HttpAnswers hiding (scenarios)
import Explore.HttpClient
import Explore.HttpRig
import Explore.Scenario
import Weft
import Weft.Http.Server (connectionCount)
import Weft.IVar
import Weft.Scope
import Weft.Sim hiding (Exception, Resets)
import Weft.Socket
import Weft.Timeout (timeout)

scenarios :: [Scenario]
scenarios =
  [ weathered "http/slow" "slow clients are served while they get on, and cut off in time where they do not" $ \seed ->
      draw seed (slow (weatherOf seed)),
    weathered "http/hostile" "what is not HTTP is refused, and others are served" $ \seed ->
      hostile (weatherOf seed) (draw seed (several 1 4 ((,) <$> pieces <*> attack))),
    (weathered "http/vanishing" "clients vanish in every state, and nothing of them is left" $ \seed -> vanishing (draw seed (several 1 6 vanisher)))
      { scenarioConfig = \seed -> inWeather (weatherOf seed) (configOf seed)
      },
    (weathered "http/faults" "whatever befalls the network, clients that are not concerned are served" $ \seed -> faulty (draw seed (several 1 2 (several 1 4 asks))))
      { scenarioConfig = \seed -> inWeather Tight (configOf seed) {configFaults = draw seed faults}
      }
  ]

-- | Complain that a connection is lost where none may be.
lossyIn :: Weather -> String -> Thread Complaints -> Thread Complaints
lossyIn weather what act =
  attempt act >>= \case
    Right wrong -> pure wrong
    Left e -> pure (expect (what <> " failed: " <> show e) (weather == Stormy))

-- | Another client is served promptly all the while, and once more afterwards.
amid :: Weather -> Rig -> Thread Complaints -> Thread Complaints
amid weather rig act = withScope $ \scope -> do
  over <- liftIO (newIORef False)
  let look = do
        isLast <- liftIO (readIORef over)
        (found, late) <- within "somebody else" (0, 4_000) (lossyIn weather "somebody else" (witness rig))
        ((found <> (if weather == Stormy then [] else late)) <>) <$> if isLast then pure [] else sleep (seconds 7) >> look
  other <- forkIn scope (onNewMachine "witness" look)
  own <- act
  liftIO (writeIORef over True)
  (own <>) <$> awaitChild other

witness :: Rig -> Thread Complaints
witness rig = withClient (rigAddress rig) $ \client -> do
  sendIn [1_000] (pure ()) client (ask "/page.html")
  body200 "somebody else" (fileOf "page.html") <$> answer False client

-- | A slow client of some kind, beside another client.
slow :: Weather -> Draw (Thread Complaints)
slow weather = do
  ms <- between 1 150
  kind <- oneOf (map pure kinds)
  pure . serving defaultSetup $ \rig ->
    amid weather rig . onNewMachine "slow" . lossyIn weather "a slow client" . withClient (rigAddress rig) $
      \client -> kind ms rig client
  where
    kinds = [dribble, endless, silent, idle, stingy, deaf, reading]
    limited what bounds act = do
      (found, late) <- within what bounds act
      pure (found <> (if weather == Stormy then [] else late))
    -- A byte at a time, but a head within its ten seconds.
    dribble ms _ client = do
      sendIn [1] (sleep (milliseconds ms)) client (ask "/small.txt")
      body200 "a slow head" (fileOf "small.txt") <$> answer False client
    -- A head that never ends: 408 when its time is up, however busily it comes.
    endless ms _ client = limited "a head without end" (10_000, 13_500) . withScope $ \scope -> do
      _ <- forkDaemonIn scope . attempt $ sendIn [1] (sleep (milliseconds (100 + 5 * ms))) client ("GET / HTTP/1.1\r\nHost: sim\r\nX: " <> ByteString.replicate 5_000 0x61)
      got <- answer False client
      rest <- untilEnd client
      pure (expectEqual "a head without end" (Right 408) (answerStatus <$> got) <> expectEqual "after 408" "" rest)
    -- A connection on which nothing comes.
    silent _ _ client = limited "a silent connection" (9_900, 13_500) (expectEqual "on a silent connection" "" <$> untilEnd client)
    -- Nothing after an answer.
    idle _ _ client = do
      sendIn [1_000] (pure ()) client (ask "/small.txt")
      first <- answer False client
      (body200 "before idling" (fileOf "small.txt") first <>)
        <$> limited "an idle connection" (59_000, 63_500) (expectEqual "on an idle connection" "" <$> untilEnd client)
    -- A body that does not come.
    stingy _ _ client = do
      sendIn [1_000] (pure ()) client (askWith "POST" "/" ["Content-Length: 1000"] <> "some")
      first <- answer False client
      (expectEqual "before a body" (Right 405) (answerStatus <$> first) <>)
        <$> limited "a body that does not come" (29_000, 33_500) (expectEqual "in place of a body" "" <$> untilEnd client)
    -- A client that does not read is cut off.
    deaf _ _ client = do
      _ <- attempt (sendIn [1_000] (pure ()) client (ByteString.concat (replicate 12 (ask "/large.bin"))))
      sleep (seconds 36)
      got <- fromRight "" <$> attempt (untilEnd client)
      pure (expect "all was sent to a client that did not read" (ByteString.length got < 12 * ByteString.length (fileOf "large.bin")))
    -- A client that reads slowly, but reads, is served to the end.
    reading ms _ client = do
      sendIn [1_000] (pure ()) client (askWith "GET" "/large.bin" ["Connection: close"])
      let go got =
            receive (clientSocket client) 4_000 >>= \piece ->
              if ByteString.null piece then pure got else sleep (milliseconds (60 * ms)) >> go (got <> piece)
      got <- go ""
      pure (expect ("a slow reader got " <> show (ByteString.length got) <> " bytes") (fileOf "large.bin" `ByteString.isSuffixOf` got))

-- | Something that a server must refuse: the bytes, and the statuses that will do.
data Attack = Attack String ByteString [Int]

attack :: Draw Attack
attack =
  oneOf
    [ pure (Attack "no host" "GET / HTTP/1.1\r\n\r\n" [400]),
      pure (Attack "two hosts" (askWith "GET" "/" ["Host: other"]) [400]),
      pure (Attack "two framings" (askWith "POST" "/" ["Content-Length: 3", "Transfer-Encoding: chunked"] <> "0\r\n\r\n") [400]),
      pure (Attack "two lengths" (askWith "POST" "/" ["Content-Length: 3", "Content-Length: 4"] <> "abcd") [400]),
      pure (Attack "a signed length" (askWith "POST" "/" ["Content-Length: +3"] <> "abc") [400]),
      pure (Attack "a space before the colon" (askWith "GET" "/" ["X : y"]) [400]),
      pure (Attack "another protocol" "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" [400, 505]),
      pure (Attack "a bare line feed" "GET / HTTP/1.1\nHost: sim\n\n" [400]),
      between 10_000 200_000 >>= \n -> pure (Attack "a long target" (ask ("/" <> ByteString.replicate n 0x61)) [414]),
      between 70_000 200_000 >>= \n -> pure (Attack "a long field" (askWith "GET" "/" ["X: " <> ByteString.replicate n 0x61]) [431]),
      between 500 5_000 >>= \n -> pure (Attack "many fields" (askWith "GET" "/" (replicate n "X: y")) [431]),
      pure (Attack "an expectation" (askWith "GET" "/" ["Expect: the-best"]) [417]),
      between 100_000 300_000 >>= \n -> pure (Attack "a body that nobody wants" (askWith "POST" "/" ["Content-Length: " <> number n] <> ByteString.replicate n 0x47) [405]),
      between 1 2_000 >>= \n -> between 0 1_000 >>= \salt -> pure (Attack "noise" (ByteString.map (\b -> if b == 0x0a then 0 else b) (noise salt n) <> "\r\n\r\n") [400, 414])
    ]
  where
    number = Char8.pack . show

hostile :: Weather -> [([Int], Attack)] -> Thread Complaints
hostile weather attacks = serving defaultSetup $ \rig ->
  amid weather rig $ gather [onNewMachine (Text.pack ("hostile" <> show i)) (one rig sizes a) | (i, (sizes, a)) <- zip [1 :: Int ..] attacks]
  where
    one rig sizes (Attack what bytes statuses) = lossyIn weather what . withClient (rigAddress rig) $ \client -> do
      (got, rest) <- withScope $ \scope -> do
        forkIn_ scope (void (attempt (sendIn sizes (pure ()) client bytes >> finish client)))
        got <- answer False client
        -- After it the connection may be reset: there may be more to come from us.
        rest <- attempt (untilEnd client)
        pure (got, rest)
      pure $ case got of
        Right a ->
          expect (what <> ": answered with " <> show (answerStatus a)) (answerStatus a `elem` statuses)
            <> (if answerStatus a == 417 then [] else expectEqual (what <> ": after the answer") "" (fromRight "" rest))
        Left end -> expect (what <> ": no answer, but " <> show end) (weather == Stormy)

-- | How much of its requests a client sends, when it goes on, and how it leaves.
data Vanisher = Vanisher [Asked] [Int] Int Int Leaving

data Leaving = Closes | ClosesHalf | Resets | LosesPower | StaysForEver
  deriving stock (Eq, Show)

vanisher :: Draw Vanisher
vanisher = do
  asked <- several 1 4 asks
  sizes <- pieces
  let size = sum (map (ByteString.length . askedBytes) asked)
  Vanisher asked sizes <$> between 0 size <*> oneOf [pure 0, between 0 3, between 0 100] <*> oneOf (map pure [Closes, ClosesHalf, Resets, LosesPower, StaysForEver])

vanishing :: [Vanisher] -> Thread Complaints
vanishing clients = serving defaultSetup $ \rig -> do
  forM_ (zip [1 :: Int ..] clients) $ \(i, client) -> start rig (Text.pack ("client" <> show i)) client
  -- All limits have passed by then, one after the other, and twice.
  sleep (seconds 250)
  left <- liftIO (connectionCount (rigServer rig))
  pure (expectEqual "connections of clients that have vanished" 0 left)
  where
    start :: Rig -> Text -> Vanisher -> Thread ()
    start rig name (Vanisher asked sizes sent ms leaving) = do
      m <- newMachine name
      gone <- newIVar
      boot m . void . attempt . withClient (rigAddress rig) $ \client -> do
        sendIn sizes (pure ()) client (ByteString.take sent (ByteString.concat (map askedBytes asked)))
        sleep (milliseconds ms)
        case leaving of
          Closes -> pure ()
          ClosesHalf -> finish client >> void (untilEnd client)
          -- Closing with unread input resets.
          Resets -> void (receive (clientSocket client) 1)
          LosesPower -> fill_ gone () >> sleep (seconds 300)
          StaysForEver -> sleep (seconds 300)
      case leaving of
        LosesPower -> fork_ (timeout (seconds 300) (readIVar gone) >>= mapM_ (\() -> sleep (milliseconds ms) >> crash m))
        _ -> pure ()

-- | Faults of all kinds around two clients; a third one, on the home machine itself, is not
-- concerned by any.
faulty :: [[Asked]] -> Thread Complaints
faulty batches = serving defaultSetup $ \rig -> do
  wrong <- gather ([forkless rig name | name <- ["alice", "bob"]] <> [converse False (rigAddress rig) [1_000] (sleep (milliseconds 3)) batches])
  -- A client that was cut off is forgotten in the end.
  sleep (seconds 200)
  left <- liftIO (connectionCount (rigServer rig))
  pure (wrong <> expectEqual "connections after all faults" 0 left)
  where
    forkless rig name = do
      m <- newMachine name
      wrong <- liftIO (newIORef [])
      boot m (converse True (rigAddress rig) [500] (sleep (milliseconds 2)) (concat (replicate 5 batches)) >>= \found -> liftIO (modifyIORef' wrong (<> found)))
      sleep (seconds 100)
      liftIO (readIORef wrong)

faults :: Draw FaultScript
faults = concat <$> several 1 4 one
  where
    one = do
      begin <- fromIntegral <$> between 0 100_000_000
      length' <- fromIntegral <$> weighted [(2, between 0 100_000_000), (1, between 0 60_000_000_000)]
      name <- oneOf [pure "alice", pure "bob"]
      let lasting fault mended = [At begin fault, At (begin + length') mended]
      oneOf
        [ pure (lasting (Crash name) (Restart name)),
          pure (lasting (Cut ["home"] [name]) Heal),
          pure (lasting (CutOneWay ["home"] [name]) Heal),
          pure (lasting (CutOneWay [name] ["home"]) Heal),
          between 1_000_000 400_000_000 >>= \d -> pure (lasting (SlowLinks (fromIntegral d)) Heal),
          pure [At begin (ResetConnections name)],
          between (-3_600) 3_600 >>= \s -> pure (lasting (SkewClock "home" (fromIntegral s * 1_000_000_000)) (SkewClock "home" 0))
        ]
