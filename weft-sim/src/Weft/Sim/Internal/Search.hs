-- |
-- Description : Looking for a run that goes wrong
-- Stability   : not home
--
-- By chance, seed after seed, and systematically, schedule after schedule; and making a failure
-- smaller once it was found.
--
-- See Note [Systematic exploration].
module Weft.Sim.Internal.Search
  ( -- * By chance
    Found (..),
    trySeeds,

    -- * Systematically
    Bounds (..),
    defaultBounds,
    Exploration (..),
    exploreSchedules,

    -- * Smaller
    shrinkFound,
    shrinkScript,
  )
where

import Control.Exception (SomeException (..))
import Data.List (foldl', sortOn)
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Maybe (isJust)
import Data.Typeable (TypeRep, typeOf)
import Weft.Internal.Trace (Thread)
import Weft.Sim.Internal.Choices
import Weft.Sim.Internal.Faults
import Weft.Sim.Internal.Random
import Weft.Sim.Internal.Run
import Weft.Sim.Internal.Verdict

-- | A run that went wrong: what with, and how.
data Found a = Found
  { foundConfig :: Config,
    foundSeed :: Seed,
    foundProblem :: Problem,
    foundResult :: Result a
  }

brief, branching :: Detail
brief = Detail {detailTimeline = False, detailBranches = False, detailAudit = False}
branching = Detail {detailTimeline = False, detailBranches = True, detailAudit = False}

-- | Run with one seed after the other, each with its own configuration, until a run goes wrong. The
-- action is told of every run.
trySeeds :: IO Bool -> (Seed -> IO Config) -> [Seed] -> (Seed -> Result a -> IO ()) -> Thread a -> Verdict a -> IO (Maybe (Found a))
trySeeds stop configure seeds told program verdict = go seeds
  where
    go [] = pure Nothing
    go (seed : rest) = do
      over <- stop
      if over
        then pure Nothing
        else do
          config <- configure seed
          (result, _) <- runOnce stop brief config seed program
          told seed result
          case verdict result of
            Just problem -> pure (Just (Found config seed problem result))
            Nothing -> go rest

-- Note [Systematic exploration]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- A schedule is known by its deviations from the default. Running one tells all the
-- decisions that were made; each decision behind the last deviation, with each option that
-- was not taken, is a schedule that nobody has run: the same deviations and one more. So
-- every schedule is run once, and what is to be done is a tree.
--
-- It is walked in the order of cost: an option that interrupts a thread which could go on
-- costs 1, others nothing (iterative context bounding, Musuvathi & Qadeer 2007). All
-- schedules without a preemption come first, then those with one, and so on up to the
-- bound; most bugs need two at most, and the first that is found has the fewest.
--
-- Within a cost the latest branch is explored first, so that what is kept is as long as a
-- run, times the options; what costs one more is kept for the next round.

-- | How far to look.
data Bounds = Bounds
  { -- | Preemptions in a schedule, at most.
    boundPreemptions :: !Int,
    -- | Schedules, at most.
    boundSchedules :: !Int,
    -- | Go on when something was found?
    boundGoOn :: !Bool
  }
  deriving stock (Eq, Show)

-- | Two preemptions, 100,000 schedules, and no further than the first failure.
defaultBounds :: Bounds
defaultBounds = Bounds 2 100_000 False

-- | What was seen.
data Exploration a = Exploration
  { -- | How many schedules were run.
    exploredSchedules :: !Int,
    -- | Whether these were all within the bound on preemptions.
    exploredAll :: !Bool,
    -- | How often each outcome came.
    exploredOutcomes :: !(Map String Int),
    -- | How many runs went wrong, and the first that did.
    exploredFailures :: !Int,
    exploredFound :: !(Maybe (Found a)),
    -- | Steps of all runs together.
    exploredSteps :: !Int
  }

-- | Run all schedules within the bounds.
exploreSchedules :: IO Bool -> Bounds -> Config -> Seed -> (a -> String) -> Thread a -> Verdict a -> IO (Exploration a)
exploreSchedules stop bounds config seed text program verdict = level 0 [([], 0)] (Exploration 0 True Map.empty 0 Nothing 0)
  where
    -- Schedules of one cost, and those found meanwhile that cost one more.
    level cost work seen
      | null work = pure seen
      | otherwise = do
          (next, seen') <- walk (cost < boundPreemptions bounds) work [] seen
          if halted seen'
            then pure seen' {exploredAll = exploredAll seen' && null next}
            else
              if cost >= boundPreemptions bounds
                then pure seen'
                else level (cost + 1 :: Int) next seen'

    halted seen = exploredSchedules seen >= boundSchedules bounds || (isJust (exploredFound seen) && not (boundGoOn bounds))

    -- The flag: what costs more is wanted.
    walk _ [] later seen = pure (later, seen)
    walk dear ((reversed, from) : rest) later seen
      | halted seen = pure (later, seen {exploredAll = False})
      | otherwise = do
          over <- stop
          if over
            then pure (later, seen {exploredAll = False, exploredSchedules = max (exploredSchedules seen) (boundSchedules bounds)})
            else do
              let schedule = reverse reversed
                  following = config {configStrategy = Following schedule}
              (result, made) <- runOnce stop branching following seed program
              let (same, dearer) = foldl' (branch reversed) ([], []) (filter ((>= from) . branchIndex) made)
                  problem = verdict result
                  outcome = outcomeText text result
                  seen' =
                    seen
                      { exploredSchedules = exploredSchedules seen + 1,
                        exploredSteps = exploredSteps seen + resultSteps result,
                        exploredOutcomes = Map.insertWith (+) outcome 1 (exploredOutcomes seen),
                        exploredFailures = exploredFailures seen + maybe 0 (const 1) problem,
                        exploredFound = case exploredFound seen of
                          Nothing | Just p <- problem -> Just (Found following seed p result)
                          other -> other
                      }
              walk dear (same <> rest) (if dear then dearer <> later else later) seen'

    branch reversed (same, dearer) b =
      let new = [(Deviation (branchIndex b) o : reversed, branchIndex b + 1) | o <- [1 .. branchOptions b - 1]]
       in if branchCost b == 0 then (new <> same, dearer) else (same, new <> dearer)

-- | Make a failure smaller, for at most so many runs: fewer faults, then fewer deviations from the
-- default schedule, with the same kind of problem.
shrinkFound :: IO Bool -> Int -> Thread a -> Verdict a -> Found a -> IO (Found a)
shrinkFound stop budget program verdict found0 = do
  (found1, left) <- shrinkScript stop budget program verdict found0
  -- What was decided is known: follow that.
  let scripted = found1 {foundConfig = (foundConfig found1) {configStrategy = Following (resultSchedule (foundResult found1))}}
  (again, left') <- attempt stop program verdict (foundConfig scripted) (scripted, left)
  case again of
    Nothing -> pure found1
    Just found2 -> fst <$> shrinkList stop program verdict 0 (\s f -> (foundConfig f) {configStrategy = Following s}) (resultSchedule . foundResult) (found2, left')

-- | Fewer faults; and how many runs are left. First faults with what mends them, then one by
-- one: a machine that does not start again is a simpler world, too. With a fault less everything after it
-- happens at other times, and what went wrong may just not happen: so a few other seeds are tried,
-- too, and the one that is found counts from then on.
shrinkScript :: IO Bool -> Int -> Thread a -> Verdict a -> Found a -> IO (Found a, Int)
shrinkScript stop budget program verdict found =
  shrinkList stop program verdict 5 (with . sortOn faultTime . concat) (withMendings . script) (found, budget)
    >>= shrinkList stop program verdict 5 with script
  where
    with faults f = (foundConfig f) {configFaults = faults}
    script = configFaults . foundConfig

-- | The same failure with another configuration, if it is one.
attempt :: IO Bool -> Thread a -> Verdict a -> Config -> (Found a, Int) -> IO (Maybe (Found a), Int)
attempt stop program verdict config (found, left)
  | left <= 0 = pure (Nothing, 0)
  | otherwise = do
      over <- stop
      if over
        then pure (Nothing, 0)
        else do
          (result, _) <- runOnce stop brief config (foundSeed found) program
          pure $ case verdict result of
            Just p | sameProblem p result, not (resultDiverged result) -> (Just (Found config (foundSeed found) p result), left - 1)
            _ -> (Nothing, left - 1)
  where
    sameProblem p result =
      problemKind p == problemKind (foundProblem found)
        && raised (problemKind p) result == raised (problemKind p) (foundResult found)

-- | Where a problem of this kind is an exception, of which type: without a fault a program may
-- fail in another way.
raised :: String -> Result a -> Maybe TypeRep
raised kind result = case kind of
  "exception" | Exception (SomeException e) <- resultOutcome result -> Just (typeOf e)
  "uncaught" | Uncaught {uncaughtException = SomeException e} : _ <- resultUncaught result -> Just (typeOf e)
  _ -> Nothing

-- | Leave out parts of a list, large ones first (delta debugging, Zeller & Hildebrandt 2002). Each
-- time so many other seeds are tried, too.
shrinkList :: IO Bool -> Thread a -> Verdict a -> Int -> ([x] -> Found a -> Config) -> (Found a -> [x]) -> (Found a, Int) -> IO (Found a, Int)
shrinkList stop program verdict others put get (found, left) = chunks (length (get found)) (found, left)
  where
    chunks size state
      | size < 1 = pure state
      | otherwise = do
          (changed, state') <- pass size 0 False state
          if changed then chunks (min size (length (get (fst state')))) state' else chunks (size `div` 2) state'
    pass size from changed (f, n)
      | from >= length items || n <= 0 = pure (changed, (f, n))
      | otherwise = do
          let shorter = take from items <> drop (from + size) items
          (result, n') <- tryEach (foundSeed f : [foundSeed f + 1000003 * fromIntegral i | i <- [1 .. others]]) (put shorter f) (f, n)
          case result of
            Just smaller | length (get smaller) < length items -> pass size from True (smaller, n')
            _ -> pass size (from + size) changed (f, n')
      where
        items = get f
    tryEach [] _ (_, n) = pure (Nothing, n)
    tryEach (seed : rest) config (f, n) =
      attempt stop program verdict config (f {foundSeed = seed}, n) >>= \case
        (Nothing, n') | n' > 0 -> tryEach rest config (f, n')
        done -> pure done
