{-# OPTIONS_GHC -O2 #-}

-- |
-- Description : A concurrency library: each thread an OS thread
--
-- Threads are HECs with one stack each. What blocks blocks its OS thread, so every foreign call may block;
-- waiting for a variable is 'sleepHEC' inside of a transaction. (ConcLib_OS of Li 2008, section
-- 5.2.1.)
module Weft.ConcLib.OS
  ( -- * Threads
    withConcLib,
    ThreadId,
    myThreadId,
    forkIO,
    yield,
    throwTo,
    killThread,
    threadDelay,

    -- * Variables
    MVar,
    newMVar,
    newEmptyMVar,
    takeMVar,
    putMVar,
    tryTakeMVar,
    tryPutMVar,
  )
where

import Control.Concurrent (ThreadId, forkOS, killThread, myThreadId, threadDelay, throwTo, yield)
import Control.Exception (onException)
import Control.Monad (unless, void)
import Data.Maybe (isJust)
import Weft.ConcLib.Internal.Queue
import Weft.Substrate

-- | Run an action as a thread of this library.
withConcLib :: IO a -> IO a
withConcLib act = inCall act >>= maybe (ioError (userError "the main thread has switched to another stack")) pure

-- | A new thread: an OS thread with a HEC. What it throws is reported as by GHC's 'forkOS'.
forkIO :: IO () -> IO ThreadId
forkIO act = forkOS (void (inCall act))

-- | A place for one value, or none, with those who wait to take and to put. A thread that comes by may be
-- faster than one that was woken, so it is not fair.
newtype MVar a = MVar (PVar (State a))

data State a = State (Maybe a) !(Queue Sleeper) !(Queue Sleeper)

-- | A HEC, and whether it still waits for this.
data Sleeper = Sleeper HEC (PVar Bool)

instance Eq (MVar a) where MVar a == MVar b = a == b

-- | One that is full.
newMVar :: a -> IO (MVar a)
newMVar a = MVar <$> newPVarIO (State (Just a) empty empty)

-- | One that is empty.
newEmptyMVar :: IO (MVar a)
newEmptyMVar = MVar <$> newPVarIO (State Nothing empty empty)

-- | Take the value; wait for one. Interruptible while it waits.
takeMVar :: MVar a -> IO a
takeMVar m@(MVar v) = waiting leave pass (taking m)
  where
    leave w = readPVar v >>= \(State a takers putters) -> writePVar v (State a (push takers w) putters)
    pass =
      readPVar v >>= \(State a takers putters) -> case a of
        Just _ -> first takers >>= \ts -> writePVar v (State a ts putters)
        Nothing -> pure ()

-- | Put a value; wait until there is none. Interruptible while it waits.
putMVar :: MVar a -> a -> IO ()
putMVar m@(MVar v) a = waiting leave pass ((\put -> if put then Just () else Nothing) <$> putting m a)
  where
    leave w = readPVar v >>= \(State b takers putters) -> writePVar v (State b takers (push putters w))
    pass =
      readPVar v >>= \(State b takers putters) -> case b of
        Nothing -> first putters >>= writePVar v . State b takers
        Just _ -> pure ()

-- | Sleep until an attempt succeeds, after leaving this HEC where it will be woken. An exception that
-- comes when it was woken already passes the wake-up on.
waiting :: (Sleeper -> PTM ()) -> PTM () -> PTM (Maybe a) -> IO a
waiting leave pass attempt = do
  waits <- newPVarIO False
  let run =
        attempt >>= \case
          Just a -> a <$ writePVar waits False
          Nothing -> do
            left <- readPVar waits
            unless left $ do
              h <- getHEC
              writePVar waits True
              leave (Sleeper h waits)
            sleepHEC
      interrupted = readPVar waits >>= \left -> if left then writePVar waits False else pass
  atomicPTM run `onException` atomicPTM interrupted

-- | Take the value if there is one. Does not wait.
tryTakeMVar :: MVar a -> IO (Maybe a)
tryTakeMVar = atomicPTM . taking

-- | Put a value if there is none. Does not wait.
tryPutMVar :: MVar a -> a -> IO Bool
tryPutMVar m = atomicPTM . putting m

taking :: MVar a -> PTM (Maybe a)
taking (MVar v) = do
  State a takers putters <- readPVar v
  if isJust a then a <$ (first putters >>= writePVar v . State Nothing takers) else pure Nothing

putting :: MVar a -> a -> PTM Bool
putting (MVar v) b = do
  State a takers putters <- readPVar v
  if isJust a then pure False else True <$ (first takers >>= \ts -> writePVar v (State (Just b) ts putters))

-- | Wake the first that still waits.
first :: Queue Sleeper -> PTM (Queue Sleeper)
first q = case pop q of
  Nothing -> pure empty
  Just (Sleeper h waits, rest) ->
    readPVar waits >>= \case
      True -> rest <$ (writePVar waits False >> wakeupHEC h)
      False -> first rest
