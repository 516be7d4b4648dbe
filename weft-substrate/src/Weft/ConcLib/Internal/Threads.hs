{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Many threads on a few HECs
--
-- A thread is a stack with an identity, and a list of what was thrown at it. All that waits goes
-- through 'performWaiting'. (Li 2008, section 5.2.2.)
module Weft.ConcLib.Internal.Threads
  ( -- * Running
    withConcLib,
    Collecting (..),
    withConcLibCollecting,

    -- * Threads
    ThreadId,
    myThreadId,
    forkIO,
    forkIOWithUnmask,
    yield,
    throwTo,
    killThread,

    -- * Waiting
    performWaiting,
    succeedsIf,
    postpone,
    eventsHere,
  )
where

import Control.Concurrent qualified as GHC
import Control.Exception (AsyncException (ThreadKilled), BlockedIndefinitelyOnMVar (..), Exception, MaskingState (..), SomeException, bracket, catch, finally, fromException, getMaskingState, mask_, onException, throwIO, toException, try, uninterruptibleMask_)
import Control.Monad (forM, forM_, void, when)
import Data.IORef (IORef, atomicModifyIORef', newIORef)
import Foreign.StablePtr (freeStablePtr, newStablePtr)
import GHC.Exts (mkWeak#)
import GHC.IO (IO (..), unIO, unsafeUnmask)
import System.IO.Unsafe (unsafePerformIO)
import Weft.ConcLib.Internal.Poller (Poller, finishRequests)
import Weft.ConcLib.Internal.Ready (Collecting (..), enqueue, kickCollector)
import Weft.ConcLib.Internal.Scheduler
import Weft.ConcLib.Internal.Waiter
import Weft.Substrate
import Weft.Substrate.Internal.Local (ownerOf)
import Weft.Substrate.Internal.Place (stackHere)
import Weft.Substrate.Internal.Stack (inCallEnding, named, newStackIn, switchFrom)
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

instance Eq ThreadId where a == b = threadNumber a == threadNumber b

instance Ord ThreadId where compare a b = compare (threadNumber a) (threadNumber b)

instance Show ThreadId where showsPrec p t = showParen (p > 10) (showString "ThreadId " . shows (threadNumber t))

-- | The thread that a stack is, if it is one. This library alone keeps something in stacks.
threadOf :: StackId -> IO (Maybe ThreadId)
threadOf = ownerOf
{-# INLINE threadOf #-}

-- | The thread that this is, if it is one of this library, on a HEC.
threadHere :: IO (Maybe ThreadId)
threadHere = stackHere >>= threadOf . snd

-- | The thread that this is. Where none runs, 'NotOnHEC'.
myThreadId :: IO ThreadId
myThreadId = threadHere >>= maybe (throwIO NotOnHEC) pure

-- | The collector of events for this thread. 'Nothing' on a HEC that is a thread.
eventsHere :: IO (Maybe (Poller, PTM ()))
eventsHere = fmap (\t -> (libraryPoller (threadLibrary t), kickCollector (libraryReady (threadLibrary t)))) <$> threadHere

-- Running ------------------------------------------------------------------------------------

-- | Run a main thread, and all that it forks, on this OS thread and others, the given number in all. Ends
-- when the main thread does, with its result or its exception; the other threads are dropped then, as
-- those of a program of GHC's are. An exception of GHC's for this OS thread is raised in the thread that it runs; where
-- it runs none, it ends the run.
--
-- A HEC runs a thread until it waits, yields or ends. A call that blocks otherwise (a @safe@ foreign
-- call, an 'GHC.MVar' of GHC's) blocks its HEC: 'outside' is for that.
withConcLib :: Int -> IO a -> IO a
withConcLib = withConcLibCollecting ByScheduler

-- | 'withConcLib', told what collects events.
withConcLibCollecting :: Collecting -> Int -> IO a -> IO a
withConcLibCollecting collecting hecs act = do
  library <- newLibrary collecting
  -- GHC tells a HEC that sleeps and that nothing refers to before it looks at the weak pointers by which threads are told.
  bracket (newStablePtr library) freeStablePtr . const $ do
    result <- newPVarIO Nothing
    _ <- forkWith library $ do
      r <- try act
      atomicPTM (writePVar result (Just r) >> ending library)
    flip onException (atomicPTM (ending library)) $ do
      others <- forM ([collectAll library | collecting == ByOwnHEC] <> replicate (hecs - 1) (schedule library)) $ \loop -> do
        end <- GHC.newEmptyMVar
        void . GHC.forkOS $ void (inCallEnding (afterThrow library) loop) `finally` GHC.putMVar end ()
        pure end
      _ <- inCallEnding (afterThrow library) (schedule library)
      forM_ others GHC.takeMVar
      finishRequests (libraryPoller library)
    readPVarIO result >>= maybe (throwIO NotOnHEC) (either (throwIO . named) pure)

-- Threads ------------------------------------------------------------------------------------

numbers :: IORef Int
numbers = unsafePerformIO (newIORef 1)
{-# NOINLINE numbers #-}

-- | A new thread, of the same run, with the masking state of this one. It runs when a HEC is free. An
-- exception that it does not handle is reported on standard error, but for 'ThreadKilled' and
-- 'BlockedIndefinitelyOnMVar'.
forkIO :: IO () -> IO ThreadId
forkIO act = do
  me <- myThreadId
  masking <- getMaskingState
  forkWith (threadLibrary me) $ case masking of
    Unmasked -> deliver >> act
    MaskedInterruptible -> mask_ act
    MaskedUninterruptible -> uninterruptibleMask_ act

-- | 'forkIO', and a function that unmasks.
forkIOWithUnmask :: ((forall a. IO a -> IO a) -> IO ()) -> IO ThreadId
forkIOWithUnmask f = forkIO (f (\io -> unsafeUnmask (deliver >> io)))

forkWith :: Library -> IO () -> IO ThreadId
forkWith library act = do
  number <- atomicModifyIORef' numbers (\n -> (n + 1, n))
  t <- ThreadId number library <$> newPVarIO (Pending [])
  stack <- newStackIn (Just t) id (unsafeUnmask act >> switch (next library))
  lastRites stack t
  atomicPTM (enqueue (libraryReady library) stack)
  pure t

-- | The action of a HEC when an exception has ended a stack that is a thread.
afterThrow :: Library -> StackId -> IO (Maybe (SomeException -> IO ()))
afterThrow library t = fmap (\_ e -> report e >> switch (next library)) <$> threadOf t

-- | Report the exception that ends a thread, but for the two that are no news.
report :: SomeException -> IO ()
report e
  | Just ThreadKilled <- fromException e = pure ()
  | Just BlockedIndefinitelyOnMVar <- fromException e = pure ()
  | otherwise = void (GHC.forkIO (throwIO e))

-- Note [Waiting for ever]
-- ~~~~~~~~~~~~~~~~~~~~~~~
-- A thread that waits is known to what it waits for, and to who has its 'ThreadId'. If the collector finds
-- its stack dead, nobody can wake it any more: a finalizer, which keeps the stack from being
-- collected once more, throws at it, and is there again for its next wait. A thread that has ended waits for nothing, so its
-- finalizer does nothing.

-- | Have a thread told when it waits for ever.
lastRites :: StackId -> ThreadId -> IO ()
lastRites stack@(StackId slots) t = IO $ \s -> case mkWeak# slots () (unIO told) s of (# s1, _ #) -> (# s1, () #)
  where
    told = do
      waited <-
        atomicPTM $
          readPVar (threadAttention t) >>= \case
            Pending _ -> pure False
            Interruptible _ -> post t (toException BlockedIndefinitelyOnMVar)
      when waited (lastRites stack t)

-- | An exception for a thread, which it looks for when it waits or yields, and which ends a wait that can be
-- interrupted. Answers whether it has ended one.
post :: ThreadId -> SomeException -> PTM Bool
post t e =
  readPVar (threadAttention t) >>= \case
    Pending es -> False <$ writePVar (threadAttention t) (Pending (es <> [e]))
    Interruptible w -> writePVar (threadAttention t) (Pending [e]) >> interrupt w

-- | Let the other ready threads run first. An exception that was thrown at this thread is raised
-- here if it is unmasked.
yield :: IO ()
yield = do
  (h, here) <- stackHere
  me <- threadOf here >>= maybe (throwIO NotOnHEC) pure
  switchFrom h here (nextAfter (threadLibrary me) here)
  deliverTo me
{-# OPAQUE yield #-}

-- | Raise what was thrown at this thread, if it is unmasked.
deliver :: IO ()
deliver = myThreadId >>= deliverTo

deliverTo :: ThreadId -> IO ()
deliverTo me =
  readPVarIO (threadAttention me) >>= \case
    Pending (_ : _) -> getMaskingState >>= \masking -> when (masking == Unmasked) (raisePending me)
    _ -> pure ()
{-# INLINE deliverTo #-}

raisePending :: ThreadId -> IO ()
raisePending me = do
  e <-
    atomicPTM $
      readPVar (threadAttention me) >>= \case
        Pending (e : es) -> Just e <$ writePVar (threadAttention me) (Pending es)
        _ -> pure Nothing
  mapM_ raiseAsync e
{-# NOINLINE raisePending #-}

-- | Throw an exception at a thread. It is raised there when the thread waits next or waits already,
-- unless it is masked uninterruptibly, and at its next 'yield' or unmasked wait. Thrown at this thread,
-- here. Does not wait until it was raised, as GHC's does. (Li 2008, section 4.4.3.)
throwTo :: (Exception e) => ThreadId -> e -> IO ()
throwTo t e = do
  me <- myThreadId
  if t == me then raiseAsync e else void (atomicPTM (post t (toException e)))

-- | Throw 'ThreadKilled'.
killThread :: ThreadId -> IO ()
killThread t = throwTo t ThreadKilled

-- Waiting ------------------------------------------------------------------------------------

-- | Perform an operation that may have to wait. The first transaction is the operation. It has a result ('Right'),
-- or has written nothing and answers what the second needs ('Left'), which leaves a waiter with what is
-- waited for; both are one step then. Others run meanwhile: a thread of this library switches to the
-- next in the same step, one that is a HEC sleeps. Interruptible while it waits, unless masked so. If it has to wait
-- elsewhere than on a HEC, 'NotOnHEC'.
--
-- The operation alone comes first, which is all where it has a result: no stack or waiter is needed for that. It is
-- inlined, and so what waits is compiled into the operation: a call of an unknown transaction is dear, because
-- GHC has no common code for functions with its arguments.
performWaiting :: PTM (Either b a) -> (b -> Waiter a -> PTM ()) -> IO a
performWaiting attempt leave =
  atomicPTM attempt >>= \case
    Right a -> pure a
    Left _ -> wait
  where
    wait = do
      (h, here) <- stackHere
      threadOf here >>= \case
        Nothing -> performSleeping attempt leave
        Just me -> do
          w <- performSwitching attempt leave h here me
          resultOf w >>= \case
            -- An operation that has succeeded is not lost to an exception that came later.
            Just a -> pure a
            Nothing -> raisePending me >> wait
{-# INLINE performWaiting #-}

-- | The operation of 'performWaiting' that has nothing to do but to wait until something is so.
succeedsIf :: Bool -> Either () ()
succeedsIf so = if so then Right () else Left ()

-- | Perform it, or wait until the waiter has its result, was interrupted, or would have been at once.
performSwitching :: PTM (Either b a) -> (b -> Waiter a -> PTM ()) -> HEC -> StackId -> ThreadId -> IO (Waiter a)
performSwitching attempt leave h here !me = do
  masking <- getMaskingState
  v <- newPVarIO $! OnStack (libraryReady (threadLibrary me)) here
  switchFrom h here $
    attempt >>= \case
      Right a -> here <$ writePVar v (Given a)
      Left b -> do
        interrupted <- if masking == MaskedUninterruptible then pure False else attend me (Waiter v)
        if interrupted then pure here else leave b (Waiter v) >> next (threadLibrary me)
  pure (Waiter v)
{-# INLINE performSwitching #-}

-- | This is what the thread waits for, if nothing is pending. Answers whether something is.
attend :: ThreadId -> Waiter a -> PTM Bool
attend me w =
  readPVar (threadAttention me) >>= \case
    Pending (_ : _) -> pure True
    _ -> False <$ writePVar (threadAttention me) (Interruptible w)
{-# INLINE attend #-}

-- | On a HEC that is a thread, the exceptions that interrupt are GHC's.
performSleeping :: PTM (Either b a) -> (b -> Waiter a -> PTM ()) -> IO a
performSleeping attempt leave = do
  v <- newPVarIO Interrupted
  let run =
        readPVar v >>= \case
          Given a -> pure a
          Interrupted ->
            attempt >>= \case
              Right a -> pure a
              Left b -> do
                h <- getHEC
                writePVar v (OnHEC h)
                leave b (Waiter v)
                sleepHEC
          _ -> sleepHEC
      -- An operation that has succeeded is not lost to an exception.
      interrupted e =
        atomicPTM (ended v) >>= \case
          Just a -> a <$ postpone e
          Nothing -> throwIO e
  atomicPTM run `catch` interrupted
  where
    ended v =
      readPVar v >>= \case
        Given a -> pure (Just a)
        _ -> Nothing <$ writePVar v Interrupted
{-# NOINLINE performSleeping #-}

-- | Have an exception, which came when something has succeeded, raised here a little later.
postpone :: SomeException -> IO ()
postpone e =
  threadHere >>= \case
    Just t -> void (atomicPTM (post t e))
    Nothing -> GHC.myThreadId >>= \me -> void (GHC.forkIO (GHC.throwTo me e))
