-- |
-- Description : The io_uring event source on real sockets, pipes and files
--
-- Every test runs on a bound thread, as a worker does. Where the kernel gives no
-- ring the tests say so and pass: the event source then answers 'Left', which one
-- of them checks.
module Test.Uring (tests) where

import Control.Concurrent (forkIO, forkOS, runInBoundThread, yield)
import Control.Concurrent.MVar (newEmptyMVar, putMVar, takeMVar)
import Control.Exception (bracket)
import Control.Monad (forM, forM_, replicateM, replicateM_, unless, void, when)
import Data.IORef (IORef, modifyIORef', newIORef, readIORef, writeIORef)
import Data.Int (Int64)
import Data.Word (Word32, Word64, Word8)
import Foreign.C.String (withCString)
import Foreign.C.Types (CInt)
import Foreign.Marshal.Alloc (allocaBytes, callocBytes, free)
import Foreign.Marshal.Array (peekArray, withArray)
import Foreign.Ptr (Ptr, castPtr, nullPtr, plusPtr)
import Foreign.Storable (peek, peekByteOff, poke, pokeByteOff)
import GHC.Clock (getMonotonicTimeNSec)
import Network.Socket qualified as N
import System.IO.Temp (withSystemTempDirectory)
import System.Mem (performGC)
import System.Posix.Fcntl (Advice (..), fileAdvise)
import System.Posix.IO qualified as P
import System.Posix.Types (Fd (..))
import System.Random (mkStdGen, randomR)
import Test.Rig (withFullListener', withSocketAddress)
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (Assertion, assertBool, assertFailure, testCase, (@?=))
import Test.Tasty.QuickCheck (choose, forAll, testProperty, (.&&.), (===))
import Weft.Internal.Backend
import Weft.Internal.Backend.Uring
import Weft.Internal.Backend.Uring.Ring qualified as Ring
import Weft.Internal.Backend.Uring.Steps (CancelState (..), Next (..), Stage (..))
import Weft.Internal.Backend.Uring.Steps qualified as Steps
import Weft.Internal.Data.Slots (SlotKey (..), keyBits)
import Weft.Internal.Os.Descriptor
import Weft.Internal.Os.Sys qualified as Sys

tests :: TestTree
tests =
  testGroup
    "Uring"
    [ testProperty "user_data keeps every bit of a key and marks an operation" $
        forAll (choose (0, 2 ^ keyBits - 1)) $ \k ->
          let w = Ring.operationData (SlotKey k)
           in Ring.operationKey w === SlotKey k .&&. w `mod` 8 === 0 .&&. (w < 2 ^ (63 :: Int)) === True,
      testCase "a connection attempt that lost its request goes on" resumes,
      testGroup
        "operations"
        [ testCase "receive: at once, later, end of stream, error" receives,
          testCase "a short receive followed by the end of the stream" shortThenEnd,
          testCase "send: at once, when there is room, to a closed socket" sends,
          testCase "a short write is not tried again until there is room" shortWrite,
          testCase "accept and connect" accepts,
          testCase "connect to nobody" refused,
          testCase "messages" messages,
          testCase "readiness" readiness,
          testCase "pipes" pipes,
          testCase "files" files,
          testCase "send a file, cached and not" sendFiles
        ],
      testGroup
        "cancelling"
        [ testCase "before, during and after" cancels,
          testCase "loses no byte in thousands of random cancellations" cancelStorm,
          testCase "of an accept loses no connection" cancelAccepts
        ],
      testGroup
        "forgetting"
        [ testCase "with nothing pending" forgetIdle,
          testCase "cancels, then closes; the number can be used again" forgetPending,
          testCase "the file of a send-file operation" forgetSource
        ],
      testGroup
        "polling"
        [ testCase "without blocking costs no system call when nothing is to be done" pollIdle,
          testCase "never ends early" pollTimes,
          testCase "is woken from another thread, by one write" wakes,
          testCase "remembers a wake-up that comes before it" wakeBefore
        ],
      testGroup
        "limits"
        [ testCase "more submissions than the queue holds" manySubmissions,
          testCase "a kernel that takes no submissions" backlogs,
          testCase "more completions than the queue holds" manyCompletions,
          testCase "the thread that submitted ends" threadEnds,
          testCase "no ring" noRing
        ],
      testGroup
        "shutting down"
        [ testCase "with operations pending frees the port" shutdownPending,
          testCase "is final" shutdownFinal
        ]
    ]

-- | What follows a completion of a connection attempt whose thread has ended.
resumes :: Assertion
resumes = do
  closedPort <- withListener (\_ port _ -> pure port)
  withFullListener' $ \listener address -> do
    s <- N.socket N.AF_INET N.Stream N.defaultProtocol
    d <- N.withFdSocket s newDescriptor
    withSocketAddress address $ \p n -> do
      let op = Connect d p n
          step wish stage = Steps.after wish stage op
      Sys.connect (descriptorNumber d) p n >>= (@?= Sys.inProgress)
      -- The request is lost: ask again, which says that it is under way.
      step Wanted Whole eCANCELED >>= (@?= Continue Resumed)
      step Wanted Whole eINTR >>= (@?= Continue Resumed)
      step Wanted Whole eFAULT >>= (@?= Continue Resumed)
      again <- Sys.connect (descriptorNumber d) p n
      step Wanted Resumed again >>= (@?= Continue UntilWritable)
      step Wanted UntilWritable 4 >>= (@?= Continue UntilWritable)
      -- The first is the one that filled the queue.
      replicateM_ 2 (N.accept listener >>= N.close . fst)
      step Wanted UntilWritable 4 >>= (@?= Deliver 0)
      step Wanted Resumed eISCONN >>= (@?= Deliver 0)
      -- What the first submission answers is the user's.
      step Wanted Whole eISCONN >>= (@?= Deliver eISCONN)
      step Wanted Whole eALREADY >>= (@?= Deliver eALREADY)
      step Wanted Resumed eFAULT >>= (@?= Deliver eFAULT)
      -- Nothing more is done for one that is cancelled.
      step Cancelled Whole eCANCELED >>= (@?= Deliver eCANCELED)
      step Cancelled Resumed again >>= (@?= Deliver eCANCELED)
      step Cancelled Resumed 0 >>= (@?= Deliver 0)
    N.close s
  t <- N.socket N.AF_INET N.Stream N.defaultProtocol
  d <- N.withFdSocket t newDescriptor
  withAddress closedPort $ \p n -> do
    P.setFdOption (Fd (descriptorNumber d)) P.NonBlockingRead True
    r <- Sys.connect (descriptorNumber d) p n
    if r == Sys.inProgress
      then Steps.after Wanted UntilWritable (Connect d p n) 4 >>= (@?= Deliver eCONNREFUSED)
      else r @?= eCONNREFUSED
  N.close t
  where
    eINTR = -4
    eFAULT = -14
    eISCONN = -106
    eALREADY = -114

-- A ring of its own for each test ----------------------------------------------

withRing :: UringSettings -> (Uring () -> Backend () -> IO ()) -> Assertion
withRing settings act =
  runInBoundThread $
    openUring settings >>= \case
      Left failure -> putStr ("(" <> describeSetupFailure failure <> ") ")
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

-- Operations -------------------------------------------------------------------

eBADF, eCANCELED, ePIPE, eCONNREFUSED, eNOENT, eXDEV, eNOTCONN :: Int
eBADF = -9
eCANCELED = -125
ePIPE = -32
eCONNREFUSED = -111
eNOENT = -2
eXDEV = -18
eNOTCONN = -107

receives :: Assertion
receives = withBackend $ \b -> withPair $ \x y (_, closeY) -> withBytes 64 $ \p -> do
  sendBytes b y [1, 2, 3]
  r <- begin b (Receive x p 64)
  atOnce r
  resultOf r >>= (@?= Just 3)
  peekArray 3 p >>= (@?= [1, 2, 3])
  later <- beginPending b (Receive x p 2)
  _ <- poll b noWait
  resultOf later >>= (@?= Nothing)
  sendBytes b y [4, 5, 6]
  finish b later >>= (@?= 2)
  peekArray 2 p >>= (@?= [4, 5])
  run b (Receive x p 64) >>= (@?= 1)
  waiting <- beginPending b (Receive x p 64)
  _ <- poll b noWait
  closeY
  finish b waiting >>= (@?= 0)
  run b (Receive x p 64) >>= (@?= 0)
  s <- N.socket N.AF_INET N.Stream N.defaultProtocol
  d <- N.withFdSocket s newDescriptor
  run b (Receive d p 64) >>= (@?= eNOTCONN)
  N.close s
  bad <- newDescriptor (-1)
  run b (Receive bad p 64) >>= (@?= eBADF)

-- The hint that a socket is drained must not hide an end of stream that is
-- already there.
shortThenEnd :: Assertion
shortThenEnd = withBackend $ \b -> withPair $ \x y (_, closeY) -> withBytes 64 $ \p -> do
  sendBytes b y [1]
  closeY
  run b (Receive x p 64) >>= (@?= 1)
  run b (Receive x p 64) >>= (@?= 0)

sends :: Assertion
sends = withBackend $ \b -> withPair $ \x y (closeX, _) -> withBytes size $ \p -> do
  let fill total = do
        r <- begin b (Send x p size)
        resultOf r >>= maybe (pure (total, r)) (\n -> fill (total + n))
  (sent, blocked) <- fill 0
  assertBool "nothing was sent" (sent > 0)
  _ <- poll b noWait
  resultOf blocked >>= (@?= Nothing)
  let takeOut got limit
        | got >= limit = pure got
        | otherwise = run b (Receive y p size) >>= \n -> takeOut (got + n) limit
  got <- takeOut 0 sent
  more <- finish b blocked
  assertBool "room again" (more > 0)
  takeOut got (sent + more) >>= (@?= sent + more)
  closeX
  run b (Receive y p size) >>= (@?= 0)
  run b (Send y p 1) >>= (@?= ePIPE)
  where
    size = 65536

-- A pipe that took a part is full. The next write leaves it to the ring to say when it is not,
-- even if it would find room by now; one that took all says nothing.
shortWrite :: Assertion
shortWrite = withBackend $ \b -> bracket P.createPipe (\(r, w) -> P.closeFd r >> P.closeFd w) $ \(r, w) -> withBytes size $ \p -> do
  forM_ [r, w] $ \fd -> P.setFdOption fd P.NonBlockingRead True
  [x, y] <- forM [r, w] (newDescriptor . fromIntegral)
  full <- run b (WriteStream y p size)
  assertBool "the pipe took all" (full > 0 && full < size)
  run b (ReadStream x p size) >>= (@?= full)
  waits <- beginPending b (WriteStream y p 1)
  finish b waits >>= (@?= 1)
  again <- begin b (WriteStream y p 1)
  atOnce again
  where
    size = 1048576

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

-- | A @struct sockaddr_in@.
withAddress :: N.PortNumber -> (Ptr () -> Int -> IO a) -> IO a
withAddress port act =
  let address = N.SockAddrInet port loopback
   in allocaBytes 16 $ \p -> do
        pokeByteOff p 0 (2 :: Word8)
        pokeByteOff p 1 (0 :: Word8)
        let n = fromIntegral port :: Int
        pokeByteOff p 2 (fromIntegral (n `div` 256) :: Word8)
        pokeByteOff p 3 (fromIntegral n :: Word8)
        pokeByteOff p 4 loopback
        pokeByteOff p 8 (0 :: Word64)
        address `seq` act (castPtr (p :: Ptr Word8)) 16

closeFd :: Int -> IO ()
closeFd = P.closeFd . fromIntegral

accepts :: Assertion
accepts = withBackend $ \b -> withListener $ \l port _ -> allocaBytes 128 $ \from -> allocaBytes 4 $ \size -> do
  poke size (128 :: Word32)
  waiting <- beginPending b (Accept l from (castPtr size))
  bracket (N.socket N.AF_INET N.Stream N.defaultProtocol) N.close $ \c -> do
    d <- N.withFdSocket c newDescriptor
    withAddress port $ \a n -> run b (Connect d a n) >>= (@?= 0)
    fd <- finish b waiting
    assertBool "a descriptor" (fd > 2)
    peek size >>= (@?= 16)
    peekByteOff from 4 >>= (@?= loopback)
    flags <- P.queryFdOption (fromIntegral fd) P.NonBlockingRead
    flags @?= True
    server <- newDescriptor (fromIntegral fd)
    sendBytes b d [7]
    withBytes 8 $ \p -> run b (Receive server p 8) >>= (@?= 1)
    closeFd fd
  -- One that waits already is accepted at once.
  bracket (N.socket N.AF_INET N.Stream N.defaultProtocol) N.close $ \c -> do
    d <- N.withFdSocket c newDescriptor
    withAddress port $ \a n -> run b (Connect d a n) >>= (@?= 0)
    r <- begin b (Accept l nullPtr nullPtr)
    atOnce r
    resultOf r >>= maybe (pure ()) closeFd

refused :: Assertion
refused = withBackend $ \b -> do
  port <- withListener (\_ port _ -> pure port)
  bracket (N.socket N.AF_INET N.Stream N.defaultProtocol) N.close $ \c -> do
    d <- N.withFdSocket c newDescriptor
    withAddress port $ \a n -> run b (Connect d a n) >>= (@?= eCONNREFUSED)

-- | A @struct msghdr@ for a peer's address and one buffer (64-bit layout).
withMessage :: Ptr () -> Int -> Bytes -> Int -> (Ptr () -> IO a) -> IO a
withMessage name nameSize p n act = allocaBytes 56 $ \m -> allocaBytes 16 $ \v -> do
  pokeByteOff v 0 p
  pokeByteOff v 8 n
  pokeByteOff m 0 name
  pokeByteOff m 8 nameSize
  pokeByteOff m 16 (v :: Ptr ())
  pokeByteOff m 24 (1 :: Int)
  pokeByteOff m 32 nullPtr
  pokeByteOff m 40 (0 :: Int)
  pokeByteOff m 48 (0 :: Int)
  act m

messages :: Assertion
messages = withBackend $ \b ->
  bracket datagram N.close $ \s -> bracket datagram N.close $ \t -> withBytes 64 $ \p -> allocaBytes 128 $ \from -> do
    x <- N.withFdSocket s newDescriptor
    y <- N.withFdSocket t newDescriptor
    port <- N.socketPort t
    withMessage from 128 p 64 $ \m -> do
      waiting <- beginPending b (ReceiveMessage y m)
      _ <- poll b noWait
      withAddress port $ \a n -> withArray [9, 8, 7] $ \q -> withMessage a n q 3 $ \m' ->
        run b (SendMessage x m') >>= (@?= 3)
      finish b waiting >>= (@?= 3)
      peekByteOff m 8 >>= (@?= (16 :: Word32))
    peekArray 3 p >>= (@?= [9, 8, 7])
    -- Longer than any datagram.
    withAddress port $ \a n -> withBytes 100000 $ \q -> withMessage a n q 100000 $ \m ->
      run b (SendMessage x m) >>= (@?= -90)
  where
    datagram = do
      s <- N.socket N.AF_INET N.Datagram N.defaultProtocol
      s <$ N.bind s (N.SockAddrInet 0 loopback)

readiness :: Assertion
readiness = withBackend $ \b -> withPair $ \x y (_, closeY) -> withBytes 8 $ \p -> do
  run b (AwaitWritable x) >>= (@?= 0)
  waiting <- beginPending b (AwaitReadable x)
  _ <- poll b noWait
  resultOf waiting >>= (@?= Nothing)
  sendBytes b y [1]
  finish b waiting >>= (@?= 0)
  run b (AwaitReadable x) >>= (@?= 0)
  run b (Receive x p 8) >>= (@?= 1)
  ended <- beginPending b (AwaitReadable x)
  closeY
  finish b ended >>= (@?= 0)

withPipe :: (Descriptor -> Descriptor -> IO () -> IO () -> IO a) -> IO a
withPipe act = do
  (r, w) <- P.createPipe
  P.setFdOption r P.NonBlockingRead True
  P.setFdOption w P.NonBlockingRead True
  x <- newDescriptor (fromIntegral r)
  y <- newDescriptor (fromIntegral w)
  act x y (P.closeFd r) (P.closeFd w)

pipes :: Assertion
pipes = withBackend $ \b -> withBytes 65536 $ \p -> do
  withPipe $ \r w closeR closeW -> do
    waiting <- beginPending b (ReadStream r p 16)
    _ <- poll b noWait
    resultOf waiting >>= (@?= Nothing)
    withArray [1, 2, 3] $ \q -> run b (WriteStream w q 3) >>= (@?= 3)
    finish b waiting >>= (@?= 3)
    let fill total = do
          x <- begin b (WriteStream w p 65536)
          resultOf x >>= maybe (pure (total, x)) (\n -> fill (total + n))
    (written, blocked) <- fill 0
    let takeOut got = unless (got >= written) $ run b (ReadStream r p 65536) >>= \n -> takeOut (got + n)
    takeOut (0 :: Int)
    more <- finish b blocked
    assertBool "room again" (more > 0)
    run b (ReadStream r p 65536) >>= (@?= more)
    closing <- beginPending b (ReadStream r p 16)
    closeW
    finish b closing >>= (@?= 0)
    closeR
  withPipe $ \_ w closeR closeW -> do
    closeR
    run b (WriteStream w p 1) >>= (@?= ePIPE)
    closeW

oCREAT, oRDWR, oRDONLY, atFDCWD :: Int
oCREAT = 0o100
oRDWR = 2
oRDONLY = 0
atFDCWD = -100

open :: Backend () -> CInt -> FilePath -> Int -> Int -> IO Int
open b dir path flags resolve =
  withCString path $ \p -> run b (OpenAt dir (castPtr p) flags (if flags >= oCREAT then 0o600 else 0) resolve)

files :: Assertion
files = withBackend $ \b -> withSystemTempDirectory "weft" $ \dir -> do
  fd <- open b (fromIntegral atFDCWD) (dir <> "/file") (oCREAT + oRDWR) 0
  assertBool ("opened: " <> show fd) (fd > 2)
  d <- newDescriptor (fromIntegral fd)
  withArray [1 .. 100] $ \p -> do
    run b (WriteAt d p 100 0) >>= (@?= 100)
    run b (WriteAt d p 10 100) >>= (@?= 10)
  run b (Sync d False) >>= (@?= 0)
  run b (Sync d True) >>= (@?= 0)
  withBytes 200 $ \p -> do
    run b (ReadAt d p 200 5) >>= (@?= 105)
    peekArray 3 p >>= (@?= [6, 7, 8])
    run b (ReadAt d p 200 110) >>= (@?= 0)
  withCString (dir <> "/file") $ \p -> allocaBytes 256 $ \st -> do
    run b (StatAt (fromIntegral atFDCWD) (castPtr p) 0 0x200 st) >>= (@?= 0)
    peekByteOff st 40 >>= (@?= (110 :: Word64))
  withCString (dir <> "/none") $ \p -> allocaBytes 256 $ \st ->
    run b (StatAt (fromIntegral atFDCWD) (castPtr p) 0 0x200 st) >>= (@?= eNOENT)
  open b (fromIntegral atFDCWD) (dir <> "/none") oRDONLY 0 >>= (@?= eNOENT)
  directory <- open b (fromIntegral atFDCWD) dir oRDONLY 0
  let beneath = 0x08
  open b (fromIntegral directory) "../escape" oRDONLY beneath >>= (@?= eXDEV)
  inside <- open b (fromIntegral directory) "file" oRDONLY beneath
  readOnly <- newDescriptor (fromIntegral inside)
  withBytes 8 $ \p -> run b (WriteAt readOnly p 8 0) >>= (@?= eBADF)
  run b (Sync d False) >>= (@?= 0)
  mapM_ closeFd [fd, directory, inside]

sendFiles :: Assertion
sendFiles = withBackend $ \b -> withSystemTempDirectory "weft" $ \dir -> withPair $ \x y _ -> do
  let size = 1000000 :: Int
      content = map fromIntegral (take size (iterate (\i -> (i * 1103515245 + 12345) `mod` 2147483648) (1 :: Int))) :: [Word8]
  fd <- open b (fromIntegral atFDCWD) (dir <> "/large") (oCREAT + oRDWR) 0
  f <- newDescriptor (fromIntegral fd)
  withArray content $ \p -> run b (WriteAt f p size 0) >>= (@?= size)
  run b (Sync f False) >>= (@?= 0)
  forM_ [False, True] $ \evict -> withBytes size $ \got -> do
    when evict $ fileAdvise (Fd (fromIntegral fd)) 0 0 AdviceDontNeed
    -- The socket is filled before it is emptied, so that sending has to wait.
    let go !sent !received sending = case sending of
          Just r ->
            resultOf r >>= \case
              Just n -> assertBool ("sent " <> show n) (n > 0) >> go (sent + n) received Nothing
              Nothing
                | received < sent -> receiveSome sent received sending
                | otherwise -> poll b 1000000000 >> go sent received sending
          Nothing
            | sent < size -> do
                r <- begin b (SendFile x f (fromIntegral sent) (size - sent))
                go sent received (Just r)
            | received < size -> receiveSome sent received sending
            | otherwise -> pure ()
        receiveSome sent received sending = do
          n <- run b (Receive y (got `plusPtr` received) (size - received))
          assertBool ("received " <> show n) (n > 0)
          go sent (received + n) sending
    go 0 0 Nothing
    peekArray size got >>= assertBool "the file's bytes" . (== content)
  run b (SendFile x f (fromIntegral size) 100) >>= (@?= 0)
  closeFd fd

-- Cancelling -------------------------------------------------------------------

cancels :: Assertion
cancels = withBackend $ \b -> withPair $ \x y _ -> withBytes 8 $ \p -> do
  -- Before the submission reached the kernel.
  early <- beginPending b (Receive x p 8)
  cancel b (tokenOf early)
  cancel b (tokenOf early)
  finish b early >>= (@?= eCANCELED)
  -- While it waits there.
  waiting <- beginPending b (Receive x p 8)
  _ <- poll b noWait
  cancel b (tokenOf waiting)
  finish b waiting >>= (@?= eCANCELED)
  -- When it has succeeded, but no poll has looked yet.
  raced <- beginPending b (Receive x p 8)
  _ <- poll b noWait
  sendBytes b y [42]
  cancel b (tokenOf raced)
  r <- finish b raced
  if r == eCANCELED
    then run b (Receive x p 8) >>= (@?= 1)
    else r @?= 1
  peek p >>= (@?= 42)
  -- When it is over: the token names nothing, and not its successor either.
  next <- beginPending b (Receive x p 8)
  cancel b (tokenOf raced)
  cancel b (tokenOf early)
  replicateM_ 3 (poll b noWait)
  resultOf next >>= (@?= Nothing)
  sendBytes b y [43]
  finish b next >>= (@?= 1)
  -- Between two stages, too.
  withPipe $ \rd wr closeR closeW -> do
    piped <- beginPending b (ReadStream rd p 8)
    _ <- poll b noWait
    cancel b (tokenOf piped)
    finish b piped >>= (@?= eCANCELED)
    withArray [1] $ \q -> run b (WriteStream wr q 1) >>= (@?= 1)
    run b (ReadStream rd p 8) >>= (@?= 1)
    closeR >> closeW

-- What goes in comes out, in order, although receives are cancelled at random
-- moments: a receive that took bytes reports them.
cancelStorm :: Assertion
cancelStorm = withBackend $ \b -> withPair $ \x y _ -> withBytes 16 $ \p -> do
  cancelled <- newIORef (0 :: Int)
  late <- newIORef (0 :: Int)
  let rounds = 5000 :: Int
      expect n i = do
        bytes <- peekArray n p
        bytes @?= map fromIntegral (take n [i :: Int ..])
      go _ 0 _ received = pure received
      go g k sent received = do
        let (choice, g') = randomR (0, 7 :: Int) g
        r@(Running a _) <- begin b (Receive x p 3)
        when (choice >= 4) $ void (poll b noWait)
        wrote <-
          if even choice
            then 1 <$ sendBytes b y [fromIntegral sent]
            else pure (0 :: Int)
        when (choice == 2 || choice == 6) $ void (poll b noWait)
        when (isPending a) $ cancel b (answerToken a)
        n <- finish b r
        if n == eCANCELED
          then modifyIORef' cancelled (+ 1) >> go g' (k - 1) (sent + wrote) received
          else do
            when (isPending a) $ modifyIORef' late (+ 1)
            expect n received
            go g' (k - 1) (sent + wrote) (received + n)
      settle sent received
        | received == sent = pure ()
        | otherwise = do
            n <- run b (Receive x p 3)
            expect n received
            settle sent (received + n)
  received <- go (mkStdGen 7) rounds (0 :: Int) 0
  -- One more byte in each even round.
  let sent = length (filter even (choices rounds (mkStdGen 7)))
  settle sent received
  c <- readIORef cancelled
  l <- readIORef late
  assertBool ("both outcomes must occur: " <> show (c, l)) (c > 100 && l > 100)
  where
    choices 0 _ = []
    choices k g = let (c, g') = randomR (0, 7 :: Int) g in c : choices (k - 1 :: Int) g'

cancelAccepts :: Assertion
cancelAccepts = withBackend $ \b -> withListener $ \l port _ -> do
  accepted <- newIORef (0 :: Int)
  let note r = when (r >= 0) $ closeFd r >> modifyIORef' accepted (+ 1)
      rounds = 200 :: Int
  forM_ [1 .. rounds] $ \i -> do
    r@(Running a _) <- begin b (Accept l nullPtr nullPtr)
    when (even i) $ void (poll b noWait)
    bracket (N.socket N.AF_INET N.Stream N.defaultProtocol) N.close $ \c -> do
      N.connect c (N.SockAddrInet port loopback)
      when (isPending a) $ cancel b (answerToken a)
      finish b r >>= note
  let rest = do
        r@(Running a _) <- begin b (Accept l nullPtr nullPtr)
        if isPending a
          then cancel b (answerToken a) >> finish b r >>= note
          else finish b r >>= note >> rest
  rest
  readIORef accepted >>= (@?= rounds)

-- Forgetting -------------------------------------------------------------------

forgetIdle :: Assertion
forgetIdle = withBackend $ \b -> withPair $ \x _ _ -> do
  done <- newIORef False
  forget b x (writeIORef done True)
  readIORef done >>= (@?= True)

forgetPending :: Assertion
forgetPending = withBackend $ \b -> withBytes 8 $ \p -> do
  forM_ [1 .. 50 :: Int] $ \i -> withPipe $ \r w closeR closeW -> do
    closed <- newIORef False
    waiting <- beginPending b (ReadStream r p 8)
    also <- beginPending b (AwaitReadable r)
    when (even i) $ void (poll b noWait)
    forget b r (writeIORef closed True >> closeR)
    -- Not before its operations have retired, and nothing new meanwhile.
    readIORef closed >>= (@?= False)
    begin b (ReadStream r p 8) >>= resultOf >>= (@?= Just eBADF)
    finish b waiting >>= (@?= eCANCELED)
    finish b also >>= (@?= eCANCELED)
    readIORef closed >>= (@?= True)
    -- The number's next owner gets its own bytes.
    withPipe $ \r' w' closeR' closeW' -> do
      descriptorNumber r' @?= descriptorNumber r
      mine <- beginPending b (ReadStream r' p 8)
      _ <- poll b noWait
      resultOf mine >>= (@?= Nothing)
      withArray [5] $ \q -> run b (WriteStream w' q 1) >>= (@?= 1)
      finish b mine >>= (@?= 1)
      closeR' >> closeW'
    descriptorNumber w `seq` closeW

forgetSource :: Assertion
forgetSource = withBackend $ \b -> withSystemTempDirectory "weft" $ \dir -> withPair $ \x _ _ -> do
  fd <- open b (fromIntegral atFDCWD) (dir <> "/file") (oCREAT + oRDWR) 0
  f <- newDescriptor (fromIntegral fd)
  withBytes 65536 $ \p -> run b (WriteAt f p 65536 0) >>= (@?= 65536)
  let fill = begin b (SendFile x f 0 65536) >>= \r@(Running a _) -> if isPending a then pure r else fill
  blocked <- fill
  replicateM_ 3 (poll b noWait)
  resultOf blocked >>= (@?= Nothing)
  closed <- newIORef False
  forget b f (writeIORef closed True >> closeFd fd)
  finish b blocked >>= (@?= eCANCELED)
  readIORef closed >>= (@?= True)

-- Polling ----------------------------------------------------------------------

pollIdle :: Assertion
pollIdle = withRing defaultUringSettings $ \u b -> withPair $ \x y _ -> withBytes 8 $ \p -> do
  waiting <- beginPending b (Receive x p 8)
  _ <- poll b noWait
  before <- Ring.countEnters (uringRing u)
  replicateM_ 1000 (poll b noWait >>= (@?= 0))
  after <- Ring.countEnters (uringRing u)
  after - before @?= 0
  sendBytes b y [1]
  finish b waiting >>= (@?= 1)

pollTimes :: Assertion
pollTimes = withBackend $ \b ->
  forM_ [1, 1000, 100000, 2500000, 20000000 :: Int64] $ \t -> do
    start <- getMonotonicTimeNSec
    ran <- poll b t
    end <- getMonotonicTimeNSec
    ran @?= 0
    assertBool (show (end - start) <> " of " <> show t) (fromIntegral (end - start) >= t)

wakes :: Assertion
wakes = withRing defaultUringSettings $ \u b -> do
  forM_ [1 .. 20 :: Word64] $ \i -> do
    done <- newEmptyMVar
    before <- Ring.countWakeWrites (uringRing u)
    _ <- forkOS $ do
      -- The first may come before the poll, which then has no reason to block.
      replicateM_ 1000 (wake b)
      putMVar done ()
    _ <- poll b forever
    takeMVar done
    written <- Ring.countWakeWrites (uringRing u)
    assertBool ("round " <> show i <> ": " <> show (written - before) <> " writes") (written - before <= 1)
    -- A wake-up that came after the poll had ended is still remembered.
    void (poll b 1)
  -- Asleep for certain: only a write can end this.
  before <- Ring.countWakeWrites (uringRing u)
  done <- newEmptyMVar
  _ <- forkIO $ do
    let untilWritten = do
          wake b
          n <- Ring.countWakeWrites (uringRing u)
          -- A loop without allocation would keep the capability for ever.
          when (n == before) (yield >> untilWritten)
    untilWritten
    putMVar done ()
  let sleepOften = do
        _ <- poll b forever
        n <- Ring.countWakeWrites (uringRing u)
        when (n == before) sleepOften
  sleepOften
  takeMVar done

wakeBefore :: Assertion
wakeBefore = withRing defaultUringSettings $ \u b -> do
  before <- Ring.countWakeWrites (uringRing u)
  replicateM_ 100 (wake b)
  poll b noWait >>= (@?= 0)
  poll b forever >>= (@?= 0)
  after <- Ring.countWakeWrites (uringRing u)
  after - before @?= 0

-- Limits -----------------------------------------------------------------------

-- | The given number of pipes with a reader waiting on each, and what to do with them.
withReaders :: Backend () -> Int -> ([(Descriptor, Running)] -> IO ()) -> IO ()
withReaders b n act = do
  buffer <- callocBytes 8
  ends <- replicateM n (withPipe (\r w closeR closeW -> pure (r, w, closeR >> closeW)))
  running <- forM ends $ \(r, w, _) -> (,) w <$> beginPending b (ReadStream r (buffer :: Bytes) 8)
  act running
  forM_ ends $ \(_, _, closeBoth) -> closeBoth
  free buffer

writeAll :: Backend () -> [(Descriptor, Running)] -> IO ()
writeAll b running = withArray [1] $ \p -> forM_ running $ \(w, _) -> run b (WriteStream w p 1)

manySubmissions :: Assertion
manySubmissions = withRing small $ \u b -> withReaders b 300 $ \running -> do
  uringPending u >>= (@?= 300)
  writeAll b running
  forM_ running $ \(_, r) -> finish b r >>= (@?= 1)
  uringPending u >>= (@?= 0)

backlogs :: Assertion
backlogs = withRing small $ \u b -> do
  Ring.hold (uringRing u) True
  withReaders b 50 $ \running -> do
    uringPending u >>= (@?= 50)
    -- The last ones wait in the backlog: cancelled, they never reach the kernel.
    let (kept, dropped) = splitAt 40 running
    forM_ dropped $ \(_, r) -> cancel b (tokenOf r)
    Ring.hold (uringRing u) False
    forM_ dropped $ \(_, r) -> finish b r >>= (@?= eCANCELED)
    writeAll b kept
    forM_ kept $ \(_, r) -> finish b r >>= (@?= 1)

manyCompletions :: Assertion
manyCompletions = withRing small $ \_ b -> withReaders b 1000 $ \running -> do
  _ <- poll b noWait
  -- All complete before anything is collected: far more than 8.
  writeAll b running
  let go left = when (left > 0) $ poll b 1000000000 >>= \n -> assertBool "nothing came" (n > 0) >> go (left - n)
  go (length running)
  forM_ running $ \(_, r) -> resultOf r >>= (@?= Just 1)

-- The kernel cancels what a thread submitted when it ends; the next owner of the
-- ring submits it again.
threadEnds :: Assertion
threadEnds = withBackend $ \b -> withPair $ \x y _ -> withBytes 8 $ \p -> do
  box <- newEmptyMVar
  ended <- newEmptyMVar
  _ <- forkOS $ do
    r <- beginPending b (Receive x p 8)
    _ <- poll b noWait
    putMVar box r
    putMVar ended ()
  r <- takeMVar box
  takeMVar ended
  performGC
  _ <- poll b 20000000
  resultOf r >>= (@?= Nothing)
  sendBytes b y [11]
  finish b r >>= (@?= 1)
  -- And it can still be woken.
  done <- newEmptyMVar
  _ <- forkIO (wake b >> putMVar done ())
  poll b forever >>= (@?= 0)
  takeMVar done

noRing :: Assertion
noRing =
  runInBoundThread $
    newUring @() defaultUringSettings {submissionEntries = 0} (const (pure ())) >>= \case
      Right b -> shutdown b >> assertFailure "a ring without entries"
      Left failure -> do
        Ring.failedStep failure @?= Ring.CreatingRing
        assertBool (describeSetupFailure failure) (not (null (describeSetupFailure failure)))

-- Shutting down ----------------------------------------------------------------

shutdownPending :: Assertion
shutdownPending = do
  port <- newIORef 0
  withBackend $ \b -> withListener $ \l p _ -> withPair $ \x _ _ -> withBytes 8 $ \buffer -> do
    writeIORef port p
    waiting <- beginPending b (Accept l nullPtr nullPtr)
    also <- beginPending b (Receive x buffer 8)
    _ <- poll b noWait
    unsent <- beginPending b (AwaitReadable x)
    forgotten <- newIORef False
    forget b x (writeIORef forgotten True)
    shutdown b
    mapM resultOf [waiting, also, unsent] >>= (@?= replicate 3 (Just eCANCELED))
    readIORef forgotten >>= (@?= True)
  p <- readIORef port
  when (p /= 0) $ bracket (N.socket N.AF_INET N.Stream N.defaultProtocol) N.close $ \s -> do
    N.bind s (N.SockAddrInet p loopback)
    N.listen s 1

shutdownFinal :: Assertion
shutdownFinal = withBackend $ \b -> withPair $ \x _ _ -> withBytes 8 $ \p -> do
  r <- beginPending b (Receive x p 8)
  shutdown b
  shutdown b
  begin b (Receive x p 8) >>= resultOf >>= (@?= Just eCANCELED)
  cancel b (tokenOf r)
  wake b
  poll b 1000000 >>= (@?= 0)
