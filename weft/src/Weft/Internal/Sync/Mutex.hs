-- Or control blocks would be rebuilt wherever a thread parks ("Weft.Internal.Core.Scheduler").
{-# OPTIONS_GHC -O2 -fno-spec-constr #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | How a mutex works. See Note [The word of a mutex]. The functions in 'IO' run on workers, outside
-- user code.
module Weft.Internal.Sync.Mutex
  ( Mutex (..),
    MutexError (..),
    createMutex,
    lock,
    tryLock,
    unlock,
    taken,
    heldBy,
    releaseAs,
  )
where

import Control.Exception (Exception (..))
import Control.Monad (unless, when)
import Control.Monad.Primitive (RealWorld)
import Data.Bits (shiftL, shiftR, (.|.))
import Data.Primitive.MutVar
import Data.Primitive.PrimVar
import Data.Text (Text)
import Weft.Internal.Core.Primitive (Behaviour (..), Primitive (..), onlyAlone)
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Cell
import Weft.Internal.Sync

-- Note [The word of a mutex]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~
-- The word is twice the number of the holder, plus one if a thread may wait:
--
--   0       free
--   2n      thread n holds it, and no thread waits
--   2n + 1  thread n holds it, and must look into the queue when it unlocks
--   1       on its way from one thread to the next
--
--   lock        0 -> 2n by compare-and-swap; or else
--               join the queue, then announce
--   unlock      2n -> 0 by compare-and-swap; or else
--               2n + 1 -> 1, then hand over
--   hand over   to the first in the queue that was not cancelled: 1 -> 2n' + 1, and
--               make it ready; if there is none, 1 -> 0, and if the queue is not empty
--               then, announce
--   announce    0 -> 1, then hand over;  2n -> 2n + 1;  odd: nothing to do
--
-- No wake-up is lost: a thread that joins reads the word after it has written the queue; a
-- thread that frees the mutex reads the queue after it has written the word; each with a full
-- barrier in between. So one of them sees the other. Only the thread that hands over changes
-- a word that is 1. (With one worker none of this happens at the same time.)
--
-- Without waiters neither lock nor unlock allocates; the word is unboxed.

-- | A lock that one thread at a time holds.
data Mutex = Mutex
  { mutexWord :: {-# UNPACK #-} !(PrimVar RealWorld Int),
    mutexLock, mutexUnlock :: !(Primitive () ()),
    mutexQueue :: {-# UNPACK #-} !(MutVar RealWorld (WaitQueue () ())),
    mutexBlockedOn :: !BlockedOn,
    mutexName :: !Name
  }

instance Eq Mutex where
  a == b = mutexQueue a == mutexQueue b

instance Show Mutex where
  showsPrec _ = showString . describeName "mutex" . mutexName

-- | A mistake in the use of a mutex.
data MutexError
  = -- | The thread locks what it holds: it would wait for itself for ever.
    AlreadyHeld String
  | -- | The thread unlocks what it does not hold.
    NotHeld String
  deriving stock (Eq)

instance Show MutexError where
  show = \case
    AlreadyHeld m -> m <> ": this thread holds it already and would wait for itself"
    NotHeld m -> m <> ": unlocked by a thread that does not hold it"

instance Exception MutexError

-- | A free mutex with a label.
createMutex :: Home -> Text -> IO Mutex
createMutex home text = do
  name <- newName home text
  word <- newPrimVar 0
  queue <- newShared emptyQueue
  let blockedOn = waitingFor "mutex" name ((`shiftR` 1) <$> readPrimVar word)
      m =
        Mutex
          word
          (onlyAlone home (Hold word) (Behaviour (lockAct m) True (using "lock" blockedOn)))
          (onlyAlone home (LetGo word) (Behaviour (unlockAct m) False (using "unlock" blockedOn)))
          queue
          blockedOn
          name
  pure m

-- | Wait until the mutex is free and hold it; first come, first served. Cancellable while it
-- waits; a cancelled thread does not hold it, unless it was handed the mutex before.
--
-- Throws 'AlreadyHeld' if this thread holds it.
lock :: Mutex -> Thread ()
lock m = Thread (Perform (mutexLock m) ())
{-# INLINE lock #-}

lockAct :: Mutex -> Here -> () -> Resume -> IO (Tried ())
lockAct m = \here _ k -> do
  tcb <- currentTcb here
  let home = hereHome here
  if isNobody (tcbIdentity tcb)
    then numberedFirst (lock m) k
    else do
      found <- swapWord home (mutexWord m) 0 (ownWord tcb)
      if found == 0 then pure (Got ()) else lockLater m found home tcb k

-- | The word of a mutex that this thread holds and no other waits for. Without a number it holds none.
ownWord :: Tcb -> Int
ownWord (Tcb (Identity n _) _) = shiftL n 1

-- | Is it the word of a mutex that this thread holds?
isOwn :: Tcb -> Int -> Bool
isOwn tcb word = word .|. 1 == ownWord tcb .|. 1

-- | Ask for this thread's number, which gives it one, and go on.
numberedFirst :: Thread a -> (a -> Trace) -> IO (Tried a)
numberedFirst body k = pure (Instead (unThread (myself >> body) k))

lockLater :: Mutex -> Int -> Home -> Tcb -> (() -> Trace) -> IO (Tried ())
lockLater m found home tcb k
  | isOwn tcb found = pure (Instead (throwTrace (AlreadyHeld (show m))))
  | otherwise = waitFor home tcb (mutexBlockedOn m) () k $ \waiter -> do
      change home (mutexQueue m) (pure . enqueue waiter)
      announce m home
      pure (leaveQueue home (mutexQueue m))

-- | Hold the mutex if it is free: true. Never waits; false also if this thread holds it.
tryLock :: Mutex -> Thread Bool
tryLock m = attempt (using "try to lock" (mutexBlockedOn m)) $ \home tcb k ->
  if isNobody (tcbIdentity tcb)
    then numberedFirst (tryLock m) k
    else do
      found <- swapWord home (mutexWord m) 0 (ownWord tcb)
      pure (if found == 0 then Got True else Got False)

-- | Let the thread that has waited longest hold the mutex. Neither waits nor notices a cancellation.
--
-- Throws 'NotHeld' if this thread does not hold it.
unlock :: Mutex -> Thread ()
unlock m = Thread (Perform (mutexUnlock m) ())
{-# INLINE unlock #-}

unlockAct :: Mutex -> Here -> () -> Resume -> IO (Tried ())
unlockAct m = \here _ _ -> do
  tcb <- currentTcb here
  let home = hereHome here
  found <- swapWord home (mutexWord m) (ownWord tcb) 0
  if found == ownWord tcb then pure (Got ()) else unlockLater m tcb found home

unlockLater :: Mutex -> Tcb -> Int -> Home -> IO (Tried ())
unlockLater m tcb found home
  | not (isOwn tcb found) = pure (Instead (throwTrace (NotHeld (show m))))
  | homeAlone home = Got () <$ handOverAlone m home
  | otherwise = Got () <$ handOver m home

-- | Does the thread with this number hold the mutex?
heldBy :: Mutex -> Int -> IO Bool
heldBy m n = (== n) . (`shiftR` 1) <$> readPrimVar (mutexWord m)

-- | Unlock for the thread with this number, which holds it, on this worker.
releaseAs :: Mutex -> Int -> Home -> IO ()
releaseAs m n here = do
  found <- swapWord here (mutexWord m) (shiftL n 1) 0
  unless (found == shiftL n 1) (handOver m here)

-- | To the first that still waits. The word is ours: odd, and we held it, or have made it 1.
handOver :: Mutex -> Home -> IO ()
handOver m here = writePrimVar (mutexWord m) 1 >> next
  where
    next =
      look (mutexQueue m) $ \seen queue ->
        dequeue queue free $ \waiter rest ->
          ifM (not <$> swapFor here (mutexQueue m) seen rest) next $
            claim here waiter >>= \case
              WaitOver -> next
              claimed@(Claimed _ tcb k) -> do
                -- Before it runs. Odd even if the queue is empty now, unless no thread can join.
                writePrimVar (mutexWord m) (if homeAlone here && isEmpty rest then ownWord tcb else ownWord tcb .|. 1)
                letGo here claimed k
    free = do
      atomicWriteInt (mutexWord m) 0
      unlessM (isEmpty <$> readMutVar (mutexQueue m)) (announce m here)

-- | To the first that still waits, where the worker is the only one: no thread joins meanwhile.
handOverAlone :: Mutex -> Home -> IO ()
handOverAlone m here = readMutVar (mutexQueue m) >>= go
  where
    go queue =
      dequeue queue free $ \(ParkedThread place) rest ->
        readCell place $ \case
          Occupied _ tcb _ _ _ k -> do
            writeCell place Vacant
            publish (mutexQueue m) rest
            writePrimVar (mutexWord m) (if isEmpty rest then ownWord tcb else ownWord tcb .|. 1)
            departed here
            homeReady here Woken tcb k
          -- A mutex is no 'Weft.Internal.Sync.Choice.Choice': its queue has no other places.
          _ -> go rest
    free = publish (mutexQueue m) emptyQueue >> writePrimVar (mutexWord m) 0

-- | A thread has joined the queue: make sure that the holder of the mutex knows.
announce :: Mutex -> Home -> IO ()
announce m here = atomicReadInt (mutexWord m) >>= go
  where
    go seen
      | odd seen = pure ()
      | otherwise = do
          found <- swapWord here (mutexWord m) seen (seen .|. 1)
          if found /= seen then go found else when (seen == 0) (handOver m here)

-- | Does a thread hold it, or is it on its way to one?
taken :: Mutex -> IO Bool
taken m = (/= 0) <$> readPrimVar (mutexWord m)
