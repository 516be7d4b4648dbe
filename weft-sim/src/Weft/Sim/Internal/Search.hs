-- |
-- Description : Looking for a run that goes wrong
-- Stability   : not home
--
-- By chance, seed after seed, and systematically, schedule after schedule; and making a failure
-- smaller once it was found.
--
-- See Note [Systematic exploration] and Note [Smaller].
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
import Weft.Sim.Internal.Conditions
import Weft.Sim.Internal.Faults
import Weft.Sim.Internal.Random
import Weft.Sim.Internal.Run
import Weft.Sim.Internal.Verdict

-- | A run that went wrong: what with, and how.
data Found a = Found
  { -- | The configuration of the run.
    foundConfig :: Config,
    foundSeed :: Seed,
    foundProblem :: Problem,
    foundResult :: Result a,
    -- | The configuration that was searched with, before anything was made smaller.
    foundGiven :: Config
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
            Just problem -> pure (Just (Found config seed problem result config))
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
                  scripted = config {configStrategy = Following schedule}
              (result, made) <- runOnce stop branching scripted seed program
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
                          Nothing | Just p <- problem -> Just (Found scripted seed p result config)
                          other -> other
                      }
              walk dear (same <> rest) (if dear then dearer <> later else later) seen'

    branch reversed (same, dearer) b =
      let new = [(Deviation (branchIndex b) o : reversed, branchIndex b + 1) | o <- [1 .. branchOptions b - 1]]
       in if branchCost b == 0 then (new <> same, dearer) else (same, new <> dearer)

-- Note [Smaller]
-- ~~~~~~~~~~~~~~
-- A failure is made smaller in this order, each step within what is left of the budget of runs:
--
--   1. Faults are left out, with what mends them and then one by one (`shrinkScript`), and those
--      that are left come at rounder times (`earlier`).
--   2. The weather becomes calm, then one worker does, if that goes wrong in the same way.
--   3. The schedule is known now, and is followed. Deviations are left out, large parts first,
--      then one by one until none can be (delta debugging, Zeller & Hildebrandt 2002). A
--      deviation is known by the number of its decision, and there are more or fewer decisions
--      before it when an earlier deviation is gone: so the later ones are also tried some decisions
--      earlier and later (`closer`).
--   4. What is minimal in this sense need not be the smallest. All schedules with fewer
--      deviations are run, those with the fewest first, as far as whole numbers of deviations fit
--      into the budget (`fewer`).
--   5. What is chosen at a deviation becomes the first other option, if that will do.
--
-- Steps 1 and 2 change what follows, so some other seeds are tried there, too.

-- | Make a failure smaller, for at most so many runs, with the same kind of problem: Note [Smaller].
shrinkFound :: IO Bool -> Int -> Thread a -> Verdict a -> Found a -> IO (Found a)
shrinkFound stop budget program verdict found0 = do
  simpler <- shrinkScript stop budget program verdict found0 >>= calmer
  let (found1, left) = simpler
  -- What was decided is known: follow that.
  (again, left') <- attempt stop program verdict (following (resultSchedule (foundResult found1)) found1) (found1, left)
  case again of
    Nothing -> pure found1
    Just found2 ->
      fst <$> (shrinkList stop program verdict 0 following scheduleOf (found2, left') >>= closer >>= fewer stop program verdict >>= firstOptions)
  where
    try' config state = do
      (found, left) <- attempt stop program verdict config state
      pure (maybe (False, (fst state, left)) (\f -> (True, (f, left))) found)
    -- The first of these that goes wrong in the same way and has fewer deviations.
    firstOf [] state = pure (False, state)
    firstOf (config : rest) state@(f, left)
      | left <= 0 = pure (False, state)
      | otherwise =
          try' config state >>= \case
            (True, (f', left')) | simplerThan f' f -> pure (True, (f', left'))
            (_, (_, left')) -> firstOf rest (f, left')
    simplerThan f g = let (a, b) = (scheduleOf f, scheduleOf g) in (length a, map deviationTo a) < (length b, map deviationTo b)

    calmer state@(f, left)
      | left <= 0 = pure state
      | otherwise = do
          let config = foundConfig f
          state' <- if configConditions config == calm then pure state else reseeded config {configConditions = calm} state
          let config' = foundConfig (fst state')
          if configWorkers config' <= 1 then pure state' else reseeded config' {configWorkers = 1} state'
    reseeded config (f, left) = go (otherSeeds 3 f) left
      where
        go [] n = pure (f, n)
        go (seed : rest) n =
          attempt stop program verdict config (f {foundSeed = seed}, n) >>= \case
            (Just found, n') -> pure (found, n')
            (Nothing, n') -> go rest n'

    closer state@(f, left)
      | length schedule > 12 || left <= 0 = pure state
      | otherwise = do
          (changed, state') <- firstOf [following (before <> map (moved shift) after) f | (before, after) <- without, shift <- [-1, 1, -2, 2, -3, 3]] state
          if changed then shrinkList stop program verdict 0 following scheduleOf state' >>= closer else pure state'
      where
        schedule = scheduleOf f
        without = [(take i schedule, drop (i + 1) schedule) | i <- [0 .. length schedule - 2]]
        moved shift (Deviation i o) = Deviation (max 0 (i + shift)) o

    firstOptions state@(f, _) = do
      let schedule = scheduleOf f
      (changed, state') <- firstOf [following (take i schedule <> [Deviation at' o'] <> drop (i + 1) schedule) f | (i, Deviation at' o) <- zip [0 ..] schedule, o' <- take 1 [1 .. o - 1]] state
      if changed then firstOptions state' else pure state'

-- | A failure that goes on by this schedule.
following :: Schedule -> Found a -> Config
following schedule f = (foundConfig f) {configStrategy = Following schedule}

scheduleOf :: Found a -> Schedule
scheduleOf = resultSchedule . foundResult

-- | Its seed, and so many others.
otherSeeds :: Int -> Found a -> [Seed]
otherSeeds n f = foundSeed f : [foundSeed f + 1000003 * fromIntegral i | i <- [1 .. n]]

-- | The first failure of the same kind among all schedules with fewer deviations. Those with one
-- more are only begun if, by what was seen of those with one, the budget is enough for all of them.
fewer :: IO Bool -> Thread a -> Verdict a -> (Found a, Int) -> IO (Found a, Int)
fewer stop program verdict (found, budget)
  | wanted <= 0 = pure (found, budget)
  | otherwise = level 0 1 [([], 0)] budget
  where
    wanted = length (scheduleOf found)
    level n ways work left
      | n >= wanted || null work || length work > left = pure (found, left)
      | otherwise = do
          (hit, next, left') <- walk work [] left
          case hit of
            Just smaller -> pure (smaller, left')
            Nothing
              -- So many of the next number of deviations; each of them has about as many ways on.
              | length next * (if n == 0 then 1 else ways) > left' * (if n == 0 then 1 else ways) -> pure (found, left')
              | otherwise -> level (n + 1 :: Int) (length next) next left'
    walk [] later left = pure (Nothing, reverse later, left)
    walk ((reversed, from) : rest) later left
      | left <= 0 = pure (Nothing, [], 0)
      | otherwise = do
          over <- stop
          (result, made) <- runOnce stop branching (following (reverse reversed) found) (foundSeed found) program
          case verdict result of
            _ | over -> pure (Nothing, [], 0)
            Just p | sameProblem found p result, not (resultDiverged result) -> pure (Just (found {foundConfig = following (reverse reversed) found, foundProblem = p, foundResult = result}), [], left - 1)
            _ ->
              let more = [(Deviation (branchIndex b) o : reversed, branchIndex b + 1) | b <- made, branchIndex b >= from, o <- [1 .. branchOptions b - 1]]
               in walk rest (reverse more <> later) (left - 1)

-- | Fewer faults; and how many runs are left. First faults with what mends them, then one by
-- one: a machine that does not start again is a simpler world, too. With a fault less everything after it
-- happens at other times, and what went wrong may just not happen: so a few other seeds are tried,
-- too, and the one that is found counts from then on.
shrinkScript :: IO Bool -> Int -> Thread a -> Verdict a -> Found a -> IO (Found a, Int)
shrinkScript stop budget program verdict found =
  shrinkList stop program verdict 5 (with . sortOn faultTime . concat) (withMendings . script) (found, budget)
    >>= shrinkList stop program verdict 5 with script
    >>= rounded 0
  where
    -- The fault with this index, and those after it, come at whole seconds if they can, or tenths.
    rounded i state@(f, left) = case drop i (script f) of
      At t _ : _
        | left > 0 -> go [t' | unit <- [1_000_000_000, 100_000_000, 10_000_000, 1_000_000], let { t' = t - t `mod` unit }, t' /= t, t' > 0] (f, left) >>= rounded (i + 1)
      _ -> pure state
      where
        go [] s = pure s
        go (t : rest) s@(f', _) =
          attempt stop program verdict (with (sortOn faultTime [if j == i then At t what else fault | (j, fault@(At _ what)) <- zip [0 ..] (script f')]) f') s >>= \case
            (Just smaller, n) -> pure (smaller, n)
            (Nothing, n) -> go rest (f', n)
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
            Just p | sameProblem found p result, not (resultDiverged result) -> (Just found {foundConfig = config, foundProblem = p, foundResult = result}, left - 1)
            _ -> (Nothing, left - 1)

-- | Is this the problem that was found?
sameProblem :: Found a -> Problem -> Result a -> Bool
sameProblem found p result =
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
          (result, n') <- tryEach (otherSeeds others f) (put shorter f) (f, n)
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
