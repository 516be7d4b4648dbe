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
    Settings (..),
    defaultSettings,
    Collecting (..),
    withConcLibSettings,

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
import Control.Monad (forM, forM_, void, (>=>))
import Data.IORef (IORef, atomicModifyIORef', newIORef)
import Foreign.StablePtr (freeStablePtr, newStablePtr)
import GHC.IO (unsafeUnmask)
import System.IO.Unsafe (unsafePerformIO)
import Weft.ConcLib.Internal.Attention
import Weft.ConcLib.Internal.Poller (Poller, finishRequests)
import Weft.ConcLib.Internal.Ready (Collecting (..), enqueue, kickCollector)
import Weft.ConcLib.Internal.Scheduler
import Weft.ConcLib.Internal.Waiter
import Weft.Substrate
import Weft.Substrate.Internal.Hec (inCallEnding)
import Weft.Substrate.Internal.Place (hecHere, stackHere, suspendHere)
import Weft.Substrate.Internal.Raise (raiseAgain)
import Weft.Substrate.Internal.Stack (named, newStackIn, switchFrom)
import Weft.Substrate.Internal.Takeover (inCallRuled, leaveHEC)
import Weft.Substrate.Internal.Transaction (unsafeIOToPTM, unsafeWritePVarIO)
import Weft.Substrate.Internal.Types (Governed (..), HEC (..), Rules (..), Successor (..))

-- | The thread that this is. Where none runs, 'NotOnHEC'.
myThreadId :: IO ThreadId
myThreadId = threadHere >>= maybe (throwIO NotOnHEC) pure

-- | The collector of events for this thread. 'Nothing' on a HEC that is a thread.
eventsHere :: IO (Maybe (Poller, PTM ()))
eventsHere = fmap (\t -> (libraryPoller (threadLibrary t), kickCollector (libraryReady (threadLibrary t)))) <$> threadHere

-- Running ------------------------------------------------------------------------------------

-- | The settings of a run.
data Settings = Settings
  { -- | How many HECs run threads, at least one. 1 by default.
    settingHECs :: !Int,
    -- | What collects events. 'ByScheduler' by default.
    settingCollecting :: !Collecting,
    -- | Does a HEC take itself away from a thread that computes, blocks in a foreign call or by a variable of GHC's, or enters
    -- a black hole? The others are delayed by 5 to 16 milliseconds then, and by GHC's time slice of 20 more if all its
    -- capabilities are busy. The thread goes on beside the HEC, and takes its turn again when it next waits or yields. Of
    -- each HEC at most 1,024 threads can be away, each on an OS thread, and about 64 of them compute. 'False' by
    -- default: a HEC runs a thread until it waits, yields or ends.
    settingPreempts :: !Bool
  }

-- | One HEC, which collects events by itself and takes itself away from no thread.
defaultSettings :: Settings
defaultSettings = Settings {settingHECs = 1, settingCollecting = ByScheduler, settingPreempts = False}

-- | Run a main thread, and all that it forks, on this OS thread and others, the given number in all. Ends
-- when the main thread does, with its result or its exception; the other threads are dropped then, as
-- those of a program of GHC's are. What 'Weft.ConcLib.IO.readAt' and 'Weft.ConcLib.IO.writeAt' have begun is waited
-- for, however the run ends: until then the memory is the system's. An exception of GHC's for this OS thread is raised in
-- the thread that it runs; where it runs none, it ends the run.
--
-- A HEC runs a thread until it waits, yields or ends. A call that blocks otherwise (a @safe@ foreign
-- call, an 'GHC.MVar' of GHC's) blocks its HEC: 'outside' is for that, or 'settingPreempts'.
withConcLib :: Int -> IO a -> IO a
withConcLib hecs = withConcLibSettings defaultSettings {settingHECs = hecs}

-- | 'withConcLib', with these settings. With 'settingPreempts' a thread that is away when the run ends goes on until it waits
-- or yields, and an exception of GHC's for this OS thread is raised in the thread that the first HEC runs.
withConcLibSettings :: Settings -> IO a -> IO a
withConcLibSettings settings act = do
  library <- newLibrary (settingCollecting settings)
  -- GHC tells a HEC that sleeps and that nothing refers to before it looks at the weak pointers by which threads are told.
  bracket (newStablePtr library) freeStablePtr . const $ do
    result <- newPVarIO Nothing
    _ <- forkWith library $ do
      r <- try act
      atomicPTM (writePVar result (Just r) >> ending library)
    let hec loop
          | settingPreempts settings = void (inCallRuled True (rules library) (following library) loop)
          | otherwise = cooperative loop
        cooperative = void . inCallEnding (following library)
        others = [cooperative (collectAll library) | settingCollecting settings == ByOwnHEC] <> replicate (settingHECs settings - 1) (hec (schedule library))
        run = do
          ends <- forM others $ \other -> do
            end <- GHC.newEmptyMVar
            end <$ GHC.forkOS (other `finally` GHC.putMVar end ())
          hec (schedule library)
          forM_ ends GHC.takeMVar
    (run `onException` atomicPTM (ending library)) `finally` uninterruptibleMask_ (finishRequests (libraryPoller library))
    readPVarIO result >>= maybe (throwIO NotOnHEC) (either (throwIO . named) pure)

-- | What becomes of threads that are displaced. The scheduler's stacks are not.
rules :: Library -> Rules
rules library =
  Rules
    { rulesHandlers = Handlers {displaced = \_ _ -> next library, returned = \t -> unsafeIOToPTM (threadOf t) >>= mapM_ comesHome >> enqueue (libraryReady library) t},
      rulesLeaves = \raising t -> unsafeIOToPTM (threadOf t) >>= maybe (pure False) (`goesAway` raising),
      rulesArrives = threadOf >=> mapM_ arrives,
      rulesForgotten = threadOf >=> maybe (pure False) (atomicPTM . wakeForgotten)
    }

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
  t <- newThread number library
  stack <- newStackIn (Just t) id (unsafeUnmask act)
  atomicPTM (enqueue (libraryReady library) stack)
  pure t

-- | What a HEC does when a stack has ended that is a thread.
following :: Library -> StackId -> IO (Maybe Successor)
following library = fmap (after <$) . threadOf
  where
    after = Successor report (next library)

-- | Report the exception that ends a thread, but for the two that are no news.
report :: SomeException -> IO ()
report e
  | Just ThreadKilled <- fromException e = pure ()
  | Just BlockedIndefinitelyOnMVar <- fromException e = pure ()
  | otherwise = void (GHC.forkIO (throwIO e))

-- | Let the other ready threads run first. An exception that was thrown at this thread is raised
-- here if it is unmasked.
yield :: IO ()
yield = do
  (h, here) <- stackHere
  me <- threadOf here >>= maybe (throwIO NotOnHEC) pure
  case hecGoverned h of
    Free -> switchFrom h here (nextAfter (threadLibrary me) here) >> deliverTo me
    Governed {} -> anywhere switches staysBehind (`raiseAgain` pure ()) >> deliver
  where
    switches h here me = switchFrom h here (nextAfter (threadLibrary me) here)
    staysBehind _ here me = stayBehind (comesHome me >> enqueue (libraryReady (threadLibrary me)) here)

-- | Where the HEC has handlers: leave it by a switch, or in a lazy value, where GHC cannot capture the stack, by the second
-- way, in which the thread waits on this OS thread, and another carries the HEC. Both are told where they are. An exception
-- is given to the last argument (Note [Lazy values that are left] in "Weft.Substrate.Internal.Raise").
anywhere :: (HEC -> StackId -> ThreadId -> IO a) -> (HEC -> StackId -> ThreadId -> IO a) -> (SomeException -> IO a) -> IO a
anywhere switches staysBehind leaves =
  (Just <$> placed switches) `catch` unlessCaptured >>= maybe (placed staysBehind `catch` leaves) pure
  where
    placed way = do
      (h, here) <- stackHere
      threadOf here >>= maybe (throwIO NotOnHEC) (way h here)
    unlessCaptured e
      | Just CannotSwitch <- fromException e = pure Nothing
      | otherwise = Just <$> leaves e

-- | Leave the HEC, on which this is a thread, to others, and wait on this OS thread until one enters the stack. The
-- transaction suspends it.
stayBehind :: PTM () -> IO ()
stayBehind m = do
  h <- hecHere
  leaveHEC h CallsOut
  suspendHere m

-- | Raise what was thrown at this thread, if it is unmasked.
deliver :: IO ()
deliver = myThreadId >>= deliverTo

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
        Nothing -> performSleeping attempt leave >>= maybe wait pure
        Just me -> do
          w <- case hecGoverned h of
            Free -> (newPVarIO $! onStack me here) >>= performSwitching attempt leave h here me
            Governed {} -> performAnywhere attempt leave
          resultOf w >>= \case
            -- An operation that has succeeded is not lost to an exception that came later.
            Just a -> pure a
            Nothing -> raisePending >> wait
{-# INLINE performWaiting #-}

-- | The operation of 'performWaiting' that has nothing to do but to wait until something is so.
succeedsIf :: Bool -> Either () ()
succeedsIf so = if so then Right () else Left ()

onStack :: ThreadId -> StackId -> Wait a
onStack = OnStack . libraryReady . threadLibrary

-- | Perform it, or wait until the waiter, which begins so, has its result, was interrupted, or would have been at once.
performSwitching :: PTM (Either b a) -> (b -> Waiter a -> PTM ()) -> HEC -> StackId -> ThreadId -> PVar (Wait a) -> IO (Waiter a)
performSwitching attempt leave h here !me v = do
  lastRites here me
  masking <- getMaskingState
  switchFrom h here $
    attempt >>= \case
      Right a -> here <$ writePVar v (Given a)
      Left b -> do
        interrupted <- if masking == MaskedUninterruptible then pure False else attend me (Waiter v)
        if interrupted then pure here else leave b (Waiter v) >> next (threadLibrary me)
  pure (Waiter v)
{-# INLINE performSwitching #-}

-- | 'performSwitching' where the HEC has handlers: also in a lazy value.
performAnywhere :: PTM (Either b a) -> (b -> Waiter a -> PTM ()) -> IO (Waiter a)
performAnywhere attempt leave = do
  v <- newPVarIO Interrupted
  let switches h here me = (unsafeWritePVarIO v $! onStack me here) >> performSwitching attempt leave h here me v
      -- An exception that came when the wait had a result is raised later.
      left e =
        readPVarIO v >>= \case
          Given _ -> Waiter v <$ postpone e
          _ -> raiseAgain e (Waiter <$> newPVarIO Interrupted)
  anywhere switches (behind v) left
  where
    behind v _ here me = do
      let ready = libraryReady (threadLibrary me)
      masking <- getMaskingState
      unsafeWritePVarIO v $! onStack me here
      stayBehind $ do
        comesHome me
        attempt >>= \case
          Right a -> writePVar v (Given a) >> enqueue ready here
          Left b -> do
            interrupted <- if masking == MaskedUninterruptible then pure False else attendAtGate me (Waiter v)
            if interrupted then enqueue ready here else leave b (Waiter v)
      pure (Waiter v)

-- | On a HEC that is a thread, the exceptions that interrupt are GHC's. Without a result it has to begin again.
performSleeping :: PTM (Either b a) -> (b -> Waiter a -> PTM ()) -> IO (Maybe a)
performSleeping attempt leave = do
  v <- newPVarIO Interrupted
  let run =
        readPVar v >>= \case
          Given a -> pure a
          Interrupted ->
            attempt >>= \case
              Right a -> a <$ writePVar v (Given a)
              Left b -> do
                h <- getHEC
                writePVar v (OnHEC h)
                leave b (Waiter v)
                sleepHEC
          _ -> sleepHEC
      -- An operation that has succeeded is not lost to an exception.
      interrupted e =
        atomicPTM (ended v) >>= \case
          Just a -> Just a <$ postpone e
          Nothing -> raiseAgain e (pure Nothing)
  (Just <$> atomicPTM run) `catch` interrupted
  where
    ended v =
      readPVar v >>= \case
        Given a -> pure (Just a)
        _ -> Nothing <$ writePVar v Interrupted

-- | Have an exception, which came when something has succeeded, raised here a little later.
postpone :: SomeException -> IO ()
postpone e =
  threadHere >>= \case
    Just t -> atomicPTM (putBack t e)
    Nothing -> GHC.myThreadId >>= \me -> void (GHC.forkIO (GHC.throwTo me e))
