{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Clients that send and read slowly, but steadily
--
-- A client that is slower than the server allows is cut off, and in a time that follows from how slow it
-- is; any other is served, however long that takes, and whatever time the handler takes
-- between two pieces.
module Explore.HttpPace (scenarios) where

import Control.Monad (forM, void)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.Foldable (fold)
import Data.IORef
import Data.Int (Int64)
import Data.Text qualified as Text
import Explore.Draw
import Explore.HttpClient
import Explore.HttpRig
import Explore.Scenario
import Weft
import Weft.Http.Server
import Weft.Http.Status
import Weft.Scope
import Weft.Sim (Config (..))
import Weft.Socket
import Weft.Time
import Weft.Timeout

scenarios :: [Scenario]
scenarios =
  [ calmly "http/pace" "a client that is slower than it may be is cut off in its time, and no other is" $ \seed ->
      pacing (draw seed (several 1 4 habit)),
    calmly "http/patience" "a handler that gives up waiting for a body takes its own time, and not its client's" $ \seed ->
      givingUp (draw seed (between 1 50_000))
  ]
  where
    -- Nothing but the client slows a connection down.
    calmly name about program =
      (weathered name about program) {scenarioConfig = \seed -> (inWeather Calm (configOf seed)) {configRaces = False}}

-- | The part in which a client is slow.
data Way
  = -- | The first line of a head, which has no end.
    Heading
  | -- | A body, of which the handler reads a piece and then works this number of milliseconds.
    Uploading Int
  | -- | A body that the handler leaves unread.
    Ignored
  | Reading
  deriving stock (Eq, Show)

-- | This number of bytes, and this number of milliseconds after them.
data Habit = Habit Way Int Int
  deriving stock (Eq, Show)

habit :: Draw Habit
habit = do
  kind <- oneOf [pure Heading, Uploading <$> weighted [(1, pure 0), (1, between 0 7_000)], pure Ignored, pure Reading]
  pace <- case kind of
    -- Octets a second, well away from the rate on either side.
    Reading -> weighted [(1, between 100 (rateRead `div` 2)), (1, between (2 * rateRead) 60_000)]
    Heading -> between 1 20
    _ -> weighted [(1, between 1 150), (1, between 400 20_000)]
  gap <- case kind of
    -- The slowest sends a byte at a time.
    _ | pace < 20 -> pure (1_000 `div` pace)
    Reading -> between 500 3_000
    _ -> between 20 3_000
  pure (Habit kind (max 1 (pace * gap `div` 1_000)) gap)

paceOf :: Habit -> Int
paceOf (Habit _ size gap) = size * 1_000 `div` gap

-- | The least rate at which a client has to read a response, in octets a second.
rateRead :: Int
rateRead = 2_000

-- | Octets of a response, and no less than what is on its way at a time.
large, underWay :: Int
large = 1_500_000
underWay = 600_000

pacing :: [Habit] -> Thread Complaints
pacing habits = do
  observed <- liftIO (newIORef [])
  let setup =
        (answering handler)
          { setupServer = \s ->
              s
                { serverBodyRate = Just (MinimumRate 240 (seconds 5)),
                  serverResponseRate = Just (MinimumRate (fromIntegral rateRead) (seconds 5)),
                  serverSkipBody = 1_000_000,
                  serverObserver = Just $ \case
                    TimedOut expiry -> modifyIORef' observed (expiry :)
                    _ -> pure ()
                }
          }
  wrong <- serving setup $ \rig -> withScope $ \scope -> do
    children <- forM (zip [1 :: Int ..] habits) $ \(i, h) ->
      forkIn scope (onNewMachine (Text.pack ("client" <> show i)) (withClient (rigAddress rig) (fmap (map ((show h <> ": ") <>)) . one h)))
    concat <$> mapM awaitChild children
  seen <- liftIO (readIORef observed)
  let count expiry = length (filter (== expiry) seen)
      slow kinds = length [h | h@(Habit kind _ _) <- habits, kinds kind, isSlow h]
      sends = \case Uploading _ -> True; Ignored -> True; _ -> False
  pure
    ( wrong
        <> expect
          ("bodies that were too slow: " <> show (count ExpiredBodyRate))
          (slow sends <= count ExpiredBodyRate && count ExpiredBodyRate <= slow sends + length (filter isUncertain habits))
        -- Room comes in lumps, of a third of a buffer where there are segments. The limit of one wait for it may pass before the credit.
        <> expectEqual "readers that were too slow" (slow (== Reading)) (count ExpiredWriteRate + count ExpiredWrite)
        <> expectEqual "heads that were too slow" (slow (== Heading)) (count ExpiredHead)
    )
  where
    handler request = case requestPath request of
      "/read" -> pure (plain ok200 [] (ByteString.replicate large 0x61))
      "/ignore" -> pure (plain ok200 [] "ignored")
      _ -> do
        let work = maybe 0 fst (Char8.readInt (ByteString.drop 1 (requestQuery request)))
            go !n = do
              piece <- receiveBody request
              if ByteString.null piece then pure n else sleep (milliseconds work) >> go (n + ByteString.length piece)
        received <- go (0 :: Int)
        pure (plain ok200 [] (Char8.pack (show received)))

isSlow :: Habit -> Bool
isSlow h@(Habit kind _ _) = case kind of
  Heading -> True
  Reading -> paceOf h < rateRead
  Uploading work | work > 0 -> False
  _ -> paceOf h < 200

-- | A slow client may be cut off or not, where no thread waits for it while the handler works.
isUncertain :: Habit -> Bool
isUncertain h@(Habit kind _ _) = case kind of
  Uploading work -> work > 0 && paceOf h < 200
  _ -> False

-- | Complain about what becomes of a client.
one :: Habit -> Client -> Thread Complaints
one h@(Habit kind size gap) client = case kind of
  Heading -> do
    (got, took) <- timed (trickling (ByteString.replicate 8_000 0x61) (answer False client))
    pure (expect ("answered with " <> show got) (statusOf' got == 408) <> between' "the head" 9_900 12_700 took)
  Uploading work -> do
    sendIn [10_000] (pure ()) client (askWith "POST" ("/work?" <> text work) ["Content-Length: " <> text size', "Connection: close"])
    (got, took) <- timed (trickling body (answer False client))
    pure $
      if isSlow h
        then expect ("answered with " <> show got) (statusOf' got == 408) <> soon took
        else case got of
          Right a | answerStatus a == 200 -> expectEqual "received" (text size') (answerBody a)
          _ -> expect ("answered with " <> show got) (isUncertain h)
  Ignored -> do
    sendIn [10_000] (pure ()) client (askWith "POST" "/ignore" ["Content-Length: " <> text size'])
    (got, took) <- timed (trickling (body <> askWith "GET" "/ignore" ["Connection: close"]) ((,) <$> answer False client <*> answer False client))
    pure $
      expectEqual "the first answer" 200 (statusOf' (fst got))
        <> if isSlow h
          then expectEqual "an answer after a body that was too slow" 0 (statusOf' (snd got)) <> soon took
          else expectEqual "the second answer" 200 (statusOf' (snd got))
  Reading -> do
    sendIn [10_000] (pure ()) client (askWith "GET" "/read" ["Connection: close"])
    let reading !n =
          attempt (receive (clientSocket client) size) >>= \case
            Right bytes | not (ByteString.null bytes) -> sleep (milliseconds gap) >> reading (n + ByteString.length bytes)
            _ -> pure n
    (n, took) <- timed (reading 0)
    pure $
      if isSlow h
        then expect ("read " <> show n <> " bytes") (n < large) <> between' "reading" 4_900 cutOffAfter took
        else expect ("read " <> show n <> " bytes") (n > large)
  where
    -- Bytes on their way count as taken, and are read when the server has gone.
    cutOffAfter = 1_000 * (5 * rateRead + underWay) `div` (rateRead - paceOf h) + 1_000 * underWay `div` paceOf h + gap + 3_500
    -- Enough for two minutes of a slow one.
    size' = if isSlow h then paceOf h * 120 + 200 else max 10 (min 100_000 (paceOf h * 40))
    body = ByteString.replicate size' 0x61
    statusOf' = either (const 0) answerStatus
    -- Send in our pace, while we wait for the answer.
    trickling bytes wait = withScope $ \scope -> do
      _ <- forkDaemonIn scope (void (attempt (sendIn [size] (sleep (milliseconds gap)) client bytes)))
      wait
    -- When the credit is used up: five seconds, and what the client sends meanwhile. The
    -- server looks once a second.
    soon = between' "being cut off" 4_000 (5_000 * 240 `div` (240 - paceOf h) + 2 * gap + 3_500)

text :: Int -> ByteString.ByteString
text = Char8.pack . show

timed :: Thread a -> Thread (a, Int64)
timed act = do
  begin <- now
  a <- act
  end <- now
  pure (a, durationNanoseconds (begin `since` end) `div` 1_000_000)

between' :: String -> Int -> Int -> Int64 -> Complaints
between' what least most ms =
  expect (what <> " took " <> show ms <> " ms, and not between " <> show least <> " and " <> show most) (fromIntegral least <= ms && ms <= fromIntegral most)

-- | A handler waits for a body for at most the given number of milliseconds, works for a minute, and
-- waits again; then the rest comes soon.
givingUp :: Int -> Thread Complaints
givingUp patience = serving (answering handler) $ \rig -> withClient (rigAddress rig) $ \client -> do
  sendIn [10_000] (pure ()) client (askWith "POST" "/" ["Content-Length: 5", "Connection: close"])
  got <- withScope $ \scope -> do
    _ <- forkDaemonIn scope (sleep (milliseconds (min 25_000 patience + 62_000)) >> void (attempt (sendIn [5] (pure ()) client "hello")))
    answer False client
  pure (expect ("answered with " <> show got) (either (const False) ((== "hello") . answerBody) got))
  where
    handler request = do
      early <- timeout (milliseconds (min 25_000 patience)) (receiveBody request)
      sleep (seconds 60)
      plain ok200 [] . (fold early <>) <$> readBody 10 request
