{-# OPTIONS_HADDOCK not-home #-}

-- | Accesses that nothing orders. A detector of data races by vector clocks (Fidge 1988, Mattern
-- 1989; as FastTrack and ThreadSanitizer use them). It is told what each step of a run does and
-- reports two accesses to one variable, at least one of them a write, that nothing orders.
--
-- Order comes from forking; waking a thread; an operation on an object that synchronizes (a mutex,
-- a channel, ...), with all earlier ones on it; system calls, all with each other. That is more
-- than a processor guarantees, never less: a report is no false alarm, and a race that is ordered
-- by accident in one run shows in another. Atomic variables and locks of GHC's own inside
-- 'Weft.liftIO' are not seen.
module Weft.Sim.Internal.Race
  ( Detector,
    newDetector,

    -- * What happens
    accessed,
    touched,
    Object (..),
    woken,
    clockOf,
    joined,
    ended,
    Clock,
    gaveUp,

    -- * What was found
    Race (..),
    Place (..),
    races,
  )
where

import Control.Monad (when)
import Data.Function (on)
import Data.IORef
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Text (Text)
import Weft.Internal.Core.Trace (Access (..), AccessKind (..))

-- | By thread, how many of its steps are known to be over. Only for threads that have had an access
-- to a variable, so that a clock is small where many threads come and go.
type Clock = IntMap Int

-- | An object that orders the threads that use it.
data Object
  = -- | With a number of the run.
    Numbered !Int
  | -- | The library's own bookkeeping.
    Library
  | TheWorld
  | Transactions
  deriving stock (Eq, Ord)

-- | An access in a run.
data Place = Place
  { -- | The number of the thread.
    placeThread :: !Int,
    -- | Whether it read, wrote, or did both in one step.
    placeKind :: !AccessKind,
    -- | Where in the program, as @file:line:column@; empty if that is not known.
    placeWhere :: String,
    -- | At which step of the run.
    placeStep :: !Int
  }
  deriving stock (Eq, Show)

-- | Two accesses to one variable that nothing orders, the earlier one first.
data Race = Race
  { -- | The number of the variable.
    raceVariable :: !Int,
    -- | Its name ('Weft.Ref.newRefNamed'), or empty.
    raceName :: !Text,
    -- | The two, the earlier one first.
    raceFirst, raceSecond :: !Place
  }
  deriving stock (Eq, Show)

-- Note [A detector that sleeps]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- Clocks cost as much as the square of the number of threads. So nothing is noted before the first
-- access to a variable: an order that matters is made of steps after it. And where there are more
-- threads than `manyThreads` the detector goes to sleep for good, and says so.

data Wakefulness = Dozing | Awake | Asleep
  deriving stock (Eq)

manyThreads :: Int
manyThreads = 1000

data Detector = Detector
  { wakefulness :: !(IORef Wakefulness),
    clocks :: !(IORef (IntMap Clock)),
    objects :: !(IORef (Map Object Clock)),
    -- | The knowledge of objects that are not kept any more: see 'manyThings'.
    forgotten :: !(IORef Clock),
    -- | By variable: the last writes and the reads since, each with its thread's own time.
    variables :: !(IORef (IntMap [(Place, Int)])),
    found :: !(IORef [Race])
  }

newDetector :: IO Detector
newDetector = Detector <$> newIORef Dozing <*> newIORef IntMap.empty <*> newIORef Map.empty <*> newIORef IntMap.empty <*> newIORef IntMap.empty <*> newIORef []

clockOf :: Detector -> Int -> IO Clock
clockOf d t = IntMap.findWithDefault IntMap.empty t <$> readIORef (clocks d)

setClock :: Detector -> Int -> Clock -> IO ()
setClock d t c = do
  known <- IntMap.insert t c <$> readIORef (clocks d)
  if IntMap.size known > manyThreads
    then do
      writeIORef (wakefulness d) Asleep
      writeIORef (clocks d) IntMap.empty
      writeIORef (objects d) Map.empty
      writeIORef (variables d) IntMap.empty
    else writeIORef (clocks d) known

watching :: Detector -> IO () -> IO ()
watching d act = readIORef (wakefulness d) >>= \w -> when (w == Awake) act

gaveUp :: Detector -> IO Bool
gaveUp d = (== Asleep) <$> readIORef (wakefulness d)

tick :: Int -> Clock -> Clock
tick = IntMap.adjust (+ 1)

both :: Clock -> Clock -> Clock
both = IntMap.unionWith max

joined :: Detector -> Int -> Clock -> IO ()
joined d t c = watching d (clockOf d t >>= setClock d t . both c)

touched :: Detector -> Int -> Object -> IO ()
touched d t o = watching d $ do
  mine <- clockOf d t
  there <- objectClock d o
  let c = both mine there
  setObject d o c
  setClock d t (tick t c)

objectClock :: Detector -> Object -> IO Clock
objectClock d o = do
  known <- readIORef (objects d)
  maybe (readIORef (forgotten d)) pure (Map.lookup o known)

-- | Only this number of the youngest variables and objects are kept, so that the memory is bounded.
-- A race on an old variable may be missed, and one behind an old object hidden; no alarm is false.
manyThings :: Int
manyThings = 10_000

setObject :: Detector -> Object -> Clock -> IO ()
setObject d o c = do
  known <- Map.insert o c <$> readIORef (objects d)
  if Map.size known <= manyThings
    then writeIORef (objects d) known
    else do
      let (old, kept) = Map.partitionWithKey (\object _ -> object /= o && isNumbered object) known
      modifyIORef' (forgotten d) (\before -> Map.foldl' both before old)
      writeIORef (objects d) kept
  where
    isNumbered = \case
      Numbered _ -> True
      _ -> False

-- | A thread has ended: no thread learns from it any more.
ended :: Detector -> Int -> IO ()
ended d t = watching d (modifyIORef' (clocks d) (IntMap.delete t))

woken :: Detector -> Int -> Int -> IO ()
woken d t u
  | t == u = pure ()
  | otherwise = watching d $ do
      mine <- clockOf d t
      joined d u mine
      setClock d t (tick t mine)

accessed :: Detector -> Int -> Access -> Int -> String -> IO ()
accessed d t access step place = do
  modifyIORef' (wakefulness d) (\case Dozing -> Awake; w -> w)
  watching d (noted d t access step place)

noted :: Detector -> Int -> Access -> Int -> String -> IO ()
noted d t access step place = do
  joined d t (IntMap.singleton t 1)
  -- One that modifies in one step orders, like an object: it learns what is known there, ...
  let object = Numbered (accessVariable access)
  when modifies $ objectClock d object >>= joined d t
  mine <- clockOf d t
  known <- IntMap.findWithDefault [] (accessVariable access) <$> readIORef (variables d)
  let me = Place t (accessKind access) place step
      now = IntMap.findWithDefault 0 t mine
      ordered (p, time) = placeThread p == t || time <= IntMap.findWithDefault 0 (placeThread p) mine
      conflicting (p, _) = case (placeKind p, accessKind access) of
        (Reads, Reads) -> False
        (Modifies, Modifies) -> False
        -- Reading beside one that modifies is a race: the value read may be old.
        _ -> True
      racing = [p | entry@(p, _) <- known, conflicting entry, not (ordered entry)]
      -- An access that is ordered before this one need not be kept.
      kept = case accessKind access of
        Reads -> [e | e@(p, _) <- known, not (placeThread p == t && placeKind p == Reads)]
        _ -> [e | e <- known, not (ordered e)]
  modifyIORef' (variables d) (atMost manyThings . IntMap.insert (accessVariable access) ((me, now) : kept))
  modifyIORef' (found d) (\before -> foldl (flip (add me)) before racing)
  -- ... and tells there of itself.
  when modifies $ touched d t object
  where
    modifies = case accessKind access of
      Modifies -> True
      _ -> False
    atMost n m = if IntMap.size m > n then IntMap.deleteMin m else m
    -- Each pair of places is told once, and no more of them than a reader can use.
    add me p before
      | length before >= 100 = before
      | any (((==) `on` shape) (Race (accessVariable access) (accessName access) p me)) before = before
      | otherwise = Race (accessVariable access) (accessName access) p me : before
    shape r = (raceVariable r, placeWhere (raceFirst r), placeWhere (raceSecond r))

races :: Detector -> IO [Race]
races d = reverse <$> readIORef (found d)
