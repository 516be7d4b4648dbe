-- |
-- Description : Direct threads: suspension inside plain IO
--
-- Results, exceptions and turns between direct and monadic code, cancellation, and that
-- a continuation goes on once. The stack of a suspended thread is in "Test.Direct.Stack",
-- places without one in "Test.Direct.Unsuspendable", random programs and the masks in
-- "Test.Direct.Programs".
module Test.Direct (tests) where

import Control.Exception
import Control.Monad
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import System.IO.Temp (withSystemTempDirectory)
import System.Mem (getAllocationCounter)
import Test.Direct.Stack (onTheStack)
import Test.Direct.Unsuspendable (message, pending, unsuspendable)
import Test.Program (Fault (..))
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft (BackendChoice (Epoll), Settings (..), Thread)
import Weft qualified
import Weft.File (OpenMode (..))
import Weft.IO hiding (atomically)
import Weft.Internal.Core.Trace (Trace (Fork))
import Weft.Internal.Core.Trace qualified as Trace
import Weft.Socket (Family (..), ShutdownHow (..), SocketType (..))
import Weft.Time qualified as Time

tests :: TestTree
tests =
  testGroup
    "Direct"
    [ testCase "results pass in both directions, nested too" results,
      testCase "exceptions pass in both directions" exceptions,
      testCase "threads take turns, direct and monadic alike" turns,
      testCase "operations: identity, label, sleep, pipe, blocking, exit" operations,
      testGroup "sockets and files" [testCase (describeConfig c) (socketsAndFiles c) | c <- configurations],
      testGroup "receives in a loop" [testCase (describeConfig c) (receivedInLoop c) | c <- configurations],
      testCase "two workers share direct threads" shared,
      testCase "the result of a segment is as lazy as in IO" lazyResult,
      onTheStack,
      testGroup "a cancellation" (map cancelled cancellations),
      testGroup
        "cancelled at random, every bracket is released once"
        [testCase (describeConfig c) (storm c) | c <- configurations],
      unsuspendable,
      testCase "the message says what to do" message,
      testCase "a continuation goes on once" once,
      pending,
      testCase "bytes allocated by a yield" yieldAllocation
    ]

-- * Passing through

results :: Assertion
results = do
  x <- runningQuietly . direct $ do
    a <- await (pure 1)
    b <- await (Weft.yield >> pure 2)
    c <- await (direct (yield >> await (direct (yield >> pure 3))))
    d <- join <$> traverse await (Just (pure (Just 4)))
    pure (a, b, c, d)
  x @?= (1 :: Int, 2 :: Int, 3 :: Int, Just (4 :: Int))

exceptions :: Assertion
exceptions = do
  outcome <- runningQuietly . Weft.try $ direct (yield >> throwIO (Fault 1))
  outcome @?= (Left (Fault 1) :: Either Fault ())
  inside <- runningQuietly . direct $ try (await (Weft.yield >> Weft.throwM (Fault 2)))
  inside @?= (Left (Fault 2) :: Either Fault ())
  -- Through both, and out of pure code that the scheduler forces.
  through <- runningQuietly . direct $ try (await (Weft.yield >> direct (yield >> await (throw (Fault 3)))))
  through @?= (Left (Fault 3) :: Either Fault ())
  -- The monadic handler around a direct part goes on in the right place.
  n <- runningQuietly $ do
    a <- direct (yield >> throwIO (Fault 4)) `Weft.catch` \(Fault k) -> pure k
    b <- direct (yield >> pure 1)
    pure (a + b)
  n @?= 5

turns :: Assertion
turns = do
  said <- newIORef []
  let say x = modifyIORef' said (x :)
  runningQuietly $ do
    Weft.fork_ . direct $ forM_ [1 .. 3 :: Int] (\i -> say ('a', i) >> yield)
    Weft.fork_ $ forM_ [1 .. 3 :: Int] (\i -> Weft.liftIO (say ('b', i)) >> Weft.yield)
    Weft.fork_ . direct $ forM_ [1 .. 3 :: Int] (\i -> say ('c', i) >> mask_ yield)
    replicateM_ 5 Weft.yield
  readIORef said >>= (@?= [(c, i) | i <- [1 .. 3], c <- "abc"]) . reverse

operations :: Assertion
operations = forM_ configurations $ \c -> running c . direct $ do
  me <- myThreadId
  again <- await Weft.myThreadId
  again @?= me
  label mempty
  setPriority 3
  myPriority >>= (@?= 3)
  sleep (Weft.milliseconds 1)
  sleep (Weft.seconds 0)
  blocking (pure 'x') >>= (@?= 'x')
  (r, w) <- openPipe
  child <- fork ((writePipe w (Char8.pack "hello") `finally` closePipe w) >> exit)
  assertBool "another thread" (child /= me)
  let collect = readPipe r 2 >>= \b -> if Char8.null b then pure [] else (b :) <$> collect
  received <- collect `finally` closePipe r
  Char8.concat received @?= Char8.pack "hello"
  failed <- try (readPipe r 1)
  assertBool "closed" (either (\(_ :: IOException) -> True) (const False) failed)

socketsAndFiles :: Config -> Assertion
socketsAndFiles c = withSystemTempDirectory "direct" $ \directory -> do
  let path = Char8.pack (directory <> "/file")
  echoed <- runWith (settingsFor c) $ do
    listener <- listenTcp (Just "127.0.0.1") "0" 16
    address <- localAddress listener
    fork_ $ bracket (fst <$> accept listener) closeSocket $ \peer ->
      let echo = receive peer 100 >>= \b -> unless (Char8.null b) (sendAll peer b >> echo) in echo
    withSocket (openSocket AF_INET Stream) $ \s -> do
      connect s address
      withFile path WriteOnly $ \file -> writeAt file 0 (Char8.pack "to be echoed")
      bytes <- readWhole 100 path
      sendAll s bytes
      shutdown s ShutdownSend
      let rest got = receive s 100 >>= \b -> if Char8.null b then pure got else rest (got <> b)
      rest Char8.empty `finally` closeSocket listener
  echoed @?= Char8.pack "to be echoed"

-- | The function of 'receiveEach' suspends, has the masking state of the loop, and may end the loop by an exception.
receivedInLoop :: Config -> Assertion
receivedInLoop c = runWith (settingsFor c) $ do
  (a, b) <- await socketPair
  wait <- await . spawn . direct . mask_ . try . receiveEach b 10 $ \bytes -> do
    yield
    state <- getMaskingState
    sendAll b (Char8.pack (show state))
    if bytes == Char8.pack "stop" then throwIO (Fault 4) else pure Nothing
  forM_ ["1", "2", "3", "stop"] $ \bytes -> do
    sendAll a (Char8.pack bytes)
    receive a 100 >>= (@?= Char8.pack (show MaskedInterruptible))
  await wait >>= (@?= (Left (Fault 4) :: Either Fault ()))
  sendAll a (Char8.pack "more")
  receive b 10 >>= (@?= Char8.pack "more")
  mapM_ closeSocket [a, b]

-- | A continuation goes on on another OS thread than it was captured on.
shared :: Assertion
shared = do
  total <- newIORef (0 :: Int)
  runWith (settingsFor (Config Epoll 2)) $ do
    left <- newIORef (200 :: Int)
    forM_ [1 .. 200] $ \i -> forkWith Weft.defaultForkOptions {Weft.forkWorker = Just i} $ do
      forM_ [1 .. 50 :: Int] $ \n -> do
        state <- if even n then mask_ (yield >> await Weft.yield >> getMaskingState) else yield >> getMaskingState
        state @?= (if even n then MaskedInterruptible else Unmasked)
        when (n == 25) (blocking (pure ()))
        atomicModifyIORef' total (\t -> (t + 1, ()))
      atomicModifyIORef' left (\l -> (l - 1, ()))
    let wait = readIORef left >>= \l -> unless (l == 0) (sleep (Weft.milliseconds 1) >> wait)
    wait
  readIORef total >>= (@?= 10_000)

lazyResult :: Assertion
lazyResult = do
  n <- runningQuietly $ do
    x <- direct (yield >> pure (throw (Fault 1) :: Int))
    y <- direct (await (pure (throw (Fault 2) :: Int)))
    pure (length [x, y])
  n @?= 2

-- * Cancelled

-- | A body that says when it has begun; what is said of the cancellation that comes
-- then. The thread has a bracket around it, whose release suspends.
cancellations :: [(String, (String -> IO ()) -> IO () -> IO (), [String])]
cancellations =
  [ ("of a loop of yields", \_ begun -> begun >> forever yield, released),
    ("of a sleep", \_ begun -> begun >> forever (sleep (Weft.seconds 1000)), released),
    ("of a loop of restored yields in a mask", \_ begun -> mask (\restore -> begun >> restore (forever yield)), released),
    ("of a masked sleep, which is interruptible", \_ begun -> mask_ (begun >> sleep (Weft.seconds 1000)), released),
    ( "waits for the end of a mask",
      \say begun -> mask_ (begun >> replicateM_ 1000 yield >> say "masked") >> forever yield,
      "masked" : released
    ),
    ( "waits for the end of a firm mask",
      \say begun -> uninterruptibleMask_ (begun >> replicateM_ 1000 yield >> sleep (Weft.milliseconds 1) >> say "masked") >> forever (sleep (Weft.seconds 1000)),
      "masked" : released
    ),
    ( "goes to a handler, which suspends",
      \say begun -> (begun >> forever yield) `catch` \e -> yield >> say ("caught " <> show (e :: Weft.Cancelled)) >> throwIO e,
      ("caught " <> show Weft.Cancelled) : released
    ),
    ( "of a monadic part inside",
      \_ begun -> await (Weft.liftIO begun >> forever Weft.yield),
      released
    ),
    ( "of a part under a monadic mask, unmasked by GHC's means",
      \_ begun -> await (Weft.mask (\_ -> direct (begun >> interruptible (forever yield)))),
      released
    )
  ]
  where
    released = ["release", "released"]

cancelled :: (String, (String -> IO ()) -> IO () -> IO (), [String]) -> TestTree
cancelled (name, body, allowed) = testCase name $ do
  said <- newIORef []
  let say x = modifyIORef' said (x :)
  running (Config Epoll 1) . direct $ do
    begun <- newIORef False
    ended <- newIORef False
    child <-
      mask_ . fork . flip finally (writeIORef ended True) . bracket_ yield (say "release" >> yield >> say "released") $
        interruptible (body say (writeIORef begun True))
    let wait ref = readIORef ref >>= \done -> unless done (yield >> wait ref)
    wait begun
    cancel child
    wait ended
  readIORef said >>= (@?= allowed) . reverse

-- | Threads that hold brackets, each at another point when its cancellation comes. What
-- was acquired is released, once, and every thread ends.
storm :: Config -> Assertion
storm c = do
  acquired <- newIORef (0 :: Int)
  releases <- newIORef (0 :: Int)
  ended <- newIORef (0 :: Int)
  let bump ref = atomicModifyIORef' ref (\n -> (n + 1, ()))
      holding inner = bracket (yield >> bump acquired) (\_ -> yield >> bump releases >> sleep (Weft.seconds 0)) (const inner)
      -- The number decides what a thread does.
      body :: Int -> IO ()
      body i = case i `mod` 5 of
        0 -> replicateM_ i yield
        1 -> holding (body (i `div` 5))
        2 -> mask_ (yield >> sleep (Time.microseconds 50) >> body (i `div` 5))
        3 -> uninterruptibleMask (\restore -> yield >> restore (body (i `div` 5)))
        _ -> holding (sleep (Time.microseconds i) >> await (direct (body (i `div` 5)))) `onException` yield
  running c . direct $ do
    children <- forM [1 .. threads] $ \i ->
      mask_ (forkWith Weft.defaultForkOptions {Weft.forkWorker = Just i} (interruptible (holding (body i)) `finally` bump ended))
    forM_ (zip [1 :: Int ..] children) $ \(i, child) -> cancel child >> when (i `mod` 7 == 0) yield
    let wait = readIORef ended >>= \n -> unless (n == threads) (sleep (Weft.milliseconds 1) >> wait)
    wait
  a <- readIORef acquired
  r <- readIORef releases
  r @?= a
  assertBool "nothing was held" (a > 0)
  where
    threads = 2000

-- | A thread that goes on twice, once in a child.
twice :: Thread Int
twice = Trace.Thread (\k -> Fork Nothing (\_ -> k 2) (\_ -> k 1))

once :: Assertion
once = do
  uncaught <- newIORef []
  seen <- newIORef []
  runWith (settingsFor (Config Epoll 1)) {settingUncaught = \_ _ e -> modifyIORef' uncaught (e :)} $ do
    n <- await twice `finally` modifyIORef' seen (0 :)
    modifyIORef' seen (n :)
    replicateM_ 3 yield
  readIORef seen >>= (@?= [1, 0])
  readIORef uncaught >>= (@?= [Just ResumedTwice]) . map fromException

-- * Costs

-- | 352 with GHC 9.6.6, 384 with 9.10.3; 80 of them are the continuation.
yieldAllocation :: Assertion
yieldAllocation = do
  bytes <- runningQuietly . direct $ do
    loop rounds
    before <- getAllocationCounter
    loop rounds
    left <- getAllocationCounter
    pure ((before - left) `div` fromIntegral rounds)
  assertBool (show bytes <> " bytes per yield") (bytes <= 384)
  where
    rounds = 10_000 :: Int
    loop 0 = pure ()
    loop n = yield >> loop (n - 1)
