{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Timers of a stack fire
--
-- Runs in the stack's turn ("Weft.Tcp.Stack.Turn").
module Weft.Tcp.Stack.Alarms (fireTimers) where

import Data.ByteString qualified as B
import Data.IORef
import Data.IntMap.Strict qualified as IntMap
import Weft.Internal.Core.Home (Home)
import Weft.Internal.Data.Timers qualified as Timers
import Weft.Tcp.Connection
import Weft.Tcp.Stack.Engine
import Weft.Tcp.Stack.HalfOpen
import Weft.Tcp.Stack.State
import Weft.Tcp.Stack.TimeWait

-- | Do what is due, 256 times at most, so that others have their turn in between. Answers when the next is.
fireTimers :: Stack -> Maybe Home -> Instant -> IO Instant
fireTimers st here now = do
  _ <- Timers.popAtMost 256 (stackTimers st) now $ \case
    Expiry w -> wake here w
    Deadline c -> do
      count st TimersFired
      b <- readIORef (connBody c)
      let b' = b {bodyAlarm = never, bodyAlarmKey = Nothing}
      writeIORef (connBody c) b'
      if deadline (bodyTcb b) <= now
        then advanceConn st here now c Due B.empty
        else setAlarm st (Deadline c) b' >>= writeIORef (connBody c)
    -- The timers of small records are those of their deadlines.
    HalfDue key -> stackHalves `has` key $ \c -> advanceHalf st here now key c Due B.empty
    WaitDue key -> stackWaits `has` key $ \c -> advanceWait st now key c Due
  next <- Timers.nextDeadline (stackTimers st)
  next <$ atomicWriteIORef (stackSoonest st) next
  where
    has table key use = do
      count st TimersFired
      readIORef (table st) >>= mapM_ use . IntMap.lookup key
