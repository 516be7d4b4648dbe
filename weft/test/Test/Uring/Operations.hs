-- |
-- Description : Each operation of the io_uring event source
module Test.Uring.Operations (tests) where

import Control.Exception (bracket)
import Control.Monad (forM, forM_, unless, when)
import Data.Word (Word32, Word64, Word8)
import Foreign.C.String (withCString)
import Foreign.Marshal.Alloc (allocaBytes)
import Foreign.Marshal.Array (peekArray, withArray)
import Foreign.Ptr (Ptr, castPtr, nullPtr, plusPtr)
import Foreign.Storable (peek, peekByteOff, poke, pokeByteOff)
import Network.Socket qualified as N
import System.IO.Temp (withSystemTempDirectory)
import System.Posix.Fcntl (Advice (..), fileAdvise)
import System.Posix.IO qualified as P
import System.Posix.Types (Fd (..))
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (Assertion, assertBool, testCase, (@?=))
import Test.Uring.Rig
import Weft.Internal.Backend
import Weft.Internal.Os.Descriptor

tests :: TestTree
tests =
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
    ]

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
  run b (Await Writing x) >>= (@?= 0)
  waiting <- beginPending b (Await Reading x)
  _ <- poll b noWait
  resultOf waiting >>= (@?= Nothing)
  sendBytes b y [1]
  finish b waiting >>= (@?= 0)
  run b (Await Reading x) >>= (@?= 0)
  run b (Receive x p 8) >>= (@?= 1)
  ended <- beginPending b (Await Reading x)
  closeY
  finish b ended >>= (@?= 0)

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
