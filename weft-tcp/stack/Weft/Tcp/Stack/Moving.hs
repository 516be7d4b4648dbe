{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : A stack's connections leave, and come to another stack
--
-- Everything here runs in the stack's turn ("Weft.Tcp.Stack.Turn"). Of what users have nothing is moved: a
-- connection moves that waits in the queue of a listener, that is half open or in TIME-WAIT, or that its user has closed.
-- Connections within the stack stay.
module Weft.Tcp.Stack.Moving
  ( takeMore,
    release,
    freeze,
    forgetQueues,
    adopt,
  )
where

import Control.Monad (forM_, unless, void, when)
import Data.ByteString qualified as B
import Data.IORef
import Data.Maybe (catMaybes)
import Weft.Internal.Core.Home (Home)
import Weft.Internal.Core.SystemCall (Socket (..))
import Weft.Internal.Os.Descriptor (markClosed)
import Weft.Tcp.Connection
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Internal.Written
import Weft.Tcp.Sequence (advance)
import Weft.Tcp.Stack.Arrivals
import Weft.Tcp.Stack.Backlog
import Weft.Tcp.Stack.Closing
import Weft.Tcp.Stack.Effects
import Weft.Tcp.Stack.Engine
import Weft.Tcp.Stack.Flow
import Weft.Tcp.Stack.Frozen
import Weft.Tcp.Stack.HalfOpen
import Weft.Tcp.Stack.Held
import Weft.Tcp.Stack.Listening
import Weft.Tcp.Stack.Memory (weighed)
import Weft.Tcp.Stack.Shards
import Weft.Tcp.Stack.State
import Weft.Tcp.Stack.Table qualified as Table
import Weft.Tcp.Stack.TimeWait

-- | From now on connections take more from their users, or no more than usual.
takeMore :: Stack -> Bool -> Maybe Home -> Instant -> IO ()
takeMore st more here _ = do
  writeIORef (stackTakesMore st) more
  when more $ do
    conns <- Table.toList (stackConns st)
    forM_ conns $ \c -> do
      b <- readBody c
      unless (null (bodyWriters b)) $ do
        writeBody c b {bodyWriters = []}
        wakeAll here (bodyWriters b)

-- | Undo an accept: the socket is closed, and its connection waits in the queue of its listener as it is, with
-- the bytes that were not read. 'False', and nothing is done: it has no listener, or one direction of it has been shut down
-- here, or it has ended.
release :: Stack -> Socket -> Maybe Home -> Instant -> IO Bool
release st s here _ =
  lookupSock st s >>= \case
    Nothing -> pure False
    Just sock ->
      case sockRole sock of
        Connected c | not (loops st (connPeer c)) -> do
          b <- readBody c
          listeners <- listenersOf st (connFlow c)
          case listeners of
            l : _
              | tcbState (bodyTcb b) `elem` [Established, CloseWait],
                not (bodyTcb b `is` ReadShut) -> do
                  _ <- markClosed (socketDescriptor s)
                  forgetSock st sock
                  disown here c (Unaccepted l)
                  push (listenerBacklog l) (stackShard st) c >>= wakeAll here
                  True <$ feedStarved st here
            _ -> pure False
        _ -> pure False

-- The listener that a connection belongs to.
listenersOf :: Stack -> Flow -> IO [Listener]
listenersOf st flow = do
  listeners <- listenersAt st (flowLocal flow) (flowLocalPort flow)
  secret <- secretOf st
  pure (take 1 (drop (flowHash secret flow `mod` max 1 (length listeners)) listeners))

-- | The records of all that moves. They are made as they are used, while nothing changes.
freeze :: Stack -> Instant -> IO [Record]
freeze st now = do
  flooded <- readIORef (stackFlooded st)
  wholes <- mapM whole =<< Table.toList (stackConns st)
  halves <- Table.toList (stackHalves st)
  waits <- Table.toList (stackWaits st)
  let records =
        map WholeRecord (catMaybes wholes)
          <> [HalfRecord (halfFlow c) (halfTcb c) | c <- halves, not (loops st (flowPeer (halfFlow c)))]
          <> [WaitRecord (waitFlow c) (waitTcb c) | c <- waits, not (loops st (flowPeer (waitFlow c)))]
  pure ([Begin now flooded] <> records <> [End (fromIntegral (length records))])
  where
    whole c = do
      b <- readBody c
      let t = bodyTcb b
          moves = not (loops st (connPeer c)) && bodyOwner b /= Owned && tcbState t /= Closed
          wanted = not (isOrphan b)
      pure $
        if moves
          then Just (Whole (connFlow c) wanted (settingReceiveBuffer (tcbSettings t)) (settingReceiveLimit (tcbSettings t)) (bodyRetransmitted b) t (map snd (heldPieces (bodyOut b))) (if wanted then heldPieces (bodyIn b) else []))
          else Nothing

-- | What waits to be accepted has left.
forgetQueues :: Stack -> IO ()
forgetQueues st = eachListener st (forget . listenerBacklog)

-- | Take over what another stack had. Connections that no listener here is for are reset. Answers how many connections there are
-- now that were not closed.
adopt :: Stack -> Frozen -> Maybe Home -> Instant -> IO Int
adopt st f here now = do
  writeIORef (stackFlooded st) (frozenFlooded f)
  forM_ (frozenWaits f) $ \(flow, w) -> unlessTaken flow $ do
    settings <- settingsFor st defaultOptions (flowPeer flow)
    enterTimeWait st flow (movedWaiting settings d w)
  forM_ (frozenHalves f) $ \(flow, h) ->
    unlessTaken flow $
      listenersOf st flow >>= \case
        -- The peer asks again, and learns that nobody listens.
        [] -> pure ()
        l : _ -> do
          options <- readIORef (listenerOptions l)
          settings <- settingsFor st options (flowPeer flow)
          void (openHalf st flow l (movedHalfOpen settings d h))
  sum <$> mapM whole (frozenWholes f)
  where
    -- Whole milliseconds: Note [Moved in time].
    d = (now - frozenAt f) `div` 1000 * 1000
    unlessTaken flow act = do
      taken <- isTaken st flow
      unless taken act
    whole w = do
      let flow = wholeFlow w
      taken <- isTaken st flow
      listeners <- if wholeWanted w then listenersOf st flow else pure []
      if taken then pure 0 else enter w listeners
    enter w listeners = do
      let flow = wholeFlow w
      options <- case listeners of
        l : _ -> readIORef (listenerOptions l)
        [] -> pure defaultOptions
      -- Its memory stays as large as the peer was told.
      settings <- settingsSized st options (Just (wholeBuffer w, wholeLimit w)) (flowPeer flow)
      let t = readFor settings d (wholeTcb w)
      c <- newConn st flow (Step t [] []) (case listeners of l : _ -> Unaccepted l; [] -> Orphan 0) options
      b <- readBody c
      alarm <- alarmFor st c NoAlarm t
      writeBody c
        =<< weighed
          st
          b
            { bodyOut = foldl (flip (append (firstOut t))) heldNothing (wholeOut w),
              bodyIn = foldl (\h (s, p) -> insertAt (readableFrom t) s p h) heldNothing (wholeIn w),
              bodyRetransmitted = wholeRetransmitted w,
              bodyAlarm = alarm
            }
      case listeners of
        l : _ -> 1 <$ (push (listenerBacklog l) (stackShard st) c >>= wakeAll here)
        []
          | wholeWanted w -> 0 <$ advanceConn st here now c Abort B.empty
          | otherwise -> 0 <$ enterOrphan st here now c
    -- The number of the first byte that was not acknowledged; the SYN has one, too.
    firstOut t = if tcbState t == SynReceived then sndUna t `advance` 1 else sndUna t
