{-# OPTIONS_HADDOCK not-home #-}

-- | Cancellations and time limits as faults, which the author of a program allows although nothing
-- in it asks for them. The driver asks at each system call of a thread, before it and when it
-- waits. The chooser decides, so that an interruption is a deviation like any other.
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
import Weft.Internal.Core.Cancel
import Weft.Internal.Core.Trace
import Weft.Sim.Internal.Choices
import Weft.Sim.Internal.Kernel
import Weft.Sim.Internal.Random
import Weft.Sim.Internal.Timeline

-- Note [Interruptions]
-- ~~~~~~~~~~~~~~~~~~~~
-- A thread can be interrupted where it makes a system call, at three moments:
--
--   * before the call, if the thread is not masked: nothing of it happens;
--   * when it has begun to wait, at once: what the call did before waiting has happened (a
--     condition has released its mutex), and no other thread has seen that it waits;
--   * while it waits, when nothing else can run: the others have advanced as far as they can
--     without it, and may wait for it. If the wait ends before that, nothing happens.
--
-- The moment after a wait, when the thread has its answer and has not gone on, is the first of
-- these at its next call.
--
-- A cancellation is sent as if by another thread of its worker. A time limit expires early: the
-- sleep of its alarm ('Weft.Timeout.timeout') ends, and the alarm runs to its end undisturbed.

-- | The victims of chance. The main thread is never cancelled; its time limits may expire.
data Interruptible
  = -- | Threads with this label are cancelled. Children inherit the label unless they get their
    -- own, so the label of a scope's owner covers all threads of the scope.
    ThreadsLabelled !Text
  | -- | Every thread but the main one is cancelled.
    AllThreads
  | -- | Each 'Weft.Timeout.timeout' may expire early. The clock does not move for it.
    TimeLimits
  deriving stock (Eq, Show)

data Interrupts = Interrupts
  { interruptsWhom :: [Interruptible],
    interruptsLabels :: [Label],
    -- | How many more may happen.
    interruptsLeft :: !(PrimVar RealWorld Int),
    interruptsRandom :: !Random,
    -- | The probability of each opportunity, where dice decide.
    interruptsRate :: !Double,
    -- | Threads to interrupt when nothing can run, if they still wait: by number.
    interruptsAmbushes :: !(IORef [(Int, IO ())]),
    -- | The interruptions so far, latest first.
    interruptsMade :: !(IORef [Moment])
  }

-- | The right rate depends on the length of the run, which is unknown, so each run draws one: the
-- larger of two between 1/2 and 1/256.
newInterrupts :: [Interruptible] -> Int -> Random -> IO Interrupts
newInterrupts whom most random = do
  left <- newPrimVar most
  rate <- min <$> below random 8 <*> below random 8
  Interrupts whom [toShort (encodeUtf8 l) | ThreadsLabelled l <- whom] left random (0.5 ^ (rate + 1))
    <$> newIORef []
    <*> newIORef []

data Strike = Strike
  { -- | For the report.
    strikeWhat :: String,
    -- | Interrupt, and answer a thread that must then run to its end before anything else.
    strikeNow :: IO (Maybe Int)
  }

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

-- | Choose one of this number of opportunities, counted from 1, or none (0).
decideStrike :: Interrupts -> Chooser -> Int -> IO Int
decideStrike i chooser n = do
  choice <- chooseWorld chooser (n + 1) $ do
    taken <- chance (interruptsRandom i) (interruptsRate i)
    if taken then (1 +) <$> below (interruptsRandom i) n else pure 0
  choice <$ when (choice > 0) (readPrimVar (interruptsLeft i) >>= writePrimVar (interruptsLeft i) . subtract 1)

-- | Interrupt the thread when nothing else can run, if it still waits then.
ambush :: Interrupts -> Int -> IO () -> IO ()
ambush i number act = modifyIORef' (interruptsAmbushes i) (<> [(number, act)])

passed :: Interrupts -> Int -> IO ()
passed i number = do
  waiting <- readIORef (interruptsAmbushes i)
  unless (null waiting) $ writeIORef (interruptsAmbushes i) (filter ((/= number) . fst) waiting)

nextAmbush :: Interrupts -> IO (Maybe (IO ()))
nextAmbush i =
  readIORef (interruptsAmbushes i) >>= \case
    [] -> pure Nothing
    (_, act) : rest -> Just act <$ writeIORef (interruptsAmbushes i) rest

struck :: Interrupts -> Moment -> IO ()
struck i moment = modifyIORef' (interruptsMade i) (moment :)

interruptions :: Interrupts -> IO [Moment]
interruptions i = reverse <$> readIORef (interruptsMade i)
