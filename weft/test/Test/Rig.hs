{-# LANGUAGE BlockArguments #-}

-- |
-- A backend with a worker around it that does nothing but poll, and the pairs of
-- descriptors that tests talk over. Every wait has a limit, so that a lost
-- wake-up is a failure and not a test that hangs.
module Test.Rig
  ( -- * Rigs
    MakeBackend,
    everyBackend,
    readinessBackends,
    noRings,
    Rig (..),
    withRig,
    withPool,
    turn,
    turnUntil,

    -- * Operations
    Pending (..),
    start,
    startAs,
    quietly,
    finish,
    perform,
    abandon,
    release,

    -- * Memory
    withBytes,
    withRoom,
    contents,

    -- * Descriptors
    Link (..),
    withLink,
    unixPair,
    tcpPair,
    pipePair,
    datagramPair,
    withListener,
    withFullListener,
    withFullListener',
    withSocketAddress,
    toDescriptor,
    closeNow,
    withScratch,

    -- * Failures
    code,
  )
where

import Control.Concurrent (runInBoundThread)
import Control.Exception (bracket, finally)
import Control.Monad (join, unless)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Unsafe qualified as B
import Data.IORef
import Data.Word (Word8)
import Foreign.C.Error (Errno)
import Foreign.Marshal.Alloc (allocaBytes)
import Foreign.Ptr (Ptr, castPtr)
import Network.Socket hiding (close, shutdown)
import Network.Socket qualified as N
import Network.Socket.Address qualified as NA
import System.IO.Temp (withSystemTempDirectory)
import System.IO.Unsafe (unsafePerformIO)
import System.Posix.IO (FdOption (NonBlockingRead), createPipe, setFdOption)
import Test.Tasty (TestTree)
import Test.Tasty.HUnit
import Weft.Internal.Backend
import Weft.Internal.Backend.Pollers qualified as Pollers
import Weft.Internal.Backend.Readiness (newReadiness)
import Weft.Internal.Backend.Uring (CompletionWork (..), UringSettings (..), defaultUringSettings, newUring)
import Weft.Internal.Os.Descriptor
import Weft.Internal.Os.Pool
import Weft.Internal.Os.Sys qualified as Sys
import Weft.Test.Skipping (skipped)

-- | How to make the backend that is tested.
type MakeBackend = Pool -> Post -> IO (Backend Int)

-- | All there are on this machine, with their names.
everyBackend :: [(String, MakeBackend)]
everyBackend =
  readinessBackends
    <> [ (name, ring work)
         | ringsHere,
           -- The second is what older kernels give.
           (name, work) <- [("io_uring", Deferred), ("io_uring, cooperative", Cooperative)]
       ]
  where
    ring work _ post = newUring defaultUringSettings {completionWork = work} post >>= either fail pure

-- | Those that are made of readiness.
readinessBackends :: [(String, MakeBackend)]
readinessBackends = [("epoll", newReadiness Pollers.epoll), ("poll", newReadiness Pollers.poll)]

-- | A test that is skipped where 'everyBackend' has no rings.
noRings :: [TestTree]
noRings = [testCase "io_uring" (skipped "the kernel gives no rings") | not ringsHere]

-- | Does the kernel give us rings?
ringsHere :: Bool
ringsHere =
  unsafePerformIO $
    newUring @() defaultUringSettings (const (pure ())) >>= \case
      Left _ -> pure False
      Right b -> True <$ shutdown b
{-# NOINLINE ringsHere #-}

-- | A backend, its pool, and what was posted to its worker.
data Rig = Rig
  { rigBackend :: Backend Int,
    rigPool :: Pool,
    rigInbox :: IORef [IO ()]
  }

withPool :: PoolSettings -> (Pool -> IO a) -> IO a
withPool settings = bracket (newPool settings) shutdownPool

-- | Run a test as the worker of a new backend. What is still pending at the end
-- is cancelled by the shutdown.
withRig :: MakeBackend -> (Rig -> IO a) -> IO a
withRig make test = runInBoundThread $ withPool defaultPoolSettings {poolMaxThreads = 4} \pool -> do
  inbox <- newIORef []
  waker <- newIORef (pure ())
  let post action = do
        atomicModifyIORef' inbox \xs -> (action : xs, ())
        join (readIORef waker)
  backend <- make pool post
  writeIORef waker (wake backend)
  test (Rig backend pool inbox) `finally` shutdown backend

-- | One turn of the worker's loop: what was posted, then a poll, which does not
-- block if something was posted.
turn :: Rig -> PollLimit -> IO Int
turn rig limit = do
  posted <- atomicModifyIORef' (rigInbox rig) ([],)
  sequence_ (reverse posted)
  poll (rigBackend rig) (if null posted then limit else noWait)

-- | Turn until something holds; fails after five seconds. Between two looks a
-- turn blocks as long as it likes: a completion that does not end it is lost.
turnUntil :: (HasCallStack) => Rig -> String -> IO Bool -> IO ()
turnUntil rig what holds = do
  begin <- Sys.monotonicNow
  let go = do
        done <- holds
        unless done do
          now <- Sys.monotonicNow
          let left = begin + 5_000_000_000 - now
          unless (left > 0) $ assertFailure ("never came: " <> what)
          _ <- turn rig left
          go
  go

-- | An operation that was submitted.
data Pending = Pending
  { pendingToken :: Maybe Token,
    -- | Results, latest first: more than one is a bug.
    pendingResults :: IORef [Int]
  }

-- | Submit an operation.
start :: (HasCallStack) => Rig -> Operation -> IO Pending
start = startAs 0

-- | Submit an operation for an owner, by the number that 'visit' tells.
startAs :: (HasCallStack) => Int -> Rig -> Operation -> IO Pending
startAs who rig op = do
  results <- newIORef []
  answer <- submit (rigBackend rig) op (Completion who \r -> modifyIORef' results (r :))
  early <- readIORef results
  early @?= []
  if isPending answer
    then pure (Pending (Just (answerToken answer)) results)
    else do
      writeIORef results [answer]
      pure (Pending Nothing results)

-- | A completion for no owner in particular.
quietly :: (Int -> IO ()) -> Completion Int
quietly = Completion 0

-- | Wait for its result.
finish :: (HasCallStack) => Rig -> String -> Pending -> IO Int
finish rig what p = do
  turnUntil rig what (not . null <$> readIORef (pendingResults p))
  readIORef (pendingResults p) >>= \case
    [r] -> pure r
    rs -> assertFailure (what <> " completed more than once: " <> show rs)

-- | Submit an operation and wait for its result.
perform :: (HasCallStack) => Rig -> Operation -> IO Int
perform rig op = start rig op >>= finish rig (show op)

-- | Ask for it to end early, if it is pending.
abandon :: Rig -> Pending -> IO ()
abandon rig p = mapM_ (cancel (rigBackend rig)) (pendingToken p)

-- | Forget a descriptor, wait for that, and close it.
release :: (HasCallStack) => Rig -> Descriptor -> IO ()
release rig d = do
  gone <- newIORef False
  forget (rigBackend rig) d do
    closeNow d
    writeIORef gone True
  turnUntil rig "the end of forget" (readIORef gone)

-- | Memory with these bytes.
withBytes :: ByteString -> (Ptr Word8 -> Int -> IO a) -> IO a
withBytes bytes use = B.unsafeUseAsCStringLen bytes \(p, n) -> use (castPtr p) n

-- | Memory for the given number of bytes.
withRoom :: Int -> (Ptr Word8 -> IO a) -> IO a
withRoom = allocaBytes

-- | Some bytes of memory.
contents :: Ptr Word8 -> Int -> IO ByteString
contents p n = B.packCStringLen (castPtr p, n)

-- | Two ends of a stream: what is written to the far end is read from the near
-- one. All but a pipe work in the other direction too.
data Link = Link {near :: Descriptor, far :: Descriptor}

-- | Use a link, and close what is still open of it.
withLink :: Rig -> IO Link -> (Link -> IO a) -> IO a
withLink rig make = bracket make \l -> mapM_ closing [near l, far l]
  where
    closing d = forget (rigBackend rig) d (closeNow d)

-- | Close a descriptor, once.
closeNow :: Descriptor -> IO ()
closeNow d = markClosed d >>= mapM_ (\_ -> Sys.close (descriptorNumber d))

-- | A socket pair.
unixPair :: IO Link
unixPair = socketPair AF_UNIX Stream 0 >>= toLink

-- | A pair of datagram sockets.
datagramPair :: IO Link
datagramPair = socketPair AF_UNIX Datagram 0 >>= toLink

-- | A connection over the loopback device.
tcpPair :: IO Link
tcpPair = withListener \listener address -> do
  a <- socket AF_INET Stream 0
  connect a address
  (b, _) <- accept listener
  setSocketOption b NoDelay 1
  toLink (a, b)

pipePair :: IO Link
pipePair = do
  (r, w) <- createPipe
  mapM_ (\fd -> setFdOption fd NonBlockingRead True) [r, w]
  Link <$> newDescriptor (fromIntegral r) <*> newDescriptor (fromIntegral w)

toLink :: (Socket, Socket) -> IO Link
toLink (a, b) = Link <$> toDescriptor a <*> toDescriptor b

-- | Take a socket's descriptor over.
toDescriptor :: Socket -> IO Descriptor
toDescriptor s = socketToFd s >>= newDescriptor

-- | A listening socket on the loopback device.
withListener :: (Socket -> SockAddr -> IO a) -> IO a
withListener use = bracket (socket AF_INET Stream 0) N.close \s -> do
  bind s (SockAddrInet 0 (tupleToHostAddress (127, 0, 0, 1)))
  listen s 128
  getSocketName s >>= use s

-- | A directory for the time of a test.
withScratch :: (FilePath -> IO a) -> IO a
withScratch = withSystemTempDirectory "weft"

-- | The answer of an operation that fails with this error.
code :: Errno -> Int
code = Sys.failureCode

-- | The memory of a socket address.
withSocketAddress :: SockAddr -> (Ptr () -> Int -> IO a) -> IO a
withSocketAddress address use = allocaBytes size \p -> do
  NA.pokeSocketAddress p address
  use (castPtr p) size
  where
    size = NA.sizeOfSocketAddress address

-- | The address of a listener that takes no connection, because one fills its
-- queue: an attempt to connect is under way until 'withFullListener' ends, or until
-- a thread accepts.
withFullListener :: (SockAddr -> IO a) -> IO a
withFullListener use = withFullListener' \_ address -> use address

-- | 'withFullListener' with the listener.
withFullListener' :: (Socket -> SockAddr -> IO a) -> IO a
withFullListener' use = bracket (socket AF_INET Stream 0) N.close \s -> do
  bind s (SockAddrInet 0 (tupleToHostAddress (127, 0, 0, 1)))
  listen s 0
  address <- getSocketName s
  bracket (socket AF_INET Stream 0) N.close \first -> do
    connect first address
    use s address
