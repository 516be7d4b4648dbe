{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Half-open connections
--
-- A connection that a listener has answered and the peer has not acknowledged is a small record in a table of its own,
-- until the handshake ends. Everything here runs in the stack's turn ("Weft.Tcp.Stack.Turn").
module Weft.Tcp.Stack.HalfOpen
  ( openHalf,
    advanceHalf,
  )
where

import Control.Monad (void)
import Data.ByteString (ByteString)
import Data.IORef
import Weft.Internal.Core.Home (Home)
import Weft.Internal.Data.Timers qualified as Timers
import Weft.Tcp.Connection
import Weft.Tcp.Internal.Small
import Weft.Tcp.Stack.Effects
import Weft.Tcp.Stack.Engine
import Weft.Tcp.Stack.Flow
import Weft.Tcp.Stack.State
import Weft.Tcp.Stack.Table qualified as Table

-- | A connection to a listener begins. No other has its addresses.
openHalf :: Stack -> Flow -> Listener -> HalfOpen -> IO HalfConn
openHalf st flow l h = do
  atomicModifyIORef' (listenerHalfOpen l) (\n -> (n + 1, ()))
  timer <- at st (deadline (fromHalfOpen h)) (HalfDue flow)
  keep st (HalfConn flow h l timer)

keep :: Stack -> HalfConn -> IO HalfConn
keep st c = c <$ Table.insert (stackHalves st) c

-- | Give it an input, with the payload if it is a segment. When the handshake ends it becomes a connection that
-- the listener may accept.
advanceHalf :: Stack -> Maybe Home -> Instant -> HalfConn -> Input -> ByteString -> IO ()
advanceHalf st here now c input payload = case halfOpenOf t of
  Just h
    | deadline t == deadline old -> keep st c {halfTcb = h} >> answers
    | otherwise -> do
        timer <- instead st (halfTimer c) (deadline t) (HalfDue flow)
        keep st c {halfTcb = h, halfTimer = timer} >> answers
  Nothing -> do
    atomicModifyIORef' (listenerHalfOpen l) (\n -> (n - 1, ()))
    void (Timers.cancel (stackTimers st) (halfTimer c))
    if tcbState t == Closed
      then gone >> answers
      else do
        options <- readIORef (listenerOptions l)
        -- First, for other shards that look (Note [Shards] in "Weft.Tcp.Stack.Shards").
        conn <- newConn st flow (Step old [] []) (Unaccepted l) options
        gone
        openingStep st here now conn (firstByte input) payload first
  where
    gone = Table.delete (stackHalves st) flow
    flow = halfFlow c
    l = halfListener c
    old = fromHalfOpen (halfTcb c)
    first@(Step t segments _) = step now input old
    answers = sendBare st flow segments
