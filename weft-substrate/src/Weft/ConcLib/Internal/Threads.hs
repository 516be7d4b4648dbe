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
    Attempt (..),
    performWaiting,
    postpone,
    eventsHere,
  )
where

import Control.Concurrent qualified as GHC
import Control.Exception (AsyncException (ThreadKilled), BlockedIndefinitelyOnMVar (..), Exception, MaskingState (..), SomeException, bracket, catch, finally, fromException, getMaskingState, mask_, onException, throwIO, toException, try, uninterruptibleMask_)
import Control.Monad (forM, forM_, unless, void, when)
import Data.IORef (IORef, atomicModifyIORef', newIORef)
import Foreign.StablePtr (freeStablePtr, newStablePtr)
import GHC.Exts (mkWeak#)
import GHC.IO (IO (..), unIO, unsafeUnmask)
import System.IO.Unsafe (unsafePerformIO)
import Weft.ConcLib.Internal.Poller (Poller, finishRequests)
import Weft.ConcLib.Internal.Scheduler
import Weft.ConcLib.Internal.Waiter
import Weft.Substrate
import Weft.Substrate.Internal.Types (StackId (..))

-- | A thread.
data ThreadId = ThreadId
  { threadNumber :: !Int,
    threadLibrary :: !Library,
    -- | Exceptions thrown at it and not yet raised, oldest first.
    threadPending :: !(PVar [SomeException]),
    -- | What it waits for, or has last waited for, if that can be interrupted.
    threadWaits :: !(PVar (Maybe Waiter))
  }

instance Eq ThreadId where a == b = threadNumber a == threadNumber b

instance Ord ThreadId where compare a b = compare (threadNumber a) (threadNumber b)

instance Show ThreadId where showsPrec p t = showParen (p > 10) (showString "ThreadId " . shows (threadNumber t))

self :: SLSKey (Maybe ThreadId)
self = unsafePerformIO (newSLSKey Nothing)
{-# NOINLINE self #-}

-- | The thread that this is. Where none runs, 'NotOnHEC'.
myThreadId :: IO ThreadId
myThreadId = getSLSIO self >>= maybe (throwIO NotOnHEC) pure

-- | What collects events for this thread. 'Nothing' on a HEC that is a thread.
eventsHere :: IO (Maybe (Poller, PTM ()))
eventsHere = fmap (\t -> (libraryPoller (threadLibrary t), kickCollector (threadLibrary t))) <$> getSLSIO self

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
        void . GHC.forkOS $ void (inCall loop) `finally` GHC.putMVar end ()
        pure end
      _ <- inCall (schedule library)
      forM_ others GHC.takeMVar
      finishRequests (libraryPoller library)
    readPVarIO result >>= maybe (throwIO NotOnHEC) (either (throwIO :: SomeException -> IO a) pure)

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
  t <- ThreadId number library <$> newPVarIO [] <*> newPVarIO Nothing
  stack <- newStack $ do
    setSLS self (Just t)
    r <- try act
    case r of
      Left e
        | Just ThreadKilled <- fromException e -> pure ()
        | Just BlockedIndefinitelyOnMVar <- fromException e -> pure ()
      Left e -> void (GHC.forkIO (throwIO (e :: SomeException)))
      Right () -> pure ()
    switch (next library)
  lastRites stack t
  atomicPTM (enqueue library stack)
  pure t

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
          readPVar (threadWaits t) >>= \case
            Nothing -> pure False
            Just w -> post t (toException BlockedIndefinitelyOnMVar) >> wake w
      when waited (lastRites stack t)

-- | An exception for a thread, which it looks for when it waits or yields.
post :: ThreadId -> SomeException -> PTM ()
post t e = readPVar (threadPending t) >>= writePVar (threadPending t) . (<> [e])

-- | Let the other ready threads run first. An exception that was thrown at this thread is raised
-- here if it is unmasked.
yield :: IO ()
yield = do
  me <- myThreadId
  switch (getStackId >>= nextAfter (threadLibrary me))
  deliverTo me

-- | Raise what was thrown at this thread, if it is unmasked.
deliver :: IO ()
deliver = myThreadId >>= deliverTo

deliverTo :: ThreadId -> IO ()
deliverTo me =
  readPVarIO (threadPending me) >>= \case
    [] -> pure ()
    _ -> getMaskingState >>= \masking -> when (masking == Unmasked) (raisePending me)

raisePending :: ThreadId -> IO ()
raisePending me = do
  e <-
    atomicPTM $
      readPVar (threadPending me) >>= \case
        [] -> pure Nothing
        e : es -> Just e <$ writePVar (threadPending me) es
  mapM_ raiseAsync e

-- | Throw an exception at a thread. It is raised there when the thread waits next or waits already,
-- unless it is masked uninterruptibly, and at its next 'yield' or unmasked wait. Thrown at this thread,
-- here. Does not wait until it was raised, as GHC's does. (Li 2008, section 4.4.3.)
throwTo :: (Exception e) => ThreadId -> e -> IO ()
throwTo t e = do
  me <- myThreadId
  if t == me
    then raiseAsync e
    else atomicPTM (post t (toException e) >> readPVar (threadWaits t) >>= mapM_ wake)

-- | Throw 'ThreadKilled'.
killThread :: ThreadId -> IO ()
killThread t = throwTo t ThreadKilled

-- Waiting ------------------------------------------------------------------------------------

-- | What an operation that may wait answers: its result, or how its waiter and the place of the result
-- are left with what it waits for.
data Attempt a = Got a | Waits (Waiter -> PVar (Maybe a) -> PTM ())

-- | Perform an operation; if it has to wait, let others run: a thread of this library switches to
-- the next in the same step, one that is a HEC sleeps. The thread that wakes the waiter has written the
-- result before. Interruptible while it waits, unless masked so. Elsewhere than on a HEC, 'NotOnHEC'.
performWaiting :: PTM (Attempt a) -> IO a
performWaiting attempt = getSLSIO self >>= maybe (performSleeping attempt) (performSwitching attempt)
{-# INLINE performWaiting #-}

performSwitching :: PTM (Attempt a) -> ThreadId -> IO a
performSwitching attempt me = do
  masking <- getMaskingState
  outcome <- newPVarIO Interrupted
  let library = threadLibrary me
      again = do
        switch $
          attempt >>= \case
            Got a -> writePVar outcome (Had a) >> getStackId
            Waits leave -> do
              pending <- if masking == MaskedUninterruptible then pure [] else readPVar (threadPending me)
              here <- getStackId
              if not (null pending)
                then here <$ writePVar outcome Interrupted
                else do
                  lives <- newPVar True
                  place <- newPVar Nothing
                  let w = Waiter lives (enqueue library here)
                  leave w place
                  writePVar outcome (Waited place)
                  unless (masking == MaskedUninterruptible) (writePVar (threadWaits me) (Just w))
                  next library
        readPVarIO outcome >>= \case
          Had a -> pure a
          Interrupted -> raisePending me >> again
          Waited place ->
            readPVarIO place >>= \case
              -- An operation that has succeeded is not lost to an exception that came later.
              Just a -> pure a
              Nothing -> raisePending me >> again
  again

data Progress a = Had a | Interrupted | Waited (PVar (Maybe a))

-- | On a HEC that is a thread, the exceptions that interrupt are GHC's.
performSleeping :: PTM (Attempt a) -> IO a
performSleeping attempt = do
  place <- newPVarIO Nothing
  lives <- newPVarIO False
  let run =
        readPVar place >>= \case
          Just a -> pure a
          Nothing ->
            readPVar lives >>= \case
              True -> sleepHEC
              False ->
                attempt >>= \case
                  Got a -> pure a
                  Waits leave -> do
                    h <- getHEC
                    writePVar lives True
                    leave (Waiter lives (wakeupHEC h)) place
                    sleepHEC
      -- An operation that has succeeded is not lost to an exception.
      interrupted e = do
        atomicPTM (writePVar lives False)
        readPVarIO place >>= maybe (throwIO e) (<$ postpone e)
  atomicPTM run `catch` interrupted

-- | Have an exception, which came when something has succeeded, raised here a little later.
postpone :: SomeException -> IO ()
postpone e =
  getSLSIO self >>= \case
    Just t -> atomicPTM (post t e)
    Nothing -> GHC.myThreadId >>= \me -> void (GHC.forkIO (GHC.throwTo me e))
