{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Files that change, shrink and vanish; disks that fail
--
-- A response has the bytes that a file had at one moment, or the connection ends: never a mixture
-- that looks whole.
module Explore.HttpFiles (scenarios) where

import Control.Monad (forM, forM_, replicateM, replicateM_, void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.Either (fromRight)
import Data.IORef
import Data.List (isInfixOf)
import Explore.Draw
import Explore.HttpClient
import Explore.HttpRig
import Explore.Scenario
import Weft
import Weft.Concurrently
import Weft.File hiding (Where (..))
import Weft.Http.Static (StaticSettings (..))
import Weft.Scope
import Weft.Sim hiding (Exception)
import Weft.Time

scenarios :: [Scenario]
scenarios =
  [ weathered "http/replaced" "a file that is replaced is sent whole, one version of it, and not an old one" $ \seed ->
      replaced (weatherOf seed) seed,
    weathered "http/replaced-known" "after an answer with a new file no request gets an old one, where all requests are known" overtaken,
    weathered "http/shrinking" "a file that shrinks while it is sent ends the connection" shrinking,
    weathered "http/removed" "a file that is removed while it is sent is sent whole, and then not found" removed,
    (weathered "http/disk" "a disk that fails makes no wrong answers, and when it works again all is well" $ \seed -> failing (weatherOf seed) seed)
      { scenarioConfig = \seed -> inWeather (weatherOf seed) (configOf seed) {configFaults = draw seed diskFaults}
      }
  ]

-- | A request on a connection of its own.
fetch :: Rig -> ByteString -> Thread (Either End Answer)
fetch rig target =
  fromRight (Left Ended) <$> attempt (withClient (rigAddress rig) (\client -> sendIn [1_000] (pure ()) client (ask target) >> answer False client))

-- | Versions of a file take each other's place, atomically; readers must see one that was there
-- since at most the second and a bit for which the server may remember.
replaced :: Weather -> Seed -> Thread Complaints
replaced weather seed = serving (drawnSetup seed) $ \rig -> do
  -- Versions and when each was put there, the newest first.
  history <- liftIO (newIORef [])
  let (sizes, pauses, gaps) =
        draw seed $
          (,,)
            <$> several 1 5 (oneOf [between 0 40, between 1_000 60_000])
            <*> several 1 5 (between 0 3_000)
            <*> several 3 8 (between 0 1_500)
      install version size = do
        let content = noise (100 + version) size
        putFile "next" content
        early <- now
        liftIO (modifyIORef' history ((content, early) :))
        renamePath "/www/next" "/www/changing.bin"
        -- It is there for certain from now on.
        done <- now
        liftIO (modifyIORef' history (\versions -> (content, done) : drop 1 versions))
  install 0 500
  withScope $ \scope -> do
    forkIn_ scope . forM_ (zip3 [1 ..] sizes (cycle pauses)) $ \(version, size, ms) ->
      sleep (milliseconds ms) >> install version size
    fmap concat . forM gaps $ \ms -> do
      sleep (milliseconds ms)
      asked <- now
      got <- fetch rig "/changing.bin"
      versions <- liftIO (readIORef history)
      let replacedAt = Nothing : map (Just . snd) versions
          fresh = [content | ((content, _), gone) <- zip versions replacedAt, maybe True (\g -> g `since` asked < milliseconds 2_500) gone]
      pure $ case got of
        Right a
          | answerStatus a == 200 ->
              expect
                (if answerBody a `elem` map fst versions then "an old version" else "a version that never was, of " <> show (ByteString.length (answerBody a)) <> " bytes")
                (answerBody a `elem` fresh)
        other -> expect ("no version: " <> show other) (weather == Stormy)

-- | Three clients ask for one file over and over, on connections that stay, around the moments in which a second
-- begins, and with it the comparison of the cache with the disk. A fourth one asks for a file that takes its place
-- in a small cache. After an answer with a version, no request that is sent later is answered with an older one.
overtaken :: Seed -> Thread Complaints
overtaken seed = serving setup $ \rig -> do
  -- The oldest first; 'Nothing': there is no file.
  history <- liftIO (newIORef [])
  newest <- liftIO (newIORef (0 :: Int))
  let install version = do
        liftIO (modifyIORef' history (<> [version]))
        case version of
          Nothing -> removePath "/www/changing.bin"
          Just content -> putFile "next" content >> renamePath "/www/next" "/www/changing.bin"
      judge oldest got = do
        versions <- liftIO (readIORef history)
        case [n | (n, version) <- zip [0 ..] versions, maybe 404 (const 200) version == answerStatus got, all (== answerBody got) version] of
          [] -> pure ["a version that never was: " <> show got]
          some | all (< oldest) some -> pure ["version " <> show some <> " after " <> show oldest <> ", of " <> show (length versions)]
          some -> [] <$ liftIO (modifyIORef' newest (max (minimum (filter (>= oldest) some))))
      turn act = do
        wall <- wallClock
        sleep (nanoseconds (fromIntegral (1_996_000_000 - wall `mod` 1_000_000_000)))
        act
      asking i = attempt . withClient (rigAddress rig) $ \client -> fmap concat . replicateM turns . turn . forM (take each (drop i (cycle pauses))) $ \us -> do
        sleep (microseconds us)
        oldest <- liftIO (readIORef newest)
        sendIn [1_000] (pure ()) client (ask "/changing.bin")
        answer False client >>= either (const (pure [])) (judge oldest)
      competing = attempt . withClient (rigAddress rig) $ \client ->
        replicateM_ turns . turn . replicateM_ each $ sendIn [1_000] (pure ()) client (ask "/page.html") >> answer False client
  install (Just (noise 100 300))
  withScope $ \scope -> do
    forkIn_ scope . forM_ (zip [1 ..] changes) $ \(n, (us, size)) -> do
      if us < 20_000 then turn (sleep (microseconds us)) else sleep (microseconds (us - 20_000))
      attempt (install (noise (100 + n) <$> size))
    forkIn_ scope (void competing)
    concatMap (concat . fromRight []) <$> forConcurrently [0 .. 2] asking
  where
    (cache, open, pauses, changes) =
      draw seed $
        (,,,)
          <$> oneOf (map pure [8_000, 100_000_000])
          <*> oneOf (map pure [(0, 8_192), (1_000, 8_192), (1_000, 0)])
          <*> several 3 6 (between 0 700)
          <*> several 4 8 ((,) <$> oneOf [between 0 15_000, between 20_000 21_000, between 20_000 1_000_000] <*> oneOf [pure Nothing, Just <$> between 0 2_000])
    setup = defaultSetup {setupStatic = \s -> s {staticCacheBytes = cache, staticOpenFiles = fst open, staticLargestCopied = snd open}}
    turns = 4
    each = 12

-- | Cut short in the middle.
shrinking :: Seed -> Thread Complaints
shrinking seed = serving (drawnSetup seed) $ \rig -> do
  let (reads', ms, size) = draw seed ((,,) <$> between 0 40 <*> between 0 30 <*> between 0 69_000)
  home <- thisMachine
  got <- attempt . onNewMachine "alice" . withClient (rigAddress rig) $ \client -> do
    sendIn [1_000] (pure ()) client (ask "/large.bin")
    withScope $ \scope -> do
      forkIn_ scope $ do
        sleep (milliseconds ms)
        onMachine home (withFile "/www/large.bin" WriteOnly (\f -> setFileSize f (fromIntegral size)))
      sleep (milliseconds reads')
      answer False client
  told <- reportsOf rig
  pure $ case got of
    Right (Right a) ->
      expect
        ("an answer of " <> show (ByteString.length (answerBody a)) <> " bytes of a file that shrinks to " <> show size)
        (answerStatus a == 200 && answerBody a `elem` [fileOf "large.bin", ByteString.take size (fileOf "large.bin")])
    Right (Left (Truncated _)) -> expect ("the operator was told " <> show told) (weatherOf seed == Stormy || any ("became shorter" `isInfixOf`) told)
    _ -> expect ("no answer: " <> show got) (weatherOf seed == Stormy || any ("became shorter" `isInfixOf`) told)

-- | Removed while one reads slowly.
removed :: Seed -> Thread Complaints
removed seed = serving (drawnSetup seed) $ \rig -> do
  let (ms, pause) = draw seed ((,) <$> between 0 40 <*> between 0 30)
      lossy = weatherOf seed == Stormy
      judge what = \case
        Right a -> expect (what <> ": " <> show (answerStatus a)) (answerStatus a == 404 || answerStatus a == 200 && answerBody a == fileOf "large.bin")
        Left end -> expect (what <> ": " <> show end) lossy
  withScope $ \scope -> do
    forkIn_ scope (sleep (milliseconds ms) >> removePath "/www/large.bin")
    found <- replicateM 3 (sleep (milliseconds pause) >> fetch rig "/large.bin")
    awaitAll scope
    sleep (milliseconds 2_500)
    finally' <- fetch rig "/large.bin"
    pure (concatMap (judge "a file that is removed") found <> either (\e -> expect (show e) lossy) (expectEqual "a file that was removed" 404 . answerStatus) finally')

-- | The disk of the server fails or is slow, for a while.
diskFaults :: Draw FaultScript
diskFaults = do
  begin <- fromIntegral <$> between 1_000_000_000 1_500_000_000
  part <- (/ 100) . fromIntegral <$> between 5 100
  times <- fromIntegral <$> between 2 500
  fault <- oneOf [pure (FailDisk "home" part), pure (SlowDisk "home" times)]
  pure [At begin fault, At 4_000_000_000 (MendDisk "home")]

failing :: Weather -> Seed -> Thread Complaints
failing weather seed = serving (drawnSetup seed) $ \rig -> do
  -- The faults begin after a second.
  sleep (seconds 1)
  let (names, pauses) = draw seed ((,) <$> several 3 10 (oneOf (map pure site)) <*> several 1 4 (between 0 700))
  during <- forM (zip names (cycle pauses)) $ \((name, content), ms) -> do
    sleep (milliseconds ms)
    got <- fetch rig ("/" <> name)
    pure $ case got of
      Right a -> expect ("with a bad disk: " <> show (answerStatus a)) (answerStatus a `elem` [500, 503] || answerStatus a == 200 && answerBody a == content)
      Left _ -> []
  sleep (seconds 9)
  afterwards <- forM site $ \(name, content) -> do
    got <- fetch rig ("/" <> name)
    pure $ case got of
      Left _ | weather == Stormy -> []
      _ -> body200 "when the disk works again" content got
  pure (concat (during <> afterwards))
