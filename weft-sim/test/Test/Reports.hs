{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : The reports for people
--
-- The lines that matter of a report, for each kind of failure; and that the line which says how to see
-- it again can be taken at its word.
module Test.Reports (tests) where

import Control.Monad (forever, void, when)
import Data.Char (isDigit)
import Data.IORef (modifyIORef', newIORef)
import Data.List (isPrefixOf, stripPrefix)
import Data.Maybe (mapMaybe)
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Channel qualified as Channel
import Weft.MVar
import Weft.Mask (uninterruptibleMask_)
import Weft.Mutex
import Weft.Ref
import Weft.STM qualified as STM
import Weft.Sim
import Weft.Socket

tests :: TestTree
tests =
  testGroup
    "Reports"
    [ says
        "an exception"
        noJob
        [ "the main thread was ended by an exception: user error (no job)",
          "what happened:",
          "thread 1  starts thread 2",
          "          receive from channel 1 (jobs), waits",
          "thread 2  send to channel 1 (jobs), wakes thread 1",
          "thread 1  raise user error (no job)"
        ],
      says
        "an exception in a thread with a label"
        lateFailure
        [ "thread 2 (worker) was ended by an exception: user error (oops)",
          "0.000000s  thread 2 worker  read the clock",
          "0.000000s                   sleep until 0.001000s",
          "0.001000s                   raise user error (oops)"
        ],
      says
        "a deadlock"
        transfers
        [ "deadlock: nothing can ever happen any more, and the main thread waits",
          "thread 2 payer    lock mutex 1 (accounts)",
          "lock mutex 2 (ledger), waits",
          "thread 3 auditor  lock mutex 2 (ledger)",
          "threads that had not ended:",
          "  thread 1: waits: semaphore 3 (done), 1 permit",
          "  thread 2 (payer): waits: mutex 2 (ledger), held by thread 3",
          "  thread 3 (auditor): waits: mutex 1 (accounts), held by thread 2",
          "deadlock:\n  thread 2 (payer) waits for mutex 2 (ledger), which thread 3 holds, and thread 3 (auditor) waits for mutex 1 (accounts), which thread 2 holds\n"
        ],
      says
        "a race"
        balances
        [ "data race on variable 1 (balance):",
          "thread 2 writes it at test/Test/Reports.hs:",
          "thread 3 reads it at test/Test/Reports.hs:",
          "and nothing orders the two",
          "thread 2  read variable 1 (balance) at test/Test/Reports.hs:"
        ],
      says
        "too many steps"
        busy
        [ "the run was not over after 200 steps",
          "threads that had not ended:",
          "  thread 1: ready",
          "  thread 2: ready"
        ],
      says
        "a thread that is left"
        stubborn
        [ "thread 2 had not ended when it was time",
          "thread 2  take MVar 1 (never), waits",
          "  thread 2: waits: MVar 1 (never), to take"
        ],
      testCase "effects, sends and transactions have their places" places,
      testCase "only the end of a long run is shown" longRun,
      testCase "the report is what 'check' raises" raised
    ]

-- | All of these are in the report; and what it says how to see it again gives the same problem.
says :: TestName -> Thread () -> [String] -> TestTree
says name program parts = testCase name $ do
  explored <- exploreWith defaultBounds config 0 show program flawless
  failure <- maybe (assertFailure "nothing was found") (shrinkFailure 500 program flawless . Failure) (exploredFound explored)
  report <- renderFailure program failure
  mapM_ (contains report) parts
  -- The same text each time.
  renderFailure program failure >>= (@?= report)
  (seed, schedule) <- maybe (assertFailure ("cannot read how to see it again in\n" <> report)) pure (readReplay report)
  again <- simulate seed config {configStrategy = Following schedule} program
  fmap problemText (flawless again) @?= takeProblem report
  where
    config = inOrder {configMaxSteps = 200}
    takeProblem report = Just (dropEnd (unlines (takeWhile (/= "") (lines report))))
    dropEnd text = take (length text - 1) text

-- | The seed and the schedule of a report.
readReplay :: String -> Maybe (Seed, Schedule)
readReplay report = case mapMaybe (stripPrefix "to see it again: replay ") (lines report) of
  [line]
    | [(seed, rest)] <- reads line,
      Just list <- stripPrefix " config {configStrategy = Following [" rest,
      (inside, "]}") <- break (== ']') list ->
        Just (seed, pairs (numbers inside))
  _ -> Nothing
  where
    numbers text = case dropWhile (not . isDigit) text of
      "" -> []
      from -> let (digits, rest) = span isDigit from in read digits : numbers rest
    pairs = \case
      i : o : rest -> Deviation i o : pairs rest
      _ -> []

noJob, lateFailure, transfers, balances, busy, stubborn :: Thread ()
noJob = do
  jobs <- Channel.newChannelNamed "jobs" 1
  fork_ (Channel.send jobs (0 :: Int))
  job <- Channel.receive jobs
  when (job == Just 0) (throwM (userError "no job"))
lateFailure = do
  fork_ (label "worker" >> sleep (milliseconds 1) >> throwM (userError "oops"))
  sleep (seconds 1)
transfers = do
  a <- newMutexNamed "accounts"
  b <- newMutexNamed "ledger"
  together [label "payer" >> withMutex a (withMutex b (pure ())), label "auditor" >> withMutex b (withMutex a (pure ()))]
balances = do
  balance <- newRefNamed "balance" (0 :: Int)
  together [modifyRef balance (+ 1), modifyRef balance (+ 1)]
busy = do
  v <- newMVar (0 :: Int)
  fork_ (forever (modifyMVar_ v (pure . (+ 1))))
  forever yield
stubborn = do
  never <- newEmptyMVarNamed "never"
  fork_ (void (uninterruptibleMask_ (takeMVar @() never)))
  sleep (seconds 1)

longRun :: Assertion
longRun =
  findFailure inOrder {configMaxSteps = 10_000} [0] busy flawless >>= \case
    Nothing -> assertFailure "nothing was found"
    Just failure -> do
      report <- renderFailure busy failure
      report `contains` " earlier lines"
      assertBool "too long" (length (lines report) < 430)

-- | Also where the library calls itself: 'sendAll' sends, and the place is that of 'sendAll'.
places :: Assertion
places = do
  result <- simulateRecorded 0 inOrder talking
  let text = unlines (renderTimeline (resultTimeline result))
  mapM_
    (contains text)
    [ "effect (counting) at test/Test/Reports.hs:" <> line 2,
      "transaction at test/Test/Reports.hs:" <> line 3,
      " at test/Test/Reports.hs:" <> line 5,
      " at test/Test/Reports.hs:" <> line 6
    ]
  where
    line n = show (talkingLine + n) <> ":"

-- | The line on which the next program begins.
talkingLine :: Int
talkingLine = 180

talking :: Thread ()
talking = do
  count <- liftIO (newIORef (0 :: Int))
  effectNamed "counting" (modifyIORef' count (+ 1))
  _ <- STM.atomically (STM.newTVar 'a')
  withPair $ \a b -> do
    sendAll a "hello"
    void (receive b 5)
  where
    withPair use = do
      listener <- listenTcp (Just "127.0.0.1") "7000" 1
      a <- connectTcp (seconds 1) "127.0.0.1" "7000"
      (b, _) <- accept listener
      () <- use a b
      mapM_ closeSocket [a, b, listener]

raised :: Assertion
raised =
  try (check inOrder [0 .. 9] noJob flawless) >>= \case
    Right () -> assertFailure "it passed"
    Left (SimulationFailed report) -> assertBool report ("the main thread was ended" `isPrefixOf` report)
