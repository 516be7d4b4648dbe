{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : A stack's listeners
--
-- A listener is one for all shards; its connections wait in "Weft.Tcp.Stack.Backlog". Each call is an attempt
-- ("Weft.Tcp.Stack.Ask"): 'listenSock' in the turn of the socket's shard, 'acceptSock' in that of any.
module Weft.Tcp.Stack.Listening
  ( -- * Calls
    listenSock,
    acceptSock,

    -- * All of them
    eachListener,
    wakeListeners,
    closeListener,
  )
where

import Control.Monad (forM_, void, when)
import Data.ByteString qualified as B
import Data.IORef
import Data.IntMap.Strict qualified as IntMap
import Data.List (partition)
import Foreign.C.Error
import Network.Socket (SockAddr, SocketType (..))
import Weft.Internal.Core.Home (Home)
import Weft.Internal.Core.SystemCall (Socket)
import Weft.Internal.Data.Shortage (runShort)
import Weft.Tcp.Connection
import Weft.Tcp.Internal.Tcb (Tcb (tcbSettings))
import Weft.Tcp.Options (retuned)
import Weft.Tcp.Stack.Ask
import Weft.Tcp.Stack.Backlog
import Weft.Tcp.Stack.Effects
import Weft.Tcp.Stack.Engine
import Weft.Tcp.Stack.HalfOpen
import Weft.Tcp.Stack.Names
import Weft.Tcp.Stack.Ports
import Weft.Tcp.Stack.Shards
import Weft.Tcp.Stack.Sockets
import Weft.Tcp.Stack.State
import Weft.Tcp.Stack.Streams
import Weft.Tcp.Stack.Table qualified as Table

-- | Have connections come to it.
listenSock :: Stack -> Socket -> Int -> IO (Verdict ())
listenSock st s backlog = onSock st s $ \sock -> case sockRole sock of
  Bound a port -> start sock a port
  Fresh ->
    bindSock st s (toSockAddr (sockFamily sock) (anyOf (sockFamily sock)) 0) >>= \case
      Answer () -> listenSock st s backlog
      other -> pure other
  Listening l -> Answer () <$ writeIORef (listenerRoom l) backlog
  Connected {} -> pure (Refuse eINVAL)
  Datagrams _ -> pure (Refuse eOPNOTSUPP)
  where
    start sock a port = do
      let o = sockOptions sock
      l <- Listener a port (sockFamily sock) (isBoth sock o) <$> newIORef (max 0 backlog) <*> newBacklog <*> newIORef 0 <*> newIORef o
      taken <- changePort st (fromIntegral port) $ \bindings ->
        let (mine, rest) = partition ((== sockNumber sock) . bindingSock) bindings
            listening = filter (not . null . fmap listenerPort . bindingListener) rest
         in if or [conflicts m x | m <- mine, x <- listening]
              then (bindings, True)
              else (map (\m -> m {bindingListener = Just l}) mine <> rest, False)
      if taken then pure (Refuse eADDRINUSE) else Answer () <$ become st sock (Listening l)

-- | A connection that was not accepted, in the turn of any shard: the oldest of this shard, or of the one whose turn it
-- is ("Weft.Tcp.Stack.Backlog").
acceptSock :: Stack -> Socket -> Maybe Instant -> Maybe Home -> Instant -> IO (Verdict (Socket, SockAddr))
acceptSock st s limit here now = onSock (shardOf st s) s $ \sock -> case sockRole sock of
  Listening l ->
    next (listenerBacklog l) (stackShard st) >>= \case
      Nobody -> do
        lost <- readIORef (stackLost st)
        pure (if lost then Refuse eNODEV else Again (waitToAccept st l) limit)
      Of other | there <- shardAt st other -> pure (Elsewhere there (acceptSock there s limit))
      Mine -> do
        full <- isFull st
        if full
          then do
            report <- readIORef (stackReport st)
            runShort (stackShortage st) (fromIntegral now * 1000) report "no socket left for a new connection; accepting goes on when one is free"
            writeIORef (stackStarved st) True
            -- The limit may have changed by then.
            pure (Again (\w -> (enlist (listenerBacklog l) w >>= wakeAll here) >> void (at st (now + 250000) (Expiry w))) limit)
          else
            pull (listenerBacklog l) (stackShard st) >>= \case
              Nothing -> acceptSock st s limit here now
              Just (c, more) -> do
                b <- readBody c
                o <- readIORef (listenerOptions l)
                socket <- newSock st (listenerFamily l) Stream (Connected c) o
                settings <- settingsFor st o (connPeer c)
                writeBody c b {bodyOwner = Owned, bodyTold = True, bodyOptions = o, bodyTcb = (bodyTcb b) {tcbSettings = retuned (optValues o) settings (tcbSettings (bodyTcb b))}}
                -- Others wait for the rest.
                when more (wakeListener l here)
                pure (Answer (socket, toSockAddr (listenerFamily l) (connPeer c) (connPeerPort c)))
  Datagrams _ -> pure (Refuse eOPNOTSUPP)
  _ -> pure (Refuse eINVAL)

-- | Have all threads that wait to accept look again.
wakeListeners :: Stack -> Maybe Home -> IO ()
wakeListeners st here = eachListener st (`wakeListener` here)

-- | Do something with each listener.
eachListener :: Stack -> (Listener -> IO ()) -> IO ()
eachListener st use = do
  ports <- readIORef (stackPorts st)
  sequence_ [use l | bindings <- IntMap.elems ports, Binding {bindingListener = Just l} <- bindings]

wakeListener :: Listener -> Maybe Home -> IO ()
wakeListener l here = dismiss (listenerBacklog l) >>= wakeAll here

-- | A listener is closed, which has no port any more: what it has not accepted ends, in all shards. Threads that wait on
-- it are woken as the function says.
closeListener :: Stack -> Listener -> Maybe Home -> Instant -> (Wake -> Wake) -> IO ()
closeListener st l here now canceled = do
  close (listenerBacklog l) >>= mapM_ (wake here . canceled)
  forgetIn st here now
  forM_ (others st) (\other -> passTo other (forgetIn other))
  where
    forgetIn at' here' now' = do
      halves <- Table.toList (stackHalves at')
      forM_ halves $ \c -> when (halfListener c == l) (advanceHalf at' here' now' c Abort B.empty)
      conns <- Table.toList (stackConns at')
      forM_ conns $ \c -> do
        b <- readBody c
        when (bodyOwner b == Unaccepted l) $ do
          writeBody c b {bodyOwner = Orphan 0}
          advanceConn at' here' now' c Abort B.empty
