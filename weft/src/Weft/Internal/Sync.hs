{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The common part of all ways to synchronize threads: operations that try first and wait only if they must
-- (Note [Synchronization]), and queues of threads that wait for one thing (Note [Tombstones]).
module Weft.Internal.Sync
  ( -- * Operations
    attempt,
    immediate,
    relax,
    using,
    awaitIn,
    awaitSeen,
    wakeFirst,
    wakeAll,
    leaveQueue,
    andFinally,
    orElseRestore,
    Name,
    newName,
    waiting,
    waitingFor,
    describeName,

    -- * Queues of waiters
    WaitQueue,
    emptyQueue,
    isEmpty,
    enqueue,
    dequeue,
    afterRemoval,
    entries,

    -- * What the modules of this room are made of
    module Weft.Internal.Core.Atomic,
    module Weft.Internal.Core.Park,
    module Weft.Internal.Data.Conditional,
  )
where

import Control.Concurrent qualified as Ghc
import Control.Exception (SomeException)
import Control.Monad (filterM)
import Control.Monad.Primitive (RealWorld)
import Data.Primitive.MutVar
import Data.Text (Text)
import Data.Text qualified as Text
import GHC.Exts (oneShot)
import Weft.Internal.Core.Atomic
import Weft.Internal.Core.Park
import Weft.Internal.Core.SystemCall (Ends (..), Reason (..))
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Conditional

-- Note [Synchronization]
-- ~~~~~~~~~~~~~~~~~~~~~~
-- Threads of one run live on several workers, so shared objects change in atomic steps: an immutable state,
-- replaced by compare-and-swap, or a word. An operation ("Weft.Internal.Core.Primitive") first tries, on the
-- worker and outside user code, almost without allocation. Only if it must wait does it park its thread
-- ("Weft.Internal.Core.Park") and leave the waiter in a queue, unless the state has changed meanwhile, in a
-- function of its own: GHC would allocate before the try what the two share.
--
-- Handing over. The thread that takes a waiter out of a queue delivers to it, and either the delivery or a
-- cancellation of the wait wins. If the cancellation wins, `answer` says false, and the value goes to the
-- next in the queue or back where it came from. If the delivery wins, the thread has the value even if its
-- cancellation is on the way, which is then raised at its next system call. So nothing is lost between two.
--
-- All queues are first in, first out: no thread overtakes another.
--
-- Cancelling. An operation notices a cancellation even if it does not wait: otherwise a thread that
-- sends in a loop could not be cancelled. Operations that give back ('Weft.Mutex.unlock') do not.
--
-- Busy states. A thread that waits with something to give (a put on a full MVar, a send on a full channel) is
-- answered before its value is taken over, because only the answer decides between that and its cancellation.
-- For these few instructions the state says Busy, and another worker that finds it spins ('relax').
--
-- A waiter is known by the index of its worker: all of it belongs to one run.

-- | An operation that looks for a cancellation first, and may have to wait, with its continuation.
attempt :: Sight a -> (Home -> Tcb -> (a -> Trace) -> IO (Tried a)) -> Thread a
attempt sight act = Thread (Perform (primitive (\here _ k -> currentTcb here >>= \tcb -> act (hereHome here) tcb k) True sight) ())
{-# INLINE attempt #-}

-- | An operation that never waits and does not look for a cancellation.
immediate :: Sight a -> (Home -> IO a) -> Thread a
immediate sight act = Thread (Perform (primitive (\here _ _ -> Got <$> act (hereHome here)) False sight) ())
{-# INLINE immediate #-}

-- | Wait for a value that comes once, in a state that threads share: the value if it is there, how
-- to join those that wait, how to leave them. A system call only if it waits.
awaitIn :: BlockedOn -> MutVar RealWorld s -> (s -> Maybe a) -> (ParkedThread () a -> s -> s) -> (Home -> ParkedThread () a -> IO ()) -> Thread a
awaitIn blockedOn var there join leave =
  internal (\_ _ -> there <$> readMutVar var) >>= maybe (awaitSeen (Awaits blockedOn) blockedOn var there join leave) pure

-- | 'awaitIn' as a system call in any case, of which this is seen.
awaitSeen :: Sight a -> BlockedOn -> MutVar RealWorld s -> (s -> Maybe a) -> (ParkedThread () a -> s -> s) -> (Home -> ParkedThread () a -> IO ()) -> Thread a
awaitSeen sight blockedOn var there join leave = attempt sight $ \home tcb k ->
  readMutVar var >>= \now -> case there now of
    Just a -> pure (Got a)
    Nothing -> waitFor home tcb blockedOn () k $ \waiter ->
      changing home var (\s -> case there s of Nothing -> (join waiter s, Nothing); found -> (s, found)) >>= \case
        Nothing -> pure (leave home waiter)
        Just a -> pure () <$ answer home waiter a

-- | Answer the first that still waits; false if none does.
wakeFirst :: Home -> MutVar RealWorld (WaitQueue o a) -> a -> IO Bool
wakeFirst here queue a = next
  where
    next = look queue $ \seen q ->
      dequeue q (pure False) $ \waiter rest -> (swapFor here queue seen rest &&^ answer here waiter a) ||^ next

wakeAll :: Home -> a -> WaitQueue o a -> IO ()
wakeAll here a q = dequeue q (pure ()) $ \waiter rest -> answer here waiter a >> wakeAll here a rest

leaveQueue :: Home -> MutVar RealWorld (WaitQueue o a) -> IO ()
leaveQueue here queue = change here queue afterRemoval

-- | A thread on another worker is in the middle of something short.
relax :: IO ()
relax = Ghc.yield

-- | Run a thread and then this, which must not look for a cancellation, whatever happens. Nothing
-- interrupts in between: cancellations are raised at system calls, and there is none.
andFinally :: Thread a -> Thread () -> Thread a
andFinally (Thread body) (Thread after) = Thread $ \k ->
  Catch
    (oneShot (\_ -> body (Leave (oneShot (\a -> after (oneShot (\_ -> k a)))))))
    (\e -> after (\_ -> Throw e))
{-# INLINE andFinally #-}

-- | Run a thread; if it fails, run this and let it have failed.
orElseRestore :: Thread a -> Thread () -> Thread a
orElseRestore (Thread body) (Thread restore) = Thread $ \k ->
  Catch (oneShot (\_ -> body (Leave k))) (\(e :: SomeException) -> restore (\_ -> Throw e))
{-# INLINE orElseRestore #-}

-- | The name of an object that threads wait for.
data Name = Name !Int !Text

-- | The next number, and a label that may be empty.
newName :: Home -> Text -> IO Name
newName home text = (`Name` text) <$> freshNumber home

-- | As in @mutex 7 (accounts)@.
describeName :: String -> Name -> String
describeName kind (Name number text) =
  kind <> " " <> show number <> (if Text.null text then "" else " (" <> Text.unpack text <> ")")

-- | Waiting for other threads of the run, none in particular, to do this.
waiting :: String -> Name -> String -> BlockedOn
waiting kind name@(Name number _) what = blockedOnNumber number $ Reason (describeName kind name <> ", " <> what) (pure 0) ByThreads

-- | Waiting for the thread with this number.
waitingFor :: String -> Name -> IO Int -> BlockedOn
waitingFor kind name@(Name number _) holder = blockedOnNumber number $ Reason (describeName kind name) holder ByThreads

-- Note [Tombstones]
-- ~~~~~~~~~~~~~~~~~
-- Removal from the middle of a list is linear, so a hundred thousand simultaneous cancellations would cost
-- the square of that. Instead 'claim' empties the entry, and the queue counts its empty entries
-- ("tombstones"); when they are more than half, all are removed. The count may be too large (a tombstone that
-- has left through the front stays counted) but never too small, so removal has constant amortized cost, and
--
--   * a queue in which no thread waits has no entries, if a cancellation ended the last wait: an entry is
--     counted after it was emptied, so the last thread to count finds that the whole queue is tombstones;
--   * else it has the tombstones that came after the thread that was answered last, fewer than once waited
--     with it, until the next thread is answered or leaves.

-- | Waiters in the order of arrival, for a variable that compare-and-swap changes: the front, the back
-- (reversed), how many, how many tombstones at most.
data WaitQueue o a = WaitQueue [ParkedThread o a] [ParkedThread o a] !Int !Int

emptyQueue :: WaitQueue o a
emptyQueue = WaitQueue [] [] 0 0

isEmpty :: WaitQueue o a -> Bool
isEmpty (WaitQueue _ _ n _) = n == 0

enqueue :: ParkedThread o a -> WaitQueue o a -> WaitQueue o a
enqueue e (WaitQueue front back n tombstones)
  -- The usual case: nothing to be reversed.
  | n == 0 = WaitQueue [e] [] 1 0
  | otherwise = WaitQueue front (e : back) (n + 1) tombstones
{-# INLINE enqueue #-}

dequeue :: WaitQueue o a -> r -> (ParkedThread o a -> WaitQueue o a -> r) -> r
dequeue (WaitQueue front back n tombstones) none use = case front of
  e : rest -> use e (WaitQueue rest back (n - 1) tombstones)
  [] -> case reverse back of
    e : rest -> use e (WaitQueue rest [] (n - 1) tombstones)
    [] -> none
{-# INLINE dequeue #-}

-- | The queue after one more entry was emptied.
afterRemoval :: WaitQueue o a -> IO (WaitQueue o a)
afterRemoval (WaitQueue front back n tombstones)
  | 2 * (tombstones + 1) <= n = pure (WaitQueue front back n (tombstones + 1))
  | otherwise = do
      living <- filterM stillWaits (front <> reverse back)
      pure (WaitQueue living [] (length living) 0)

-- | How many entries there are, tombstones included.
entries :: WaitQueue o a -> Int
entries (WaitQueue _ _ n _) = n
