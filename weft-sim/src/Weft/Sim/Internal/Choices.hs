{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The decisions of a simulated run. Wherever a run could go on in several ways there is a
-- /decision/: a number of options, of which the first is the default. A 'Chooser' decides by chance
-- or by a script; the decisions that were not for the first option are a 'Schedule', which repeats
-- the run.
module Weft.Sim.Internal.Choices
  ( Schedule,
    Deviation (..),
    Strategy (..),
    Chooser,
    newChooser,
    chooseThread,
    chooseWorld,
    deviations,
    decisions,
    branches,
    Branch (..),
    diverged,
  )
where

import Control.Monad (when)
import Control.Monad.Primitive (RealWorld)
import Data.Foldable (for_)
import Data.IORef
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.IntSet (IntSet)
import Data.IntSet qualified as IntSet
import Data.Primitive.MutVar
import Data.Primitive.PrimArray
import Data.Primitive.PrimVar
import Weft.Sim.Internal.Random

-- | At which decisions something else was chosen than the first option, in order.
type Schedule = [Deviation]

-- | At the decision with this index, counted from 0, this option was chosen.
data Deviation = Deviation {deviationAt :: !Int, deviationTo :: !Int}
  deriving stock (Eq, Ord)

-- | As @12:3@.
instance Show Deviation where
  showsPrec _ (Deviation i o) = shows i . showString ":" . shows o

instance Read Deviation where
  readsPrec p text = [(Deviation i o, rest') | (i, ':' : rest) <- readsPrec p text, (o, rest') <- readsPrec p rest]

-- | How to decide what runs next.
data Strategy
  = -- | The first option: a thread runs until it waits or yields, then the one that has
    -- been ready for longest.
    InOrder
  | -- | Any of the threads that are ready, each as likely; and a thread that could go on
    -- is interrupted, at each of its steps, with this probability.
    Uniformly !Double
  | -- | Threads have priorities, drawn when they are first seen, and the highest runs; at this number of
    -- steps, drawn from the first of the second number, the thread that runs gets the lowest, and after
    -- those now and then, so that none is left out for ever. Finds a bug that needs d
    -- orderings with a probability that has a lower bound (Burckhardt et al. 2010, "PCT"), if
    -- the second number is about how many decisions a run has ('Weft.Sim.resultDecisions'). With 0
    -- each seed draws its own guess, from 16 to 4,096, the smaller of two.
    ByPriority !Int !Int
  | -- | The thread that has made the fewest steps, so that all keep pace; and with this
    -- probability any. Finds what goes wrong when all are at the same place.
    Evenly !Double
  | -- | Each seed draws one of these: 'Uniformly' with 0.03, 0.1, 0.3 or 0.7; 'ByPriority' with two
    -- to seven orderings and 0; 'Evenly' with up to 0.2. No way is the best for all bugs.
    Mixed
  | -- | The options of a schedule, and the first at all other decisions.
    Following Schedule
  deriving stock (Eq, Show)

-- | A decision at which there was more than one option, as an exploration needs it.
data Branch = Branch
  { branchIndex :: !Int,
    branchOptions :: !Int,
    -- | Of an option but the first: 1 if it interrupts a thread that could go on or disturbs the
    -- world.
    branchCost :: !Int
  }

data Chooser = Chooser
  { chooserMind :: !Mind,
    chooserCount :: !(PrimVar RealWorld Int),
    chooserMade :: !(IORef [Deviation]),
    -- | Latest first; only if they are wanted.
    chooserBranches :: !(Maybe (IORef [Branch])),
    chooserDiverged :: !(IORef Bool)
  }

data Mind
  = First
  | Dice !Random !Double
  | Ranks !Random !Ranking
  | Paces !Random !Double !Pacing
  | Script !(IntMap Int)

data Ranking = Ranking
  { -- | By the number of the thread.
    rankingRanks :: !(MutVar RealWorld (MutablePrimArray RealWorld Int)),
    rankingLowest :: !(PrimVar RealWorld Int),
    rankingStep :: !(PrimVar RealWorld Int),
    -- | The steps at which to change priorities, and the end of those that they were drawn from.
    rankingPoints :: !IntSet,
    rankingPeriod :: !Int
  }

-- | How far each thread has come, in decisions for it, by its number.
data Pacing = Pacing
  { pacingSteps :: !(MutVar RealWorld (MutablePrimArray RealWorld Int)),
    -- | How far the thread was that was chosen last: a new thread begins there.
    pacingNow :: !(PrimVar RealWorld Int)
  }

-- | A chooser for one run. The flag: remember all branches.
newChooser :: Strategy -> Random -> Bool -> IO Chooser
newChooser strategy random wanted = do
  mind <- mindOf strategy
  Chooser mind <$> newPrimVar 0 <*> newIORef [] <*> (if wanted then Just <$> newIORef [] else pure Nothing) <*> newIORef False
  where
    mindOf = \case
      InOrder -> pure First
      Uniformly p -> pure (Dice random p)
      ByPriority depth 0 -> (min <$> below random 9 <*> below random 9) >>= mindOf . ByPriority depth . (2 ^) . (+ 4)
      ByPriority depth steps -> do
        points <- mapM (const (below random (max 1 steps))) [2 .. depth]
        ranks <- newPrimArray 0 >>= newMutVar
        Ranks random <$> (Ranking ranks <$> newPrimVar 0 <*> newPrimVar 0 <*> pure (IntSet.fromList points) <*> pure steps)
      Evenly p -> Paces random p <$> (Pacing <$> (newPrimArray 0 >>= newMutVar) <*> newPrimVar 0)
      Mixed ->
        below random 8 >>= \case
          0 -> mindOf (Uniformly 0.03)
          1 -> mindOf (Uniformly 0.1)
          2 -> mindOf (Uniformly 0.3)
          3 -> mindOf (Uniformly 0.3)
          4 -> mindOf (Uniformly 0.7)
          5 -> below random 5 >>= mindOf . Evenly . (/ 20) . fromIntegral
          _ -> below random 6 >>= \d -> mindOf (ByPriority (d + 2) 0)
      Following schedule -> pure (Script (IntMap.fromList [(i, o) | Deviation i o <- schedule]))

-- | Decide which of the threads runs: the number of options (more than one), whether the first is
-- the thread that runs already, and the thread of each option (below 0 for a message).
chooseThread :: Chooser -> Bool -> Int -> (Int -> IO Int) -> IO Int
chooseThread chooser goesOn options thread = do
  choice <- case chooserMind chooser of
    First -> pure 0
    Dice random p
      | goesOn -> chance random p >>= \out -> if out then below random options else pure 0
      | otherwise -> below random options
    Ranks random ranking -> ranked random ranking goesOn options thread
    Paces random p pacing -> paced random p pacing options thread
    Script script -> scripted chooser script options
  choice <$ made chooser (if goesOn then 1 else 0) options choice
{-# INLINEABLE chooseThread #-}

-- | Decide something else: by the given dice, where dice decide.
chooseWorld :: Chooser -> Int -> IO Int -> IO Int
chooseWorld chooser options dice = do
  choice <- case chooserMind chooser of
    Script script -> scripted chooser script options
    _ -> dice
  choice <$ made chooser 1 options choice

scripted :: Chooser -> IntMap Int -> Int -> IO Int
scripted chooser script options = do
  i <- readPrimVar (chooserCount chooser)
  case IntMap.lookup i script of
    Nothing -> pure 0
    Just o
      | o >= 0, o < options -> pure o
      | otherwise -> 0 <$ writeIORef (chooserDiverged chooser) True

-- | The one with the highest priority. At the chosen steps and, after those, now and then, the
-- thread that has run gets the lowest: one that never waits would be the only one that ever runs.
ranked :: Random -> Ranking -> Bool -> Int -> (Int -> IO Int) -> IO Int
ranked random ranking goesOn options thread = do
  step <- readPrimVar (rankingStep ranking)
  writePrimVar (rankingStep ranking) (step + 1)
  if goesOn && IntSet.member step (rankingPoints ranking)
    then thread 0 >>= demote
    else when (step > rankingPeriod ranking && step `rem` 16 == 0) $ best >>= thread >>= demote
  best
  where
    best = go 0 0 minBound
    go :: Int -> Int -> Int -> IO Int
    go i first highest
      | i == options = pure first
      | otherwise = do
          t <- thread i
          -- A message is always the highest.
          rank <- if t < 0 then pure maxBound else rankOf random ranking t
          if rank > highest then go (i + 1) i rank else go (i + 1) first highest
    demote t = when (t >= 0) $ do
      lowest <- subtract 1 <$> readPrimVar (rankingLowest ranking)
      writePrimVar (rankingLowest ranking) lowest
      _ <- rankOf random ranking t
      ranks <- readMutVar (rankingRanks ranking)
      writePrimArray ranks t lowest

-- | The priority of a thread, which is drawn when it is first asked for.
rankOf :: Random -> Ranking -> Int -> IO Int
rankOf random ranking = entryOf (rankingRanks ranking) (below random 1_000_000)

-- | The entry of a thread; at first from the action.
entryOf :: MutVar RealWorld (MutablePrimArray RealWorld Int) -> IO Int -> Int -> IO Int
entryOf table begin t = do
  known <- readMutVar table
  size <- getSizeofMutablePrimArray known
  if t >= size
    then do
      larger <- newPrimArray (2 * (t + 1))
      setPrimArray larger 0 (2 * (t + 1)) unknown
      copyMutablePrimArray larger 0 known 0 size
      writeMutVar table larger
      entryOf table begin t
    else do
      entry <- readPrimArray known t
      if entry /= unknown
        then pure entry
        else do
          new <- begin
          new <$ writePrimArray known t new
  where
    unknown = minBound
{-# INLINEABLE entryOf #-}

-- | The thread that has made the fewest steps; of several, any. Messages come first. A thread that
-- has waited is not late: it goes on from where the others are.
paced :: Random -> Double -> Pacing -> Int -> (Int -> IO Int) -> IO Int
paced random p pacing options thread = do
  any' <- chance random p
  choice <- if any' then below random options else slowest 0 0 (0 :: Int) maxBound
  t <- thread choice
  choice <$ when (t >= 0) (stepped t)
  where
    stepped t = do
      steps <- max <$> readPrimVar (pacingNow pacing) <*> paceOf t
      writePrimVar (pacingNow pacing) steps
      table <- readMutVar (pacingSteps pacing)
      writePrimArray table t (steps + 1)
    paceOf = entryOf (pacingSteps pacing) (readPrimVar (pacingNow pacing))
    slowest i best alike fewest
      | i == options = pure best
      | otherwise = do
          t <- thread i
          steps <- if t < 0 then pure minBound else paceOf t
          case compare steps fewest of
            LT -> slowest (i + 1) i 1 steps
            GT -> slowest (i + 1) best alike fewest
            -- Each of those that are alike is as likely.
            EQ -> below random (alike + 1) >>= \d -> slowest (i + 1) (if d == 0 then i else best) (alike + 1) fewest

made :: Chooser -> Int -> Int -> Int -> IO ()
made chooser cost options choice = do
  i <- readPrimVar (chooserCount chooser)
  writePrimVar (chooserCount chooser) (i + 1)
  when (choice /= 0) $ modifyIORef' (chooserMade chooser) (Deviation i choice :)
  for_ (chooserBranches chooser) $ \ref -> modifyIORef' ref (Branch i options cost :)

deviations :: Chooser -> IO Schedule
deviations chooser = reverse <$> readIORef (chooserMade chooser)

decisions :: Chooser -> IO Int
decisions = readPrimVar . chooserCount

-- | All decisions, oldest first, if they were wanted.
branches :: Chooser -> IO [Branch]
branches chooser = maybe (pure []) (fmap reverse . readIORef) (chooserBranches chooser)

-- | Did a script ask for an option that was not there? Then it is not this program's, or that is no
-- function of its seed.
diverged :: Chooser -> IO Bool
diverged = readIORef . chooserDiverged
