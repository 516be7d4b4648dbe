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

    -- * For those that leave
    forgetSock,
    disown,
    feedStarved,
    eachListener,
    wakeListener,

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
import Weft.Tcp.Stack.Table qualified as Table
import Weft.Tcp.Stack.TimeWait

-- | A new socket, for streams or for datagrams.
openSock :: Stack -> Family -> SocketType -> IO (Verdict Socket)
openSock st family kind = do
  full <- isFull st
  role <- if kind == Datagram then Datagrams <$> newUdp family else pure Fresh
  if full then pure (Refuse eMFILE) else Answer <$> newSock st family kind role defaultOptions

isFull :: Stack -> IO Bool
isFull st = do
  most <- tcpMostSockets (stackSettings st)
  (>= most) <$> Table.size (stackSocks st)

newSock :: Stack -> Family -> SocketType -> Role -> Options -> IO Socket
newSock st family kind role options = do
  n <- readIORef (stackNextSock st) >>= vacant
  writeIORef (stackNextSock st) (following n)
  d <- newDescriptor (negate (fromIntegral n))
  Table.insert (stackSocks st) (Sock (fromIntegral n) (descriptorSerial d) family role options)
  pure (Socket d family kind)
  where
    vacant n = Table.lookup (stackSocks st) n >>= maybe (pure n) (\_ -> vacant (following n))
    -- The least number that a descriptor can have is -2^31. A number that is used again names another
    -- socket by its serial number.
    following n = if n >= 0x7fffffff then 2 else n + 1 :: Int

-- | Close it. Threads that wait on it fail with @ECANCELED@.
closeSock :: Stack -> Socket -> Maybe Home -> Instant -> IO (Verdict ())
closeSock st s here now = do
  _ <- markClosed (socketDescriptor s)
  found <- lookupSock st s
  forM_ found $ \sock -> do
    forgetSock st sock
    case sockRole sock of
      Listening l -> closeListener l
      Connected c -> do
        disown here c Orphan
        advanceConn st here now c (if optResets (sockOptions sock) then Abort else Close) B.empty
      Datagrams ref -> do
        u <- readIORef ref
        writeIORef ref u {udpReaders = []}
        mapM_ (wake here . canceled) (udpReaders u)
      _ -> pure ()
    feedStarved st here
  pure (Answer ())
  where
    closeListener l = do
      waiting <- readIORef (listenerWaiters l)
      writeIORef (listenerWaiters l) []
      mapM_ (wake here . canceled) waiting
      halves <- Table.toList (stackHalves st)
      forM_ halves $ \c -> when (halfListener c == l) (advanceHalf st here now c Abort B.empty)
      conns <- Table.toList (stackConns st)
      forM_ conns $ \c -> do
        b <- readBody c
        when (bodyOwner b == Unaccepted l) $ do
          writeBody c b {bodyOwner = Orphan}
          advanceConn st here now c Abort B.empty

-- | A socket is there no more, and its port is free.
forgetSock :: Stack -> Sock -> IO ()
forgetSock st sock = do
  Table.delete (stackSocks st) (fromIntegral (sockNumber sock))
  unbind st sock

-- | A connection gets another owner than its socket. Threads that wait on it fail.
disown :: Maybe Home -> Conn -> Owner -> IO ()
disown here c owner = do
  b <- readBody c
  writeBody c b {bodyOwner = owner, bodyReaders = [], bodyWriters = []}
  mapM_ (wake here . canceled) (bodyReaders b <> bodyWriters b)

-- The thread fails with @ECANCELED@.
canceled :: Wake -> Wake
canceled (Wake w place _) = Wake w place (\_ -> Throw (toException (errnoToIOError "wait" (Errno (fromIntegral (negate Sys.canceled))) Nothing Nothing)))

-- | Accepts that wait for a socket to be closed look again.
feedStarved :: Stack -> Maybe Home -> IO ()
feedStarved st here = do
  starved <- readIORef (stackStarved st)
  when starved $ do
    writeIORef (stackStarved st) False
    wakeListeners st here

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
  conns <- some stackConns connFlow
  forM_ conns $ \c -> do
    b <- readBody c
    writeBody c b {bodyFailure = why <|> bodyFailure b}
    advanceConn st here now c Abort B.empty
  halves <- some stackHalves halfFlow
  forM_ halves $ \c -> advanceHalf st here now c Abort B.empty
  waits <- some stackWaits waitFlow
  mapM_ (endWait st) waits
  pure (not (null conns && null halves && null waits))
  where
    some table flow = take 256 . filter (isOne . loops st . flowPeer . flow) <$> Table.toList (table st)

-- | Have all threads that wait to accept look again.
wakeListeners :: Stack -> Maybe Home -> IO ()
wakeListeners st here = eachListener st (`wakeListener` here)

-- | Do something with each listener.
eachListener :: Stack -> (Listener -> IO ()) -> IO ()
eachListener st use = do
  ports <- readIORef (stackPorts st)
  sequence_ [use l | bindings <- IntMap.elems ports, Binding {bindingListener = Just l} <- bindings]

-- | Have the threads that wait to accept there look again.
wakeListener :: Listener -> Maybe Home -> IO ()
wakeListener l here = do
  waiting <- readIORef (listenerWaiters l)
  writeIORef (listenerWaiters l) []
  wakeAll here waiting

-- | Give it an address.
bindSock :: Stack -> Socket -> SockAddr -> IO (Verdict ())
bindSock st s address = onSock st s $ \sock -> case sockRole sock of
  Fresh -> claim sock (\a p -> become st sock (Bound a p))
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
listenSock st s backlog = onSock st s $ \sock -> case sockRole sock of
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
      bindings <- bindingsAt st (fromIntegral port)
      let o = sockOptions sock
          (mine, others) = (filter ((== sockNumber sock) . bindingSock) bindings, filter ((/= sockNumber sock) . bindingSock) bindings)
          listening = filter (not . null . fmap listenerPort . bindingListener) others
      if or [conflicts m x | m <- mine, x <- listening]
        then pure (Refuse eADDRINUSE)
        else do
          l <- Listener a port (sockFamily sock) (isBoth sock o) <$> newIORef (max 0 backlog) <*> newIORef Sequence.empty <*> newIORef 0 <*> newIORef [] <*> newIORef o
          become st sock (Listening l)
          modifyIORef' (stackPorts st) (IntMap.insert (fromIntegral port) (map (\m -> m {bindingListener = Just l}) mine <> others))
          pure (Answer ())

-- | The oldest connection that was not accepted.
acceptSock :: Stack -> Socket -> Maybe Instant -> Maybe Home -> Instant -> IO (Verdict (Socket, SockAddr))
acceptSock st s limit here now = onSock st s $ \sock -> case sockRole sock of
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
            b <- readBody c
            o <- readIORef (listenerOptions l)
            socket <- newSock st (listenerFamily l) Stream (Connected c) o
            settings <- settingsFor st o (connPeer c)
            writeBody c b {bodyOwner = Owned, bodyTold = True, bodyOptions = o, bodyTcb = (bodyTcb b) {tcbSettings = onConnection settings (tcbSettings (bodyTcb b))}}
            -- Others wait for the rest.
            unless (Sequence.null rest) (wakeListener l here)
            pure (Answer (socket, toSockAddr (listenerFamily l) (connPeer c) (connPeerPort c)))
  Datagrams _ -> pure (Refuse eOPNOTSUPP)
  _ -> pure (Refuse eINVAL)

-- | Connect it. Asked again while the connection comes about, also after a cancellation.
connectSock :: Stack -> Socket -> SockAddr -> Maybe Instant -> Maybe Home -> Instant -> IO (Verdict ())
connectSock st s address limit here now = onSock st s $ \sock -> case sockRole sock of
  Listening _ -> pure (Refuse eISCONN)
  Connected c -> do
    b <- readBody c
    case tcbState (bodyTcb b) of
      _ | bodyTold b -> pure (Refuse eISCONN)
      SynSent -> pure (Again (waitToWrite c) limit)
      SynReceived -> pure (Again (waitToWrite c) limit)
      Closed -> do
        unconnected sock (connLocalPort c) >>= become st sock
        pure (Refuse (maybe eCONNABORTED failureErrno (bodyFailure b)))
      _ -> Answer () <$ writeBody c b {bodyTold = True}
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
                used <- isTaken st (Flow a p peer peerPort)
                pure (null bound && not used)
            case chosen of
              Nothing -> pure (Refuse eADDRNOTAVAIL)
              Just p -> do
                let flow = Flow a p peer peerPort
                taken <- isTaken st flow
                if taken
                  then pure (Refuse eADDRINUSE)
                  else do
                    (iss, offset) <- freshNumbers st flow now
                    settings <- settingsFor st (sockOptions sock) peer
                    let first = activeOpen settings iss offset now
                    c <- newConn st flow first Owned (sockOptions sock)
                    become st sock (Connected c)
                    openingStep st here c (Seq 0) B.empty first
                    pure (Again (waitToWrite c) limit)

-- | Has any table this flow?
isTaken :: Stack -> Flow -> IO Bool
isTaken s flow = do
  conn <- isJust <$> Table.lookup (stackConns s) flow
  half <- isJust <$> Table.lookup (stackHalves s) flow
  wait <- isJust <$> Table.lookup (stackWaits s) flow
  pure (conn || half || wait)

-- | An option's value.
getSock :: Stack -> Socket -> SocketOption -> IO (Verdict Int)
getSock st s option = onSock st s $ \sock -> case sockRole sock of
  Listening _ | option == acceptConn -> pure (Answer 1)
  Connected c | option == SoError -> do
    b <- readBody c
    writeBody c b {bodyFailure = Nothing}
    pure (Answer (maybe 0 (number . failureErrno) (bodyFailure b)))
  Datagrams ref
    | option == SoError -> do
        u <- readIORef ref
        writeIORef ref u {udpFailure = Nothing}
        pure (Answer (maybe 0 number (udpFailure u)))
    | option == Type -> pure (Answer 2)
    | option == RecvBuffer -> pure (Answer (receiveRoom (sockOptions sock)))
  _ -> pure (Answer (readOption (tcpConnections (stackSettings st)) (tcpSendBuffer (stackSettings st)) option (sockOptions sock)))
  where
    number (Errno e) = fromIntegral e

-- | Set an option.
setSock :: Stack -> Socket -> SocketOption -> Int -> Maybe Home -> Instant -> IO (Verdict ())
setSock st s option v here now = onSock st s $ \sock -> do
  let !o = writeOption option v (sockOptions sock)
  Table.insert (stackSocks st) sock {sockOptions = o}
  case sockRole sock of
    Listening l -> writeIORef (listenerOptions l) o
    Connected c -> do
      b <- readBody c
      settings <- settingsFor st o (connPeer c)
      writeBody c b {bodyOptions = o}
      -- Bytes that Nagle's algorithm held back are sent.
      advanceConn st here now c (Tune (onConnection settings (tcbSettings (bodyTcb b)))) B.empty
    _ -> pure ()
  pure (Answer ())

-- | The own address of a socket.
localOf :: Stack -> Socket -> IO (Verdict SockAddr)
localOf st s = onSock st s $ \sock ->
  Answer . uncurry (toSockAddr (sockFamily sock)) <$> named sock (sockRole sock)
  where
    named sock = \case
      Fresh -> pure (anyOf (sockFamily sock), 0)
      Bound a p -> pure (a, p)
      Listening l -> pure (listenerAddress l, listenerPort l)
      Connected c -> pure (connLocal c, connLocalPort c)
      Datagrams ref -> (\u -> (udpLocal u, udpLocalPort u)) <$> readIORef ref

-- | The address of the peer.
peerOf :: Stack -> Socket -> IO (Verdict SockAddr)
peerOf st s = onSock st s $ \sock -> case sockRole sock of
  Connected c -> do
    b <- readBody c
    pure (if bodyTold b then Answer (toSockAddr (sockFamily sock) (connPeer c) (connPeerPort c)) else Refuse eNOTCONN)
  Datagrams ref -> maybe (Refuse eNOTCONN) (Answer . uncurry (toSockAddr (sockFamily sock))) . udpPeer <$> readIORef ref
  _ -> pure (Refuse eNOTCONN)
