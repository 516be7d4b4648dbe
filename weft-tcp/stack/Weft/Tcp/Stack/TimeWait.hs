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
    replaceable,
  )
where

import Control.Monad (void)
import Weft.Internal.Data.Timers qualified as Timers
import Weft.Tcp.Connection
import Weft.Tcp.Internal.Small
import Weft.Tcp.Sequence (Seq)
import Weft.Tcp.Stack.Effects
import Weft.Tcp.Stack.Flow
import Weft.Tcp.Stack.Shards
import Weft.Tcp.Stack.State
import Weft.Tcp.Stack.Table qualified as Table

-- | A connection comes to TIME-WAIT, and is about to leave its table. If there are too many of them it is forgotten, as in
-- Linux: the oldest would be no less needed.
enterTimeWait :: Stack -> Flow -> Waiting -> IO ()
enterTimeWait st flow w = do
  n <- timeWaits st
  if n >= tcpMostTimeWait (stackSettings st)
    then count st TimeWaitsDropped
    else at st (deadline (fromWaiting w)) (WaitDue flow) >>= keep st . WaitConn flow w

keep :: Stack -> WaitConn -> IO ()
keep st = Table.insert (stackWaits st)

-- | Give it an input.
advanceWait :: Stack -> Instant -> WaitConn -> Input -> IO ()
advanceWait st now c input = do
  case waitingOf t of
    Nothing -> endWait st c
    Just w
      | deadline t == deadline old -> keep st c {waitTcb = w}
      | otherwise -> do
          timer <- instead st (waitTimer c) (deadline t) (WaitDue (waitFlow c))
          keep st c {waitTcb = w, waitTimer = timer}
  sendBare st (waitFlow c) segments
  where
    old = fromWaiting (waitTcb c)
    Step t segments _ = step now input old

-- | It is over.
endWait :: Stack -> WaitConn -> IO ()
endWait st c = do
  Table.delete (stackWaits st) (waitFlow c)
  void (Timers.cancel (stackTimers st) (waitTimer c))

-- | The connection of this shard in TIME-WAIT whose addresses and ports a new one may have, and the least initial sequence number for
-- that.
replaceable :: Stack -> Instant -> Flow -> IO (Maybe (WaitConn, Seq))
replaceable st now flow = (>>= \c -> (c,) <$> mayFollow now (fromWaiting (waitTcb c))) <$> Table.lookup (stackWaits st) flow
