{-# OPTIONS_HADDOCK not-home #-}

-- | Threads of GHC's that perform plain 'IO' for the threads of one worker ("Weft.Outside").
module Weft.Internal.Core.Guests (Guests, newGuests, engage, expect, takeExpected) where

import Control.Concurrent (forkIO)
import Control.Concurrent.MVar
import Control.Exception (try, uninterruptibleMask_)
import Control.Monad (join, void, when)
import Control.Monad.Primitive (RealWorld)
import Data.Foldable (for_)
import Data.IORef
import Data.Primitive.PrimVar
import Weft.Internal.Os.AtEnd (AtEnd, register)
import Weft.Internal.Os.Masked (interruptiblyMasked, receivePending, reportStray)

-- Note [Guests are kept]
-- ~~~~~~~~~~~~~~~~~~~~~~
-- A guest that is done waits for more work on a variable of its own. Not because of the price of a
-- fork: `forkIO` has GHC switch threads soon afterwards, and a switch from a carrier, a bound thread,
-- goes through the operating system. To wake a waiting thread does not do that: the worker wakes a
-- whole batch, and lets it run when it has nothing else to do.

data Guests = Guests
  { -- | Not 0: some have become ready since the worker let them run.
    guestsExpected :: !(PrimVar RealWorld Int),
    guestsIdle :: !(IORef Idle)
  }

data Idle
  = -- | There was none yet.
    Unused
  | Idle !Int [GuestBox]
  | -- | The run is over.
    Closed

-- | Where a guest waits for work, or for the order to leave.
type GuestBox = MVar (Maybe (IO ()))

newGuests :: IO Guests
newGuests = Guests <$> newPrimVar 0 <*> newIORef Unused

-- | Have this done by a thread of GHC's, soon; masked uninterruptibly. It must not throw. On the worker.
engage :: AtEnd -> Guests -> IO () -> IO ()
engage end guests work = do
  expect guests
  join . atomicModifyIORef' (guestsIdle guests) $ \case
    Idle n (box : boxes) -> (Idle (n - 1) boxes, putMVar box (Just work))
    Unused -> (Idle 0 [], register end (close guests) >> begin)
    other -> (other, begin)
  where
    begin = uninterruptibleMask_ . void $ forkIO (newEmptyMVar >>= serve guests work)

-- | An exception that is thrown at a guest while it waits was meant for what it did before, and is dropped.
serve :: Guests -> IO () -> GuestBox -> IO ()
serve guests work box = do
  work
  receivePending stray
  stays <- atomicModifyIORef' (guestsIdle guests) $ \case
    Idle n boxes | n < most -> (Idle (n + 1) (box : boxes), True)
    other -> (other, False)
  when stays next
  where
    next =
      try (interruptiblyMasked (takeMVar box)) >>= \case
        Right (Just work') -> serve guests work' box
        Right Nothing -> pure ()
        Left e -> stray e >> next
    stray = reportStray "a thread of onGhcThread"
    -- A kilobyte each.
    most = 256 :: Int

-- | The run is over: idle guests leave now, busy ones when they are done.
close :: Guests -> IO ()
close guests =
  atomicModifyIORef' (guestsIdle guests) (Closed,) >>= \case
    Idle _ boxes -> for_ boxes (`putMVar` Nothing)
    _ -> pure ()

-- | Work for this worker's threads has become ready. From any OS thread.
expect :: Guests -> IO ()
expect guests = writePrimVar (guestsExpected guests) 1

-- | Has 'expect' been called since the last look? On the worker.
takeExpected :: Guests -> IO Bool
takeExpected guests =
  readPrimVar (guestsExpected guests) >>= \case
    0 -> pure False
    _ -> True <$ writePrimVar (guestsExpected guests) 0
