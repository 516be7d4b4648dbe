{-# LANGUAGE MultiWayIf #-}
{-# LANGUAGE OverloadedStrings #-}

-- |
-- A number is not closed while a thread uses it: senders on any OS thread, and workers other
-- than the one that closes.
module Test.Attempts
  ( tests,
  )
where

import Control.Concurrent (forkIO, getNumCapabilities, newEmptyMVar, putMVar, setNumCapabilities, takeMVar, tryTakeMVar)
import Control.Concurrent qualified as Ghc
import Control.Exception (IOException, bracket)
import Control.Monad
import Control.Monad.Primitive (RealWorld)
import Data.Bits (testBit)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as Char8
import Data.ByteString.Unsafe (unsafeUseAsCStringLen)
import Data.IORef
import Data.Maybe (isNothing)
import Data.Primitive.PrimArray
import Data.Word (Word8)
import Foreign.C.Types (CInt (..))
import Foreign.Marshal.Alloc (allocaBytes)
import Foreign.Ptr (Ptr, castPtr)
import Network.Socket qualified as N
import System.Directory (removeFile)
import System.IO (hClose)
import System.IO.Temp (withSystemTempDirectory)
import System.Posix.IO (FdOption (NonBlockingRead), OpenMode (ReadOnly, ReadWrite), closeFd, defaultFileFlags, openFd, setFdOption)
import System.Posix.Temp (mkstemp)
import System.Posix.Types (Fd (..))
import Test.Tasty
import Test.Tasty.HUnit
import Weft hiding (bracket)
import Weft.Buffer (newBuffer)
import Weft.File qualified as File
import Weft.Internal.Core.SystemCall (Attempts (..), Buffer)
import Weft.Internal.Core.SystemCall qualified as Internal
import Weft.Internal.Kernel.Attempts (systemAttempts)
import Weft.Internal.Os.Descriptor
import Weft.Internal.Os.Sys qualified as Sys
import Weft.Kernel (PoolSettings (..), defaultPoolSettings)
import Weft.Socket

tests :: TestTree
tests =
  localOption (mkTimeout 20_000_000) $
    testGroup
      "attempts"
      [ testCase "a descriptor is closed when the send that is under way has ended, and not before" waited,
        testCase "nothing is sent on a descriptor that was closed, whatever has its number now" refused,
        testCase "one sends at a time" oneAtATime,
        testCase "a worker that asks for an option is asked before the number is free" announcing,
        testCase "no worker's mark says something else" manyWorkers,
        testCase "a file that was closed before the pool came to it is left alone, and so is the next with its number" cutTooLate,
        testCase "a directory that is closed while a file is opened in it is not the next with its number" openedBeneath
      ]

-- | Two ends, of which the first is in blocking mode. Its words lie still, for a call that
-- waits.
ends :: IO (MutablePrimArray RealWorld Int, Descriptor, CInt)
ends = do
  (a, b) <- N.socketPair N.AF_UNIX N.Stream 0
  one <- N.socketToFd a
  other <- N.socketToFd b
  setFdOption (Fd one) NonBlockingRead False
  setFdOption (Fd other) NonBlockingRead True
  words' <- newPinnedPrimArray 2
  setPrimArray words' 0 2 0
  made <- newDescriptor one
  pure (words', made {descriptorWords = words'}, other)

asSocket :: Descriptor -> Socket
asSocket d = Internal.Socket d AF_UNIX Stream

-- | Receive all that is there: how many bytes it was.
takeOut :: CInt -> IO Int
takeOut fd = allocaBytes 65_536 $ \p ->
  let go !n = Sys.recv fd p 65_536 >>= \r -> if r <= 0 then pure n else go (n + r)
   in go 0

fill :: CInt -> IO Int
fill fd = unsafeUseAsCStringLen (B.replicate 65_536 0x61) $ \(p, n) ->
  let go !sent = Sys.send fd (castPtr p) n >>= \r -> if r <= 0 then pure sent else go (sent + r)
   in go 0

isOpen :: CInt -> IO Bool
isOpen fd = (>= 0) <$> c_fcntl fd 1 0 -- F_GETFD

-- | The sender is between its look and the end of its send, because the socket has no room and
-- waits. With a look and then a send, the number would be free, and soon another's.
waited :: Assertion
waited = do
  (words', d, far) <- ends
  filled <- fill (descriptorNumber d)
  result <- newEmptyMVar
  let text = B.replicate 1_000 0x62
  _ <- forkIO . unsafeUseAsCStringLen text $ \(p, n) ->
    c_send_now (mutablePrimArrayContents words') (descriptorNumber d) (castPtr p) n 0x4000 >>= putMVar result
  let untilIn = isHeld d >>= \s -> unless s (Ghc.yield >> untilIn)
  untilIn
  runWith defaultSettings {settingWorkers = Just 1} $ do
    ended <- liftIO (newIORef False)
    fork_ (closeSocket (asSocket d) >> liftIO (writeIORef ended True))
    let untilMarked = do
          closed <- liftIO (isClosed d)
          unless closed (yield >> untilMarked)
    untilMarked
    -- The closing thread has done all it can.
    replicateM_ 10 yield
    liftIO $ do
      isOpen (descriptorNumber d) >>= assertBool "the number of a descriptor that is being sent on is free"
      readIORef ended >>= assertBool "closing has returned" . not
      tryTakeMVar result >>= assertBool "the send has ended" . isNothing
    -- Room for what is being sent.
    let untilSent received =
          liftIO (tryTakeMVar result) >>= \case
            Just r -> (r,) . (received +) <$> liftIO (takeOut far)
            Nothing -> liftIO (takeOut far) >>= \n -> yield >> untilSent (received + n)
    (r, received) <- untilSent 0
    liftIO ((r, received) @?= (1_000, filled + 1_000))
    let untilEnded = liftIO (readIORef ended) >>= \e -> unless e (yield >> untilEnded)
    untilEnded
    liftIO (isOpen (descriptorNumber d) >>= assertBool "closed" . not)
  void (Sys.close far)

refused :: Assertion
refused = do
  (_, d, far) <- ends
  run (closeSocket (asSocket d))
  (one, other) <- successor (descriptorNumber d)
  buffer <- newBuffer 10
  results <- eachWay (asSocket d) "secret" buffer
  came <- takeOut other
  (results, came) @?= (replicate 3 wasClosed, 0)
  isHeld d >>= (@?= False)
  mapM_ Sys.close [far, one, other]

-- | The answer of each attempt. The file is in memory: it is being run.
eachWay :: Socket -> B.ByteString -> Buffer -> IO [Int]
eachWay s bytes buffer =
  bracket (openFd "/proc/self/exe" ReadOnly defaultFileFlags) closeFd $ \(Fd fd) -> do
    file <- newDescriptor fd
    sequence
      [ attemptSend systemAttempts s Internal.MoreFollows bytes,
        attemptSendFile systemAttempts s B.empty (Internal.File file) 0 1_000,
        attemptReceive systemAttempts s buffer 0 10
      ]

-- | Another pair, one of which has this number.
successor :: CInt -> IO (CInt, CInt)
successor wanted = go []
  where
    go others = do
      (a, b) <- N.socketPair N.AF_UNIX N.Stream 0
      one <- N.socketToFd a
      other <- N.socketToFd b
      if
        | one == wanted -> (one, other) <$ mapM_ Sys.close others
        | other == wanted -> (other, one) <$ mapM_ Sys.close others
        | length others > 100 -> assertFailure "the number is not given again"
        | otherwise -> go (one : other : others)

oneAtATime :: Assertion
oneAtATime = do
  (words', d, far) <- ends
  writePrimArray words' 1 1
  buffer <- newBuffer 10
  eachWay (asSocket d) "again" buffer >>= (@?= replicate 3 isBusy)
  isHeld d >>= (@?= True)
  writePrimArray words' 1 0
  takeOut far >>= (@?= 0)
  attemptSend systemAttempts (asSocket d) Internal.NothingMore "again" >>= (@?= 5)
  takeOut far >>= (@?= 5)
  run (closeSocket (asSocket d))
  void (Sys.close far)

announcing :: Assertion
announcing = do
  (_, d, far) <- ends
  runWith defaultSettings {settingWorkers = Just 2} $ do
    child <- liftIO newEmptyMVar
    _ <- forkWith defaultForkOptions {forkWorker = Just 1} $ do
      r <- try (getOption (asSocket d) SoError)
      liftIO (putMVar child (either (\(_ :: IOException) -> False) (const True) r))
    answered <- blocking (takeMVar child)
    marks <- liftIO (readPrimArray (descriptorWords d) 0)
    liftIO ((answered, testBit marks 1) @?= (True, True))
    closeSocket (asSocket d)
  isOpen (descriptorNumber d) >>= (@?= False)
  void (Sys.close far)

-- | Seventy workers, as a machine with that number of processors has by default.
manyWorkers :: Assertion
manyWorkers = do
  (_, d, far) <- ends
  bracket getNumCapabilities setNumCapabilities $ \_ ->
    runWith defaultSettings {settingWorkers = Just 70} $ do
      workers <- workerCount
      liftIO (workers @?= mostWorkers)
      results <- forM [0 .. 69] $ \i -> do
        result <- liftIO newEmptyMVar
        _ <- forkWith defaultForkOptions {forkWorker = Just i} $ do
          r <- try (getOption (asSocket d) SoError)
          liftIO (putMVar result (either (\(_ :: IOException) -> False) (const True) r))
        blocking (takeMVar result)
      marks <- liftIO (readPrimArray (descriptorWords d) 0)
      liftIO ((and results, marks) @?= (True, 2 ^ mostWorkers - 1))
      closeSocket (asSocket d)
  isOpen (descriptorNumber d) >>= (@?= False)
  void (Sys.close far)

cutTooLate :: Assertion
cutTooLate = withFile $ \one -> withFile $ \other -> do
  gate <- newEmptyMVar
  result <- newEmptyMVar
  let kernel = systemKernel defaultSystemSettings {systemPool = defaultPoolSettings {poolMaxThreads = 1}}
  runWith defaultSettings {settingWorkers = Just 1, settingKernel = kernel, settingCarriers = 0} $ do
    file <- File.openFile (Char8.pack one) File.ReadWrite
    fork_ (blocking (takeMVar gate))
    yield
    fork_ $ do
      r <- try (File.setFileSize file 0)
      liftIO (putMVar result (either (\(_ :: IOException) -> False) (const True) r))
    yield
    File.closeFile file
    -- It has the number now.
    Fd next <- liftIO (openFd other ReadWrite defaultFileFlags)
    liftIO (next @?= descriptorNumber (Internal.fileDescriptor file))
    liftIO (putMVar gate ())
    cut <- blocking (takeMVar result)
    liftIO (closeFd (Fd next))
    liftIO (cut @?= False)
  mapM B.readFile [one, other] >>= (@?= ["text", "text"])
  where
    withFile = bracket (mkstemp "/tmp/weft-test-" >>= \(path, h) -> path <$ (B.hPut h "text" >> hClose h)) removeFile

-- | The opening of the file may get the number of the directory first; that is no
-- fault, and shows none. So often enough, until it was the other directory that had it.
openedBeneath :: Assertion
openedBeneath = forM_ [Uring, Epoll] $ \backend -> withDirectory "one" $ \one -> withDirectory "another" $ \other -> do
  let kernel = systemKernel defaultSystemSettings {systemBackend = backend}
  reused <- runWith defaultSettings {settingWorkers = Just 1, settingKernel = kernel, settingCarriers = 0} . replicateM 50 $ do
    (text, again) <- closedMeanwhile one other $ \dir -> do
      file <- File.openFileAt (File.At dir) "file" File.ReadOnly File.defaultOpenFlags
      File.readAt file 0 100 <* File.closeFile file
    (size, again') <- closedMeanwhile one other $ \dir -> File.statusSize <$> File.pathStatusAt (File.At dir) "file"
    liftIO ((text, size) @?= ("one", 3))
    pure (again, again')
  (any fst reused, any snd reused) @?= (True, True)
  where
    withDirectory text use = withSystemTempDirectory "weft-send-now" $ \path -> B.writeFile (path <> "/file") text >> use path
    -- And whether the other one had the number.
    closedMeanwhile one other act = do
      dir <- File.openFile (Char8.pack one) File.ReadOnly
      result <- liftIO newEmptyMVar
      fork_ (act dir >>= liftIO . putMVar result)
      yield
      File.closeFile dir
      Fd next <- liftIO (openFd other ReadOnly defaultFileFlags)
      what <- blocking (takeMVar result)
      liftIO (closeFd (Fd next))
      pure (what, next == descriptorNumber (Internal.fileDescriptor dir))

foreign import ccall safe "weft_send_now"
  c_send_now :: Ptr Int -> CInt -> Ptr Word8 -> Int -> CInt -> IO Int

foreign import ccall unsafe "fcntl"
  c_fcntl :: CInt -> CInt -> CInt -> IO CInt
