{-# OPTIONS_HADDOCK not-home #-}

-- | Looking for a run that goes wrong, seed after seed or schedule after schedule; and making a
-- failure smaller.
--
-- See Note [Systematic exploration] and Note [Smaller].
module Weft.Sim.Internal.Search
  ( trySeeds,
    Bounds (..),
    defaultBounds,
    Exploration (..),
    exploreSchedules,
    shrinkFound,
    shrinkScript,
  )
where

import Control.Applicative ((<|>))
import Control.Exception (SomeException (..))
import Control.Monad ((>=>))
import Data.List (inits, sortOn, tails)
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Maybe (fromMaybe, isJust)
import Data.Typeable (TypeRep, typeOf)
import Weft.Internal.Core.Trace (Thread)
import Weft.Sim.Internal.Choices
import Weft.Sim.Internal.Conditions
import Weft.Sim.Internal.Config
import Weft.Sim.Internal.Driver.State
import Weft.Sim.Internal.Faults
import Weft.Sim.Internal.Random
import Weft.Sim.Internal.Run
import Weft.Sim.Internal.Verdict

-- | Run with one seed after the other, each with its own configuration, until a run goes wrong. The
-- action is told of every run.
trySeeds :: IO Bool -> (Seed -> IO Config) -> [Seed] -> (Seed -> Result a -> IO ()) -> Thread a -> Verdict a -> IO (Maybe (Found a))
trySeeds stop configure seeds told program verdict = go seeds
  where
    go [] = pure Nothing
    go (seed : rest) =
      stop >>= \case
        True -> pure Nothing
        False -> do
          config <- configure seed
          (result, _) <- runOnce stop Brief config seed program
          told seed result
          case verdict result of
            Just problem -> pure (Just (Found config seed problem result config))
            Nothing -> go rest

-- Note [Systematic exploration]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- A schedule is known by its deviations from the default. Running one tells all decisions; each
-- after the last deviation, with each option that was not taken, is a schedule that was not run. So
-- every schedule is run once, and what is to be done is a tree.
--
-- It is walked in the order of cost: an option that interrupts a thread which could go on costs 1,
-- others nothing (iterative context bounding, Musuvathi & Qadeer 2007). Most bugs need two
-- preemptions at most, and the first that is found has the fewest.
--
-- Within a cost the latest branch comes first, so that what is kept is as long as a run, times the
-- options.

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

-- | The result of an exploration.
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

exploreSchedules :: IO Bool -> Bounds -> Config -> Seed -> (a -> String) -> Thread a -> Verdict a -> IO (Exploration a)
exploreSchedules stop bounds config seed text program verdict = level 0 [([], 0)] (Exploration 0 True Map.empty 0 Nothing 0)
  where
    -- Schedules of one cost, and those found meanwhile that cost one more.
    level cost work seen
      | null work = pure seen
      | otherwise = do
          let dear = cost < boundPreemptions bounds
          (next, seen') <- walk dear work [] seen
          if dear && not (halted seen')
            then level (cost + 1 :: Int) next seen'
            else pure seen' {exploredAll = exploredAll seen' && null next}

    halted seen = exploredSchedules seen >= boundSchedules bounds || (isJust (exploredFound seen) && not (boundGoOn bounds))

    -- The flag: what costs more is wanted.
    walk _ [] later seen = pure (later, seen)
    walk dear (prefix : rest) later seen
      | halted seen = pure (later, seen {exploredAll = False})
      | otherwise =
          stop >>= \case
            True -> pure (later, seen {exploredAll = False, exploredSchedules = max (exploredSchedules seen) (boundSchedules bounds)})
            False -> do
              let scripted = config {configStrategy = Following (reverse (fst prefix))}
              (result, made) <- runOnce stop Branches scripted seed program
              let costing cost = further prefix (reverse (filter (cost . branchCost) made))
                  problem = verdict result
                  seen' =
                    seen
                      { exploredSchedules = exploredSchedules seen + 1,
                        exploredSteps = exploredSteps seen + resultSteps result,
                        exploredOutcomes = Map.insertWith (+) (outcomeText text result) 1 (exploredOutcomes seen),
                        exploredFailures = exploredFailures seen + length problem,
                        exploredFound = exploredFound seen <|> ((\p -> Found scripted seed p result config) <$> problem)
                      }
              walk dear (costing (== 0) <> rest) (if dear then costing (/= 0) <> later else later) seen'

-- | The deviations so far, latest first, and the decision from which on there may be more.
type Prefix = (Schedule, Int)

-- | The schedules with one deviation more, at one of these decisions. Lazy: they are as many as the
-- decisions, times their options.
further :: Prefix -> [Branch] -> [Prefix]
further (chosen, from) made =
  [(Deviation i o : chosen, i + 1) | Branch i options _ <- made, i >= from, o <- [1 .. options - 1]]

-- Note [Smaller]
-- ~~~~~~~~~~~~~~
-- A failure is made smaller in this order, each step within what is left of the budget of runs:
--
--   1. Faults are left out, with what mends them and then one by one (`shrinkScript`), and those
--      that are left come at rounder times (`rounded`).
--   2. The weather becomes calm, then one worker does, if that goes wrong in the same way.
--   3. The schedule is known now, and is followed. Deviations are left out, large parts first,
--      then one by one until none can be (delta debugging, Zeller & Hildebrandt 2002). A
--      deviation is known by the number of its decision, and there are more or fewer decisions
--      before it when an earlier deviation is gone: so the later ones are also tried some decisions
--      earlier and later (`closer`).
--   4. A schedule that is minimal in this sense need not be the smallest. All schedules with fewer
--      deviations are run, those with the fewest first, as far as whole numbers of deviations fit
--      into the budget (`fewer`).
--   5. The option chosen at a deviation becomes the first other option, if that will do.
--
-- Steps 1 and 2 change what follows, so some other seeds are tried there, too.

type Budgeted a = (Found a, Int)

-- | Run with this configuration and the failure's seed: the same failure, if it is one, the runs
-- that are left, and all decisions of the run, if they are wanted.
type Rerun a = Detail -> Config -> Budgeted a -> IO (Maybe (Found a), Int, [Branch])

attemptOf :: IO Bool -> Thread a -> Verdict a -> Rerun a
attemptOf stop program verdict detail config (found, left)
  | left <= 0 = pure (Nothing, 0, [])
  | otherwise =
      stop >>= \case
        True -> pure (Nothing, 0, [])
        False -> do
          (result, made) <- runOnce stop detail config (foundSeed found) program
          pure $ case verdict result of
            Just p | sameProblem found p result, not (resultDiverged result) -> (Just found {foundConfig = config, foundProblem = p, foundResult = result}, left - 1, made)
            _ -> (Nothing, left - 1, made)

-- | The first of these configurations, each with a seed, with which the run goes wrong in the same
-- way and is what is wanted.
firstOf :: Rerun a -> (Found a -> Bool) -> [(Seed, Config)] -> Budgeted a -> IO (Maybe (Found a), Int)
firstOf attempt wanted configs (found, left) = go configs left
  where
    go [] n = pure (Nothing, n)
    go ((seed, config) : rest) n =
      attempt Brief config (found {foundSeed = seed}, n) >>= \case
        (Just smaller, n', _) | wanted smaller -> pure (Just smaller, n')
        (_, n', _) -> if n' > 0 then go rest n' else pure (Nothing, n')

orKept :: Budgeted a -> (Maybe (Found a), Int) -> Budgeted a
orKept (found, _) (smaller, left) = (fromMaybe found smaller, left)

-- | See Note [Smaller]. At most this number of runs.
shrinkFound :: IO Bool -> Int -> Thread a -> Verdict a -> Found a -> IO (Found a)
shrinkFound stop budget program verdict given = do
  calmed <- shrinkScript stop budget program verdict given >>= calmer
  firstOf attempt (const True) [alike (fst calmed) (scheduleOf (fst calmed))] calmed >>= \case
    (Nothing, _) -> pure (fst calmed)
    (Just found, left) -> fst <$> (leavingOut (found, left) >>= closer >>= fewer attempt >>= firstOptions)
  where
    attempt = attemptOf stop program verdict
    alike found schedule = (foundSeed found, following schedule found)
    leavingOut = shrinkList attempt 0 following scheduleOf
    -- One of these, if it is simpler; then from there.
    simpler again state@(found, _) schedules =
      firstOf attempt ((< weight found) . weight) (map (alike found) schedules) state >>= \case
        (Nothing, left) -> pure (found, left)
        (Just smaller, left) -> again (smaller, left)
    weight found = (length (scheduleOf found), map deviationTo (scheduleOf found))

    calmer state = withConditions state >>= withWorkers
    withConditions state@(found, _)
      | configConditions (foundConfig found) == calm = pure state
      | otherwise = reseeded (foundConfig found) {configConditions = calm} state
    withWorkers state@(found, _)
      | configWorkers (foundConfig found) <= 1 = pure state
      | otherwise = reseeded (foundConfig found) {configWorkers = 1} state
    reseeded config state@(found, _) = orKept state <$> firstOf attempt (const True) (map (,config) (otherSeeds 3 found)) state

    closer state@(found, _)
      | length schedule > 12 = pure state
      | otherwise = simpler (leavingOut >=> closer) state [before <> map (moved shift) after | (before, _, after) <- splits schedule, not (null after), shift <- [-1, 1, -2, 2, -3, 3]]
      where
        schedule = scheduleOf found
        moved shift (Deviation i o) = Deviation (max 0 (i + shift)) o

    firstOptions state@(found, _) =
      simpler firstOptions state [before <> (Deviation i 1 : after) | (before, Deviation i o, after) <- splits (scheduleOf found), o > 1]

splits :: [x] -> [([x], x, [x])]
splits xs = [(before, x, after) | (before, x : after) <- zip (inits xs) (tails xs)]

following :: Schedule -> Found a -> Config
following schedule f = (foundConfig f) {configStrategy = Following schedule}

scheduleOf :: Found a -> Schedule
scheduleOf = resultSchedule . foundResult

otherSeeds :: Int -> Found a -> [Seed]
otherSeeds n f = foundSeed f : [foundSeed f + 1000003 * fromIntegral i | i <- [1 .. n]]

-- | Step 4. Schedules with one deviation more are only begun, and kept, if the budget is enough for
-- all of them: a run of 100,000 decisions has millions.
fewer :: Rerun a -> Budgeted a -> IO (Budgeted a)
fewer attempt (found, budget) = level (length (scheduleOf found)) [([], 0)] budget
  where
    -- How many numbers of deviations there are to try, and the schedules with the first of them.
    level numbers work left
      | numbers <= 0 || null work = pure (found, left)
      | otherwise =
          walk work (if numbers > 1 then Just (0, []) else Nothing) left >>= \case
            (Just smaller, _, left') -> pure (smaller, left')
            (Nothing, next, left') -> level (numbers - 1) (maybe [] (reverse . snd) next) left'
    -- The schedules with one deviation more, latest first, and how many; none if they are too many.
    walk [] next left = pure (Nothing, next, left)
    walk (prefix : rest) next left =
      attempt (if isJust next then Branches else Brief) (following (reverse (fst prefix)) found) (found, left) >>= \case
        (Nothing, left', made) | left' > 0 || null rest -> walk rest (next >>= fitting left' (further prefix made)) left'
        (hit, left', _) -> pure (hit, Nothing, left')
    fitting room new (n, later)
      | n + length few > room = Nothing
      | otherwise = Just (n + length few, reverse few <> later)
      where
        few = take (room + 1) new

-- | Step 1: faults with what mends them, then one by one, because a machine that does not start
-- again is a simpler world, too. The seed that is found counts from then on.
shrinkScript :: IO Bool -> Int -> Thread a -> Verdict a -> Found a -> IO (Budgeted a)
shrinkScript stop budget program verdict found =
  shrinkList attempt 5 (with . sortOn faultTime . concat) (withMendings . script) (found, budget)
    >>= shrinkList attempt 5 with script
    >>= rounded 0
  where
    attempt = attemptOf stop program verdict
    -- The fault with this index, and those after it, come at whole seconds if they can, or tenths.
    rounded i state@(f, _) = case splitAt i (script f) of
      (before, At t what : after) -> do
        let rounder = [t' | unit <- [1_000_000_000, 100_000_000, 10_000_000, 1_000_000], let t' = t - t `mod` unit, t' /= t, t' > 0]
            scripts = [sortOn faultTime (before <> (At t' what : after)) | t' <- rounder]
        firstOf attempt (const True) [(foundSeed f, with faults f) | faults <- scripts] state >>= rounded (i + 1) . orKept state
      _ -> pure state
    with faults f = (foundConfig f) {configFaults = faults}
    script = configFaults . foundConfig

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
-- time this number of other seeds is tried, too.
shrinkList :: Rerun a -> Int -> ([x] -> Found a -> Config) -> (Found a -> [x]) -> Budgeted a -> IO (Budgeted a)
shrinkList attempt others put get given = chunks (length (get (fst given))) given
  where
    chunks size state
      | size < 1 = pure state
      | otherwise = do
          (changed, state') <- pass size 0 False state
          if changed then chunks (min size (length (get (fst state')))) state' else chunks (size `div` 2) state'
    pass size from changed state@(f, left)
      | from >= length items || left <= 0 = pure (changed, state)
      | otherwise = do
          let shorter = put (take from items <> drop (from + size) items) f
          firstOf attempt (const True) (map (,shorter) (otherSeeds others f)) state >>= \case
            (Just smaller, left') | length (get smaller) < length items -> pass size from True (smaller, left')
            (_, left') -> pass size (from + size) changed (f, left')
      where
        items = get f
