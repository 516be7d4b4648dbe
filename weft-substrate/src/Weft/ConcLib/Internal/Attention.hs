{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Threads, and what is thrown at them
--
-- The identity of a thread, which its stack holds, and the exceptions that wait for it. A thread that runs on a HEC
-- looks for them itself; in one that was displaced from its HEC they are raised from outside.
module Weft.ConcLib.Internal.Attention
  ( ThreadId (..),
    newThread,
    threadOf,
    threadHere,

    -- * Exceptions
    post,
    putBack,
    attend,
    deliverTo,
    raisePending,
    lastRites,

    -- * Threads that are displaced
    goesAway,
    comesHome,
    attendAtGate,
    arrives,
    wakeForgotten,
  )
where

import Control.Concurrent qualified as GHC
import Control.Exception
import Control.Monad (forM_, unless, void, when, (>=>))
import GHC.Exts (mkWeak#)
import GHC.IO (IO (..), unIO)
import Weft.ConcLib.Internal.Scheduler (Library)
import Weft.ConcLib.Internal.Waiter
import Weft.Internal.Os.Masked (interruptiblyMasked)
import Weft.Substrate
import Weft.Substrate.Internal.Local (isMarked, mark, ownerOf)
import Weft.Substrate.Internal.Place (stackHere)
import Weft.Substrate.Internal.Transaction (conflicting, unsafeIOToPTM)
import Weft.Substrate.Internal.Types (StackId (..))

-- | A thread.
data ThreadId = ThreadId
  { threadNumber :: !Int,
    threadLibrary :: !Library,
    threadAttention :: !(PVar Attention)
  }

-- | The state of a thread towards exceptions that are thrown at it.
data Attention
  = -- | It runs, or its wait is not to be interrupted: exceptions not yet raised, oldest first.
    Pending [SomeException]
  | -- | It waits, or has last waited, for this, and no exception is pending.
    forall a. Interruptible !(Waiter a)
  | -- | It was displaced, and this raises an exception there. At most one is on its way, the others wait.
    Away (SomeException -> IO ()) (Maybe Strike) [SomeException]
  | -- | It is suspended on an OS thread of its own, or was entered there and does not run yet. Then this.
    AtGate Attention

-- | A thread of GHC's that raises an exception in a thread that is displaced, and a variable that is full when it has done
-- so or has given up.
data Strike = Strike !GHC.ThreadId !(GHC.MVar ())

instance Eq ThreadId where a == b = threadNumber a == threadNumber b

instance Ord ThreadId where compare a b = compare (threadNumber a) (threadNumber b)

instance Show ThreadId where showsPrec p t = showParen (p > 10) (showString "ThreadId " . shows (threadNumber t))

-- | A thread with this number, of this run.
newThread :: Int -> Library -> IO ThreadId
newThread number library = ThreadId number library <$> newPVarIO (Pending [])

-- | The thread that a stack is, if it is one. This library alone keeps something in stacks.
threadOf :: StackId -> IO (Maybe ThreadId)
threadOf = ownerOf

-- | The thread that this is, if it is one of this library, on a HEC.
threadHere :: IO (Maybe ThreadId)
threadHere = stackHere >>= threadOf . snd

-- Exceptions ---------------------------------------------------------------------------------

-- | An exception for a thread, which it looks for when it waits or yields, and which ends a wait that can be
-- interrupted. Answers whether it has ended one.
post :: ThreadId -> SomeException -> PTM Bool
post t e = posting t (<> [e])

-- | An exception that was raised in this thread at a bad moment, for the next good one. Those that wait already came later.
putBack :: ThreadId -> SomeException -> PTM ()
putBack t e = void (posting t (e :))

posting :: ThreadId -> ([SomeException] -> [SomeException]) -> PTM Bool
posting t with = do
  (after, act) <- posted <$> readPVar (threadAttention t)
  writePVar (threadAttention t) after
  act
  where
    posted = \case
      Pending es -> (Pending (with es), pure False)
      Interruptible w -> (Pending (with []), interrupt w)
      Away raise strike es -> (Away raise strike (with es), False <$ afterCommit (strikes t))
      AtGate a -> let (after, act) = posted a in (AtGate after, act)

-- | This is what the thread waits for, if nothing is pending. Answers whether something is.
attend :: ThreadId -> Waiter a -> PTM Bool
attend me w =
  readPVar (threadAttention me) >>= \case
    Pending (_ : _) -> pure True
    _ -> False <$ writePVar (threadAttention me) (Interruptible w)
{-# INLINE attend #-}

-- | Raise what was thrown at this thread, if it is unmasked.
deliverTo :: ThreadId -> IO ()
deliverTo me =
  readPVarIO (threadAttention me) >>= \case
    Pending (_ : _) -> getMaskingState >>= \masking -> when (masking == Unmasked) raisePending
    _ -> pure ()

-- | Raise the first exception that is pending for this thread, also where it is masked. Masked here, so that no other is
-- raised when this one has been taken.
raisePending :: IO ()
raisePending =
  mask_ $ threadHere >>= mapM_ (atomicPTM . first . threadAttention >=> mapM_ raiseAsync)
  where
    first attention =
      readPVar attention >>= \case
        Pending (e : es) -> Just e <$ writePVar attention (Pending es)
        _ -> pure Nothing

-- Note [Waiting for ever]
-- ~~~~~~~~~~~~~~~~~~~~~~~
-- A thread that waits is known to what it waits for, and to the holders of its 'ThreadId'. If the collector finds
-- its stack dead, nobody can wake it any more: a finalizer, which keeps the stack from being
-- collected once more, throws at it, and is there again for its next wait. It is made when the thread first waits: many never
-- do. A thread that has ended waits for nothing, so its finalizer does nothing. A stack that waits on an OS thread of its
-- own is told by GHC, through that OS thread.

-- | Have a thread told when it waits for ever. For a thread that is about to wait, itself: one that never waits costs no
-- weak pointer.
lastRites :: StackId -> ThreadId -> IO ()
lastRites stack t = isMarked stack >>= (`unless` (finalized stack t >> mark stack))

finalized :: StackId -> ThreadId -> IO ()
finalized stack@(StackId slots) t = IO $ \s -> case mkWeak# slots () (unIO told) s of (# s1, _ #) -> (# s1, () #)
  where
    told = do
      waited <- atomicPTM (wakeForgotten t)
      when waited (finalized stack t)

-- | A thread that nothing can wake any more gets 'BlockedIndefinitelyOnMVar'. Answers whether it waited.
wakeForgotten :: ThreadId -> PTM Bool
wakeForgotten t =
  readPVar (threadAttention t) >>= \case
    Interruptible _ -> tell
    AtGate (Interruptible _) -> tell
    _ -> pure False
  where
    tell = post t (toException BlockedIndefinitelyOnMVar)

-- Threads that are displaced ------------------------------------------------------------------

-- Note [Strikes]
-- ~~~~~~~~~~~~~~
-- A thread that is displaced computes on an OS thread, or blocks there, and looks for no exceptions. So they are raised
-- in it by GHC's 'GHC.throwTo', which an OS thread is told to do: a strike. That OS thread runs other stacks once this one
-- has a HEC again and leaves it by a switch, and an exception that comes then would hit one of those. So
--
--   1. a strike begins by a transaction that finds the thread 'Away' with no other strike, and says so there;
--   2. a thread that comes home first ends the strike. It is masked, so nothing can be raised in it by then: the strike has
--      raised its exception before, or puts it back;
--   3. what is pending when it comes home, it looks for itself, as other threads do;
--   4. a thread that was entered at its gate is not displaced before it runs ('AtGate'): until then the HEC's record of its OS
--      thread may be older, and a strike would hit another thread of GHC's.

-- | The thread is being displaced. Answers whether that can be, now. The action is performed if so, and answers what raises
-- an exception in it.
goesAway :: ThreadId -> IO (SomeException -> IO ()) -> PTM Bool
goesAway t raising =
  readPVar (threadAttention t) >>= \case
    AtGate _ -> pure False
    Pending es -> away es
    _ -> away []
  where
    away es = do
      raise <- unsafeIOToPTM raising
      writePVar (threadAttention t) (Away raise Nothing es)
      unless (null es) (afterCommit (strikes t))
      pure True

-- | The thread, which was displaced, is suspended by this transaction. Run by it, uninterruptibly masked.
comesHome :: ThreadId -> PTM ()
comesHome t =
  readPVar (threadAttention t) >>= \case
    Away _ (Just (Strike thread over)) _ -> unsafeIOToPTM (GHC.throwTo thread GiveUp >> GHC.readMVar over) >> conflicting
    Away _ Nothing es -> writePVar (threadAttention t) (AtGate (Pending es))
    _ -> pure ()

-- | 'attend', after 'comesHome'.
attendAtGate :: ThreadId -> Waiter a -> PTM Bool
attendAtGate me w =
  readPVar (threadAttention me) >>= \case
    AtGate (Pending (_ : _)) -> pure True
    _ -> False <$ writePVar (threadAttention me) (AtGate (Interruptible w))

-- | The thread, which was suspended on its OS thread, runs on a HEC.
arrives :: ThreadId -> IO ()
arrives t =
  atomicPTM $
    readPVar (threadAttention t) >>= \case
      AtGate a -> writePVar (threadAttention t) a
      _ -> pure ()

data GiveUp = GiveUp
  deriving stock (Show)

instance Exception GiveUp

-- | Have all that is thrown at a thread that is displaced raised there.
strikes :: ThreadId -> IO ()
strikes t = void (GHC.forkIO (interruptiblyMasked go))
  where
    go = do
      over <- GHC.newEmptyMVar
      me <- GHC.myThreadId
      begun <- atomicPTM (first (Strike me over))
      forM_ begun $ \(raise, e) -> do
        raised <- try (raise e)
        atomicPTM (ended (either (\GiveUp -> (e :)) (\() -> id) raised))
        GHC.putMVar over ()
        either (\GiveUp -> pure ()) (\() -> go) raised
    first strike =
      readPVar (threadAttention t) >>= \case
        Away raise Nothing (e : es) -> Just (raise, e) <$ writePVar (threadAttention t) (Away raise (Just strike) es)
        _ -> pure Nothing
    -- The thread waits for this, so it is still away.
    ended left =
      readPVar (threadAttention t) >>= \case
        Away raise _ es -> writePVar (threadAttention t) (Away raise Nothing (left es))
        _ -> pure ()
