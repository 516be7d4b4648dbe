{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The common part of all ways to synchronize threads. An operation tries first and waits only if it
-- must: Note [Synchronization].
module Weft.Internal.Sync
  ( attempt,
    immediate,
    relax,
    using,
    awaitIn,
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
  )
where

import Control.Concurrent qualified as Ghc
import Control.Exception (SomeException)
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
import Weft.Internal.Sync.WaitQueue

-- Note [Synchronization]
-- ~~~~~~~~~~~~~~~~~~~~~~
-- Threads of one run live on several workers, so shared objects change in atomic steps: an
-- immutable state, replaced by compare-and-swap, or a word. An operation
-- ("Weft.Internal.Core.Primitive") first tries, on the worker and outside user code, without
-- parking and almost without allocation. Only if it must wait does it park its thread
-- ("Weft.Internal.Core.Park") and leave the waiter in a queue, unless the state has changed
-- meanwhile, in a function of its own: GHC would allocate before the try what the two share.
--
-- Handing over. The thread that takes a waiter out of a queue delivers to it, and either the
-- delivery or a cancellation of the wait wins. If the cancellation wins, `answer` says false, and
-- the value goes to the next in the queue or back where it came from. If the delivery wins, the
-- thread has the value even if its cancellation is on the way, which is then raised at its next
-- system call. So nothing is lost between two threads.
--
-- All queues are first in, first out: no thread overtakes another.
--
-- Cancelling. An operation notices a cancellation even if it does not wait: otherwise a thread that
-- sends in a loop could not be cancelled. Operations that give back ('Weft.Mutex.unlock') do not.
--
-- Busy states. A thread that waits with something to give (a put on a full MVar, a send on a
-- full channel) is answered before its value is taken over, because only the answer decides
-- between that and its cancellation. For these few instructions the state says Busy, and another
-- worker that finds it spins ('relax'). On one worker no thread can see it.
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
  internal (\_ _ -> look') >>= \case
    Just a -> pure a
    Nothing -> attempt (Awaits blockedOn) $ \home tcb k ->
      look' >>= \case
        Just a -> pure (Got a)
        Nothing -> waitFor home tcb blockedOn () k $ \waiter ->
          changing home var (\s -> case there s of Nothing -> (join waiter s, Nothing); found -> (s, found)) >>= \case
            Nothing -> pure (leave home waiter)
            Just a -> pure () <$ answer home waiter a
  where
    look' = there <$> readMutVar var

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
