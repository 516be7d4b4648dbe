-- |
-- TCP, UDP and Unix-domain sockets. Addresses, families and options are those of the package @network@.
--
-- An operation that would block parks the thread. A closed socket fails with @EBADF@, and one that is
-- closed while a thread waits on it with @ECANCELED@. Two threads may use one socket at a time, one to
-- receive and one to send; two that send must take turns.
module Weft.Socket
  ( -- * Sockets
    Socket,
    openSocket,
    adoptSocket,
    withSocket,
    closeSocket,
    shutdown,
    ShutdownHow (..),

    -- * Listening
    listenTcp,
    listenTcpWith,
    bind,
    listen,
    isListening,
    accept,
    acceptBefore,

    -- * Connecting
    connect,
    connectBefore,
    connectTcp,
    resolve,

    -- * Streams
    receive,
    receiveInto,
    receiveEach,
    receiveEachInto,
    sendAll,
    sendMany,
    send,
    sendVector,
    dropBytes,
    sendFile,
    sendFileAll,
    awaitReadable,
    awaitWritable,

    -- * Datagrams
    receiveFrom,
    sendTo,

    -- * Options and names
    getOption,
    setOption,
    notSentLowAt,
    localAddress,
    peerAddress,
    showAddress,

    -- * From the package network
    SockAddr (..),
    Family (..),
    SocketType (..),
    SocketOption (..),
    AddrInfo (..),
    HostName,
    ServiceName,
    PortNumber,
  )
where

import Control.Monad (void)
import Control.Monad.Catch (bracket, catch, onException, throwM, try)
import Control.Monad.IO.Class (liftIO)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.Int (Int64)
import Foreign.C.Error (Errno (..), eTIMEDOUT)
import Foreign.C.Types (CInt)
import GHC.IO.Exception (IOException (..))
import GHC.Stack (HasCallStack, callStack, withFrozenCallStack)
import Network.Socket
  ( AddrInfo (..),
    AddrInfoFlag (AI_ADDRCONFIG, AI_PASSIVE),
    Family (..),
    HostName,
    PortNumber,
    ServiceName,
    SockAddr (..),
    SocketOption (..),
    SocketType (..),
    defaultHints,
  )
import Weft.Buffer
import Weft.Internal.Core.Buffer (unsafeFreeze)
import Weft.Internal.Core.SystemCall
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Time (Duration, after)
import Weft.Internal.Os.Address (showAddress)
import Weft.Internal.Os.Net qualified as Net
import Weft.Time (now)

-- | A new socket, non-blocking and closed on exec.
openSocket :: Family -> SocketType -> Thread Socket
openSocket family kind = call (OpenSocket family kind)

-- | Take over a descriptor that other code opened, such as a listening socket from the service manager.
-- It is made non-blocking and closed on exec; 'closeSocket' closes it, and no other code may use the
-- number any more. Fails with an 'IOError' where the number is not open (@EBADF@, as always on a
-- simulated machine) or no socket (@ENOTSOCK@).
adoptSocket :: CInt -> Thread Socket
adoptSocket = call . AdoptSocket

-- | Close a socket when the body has ended, however it ends.
withSocket :: Thread Socket -> (Socket -> Thread a) -> Thread a
withSocket open = bracket open closeSocket

-- | Close a socket; again does nothing. Threads that wait on it fail with @ECANCELED@, unless they succeeded.
closeSocket :: Socket -> Thread ()
closeSocket = call . CloseSocket

-- | End one direction of a connection, or both, and keep the socket (half-close).
shutdown :: Socket -> ShutdownHow -> Thread ()
shutdown s how = call (Shutdown s how)

-- | A socket that listens for TCP connections: on a host ('Nothing': every address, IPv6 and IPv4), a
-- port (0: any free one, see 'localAddress'), with a backlog. @SO_REUSEADDR@ is set. Fails with an
-- 'IOError' that names the address.
listenTcp :: Maybe HostName -> ServiceName -> Int -> Thread Socket
listenTcp = listenTcpWith []

-- | 'listenTcp' with further options, set before the socket has its address. With @(ReusePort, 1)@ the system
-- spreads new connections over several sockets with one address, also of several processes of one user.
listenTcpWith :: [(SocketOption, Int)] -> Maybe HostName -> ServiceName -> Int -> Thread Socket
listenTcpWith options host port backlog = do
  addresses <- resolve (Just defaultHints {addrFlags = [AI_PASSIVE], addrSocketType = Stream}) host (Just port)
  -- The IPv6 wildcard takes IPv4 as well, so it goes first.
  firstThatWorks (filter isIPv6 addresses <> filter (not . isIPv6) addresses)
  where
    isIPv6 a = addrFamily a == AF_INET6
    firstThatWorks = \case
      [] -> throwM (userError ("no address to listen on for " <> show host <> " " <> port))
      [a] -> open a
      a : rest -> try (open a) >>= either (\e -> firstThatWorks rest `onException` throwM (e :: IOError)) pure
    open a = do
      s <- naming a (openSocket (addrFamily a) Stream)
      naming a . flip onException (closeSocket s) $ do
        setOption s ReuseAddr 1
        case addrAddress a of
          SockAddrInet6 _ _ (0, 0, 0, 0) _ -> setOption s IPv6Only 0
          _ -> pure ()
        mapM_ (uncurry (setOption s)) options
        bind s (addrAddress a)
        listen s backlog
        pure s
    naming a body = body `catch` \e -> throwM (e :: IOError) {ioe_location = "listen on " <> showAddress (addrAddress a)}

-- | Give a socket its local address. Fails with an 'IOError' that names the address.
bind :: Socket -> SockAddr -> Thread ()
bind s address = call (Bind s address)

-- | Start to accept connections; the number is how many may wait to be accepted.
listen :: Socket -> Int -> Thread ()
listen s backlog = call (Listen s backlog)

-- | Does it accept connections, after 'listen' here or elsewhere?
isListening :: Socket -> Thread Bool
isListening s = (/= 0) <$> getOption s Net.acceptConn

-- | Wait for a connection. One that was aborted meanwhile is passed over. When the process or the system has
-- no descriptor left it waits until there is one; the operator is told once. A socket for both families names
-- an IPv4 client by its address mapped into IPv6, which 'showAddress' shows as IPv4.
accept :: Socket -> Thread (Socket, SockAddr)
accept s = call (Accept s Nothing)

-- | 'accept' with a time limit: 'Nothing' if no connection has come by then.
acceptBefore :: Duration -> Socket -> Thread (Maybe (Socket, SockAddr))
acceptBefore limit s = do
  t <- now
  try (call (Accept s (Just (after limit t)))) >>= \case
    Right connection -> pure (Just connection)
    Left e
      | ioe_errno e == Just timedOut -> pure Nothing
      | otherwise -> throwM e
  where
    Errno timedOut = eTIMEDOUT

-- | Connect, or set the peer of a datagram socket. Waits as long as the system tries (some two minutes).
connect :: Socket -> SockAddr -> Thread ()
connect s address = call (Connect s address Nothing)

-- | 'connect' with a time limit, after which it fails with @ETIMEDOUT@: the socket is then to be closed.
connectBefore :: Duration -> Socket -> SockAddr -> Thread ()
connectBefore limit s address = do
  t <- now
  call (Connect s address (Just (after limit t)))

-- | Resolve a name and connect to the first of its addresses that answers, each within the limit.
connectTcp :: Duration -> HostName -> ServiceName -> Thread Socket
connectTcp limit host port =
  resolve (Just defaultHints {addrFlags = [AI_ADDRCONFIG], addrSocketType = Stream}) (Just host) (Just port) >>= go
  where
    go = \case
      [] -> throwM (userError ("no address for " <> host))
      [a] -> attempt a
      a : rest -> try @_ @IOError (attempt a) >>= either (\_ -> go rest) pure
    attempt a = do
      s <- openSocket (addrFamily a) Stream
      (s <$ connectBefore limit s (addrAddress a)) `onException` closeSocket s

-- | Look a name up, as 'Network.Socket.getAddrInfo' does, without holding up the worker.
resolve :: Maybe AddrInfo -> Maybe HostName -> Maybe ServiceName -> Thread [AddrInfo]
resolve hints host service = call (Resolve hints host service)

-- | Wait for bytes and receive at most the given number; empty at the end of the stream. @EINVAL@ if that is none.
receive :: (HasCallStack) => Socket -> Int -> Thread ByteString
receive s count = do
  buffer <- liftIO (newBuffer count)
  n <- withFrozenCallStack receiveInto s buffer 0 (bufferSize buffer)
  unsafeFreeze buffer n

-- | Wait for bytes and receive at most the given number into a buffer from an offset: how many came, 0
-- only at the end of the stream; without room it fails with @EINVAL@. The kernel owns that part of the
-- buffer until then.
receiveInto :: (HasCallStack) => Socket -> Buffer -> Int -> Int -> Thread Int
receiveInto s buffer offset count = callAt callStack (Receive s buffer offset count)
{-# INLINE receiveInto #-}

-- | Receive at most the given number of bytes again and again, and do something with them, until that has a result.
-- At the end of the stream there are none. It makes one buffer, and to wait again makes nothing at all.
--
-- > echo client = receiveEach client 4096 $ \bytes ->
-- >   if ByteString.null bytes then pure (Just ()) else Nothing <$ sendAll client bytes
--
-- Fails as 'receive', and with what the function throws; cancellable while it waits. While the socket
-- is open, what the loop refers to may be kept until the socket is received from in another way.
receiveEach :: (HasCallStack) => Socket -> Int -> (ByteString -> Thread (Maybe a)) -> Thread a
receiveEach s count body = do
  buffer <- liftIO (newBuffer count)
  withFrozenCallStack receiveEachInto s buffer $ \n -> liftIO (copyBuffer buffer 0 n) >>= body
{-# INLINE receiveEach #-}

-- | 'receiveEach' into a buffer, from its start: how many bytes have come. The buffer is the function's
-- until its end, and the kernel's while the thread waits. Fails with @EINVAL@ if it has no room.
receiveEachInto :: (HasCallStack) => Socket -> Buffer -> (Int -> Thread (Maybe a)) -> Thread a
receiveEachInto s buffer body = do
  intake <- liftIO (newIntake False s buffer)
  standingReceive callStack intake (body . arrivalCount)
{-# INLINE receiveEachInto #-}

-- | Send all bytes, waiting as often as the socket takes no more.
sendAll :: (HasCallStack) => Socket -> ByteString -> Thread ()
sendAll s bytes
  | ByteString.null bytes = pure ()
  | otherwise = do
      n <- withFrozenCallStack send s bytes
      if n >= ByteString.length bytes then pure () else withFrozenCallStack sendAll s (ByteString.drop n bytes)

-- | Send all of several pieces in order, without joining them.
sendMany :: (HasCallStack) => Socket -> [ByteString] -> Thread ()
sendMany s pieces = case filter (not . ByteString.null) pieces of
  [] -> pure ()
  [bytes] -> withFrozenCallStack sendAll s bytes
  some -> do
    n <- withFrozenCallStack sendVector s some
    withFrozenCallStack sendMany s (dropBytes n some)

-- | Drop the given number of bytes at the start of several pieces, as when 'sendVector' has sent them.
dropBytes :: Int -> [ByteString] -> [ByteString]
dropBytes _ [] = []
dropBytes n (bytes : rest)
  | n >= ByteString.length bytes = dropBytes (n - ByteString.length bytes) rest
  | otherwise = ByteString.drop n bytes : rest

-- | Send some bytes: as many as the socket takes at once, at least one.
send :: (HasCallStack) => Socket -> ByteString -> Thread Int
send s bytes = callAt callStack (Send s bytes)
{-# INLINE send #-}

-- | Send some bytes of several pieces in one system call (of the first 64 pieces that are not empty).
sendVector :: (HasCallStack) => Socket -> [ByteString] -> Thread Int
sendVector s pieces = Thread (\k -> foldr seq (Call callStack (SendVector s some) k) some)
  where
    -- Evaluated here, where it is the thread's own affair (Note [User code and the worker]).
    some = take 64 (filter (not . ByteString.null) pieces)

-- | Send at most the given number of bytes of a file from an offset, without a copy through the program: how
-- many were sent, 0 at the end of the file. A part that is not in the page cache is read in first, off the worker.
sendFile :: Socket -> File -> Int64 -> Int -> Thread Int
sendFile s file offset count = call (SendFile s file offset count)

-- | Send the given number of bytes of a file from an offset; answers how many: fewer when the file has become shorter.
sendFileAll :: Socket -> File -> Int64 -> Int64 -> Thread Int64
sendFileAll s file offset count = go 0
  where
    go sent
      | sent >= count = pure sent
      | otherwise = do
          n <- sendFile s file (offset + sent) (fromIntegral (min chunk (count - sent)))
          if n == 0 then pure sent else go (sent + fromIntegral n)
    -- One turn of the thread: large enough to be cheap, small enough to be fair.
    chunk = 1024 * 1024

-- | Wait until receiving would not block, while holding no buffer.
awaitReadable :: Socket -> Thread ()
awaitReadable s = call (AwaitReadable s)
{-# INLINE awaitReadable #-}

-- | Wait until sending would not block.
awaitWritable :: Socket -> Thread ()
awaitWritable s = call (AwaitWritable s)

-- | Wait for a datagram: it, cut off at the given number of bytes (at least one), and its sender.
receiveFrom :: (HasCallStack) => Socket -> Int -> Thread (ByteString, SockAddr)
receiveFrom s count = do
  buffer <- liftIO (newBuffer count)
  (n, address) <- callAt callStack (ReceiveFrom s buffer)
  bytes <- liftIO (copyBuffer buffer 0 n)
  pure (bytes, address)

-- | Send one datagram.
sendTo :: (HasCallStack) => Socket -> ByteString -> SockAddr -> Thread ()
sendTo s bytes address = void (callAt callStack (SendTo s bytes address))

-- | The value of an option, as for 'setOption'. A name of more than seven bytes fails with @EOVERFLOW@.
getOption :: Socket -> SocketOption -> Thread Int
getOption s option = call (GetOption s option)

-- | Set an option that is a number. Two others have numbers here. 'Network.Socket.Linger': 0 has
-- 'closeSocket' reset the connection, and a negative number is the default; seconds, for the stack of
-- @weft-tcp@ only, fail with @EOPNOTSUPP@ on a socket of the system, where closing would stop the
-- worker. @TCP_CONGESTION@: the bytes of a name of at most seven, the first of which is the least. A
-- value of more bytes, or one of another option that is no C @int@, fails with @EINVAL@.
setOption :: Socket -> SocketOption -> Int -> Thread ()
setOption s option value = call (SetOption s option value)

-- | How many bytes a TCP connection takes that it cannot send yet (@TCP_NOTSENT_LOWAT@); those on their
-- way do not count. Without it the system takes as much as fits into the send buffer, megabytes for a
-- client that reads nothing. A connection has the value that its listening socket had.
notSentLowAt :: SocketOption
notSentLowAt = Net.notSentLowAt

-- | The address a socket is bound to.
localAddress :: Socket -> Thread SockAddr
localAddress = call . LocalAddress

-- | The address at the other end.
peerAddress :: Socket -> Thread SockAddr
peerAddress = call . PeerAddress
