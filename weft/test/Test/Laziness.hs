{-# LANGUAGE GADTs #-}

-- |
-- Description : Traces are lazy, and the scheduler keeps them so
--
-- Forcing a node runs a thread's pure code up to its next system call and no
-- further (Li & Zdancewic 2007, section 3): seen with bottoms on both sides of
-- every kind of node, with a counter in the pure code, and by driving a scheduler
-- by hand.
module Test.Laziness (tests) where

import Control.Exception (ErrorCall (..), evaluate, try)
import Control.Monad (forM_, forever, void, when)
import Data.IORef
import Data.List (isPrefixOf)
import Data.Primitive.Array (indexArray)
import System.IO.Unsafe (unsafePerformIO)
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck hiding (label)
import Weft hiding (try)
import Weft.IO (direct)
import Weft.Internal.Core.Policy (fifo)
import Weft.Internal.Core.Scheduler hiding (Uncaught)
import Weft.Internal.Core.SystemCall (SystemCall (Now, WorkerCount))
import Weft.Internal.Core.Trace (newTcb, nobody, rootContext, toTrace)
import Weft.Internal.Os.Control (carrierFor, newWords)
import Weft.Internal.Run.Handle (WorkerHandle (..), newHandles)
import Weft.Semaphore (acquire, newSemaphore, release, tryAcquire)
import Weft.Time (now)
import Weft.Trace

tests :: TestTree
tests =
  testGroup
    "Laziness"
    [ testGroup "forcing a node does not touch what follows it" (map bottomAfter nodes),
      testGroup "pure code before a node runs with it" (map bottomBefore nodes),
      testProperty "an outline of depth n runs n segments of pure code" segments,
      testCase "a number of permits is evaluated with its node" permits,
      testCase "an outline runs no effect" noEffect,
      testCase "infinite threads have outlines" infinite,
      testCase "answers lead further" answers,
      testProperty "the scheduler drives a thread exactly to its next system call" driven
    ]

-- | Every kind of node that a program can make, and how it shows.
nodes :: [(String, Thread (), String)]
nodes =
  [ ("effect", liftIO (pure ()), "NodeEffect"),
    ("yield", yield, "NodeYield"),
    ("fork", void (fork undefined), "NodeFork"),
    ("fork_", fork_ undefined, "NodeFork"),
    ("catch", handle (\(ErrorCall _) -> undefined) undefined, "NodeCatch"),
    ("mask", mask (\restore -> restore undefined), "NodeMask"),
    ("label", label mempty, "NodeSelf"),
    ("myThreadId", void myThreadId, "NodeSelf"),
    ("a call", void now, "NodeCall"),
    ("blocking", blocking (error "ran"), "NodeCall"),
    ("direct", direct (error "ran"), "NodeEffect"),
    ("throw", throwM (ErrorCall "thrown"), "NodeThrow")
  ]

bottomAfter :: (String, Thread (), String) -> TestTree
bottomAfter (name, thread, shown) = testCase name $ do
  n <- evaluate (node (trace (thread >> error "forced too far")))
  assertBool (show n) (shown `isPrefixOf` show n)

bottomBefore :: (String, Thread (), String) -> TestTree
bottomBefore (name, thread, _) = testCase name $ do
  r <- try (evaluate (node (trace ((error "here" :: Int) `seq` thread))))
  either (\(ErrorCall message) -> message @?= "here") (assertFailure . show) r

-- | It is code of the user, and must not be evaluated in the scheduler.
permits :: Assertion
permits = do
  s <- run (newSemaphore 1)
  forM_ [acquire s, void . tryAcquire s, release s] $ \use -> do
    r <- try (evaluate (node (trace (use (error "here")))))
    either (\(ErrorCall message) -> message @?= "here") (assertFailure . show) r

-- | A thread that yields for ever, and counts in its pure code how far it came.
counting :: IORef Int -> Thread ()
counting reached = go 1
  where
    go n = mark n `seq` (yield >> go (n + 1))
    mark n = unsafePerformIO (writeIORef reached n)
    {-# NOINLINE mark #-}

segments :: NonNegative Int -> Property
segments (NonNegative n) = ioProperty $ do
  reached <- newIORef 0
  text <- evaluate (let s = outline n (trace (counting reached)) in length s `seq` s)
  got <- readIORef reached
  pure (got === n .&&. length (lines text) === n + 1)

noEffect :: Assertion
noEffect = do
  ran <- newIORef False
  let thread = yield >> liftIO (writeIORef ran True) >> yield
  outline 10 (trace thread) @?= "yield\neffect\n...\n"
  readIORef ran >>= (@?= False)

infinite :: Assertion
infinite = do
  outline 3 (trace (forever yield)) @?= "yield\nyield\nyield\n...\n"
  let brood = fork_ brood >> brood
  length (lines (outline 20 (trace brood))) `compare` 20 @?= GT
  -- The loop without a system call is the one thing without an outline; a thread
  -- that forks it has one, as long as the child is not looked at.
  outline 1 (trace (fork_ undefined >> yield)) @?= "fork\n| ...\n...\n"

answers :: Assertion
answers = do
  let thread = do
        n <- workerCount
        when (n > 2) yield
        t <- now
        t `seq` yield
      known :: SystemCall a -> Maybe a
      known = \case
        WorkerCount -> Just 3
        Now -> Nothing
        _ -> Nothing
  outlineWith (Answers known) 9 (trace thread) @?= "number of workers\nyield\nread the clock\n...\n"

-- | Run a counting thread on a bare scheduler, a number of dispatches at a time.
driven :: [Positive Int] -> Property
driven slices = ioProperty $ do
  reached <- newIORef 0
  worker <- (`indexArray` 0) <$> newHandles fifo (\_ -> pure ()) 1
  control <- newWords 1 0
  let noCalls = AnswerCall (\_ _ _ -> fail "no call was expected")
  carrier <- carrierFor control 1 0 0 0
  scheduler <- newScheduler (handleQueue worker) carrier (handleHome worker) 1000 noCalls (\_ _ -> pure ()) (\_ -> pure ())
  startThread scheduler (newTcb nobody rootContext) (\_ -> toTrace (counting reached))
  before <- readIORef reached
  results <- newIORef []
  forM_ slices $ \(Positive n) -> do
    void $ runSlice scheduler n
    r <- readIORef reached
    modifyIORef' results (r :)
  got <- reverse <$> readIORef results
  pure (before === 0 .&&. got === drop 1 (scanl (\a (Positive n) -> a + n) 0 slices))
