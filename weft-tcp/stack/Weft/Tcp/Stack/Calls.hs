{-# LANGUAGE GADTs #-}
{-# LANGUAGE MultiWayIf #-}
-- What a thread that waits keeps is one closure, and not that and parts of it.
{-# OPTIONS_GHC -fno-full-laziness #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : A stack, its threads and its answers
--
-- Makes a stack, starts the threads that take in packets and fire timers, and answers system calls
-- about its sockets. Which stack answers a call is for others to know: "Weft.Tcp.Stack" has one for
-- a run, "Weft.Tcp.Simulated" one for each machine of a world.
module Weft.Tcp.Stack.Calls
  ( newStack,
    newShards,
    startStack,
    resetAll,
    answer,
    ours,
    attemptsWith,

    -- * For observers
    gauges,
    describeSocket,
  )
where

import Control.Applicative ((<|>))
import Control.Concurrent.MVar (newMVar)
import Control.Exception (SomeException, mask_, throwIO, try)
import Control.Monad (forM_, void, when, zipWithM)
import Control.Monad.Fix (mfix)
import Data.ByteString qualified as B
import Data.ByteString.Internal (ByteString (BS))
import Data.IORef
import Data.Int (Int64)
import Data.IntMap.Strict qualified as IntMap
import Data.Map.Strict qualified as Map
import Data.Primitive.Array (indexArray)
import Data.Primitive.SmallArray
import Data.Sequence qualified as Sequence
import Data.String (fromString)
import Data.Text qualified as Text
import Data.Word (Word64)
import Foreign.C.Error
import Foreign.ForeignPtr (touchForeignPtr)
import Foreign.ForeignPtr.Unsafe (unsafeForeignPtrToPtr)
import Foreign.Ptr (plusPtr)
import GHC.Exts (oneShot)
import GHC.Stack (emptyCallStack)
import Network.Socket (Family (..), SocketType (..))
import Weft (Thread, catch, liftIO, mask, milliseconds, sleep, yield)
import Weft.Internal.Core.Buffer (newBuffer)
import Weft.Internal.Core.Home (Home (..))
import Weft.Internal.Core.SystemCall
import Weft.Internal.Core.Tcb (Context (..), Resume, Tcb, newTcb, nobody, rootContext)
import Weft.Internal.Core.Trace (Trace (..), internally, toTrace)
import Weft.Internal.Data.Shortage (newShortage)
import Weft.Internal.Data.Time qualified as Time
import Weft.Internal.Data.Timers qualified as Timers
import Weft.Internal.Os.Address (showAddress)
import Weft.Internal.Os.Descriptor (Descriptor (..), wasClosed)
import Weft.Kernel hiding (Failed, request)
import Weft.Mask (uninterruptibleMask_)
import Weft.Tcp.Connection qualified as Tcp
import Weft.Tcp.Cookie (cookieLife)
import Weft.Tcp.Device
import Weft.Tcp.Info (describeConnection)
import Weft.Tcp.Stack.Alarms
import Weft.Tcp.Stack.Arrivals
import Weft.Tcp.Stack.Ask
import Weft.Tcp.Stack.Closing
import Weft.Tcp.Stack.Connecting
import Weft.Tcp.Stack.Counts
import Weft.Tcp.Stack.Flow
import Weft.Tcp.Stack.Listening
import Weft.Tcp.Stack.Names
import Weft.Tcp.Stack.Orphans (noOrphans)
import Weft.Tcp.Stack.Shards
import Weft.Tcp.Stack.Sockets
import Weft.Tcp.Stack.State
import Weft.Tcp.Stack.Streams
import Weft.Tcp.Stack.Table (newTable)
import Weft.Tcp.Stack.Table qualified as Table
import Weft.Tcp.Stack.Turn
import Weft.Time qualified as Time (now)
import Weft.Timeout (timeoutAt)

-- | A stack on a device, of one shard, with no sockets; its threads do not run.
newStack :: TcpSettings -> Device -> IO Stack
newStack settings device = newShards settings [device]

-- | A stack of a shard for each of these devices, which are queues of one; the first shard. Note [Shards] in
-- "Weft.Tcp.Stack.Shards".
newShards :: TcpSettings -> [Device] -> IO Stack
newShards settings devices = do
  ports <- newIORef IntMap.empty
  opening <- newMVar ()
  -- Set before the first socket is open, so that a flow keeps its hash.
  secret <- newIORef Nothing
  quota <- newIORef 0
  starved <- newIORef False
  report <- newIORef (\_ -> pure ())
  lost <- newIORef False
  started <- newIORef False
  let !several = length devices
      hash flow = do
        known <- readIORef secret
        pure $! maybe (flowHash (0, 0) flow) (`flowHash` flow) known
      newShard shards shard device = do
        turn <- newTurn
        summon <- newIORef (pure ())
        conns <- newTable hash connFlow
        halves <- newTable hash halfFlow
        waits <- newTable hash waitFlow
        -- The remainder is the same for all.
        socks <- newTable (\n -> pure $! n `quot` several) (fromIntegral . sockNumber)
        next <- newIORef (firstSock several shard)
        orphans <- newIORef noOrphans
        takesMore <- newIORef False
        timers <- Timers.new
        soonest <- newIORef Tcp.never
        clock <- newIORef Nothing
        seen <- newIORef 0
        loop <- newIORef Sequence.empty
        flooded <- newIORef (negate cookieLife)
        dice <- newIORef 0
        shared <- newIORef []
        counts <- newCounts
        beyond <- newIORef 0
        owed <- newIORef 0
        shortage <- newShortage
        pure (Stack settings device shard shards turn summon conns halves waits socks next ports opening orphans takesMore timers soonest clock seen loop secret flooded dice quota shared counts beyond owed (tcpSpareMemory settings `quot` length devices) shortage starved report lost started)
  shards <- mfix (\shards -> smallArrayFromList <$> zipWithM (newShard shards) [0 ..] devices)
  let first = indexSmallArray shards 0
  first <$ tcpOpened settings first

-- | For "Weft.Counters".
gauges :: Stack -> IO (Map.Map Text.Text Int)
gauges st = do
  conns <- total stackConns st
  halves <- total stackHalves st
  waits <- timeWaits st
  socks <- openSockets st
  beyond <- sum <$> mapM readIORef ([stackBeyond, stackOwed] <*> allShards st)
  counted <- mapM (countedBy . stackCounts) (allShards st)
  devices <- concat <$> mapM (deviceCounters . stackDevice) (allShards st)
  let now' = [("tcp connections", conns + halves + waits), ("tcp half-open", halves), ("tcp time-wait", waits), ("tcp sockets", socks), ("tcp bytes beyond buffers", beyond)]
  pure (Map.unionsWith (+) (Map.fromList [(Text.pack what, n) | (what, n) <- now' <> devices] : counted))

-- | For dumps: the peer of a socket of the stack, and all that is known of the connection, in one line.
describeSocket :: Stack -> Socket -> IO (Maybe String)
describeSocket any' s = do
  found <- lookupSock st s
  case found of
    Nothing -> pure Nothing
    Just sock -> case sockRole sock of
      Connected c -> do
        b <- readBody c
        wait <- Table.lookup (stackWaits st) (connFlow c)
        let state = case (Tcp.tcbState (bodyTcb b), wait) of
              (Tcp.Closed, Just _) -> Tcp.TimeWait
              (other, _) -> other
        now <- readIORef (stackNow st)
        pure (Just ("peer " <> showAddress (toSockAddr (sockFamily sock) (connPeer c) (connPeerPort c)) <> ", state " <> stateName state <> ", " <> describeConnection now c b))
      Listening l -> pure (Just (showAddress (toSockAddr (sockFamily sock) (listenerAddress l) (listenerPort l)) <> ", state LISTEN"))
      Datagrams ref -> do
        u <- readIORef ref
        let place = showAddress . uncurry (toSockAddr (sockFamily sock))
        pure (Just (maybe (place (udpLocal u, udpLocalPort u)) (("peer " <>) . place) (udpPeer u)))
      _ -> pure Nothing
  where
    st = shardOf any' s

-- | Is the socket one of the stack's?
ours :: Socket -> Bool
ours s = descriptorNumber (socketDescriptor s) < -1

-- | Answer a call about a socket of this stack, of which any shard is given, or one that makes a socket; others go to
-- the kernel underneath.
answer :: Stack -> Home -> (forall b. Tcb -> SystemCall b -> (b -> Trace) -> IO Trace) -> Tcb -> SystemCall a -> (a -> Trace) -> IO Trace
answer any' home inner tcb request k = case request of
  Receive s b o n | ours s -> to s "receive" (receiveInto s b o n)
  ReceiveStanding i
    | s <- intakeSocket i,
      ours s -> do
        offset <- intakeOffset i
        let !st = shardOf any' s
        ask st "receive" request again (\here now -> (pure $!) . standing i k =<< receiveInto s (intakeBuffer i) offset maxBound st here now) home tcb (\n -> internally (\_ _ -> k <$> takeIn i n))
  Send s b | ours s -> to s "send" (\st -> sendSock st s NothingMore [b])
  SendVector s bs | ours s -> to s "send" (\st -> sendSock st s NothingMore (take 64 bs))
  AwaitReadable s | ours s -> to s "wait" (\st _ _ -> awaitReadableSock st s)
  AwaitWritable s | ours s -> to s "wait" (\st _ _ -> awaitWritableSock st s)
  Accept s limit | ours s -> askThroughQueue mine "accept" request again (acceptSock mine s (micros <$> limit)) home tcb k
  Connect s a limit | ours s -> to s ("connect to " <> showAddress a) (\st -> connectSock st s a (micros <$> limit))
  OpenSocket family kind
    | family == AF_INET || family == AF_INET6,
      kind == Stream || kind == Datagram && tcpDatagrams (stackSettings mine) ->
        starting (\h t -> ask mine "socket" request again (\_ _ -> openSock mine family kind) h t k)
  Bind s a | ours s -> to s ("bind to " <> showAddress a) (\st _ _ -> bindSock st s a)
  Listen s n | ours s -> to s "listen" (\st _ _ -> listenSock st s n)
  ReceiveFrom s (Buffer memory room) | ours s -> to s "receive from" (\st here now -> receiveFromSock st s (unsafeForeignPtrToPtr memory) room here now <* touchForeignPtr memory)
  SendTo s b a | ours s -> to s ("send to " <> showAddress a) (\st -> sendToSock st s b a)
  SendFile s f o n | ours s -> sendingFile (shardOf any' s) request again s f o n home tcb k
  Shutdown s how | ours s -> to s "shutdown" (\st -> shutdownSock st s how)
  CloseSocket s
    | ours s ->
        let !st = shardOf any' s
         in ask st "close" request again (closeSock st s) home tcb (maybe (k ()) (\(c, limit) -> asking st "close" request (lingerConn c limit) k))
  GetOption s o | ours s -> to s "getsockopt" (\st _ _ -> getSock st s o)
  SetOption s o v | ours s -> to s "setsockopt" (\st -> setSock st s o v)
  LocalAddress s | ours s -> to s "getsockname" (\st _ _ -> localOf st s)
  PeerAddress s | ours s -> to s "getpeername" (\st _ _ -> peerOf st s)
  KernelAttempts -> inner tcb request (k . attemptsWith any' home)
  _ -> inner tcb request k
  where
    -- Of this worker.
    mine = shardAt any' (homeWorker home)
    to s what attempt = let !st = shardOf any' s in ask st what request again (attempt st) home tcb k
    -- One closure for a thread that waits (Note [One-shot continuations] in "Weft.Internal.Core.Trace").
    again = oneShot (\_ -> internally (\h t -> answer any' h inner t request k))
    micros (Time.Instant t) = t `div` 1000
    receiveInto s (Buffer memory room) offset n st here now = do
      let !from = max 0 (min room offset)
          !place = unsafeForeignPtrToPtr memory `plusPtr` from
          !most = max 0 (min (room - from) n)
      r <- receiveSock st s place most here now
      r <$ touchForeignPtr memory
    starting next =
      readIORef (stackStarted mine) >>= \case
        True -> next home tcb
        False -> inner tcb (RandomBytes 24) (\bytes -> internally (\h t -> startStack mine h rootContext bytes >> next h t))

-- What a thread leaves that waits in a standing receive.
standing :: Intake -> (Arrival -> Trace) -> Verdict n -> Verdict n
standing i k = \case
  Again register limit -> Again (\w -> register $! receiving i k w) limit
  verdict -> verdict

-- There is room first: the bytes read of the file are then taken as a whole.
sendingFile :: Stack -> SystemCall r -> Resume -> Socket -> File -> Int64 -> Int -> Home -> Tcb -> (Int -> Trace) -> IO Trace
sendingFile st request again s f o n home tcb k =
  ask st "send file" request again (\_ now -> roomSock st s now) home tcb $ \room -> internally $ \_ _ -> do
    buffer <- newBuffer (min (max 0 n) (min room 262144))
    pure . Call emptyCallStack (ReadFile f buffer 0 (bufferSize buffer) o) $ \got ->
      if got <= 0 then k 0 else asking st "send file" request (appendSock st s (BS (bufferMemory buffer) got)) k

-- | Give the stack its secret, 24 random bytes, and start the threads of its shards in this context, each on its worker,
-- unless that was done. Takes any worker of the run.
startStack :: Stack -> Home -> Context -> ByteString -> IO ()
startStack any' home context bytes = do
  atomicModifyIORef' (stackSecret any') (\old -> (old <|> Just (word 0, word 8), ()))
  first <- atomicModifyIORef' (stackStarted any') (\was -> (True, not was))
  when first $ forM_ (allShards any') $ \st -> do
    let there = indexArray (homePeers home) (stackShard st)
        spawning name thread = homePost there (homeStart there (newTcb nobody context {contextLabel = fromString name}) (\_ -> toTrace thread))
    writeIORef (stackDice st) (word 16 + fromIntegral (stackShard st) * 0x10000000000)
    writeIORef (stackSummon st) (homePost there (haveTurn st (Just there)))
    spawning "tcp input" (inputThread st)
    spawning "tcp clock" (clockThread st)
  where
    word i = B.foldl' (\x b -> x * 256 + fromIntegral b) 0 (B.take 8 (B.drop i bytes)) :: Word64

-- | Takes in packets (Li's @worker_tcp_input@). At the end of the run it stays until closed
-- connections have sent what they had.
inputThread :: Stack -> Thread ()
inputThread st = mask $ \restore -> restore loop `catch` \(_ :: SomeException) -> uninterruptibleMask_ (lingering st)
  where
    loop = do
      n <- inTurn st (takePackets st)
      gone <- liftIO (readIORef (stackLost st))
      if
        | gone -> do
            -- A shard that reads nothing does not learn of it.
            forM_ (allShards st) (\each -> resetAll each not (Just (Tcp.Unreached 0)))
            suspend "wait for a device that is gone" (\_ -> pure ())
        | n == 0 -> deviceAwait (stackDevice st) `catch` \e -> inTurn st (\here _ -> loseDevice st here e)
        | otherwise -> yield
      loop

takePackets :: Stack -> Maybe Home -> Tcp.Instant -> IO Int
takePackets st here now =
  try (deviceRead (stackDevice st)) >>= \case
    Right packets -> length packets <$ mapM_ (packetFrom (deviceVerifies (stackDevice st)) st here now) packets
    Left e -> 0 <$ loseDevice st here e

-- | Reset all connections, or those over the device or within the stack, some at a time.
resetAll :: Stack -> (Bool -> Bool) -> Maybe Tcp.Failure -> Thread ()
resetAll st isOne why = do
  more <- inTurn st (resetSome st isOne why)
  when more (yield >> resetAll st isOne why)

-- | Fires timers (Li's @worker_tcp_timer@).
clockThread :: Stack -> Thread ()
clockThread st = do
  -- Not the time of the last poll: by that a timer may not be due for which there is no wait any more.
  moment <- Time.now
  (next, seen) <- inTurn st $ \here _ -> do
    seen <- noteTime st (Time.instantNanoseconds moment)
    (,seen) <$> fireTimers st here seen
  let sleeping = suspend "wait for a timer of the TCP stack" $ \waiter -> do
        atomicWriteIORef (stackClock st) (Just (next, waiter))
        soonest <- atomicModifyIORef' (stackSoonest st) (\s -> (s, s))
        when (soonest < next) (void (deliver waiter (Answered ())))
  if
    | next == Tcp.never -> sleeping
    | next <= seen -> yield
    | otherwise -> void (timeoutAt (Time.Instant (next * 1000)) sleeping)
  clockThread st

lingering :: Stack -> Thread ()
lingering st = do
  begun <- Time.now
  let limit = Time.after (Time.microseconds (fromIntegral (tcpLinger (stackSettings st)))) begun
      go = do
        busy <- inTurn st $ \here t -> do
          _ <- takePackets st here t
          _ <- fireTimers st here t
          -- As long as any shard has something to send, for it may be to another.
          conns <- concat <$> mapM (Table.toList . stackConns) (allShards st)
          or <$> mapM (fmap unfinished . readBody) conns
        t <- Time.now
        if busy && t < limit
          then sleep (milliseconds 1) >> go
          else resetAll st (const True) Nothing
  go
  where
    unfinished b = isOrphan b && isUnfinished b

-- | Attempts at the stack's sockets, of any shard; at others the kernel's underneath.
attemptsWith :: Stack -> Home -> Attempts -> Attempts
attemptsWith any' home inner =
  Attempts
    { attemptSend = \s more bytes -> if ours s then trying s (\st -> sendSock st s more [bytes]) else attemptSend inner s more bytes,
      attemptSendFile = \s bytes file offset size -> if ours s then pure (failure eAGAIN) else attemptSendFile inner s bytes file offset size,
      attemptReceive = \s b@(Buffer memory _) offset n ->
        if ours s
          then trying s (\st -> receiveSock st s (unsafeForeignPtrToPtr memory `plusPtr` offset) n) <* touchForeignPtr memory
          else attemptReceive inner s b offset n
    }
  where
    trying s attempt = mask_ $ do
      let !st = shardOf any' s
      mine <- tryTurn (stackTurn st)
      if not mine
        then pure (failure eAGAIN)
        else do
          -- By the clock of the worker that asked: after a pause the stack has seen no later time.
          moment <- instantOf st home
          r <- try (attempt st Nothing moment)
          finish st Nothing moment
          case r of
            Right (Answer n) -> pure n
            -- There is no such socket any more.
            Right (Refuse e) | e == eBADF -> pure wasClosed
            Right (Refuse e) -> pure (failure e)
            Right _ -> pure (failure eAGAIN)
            Left (e :: SomeException) -> throwIO e
    failure (Errno e) = negate (fromIntegral e)
