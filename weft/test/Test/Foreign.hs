{-# LANGUAGE CApiFFI #-}

-- |
-- Description : Waits for descriptors that Weft does not own
--
-- "Weft.Descriptor" on each event source: kinds of descriptors, several waiters, the end of
-- waits, and numbers that change their owner.
module Test.Foreign (tests) where

import Control.Exception (IOException)
import Control.Exception qualified as Exception
import Control.Monad (forM_, replicateM, replicateM_, unless, void)
import Data.ByteString.Char8 qualified as Char8
import Data.Foldable (for_)
import Data.IORef
import Data.Word (Word32)
import Foreign.C.Error (Errno, eBADF, throwErrnoIfMinus1)
import Foreign.C.String (CString, withCString)
import Foreign.C.Types (CInt (..))
import Network.Socket qualified as Network
import System.Environment (lookupEnv)
import System.IO (hClose)
import System.IO.Temp (withSystemTempFile)
import System.Posix.IO qualified as Posix
import System.Posix.IO.ByteString (fdRead, fdWrite)
import System.Posix.Terminal (openPseudoTerminal)
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Conformance.Waiting (cancelAndWait)
import Weft.Descriptor
import Weft.Internal.Core.SystemCall (Socket (..))
import Weft.Internal.Os.Descriptor (descriptorNumber)
import Weft.Internal.Os.Foreign (waiting)
import Weft.Internal.Os.Sys qualified as Sys
import Weft.Socket (closeSocket, receive, sendAll)

tests :: TestTree
tests =
  testGroup
    "Descriptors of others"
    [ testGroup
        (describeConfig c)
        [ testCase "a pipe, an eventfd, a terminal" $ kinds c,
          testCase "inotify" $ notified c,
          testCase "a regular file is ready" $ regular c,
          testCase "numbers that are not open" $ notOpen c,
          testCase "it is ready as long as it is so, and several wait for it" $ several c,
          testCase "reading and writing at once" $ bothWays c,
          testCase "a wait that is cancelled leaves the others" $ cancelled c,
          testCase "closing ends the waits, and the next file of the number has its own" $ closed c,
          testCase "what the closing action throws is thrown, and the waits have ended" $ closedInVain c,
          testCase "two threads that close and reuse numbers" $ reused c,
          testCase "the number of a socket of Weft's" $ owned c,
          testCase "a run that ends ends the waits" $ ends c
        ]
      | c <- configurations
    ]

-- | Let others run until this number of threads waits for it.
untilWaiting :: Int -> Fd -> Thread ()
untilWaiting n fd@(Fd number) = liftIO (waiting number) >>= \found -> unless (found == n) (yield >> untilWaiting n fd)

write :: Fd -> Thread ()
write fd = liftIO (void (fdWrite fd (Char8.pack "12345678")))

pipe :: Thread (Fd, Fd)
pipe = liftIO Posix.createPipe

closeAll :: [Fd] -> Thread ()
closeAll = liftIO . mapM_ Posix.closeFd

-- | Wait, and have it become ready.
wakesBy :: Fd -> Thread () -> Thread ()
wakesBy fd ready = do
  woken <- spawn (awaitReadableFd fd)
  untilWaiting 1 fd
  ready
  woken

kinds :: Config -> Assertion
kinds c = running c $ do
  (r, w) <- pipe
  r `wakesBy` write w
  counter <- liftIO (Fd . fromIntegral <$> Sys.throwFailure "eventfd" Sys.newEventCounter)
  awaitWritableFd counter
  counter `wakesBy` write counter
  (master, slave) <- liftIO openPseudoTerminal
  master `wakesBy` write slave
  closeAll [r, w, counter, master, slave]

notified :: Config -> Assertion
notified c = withSystemTempFile "weft" $ \path file -> do
  inotify <- Fd <$> throwErrnoIfMinus1 "inotify_init1" (c_inotifyInit (c_nonBlock + c_closeOnExec))
  _ <- withCString path (\p -> throwErrnoIfMinus1 "inotify_add_watch" (c_inotifyWatch inotify p c_closed))
  running c (inotify `wakesBy` liftIO (hClose file))
  event <- fdRead inotify 16
  Char8.length event @?= 16
  Posix.closeFd inotify

foreign import capi unsafe "sys/inotify.h inotify_init1" c_inotifyInit :: CInt -> IO CInt

foreign import capi unsafe "sys/inotify.h inotify_add_watch" c_inotifyWatch :: Fd -> CString -> Word32 -> IO CInt

foreign import capi unsafe "sys/inotify.h value IN_NONBLOCK" c_nonBlock :: CInt

foreign import capi unsafe "sys/inotify.h value IN_CLOEXEC" c_closeOnExec :: CInt

-- | A file that was open for writing is closed.
foreign import capi unsafe "sys/inotify.h value IN_CLOSE_WRITE" c_closed :: Word32

regular :: Config -> Assertion
regular c = withSystemTempFile "weft" $ \path file -> do
  hClose file
  fd <- Posix.openFd path Posix.ReadWrite Posix.defaultFileFlags
  running c (awaitReadableFd fd >> awaitWritableFd fd)
  Posix.closeFd fd

notOpen :: Config -> Assertion
notOpen c = running c $
  forM_ [Fd 60_000, Fd (-1)] $ \fd -> do
    failsWith badNumber (awaitReadableFd fd)
    failsWith badNumber (awaitWritableFd fd)

badNumber :: [Errno]
badNumber = [eBADF]

several :: Config -> Assertion
several c = running c $ do
  (r, w) <- pipe
  woken <- replicateM 5 (spawn (awaitReadableFd r))
  untilWaiting 5 r
  write w
  sequence_ woken
  replicateM_ 3 (awaitReadableFd r)
  closeAll [w]
  -- The end of it is something to read, too.
  _ <- liftIO (fdRead r 100)
  awaitReadableFd r
  closeAll [r]

bothWays :: Config -> Assertion
bothWays c = running c $ do
  (a, b) <- pair
  fill a
  room <- spawn (awaitWritableFd a)
  untilWaiting 1 a
  bytes <- spawn (awaitReadableFd a)
  untilWaiting 2 a
  write b
  bytes
  untilWaiting 1 a
  drain b
  room
  closeAll [a, b]

-- | Connected sockets that are not Weft's, in non-blocking mode.
pair :: Thread (Fd, Fd)
pair = liftIO $ do
  (a, b) <- Network.socketPair Network.AF_UNIX Network.Stream Network.defaultProtocol
  (,) <$> number a <*> number b
  where
    number s = Fd <$> Network.socketToFd s

-- | Write until there is no room, and read until there is nothing.
fill, drain :: Fd -> Thread ()
fill fd = untilFailure (fdWrite fd (Char8.replicate 65536 'x'))
drain fd = untilFailure (fdRead fd 65536)

untilFailure :: IO a -> Thread ()
untilFailure act =
  liftIO (Exception.try act) >>= \case
    Left (_ :: IOException) -> pure ()
    Right _ -> untilFailure act

cancelled :: Config -> Assertion
cancelled c = running c $ do
  (a, b) <- pair
  fill a
  -- In the other direction, in the same, and again with no waiter left.
  room <- spawn (awaitWritableFd a)
  first <- fork (awaitReadableFd a)
  untilWaiting 2 a
  cancelAndWait first
  second <- spawn (awaitReadableFd a)
  third <- fork (awaitReadableFd a)
  untilWaiting 3 a
  cancelAndWait third
  untilWaiting 2 a
  write b
  second
  drain b
  room
  drain a
  last' <- fork (awaitReadableFd a)
  untilWaiting 1 a
  cancelAndWait last'
  untilWaiting 0 a
  a `wakesBy` write b
  closeAll [a, b]

closed :: Config -> Assertion
closed c = running c $ do
  (r, w) <- pipe
  readers <- replicateM 3 (spawn (awaitReadableFd r))
  untilWaiting 3 r
  -- The number is another file's without a moment in between, in which another test could take it.
  (r', w') <- pipe
  liftIO (closeFdWith (void . Posix.dupTo r') r)
  reader <- spawn (awaitReadableFd r)
  for_ readers (failsWith badNumber)
  untilWaiting 1 r
  write w'
  reader
  closeAll [w, r, r', w']

closedInVain :: Config -> Assertion
closedInVain c = running c $ do
  (r, w) <- pipe
  reader <- spawn (awaitReadableFd r)
  untilWaiting 1 r
  outcome <- liftIO (Exception.try (closeFdWith (\_ -> Exception.throwIO Exception.Overflow) r))
  liftIO (outcome @?= Left Exception.Overflow)
  failsWith badNumber reader
  r `wakesBy` write w
  closeAll [r, w]

-- | Close what is waited for, and wait at once for what may have its number. (@make reuses@ asks for
-- 100,000 times.)
reused :: Config -> Assertion
reused c = running c $ do
  count <- liftIO (maybe 1_000 read <$> lookupEnv "WEFT_REUSES")
  runs <- replicateM 2 (spawn (replicateM_ count once))
  sequence_ runs
  where
    once = do
      (r, w) <- pipe
      old <- spawn (awaitReadableFd r)
      untilWaiting 1 r
      gone <- spawn (liftIO (closeFdWith Posix.closeFd r))
      (r', w') <- pipe
      new <- spawn (awaitReadableFd r')
      write w'
      failsWith badNumber old
      new
      gone
      closeAll [w, r', w']

owned :: Config -> Assertion
owned c = running c $ do
  (mine, theirs) <- socketPair
  let fd = Fd (descriptorNumber (socketDescriptor mine))
  -- Before Weft has waited for it, while it does, and afterwards.
  early <- spawn (awaitReadableFd fd)
  untilWaiting 1 fd
  got <- spawn (receive mine 1)
  sendAll theirs (Char8.pack "ab")
  early
  got >>= \b -> liftIO (b @?= Char8.pack "a")
  awaitReadableFd fd
  receive mine 1 >>= \b -> liftIO (b @?= Char8.pack "b")
  late <- spawn (awaitReadableFd fd)
  untilWaiting 1 fd
  sendAll theirs (Char8.pack "c")
  late
  receive mine 1 >>= \b -> liftIO (b @?= Char8.pack "c")
  left <- spawn (awaitReadableFd fd)
  untilWaiting 1 fd
  closeSocket theirs
  left
  closeSocket mine

-- | A thread that is cancelled at the end of the run, and finalizers that wait.
ends :: Config -> Assertion
ends c = do
  (r, w) <- Posix.createPipe
  done <- newIORef (0 :: Int)
  running c $ do
    (r', w') <- pipe
    -- The one waits for the other.
    _ <- fork (awaitReadableFd r `finally` (awaitReadableFd r' >> finished done))
    _ <- fork (awaitReadableFd r `finally` (write w' >> finished done))
    untilWaiting 2 r
  readIORef done >>= (@?= 2)
  waiting (numberOf r) >>= (@?= 0)
  mapM_ Posix.closeFd [r, w]
  where
    finished done = liftIO (atomicModifyIORef' done (\n -> (n + 1, ())))
    numberOf (Fd n) = n
