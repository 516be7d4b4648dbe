{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : A timeline is a file of the trace event format, and says what happened
--
-- The file is read with a JSON parser that knows nothing of Weft, and held against the
-- rules of the published format ("Trace Event Format", the array form): which fields
-- each phase needs and of what type, complete events nested on every track, times that
-- do not go back. How workers and the writer share memory is a property of its own.
module Test.Timeline (tests) where

import Control.Concurrent.MVar
import Control.Exception qualified as Exception
import Control.Monad
import Data.Aeson
import Data.Aeson.Key qualified as Key
import Data.Aeson.KeyMap qualified as KeyMap
import Data.ByteString qualified as ByteString
import Data.ByteString.Builder (toLazyByteString)
import Data.ByteString.Char8 qualified as Char8
import Data.ByteString.Short (toShort)
import Data.Either (isRight)
import Data.IORef
import Data.List (isInfixOf, nub, (\\))
import Data.Map.Strict qualified as Map
import Data.Text (Text)
import Data.Text qualified as Text
import Data.Text.Encoding (encodeUtf8)
import System.FilePath ((</>))
import System.IO.Temp (withSystemTempDirectory)
import System.Posix.IO qualified as Posix (OpenMode (ReadOnly), defaultFileFlags, openFd)
import System.Posix.IO.ByteString qualified as Posix (closeFd, fdRead)
import Test.QuickCheck.Monadic (assert, monadicIO, monitor, run)
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit hiding (assert)
import Test.Tasty.QuickCheck hiding (Success, label, total)
import Weft hiding (run)
import Weft.Counters
import Weft.Internal.Core.Trace (Context (..), newTcb, nobody, rootContext)
import Weft.Internal.Observe.Timeline.Event
import Weft.Internal.Observe.Timeline.Recorder
import Weft.Socket
import Weft.Timeline

tests :: TestTree
tests =
  testGroup
    "Timeline"
    [ testProperty "every label survives a parser of JSON" labelSurvives,
      testProperty "a label that is no UTF-8 is still a string" labelOfBytes,
      testProperty "what goes into the ring comes out, or is counted" ringKeeps,
      testGroup
        "the file keeps the rules of the format"
        [testCase (describeConfig c) (keepsRules c) | c <- configurations],
      testCase "every dispatch is there" everyDispatch,
      testCase "a takeover" takeover,
      testCase "a program that is cut off leaves a file that needs one bracket" cutOff,
      testCase "without room events are dropped and counted" dropping,
      testCase "a file that cannot be opened" cannotOpen,
      testCase "a full disk: one report, and the program goes on" fullDisk,
      testCase "a run that fails has a whole timeline" failingRun
    ]

-- Labels

parsed :: TimelineEvent -> Either String Object
parsed = eitherDecode . toLazyByteString . renderEvent (Process 7) 0

labelled :: ByteString.ByteString -> TimelineEvent
labelled bytes = TimelineEvent Dispatch 1234567 89 5 (toShort bytes)

-- | Among them all sorts of characters that JSON knows.
labelSurvives :: Property
labelSurvives = forAll text $ \given ->
  classify (Text.any (< ' ') given) "control characters" $
    classify (Text.any (> '\xffff') given) "outside the basic plane" $
      fmap (KeyMap.lookup "name") (parsed (labelled (encodeUtf8 given)))
        === Right (Just (String (if Text.null given then "thread 5" else given)))
  where
    text = Text.pack <$> listOf (oneof [arbitraryUnicodeChar, choose ('\0', '\x9f'), elements "\"\\/\x2028\x2029\xfeff\xfffd\x10ffff"])

labelOfBytes :: [Byte] -> Property
labelOfBytes bytes = counterexample (show result) (isRight result)
  where
    result = parsed (labelled (ByteString.pack (map (fromIntegral . byteNumber) bytes)))

newtype Byte = Byte Int
  deriving newtype (Show)

byteNumber :: Byte -> Int
byteNumber (Byte n) = n

instance Arbitrary Byte where
  arbitrary = Byte <$> choose (0, 255)

-- The ring

-- | Slices of threads with labels of these lengths; after each, the given number of events are taken.
-- The ring is small, so that it wraps around and fills up.
ringKeeps :: Property
ringKeeps = forAll slices $ \script -> monadicIO $ do
  (put, got, dropped) <- run $ do
    switch <- newIORef True
    recorder <- newRecorder switch 0 100 0
    results <- forM (zip [1 ..] script) $ \(n, (lengths, most)) -> do
      openSlice recorder (start n) 1
      forM_ lengths $ \size -> endDispatch recorder (start n) (start n + 1) (thread n size)
      closeSlice recorder (start n + 2) 1
      takeEvents recorder most
    rest <- takeEvents recorder maxBound
    dropped <- droppedEvents recorder
    let put = [TimelineEvent Ready (start 1) 1 0 mempty | not (null script)] <> concat [TimelineEvent Slice (start n) 2 0 mempty : [dispatched n size | size <- lengths] | (n, (lengths, _)) <- zip [1 ..] script]
    pure (put, concat results <> rest, dropped)
  monitor (classify (dropped > 0) "full" . counterexample (show (length put, length got, dropped)))
  assert (got `isSubsequence` put)
  assert (length got + dropped == length put)
  where
    start n = n * 1_000_000
    slices = listOf ((,) <$> listOf (choose (0, 30)) <*> frequency [(3, choose (0, 5)), (1, pure 1000)])
    thread n size = newTcb nobody rootContext {contextLabel = labelOf n size}
    labelOf n size = toShort (Char8.take size (Char8.concat (replicate 20 (Char8.pack (show (n :: Int) <> "-")))))
    dispatched n size = TimelineEvent Dispatch (start n) 1 0 (labelOf n size)
    isSubsequence [] _ = True
    isSubsequence _ [] = False
    isSubsequence (x : xs) (y : ys) = if x == y then isSubsequence xs ys else isSubsequence (x : xs) ys

-- Files

-- | Run a thread with a timeline, and read that.
timelineOf :: Settings -> Thread a -> IO (a, [Object])
timelineOf = timelineWith id

timelineWith :: (Timeline -> Timeline) -> Settings -> Thread a -> IO (a, [Object])
timelineWith change settings body = withSystemTempDirectory "weft-timeline" $ \dir -> do
  a <- runWith settings {settingTrace = Just (change (timelineTo (dir </> "t.json")))} body
  events <- readTimeline (dir </> "t.json")
  pure (a, events)

readTimeline :: FilePath -> IO [Object]
readTimeline file = ByteString.readFile file >>= either assertFailure pure . eitherDecodeStrict

keepsRules :: Config -> Assertion
keepsRules config = do
  (_, events) <- timelineOf (settingsFor config) $ do
    label "main \"quoted\" \8364"
    (a, b) <- socketPair
    done <- forM [1 .. 20 :: Int] $ \n -> spawn (label (Text.pack ("worker bee " <> show n)) >> replicateM_ 5 yield >> sleep (milliseconds 1))
    echo <- spawn (receive b 10 >>= sendAll b)
    sendAll a "x"
    _ <- receive a 10
    echo
    sequence_ done
    mapM_ closeSocket [a, b]
  rules events
  let names = nub (map name events)
      wanted = ["main \"quoted\" \8364", "slice", "poll", "sleep", "threads", "worker 0 ready", "timers pending"] <> [Text.pack ("worker bee " <> show n) | n <- [1 .. 20 :: Int]]
  wanted \\ names @?= []

everyDispatch :: Assertion
everyDispatch = do
  (look, events) <- timelineOf (settingsFor (Config Epoll 1)) $ do
    done <- replicateM 10 (spawn (replicateM_ 200 yield))
    sequence_ done
    counterReader
  rules events
  c <- look
  length (filter ((== Just "thread") . category) events) @?= countedDispatches (total c)

takeover :: Assertion
takeover = do
  box <- newEmptyMVar
  (_, events) <- timelineOf (takenOver (Config Epoll 1)) $ do
    stuck <- spawn (label "stuck" >> liftIO (takeMVar box))
    yield
    sleep (milliseconds 1)
    liftIO (putMVar box ())
    stuck
  rules events
  -- A busy machine may have it happen to the other, too.
  ["stuck" | e <- events, name e == "takeover", Just "stuck" <- [KeyMap.lookup "args" e >>= from]] @?= ["stuck" :: Text.Text]
  -- Before it lost the worker and after it came back.
  assertBool "its turns" (length (filter ((== "stuck") . name) events) >= 2)
  where
    from = \case
      Object o | Just (String s) <- KeyMap.lookup "from" o -> Just s
      _ -> Nothing

-- | A killed program leaves the bytes that are in the file at that moment. (It is
-- read without a handle, for GHC lets no handle read through one what another writes.)
cutOff :: Assertion
cutOff = withSystemTempDirectory "weft-timeline" $ \dir -> do
  let file = dir </> "t.json"
  left <- runWith (settingsFor (Config Epoll 1)) {settingTrace = Just (timelineTo file) {timelineInterval = 1000}} $ do
    let wait = do
          sleep (milliseconds 1)
          text <- liftIO (Exception.bracket (Posix.openFd file Posix.ReadOnly Posix.defaultFileFlags) Posix.closeFd (`Posix.fdRead` 1_000_000))
          if "\"sleep\"" `ByteString.isInfixOf` text then pure text else wait
    wait
  either assertFailure rules (eitherDecodeStrict (left <> "]"))
  readTimeline file >>= rules

dropping :: Assertion
dropping = do
  (look, events) <- timelineWith (\t -> t {timelineBuffer = 0, timelineInterval = 1_000_000_000}) (settingsFor (Config Epoll 1)) (replicateM_ 50_000 yield >> counterReader)
  rules events
  c <- look
  let dropped = maximum (0 : [n | e <- events, name e == "worker 0 dropped events", Just (Object o) <- [KeyMap.lookup "args" e], Just (Number n) <- [KeyMap.lookup "value" o]])
      written = length (filter ((== Just "thread") . category) events)
  assertBool (show dropped) (dropped > 0)
  assertBool "bounded" (written < countedDispatches (total c))

cannotOpen :: Assertion
cannotOpen = do
  began <- newIORef False
  outcome <- Exception.try (runWith (settingsFor (Config Epoll 1)) {settingTrace = Just (timelineTo "/no/such/directory/t.json")} (liftIO (writeIORef began True)))
  case outcome of
    Left e -> assertBool (show e) ("/no/such/directory/t.json" `isInfixOf` show (e :: Exception.IOException))
    Right () -> assertFailure "it should have failed"
  readIORef began >>= (@?= False)

fullDisk :: Assertion
fullDisk = do
  reports <- newIORef []
  got <- runWith (settingsFor (Config Epoll 1)) {settingTrace = Just (timelineTo "/dev/full"), settingReport = \text -> modifyIORef' reports (text :)} $ do
    -- It goes on after the report.
    eventually "a report" (not . null <$> readIORef reports)
    replicateM_ 1000 yield
    pure 'x'
  got @?= 'x'
  readIORef reports >>= \case
    [one] -> assertBool one ("/dev/full" `isInfixOf` one && "No space" `isInfixOf` one)
    other -> assertFailure (show other)

failingRun :: Assertion
failingRun = withSystemTempDirectory "weft-timeline" $ \dir -> do
  let file = dir </> "t.json"
  outcome <- Exception.try (runWith (settingsFor (Config Epoll 1)) {settingTrace = Just (timelineTo file)} (throwM (userError "mine") :: Thread ()))
  outcome @?= Left (userError "mine")
  readTimeline file >>= rules

-- The rules

name :: Object -> Text
name e = case KeyMap.lookup "name" e of
  Just (String s) -> s
  _ -> ""

category :: Object -> Maybe Text
category e = case KeyMap.lookup "cat" e of
  Just (String s) -> Just s
  _ -> Nothing

-- | An integral field.
number :: (HasCallStack) => Key.Key -> Object -> IO Int
number key e = case KeyMap.lookup key e of
  Just v | Success n <- fromJSON v -> pure n
  _ -> broken (Key.toString key <> " is no whole number") e

-- | A field in microseconds, in nanoseconds.
time :: (HasCallStack) => Key.Key -> Object -> IO Int
time key e = case KeyMap.lookup key e of
  Just v | Success us <- fromJSON v, us >= (0 :: Double) -> pure (round (us * 1000))
  _ -> broken (Key.toString key <> " is no time") e

broken :: (HasCallStack) => String -> Object -> IO a
broken what e = assertFailure (what <> ": " <> show (encode e))

-- | Hold a timeline against the rules of the format.
rules :: (HasCallStack) => [Object] -> Assertion
rules events = do
  assertBool "not empty" (not (null events))
  pids <- mapM (number "pid") events
  length (nub pids) @?= 1
  mapM_ fields events
  tracks <- Map.fromListWith (flip (<>)) <$> mapM (\e -> (,[e]) <$> number "tid" e) (filter ((/= Just (String "M")) . KeyMap.lookup "ph") events)
  forM_ (Map.elems tracks) $ \track -> do
    times <- mapM (time "ts") track
    forM_ (zip3 times (drop 1 times) (drop 1 track)) $ \(t, t', e) -> when (t' < t) (broken "time goes back" e)
    foldM_ nested [] track
  namesOf <- mapM (number "tid") (filter ((== "thread_name") . name) events)
  filter (/= 0) (Map.keys tracks) \\ namesOf @?= []

-- | The fields that each phase must have, and their types.
fields :: (HasCallStack) => Object -> Assertion
fields e = do
  case KeyMap.lookup "name" e of
    Just (String s) | not (Text.null s) -> pure ()
    _ -> broken "name" e
  _ <- number "tid" e
  _ <- time "ts" e
  case KeyMap.lookup "ph" e of
    Just (String "X") -> void (time "dur" e) >> unless (category e `elem` map Just ["worker", "thread", "kernel"]) (broken "cat" e)
    Just (String "i") -> unless (KeyMap.lookup "s" e `elem` map (Just . String) ["g", "p", "t"]) (broken "s" e)
    Just (String "C") -> unless (all isNumber values && not (null values)) (broken "args" e)
    Just (String "M") -> unless (name e `elem` ["process_name", "thread_name", "thread_sort_index"] && not (null values)) (broken "metadata" e)
    _ -> broken "ph" e
  where
    values = case KeyMap.lookup "args" e of
      Just (Object o) -> KeyMap.elems o
      _ -> []
    isNumber = \case
      Number _ -> True
      _ -> False

-- | Complete events are nested, as calls are; threads run inside slices. The stack has
-- where the open ones end.
nested :: (HasCallStack) => [(Int, Text)] -> Object -> IO [(Int, Text)]
nested open e
  | KeyMap.lookup "ph" e /= Just (String "X") = pure open
  | otherwise = do
      at <- time "ts" e
      long <- time "dur" e
      let end = at + long
          still = dropWhile (\(until', _) -> until' <= at && not (until' == at && end == at)) open
      case still of
        (until', _) : _ | end > until' -> broken "not nested" e
        _ -> pure ()
      when (category e == Just "thread" && map snd still /= ["slice"]) (broken ("inside " <> show still) e)
      pure (if category e == Just "thread" then still else (end, name e) : still)
