-- |
-- Description : Receives of the io_uring event source that stand
--
-- Each of the ways in which a watched descriptor can lose a byte or a wake-up, keep what it should not, or mix
-- up what waits. See Note [Watched descriptors] in "Weft.Internal.Backend.Uring.Watch".
module Test.Uring.Watching (watching) where

import Control.Concurrent (forkOS, newEmptyMVar, putMVar, takeMVar)
import Control.Exception (SomeException, bracket, throwIO, try)
import Control.Monad (forM, forM_, replicateM_, unless, when, (>=>))
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as BC
import Data.Foldable (for_)
import Data.IORef
import Data.Maybe (isJust)
import Foreign.C.Types (CInt (..))
import Foreign.Marshal.Array (peekArray)
import Foreign.Ptr (Ptr)
import GHC.Clock (getMonotonicTimeNSec)
import Network.Socket qualified as N
import Network.Socket.ByteString qualified as NB
import System.Posix.IO qualified as P
import System.Posix.Resource (Resource (..), ResourceLimit (..), ResourceLimits (..), getResourceLimit, setResourceLimit)
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (Assertion, assertBool, assertFailure, testCase, (@?=))
import Test.Uring.Rig
import Weft.Internal.Backend
import Weft.Internal.Backend.Attempt (attempt)
import Weft.Internal.Backend.Uring (Uring, UringSettings, defaultUringSettings, uringPending, uringRing)
import Weft.Internal.Backend.Uring.Ring qualified as Ring
import Weft.Internal.Core.Standing (Place, waitAgain)
import Weft.Internal.Os.Descriptor
import Weft.Test.Skipping (skipped)

watching :: TestTree
watching =
  testGroup
    "standing"
    [ testCase "a receive waits again without a request" again,
      testCase "cancelled, it ends once, and its place is gone" cancelled,
      testCase "a late cancellation misses the next receive" late,
      testCase "two readers are both served" readers,
      testCase "bytes that another reads directly are not waited for twice" taken,
      testCase "bytes that nothing here waits for end the watch, which begins anew" unread,
      testCase "receives that are full keep the watch" fullReceives,
      testCase "the end of the stream after a short receive" halfClosed,
      testCase "bytes after urgent data" urgent,
      testCase "forgotten while it waits, and while it does not" forgotten,
      testCase "the number of a descriptor that was watched" reused,
      testCase "another thread drives the ring" adopted,
      testCase "another thread, while submissions are queued" adoptedQueued,
      testCase "another thread, which gets no ring at first" adoptedWithout,
      testCase "a full completion queue ends watches, which begin anew" overflows,
      testCase "shut down while it waits" stopped
    ]

-- | A receive that stands: its place, its token, and the results that have come.
data Stander = Stander {place :: Place, token :: Token, results :: IORef [Int]}

-- | A watched end of a TCP connection in which a receive waits, and the socket at the other end.
withWatched :: (Ring.Ring -> Backend () -> Descriptor -> N.Socket -> Bytes -> Stander -> Assertion) -> Assertion
withWatched act = withDeferred defaultUringSettings $ \u b -> withTcp $ \d peer -> withBytes 16 $ \p -> do
  s <- watched b d peer p
  act (uringRing u) b d peer p s
  forgetting <- newIORef False
  forget b d (writeIORef forgetting True)
  until' b (readIORef forgetting)
  uringPending u >>= (@?= 0)

-- | A ring that watches: one whose completions are deferred.
withDeferred :: UringSettings -> (Uring () -> Backend () -> Assertion) -> Assertion
withDeferred settings act = withRing settings $ \u b -> do
  deferred <- Ring.isDeferred (uringRing u)
  if deferred then act u b else skipped "the kernel defers no completions"

withTcp :: (Descriptor -> N.Socket -> IO a) -> IO a
withTcp act = withListener $ \_ port l ->
  bracket (N.socket N.AF_INET N.Stream N.defaultProtocol) N.close $ \peer -> do
    N.setSocketOption peer N.NoDelay 1
    N.connect peer (N.SockAddrInet port loopback)
    bracket (fst <$> N.accept l) N.close $ \s -> N.withFdSocket s newDescriptor >>= \d -> act d peer

-- | Have a receive wait, which stands: the second one does.
watched :: Backend () -> Descriptor -> N.Socket -> Bytes -> IO Stander
watched b d peer p = do
  first <- beginPending b (Receive d p 16)
  stand b (tokenOf first) >>= \case
    Nothing -> pure ()
    Just _ -> assertFailure "the first receive stands"
  say peer "."
  finish b first >>= (@?= 1)
  came <- newIORef []
  answer <- submit b (Receive d p 16) (Completion () (\r -> modifyIORef' came (r :)))
  assertBool "answered at once" (isPending answer)
  stand b (answerToken answer) >>= \case
    Nothing -> assertFailure "the second receive does not stand"
    Just here -> pure (Stander here (answerToken answer) came)

say :: N.Socket -> String -> IO ()
say peer text = NB.sendAll peer (BC.pack text)

-- | Poll until something is true; five seconds without are a failure.
until' :: Backend () -> IO Bool -> IO ()
until' b done = getMonotonicTimeNSec >>= go
  where
    go start =
      done >>= \ok -> unless ok $ do
        now <- getMonotonicTimeNSec
        when (now - start > 5000000000) $ assertFailure "not within five seconds"
        _ <- poll b 100000000
        go start

-- | Wait for the next result.
next :: Backend () -> Stander -> IO Int
next b s = do
  until' b (not . null <$> readIORef (results s))
  atomicModifyIORef' (results s) (\rs -> ([], sum (take 1 rs)))

text' :: Bytes -> Int -> IO String
text' p n = BC.unpack . B.pack <$> peekArray n p

again :: Assertion
again = withWatched $ \ring b d peer p s -> do
  say peer "one"
  next b s >>= (@?= 3)
  before <- Ring.countEnters ring
  waitAgain (place s) p 16 >>= (@?= True)
  _ <- poll b noWait
  Ring.countEnters ring >>= (@?= before)
  say peer "two!"
  next b s >>= (@?= 4)
  text' p 4 >>= (@?= "two!")
  -- A receive that fills its room leaves something, perhaps: the next one tries.
  waitAgain (place s) p 2 >>= (@?= True)
  say peer "abc"
  next b s >>= (@?= 2)
  waitAgain (place s) p 16 >>= (@?= False)
  run b (Receive d p 16) >>= (@?= 1)

-- | As where the thread has moved to another worker. Each byte that comes is a completion, until the watch has ended.
unread :: Assertion
unread = withWatched $ \ring b d peer p s -> do
  say peer "one"
  next b s >>= (@?= 3)
  -- Several that come late may be one completion.
  replicateM_ 200 $ say peer "x" >> poll b noWait
  before <- Ring.countEnters ring
  replicateM_ 50 $ say peer "x" >> poll b noWait
  Ring.countEnters ring >>= (@?= before)
  let drain n = when (n > 0) $ run b (Receive d p 16) >>= \got -> drain (n - got)
  drain 250
  waitAgain (place s) p 16 >>= (@?= False)
  again' <- beginPending b (Receive d p 16)
  say peer "two!"
  finish b again' >>= (@?= 4)
  more <- beginPending b (Receive d p 16)
  say peer "three"
  finish b more >>= (@?= 5)

-- | Each receive finds more than it has room for, and a completion comes before the next. To give the watch up is to enter
-- the kernel once more than each completion does, as is to begin it anew.
fullReceives :: Assertion
fullReceives = withWatched $ \ring b d peer p s -> do
  say peer "one"
  next b s >>= (@?= 3)
  say peer "x" >> poll b noWait >>= (@?= 0)
  before <- Ring.countEnters ring
  replicateM_ 50 $ do
    say peer "x" >> poll b noWait >>= (@?= 0)
    run b (Receive d p 1) >>= (@?= 1)
  entered <- subtract before <$> Ring.countEnters ring
  -- Several that come late may be one completion.
  assertBool (show entered <> " entries for 50 completions") (entered > 25 && entered <= 50)

cancelled :: Assertion
cancelled = withWatched $ \_ b d peer p s -> do
  cancel b (token s)
  cancel b (token s)
  readIORef (results s) >>= (@?= [])
  next b s >>= (@?= eCANCELED)
  waitAgain (place s) p 16 >>= (@?= False)
  -- Nothing is lost of what comes now.
  say peer "kept"
  run b (Receive d p 16) >>= (@?= 4)
  readIORef (results s) >>= (@?= [])

late :: Assertion
late = withWatched $ \_ b d peer p s -> do
  say peer "x"
  next b s >>= (@?= 1)
  -- It does not wait: nothing to cancel, and its place stays.
  cancel b (token s)
  _ <- poll b noWait
  waitAgain (place s) p 16 >>= (@?= True)
  say peer "y"
  next b s >>= (@?= 1)
  -- Another receive takes the place, under a token of its own.
  other <- beginPending b (Receive d p 16)
  waitAgain (place s) p 16 >>= (@?= False)
  cancel b (token s)
  _ <- poll b noWait
  resultOf other >>= (@?= Nothing)
  say peer "z"
  finish b other >>= (@?= 1)
  readIORef (results s) >>= (@?= [])

readers :: Assertion
readers = withWatched $ \_ b d peer p s -> withBytes 16 $ \q -> do
  other <- beginPending b (Receive d q 1)
  say peer "a"
  until' b ((\r rs -> isJust r || not (null rs)) <$> resultOf other <*> readIORef (results s))
  say peer "b"
  finish b other >>= (@?= 1)
  next b s >>= (@?= 1)
  x <- text' p 1
  y <- text' q 1
  assertBool (x <> y) (x <> y `elem` ["ab", "ba"])

taken :: Assertion
taken = withWatched $ \_ b d peer p s -> withBytes 16 $ \q -> do
  say peer "mine"
  until' b $ (== 4) <$> attempt (Receive d q 16)
  replicateM_ 3 (poll b noWait)
  -- The completion finds nothing; the receive still waits.
  readIORef (results s) >>= (@?= [])
  say peer "yours"
  next b s >>= (@?= 5)
  text' p 5 >>= (@?= "yours")

halfClosed :: Assertion
halfClosed = withWatched $ \_ b d peer p s -> do
  say peer "end"
  N.shutdown peer N.ShutdownSend
  next b s >>= (@?= 3)
  -- Whether the end was seen with the bytes or not, it is found.
  waits <- waitAgain (place s) p 16
  if waits then next b s >>= (@?= 0) else run b (Receive d p 16) >>= (@?= 0)

urgent :: Assertion
urgent = withWatched $ \_ b d peer p s -> do
  say peer "."
  next b s >>= (@?= 1)
  forM_ [1 :: Int .. 20] $ \_ -> do
    r <- N.withFdSocket peer $ \fd -> BC.useAsCStringLen (BC.pack "ab!") $ \(c, n) -> c_send fd c n 1
    r @?= 3
    say peer "cd"
    -- All four, in however many receives; the urgent byte is not among them.
    let collect' got
          | length got >= 4 = pure got
          | otherwise = do
              waits <- waitAgain (place s) p 16
              n <- if waits then next b s else run b (Receive d p 16)
              bytes <- text' p n
              collect' (got <> bytes)
    collect' "" >>= (@?= "abcd")

forgotten :: Assertion
forgotten = do
  withWatched $ \_ b d _ p s -> do
    done <- newIORef False
    forget b d (modifyIORef' done not)
    begin b (Receive d p 16) >>= resultOf >>= (@?= Just eBADF)
    until' b (readIORef done)
    readIORef (results s) >>= (@?= [eCANCELED])
    waitAgain (place s) p 16 >>= (@?= False)
  withWatched $ \_ b d peer p s -> do
    say peer "x"
    next b s >>= (@?= 1)
    done <- newIORef False
    forget b d (modifyIORef' done not)
    until' b (readIORef done)
    waitAgain (place s) p 16 >>= (@?= False)
    readIORef (results s) >>= (@?= [])

reused :: Assertion
reused = withWatched $ \_ b d _ p s -> do
  done <- newIORef False
  forget b d (writeIORef done True)
  until' b (readIORef done)
  readIORef (results s) >>= (@?= [eCANCELED])
  -- The same number, under another serial.
  withPair $ \x y _ -> do
    number <- newDescriptor (descriptorNumber x)
    r <- beginPending b (Receive number p 16)
    stand b (tokenOf r) >>= \here -> assertBool "it stands" (null here)
    sendBytes b y [7]
    finish b r >>= (@?= 1)

adopted :: Assertion
adopted = withWatched $ \_ b d peer p s -> do
  onAnother b $ do
    say peer "there"
    next b s >>= (@?= 5)
    waitAgain (place s) p 16 >>= (@?= True)
  adopt b
  say peer "here"
  next b s >>= (@?= 4)
  text' p 4 >>= (@?= "here")
  other <- waitAgain (place s) p 16
  other @?= True
  cancel b (token s)
  next b s >>= (@?= eCANCELED)
  say peer "and on"
  run b (Receive d p 16) >>= (@?= 6)

-- | What the thread before has queued and not handed over is not lost.
adoptedQueued :: Assertion
adoptedQueued = withWatched $ \_ b _ peer p s -> withPair $ \x y _ -> withBytes 16 $ \q -> do
  box <- newEmptyMVar
  onAnother b $ do
    beginPending b (Receive x q 16) >>= putMVar box
  r <- takeMVar box
  adopt b
  sendBytes b y [1, 2]
  finish b r >>= (@?= 2)
  say peer "on"
  next b s >>= (@?= 2)
  text' p 2 >>= (@?= "on")

-- | There is no descriptor left for a ring. What is asked for waits until there is one.
adoptedWithout :: Assertion
adoptedWithout = withWatched $ \_ b _ peer p s -> withPair $ \x y _ -> withBytes 16 $ \q -> do
  adopt b
  r <- withoutDescriptors $ do
    r <- beginPending b (Receive x q 16)
    say peer "early"
    replicateM_ 3 $ poll b forever >>= (@?= 0)
    pure r
  next b s >>= (@?= 5)
  text' p 5 >>= (@?= "early")
  sendBytes b y [1, 2]
  finish b r >>= (@?= 2)

-- | Run an action while the process can open nothing.
withoutDescriptors :: IO a -> IO a
withoutDescriptors act = bracket (getResourceLimit ResourceOpenFiles) (setResourceLimit ResourceOpenFiles) $ \limits -> do
  free <- P.dup P.stdInput
  P.closeFd free
  setResourceLimit ResourceOpenFiles limits {softLimit = ResourceLimit (fromIntegral free)}
  act

onAnother :: Backend () -> IO () -> IO ()
onAnother b act = do
  over <- newEmptyMVar
  _ <- forkOS (try (adopt b >> act) >>= putMVar over)
  takeMVar over >>= either (throwIO @SomeException) pure

-- | With room for 8 completions and 60 watches that all see something at once.
overflows :: Assertion
overflows = withDeferred small $ \_ b -> nested 60 $ \ends -> withBytes 16 $ \p -> do
  standers <- forM ends $ \(d, peer) -> watched b d peer p
  replicateM_ 3 $ do
    for_ ends $ \(_, peer) -> say peer "x"
    for_ standers $ next b >=> (@?= 1)
    for_ standers $ \s -> waitAgain (place s) p 16 >>= (@?= True)
  where
    nested :: Int -> ([(Descriptor, N.Socket)] -> IO ()) -> IO ()
    nested 0 act = act []
    nested n act = withTcp $ \d peer -> nested (n - 1) $ \rest -> act ((d, peer) : rest)

stopped :: Assertion
stopped = withDeferred defaultUringSettings $ \_ b -> withTcp $ \d peer -> withBytes 16 $ \p -> do
  s <- watched b d peer p
  shutdown b
  readIORef (results s) >>= (@?= [eCANCELED])

foreign import ccall unsafe "send" c_send :: CInt -> Ptr a -> Int -> CInt -> IO Int
