{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Waiting for time and for descriptors
--
-- GHC's event managers say when it is time, or when a descriptor is ready, each on a thread of its own;
-- they wake the waiter by a transaction. (In Li 2008, section 5.2.2, HECs of their own do this.)
module Weft.ConcLib.Internal.Events (threadDelay, threadWaitRead, threadWaitWrite) where

import Control.Exception (onException)
import Control.Monad (void)
import GHC.Event qualified as GHC
import System.Posix.Types (Fd)
import Weft.ConcLib.Internal.Threads
import Weft.Substrate

-- | Wait for this many microseconds, or a little longer. Other threads run meanwhile. Interruptible.
threadDelay :: Int -> IO ()
threadDelay time = do
  manager <- GHC.getSystemTimerManager
  awaiting (GHC.registerTimeout manager time) (GHC.unregisterTimeout manager)

-- | Wait until a descriptor can be read without blocking. Interruptible. Needs @-threaded@; closing the
-- descriptor meanwhile wakes nobody.
threadWaitRead :: Fd -> IO ()
threadWaitRead = waitFor GHC.evtRead

-- | Wait until a descriptor can be written without blocking; see 'threadWaitRead'.
threadWaitWrite :: Fd -> IO ()
threadWaitWrite = waitFor GHC.evtWrite

waitFor :: GHC.Event -> Fd -> IO ()
waitFor event fd =
  GHC.getSystemEventManager >>= \case
    Nothing -> ioError (userError "threadWaitRead, threadWaitWrite: GHC's event manager is there in programs that are linked with -threaded only")
    Just manager -> awaiting (\wakeUp -> GHC.registerFd manager (\_ _ -> wakeUp) fd event GHC.OneShot) (GHC.unregisterFd manager)

-- | Have somebody call a function, and wait until that was done; if this thread does not wait any
-- more, tell that one.
awaiting :: (IO () -> IO key) -> (key -> IO ()) -> IO ()
awaiting register unregister = do
  done <- newPVarIO False
  waiting <- newPVarIO Nothing
  key <- register $ atomicPTM $ do
    writePVar done True
    readPVar waiting >>= mapM_ (\(w, place) -> writePVar place (Just ()) >> void (wake w))
  performWaiting (readPVar done >>= \d -> pure (if d then Got () else Waits (\w place -> writePVar waiting (Just (w, place))))) `onException` unregister key
