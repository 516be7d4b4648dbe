-- |
-- Description : Cancellations and time limits as faults
-- Stability   : not home
--
-- What a program's author lets be interrupted at any step, though nobody in the program asks
-- for it, and what is kept of that during a run. The driver asks at each system call of a
-- thread, before it and when it waits; the chooser decides, so that an interruption is a
-- deviation like any other: replayed, explored and left out again.
--
-- See Note [Interruptions].
module Weft.Sim.Internal.Interrupts
  ( Interruptible (..),
    Interrupts,
    newInterrupts,
    Strike (..),
    strikesAt,
    decideStrike,
    ambush,
    passed,
    nextAmbush,
    struck,
    interruptions,
  )
where

import Control.Exception (toException)
import Control.Monad (filterM, unless, when)
import Control.Monad.Primitive (RealWorld)
import Data.ByteString.Short (toShort)
import Data.IORef
import Data.IntMap.Strict qualified as IntMap
import Data.Primitive.PrimVar
import Data.Text (Text)
import Data.Text.Encoding (encodeUtf8)
import Weft.Internal.Cancel
import Weft.Internal.Trace
import Weft.Sim.Internal.Choices
import Weft.Sim.Internal.Kernel
import Weft.Sim.Internal.Random
import Weft.Sim.Internal.Timeline

-- Note [Interruptions]
-- ~~~~~~~~~~~~~~~~~~~~
-- Where a thread could be interrupted is where it makes a system call. There are three moments,
-- and what comes of them differs:
--
--   * before the call, if the thread is not masked: nothing of it happens;
--   * when it has begun to wait, at once: what the call did before it waited has happened (a
--     condition has let go of its mutex), and nobody else has noticed that it waits;
--   * while it waits, when nothing else can run: the others have got as far as they can
--     without it, and may wait behind it. If the wait ends before that, nothing happens.
--
-- A moment after the wait, when the thread has its answer and has not gone on, is the first of
-- these at its next call.
--
-- A cancellation is sent as by another thread of its worker. A time limit expires early: the
-- sleep of its alarm ('Weft.Timeout.timeout') ends, and the alarm is run to its end, so that
-- nothing comes between.

-- | What may be interrupted by chance. The main thread is never cancelled; its time limits may
-- expire.
data Interruptible
  = -- | Threads with this label are cancelled. Children have the label of their parent unless they
    -- get one of their own: so all those of a scope, for example, whose owner is called so.
    ThreadsLabelled !Text
  | -- | Every thread but the main one is cancelled.
    AllThreads
  | -- | Each 'Weft.Timeout.timeout' may expire before its time. The clock does not move for it.
    TimeLimits
  deriving stock (Eq, Show)

-- | What is known of a run's interruptions.
data Interrupts = Interrupts
  { interruptsWhom :: [Interruptible],
    interruptsLabels :: [Label],
    -- | How many more there may be.
    interruptsLeft :: !(PrimVar RealWorld Int),
    interruptsRandom :: !Random,
    -- | How likely each opportunity is taken, where dice decide.
    interruptsRate :: !Double,
    -- | Threads to be interrupted when nothing can run, if they still wait: by number.
    interruptsAmbushes :: !(IORef [(Int, IO ())]),
    -- | What was interrupted, latest first.
    interruptsMade :: !(IORef [Moment])
  }

-- | For one run: what may be interrupted, and how many times. How often it is depends on
-- how long the run is, which nobody knows: so each run draws a rate, between one in two and one in
-- 256, the larger of two.
newInterrupts :: [Interruptible] -> Int -> Random -> IO Interrupts
newInterrupts whom most random = do
  left <- newPrimVar most
  rate <- min <$> below random 8 <*> below random 8
  Interrupts whom [toShort (encodeUtf8 l) | ThreadsLabelled l <- whom] left random (0.5 ^ (rate + 1))
    <$> newIORef []
    <*> newIORef []

-- | A way to interrupt a thread.
data Strike = Strike
  { -- | What it is, for the report.
    strikeWhat :: String,
    -- | Do it; a thread that must then run to its end before anything else, if there is one.
    strikeNow :: IO (Maybe Int)
  }

-- | All ways in which this thread, which lives there, may be interrupted now.
strikesAt :: Interrupts -> Sim -> Home -> Tcb -> IO [Strike]
strikesAt i sim home tcb = do
  left <- readPrimVar (interruptsLeft i)
  if left <= 0 then pure [] else (cancelling <>) <$> expiring
  where
    number = tcbNumber tcb
    context = stateContext (tcbState tcb)
    cancelling =
      [ Strike "is cancelled" (Nothing <$ condemnFrom home (ThreadId (tcbIdentity tcb)) (Cancellation (toException Cancelled) Nothing))
        | number /= 1,
          -- An alarm that is cancelled would never ring.
          contextScope context /= limitScope,
          AllThreads `elem` interruptsWhom i || contextLabel context `elem` interruptsLabels i
      ]
    expiring
      | TimeLimits `elem` interruptsWhom i = do
          known <- maybe [] (IntMap.findWithDefault [] number) <$> readIORef (simLimits sim)
          open <- filterM limitPending known
          pure [Strike "runs into its time limit" (Just (limitThread l) <$ limitExpire l) | l <- open]
      | otherwise = pure []

-- | Is one of so many opportunities taken (from 1 on), or none (0)?
decideStrike :: Interrupts -> Chooser -> Int -> IO Int
decideStrike i chooser n = do
  choice <- chooseWorld chooser (n + 1) $ do
    taken <- chance (interruptsRandom i) (interruptsRate i)
    if taken then (1 +) <$> below (interruptsRandom i) n else pure 0
  choice <$ when (choice > 0) (readPrimVar (interruptsLeft i) >>= writePrimVar (interruptsLeft i) . subtract 1)

-- | Do this to the thread when nothing else can run, if it still waits then.
ambush :: Interrupts -> Int -> IO () -> IO ()
ambush i number act = modifyIORef' (interruptsAmbushes i) (<> [(number, act)])

-- | This thread runs: what it waited for is over.
passed :: Interrupts -> Int -> IO ()
passed i number = do
  waiting <- readIORef (interruptsAmbushes i)
  unless (null waiting) $ writeIORef (interruptsAmbushes i) (filter ((/= number) . fst) waiting)

-- | Nothing can run: what was to happen then, the oldest first.
nextAmbush :: Interrupts -> IO (Maybe (IO ()))
nextAmbush i =
  readIORef (interruptsAmbushes i) >>= \case
    [] -> pure Nothing
    (_, act) : rest -> Just act <$ writeIORef (interruptsAmbushes i) rest

-- | A thread was interrupted.
struck :: Interrupts -> Moment -> IO ()
struck i moment = modifyIORef' (interruptsMade i) (moment :)

-- | All interruptions of the run, in order.
interruptions :: Interrupts -> IO [Moment]
interruptions i = reverse <$> readIORef (interruptsMade i)
