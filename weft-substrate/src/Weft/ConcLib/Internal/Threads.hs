{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Many threads on a few HECs
--
-- A thread is a stack with an identity. Ready threads are in one queue; a HEC that finds it empty goes
-- over to its scheduler stack, which sleeps. All that waits goes through 'performWaiting'. (Li
-- 2008, section 5.2.2.)
module Weft.ConcLib.Internal.Threads
  ( -- * Running
    withConcLib,

    -- * Threads
    ThreadId,
    myThreadId,
    forkIO,
    forkIOWithUnmask,
    yield,
    throwTo,
    killThread,

    -- * Waiting
    Waiter,
    Attempt (..),
    performWaiting,
    wake,
    outside,
    makeReadyFrom,
  )
where

import Control.Concurrent qualified as GHC
import Control.Exception (AsyncException (ThreadKilled), Exception, MaskingState (..), SomeException, catch, fromException, getMaskingState, interruptible, mask, mask_, throwIO, toException, try, uninterruptibleMask_)
import Control.Monad (forM, forM_, unless, void, when)
import Data.IORef (IORef, atomicModifyIORef', newIORef)
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import System.IO.Unsafe (unsafePerformIO)
import Weft.ConcLib.Internal.Queue
import Weft.Substrate

-- | What the threads of one run share.
data Library = Library
  { libraryReady :: !(PVar (Queue StackId)),
    -- | HECs that sleep because nothing is ready.
    libraryIdle :: !(PVar [HEC]),
    -- | The stack of each HEC that sleeps in its place.
    librarySchedulers :: !(PVar (Map HEC StackId)),
    -- | Has the main thread ended?
    libraryOver :: !(PVar Bool)
  }

-- | A thread.
data ThreadId = ThreadId
  { threadNumber :: !Int,
    threadLibrary :: !Library,
    -- | What was thrown at it and not yet raised, the first first.
    threadPending :: !(PVar [SomeException]),
    -- | What it waits for, if that can be interrupted.
    threadWaits :: !(PVar (Maybe Waiter))
  }

instance Eq ThreadId where a == b = threadNumber a == threadNumber b

instance Ord ThreadId where compare a b = compare (threadNumber a) (threadNumber b)

instance Show ThreadId where showsPrec p t = showParen (p > 10) (showString "ThreadId " . shows (threadNumber t))

-- | A thread that waits, once. It is in the queues of what it waits for, and stays there when it was
-- woken: who takes it from there asks whether it still waits ('wake').
data Waiter = Waiter {waiterLives :: !(PVar Bool), waiterStack :: !StackId, waiterThread :: !ThreadId}

self :: SLSKey (Maybe ThreadId)
self = unsafePerformIO (newSLSKey Nothing)
{-# NOINLINE self #-}

-- | The thread that this is. Where none runs, 'NotOnHEC'.
myThreadId :: IO ThreadId
myThreadId = atomicPTM (getSLS self) >>= maybe (throwIO NotOnHEC) pure

-- Running ------------------------------------------------------------------------------------

-- | Run a main thread, and all that it forks, on this OS thread and others, this many in all. Ends
-- when the main thread does, with its result or its exception; the other threads are dropped then, as
-- those of a program of GHC's are.
--
-- A HEC runs a thread until it waits, yields or ends. What blocks otherwise (a @safe@ foreign
-- call, an 'GHC.MVar' of GHC's) blocks its HEC: 'outside' is for that.
withConcLib :: Int -> IO a -> IO a
withConcLib hecs act = do
  library <- Library <$> newPVarIO empty <*> newPVarIO [] <*> newPVarIO Map.empty <*> newPVarIO False
  result <- newPVarIO Nothing
  _ <- forkWith library $ do
    r <- try act
    atomicPTM $ do
      writePVar result (Just r)
      writePVar (libraryOver library) True
      readPVar (libraryIdle library) >>= mapM_ wakeupHEC
  others <- forM [2 .. hecs] $ \_ -> do
    end <- GHC.newEmptyMVar
    void . GHC.forkOS $ void (inCall (schedule library)) `catch` report >> GHC.putMVar end ()
    pure end
  _ <- inCall (schedule library)
  forM_ others GHC.takeMVar
  readPVarIO result >>= maybe (throwIO NotOnHEC) (either (throwIO :: SomeException -> IO a) pure)
  where
    report :: SomeException -> IO ()
    report = throwIO

-- | What the scheduler stack of a HEC does until the main thread has ended: enter who is ready,
-- and sleep while nobody is.
schedule :: Library -> IO ()
schedule library = do
  atomicPTM $ do
    h <- getHEC
    me <- getStackId
    readPVar (librarySchedulers library) >>= writePVar (librarySchedulers library) . Map.insert h me
  go
  where
    go = do
      switch $
        readPVar (libraryOver library) >>= \case
          True -> getStackId
          False ->
            dequeue library >>= \case
              Just t -> pure t
              Nothing -> do
                h <- getHEC
                idle <- readPVar (libraryIdle library)
                unless (h `elem` idle) (writePVar (libraryIdle library) (h : idle))
                sleepHEC
      over <- readPVarIO (libraryOver library)
      unless over go

dequeue :: Library -> PTM (Maybe StackId)
dequeue library =
  readPVar (libraryReady library) >>= \q -> case pop q of
    Just (t, rest) -> Just t <$ writePVar (libraryReady library) rest
    Nothing -> pure Nothing
{-# INLINE dequeue #-}

-- | A stack can run. Wakes a HEC that has nothing to do.
enqueue :: Library -> StackId -> PTM ()
enqueue library t = do
  q <- readPVar (libraryReady library)
  writePVar (libraryReady library) $! push q t
  readPVar (libraryIdle library) >>= \case
    [] -> pure ()
    h : hs -> writePVar (libraryIdle library) hs >> wakeupHEC h
{-# INLINE enqueue #-}

-- | Who runs next on this HEC.
next :: Library -> PTM StackId
next library = do
  over <- readPVar (libraryOver library)
  ready <- if over then pure Nothing else dequeue library
  case ready of
    Just t -> pure t
    Nothing -> do
      h <- getHEC
      (Map.! h) <$> readPVar (librarySchedulers library)

-- Threads ------------------------------------------------------------------------------------

numbers :: IORef Int
numbers = unsafePerformIO (newIORef 1)
{-# NOINLINE numbers #-}

-- | A new thread, of the same run, with the masking state of this one. It runs when a HEC is free. An
-- exception that it does not handle is reported on standard error, but for 'ThreadKilled'.
forkIO :: IO () -> IO ThreadId
forkIO act = do
  me <- myThreadId
  masking <- getMaskingState
  forkWith (threadLibrary me) $ case masking of
    Unmasked -> act
    MaskedInterruptible -> mask_ act
    MaskedUninterruptible -> uninterruptibleMask_ act

-- | 'forkIO', and a function that unmasks.
forkIOWithUnmask :: ((forall a. IO a -> IO a) -> IO ()) -> IO ThreadId
forkIOWithUnmask f = forkIO (f (\io -> interruptible (deliver >> io)))

forkWith :: Library -> IO () -> IO ThreadId
forkWith library act = do
  number <- atomicModifyIORef' numbers (\n -> (n + 1, n))
  t <- ThreadId number library <$> newPVarIO [] <*> newPVarIO Nothing
  stack <- newStack $ do
    setSLS self (Just t)
    r <- try (deliver >> act)
    case r of
      Left e | Just ThreadKilled <- fromException e -> pure ()
      Left e -> void (GHC.forkIO (throwIO (e :: SomeException)))
      Right () -> pure ()
    switch (next library)
  atomicPTM (enqueue library stack)
  pure t

-- | Let the other ready threads run first. An exception that was thrown at this thread is raised
-- here if it is unmasked.
yield :: IO ()
yield = do
  me <- myThreadId
  let library = threadLibrary me
  switch $ do
    q <- readPVar (libraryReady library)
    here <- getStackId
    case pop q of
      Nothing -> pure here
      Just (t, rest) -> t <$ (writePVar (libraryReady library) $! push rest here)
  deliver

-- | Raise what was thrown at this thread, if it is unmasked.
deliver :: IO ()
deliver = do
  masking <- getMaskingState
  when (masking == Unmasked) raisePending

raisePending :: IO ()
raisePending = do
  me <- myThreadId
  e <-
    atomicPTM $
      readPVar (threadPending me) >>= \case
        [] -> pure Nothing
        e : es -> Just e <$ writePVar (threadPending me) es
  forM_ e raiseAsync

-- | Throw an exception at a thread. It is raised there when the thread waits next or waits already,
-- unless it is masked uninterruptibly, and at its next 'yield' or unmasked wait. Thrown at this thread,
-- here. Does not wait until it was raised, as GHC's does. (Li 2008, section 4.4.3.)
throwTo :: (Exception e) => ThreadId -> e -> IO ()
throwTo t e = do
  me <- myThreadId
  if t == me
    then raiseAsync e
    else atomicPTM $ do
      pending <- readPVar (threadPending t)
      writePVar (threadPending t) (pending <> [toException e])
      readPVar (threadWaits t) >>= mapM_ wake

-- | Throw 'ThreadKilled'.
killThread :: ThreadId -> IO ()
killThread t = throwTo t ThreadKilled

-- Waiting ------------------------------------------------------------------------------------

-- | What an operation that may wait answers: its result, or how its waiter and the place of the result
-- are left with what it waits for.
data Attempt a = Got a | Waits (Waiter -> PVar (Maybe a) -> PTM ())

-- | Perform an operation; if it has to wait, switch to another thread in the same step. Who wakes the
-- waiter has written the result before. Interruptible while it waits, unless masked so.
performWaiting :: PTM (Attempt a) -> IO a
performWaiting attempt = do
  me <- myThreadId
  masking <- getMaskingState
  outcome <- newPVarIO Interrupted
  let again = do
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
                  let w = Waiter lives here me
                  leave w place
                  writePVar outcome (Waited place)
                  unless (masking == MaskedUninterruptible) (writePVar (threadWaits me) (Just w))
                  next (threadLibrary me)
        readPVarIO outcome >>= \case
          Had a -> pure a
          Interrupted -> raisePending >> again
          Waited place ->
            atomicPTM (writePVar (threadWaits me) Nothing >> readPVar place) >>= \case
              -- What has succeeded is not lost to an exception that came later.
              Just a -> pure a
              Nothing -> raisePending >> again
  again
{-# INLINE performWaiting #-}

data Progress a = Had a | Interrupted | Waited (PVar (Maybe a))

-- | Wake a waiting thread. Answers whether it still waited.
wake :: Waiter -> PTM Bool
wake w =
  readPVar (waiterLives w) >>= \case
    False -> pure False
    True -> True <$ (writePVar (waiterLives w) False >> enqueue (threadLibrary (waiterThread w)) (waiterStack w))

-- | Give a result to a waiting thread, from any thread of GHC's.
makeReadyFrom :: Waiter -> PVar (Maybe a) -> a -> IO ()
makeReadyFrom w place a = atomicPTM $ do
  lives <- readPVar (waiterLives w)
  when lives (writePVar place (Just a) >> void (wake w))

-- | Perform an action that blocks on a thread of GHC's, and let other threads run meanwhile. An
-- exception that is thrown at this thread is thrown at the action. (An out-call.)
outside :: IO a -> IO a
outside act = do
  started <- newPVarIO Nothing
  done <- newPVarIO Nothing
  waiting <- newPVarIO Nothing
  masking <- getMaskingState
  worker <- mask $ \_ -> GHC.forkIOWithUnmask $ \unmask -> do
    r <- try (if masking == Unmasked then unmask act else act)
    atomicPTM $ do
      writePVar done (Just r)
      readPVar waiting >>= mapM_ (\(w, place) -> writePVar place (Just ()) >> wake w)
  atomicPTM (writePVar started (Just worker))
  let wait =
        performWaiting $
          readPVar done >>= \case
            Just _ -> pure (Got ())
            Nothing -> pure (Waits (\w place -> writePVar waiting (Just (w, place))))
      end = readPVarIO done >>= maybe (wait >> end) (either (throwIO :: SomeException -> IO a) pure)
  wait `catch` \e -> GHC.throwTo worker (e :: SomeException)
  uninterruptibleMask_ end
