{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_GHC -O2 #-}

-- |
-- Description : Shared state that threads of several workers change
-- Stability   : not home
--
-- A variable that is changed atomically ('changing'), threads that wait until it
-- says something ('waitFor'), and the simplest such thing: a 'Cell', which is filled
-- once. Scopes, races and results of children are made of these. Called from any
-- worker.
module Weft.Internal.Cell
  ( -- * Atomic changes
    changing,

    -- * Waiting
    Ticket,
    Awaiting (..),
    waitFor,

    -- * Cells
    Cell,
    newCell,
    fillCell,
    readCell,
    onCell,
  )
where

import Control.Monad (void)
import Control.Monad.Primitive (RealWorld)
import Data.Foldable (for_)
import Data.IORef
import Data.Primitive.MutVar
import GHC.Exts (casMutVar#)
import GHC.IO (IO (..))
import Weft.Internal.Choice
import Weft.Internal.Park qualified as Park
import Weft.Internal.SystemCall
import Weft.Internal.Trace

-- | Change a variable in one atomic step. The function may run several times, and
-- its new value is evaluated before it is stored: nobody finds a thunk there, whose
-- evaluation by another OS thread one would have to wait for.
--
-- The variable's type is not known here, so that what was read is compared as it
-- was read, and not taken apart and put together.
changing :: MutVar RealWorld s -> (s -> (s, r)) -> IO r
changing var f = readMutVar var >>= go
  where
    go old = do
      let (!new, r) = f old
      (won, found) <- swapIf old new
      if won then pure r else go found
    swapIf old new = case var of
      MutVar v -> IO $ \s -> case casMutVar# v old new s of
        (# s', 0#, _ #) -> (# s', (True, new) #)
        (# s', _, found #) -> (# s', (False, found) #)
{-# NOINLINE changing #-}

-- | Names one wait, so that it can be taken back.
type Ticket = IORef ()

-- | A thread that waits, and the name of the wait.
data Awaiting a = Awaiting !Ticket !(Waiter a)

-- | Wait until there is an answer. The first function answers from the state, or adds
-- the waiter to it; the second removes it, when the wait was cancelled. Interruptible.
waitFor :: Reason -> MutVar RealWorld s -> (Awaiting a -> s -> (s, Maybe a)) -> (Ticket -> s -> s) -> Thread a
waitFor reason var enter leave = call . Suspend reason $ \waiter -> do
  ticket <- newIORef ()
  changing var (enter (Awaiting ticket waiter)) >>= \case
    Just a -> pure () <$ deliver waiter (Answered a)
    Nothing -> pure (changing var (\s -> (leave ticket s, ())))
{-# INLINE waitFor #-}

-- | A value that comes once.
newtype Cell a = Cell (MutVar RealWorld (Content a))

data Content a = Empty [Awaiting a] | Full a

-- | Empty.
newCell :: IO (Cell a)
newCell = Cell <$> newMutVar (Empty [])

-- | Fill a cell and wake who waits; false if it was full. As the worker with this
-- index, outside user code, or as 'anyThread'. The value is not evaluated.
fillCell :: Int -> Cell a -> a -> IO Bool
fillCell from (Cell var) a = do
  waiting <- changing var $ \case
    Empty waiters -> (Full a, Just waiters)
    full -> (full, Nothing)
  case waiting of
    Nothing -> pure False
    Just waiters -> True <$ for_ (reverse waiters) (\(Awaiting _ w) -> void (deliverFrom w from (Answered a)))

-- | Wait until it is full.
readCell :: Reason -> Cell a -> Thread a
readCell reason (Cell var) =
  internal (\_ _ -> readMutVar var) >>= \case
    Full a -> pure a
    Empty _ -> waitFor reason var queueUp withdraw

queueUp :: Awaiting a -> Content a -> (Content a, Maybe a)
queueUp me = \case
  Empty others -> (Empty (me : others), Nothing)
  full@(Full a) -> (full, Just a)

withdraw :: Ticket -> Content a -> Content a
withdraw ticket = \case
  Empty others -> Empty (filter (\(Awaiting t _) -> t /= ticket) others)
  full -> full

-- | To find it full, as one of several things. Whoever fills it may be no worker, and
-- then sends a message: that the wait may be over when it comes does no harm, since nothing
-- is taken out of a cell.
onCell :: Reason -> Cell a -> Choice a
onCell reason (Cell var) = Choice (Park.wishFor 0 reason) now () join pure
  where
    now _ =
      readMutVar var >>= \case
        Full a -> pure (Got a)
        Empty _ -> pure Later
    join home place = do
      ticket <- newIORef ()
      there <- changing var (queueUp (Awaiting ticket (Waiter (told home place))))
      pure $ case there of
        Just _ -> Nothing
        Nothing -> Just (\_ -> changing var (\s -> (withdraw ticket s, ())))
    told home place from outcome
      | from == homeWorker home = reply home place outcome
      | otherwise = True <$ homePost home (void (reply home place outcome))
    reply home place = \case
      Answered a -> Park.answer home place a
      Failed e -> Park.refuse home place e
