-- |
-- Description : Direct threads: suspension inside plain IO
--
-- What 'IO' code may have on its stack when it suspends (handlers, masks, brackets,
-- callbacks, transformers, ten thousand frames), where it cannot suspend and how
-- it is told, and that a continuation goes on once. Random programs and the masks
-- are in "Test.Direct.Programs".
module Test.Direct (tests) where

import Control.Concurrent (forkIO)
import Control.Concurrent qualified as Concurrent
import Control.Exception
import Control.Monad
import Control.Monad.STM (atomically)
import Control.Monad.Trans.Class (lift)
import Control.Monad.Trans.Reader (ReaderT, ask, runReaderT)
import Control.Monad.Trans.State.Strict (StateT, execStateT, get, modify', put)
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Data.List (intercalate, isInfixOf, isPrefixOf, partition)
import Foreign.Ptr (FunPtr, freeHaskellFunPtr)
import GHC.Conc (BlockReason (..), ThreadStatus (..), threadStatus, unsafeIOToSTM)
import System.IO.Temp (withSystemTempDirectory)
import System.IO.Unsafe (unsafePerformIO)
import System.Mem (getAllocationCounter)
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
      testCase "two workers share direct threads" shared,
      testCase "the result of a segment is as lazy as in IO" lazyResult,
      testGroup
        "what may be on the stack"
        [ testCase "a suspended release, handler and finally, in order" finalizers,
          testCase "the exception of an awaited operation, raised at its await" raisedAtAwait,
          testCase "a callback (withFile-shaped)" callback,
          testCase "StateT over IO, and ReaderT" transformers,
          testCase "a pipeline of coroutines" pipeline,
          testCase "10,000 frames" (deep 10_000),
          testCase "1,000,000 frames, over many chunks of stack" (deep 1_000_000)
        ],
      testGroup "a cancellation" (map cancelled cancellations),
      testGroup
        "cancelled at random, every bracket is released once"
        [testCase (describeConfig c) (storm c) | c <- configurations],
      testGroup "where it cannot suspend it says so, at that call" (map cannot unsuspendable),
      testCase "the message says what to do" message,
      testCase "a continuation goes on once" once,
      testGroup
        "an asynchronous exception of GHC is pending for the worker (GHC's test T27651)"
        [ testCase "masked: raised at the await" (pendingAt mask_ "boom at the await"),
          testCase "masked uninterruptibly: the await fails, the exception comes after the mask" (pendingAt uninterruptibleMask_ (show ExceptionPending <> ", boom after the mask")),
          testCase "a continuation captured unmasked inside a mask goes on while another is masked" pendingElsewhere
        ],
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

-- * On the stack

finalizers :: Assertion
finalizers = do
  said <- newIORef []
  let say x = modifyIORef' said (x :)
      release x = say ("release " <> x) >> yield >> say ("released " <> x)
  r <- runningQuietly . direct . try $ do
    bracket (yield >> say "acquired" >> pure 'r') (const (release "outer")) $ \_ -> do
      yield
      (bracket_ yield (release "inner") (await (Weft.yield >> Weft.throwM (Fault 1))) `catch` \(Fault n) -> yield >> say ("caught " <> show n) >> yield >> throwIO (Fault 2))
        `finally` release "middle"
  r @?= (Left (Fault 2) :: Either Fault ())
  readIORef said
    >>= (@?= ["acquired", "release inner", "released inner", "caught 1", "release middle", "released middle", "release outer", "released outer"]) . reverse

raisedAtAwait :: Assertion
raisedAtAwait = do
  (before, got, state) <- runningQuietly . direct $ do
    ref <- newIORef (0 :: Int)
    got <- try @Fault . forM_ [1 .. 5 :: Int] $ \i -> do
      await (if i == 3 then Weft.throwM (Fault 3) else Weft.yield)
      modifyIORef' ref (+ 1)
    before <- readIORef ref
    _ <- try @Fault (await (Weft.throwM (Fault 4)))
    state <- getMaskingState
    pure (before, got, state)
  (before, got, show state) @?= (2, Left (Fault 3), "Unmasked")

-- | A library that opens, calls back, and closes; it knows nothing of threads.
withThing :: IORef [String] -> (Int -> IO a) -> IO a
withThing said = bracket (modifyIORef' said ("open" :) >> pure 7) (\_ -> modifyIORef' said ("close" :))

callback :: Assertion
callback = do
  said <- newIORef []
  (a, b) <- runningQuietly . direct $ do
    a <- withThing said (\x -> yield >> pure (x + 1))
    b <- try @Fault (withThing said (\_ -> yield >> await (Weft.throwM (Fault 1))))
    _ <- withThing said (\_ -> traverse (<$ yield) [1 .. 100 :: Int])
    pure (a, b)
  (a, b) @?= (8, Left (Fault 1) :: Either Fault ())
  readIORef said >>= (@?= concat (replicate 3 ["close", "open"]))

transformers :: Assertion
transformers = do
  n <- runningQuietly . direct $ runReaderT body (10 :: Int)
  n @?= (110, 10)
  where
    body :: ReaderT Int IO (Int, Int)
    body = do
      step <- ask
      s <- lift (execStateT (replicateM_ 10 (add step)) 10)
      turns' <- lift (await (pure 10))
      pure (s, turns')
    add :: Int -> StateT Int IO ()
    add k = do
      lift yield
      s <- get
      lift (mask_ yield)
      put s
      modify' (+ k)

-- | A conduit in miniature: a producer, a transformer and a consumer, each written as
-- sequential code over an effect of its own.
data Pipe i o m r
  = Finished r
  | Perform (m (Pipe i o m r))
  | Emit o (Pipe i o m r)
  | Demand (Maybe i -> Pipe i o m r)

instance (Monad m) => Functor (Pipe i o m) where
  fmap = liftM

instance (Monad m) => Applicative (Pipe i o m) where
  pure = Finished
  (<*>) = ap

instance (Monad m) => Monad (Pipe i o m) where
  p >>= f = case p of
    Finished r -> f r
    Perform m -> Perform (fmap (>>= f) m)
    Emit o rest -> Emit o (rest >>= f)
    Demand k -> Demand (k >=> f)

perform :: (Monad m) => m a -> Pipe i o m a
perform m = Perform (Finished <$> m)

-- | The consumer drives.
fuse :: (Monad m) => Pipe i x m () -> Pipe x o m r -> Pipe i o m r
fuse up down = case down of
  Finished r -> Finished r
  Perform m -> Perform (fuse up <$> m)
  Emit o rest -> Emit o (fuse up rest)
  Demand k -> case up of
    Finished () -> fuse up (k Nothing)
    Perform m -> Perform (fmap (`fuse` down) m)
    Emit x rest -> fuse rest (k (Just x))
    Demand k' -> Demand (\i -> fuse (k' i) down)

runPipe :: (Monad m) => Pipe () () m r -> m r
runPipe = \case
  Finished r -> pure r
  Perform m -> m >>= runPipe
  Emit () rest -> runPipe rest
  Demand k -> runPipe (k Nothing)

pipeline :: Assertion
pipeline = do
  total <- runningQuietly . direct $ do
    (r, w) <- openPipe
    fork_ (forM_ [1 .. 50 :: Int] (\i -> writePipe w (Char8.pack (show i <> "\n")) >> yield) `finally` closePipe w)
    runPipe (bytesOf r `fuse` linesOf Char8.empty `fuse` summing 0) `finally` closePipe r
  total @?= (1275 :: Int)
  where
    bytesOf r = do
      b <- perform (readPipe r 3)
      unless (Char8.null b) (Emit b (bytesOf r))
    linesOf rest = case Char8.elemIndex '\n' rest of
      Just i -> Emit (Char8.take i rest) (linesOf (Char8.drop (i + 1) rest))
      Nothing -> Demand (maybe (pure ()) (linesOf . (rest <>)))
    summing n = Demand $ \case
      Nothing -> pure n
      Just line -> perform (await Weft.yield) >> summing (n + maybe 0 fst (Char8.readInt line))

-- | Suspend, twice, at the bottom of the given number of calls that are not finished.
deep :: Int -> Assertion
deep frames = do
  n <- runningQuietly . direct $ go frames
  n @?= frames
  where
    go :: Int -> IO Int
    go 0 = 0 <$ (yield >> await (pure ()))
    go n = (+ 1) <$> go (n - 1)
    {-# NOINLINE go #-}

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

-- * Where it cannot

foreign import ccall "wrapper" wrapCallback :: IO () -> IO (FunPtr (IO ()))

foreign import ccall safe "dynamic" callBack :: FunPtr (IO ()) -> IO ()

-- | Each runs its argument in a place where a thread cannot suspend, and answers what
-- it raised there.
unsuspendable :: [(String, IO () -> IO (Either SomeException ()))]
unsuspendable =
  [ ("unsafePerformIO", try . evaluate . hidden),
    ( "a value that is evaluated lazily",
      \act -> do
        ref <- newIORef (hidden act)
        value <- readIORef ref
        try (evaluate value)
    ),
    ("atomically", try . atomically . unsafeIOToSTM),
    ("a foreign callback", elsewhere (\act -> bracket (wrapCallback act) freeHaskellFunPtr callBack)),
    ("forkIO", elsewhere (void . forkIO)),
    ("a blocking action", try . blocking),
    ("an effect of the monadic style", await . suspending)
  ]
  where
    hidden act = unsafePerformIO act
    {-# NOINLINE hidden #-}
    -- On another stack: what was raised there comes back through a variable.
    elsewhere :: (IO () -> IO ()) -> IO () -> IO (Either SomeException ())
    elsewhere how act = do
      box <- Concurrent.newEmptyMVar
      how (try act >>= Concurrent.putMVar box)
      Concurrent.takeMVar box
    -- On a worker, but in an effect of the monadic style.
    suspending act = Weft.liftIO (try act)

cannot :: (String, IO () -> IO (Either SomeException ())) -> TestTree
cannot (name, place) = testGroup name [testCase what (check operation) | (what, operation) <- ways]
  where
    ways = [("yield", yield), ("await", await (Weft.liftIO (pure ()))), ("masked", mask_ yield), ("masked uninterruptibly", uninterruptibleMask_ (await Weft.yield))]
    check operation = do
      -- The thread goes on afterwards, suspends again, and the order of things shows
      -- that the failure came out of that very call.
      said <- newIORef []
      let say x = modifyIORef' said (x :)
      r <- runningQuietly . direct $ do
        yield
        r <- place (say "before" >> operation >> say "after")
        say "handled"
        yield
        state <- getMaskingState
        state @?= Unmasked
        pure r
      either (\e -> fromException e @?= Just NothingToSuspend) (\_ -> assertFailure "it suspended") r
      readIORef said >>= (@?= ["before", "handled"]) . reverse

message :: Assertion
message = do
  r <- try yield
  case r of
    Left e -> forM_ ["direct", "unsafePerformIO", "atomically", "callback", "forkIO"] $ \word ->
      assertBool word (word `isInfixOf` displayException (e :: CannotSuspend))
    Right () -> assertFailure "it suspended"

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

-- * Pending exceptions

data Boom = Boom
  deriving stock (Show)

instance Exception Boom

-- | Have another GHC thread throw at the worker, which is masked, and wait until it
-- is waiting to be heard.
provoke :: IO ()
provoke = do
  worker <- Concurrent.myThreadId
  thrower <- forkIO (Concurrent.throwTo worker Boom)
  let wait =
        threadStatus thrower >>= \case
          ThreadBlocked BlockedOnException -> pure ()
          _ -> Concurrent.yield >> wait
  -- The other capability has sent its message; this one's scheduler is to read it.
  wait >> Concurrent.yield

pendingAt :: (forall a. IO a -> IO a) -> String -> Assertion
pendingAt masking allowed = replicateM_ 50 $ do
  said <- newIORef []
  let say x = modifyIORef' said (x :)
  n <- runningQuietly . direct $ do
    handle (\Boom -> say "boom after the mask") . masking $ do
      provoke
      handle (\Boom -> say "boom at the await") $
        handle (\e -> say (show (e :: CannotSuspend))) $
          await Weft.yield
    -- The worker is none the worse.
    replicateM_ 3 yield
    pure (3 :: Int)
  n @?= 3
  readIORef said >>= (@?= allowed) . intercalate ", " . reverse

pendingElsewhere :: Assertion
pendingElsewhere = replicateM_ 50 $ do
  said <- newIORef []
  let say x = modifyIORef' said (x :)
  runningQuietly . direct $ do
    -- Suspended unmasked, inside a mask: to go on unmasks.
    fork_ $ mask $ \restore -> do
      restore (await (replicateM_ 2 Weft.yield))
      say "first: went on"
    yield
    handle (\Boom -> say "second: boom") . uninterruptibleMask_ $ do
      provoke
      say "second: masked"
    replicateM_ 5 yield
  -- The first may go on while the second has lost its worker, on a machine that is busy.
  (first, second) <- partition (isPrefixOf "first") . reverse <$> readIORef said
  (first, second) @?= (["first: went on"], ["second: masked", "second: boom"])

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
