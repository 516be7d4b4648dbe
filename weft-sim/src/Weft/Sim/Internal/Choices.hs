{-# OPTIONS_GHC -O2 #-}

-- |
-- Description : Who decides what runs next, and how
-- Stability   : not home
--
-- Wherever a simulated run could go on in several ways there is a /decision/: a number of
-- options, of which the first is what happens if nobody cares. A 'Chooser' decides by
-- chance or by a script, and keeps what it has decided, so that every run can be repeated: a
-- 'Schedule' is the list of decisions that were not for the first option.
module Weft.Sim.Internal.Choices
  ( -- * Schedules
    Schedule,
    Deviation (..),

    -- * Strategies
    Strategy (..),

    -- * Choosers
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
import Data.IORef
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.IntSet (IntSet)
import Data.IntSet qualified as IntSet
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
  | -- | Threads have priorities, drawn when they are first seen, and the highest runs; at so many
    -- steps, drawn from the first so many, the thread that runs gets the lowest, and later
    -- once in so many steps, so that nobody is left out for ever. Finds a bug that needs d
    -- orderings with a probability that has a lower bound (Burckhardt et al. 2010, "PCT").
    ByPriority !Int !Int
  | -- | The options of a schedule, and the first at all other decisions.
    Following Schedule
  deriving stock (Eq, Show)

-- | A decision at which there was more than one option, as an exploration needs it.
data Branch = Branch
  { branchIndex :: !Int,
    branchOptions :: !Int,
    -- | What an option other than the first costs: 1 if it interrupts a thread that could go on
    -- or disturbs the world, else 0.
    branchCost :: !Int
  }

-- | Decides, and remembers.
data Chooser = Chooser
  { chooserMind :: !Mind,
    chooserCount :: !(PrimVar RealWorld Int),
    chooserMade :: !(IORef [Deviation]),
    -- | Latest first; only if somebody wants them.
    chooserBranches :: !(Maybe (IORef [Branch])),
    chooserDiverged :: !(IORef Bool)
  }

data Mind
  = First
  | Dice !Random !Double
  | -- | With the number of steps after which whoever runs makes room for others.
    Ranks !Random !Int !(IORef Ranking)
  | Script !(IntMap Int)

-- | Who has which priority, the lowest that was given, the steps at which to change, and how many
-- steps there were.
data Ranking = Ranking !(IntMap Int) !Int !IntSet !Int

-- | A chooser for one run. The flag: remember all branches.
newChooser :: Strategy -> Random -> Bool -> IO Chooser
newChooser strategy random wanted = do
  mind <- case strategy of
    InOrder -> pure First
    Uniformly p -> pure (Dice random p)
    ByPriority depth steps -> do
      points <- mapM (const (below random (max 1 steps))) [2 .. depth]
      Ranks random (max 1 steps) <$> newIORef (Ranking IntMap.empty 0 (IntSet.fromList points) 0)
    Following schedule -> pure (Script (IntMap.fromList [(i, o) | Deviation i o <- schedule]))
  Chooser mind <$> newPrimVar 0 <*> newIORef [] <*> (if wanted then Just <$> newIORef [] else pure Nothing) <*> newIORef False

-- | Decide which of the threads runs: so many options (more than one), whether the first is
-- the thread that runs already, and the thread of each option (below 0 for a message).
chooseThread :: Chooser -> Bool -> Int -> (Int -> IO Int) -> IO Int
chooseThread chooser goesOn options thread = do
  choice <- case chooserMind chooser of
    First -> pure 0
    Dice random p
      | goesOn -> chance random p >>= \out -> if out then below random options else pure 0
      | otherwise -> below random options
    Ranks random period ref -> ranked random period ref goesOn options thread
    Script script -> scripted chooser script options
  choice <$ made chooser (if goesOn then 1 else 0) options choice
{-# INLINEABLE chooseThread #-}

-- | Decide something else that may happen in several ways: by the given dice, where dice
-- decide.
chooseWorld :: Chooser -> Int -> IO Int -> IO Int
chooseWorld chooser options dice = case chooserMind chooser of
  Script script -> do
    choice <- scripted chooser script options
    choice <$ made chooser 1 options choice
  _ -> do
    choice <- dice
    choice <$ made chooser 1 options choice

scripted :: Chooser -> IntMap Int -> Int -> IO Int
scripted chooser script options = do
  i <- readPrimVar (chooserCount chooser)
  case IntMap.lookup i script of
    Nothing -> pure 0
    Just o
      | o < options -> pure o
      | otherwise -> 0 <$ writeIORef (chooserDiverged chooser) True

-- | The one with the highest priority. Once in a period that gets the lowest, or a thread
-- that never waits would be the only one that ever runs.
ranked :: Random -> Int -> IORef Ranking -> Bool -> Int -> (Int -> IO Int) -> IO Int
ranked random period ref goesOn options thread = do
  Ranking known lowest points step <- readIORef ref
  threads <- mapM thread [0 .. options - 1]
  let rank ranks t
        | t < 0 = pure ranks -- A message: always the highest.
        | IntMap.member t ranks = pure ranks
        | otherwise = below random 1_000_000 >>= \r -> pure (IntMap.insert t r ranks)
      go ranks [] = pure ranks
      go ranks (t : rest) = rank ranks t >>= \ranks' -> go ranks' rest
  all' <- go known threads
  let bestOf ranks = negate (snd (maximum [(rankOf ranks t, negate i) | (i, t) <- zip [0 ..] threads]))
      rankOf ranks t = if t < 0 then maxBound else IntMap.findWithDefault 0 t ranks
      changed = case threads of
        t : _ | goesOn, IntSet.member step points -> Just t
        _ | step > 0, step `rem` period == 0, t <- threads !! bestOf all', t >= 0 -> Just t
        _ -> Nothing
      ranks' = maybe all' (\t -> IntMap.insert t (lowest - 1) all') changed
  writeIORef ref (Ranking ranks' (maybe lowest (const (lowest - 1)) changed) points (step + 1))
  pure (bestOf ranks')

made :: Chooser -> Int -> Int -> Int -> IO ()
made chooser cost options choice = do
  i <- readPrimVar (chooserCount chooser)
  writePrimVar (chooserCount chooser) (i + 1)
  when (choice /= 0) $ modifyIORef' (chooserMade chooser) (Deviation i choice :)
  case chooserBranches chooser of
    Nothing -> pure ()
    Just ref -> modifyIORef' ref (Branch i options cost :)
{-# INLINE made #-}

-- | What was chosen, so far.
deviations :: Chooser -> IO Schedule
deviations chooser = reverse <$> readIORef (chooserMade chooser)

-- | How many decisions there were.
decisions :: Chooser -> IO Int
decisions = readPrimVar . chooserCount

-- | All decisions, the first first, if they were wanted.
branches :: Chooser -> IO [Branch]
branches chooser = maybe (pure []) (fmap reverse . readIORef) (chooserBranches chooser)

-- | Did a script ask for an option that was not there? Then the program is not the one
-- the script was written for, or not a function of its seed.
diverged :: Chooser -> IO Bool
diverged = readIORef . chooserDiverged
