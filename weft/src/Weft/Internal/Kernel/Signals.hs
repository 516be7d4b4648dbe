-- |
-- Description : The system kernel's signals
-- Stability   : not home
--
-- A registry, one for the process, of who subscribes to which signal. GHC runs a
-- signal's handler on an ordinary GHC thread; it hands the signal to every
-- subscription, which keeps it or wakes the thread that waits for it.
module Weft.Internal.Kernel.Signals
  ( openSignals,
    nextSignal,
    closeSignals,
  )
where

import Control.Concurrent.MVar
import Control.Exception (onException, toException)
import Control.Monad (unless, void)
import Data.Foldable (for_)
import Data.IORef
import Data.List (nub)
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Foreign.C.Error (eINVAL, errnoToIOError)
import System.IO.Unsafe (unsafePerformIO)
import System.Posix.Signals qualified as Posix
import Weft.Internal.SystemCall

-- | The subscriptions to each signal, and what handled it before the first.
type Registry = Map SignalNumber (Posix.Handler, [Signals])

registry :: MVar Registry
registry = unsafePerformIO (newMVar Map.empty)
{-# NOINLINE registry #-}

-- | Subscribe. From now until 'closeSignals' these signals do not have their
-- default effect.
openSignals :: [SignalNumber] -> IO Signals
openSignals several = do
  let wanted = nub several
  -- GHC does not tell that the system has refused a handler.
  for_ (filter unheard wanted) $ \n ->
    ioError (errnoToIOError ("subscribe to signal " <> show n) eINVAL Nothing Nothing)
  subscription <- Signals wanted <$> newIORef (Right [])
  -- One that fails undoes the others.
  subscription <$ mapM_ (modifyMVar_ registry . add subscription) wanted `onException` closeSignals subscription
  where
    unheard n = n < 1 || n > 64 || n `elem` [Posix.sigKILL, Posix.sigSTOP]
    add subscription n known = case Map.lookup n known of
      Just (before, others) -> pure (Map.insert n (before, subscription : others) known)
      Nothing -> do
        before <- Posix.installHandler n (Posix.Catch (arrived n)) Nothing
        pure (Map.insert n (before, [subscription]) known)

arrived :: SignalNumber -> IO ()
arrived n = do
  known <- readMVar registry
  for_ (Map.lookup n known) $ \(_, subscriptions) -> for_ subscriptions give
  where
    give s = do
      waiting <- atomicModifyIORef' (signalsState s) $ \case
        Left waiter -> (Right [], Just waiter)
        Right kept -> (Right (take limit (kept <> [n])), Nothing)
      -- A waiter that was cancelled in this moment does not take it.
      for_ waiting $ \w -> deliver w (Answered n) >>= \taken -> unless taken (give s)
    -- Signals that nobody takes must not fill the memory; the system would merge
    -- them, too.
    limit = 1000

-- | Take the oldest signal that has arrived, or leave the waiter for the next. At
-- most one thread waits on a subscription: an earlier one fails. Answers how to take
-- the waiter back.
nextSignal :: Signals -> Waiter SignalNumber -> IO (IO ())
nextSignal s waiter = do
  (taken, replaced) <- atomicModifyIORef' (signalsState s) $ \case
    Right (n : rest) -> (Right rest, (Just n, Nothing))
    Right [] -> (Left waiter, (Nothing, Nothing))
    Left earlier -> (Left waiter, (Nothing, Just earlier))
  for_ taken (deliver waiter . Answered)
  for_ replaced $ \w -> deliver w (refusal "another thread waits for these signals now")
  -- Only one waiter is kept, and the one that was withdrawn answers nobody: if it
  -- stands there it may go, and if another does that one stays.
  pure . atomicModifyIORef' (signalsState s) $ \case
    Left _ | null taken -> (Right [], ())
    other -> (other, ())

-- | Unsubscribe; a thread that waits fails.
closeSignals :: Signals -> IO ()
closeSignals s = do
  modifyMVar_ registry $ \known -> foldr (\n act -> act >>= remove n) (pure known) (signalsWanted s)
  waiting <- atomicModifyIORef' (signalsState s) (Right [],)
  either (\w -> void (deliver w (refusal "the subscription to signals was closed"))) (\_ -> pure ()) waiting
  where
    remove n known = case Map.lookup n known of
      Nothing -> pure known
      Just (before, subscriptions) -> case filter ((/= signalsState s) . signalsState) subscriptions of
        [] -> Map.delete n known <$ Posix.installHandler n before Nothing
        rest -> pure (Map.insert n (before, rest) known)

refusal :: String -> Outcome a
refusal = Failed . toException . userError
