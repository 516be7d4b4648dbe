{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Files that change, shrink and vanish; disks that fail
--
-- A response has the bytes that a file had at one moment, or the connection ends: never a mixture
-- that looks whole.
module Explore.HttpFiles (scenarios) where

import Control.Monad (forM, forM_, replicateM)
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
import Weft.File hiding (Where (..))
import Weft.Scope
import Weft.Sim hiding (Exception)
import Weft.Time

scenarios :: [Scenario]
scenarios =
  [ weathered "http/replaced" "a file that is replaced is sent whole, one version of it, and not an old one" $ \seed ->
      replaced (weatherOf seed) seed,
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
