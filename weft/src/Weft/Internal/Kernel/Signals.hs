{-# OPTIONS_HADDOCK not-home #-}

-- | The system kernel's signals: the process's registry of subscriptions. GHC runs a signal's handler on a
-- thread of its own, which hands the signal to every subscription; that keeps it or wakes its waiting thread.
module Weft.Internal.Kernel.Signals (openSignals, nextSignal, closeSignals, isUnheard, giveSignal, endSubscription, wasClosed) where

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
import Weft.Internal.Core.SystemCall

-- | The subscriptions to each signal, and the handler from before the first.
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
  for_ (filter isUnheard wanted) $ \n ->
    ioError (errnoToIOError ("subscribe to signal " <> show n) eINVAL Nothing Nothing)
  subscription <- Signals wanted <$> newIORef (Arrived [])
  -- One that fails undoes the others.
  subscription <$ mapM_ (modifyMVar_ registry . add subscription) wanted `onException` closeSignals subscription
  where
    add subscription n known = case Map.lookup n known of
      Just (before, others) -> pure (Map.insert n (before, subscription : others) known)
      Nothing -> do
        before <- Posix.installHandler n (Posix.Catch (arrived n)) Nothing
        pure (Map.insert n (before, [subscription]) known)

-- | Does the system refuse a handler for it?
isUnheard :: SignalNumber -> Bool
isUnheard n = n < 1 || n > 64 || n `elem` [Posix.sigKILL, Posix.sigSTOP]

-- | Hand a signal out: one at a time, although each comes on a thread of its own.
arrived :: SignalNumber -> IO ()
arrived n = withMVar registry $ \known ->
  for_ (Map.lookup n known) $ \(_, subscriptions) -> for_ subscriptions (giveSignal n)

-- | Keep a signal for a subscription, or wake the thread that waits for it.
giveSignal :: SignalNumber -> Signals -> IO ()
giveSignal n s = do
  waiting <- atomicModifyIORef' (signalsState s) $ \case
    Expected _ waiter -> (Arrived [], Just waiter)
    Arrived kept -> (Arrived (take limit (kept <> [n])), Nothing)
    Unsubscribed -> (Unsubscribed, Nothing)
  -- A waiter that was cancelled in this moment does not take it.
  for_ waiting $ \w -> deliver w (Answered n) >>= \taken -> unless taken (giveSignal n s)
  where
    -- Signals that no thread takes must not fill the memory.
    limit = 1000

-- | Take the oldest signal that has arrived, or leave the waiter for the next; an earlier waiter fails,
-- and so does one that comes after the close. Answers how to take the waiter back.
nextSignal :: Signals -> Waiter SignalNumber -> IO (IO ())
nextSignal s waiter = do
  me <- newIORef ()
  answers <- atomicModifyIORef' (signalsState s) $ \case
    Arrived (n : rest) -> (Arrived rest, [(waiter, Answered n)])
    Arrived [] -> (Expected me waiter, [])
    Expected _ earlier -> (Expected me waiter, [(earlier, refusal "another thread waits for these signals now")])
    Unsubscribed -> (Unsubscribed, [(waiter, refusal wasClosed)])
  for_ answers (uncurry deliver)
  -- Another thread may have come to wait there meanwhile; it stays.
  pure . atomicModifyIORef' (signalsState s) $ \case
    Expected who _ | who == me -> (Arrived [], ())
    other -> (other, ())

-- | Unsubscribe; a thread that waits fails, and so does a later one.
closeSignals :: Signals -> IO ()
closeSignals s = do
  modifyMVar_ registry $ \known -> foldr (\n act -> act >>= remove n) (pure known) (signalsWanted s)
  endSubscription wasClosed s
  where
    remove n known = case Map.lookup n known of
      Nothing -> pure known
      Just (before, subscriptions) -> case filter ((/= signalsState s) . signalsState) subscriptions of
        [] -> Map.delete n known <$ Posix.installHandler n before Nothing
        rest -> pure (Map.insert n (before, rest) known)

-- | A thread that waits on the subscription fails for this reason, and a later one fails.
endSubscription :: String -> Signals -> IO ()
endSubscription why s =
  atomicModifyIORef' (signalsState s) (Unsubscribed,) >>= \case
    Expected _ waiter -> void (deliver waiter (refusal why))
    _ -> pure ()

wasClosed :: String
wasClosed = "the subscription to signals was closed"

refusal :: String -> Outcome a
refusal = Failed . toException . userError
