{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Connections in TIME-WAIT
--
-- No socket has them, so that a small record in a table of its own is all. Everything here runs in the
-- stack's turn ("Weft.Tcp.Stack.Turn").
module Weft.Tcp.Stack.TimeWait
  ( enterTimeWait,
    advanceWait,
    endWait,
  )
where

import Control.Monad (void)
import Data.IORef
import Data.IntMap.Strict qualified as IntMap
import Weft.Internal.Data.Timers qualified as Timers
import Weft.Tcp.Connection
import Weft.Tcp.Internal.Small
import Weft.Tcp.Stack.Effects
import Weft.Tcp.Stack.Flow
import Weft.Tcp.Stack.State

-- | A connection comes to TIME-WAIT and is in no table. If there are too many of them it is forgotten, as in
-- Linux: the oldest would be no less needed.
enterTimeWait :: Stack -> Int -> Flow -> Waiting -> IO ()
enterTimeWait st key flow w = do
  n <- readIORef (stackWaitCount st)
  if n >= tcpMostTimeWait (stackSettings st)
    then count st TimeWaitsDropped
    else do
      writeIORef (stackWaitCount st) $! n + 1
      timer <- at st (deadline (fromWaiting w)) (WaitDue key)
      keep st key (WaitConn flow w timer)

keep :: Stack -> Int -> WaitConn -> IO ()
keep st key !c = modifyIORef' (stackWaits st) (IntMap.insert key c)

-- | Give it an input.
advanceWait :: Stack -> Instant -> Int -> WaitConn -> Input -> IO ()
advanceWait st now key c input = do
  case waitingOf t of
    Nothing -> endWait st key c
    Just w
      | deadline t == deadline old -> keep st key c {waitTcb = w}
      | otherwise -> do
          timer <- instead st (waitTimer c) (deadline t) (WaitDue key)
          keep st key c {waitTcb = w, waitTimer = timer}
  sendBare st (waitFlow c) segments
  where
    old = fromWaiting (waitTcb c)
    Step t segments _ = step now input old

-- | It is over.
endWait :: Stack -> Int -> WaitConn -> IO ()
endWait st key c = do
  modifyIORef' (stackWaits st) (IntMap.delete key)
  modifyIORef' (stackWaitCount st) (subtract 1)
  void (Timers.cancel (stackTimers st) (waitTimer c))
