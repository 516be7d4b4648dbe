-- |
-- Description : A ring for each test, and what tests do with it
--
-- Every test runs on a bound thread, as a worker does. Where the kernel gives no
-- ring the tests are skipped. Nothing here is a test.
module Test.Uring.Rig
  ( -- * Rings
    withRing,
    withBackend,
    small,

    -- * Operations
    Running (..),
    begin,
    beginPending,
    resultOf,
    tokenOf,
    finish,
    run,
    atOnce,

    -- * Memory
    Bytes,
    withBytes,
    sendBytes,

    -- * Descriptors
    withPair,
    withPipe,
    withListener,
    withAddress,
    loopback,
    open,
    closeFd,

    -- * Numbers of the system
    eBADF,
    eCANCELED,
    ePIPE,
    eCONNREFUSED,
    eNOENT,
    eXDEV,
    eNOTCONN,
    oCREAT,
    oRDWR,
    oRDONLY,
    atFDCWD,
  )
where

import Control.Concurrent (runInBoundThread)
import Control.Exception (bracket)
import Control.Monad (unless, when)
import Data.IORef (IORef, newIORef, readIORef, writeIORef)
import Data.Word (Word8)
import Foreign.C.String (withCString)
import Foreign.C.Types (CInt)
import Foreign.Marshal.Alloc (allocaBytes)
import Foreign.Marshal.Array (withArray)
import Foreign.Ptr (Ptr, castPtr)
import GHC.Clock (getMonotonicTimeNSec)
import Network.Socket qualified as N
import System.Posix.IO qualified as P
import Test.Rig (withSocketAddress)
import Test.Tasty.HUnit (Assertion, assertBool, assertFailure, (@?=))
import Weft.Internal.Backend
import Weft.Internal.Backend.Uring
import Weft.Internal.Os.Descriptor
import Weft.Test.Skipping (skipped)

withRing :: UringSettings -> (Uring () -> Backend () -> IO ()) -> Assertion
withRing settings act =
  runInBoundThread $
    openUring settings >>= \case
      Left failure -> skipped failure
      Right u -> do
        let b = uringBackend u
        act u b
        shutdown b

withBackend :: (Backend () -> IO ()) -> Assertion
withBackend act = withRing defaultUringSettings (const act)

small :: UringSettings
small = defaultUringSettings {submissionEntries = 4, completionEntries = 8}

-- | An operation that was submitted: its answer, and its result once it is there.
data Running = Running Answer (IORef (Maybe Int))

begin :: Backend () -> Operation -> IO Running
begin b op = do
  result <- newIORef Nothing
  a <- submit b op . Completion () $ \r ->
    readIORef result >>= \case
      Nothing -> writeIORef result (Just r)
      Just _ -> assertFailure "a completion ran twice"
  unless (isPending a) $ writeIORef result (Just a)
  pure (Running a result)

resultOf :: Running -> IO (Maybe Int)
resultOf (Running _ r) = readIORef r

tokenOf :: Running -> Token
tokenOf (Running a _) = answerToken a

-- | Poll until there is a result; five seconds without one are a failure.
finish :: Backend () -> Running -> IO Int
finish b running = do
  start <- getMonotonicTimeNSec
  let go =
        resultOf running >>= \case
          Just r -> pure r
          Nothing -> do
            now <- getMonotonicTimeNSec
            when (now - start > 5000000000) $ assertFailure "no completion within five seconds"
            poll b 1000000000 >> go
  go

run :: Backend () -> Operation -> IO Int
run b op = begin b op >>= finish b

-- | Begin an operation that must not be answered at once.
beginPending :: Backend () -> Operation -> IO Running
beginPending b op = do
  r@(Running a _) <- begin b op
  assertBool ("answered at once: " <> show a) (isPending a)
  pure r

atOnce :: Running -> Assertion
atOnce (Running a _) = assertBool "pending" (not (isPending a))

type Bytes = Ptr Word8

withPair :: (Descriptor -> Descriptor -> (IO (), IO ()) -> IO a) -> IO a
withPair act = bracket (N.socketPair N.AF_UNIX N.Stream N.defaultProtocol) closeBoth $ \(s, t) ->
  N.withFdSocket s $ \a -> N.withFdSocket t $ \b -> do
    x <- newDescriptor a
    y <- newDescriptor b
    act x y (N.close s, N.close t)
  where
    closeBoth (s, t) = N.close s >> N.close t

withBytes :: Int -> (Bytes -> IO a) -> IO a
withBytes = allocaBytes

sendBytes :: Backend () -> Descriptor -> [Word8] -> IO ()
sendBytes b d ws = withArray ws $ \p -> run b (Send d p (length ws)) >>= (@?= length ws)

eBADF, eCANCELED, ePIPE, eCONNREFUSED, eNOENT, eXDEV, eNOTCONN :: Int
eBADF = -9
eCANCELED = -125
ePIPE = -32
eCONNREFUSED = -111
eNOENT = -2
eXDEV = -18
eNOTCONN = -107

-- | A listening TCP socket on a free port of the loopback device.
withListener :: (Descriptor -> N.PortNumber -> N.Socket -> IO a) -> IO a
withListener act = bracket (N.socket N.AF_INET N.Stream N.defaultProtocol) N.close $ \s -> do
  N.bind s (N.SockAddrInet 0 loopback)
  N.listen s 1024
  port <- N.socketPort s
  d <- N.withFdSocket s newDescriptor
  act d port s

loopback :: N.HostAddress
loopback = N.tupleToHostAddress (127, 0, 0, 1)

-- | The address of a port of the loopback device, as a @struct sockaddr_in@.
withAddress :: N.PortNumber -> (Ptr () -> Int -> IO a) -> IO a
withAddress port = withSocketAddress (N.SockAddrInet port loopback)

closeFd :: Int -> IO ()
closeFd = P.closeFd . fromIntegral

withPipe :: (Descriptor -> Descriptor -> IO () -> IO () -> IO a) -> IO a
withPipe act = do
  (r, w) <- P.createPipe
  P.setFdOption r P.NonBlockingRead True
  P.setFdOption w P.NonBlockingRead True
  x <- newDescriptor (fromIntegral r)
  y <- newDescriptor (fromIntegral w)
  act x y (P.closeFd r) (P.closeFd w)

oCREAT, oRDWR, oRDONLY, atFDCWD :: Int
oCREAT = 0o100
oRDWR = 2
oRDONLY = 0
atFDCWD = -100

open :: Backend () -> CInt -> FilePath -> Int -> Int -> IO Int
open b dir path flags resolve =
  withCString path $ \p -> run b (OpenAt dir (castPtr p) flags (if flags >= oCREAT then 0o600 else 0) resolve)
