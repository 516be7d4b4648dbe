-- |
-- Description : The workloads of an event manager
--
-- The workloads with which O'Sullivan & Tibell 2010 measured GHC's event manager: a server that answers every
-- connection with a few bytes or with a file and closes it, the same beside connections that are
-- idle, and threads that all sleep for a millisecond. Clients and server are in one process, on
-- GHC's threads; only what waits for them differs ("Weft.Bench.Events.Manager"). The
-- system calls are made by hand, so that no library waits in between.
--
-- Of a connection for each request most is the kernel's work for connections. Pairs of threads
-- that answer each other through event counters leave little beside the waiting.
module Weft.Bench.Events (pongWork, fileWork, pairsWork, delaysWork) where

import Control.Concurrent (forkIO)
import Control.Exception (IOException, bracket, finally, throwIO, try)
import Control.Monad (forever, replicateM, replicateM_, unless, void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as Bytes
import Data.ByteString.Unsafe (unsafeUseAsCStringLen)
import Data.Word (Word64, Word8)
import Foreign.C.Types (CInt)
import Foreign.Marshal.Alloc (allocaBytes)
import Foreign.Marshal.Utils (with)
import Foreign.Ptr (Ptr, castPtr, nullPtr, plusPtr)
import Network.Socket qualified as Network
import Network.Socket.Address qualified as Network (pokeSocketAddress, sizeOfSocketAddress)
import System.IO (hClose)
import System.IO.Temp (withSystemTempFile)
import System.Posix.Types (Fd (..))
import Weft.Bench.Contest
import Weft.Bench.Contest.Kind (Bodies (..), runKind)
import Weft.Bench.Events.Manager
import Weft.Internal.Os.Sys (Result)
import Weft.Internal.Os.Sys qualified as Sys

-- | A connection for each request, which is answered with a few bytes.
pongWork :: Manager -> Point -> Either String (IO Work)
pongWork = serving ($ pure "pong")

-- | A connection for each request, which is answered with a file.
fileWork :: Manager -> Point -> Either String (IO Work)
fileWork = serving $ \use -> withSystemTempFile "weft-bench-page" $ \path file -> do
  Bytes.hPut file (Bytes.replicate 4_332 120) >> hClose file
  use (Bytes.readFile path)

-- | Pairs of threads that answer each other through event counters. The point: @capabilities@,
-- @descriptors@, on each of which one thread waits, and @requests@, the times that one waits, in all.
pairsWork :: Manager -> Point -> Either String (IO Work)
pairsWork manager point = do
  capabilities <- number point "capabilities"
  pairs <- (`div` 2) <$> number point "descriptors"
  requests <- number point "requests"
  let each = max 1 (requests `div` (2 * pairs))
      answering waits (ping, pong) =
        [replicateM_ each (signal ping >> await waits pong), replicateM_ each (await waits ping >> signal pong)]
  pure . withWaits manager $ \waits ->
    bracket (replicateM pairs ((,) <$> counter <*> counter)) (mapM_ (\(a, b) -> closed a >> closed b)) $ \counters ->
      runKind capabilities (2 * pairs * each) (InGhc False (pure (concatMap (answering waits) counters)))
  where
    counter = Fd . fromIntegral <$> checked Sys.newEventCounter
    signal (Fd s) = with (1 :: Word64) $ \one -> void (checked (Sys.writeStream s (castPtr one) 8))
    await waits s = allocaBytes 8 $ \buffer -> void (retrying (untilReadable waits) s (\n -> Sys.readStream n buffer 8))

-- | The point: @capabilities@, and @threads@ that all sleep for a millisecond.
delaysWork :: Manager -> Point -> Either String (IO Work)
delaysWork manager point = do
  capabilities <- number point "capabilities"
  threads <- number point "threads"
  pure . withWaits manager $ \waits ->
    runKind capabilities threads (InGhc False (pure (replicate threads (pause waits 1))))

-- The point: @capabilities@, @clients@ that make @requests@ in all, and @idle@ connections that are
-- open meanwhile. The first argument gives the action that has the answer.
serving :: ((IO ByteString -> IO Work) -> IO Work) -> Manager -> Point -> Either String (IO Work)
serving withAnswer manager point = do
  capabilities <- number point "capabilities"
  clients <- number point "clients"
  idle <- number point "idle"
  requests <- number point "requests"
  let each = max 1 (requests `div` clients)
  pure . withAnswer $ \answer -> withWaits manager $ \waits -> withListener $ \listener address -> do
    inBackground (forever (acceptOn waits listener >>= inBackground . handle waits answer))
    -- These send nothing; the server waits for them until the process ends.
    kept <- replicateM idle (connected waits address)
    runKind capabilities (each * clients) (InGhc False (pure (replicate clients (replicateM_ each (ask waits address)))))
      `finally` mapM_ closed kept

-- | A thread whose failures are of its connection only.
inBackground :: IO () -> IO ()
inBackground act = void (forkIO (void (try @IOException act)))

withListener :: (Fd -> Network.SockAddr -> IO a) -> IO a
withListener use = bracket open Network.close $ \s -> do
  address <- Network.getSocketName s
  number' <- Network.unsafeFdSocket s
  use (Fd number') address
  where
    open = do
      s <- Network.socket Network.AF_INET Network.Stream Network.defaultProtocol
      Network.bind s (Network.SockAddrInet 0 (Network.tupleToHostAddress (127, 0, 0, 1)))
      s <$ Network.listen s 4096

acceptOn :: Waits -> Fd -> IO Fd
acceptOn waits listener = Fd . fromIntegral <$> retrying (untilReadable waits) listener (\s -> Sys.accept s nullPtr nullPtr)

-- | One request of a client: connect, send, and receive until the server closes.
ask :: Waits -> Network.SockAddr -> IO ()
ask waits address = bracket (connected waits address) closed $ \s -> allocaBytes room $ \buffer -> do
  sendAll waits s "ping"
  let untilEnd = receive waits s buffer >>= \n -> unless (n == 0) untilEnd
  untilEnd

-- | Answer a connection.
handle :: Waits -> IO ByteString -> Fd -> IO ()
handle waits answer s = flip finally (closed s) . allocaBytes room $ \buffer -> do
  n <- receive waits s buffer
  unless (n == 0) (answer >>= sendAll waits s)

connected :: Waits -> Network.SockAddr -> IO Fd
connected waits address = do
  s <- Network.socket Network.AF_INET Network.Stream Network.defaultProtocol >>= Network.socketToFd
  allocaBytes size $ \p -> do
    Network.pokeSocketAddress p address
    r <- Sys.connect s (castPtr p) size
    if r == Sys.inProgress
      then untilWritable waits (Fd s) >> void (checked (Sys.connectResult s))
      else void (checked (pure r))
  pure (Fd s)
  where
    size = Network.sizeOfSocketAddress address

closed :: Fd -> IO ()
closed (Fd s) = void (Sys.close s)

receive :: Waits -> Fd -> Ptr Word8 -> IO Int
receive waits s buffer = retrying (untilReadable waits) s (\n -> Sys.recv n buffer room)

sendAll :: Waits -> Fd -> ByteString -> IO ()
sendAll waits s bytes = unsafeUseAsCStringLen bytes $ \(p, size) ->
  let go sent = unless (sent == size) $ do
        n <- retrying (untilWritable waits) s (\i -> Sys.send i (castPtr p `plusPtr` sent) (size - sent))
        go (sent + n)
   in go 0

-- | In bytes.
room :: Int
room = 8_192

-- | Try, and wait while it would block.
retrying :: (Fd -> IO ()) -> Fd -> (CInt -> IO Result) -> IO Int
retrying wait fd@(Fd s) act =
  act s >>= \r -> if r == Sys.wouldBlock then wait fd >> retrying wait fd act else checked (pure r)

checked :: IO Result -> IO Result
checked act = act >>= \r -> if Sys.isFailure r then throwIO (userError ("errno " <> show (negate r))) else pure r
