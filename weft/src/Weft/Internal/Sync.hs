{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : What the ways to synchronize threads have in common
--
-- How an operation tries first and waits only if it must, how it notices a
-- cancellation, and what a dump says of it. Used by "Weft.Mutex", "Weft.MVar" and
-- their neighbours.
--
-- See Note [Synchronization].
module Weft.Internal.Sync
  ( -- * Operations
    attempt,
    immediate,
    relax,
    using,
    awaitIn,

    -- * Waking
    wakeFirst,
    wakeAll,
    takeAll,
    leaveQueue,

    -- * Finally
    andFinally,
    orElseRestore,

    -- * Names
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
import Weft.Internal.Sync.WaitQueue

-- Note [Synchronization]
-- ~~~~~~~~~~~~~~~~~~~~~~
-- Threads of one run live on several workers, so what they share is changed in
-- atomic steps: an immutable state in a variable, replaced by compare-and-swap, or a
-- word. An operation ("Weft.Internal.Core.Primitive") first tries, on the worker and outside user
-- code, where nothing is parked and little or nothing allocated. Only if it
-- must wait does it park its thread ("Weft.Internal.Core.Park") and leave the waiter in a
-- queue, unless the state has changed meanwhile. That part is in functions of its own
-- (OPAQUE): what GHC shares between the two it would allocate before it tries.
--
-- Handing over. Whoever takes a waiter out of a queue delivers, and one of two
-- wins: the delivery, or a cancellation of the wait. If it is the cancellation,
-- `answer` says false, and what was to be handed over goes to the next in
-- the queue or back to where it came from. If it is the delivery, the thread has
-- what it waited for, even if its cancellation is already on its way: that is then
-- raised at its next system call. So nothing is lost between two threads.
--
-- All queues are first in, first out, and what becomes free while threads wait goes
-- to the first of them: nobody can come in between.
--
-- Cancelling. An operation is a system call, so it looks for a cancellation even if
-- it does not wait: else a thread that sends in a loop could not be cancelled. Those
-- that give back ('Weft.Mutex.unlock' and the like) do not look.
--
-- Busy states. A thread that waits with something to give (a put on a full MVar, a
-- send on a full channel) is answered before what it gives is taken over, because
-- only the answer decides between that and its cancellation. For these few
-- instructions the state says Busy, and whoever finds that on another worker lets
-- its OS thread go round ('relax'). On one worker nobody can see it.
--
-- All of it belongs to one run: a waiter is known by the index of its worker, and a run
-- with one worker needs no atomic steps (Note [The only worker] in
-- "Weft.Internal.Core.Atomic").

-- | An operation that may have to wait, and looks for a cancellation first. The action is
-- given the continuation, for the case that it must wait.
attempt :: Sight a -> (Home -> Tcb -> (a -> Trace) -> IO (Tried a)) -> Thread a
attempt sight act = Thread (Perform (primitive (\here _ k -> currentTcb here >>= \tcb -> act (hereHome here) tcb k) True sight) ())
{-# INLINE attempt #-}

-- | An operation that never waits and does not look for a cancellation.
immediate :: Sight a -> (Home -> IO a) -> Thread a
immediate sight act = Thread (Perform (primitive (\here _ _ -> Got <$> act (hereHome here)) False sight) ())
{-# INLINE immediate #-}

-- | Wait for what comes once, in a state of the library's own that threads share: what is
-- there, how to join those that wait, how to leave them. A system call only if it waits.
awaitIn :: Wish -> MutVar RealWorld s -> (s -> Maybe a) -> (Waiter () a -> s -> s) -> (Home -> Waiter () a -> IO ()) -> Thread a
awaitIn wish var there join leave =
  internal (\_ _ -> look') >>= \case
    Just a -> pure a
    Nothing -> attempt (Awaits wish) $ \home tcb k ->
      look' >>= \case
        Just a -> pure (Got a)
        Nothing -> waitFor home tcb wish () k $ \waiter ->
          changing home var (\s -> case there s of Nothing -> (join waiter s, Nothing); found -> (s, found)) >>= \case
            Nothing -> pure (leave home waiter)
            Just a -> pure () <$ answer home waiter a
  where
    look' = there <$> readMutVar var

-- | Answer the first that still waits; false if nobody does.
wakeFirst :: Home -> MutVar RealWorld (Queue o a) -> a -> IO Bool
wakeFirst here queue a = next
  where
    next = look queue $ \seen q ->
      dequeue q (pure False) $ \waiter rest -> do
        ours <- swapFor here queue seen rest
        woken <- if ours then answer here waiter a else pure False
        if woken then pure True else next

-- | Answer all of a queue, which nobody else has any more.
wakeAll :: Home -> a -> Queue o a -> IO ()
wakeAll here a q = dequeue q (pure ()) $ \waiter rest -> answer here waiter a >> wakeAll here a rest

-- | Take a whole queue away.
takeAll :: Home -> MutVar RealWorld (Queue o a) -> IO (Queue o a)
takeAll here queue = look queue $ \seen q -> do
  ours <- swapFor here queue seen emptyQueue
  if ours then pure q else takeAll here queue

-- | What a wait that was cancelled does to its queue.
leaveQueue :: Home -> MutVar RealWorld (Queue o a) -> IO ()
leaveQueue here queue = change here queue afterBurial

-- | Somebody on another worker is in the middle of something short.
relax :: IO ()
relax = Ghc.yield
{-# NOINLINE relax #-}

-- | Run a thread and then this, whatever happens. Nothing interrupts in between:
-- cancellations are raised at system calls, and there is none. The second must not
-- look for one.
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

-- | What people call something that threads wait for.
data Name = Name !Int !Text

-- | The next number, and a label that may be empty.
newName :: Home -> Text -> IO Name
newName home text = (`Name` text) <$> freshNumber home

-- | As in @mutex 7 (accounts)@.
describeName :: String -> Name -> String
describeName kind (Name number text) =
  kind <> " " <> show number <> (if Text.null text then "" else " (" <> Text.unpack text <> ")")

-- | Waiting for other threads of the run, none in particular, to do this.
waiting :: String -> Name -> String -> Wish
waiting kind name@(Name number _) what = wishFor number $ Reason (describeName kind name <> ", " <> what) (pure 0) ByThreads

-- | Waiting for the thread with this number.
waitingFor :: String -> Name -> IO Int -> Wish
waitingFor kind name@(Name number _) holder = wishFor number $ Reason (describeName kind name) holder ByThreads
