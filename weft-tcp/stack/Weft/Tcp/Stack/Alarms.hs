{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Timers of a stack fire
--
-- Runs in the stack's turn ("Weft.Tcp.Stack.Turn").
module Weft.Tcp.Stack.Alarms (fireTimers) where

import Data.ByteString qualified as B
import Data.IORef
import Weft.Internal.Core.Home (Home)
import Weft.Internal.Data.Timers qualified as Timers
import Weft.Tcp.Connection
import Weft.Tcp.Stack.Engine
import Weft.Tcp.Stack.HalfOpen
import Weft.Tcp.Stack.State
import Weft.Tcp.Stack.Table qualified as Table
import Weft.Tcp.Stack.TimeWait

-- | Do what is due, 256 times at most, so that others have their turn in between. Answers when the next is.
fireTimers :: Stack -> Maybe Home -> Instant -> IO Instant
fireTimers st here now = do
  _ <- Timers.popAtMost 256 (stackTimers st) now $ \case
    Expiry w -> wake here w
    Deadline c -> do
      count st TimersFired
      b <- readBody c
      if deadline (bodyTcb b) <= now
        then advanceFrom st here now c b {bodyAlarm = NoAlarm} Due B.empty
        else alarmFor st c NoAlarm (bodyTcb b) >>= \alarm -> writeBody c b {bodyAlarm = alarm}
      restIfIdle c
    -- The timers of small records are those of their deadlines.
    HalfDue flow -> stackHalves `has` flow $ \c -> advanceHalf st here now c Due B.empty
    WaitDue flow -> stackWaits `has` flow $ \c -> advanceWait st now c Due
  next <- Timers.nextDeadline (stackTimers st)
  next <$ atomicWriteIORef (stackSoonest st) next
  where
    has table flow use = do
      count st TimersFired
      Table.lookup (table st) flow >>= mapM_ use
