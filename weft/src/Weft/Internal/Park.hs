{-# OPTIONS_GHC -O2 #-}
-- Taking control blocks apart, to pass their fields, builds them anew wherever a thread
-- is parked: 80 bytes. (As in "Weft.Internal.Scheduler".)
{-# OPTIONS_GHC -fno-spec-constr #-}

-- |
-- Description : Parking a thread until another thread answers
-- Stability   : not home
--
-- What 'Weft.Kernel.suspend' does by a system call, for waits that only threads of
-- the run end: the operation that must wait parks its thread at once, with what the
-- worker offers to every thread, and asks no kernel. Called on workers only.
--
-- Against the system call this saves a node, a second attempt and the closures of a
-- general waiter, and the worker is known: what is handed over to a thread of the same
-- worker does not go through its inbox.
module Weft.Internal.Park
  ( Waiter,
    waitFor,
    deliverFrom,
    Outcome (..),
  )
where

import Control.Exception (toException)
import Control.Monad (when)
import Control.Monad.Primitive (RealWorld)
import Data.Primitive.PrimVar
import Weft.Internal.Cancel
import Weft.Internal.Kernel (resumeAs)
import Weft.Internal.Slots qualified as Slots
import Weft.Internal.SystemCall hiding (Waiter, deliverFrom)
import Weft.Internal.Trace

-- | The right to answer one parked thread, once.
data Waiter a = Waiter
  { waiterHome :: !Home,
    waiterTcb :: !Tcb,
    waiterNext :: a -> Trace,
    -- | Where dumps find it.
    waiterKey :: {-# UNPACK #-} !Slots.Key,
    -- | 1 when it was answered or has withdrawn.
    waiterOver :: {-# UNPACK #-} !(PrimVar RealWorld Int)
  }

-- | Park this thread. The action leaves the waiter where it will be found, or answers
-- it at once; its answer takes the waiter back when the wait is cancelled. Neither
-- may throw.
waitFor :: Home -> Tcb -> Reason -> (a -> Trace) -> (Waiter a -> IO (IO ())) -> IO Trace
waitFor home tcb reason k leave = do
  over <- newPrimVar 0
  since <- readPrimVar (homeClock home)
  key <- Slots.insert (homeWaits home) (Wait tcb (Suspend reason (\_ -> pure (pure ()))) since)
  let !waiter = Waiter home tcb k key over
  takeBack <- leave waiter
  interruptible tcb $ do
    won <- claim waiter
    when won $ do
      takeBack
      orInterrupted tcb (\_ -> Throw (toException Cancelled)) >>= arrive waiter
  pure Parked
{-# OPAQUE waitFor #-}

claim :: Waiter a -> IO Bool
claim waiter = (== 0) <$> casInt (waiterOver waiter) 0 1
{-# INLINE claim #-}

-- On the thread's home.
arrive :: Waiter a -> Resume -> IO ()
arrive waiter resume = do
  _ <- Slots.take (homeWaits (waiterHome waiter)) (waiterKey waiter)
  homeReady (waiterHome waiter) Woken (waiterTcb waiter) resume

-- | Deliver the outcome, on the worker with this index. False if the thread was
-- answered before, or was cancelled; then nothing happens.
deliverFrom :: Waiter a -> Int -> Outcome a -> IO Bool
deliverFrom waiter here outcome = do
  won <- claim waiter
  when won $
    if here == homeWorker (waiterHome waiter)
      then arrive waiter (resumeAs (waiterNext waiter) outcome)
      else homePost (waiterHome waiter) (arrive waiter (resumeAs (waiterNext waiter) outcome))
  pure won
{-# OPAQUE deliverFrom #-}
