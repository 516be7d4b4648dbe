-- |
-- Description : A simulation as a property of other frameworks
--
-- In tasty, QuickCheck and hedgehog; and what a time limit of theirs, an asynchronous exception, does
-- to a simulation that never ends.
module Test.Property (tests) where

import Control.Concurrent qualified as Ghc
import Control.Exception qualified as Exception
import Control.Monad (forever, replicateM, replicateM_, void, when)
import Data.Maybe (isJust)
import GHC.Conc (ThreadStatus (..), threadStatus)
import Hedgehog (evalIO, forAll, (===))
import Hedgehog qualified
import Hedgehog.Gen qualified as Gen
import Hedgehog.Internal.Property (propertyConfig, propertyTest)
import Hedgehog.Internal.Report (Result (..))
import Hedgehog.Internal.Report qualified as Hedgehog
import Hedgehog.Internal.Runner (checkReport)
import Hedgehog.Internal.Seed qualified as HedgehogSeed
import Hedgehog.Range qualified as Range
import System.Timeout qualified as Ghc
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck (Property, counterexample, ioProperty, testProperty)
import Test.Tasty.QuickCheck qualified as QuickCheck
import Weft
import Weft.Channel qualified as Channel
import Weft.MVar
import Weft.Mutex
import Weft.Ref
import Weft.Sim

tests :: TestTree
tests =
  testGroup
    "As a property"
    [ testCase "of tasty" (Weft.Sim.check roughConfig [0 .. 99] (transferring [3, 1, 2]) (flawlessAnd balanced)),
      seeded 7 (testProperty "of QuickCheck" quickly),
      testCase "of hedgehog" hedgehog,
      testGroup
        "that never ends"
        [ testCase "is stopped by an exception" (stopped (\started -> liftIO (tellOnce started) >> forever yield)),
          testCase "is stopped in an effect" (stopped (\started -> liftIO (tellOnce started >> forever Ghc.yield))),
          testCase "is stopped though it handles all exceptions" (stopped (\started -> forever ((liftIO (tellOnce started) >> forever yield) `catch` ignoring))),
          testCase "is stopped though it computes again after each exception" (stopped (\started -> forever ((liftIO (tellOnce started) >> when (even (endless 0)) yield) `catch` ignoring))),
          testCase "is stopped while schedules are explored" exploringStops,
          testCase "is stopped by a time limit" timeLimited
        ],
      testCase "what the program raises is a result" results
    ]

-- | Threads move amounts from one account to the other.
transferring :: [Int] -> Thread (Int, Int)
transferring amounts = do
  lock' <- newMutex
  a <- newRef 0
  b <- newRef 0
  together [withMutex lock' (modifyRef' a (subtract n) >> modifyRef' b (+ n)) | n <- amounts]
  (,) <$> readRef a <*> readRef b

balanced :: (Int, Int) -> Maybe String
balanced (a, b) = if a + b == 0 then Nothing else Just ("money was made: " <> show (a + b))

quickly :: [Int] -> Word -> Property
quickly amounts seed = ioProperty $ do
  result <- simulate (fromIntegral seed) roughConfig (transferring amounts)
  pure (counterexample (tell result) (fmap problemText (flawlessAnd balanced result) QuickCheck.=== Nothing))

-- | Values arrive in the order of sending; and a property that says otherwise fails.
hedgehog :: Assertion
hedgehog = do
  checked (Hedgehog.property (sending >>= \(sent, received) -> received === sent)) >>= \case
    OK -> pure ()
    other -> assertFailure (show other)
  checked (Hedgehog.property (sending >>= \(sent, received) -> received === fmap reverse sent)) >>= \case
    Failed _ -> pure ()
    other -> assertFailure (show other)
  where
    sending = do
      values <- forAll (Gen.list (Range.linear 0 20) (Gen.int (Range.linear 0 9)))
      room <- forAll (Gen.int (Range.linear 1 4))
      seed <- forAll (Gen.word64 Range.linearBounded)
      result <- evalIO (simulate (Seed seed) roughConfig (through room values))
      pure (Just values, valueOf result)
    valueOf r = case resultOutcome r of
      Value a -> Just a
      _ -> Nothing
    checked p = Hedgehog.reportStatus <$> checkReport (propertyConfig p) 0 (HedgehogSeed.from 42) (propertyTest p) (\_ -> pure ())

through :: Int -> [Int] -> Thread [Int]
through room values = do
  c <- Channel.newChannel room
  fork_ (mapM_ (Channel.send c) values)
  replicateM (length values) (Channel.receive c >>= maybe (throwM (userError "closed")) pure)

ignoring :: Exception.SomeException -> Thread ()
ignoring _ = pure ()

-- | Allocates, so that GHC can interrupt it.
endless :: Integer -> Integer
endless n = if n < 0 then n else endless (n + 2 ^ (64 :: Int))

tellOnce :: Ghc.MVar Ghc.ThreadId -> IO ()
tellOnce started = Ghc.myThreadId >>= \me -> void (Ghc.tryPutMVar started me)

-- | The caller goes on at once, and the simulation's own thread ends.
stopped :: (Ghc.MVar Ghc.ThreadId -> Thread ()) -> Assertion
stopped program = do
  started <- Ghc.newEmptyMVar
  ended <- Ghc.newEmptyMVar
  caller <- Ghc.forkIO (void (simulate 0 inOrder {configMaxSteps = maxBound} (program started)) `Exception.catch` \e -> Ghc.putMVar ended (e :: Exception.AsyncException))
  simulation <- Ghc.takeMVar started
  Ghc.killThread caller
  Ghc.takeMVar ended >>= (@?= Exception.ThreadKilled)
  untilFinished simulation

untilFinished :: Ghc.ThreadId -> Assertion
untilFinished thread =
  threadStatus thread >>= \case
    ThreadFinished -> pure ()
    ThreadDied -> pure ()
    _ -> Ghc.yield >> untilFinished thread

exploringStops :: Assertion
exploringStops = do
  started <- Ghc.newEmptyMVar
  ended <- Ghc.newEmptyMVar
  let program = do
        v <- newMVar (0 :: Int)
        liftIO (tellOnce started)
        together (replicate 6 (replicateM_ 6 (modifyMVar_ v (pure . (+ 1)))))
  caller <- Ghc.forkIO (void (exploreWith (Bounds 100 maxBound True) inOrder 0 show program flawless) `Exception.catch` \e -> Ghc.putMVar ended (e :: Exception.AsyncException))
  simulation <- Ghc.takeMVar started
  Ghc.killThread caller
  Ghc.takeMVar ended >>= (@?= Exception.ThreadKilled)
  untilFinished simulation

timeLimited :: Assertion
timeLimited = do
  result <- Ghc.timeout 1_000 (simulate 0 inOrder {configMaxSteps = maxBound} (forever yield :: Thread ()))
  when (isJust result) (assertFailure "it ended")

results :: Assertion
results = do
  result <- simulate 0 inOrder (liftIO (Exception.evaluate (1 `div` (0 :: Int))))
  tell result @?= "exception divide by zero"
  exited <- simulate 0 inOrder (exit :: Thread ())
  take 9 (tell exited) @?= "exception"
