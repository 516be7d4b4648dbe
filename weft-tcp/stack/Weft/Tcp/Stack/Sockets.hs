{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Calls to a stack's sockets
--
-- Each function is an attempt ("Weft.Tcp.Stack.Ask"), made in the stack's turn.
module Weft.Tcp.Stack.Sockets
  ( -- * Sockets
    openSock,
    closeSock,
    bindSock,
    listenSock,
    acceptSock,
    connectSock,
    isTaken,
    loseDevice,
    resetSome,

    -- * Options and names
    getSock,
    setSock,
    localOf,
    peerOf,
  )
where

import Control.Applicative ((<|>))
import Control.Exception (displayException, toException)
import Control.Monad (forM_, unless, void, when)
import Data.ByteString qualified as B
import Data.IORef
import Data.IntMap.Strict qualified as IntMap
import Data.List (find)
import Data.Maybe (isJust)
import Data.Sequence qualified as Sequence
import Foreign.C.Error
import Network.Socket (Family, SockAddr, SocketOption (..), SocketType (..))
import Weft.Internal.Core.Home (Home)
import Weft.Internal.Core.SystemCall (Socket (..))
import Weft.Internal.Core.Trace (Trace (Throw))
import Weft.Internal.Data.Shortage (runShort)
import Weft.Internal.Os.Descriptor (Descriptor (..), markClosed, newDescriptor)
import Weft.Internal.Os.Net (acceptConn)
import Weft.Internal.Os.Sys qualified as Sys
import Weft.Tcp.Connection
import Weft.Tcp.Internal.Tcb (Tcb (tcbSettings))
import Weft.Tcp.Sequence (Seq (..))
import Weft.Tcp.Stack.Ask
import Weft.Tcp.Stack.Datagrams
import Weft.Tcp.Stack.Deliveries (receiveRoom)
import Weft.Tcp.Stack.Effects
import Weft.Tcp.Stack.Engine
import Weft.Tcp.Stack.Flow
import Weft.Tcp.Stack.HalfOpen
import Weft.Tcp.Stack.Names
import Weft.Tcp.Stack.Options
import Weft.Tcp.Stack.Ports
import Weft.Tcp.Stack.State
import Weft.Tcp.Stack.Streams
import Weft.Tcp.Stack.TimeWait

-- | A new socket, for streams or for datagrams.
openSock :: Stack -> Family -> SocketType -> IO (Verdict Socket)
openSock st family kind = do
  full <- isFull st
  role <- if kind == Datagram then Datagrams <$> newUdp family else pure Fresh
  if full then pure (Refuse eMFILE) else Answer . fst <$> newSock st family kind role defaultOptions

isFull :: Stack -> IO Bool
isFull st = do
  most <- tcpMostSockets (stackSettings st)
  (>= most) <$> readIORef (stackOpen st)

newSock :: Stack -> Family -> SocketType -> Role -> Options -> IO (Socket, Sock)
newSock st family kind role options = do
  socks <- readIORef (stackSocks st)
  n <- vacant socks <$> readIORef (stackNextSock st)
  writeIORef (stackNextSock st) (following n)
  d <- newDescriptor (negate (fromIntegral n))
  sock <- Sock n (descriptorSerial d) family <$> newIORef role <*> newIORef options
  modifyIORef' (stackSocks st) (IntMap.insert n sock)
  modifyIORef' (stackOpen st) (+ 1)
  pure (Socket d family kind, sock)
  where
    vacant socks n = if IntMap.member n socks then vacant socks (following n) else n
    -- The least number that a descriptor can have is -2^31. A number that is used again names another
    -- socket by its serial number.
    following n = if n >= 0x7fffffff then 2 else n + 1 :: Int

-- | Close it. Threads that wait on it fail with @ECANCELED@.
closeSock :: Stack -> Socket -> Maybe Home -> Instant -> IO (Verdict ())
closeSock st s here now = do
  _ <- markClosed (socketDescriptor s)
  found <- lookupSock st s
  forM_ found $ \sock -> do
    modifyIORef' (stackSocks st) (IntMap.delete (sockNumber sock))
    modifyIORef' (stackOpen st) (subtract 1)
    unbind st sock
    options <- readIORef (sockOptions sock)
    readIORef (sockRole sock) >>= \case
      Listening l -> closeListener st l here now
      Connected c _ -> do
        b <- readIORef (connBody c)
        writeIORef (connBody c) b {bodyOwner = Orphan, bodyReaders = [], bodyWriters = []}
        mapM_ (wake here . canceled) (bodyReaders b <> bodyWriters b)
        advanceConn st here now c (if optResets options then Abort else Close) B.empty
      Datagrams ref -> do
        u <- readIORef ref
        writeIORef ref u {udpReaders = []}
        mapM_ (wake here . canceled) (udpReaders u)
      _ -> pure ()
    starved <- readIORef (stackStarved st)
    when starved $ do
      writeIORef (stackStarved st) False
      wakeListeners st here
  pure (Answer ())
  where
    canceled (Wake w place _) = Wake w place (\_ -> Throw (toException (errnoToIOError "wait" (Errno (fromIntegral (negate Sys.canceled))) Nothing Nothing)))
    closeListener st' l here' now' = do
      waiting <- readIORef (listenerWaiters l)
      writeIORef (listenerWaiters l) []
      mapM_ (wake here' . canceled) waiting
      halves <- readIORef (stackHalves st')
      forM_ (IntMap.toList halves) $ \(key, c) -> when (halfListener c == l) (advanceHalf st' here' now' key c Abort B.empty)
      conns <- readIORef (stackConns st')
      forM_ conns $ \c -> do
        b <- readIORef (connBody c)
        when (bodyOwner b == Unaccepted l) $ do
          writeIORef (connBody c) b {bodyOwner = Orphan}
          advanceConn st' here' now' c Abort B.empty

-- | The device is gone, because of this: no thread waits for further connections. Those over it are for the
-- caller to reset ('resetSome').
loseDevice :: Stack -> Maybe Home -> IOError -> IO ()
loseDevice st here why = do
  was <- atomicModifyIORef' (stackLost st) (True,)
  unless was $ do
    report <- readIORef (stackReport st)
    report (displayException why <> "; connections over it have ended")
    wakeListeners st here

-- | Reset some connections, by whether both of their ends belong to this stack, and tell their users this if
-- there is something to tell. False if there are none left. Very many at once would keep the worker from all of
-- its threads for seconds.
resetSome :: Stack -> (Bool -> Bool) -> Maybe Failure -> Maybe Home -> Instant -> IO Bool
resetSome st isOne why here now = do
  conns <- some stackConns connLoop
  forM_ conns $ \(_, c) -> do
    modifyIORef' (connBody c) (\b -> b {bodyFailure = why <|> bodyFailure b})
    advanceConn st here now c Abort B.empty
  halves <- some stackHalves (loops st . flowPeer . halfFlow)
  forM_ halves $ \(key, c) -> advanceHalf st here now key c Abort B.empty
  waits <- some stackWaits (loops st . flowPeer . waitFlow)
  mapM_ (uncurry (endWait st)) waits
  pure (not (null conns && null halves && null waits))
  where
    some table isLoop = take 256 . filter (isOne . isLoop . snd) . IntMap.toList <$> readIORef (table st)

-- | Have all threads that wait to accept look again.
wakeListeners :: Stack -> Maybe Home -> IO ()
wakeListeners st here = do
  socks <- readIORef (stackSocks st)
  forM_ socks $ \other ->
    readIORef (sockRole other) >>= \case
      Listening l -> wakeListener l here
      _ -> pure ()

wakeListener :: Listener -> Maybe Home -> IO ()
wakeListener l here = do
  waiting <- readIORef (listenerWaiters l)
  writeIORef (listenerWaiters l) []
  wakeAll here waiting

-- | Give it an address.
bindSock :: Stack -> Socket -> SockAddr -> IO (Verdict ())
bindSock st s address = onSock st s $ \sock ->
  readIORef (sockRole sock) >>= \case
    Fresh -> claim sock (\a p -> writeIORef (sockRole sock) (Bound a p))
    Datagrams ref -> do
      u <- readIORef ref
      if udpLocalPort u == 0
        then claim sock (\a p -> writeIORef ref u {udpLocal = a, udpLocalPort = p})
        else pure (Refuse eINVAL)
    _ -> pure (Refuse eINVAL)
  where
    claim sock keep = case takenBy (sockFamily sock) address of
      Nothing -> pure (Refuse eAFNOSUPPORT)
      Just (a, port)
        | not (isUnspecified a) && not (isOwn st a) -> pure (Refuse eADDRNOTAVAIL)
        | otherwise -> claimPort st sock a port >>= either (pure . Refuse) (\p -> Answer () <$ keep a p)

-- | Have connections come to it.
listenSock :: Stack -> Socket -> Int -> IO (Verdict ())
listenSock st s backlog = onSock st s $ \sock ->
  readIORef (sockRole sock) >>= \case
    Bound a port -> start sock a port
    Fresh ->
      bindSock st s (toSockAddr (sockFamily sock) (anyOf (sockFamily sock)) 0) >>= \case
        Answer () -> listenSock st s backlog
        other -> pure other
    Listening l -> Answer () <$ writeIORef (listenerBacklog l) backlog
    Connected {} -> pure (Refuse eINVAL)
    Datagrams _ -> pure (Refuse eOPNOTSUPP)
  where
    start sock a port = do
      o <- readIORef (sockOptions sock)
      bindings <- bindingsAt st (fromIntegral port)
      let (mine, others) = (filter ((== sockNumber sock) . bindingSock) bindings, filter ((/= sockNumber sock) . bindingSock) bindings)
          listening = filter (not . null . fmap listenerPort . bindingListener) others
      if or [conflicts m x | m <- mine, x <- listening]
        then pure (Refuse eADDRINUSE)
        else do
          l <- Listener a port (sockFamily sock) (isBoth sock o) <$> newIORef (max 0 backlog) <*> newIORef Sequence.empty <*> newIORef 0 <*> newIORef [] <*> pure (sockOptions sock)
          writeIORef (sockRole sock) (Listening l)
          modifyIORef' (stackPorts st) (IntMap.insert (fromIntegral port) (map (\m -> m {bindingListener = Just l}) mine <> others))
          pure (Answer ())

-- | The oldest connection that was not accepted.
acceptSock :: Stack -> Socket -> Maybe Instant -> Maybe Home -> Instant -> IO (Verdict (Socket, SockAddr))
acceptSock st s limit here now = onSock st s $ \sock ->
  readIORef (sockRole sock) >>= \case
    Listening l -> do
      queue <- readIORef (listenerQueue l)
      case Sequence.viewl queue of
        Sequence.EmptyL -> do
          lost <- readIORef (stackLost st)
          pure (if lost then Refuse eNODEV else Again (waitAt (listenerWaiters l)) limit)
        c Sequence.:< rest -> do
          full <- isFull st
          if full
            then do
              report <- readIORef (stackReport st)
              runShort (stackShortage st) (fromIntegral now * 1000) report "no socket left for a new connection; accepting goes on when one is free"
              writeIORef (stackStarved st) True
              -- The limit may have changed by then.
              pure (Again (\w -> waitAt (listenerWaiters l) w >> void (at st (now + 250000) (Expiry w))) limit)
            else do
              writeIORef (listenerQueue l) rest
              b <- readIORef (connBody c)
              o <- readIORef (listenerOptions l)
              told <- newIORef True
              (socket, _) <- newSock st (listenerFamily l) Stream (Connected c told) o
              settings <- settingsFor st o (connPeer c) (connLoop c)
              writeIORef (connBody c) b {bodyOwner = Owned, bodyOptions = o, bodyTcb = (bodyTcb b) {tcbSettings = onConnection settings (tcbSettings (bodyTcb b))}}
              -- Others wait for the rest.
              unless (Sequence.null rest) (wakeListener l here)
              pure (Answer (socket, toSockAddr (listenerFamily l) (connPeer c) (connPeerPort c)))
    Datagrams _ -> pure (Refuse eOPNOTSUPP)
    _ -> pure (Refuse eINVAL)

-- | Connect it. Asked again while the connection comes about, also after a cancellation.
connectSock :: Stack -> Socket -> SockAddr -> Maybe Instant -> Maybe Home -> Instant -> IO (Verdict ())
connectSock st s address limit here now = onSock st s $ \sock ->
  readIORef (sockRole sock) >>= \case
    Listening _ -> pure (Refuse eISCONN)
    Connected c told -> do
      b <- readIORef (connBody c)
      was <- readIORef told
      case tcbState (bodyTcb b) of
        _ | was -> pure (Refuse eISCONN)
        SynSent -> pure (Again (waitToWrite c) limit)
        SynReceived -> pure (Again (waitToWrite c) limit)
        Closed -> do
          unconnected sock (connLocalPort c) >>= writeIORef (sockRole sock)
          pure (Refuse (maybe eCONNABORTED failureErrno (bodyFailure b)))
        _ -> Answer () <$ writeIORef told True
    Bound a port -> begin sock a (Just port)
    Fresh -> begin sock (anyOf (sockFamily sock)) Nothing
    Datagrams ref -> connectDatagrams st sock ref address
  where
    -- Did it have its port before? Then it still has, and gives it back when it is closed.
    unconnected sock port = do
      bindings <- bindingsAt st (fromIntegral port)
      pure (maybe Fresh (\mine -> Bound (bindingAddress mine) port) (find ((== sockNumber sock) . bindingSock) bindings))
    begin sock from port = case takenBy (sockFamily sock) address of
      Nothing -> pure (Refuse eAFNOSUPPORT)
      Just (_, 0) -> pure (Refuse eADDRNOTAVAIL)
      Just (given, peerPort) -> do
        let peer = if isUnspecified given then loopbackLike given else given
        route <- routeTo st from peer
        case route of
          Left e -> pure (Refuse e)
          Right a -> do
            chosen <- case port of
              Just p -> pure (Just p)
              Nothing -> freePort st $ \p -> do
                bound <- bindingsAt st (fromIntegral p)
                used <- snd <$> isTaken st (Flow a p peer peerPort)
                pure (null bound && not used)
            case chosen of
              Nothing -> pure (Refuse eADDRNOTAVAIL)
              Just p -> do
                let flow = Flow a p peer peerPort
                (key, taken) <- isTaken st flow
                if taken
                  then pure (Refuse eADDRINUSE)
                  else do
                    o <- readIORef (sockOptions sock)
                    (iss, offset) <- freshNumbers st flow now
                    let loop = loops st peer
                    settings <- settingsFor st o peer loop
                    let first = activeOpen settings iss offset now
                    c <- newConn st flow key loop first Owned o
                    told <- newIORef False
                    writeIORef (sockRole sock) (Connected c told)
                    openingStep st here c (Seq 0) B.empty first
                    pure (Again (waitToWrite c) limit)

-- | The key of a flow, and whether any table has it.
isTaken :: Stack -> Flow -> IO (Int, Bool)
isTaken s flow = do
  (key, found) <- lookupConn s flow
  half <- IntMap.member key <$> readIORef (stackHalves s)
  waits <- IntMap.member key <$> readIORef (stackWaits s)
  pure (key, half || waits || isJust found)

-- | An option's value.
getSock :: Stack -> Socket -> SocketOption -> IO (Verdict Int)
getSock st s option = onSock st s $ \sock -> do
  role <- readIORef (sockRole sock)
  o <- readIORef (sockOptions sock)
  case role of
    Listening _ | option == acceptConn -> pure (Answer 1)
    Connected c _ | option == SoError -> do
      b <- readIORef (connBody c)
      writeIORef (connBody c) b {bodyFailure = Nothing}
      pure (Answer (maybe 0 (number . failureErrno) (bodyFailure b)))
    Datagrams ref
      | option == SoError -> do
          u <- readIORef ref
          writeIORef ref u {udpFailure = Nothing}
          pure (Answer (maybe 0 number (udpFailure u)))
      | option == Type -> pure (Answer 2)
      | option == RecvBuffer -> pure (Answer (receiveRoom o))
    _ -> pure (Answer (readOption (tcpConnections (stackSettings st)) (tcpSendBuffer (stackSettings st)) option o))
  where
    number (Errno e) = fromIntegral e

-- | Set an option.
setSock :: Stack -> Socket -> SocketOption -> Int -> Maybe Home -> Instant -> IO (Verdict ())
setSock st s option v here now = onSock st s $ \sock -> do
  modifyIORef' (sockOptions sock) (writeOption option v)
  o <- readIORef (sockOptions sock)
  readIORef (sockRole sock) >>= \case
    Connected c _ -> do
      b <- readIORef (connBody c)
      settings <- settingsFor st o (connPeer c) (connLoop c)
      writeIORef (connBody c) b {bodyOptions = o}
      -- Bytes that Nagle's algorithm held back are sent.
      advanceConn st here now c (Tune (onConnection settings (tcbSettings (bodyTcb b)))) B.empty
    _ -> pure ()
  pure (Answer ())

-- | The own address of a socket.
localOf :: Stack -> Socket -> IO (Verdict SockAddr)
localOf st s = onSock st s $ \sock ->
  Answer . uncurry (toSockAddr (sockFamily sock)) <$> (readIORef (sockRole sock) >>= named sock)
  where
    named sock = \case
      Fresh -> pure (anyOf (sockFamily sock), 0)
      Bound a p -> pure (a, p)
      Listening l -> pure (listenerAddress l, listenerPort l)
      Connected c _ -> pure (connLocal c, connLocalPort c)
      Datagrams ref -> (\u -> (udpLocal u, udpLocalPort u)) <$> readIORef ref

-- | The address of the peer.
peerOf :: Stack -> Socket -> IO (Verdict SockAddr)
peerOf st s = onSock st s $ \sock ->
  readIORef (sockRole sock) >>= \case
    Connected c told -> do
      there <- readIORef told
      pure (if there then Answer (toSockAddr (sockFamily sock) (connPeer c) (connPeerPort c)) else Refuse eNOTCONN)
    Datagrams ref -> maybe (Refuse eNOTCONN) (Answer . uncurry (toSockAddr (sockFamily sock))) . udpPeer <$> readIORef ref
    _ -> pure (Refuse eNOTCONN)
