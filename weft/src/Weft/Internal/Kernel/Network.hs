{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The system kernel's sockets, pipes and FIFOs. Each call becomes an operation of the backend; those
-- that cannot block are made here and now.
module Weft.Internal.Kernel.Network
  ( openSocket,
    adoptSocket,
    bindSocket,
    listenSocket,
    acceptSocket,
    connectSocket,
    receive,
    send,
    sendVector,
    receiveFrom,
    sendTo,
    sendFile,
    getOption,
    setOption,
    localAddress,
    peerAddress,
    resolve,
    noRoom,

    -- * Pipes
    openPipe,
    openFifo,
    readPipe,
    writePipe,
    pipeCapacity,
  )
where

import Control.Exception (SomeException, toException, try)
import Control.Monad (unless, void, when)
import Data.ByteString qualified as ByteString
import Data.ByteString.Internal (ByteString (BS))
import Data.ByteString.Unsafe qualified as ByteString
import Data.Foldable (for_)
import Data.IORef (newIORef, writeIORef)
import Data.Int (Int64)
import Data.Word (Word32, Word64, Word8)
import Foreign.C.Error
import Foreign.C.String (withCString)
import Foreign.C.Types (CInt)
import Foreign.ForeignPtr
import Foreign.ForeignPtr.Unsafe (unsafeForeignPtrToPtr)
import Foreign.Marshal.Alloc (alloca, allocaBytes)
import Foreign.Marshal.Array (allocaArray, peekArray)
import Foreign.Marshal.Utils (fillBytes)
import Foreign.Ptr
import Foreign.Storable
import Network.Socket (AddrInfo, Family, HostName, ServiceName, SockAddr (SockAddrUnix), SocketOption (..), SocketType (GeneralSocketType), getAddrInfo, packFamily, unpackFamily)
import Network.Socket.Address (peekSocketAddress, pokeSocketAddress, sizeOfSocketAddress)
import Weft.Internal.Backend qualified as Operation
import Weft.Internal.Core.Cancel (interruptible, orInterrupted)
import Weft.Internal.Core.SystemCall (Buffer (..), OpenMode (..), Outcome (..), Pipe (..), Socket (..), SystemCall, deliver)
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Shortage
import Weft.Internal.Data.Slots qualified as Slots
import Weft.Internal.Data.Time (Instant (..))
import Weft.Internal.Data.Timers qualified as Timers
import Weft.Internal.Kernel (answerSuspend, hostReady, hostReport)
import Weft.Internal.Kernel.Env
import Weft.Internal.Os.Address (showAddress)
import Weft.Internal.Os.Descriptor (Descriptor (..), newDescriptor)
import Weft.Internal.Os.Net
import Weft.Internal.Os.Pool (cancelPool, submitPool)
import Weft.Internal.Os.Sys (failureCode, monotonicNow)

-- | The result of a call that cannot block: the continuation, or its error.
atOnce :: String -> IO CInt -> (CInt -> IO a) -> Answering a
atOnce what action finish _ k = do
  r <- action
  if r < 0 then pure (failing what Nothing (const Done) (fromIntegral r)) else finish r >>= \a -> pure (k a)
{-# INLINE atOnce #-}

done :: CInt -> IO ()
done _ = pure ()

number :: Socket -> CInt
number = descriptorNumber . socketDescriptor

openSocket :: Family -> SocketType -> Answering Socket
openSocket family kind@(GeneralSocketType n) =
  atOnce "socket" (c_socket (packFamily family) n 0) $ \fd -> do
    d <- newDescriptor fd
    pure (Socket d family kind)

-- | The system knows family and type of the socket.
adoptSocket :: CInt -> Answering Socket
adoptSocket fd wait k = allocaArray 2 $ \what -> atOnce "adopt a socket" (c_adopt fd what) (adopted what) wait k
  where
    adopted what _ = do
      family <- unpackFamily <$> peek what
      kind <- GeneralSocketType <$> peekElemOff what 1
      d <- newDescriptor fd
      pure (Socket d family kind)

bindSocket :: Env -> Socket -> SockAddr -> Answering ()
bindSocket env s address wait k =
  unlessClosed env what (socketDescriptor s) $ do
    (memory, n) <- addressMemory address
    withForeignPtr memory $ \p -> atOnce what (c_bind (number s) (castPtr p) (fromIntegral n)) done wait k
  where
    what = "bind to " <> showAddress address

listenSocket :: Env -> Socket -> Int -> Answering ()
listenSocket env s backlog wait k =
  unlessClosed env "listen" (socketDescriptor s) $
    atOnce "listen" (c_listen (number s) (fromIntegral backlog)) done wait k

-- | Accept one connection. One that was aborted in the queue is skipped; when descriptors or memory are short
-- ('starve') the accept waits until one is closed or a moment has passed, and the operator is told. The
-- connection passes through the ready queue, so that a flood of them cannot keep the worker here.
acceptSocket :: Env -> Socket -> Maybe Instant -> Answering (Socket, SockAddr)
acceptSocket first s limit wait k = attempt False first
  where
    attempt told env = do
      memory <- mallocForeignPtrBytes (addressRoom + 8) :: IO (ForeignPtr Word8)
      let base = unsafeForeignPtrToPtr memory
          lengthAt = castPtr (base `plusPtr` addressRoom)
      poke lengthAt (fromIntegral addressRoom :: Word32)
      operateBefore env (instantNanoseconds <$> limit) Accepted (socketDescriptor s) (Operation.Accept (socketDescriptor s) (castPtr base) (castPtr lengthAt)) (pure ()) wait (onItsWorker env . accepted memory told)
    accepted memory told r env
      | r >= 0 = do
          address <- withForeignPtr memory (peekSocketAddress . castPtr)
          d <- newDescriptor (fromIntegral r)
          hostReady (envHost env) Accepted (waitTcb wait) (\_ -> k (Socket d (socketFamily s) (socketType s), address))
          pure Parked
      | r `elem` passing = attempt told env
      | r `elem` starving = do
          unless told $ do
            now <- monotonicNow
            runShort
              (envShortage env)
              (fromIntegral now)
              (hostReport (envHost env))
              "no descriptor (or memory) left for a new connection; accepting goes on when one is free"
          starve env (waitTcb wait) (\_ -> onItsWorker env (attempt True))
          pure Parked
      | otherwise = pure (failing "accept" Nothing (const Done) r)
    -- The peer's fault, or its network's (accept(2)).
    passing = map failureCode [eCONNABORTED, eINTR, ePROTO, eNETDOWN, eNOPROTOOPT, eHOSTDOWN, eHOSTUNREACH, eNETUNREACH]
    starving = map failureCode [eMFILE, eNFILE, eNOBUFS, eNOMEM]

-- | Try again when a descriptor of this process is closed, or after a while.
starve :: Env -> Tcb -> Resume -> IO ()
starve env tcb again = do
  stop <- newIORef (pure ())
  key <- Slots.insert (envStarved env) (Starved tcb again stop)
  now <- monotonicNow
  timer <- Timers.insert (envTimers env) (now + 250_000_000) (Alarm (retryStarved env key (const pure)))
  writeIORef stop (void (Timers.cancel (envTimers env) timer))
  interruptible tcb $ retryStarved env key orInterrupted

connectSocket :: Env -> Socket -> SockAddr -> Maybe Instant -> Answering ()
connectSocket env s address limit wait k = do
  (memory, size) <- addressMemory address
  operateBefore env before Completed d (operation memory size) (touchForeignPtr memory) wait next
  where
    before = instantNanoseconds <$> limit
    d = socketDescriptor s
    operation memory = Operation.Connect d (castPtr (unsafeForeignPtrToPtr memory))
    next = failing ("connect to " <> showAddress address) Nothing (\_ -> k ())

receive :: Env -> Socket -> Buffer -> Int -> Int -> Answering Int
receive env s buffer offset count wait k
  | most <= 0 = pure (noRoom "receive" k)
  | otherwise = operateOn env s (\d -> Operation.Receive d to most) (touchForeignPtr (bufferMemory buffer)) wait (failing "receive" Nothing k)
  where
    (to, most) = partOf buffer offset count
{-# INLINE receive #-}

-- | 'operate' on a socket's descriptor.
operateOn :: Env -> Socket -> (Descriptor -> Operation.Operation) -> IO () -> Wait -> (Int -> Trace) -> IO Trace
operateOn env s operation = operate env Completed (socketDescriptor s) (operation (socketDescriptor s))

-- | There is no room for what was to be received: 0 would be taken for the end of the stream.
noRoom :: String -> (a -> Trace) -> Trace
noRoom what _ = failing what Nothing (const Done) (failureCode eINVAL)

send :: Env -> Socket -> ByteString -> Answering Int
send env s (BS memory n) wait k = operateOn env s operation (touchForeignPtr memory) wait (failing "send" Nothing k)
  where
    operation d = Operation.Send d (unsafeForeignPtrToPtr memory) n
{-# INLINE send #-}

-- | A 'ByteString' is needed until here.
keepAlive :: ByteString -> IO ()
keepAlive (BS memory _) = touchForeignPtr memory

sendVector :: Env -> Socket -> [ByteString] -> Answering Int
sendVector env s pieces wait k = do
  let some = take maxPieces (filter (not . ByteString.null) pieces)
  message <- newMessage Nothing some
  sendMessage env s message (mapM_ keepAlive some) wait (failing "send" Nothing k)
  where
    maxPieces = 64

receiveFrom :: Env -> Socket -> Buffer -> Answering (Int, SockAddr)
receiveFrom _ _ (Buffer _ 0) _ k = pure (noRoom "receive from" k)
receiveFrom env s (Buffer memory room) wait k = do
  let from = unsafeForeignPtrToPtr memory
  message <- messageOf addressRoom [(castPtr from, room)]
  operateIO env Completed (socketDescriptor s) (Operation.ReceiveMessage (socketDescriptor s) (castPtr (unsafeForeignPtrToPtr message))) wait $ \r -> do
    touchForeignPtr memory
    if r < 0
      then pure (failing "receive from" Nothing (const Done) r)
      else do
        address <- withForeignPtr message $ \p -> do
          size <- peekByteOff p 8 :: IO Word32
          -- A Unix-domain sender that was not bound has no address at all.
          if size == 0 then pure (SockAddrUnix "") else peekSocketAddress (castPtr (p `plusPtr` nameOffset))
        pure (k (r, address))

sendTo :: Env -> Socket -> ByteString -> SockAddr -> Answering Int
sendTo env s bytes address wait k = do
  message <- newMessage (Just address) [bytes]
  sendMessage env s message (keepAlive bytes) wait (failing ("send to " <> showAddress address) Nothing k)

-- | Send a prepared message; the action keeps its pieces alive.
sendMessage :: Env -> Socket -> ForeignPtr Word8 -> IO () -> Wait -> (Int -> Trace) -> IO Trace
sendMessage env s message keep = operateOn env s operation (touchForeignPtr message >> keep)
  where
    operation d = Operation.SendMessage d (castPtr (unsafeForeignPtrToPtr message))

sendFile :: Env -> Socket -> Descriptor -> Int64 -> Int -> Answering Int
sendFile env s file offset count wait k =
  unlessClosed env "send file" file $ operateOn env s operation (pure ()) wait (failing "send file" Nothing k)
  where
    operation d = Operation.SendFile d file offset count

getOption :: Env -> Socket -> SocketOption -> Answering Int
getOption env s (SockOpt level name) wait k = unlessClosed env "getsockopt" (socketDescriptor s) . alloca $ \value ->
  atOnce "getsockopt" (c_getsockopt (number s) level name value) (\_ -> fromIntegral <$> peek value) wait k

setOption :: Env -> Socket -> SocketOption -> Int -> Answering ()
setOption env s (SockOpt level name) value wait k =
  unlessClosed env "setsockopt" (socketDescriptor s) $
    atOnce "setsockopt" (c_setsockopt (number s) level name (fromIntegral value)) done wait k

localAddress, peerAddress :: Env -> Socket -> Answering SockAddr
localAddress env = addressOf env "getsockname" c_getsockname
peerAddress env = addressOf env "getpeername" c_getpeername

addressOf :: Env -> String -> (CInt -> Ptr () -> CInt -> IO CInt) -> Socket -> Answering SockAddr
addressOf env what get s wait k = unlessClosed env what (socketDescriptor s) . allocaBytes addressRoom $ \p ->
  atOnce what (get (number s) p (fromIntegral addressRoom)) (\_ -> peekSocketAddress (castPtr p)) wait k

-- | In the pool: the C library's resolver blocks and cannot be interrupted. A cancelled thread leaves it.
resolve :: Env -> SystemCall [AddrInfo] -> Maybe AddrInfo -> Maybe HostName -> Maybe ServiceName -> Answering [AddrInfo]
resolve env request hints host service wait = answerSuspend (envHost env) request ask (waitTcb wait)
  where
    ask waiter = do
      job <- submitPool (envPool env) $ do
        result <- try (getAddrInfo hints host service)
        void . deliver waiter $ either (Failed :: SomeException -> Outcome [AddrInfo]) Answered result
      pure (void (cancelPool job))

addressRoom :: Int
addressRoom = 128

addressMemory :: SockAddr -> IO (ForeignPtr Word8, Int)
addressMemory address = do
  memory <- mallocForeignPtrBytes addressRoom
  withForeignPtr memory $ \p -> pokeSocketAddress p address
  pure (memory, sizeOfSocketAddress address)

-- A prepared message is one block of memory: @struct msghdr@ (64-bit layout), an address, the vector of pieces.
nameOffset, vectorOffset :: Int
nameOffset = 64
vectorOffset = nameOffset + addressRoom

newMessage :: Maybe SockAddr -> [ByteString] -> IO (ForeignPtr Word8)
newMessage address pieces = do
  message <- messageOf (maybe 0 sizeOfSocketAddress address) =<< mapM piece pieces
  message <$ for_ address (\a -> withForeignPtr message (\header -> pokeSocketAddress (header `plusPtr` nameOffset) a))
  where
    -- The pieces stay where they are; the sender keeps them alive.
    piece bytes = ByteString.unsafeUseAsCStringLen bytes (\(p, n) -> pure (castPtr p, n))

-- | A message with an address of this many bytes; 0 for none.
messageOf :: Int -> [(Ptr (), Int)] -> IO (ForeignPtr Word8)
messageOf size pieces = do
  message <- mallocForeignPtrBytes (vectorOffset + 16 * length pieces)
  withForeignPtr message $ \header -> do
    fillBytes header 0 vectorOffset
    when (size > 0) $ do
      pokeByteOff header 0 (header `plusPtr` nameOffset :: Ptr ())
      pokeByteOff header 8 (fromIntegral size :: Word32)
    pokeByteOff header 16 (header `plusPtr` vectorOffset :: Ptr ())
    pokeByteOff header 24 (fromIntegral (length pieces) :: Word64)
    for_ (zip [vectorOffset, vectorOffset + 16 ..] pieces) $ \(at, (p, n)) ->
      pokeByteOff header at p >> pokeByteOff header (at + 8) (fromIntegral n :: Word64)
  pure message

openPipe :: Answering (Pipe, Pipe)
openPipe wait k = allocaArray 2 $ \ends ->
  atOnce "pipe" (c_pipe ends) (\_ -> peekArray 2 ends >>= mapM (fmap Pipe . newDescriptor)) wait $ \case
    [r, w] -> k (r, w)
    _ -> Done

-- | Never waits for the other end: reading an end without a writer is at its end of file; opening for
-- writing without a reader fails with @ENXIO@.
openFifo :: FilePath -> OpenMode -> Answering Pipe
openFifo path mode wait k = do
  opened <- try (withCString path (\p -> c_open_fifo p (c_open_flags (existing mode) 0 0 0)))
  case opened of
    Left e -> pure (Throw (toException (e :: IOError)))
    Right r -> atOnce ("open FIFO " <> path) (pure r) (fmap Pipe . newDescriptor) wait k
  where
    -- Never creates: the flags of an existing file.
    existing = \case
      WriteOnly -> 5
      ReadWrite -> 6
      Append -> 5
      other -> fromIntegral (fromEnum other)

readPipe :: Env -> Pipe -> Buffer -> Int -> Int -> Answering Int
readPipe env (Pipe d) buffer offset count wait k
  | most <= 0 = pure (noRoom "read" k)
  | otherwise = operate env Completed d (Operation.ReadStream d to most) (touchForeignPtr (bufferMemory buffer)) wait (failing "read" Nothing k)
  where
    (to, most) = partOf buffer offset count

writePipe :: Env -> Pipe -> ByteString -> Answering Int
writePipe env (Pipe d) (BS memory n) wait k =
  operate env Completed d (Operation.WriteStream d (unsafeForeignPtrToPtr memory) n) (touchForeignPtr memory) wait (failing "write" Nothing k)

-- | A size that is no positive @int@ is refused here: C would see another number.
pipeCapacity :: Env -> Pipe -> Maybe Int -> Answering Int
pipeCapacity env (Pipe d) size wait k = unlessClosed env "fcntl" d $ case size of
  Just n | n < 1 || n > fromIntegral (maxBound :: CInt) -> pure (failing "fcntl" Nothing (const Done) (failureCode eINVAL))
  _ -> atOnce "fcntl" (c_pipe_capacity (descriptorNumber d) (maybe 0 fromIntegral size)) (pure . fromIntegral) wait k
