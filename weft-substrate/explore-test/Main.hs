-- |
-- Description : The substrate, held to its semantics on every schedule
--
-- The same code as the substrate's own, over an explorer: every access to shared memory is a
-- point at which another HEC may go on.
module Main (main) where

import Behind (behind)
import Control.Monad (unless)
import Data.IORef (readIORef)
import Data.List (find)
import Data.Map.Strict qualified as Map
import Data.Maybe (fromJust)
import Data.Set qualified as Set
import Held
import Litmus
import Random (Plan, programOf)
import Running
import System.CPUTime (getCPUTime)
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck
import Weft.Substrate.Internal.Explorer
import Weft.Substrate.Internal.Ground (Bug (..), Ending (..), forkCarrier)
import Weft.Substrate.Program (Program)
import Weft.Substrate.Semantics

main :: IO ()
main =
  defaultMain . testGroup "weft-substrate, explored" $
    [ testGroup "what is shown is allowed" [testCase (litmusName l) (holdToSemantics l) | l <- litmus],
      testGroup "the semantics" [testCase "every rule is used by a litmus program" everyRule],
      testGroup "planted bugs are found" [testCase (show bug) (isFound bug) | bug <- [minBound .. maxBound]],
      testCase "HECs that steal lose no thread" nothingLost,
      testCase "a stack that waits on its OS thread goes on once" goesOnOnce,
      localOption (QuickCheckTests 150) (testProperty "what random programs show is allowed" randomPrograms)
    ]

-- | The observation at the end of a schedule; 'Nothing' if it does not end.
type Seen = Maybe (Outcome, Bool)

allowed :: Program Model () -> Set.Set Seen
allowed = Set.map Just . allOutcomes . outcomes "main"

holdToSemantics :: Litmus -> Assertion
holdToSemantics l = do
  let may = allowed (litmusProgram l)
  let e = exploring 3_000 Nothing (`Set.notMember` may) (litmusProgram l)
  seen <- explore e
  (schedule, final) <- lastOf e seen
  unless (final `Set.member` may) $
    assertFailure ("not allowed: " <> show final <> ", by the schedule " <> show schedule <> "; allowed: " <> show (Set.toList may))
  -- With two preemptions not everything is seen, but of several things more than one.
  unless (Set.size may == 1) $
    assertBool "one outcome of several" (Set.size (Set.fromList (map snd seen)) > 1)

everyRule :: Assertion
everyRule = [minBound ..] @?= Set.toList (Set.unions [usedRules (outcomes "main" (litmusProgram l)) | l <- litmus])

-- | The explorer finds a bug with the litmus program that is meant for it, soon.
isFound :: Bug -> Assertion
isFound bug = do
  let l = fromJust (find ((== litmusFor bug) . litmusName) litmus)
      may = allowed (litmusProgram l)
  begin <- getCPUTime
  let e = exploring 6_000 (Just bug) (`Set.notMember` may) (litmusProgram l)
  seen <- explore e
  assertBool ("not found in " <> show (length seen) <> " schedules") (snd (last seen) `Set.notMember` may)
  took <- subtract begin <$> getCPUTime
  -- What a programmer is shown has it, too, and takes no more choices.
  shown <- simplest e (fst (last seen))
  replayed <- replay e shown
  assertBool "not by the schedule that is shown" (replayed `Set.notMember` may)
  assertBool "it is no simpler" (length (filter (/= 0) shown) <= length (filter (/= 0) (fst (last seen))))
  assertBool ("it took " <> show (took `div` 1_000_000_000) <> " milliseconds") (took < 1_000_000_000_000)

litmusFor :: Bug -> String
litmusFor = \case
  CommitBeforeCapture -> "a stack that puts itself into a variable is run once"
  StoreBeforeCommit -> "who knows a stack cannot enter it before it was left"
  TargetUnchecked -> "two switch to one stack"
  TargetCheckedEarly -> "two queues between two HECs"
  AsleepAfterCommit -> "a sleep and its wake-up"
  SleepDropsWrites -> "a sleep and its wake-up"
  WakeBeforeCommit -> "who gives up has woken nobody"
  WakeUnlogged -> "a wake-up is for one sleep"
  ReadUnvalidated -> "a chain of reads is of one moment"
  CommitUnvalidated -> "two movers, and all is kept"
  LockNotTaken -> "two movers, and all is kept"
  UnlockEarly -> "a sum is never seen half-way"
  CatchForgetsReads -> "what a failed part has read is a condition"
  CatchKeepsWrites -> "a catch undoes what was written, and keeps what is new"
  DisplacementUnseen -> "a displaced stack comes back, and goes on where it was"
  SleeperDisplaced -> "a HEC that sleeps is not displaced"
  ReturnBeforeCommit -> "who was displaced cannot be entered before it has come back"

randomPrograms :: Plan -> Property
randomPrograms plan = ioProperty $ do
  let may = allowed (programOf plan)
      e = exploring 40 Nothing (`Set.notMember` may) (programOf plan)
  seen <- explore e
  (schedule, final) <- lastOf e seen
  pure
    . counterexample ("not allowed: " <> show final <> ", by the schedule " <> show schedule)
    . cover 30 (Set.size may > 1) "several outcomes"
    $ final `Set.member` may

-- | The example of work stealing, on every schedule with one preemption.
nothingLost :: Assertion
nothingLost = do
  let e =
        Exploration
          { exploreBug = Nothing,
            explorePreemptions = 1,
            exploreLimit = limit,
            exploreUntil = (/= (AllEnded, [])),
            exploreProgram = do
              h <- held
              pure (heldProgram h, \ending -> (,) ending <$> wrong h)
          }
  seen <- explore e
  (schedule, final) <- lastOf e seen
  assertEqual ("by the schedule " <> show schedule) (AllEnded, []) final
  assertBool "every schedule" (length seen > 1 && length seen < limit)
  where
    limit = 20_000

goesOnOnce :: Assertion
goesOnOnce = do
  let e =
        Exploration
          { exploreBug = Nothing,
            explorePreemptions = 1,
            exploreLimit = limit,
            exploreUntil = (/= expected),
            exploreProgram = (\(program, said) -> (program, \ending -> (,) ending <$> said)) <$> behind
          }
  seen <- explore e
  (schedule, final) <- lastOf e seen
  assertEqual ("by the schedule " <> show schedule) expected final
  assertBool "every schedule" (length seen > 1 && length seen < limit)
  where
    expected = (AllEnded, ["gets", "main", "puts"])
    limit = 20_000

-- | The last of the schedules that were run, or, if it ends them because of its outcome, one that is simpler.
lastOf :: Exploration a -> [([Int], a)] -> IO ([Int], a)
lastOf e seen
  | exploreUntil e final = simplest e schedule >>= \s -> (,) s <$> replay e s
  | otherwise = pure (schedule, final)
  where
    (schedule, final) = last seen

-- | The schedules of a program with at most two preemptions, and no more than the given number, until one
-- has an outcome of that kind.
exploring :: Int -> Maybe Bug -> (Seen -> Bool) -> Program Substrate () -> Exploration Seen
exploring limit bug wanted p =
  Exploration
    { exploreBug = bug,
      explorePreemptions = 2,
      exploreLimit = limit,
      exploreUntil = wanted,
      exploreProgram = do
        r <- newRunning forkCarrier
        pure (perform r "main" p, observed r)
    }
  where
    observed r ending = do
      said <- Map.filter (not . null) . Map.map (filter (/= "fails with Abandoned")) <$> readIORef (runningSaid r)
      pure $ case ending of
        AllEnded -> Just (said, False)
        SomeSleep -> Just (said, True)
        TooLong -> Nothing
