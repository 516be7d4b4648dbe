-- |
-- Description : The concurrency libraries
module ConcLibTest (tests) where

import Control.Concurrent qualified as GHC
import Control.Exception hiding (throwTo)
import Control.Monad
import Data.ByteString qualified as ByteString
import Data.IORef
import Scheduler (example)
import System.Posix.IO.ByteString (closeFd, createPipe, fdRead, fdWrite)
import System.Timeout (timeout)
import Test.Tasty
import Test.Tasty.HUnit
import Weft.ConcLib.MP
import Weft.ConcLib.MP.STM
import Weft.ConcLib.OS qualified as OS

tests :: TestTree
tests =
  testGroup
    "concurrency libraries"
    [ testCase "a scheduler in sixty lines" sixtyLines,
      testGroup "ConcLib_MP" [testGroup (show n <> " HECs") (onHECs (withConcLib n)) | n <- [1, 2 :: Int]],
      testGroup
        "ConcLib_OS"
        [ testCase "ping-pong" (OS.withConcLib osPingPong),
          testCase "many takers, one of them killed" (OS.withConcLib osKilled)
        ]
    ]

sixtyLines :: Assertion
sixtyLines = do
  said <- newIORef []
  example (\x -> modifyIORef' said (x :))
  r <- readIORef said
  shown <- readFile "examples/scheduler.txt" `catch` \(_ :: IOException) -> readFile "weft-substrate/examples/scheduler.txt"
  reverse r @?= lines shown

-- | Within ten seconds, or it fails.
limited :: IO () -> Assertion
limited act = do
  end <- GHC.newEmptyMVar
  _ <- GHC.forkOS (try act >>= GHC.putMVar end)
  timeout 20_000_000 (GHC.takeMVar end) >>= \case
    Just r -> either (throwIO :: SomeException -> IO ()) pure r
    Nothing -> assertFailure "it does not end"

onHECs :: (forall a. IO a -> IO a) -> [TestTree]
onHECs with =
  [ testCase name (limited (with act))
    | (name, act) <-
        [ ("2,000 threads, forked and joined", joined),
          ("ping-pong", pingPong),
          ("an MVar is fair", fair),
          ("readers see, one takes", reading),
          ("withMVar puts back", puttingBack),
          ("a killed thread releases once", releases),
          ("a killed taker takes nothing", takesNothing),
          ("masked, it is not interrupted before it waits", masked),
          ("throwTo oneself", oneself),
          ("delays end in their order", delays),
          ("tokens through a pipe", pipes),
          ("what blocks outside blocks nobody", blocking),
          ("what waits outside is interrupted", interruptedOutside),
          ("a channel keeps the order", channel),
          ("retry waits for what was read", retries),
          ("orElse undoes the first, and waits for both", orElses),
          ("transfers between accounts", transfers)
        ]
  ]
    <> [testCase "the end of the main thread is the end" (limited (ends with))]

joined :: Assertion
joined = do
  count <- newMVar (0 :: Int)
  done <- newEmptyMVar
  replicateM_ 2_000 (forkIO (modifyMVar_ count (pure . (+ 1)) >> putMVar done ()))
  replicateM_ 2_000 (takeMVar done)
  readMVar count >>= (@?= 2_000)

pingPong :: Assertion
pingPong = do
  a <- newEmptyMVar
  b <- newEmptyMVar
  _ <- forkIO (forM_ [1 .. 1000 :: Int] (\i -> takeMVar a >>= \x -> putMVar b (x + i)))
  forM_ [1 .. 1000] (\i -> putMVar a i >> takeMVar b >>= (@?= 2 * i))

fair :: Assertion
fair = do
  m <- newEmptyMVar
  out <- newChan
  forM_ [1 .. 3 :: Int] $ \i -> do
    started <- newEmptyMVar
    _ <- forkIO (putMVar started () >> takeMVar m >>= \x -> writeChan out (i, x :: Char))
    takeMVar started
    -- It waits soon after: a value that was put before that would be taken by the first.
    waiting m
  mapM_ (\c -> putMVar m c >> readChan out >>= \(_, x) -> x @?= c) "xyz"
  where
    waiting _ = replicateM_ 5 yield

reading :: Assertion
reading = do
  m <- newEmptyMVar
  out <- newChan
  forM_ [1 .. 3 :: Int] $ \_ -> forkIO (readMVar m >>= writeChan out)
  _ <- forkIO (takeMVar m >>= writeChan out)
  replicateM_ 20 yield
  putMVar m 'x'
  replicateM 3 (readChan out) >>= (@?= "xxx")
  putMVar m 'x'
  _ <- readChan out
  tryReadMVar m >>= \r -> assertBool "taken or there" (r `elem` [Nothing, Just 'x'])

puttingBack :: Assertion
puttingBack = do
  m <- newMVar 'x'
  r <- try (withMVar m (\_ -> throwIO (ErrorCall "inside")))
  either (\(ErrorCall e) -> e @?= "inside") (\() -> assertFailure "no exception") r
  tryTakeMVar m >>= (@?= Just 'x')
  tryPutMVar m 'y' >>= (@?= True)
  tryPutMVar m 'z' >>= (@?= False)
  swapMVar m 'z' >>= (@?= 'y')
  isEmptyMVar m >>= (@?= False)

releases :: Assertion
releases = do
  released <- newMVar (0 :: Int)
  never <- newEmptyMVar
  done <- newEmptyMVar
  ts <- replicateM 300 $ do
    ready <- newEmptyMVar
    t <- forkIO (bracket_ (putMVar ready ()) (modifyMVar_ released (pure . (+ 1)) >> putMVar done ()) (takeMVar never))
    takeMVar ready
    pure t
  mapM_ killThread ts
  replicateM_ 300 (takeMVar done)
  readMVar released >>= (@?= 300)

takesNothing :: Assertion
takesNothing = do
  m <- newEmptyMVar
  gone <- newEmptyMVar
  t <- forkIO (void (takeMVar m) `finally` putMVar gone ())
  replicateM_ 5 yield
  killThread t
  takeMVar gone
  putMVar m 'x'
  tryTakeMVar m >>= (@?= Just 'x')

masked :: Assertion
masked = do
  go <- newEmptyMVar
  out <- newChan
  never <- newEmptyMVar
  ready <- newEmptyMVar
  t <- forkIO . mask_ $ do
    putMVar ready ()
    takeMVar go
    replicateM_ 5 yield
    writeChan out "masked"
    uninterruptibleMask_ (outside GHC.yield)
    writeChan out "still"
    takeMVar never `catch` \e -> writeChan out (show (e :: AsyncException))
  takeMVar ready
  putMVar go ()
  killThread t
  replicateM 3 (readChan out) >>= (@?= ["masked", "still", "thread killed"])

oneself :: Assertion
oneself = do
  me <- myThreadId
  r <- try (throwTo me (ErrorCall "me"))
  either (\(ErrorCall e) -> e @?= "me") (\() -> assertFailure "no exception") r

delays :: Assertion
delays = do
  out <- newChan
  forM_ [30, 10, 20 :: Int] $ \i -> forkIO (threadDelay (i * 1000) >> writeChan out i)
  t <- forkIO (threadDelay 10_000_000)
  killThread t
  r <- replicateM 3 (readChan out)
  -- Under load two may end together, but each has ended.
  assertBool (show r) (all (`elem` r) [10, 20, 30])

pipes :: Assertion
pipes = do
  (r1, w1) <- createPipe
  (r2, w2) <- createPipe
  done <- newEmptyMVar
  _ <- forkIO $ do
    replicateM_ 50 (threadWaitRead r1 >> fdRead r1 1 >>= \b -> threadWaitWrite w2 >> fdWrite w2 b)
    putMVar done ()
  replicateM_ 50 (threadWaitWrite w1 >> fdWrite w1 token >> threadWaitRead r2 >> fdRead r2 1 >>= (@?= token))
  takeMVar done
  mapM_ closeFd [r1, w1, r2, w2]
  where
    token = ByteString.singleton 120

blocking :: Assertion
blocking = do
  gate <- GHC.newEmptyMVar
  done <- newEmptyMVar
  _ <- forkIO (outside (GHC.takeMVar gate) >>= putMVar done)
  _ <- forkIO (replicateM_ 5 yield >> GHC.putMVar gate 'x')
  takeMVar done >>= (@?= 'x')
  r <- try (outside (throwIO (ErrorCall "there")))
  either (\(ErrorCall e) -> e @?= "there") (\() -> assertFailure "no exception") r

interruptedOutside :: Assertion
interruptedOutside = do
  never <- GHC.newEmptyMVar
  ready <- newEmptyMVar
  out <- newEmptyMVar
  t <- forkIO ((putMVar ready () >> outside (GHC.readMVar never)) `catch` \e -> putMVar out (show (e :: AsyncException)))
  takeMVar ready
  killThread t
  takeMVar out >>= (@?= "thread killed")
  GHC.putMVar never ()

channel :: Assertion
channel = do
  c <- newChan
  d <- dupChan c
  _ <- forkIO (writeList2Chan c [1 .. 100 :: Int])
  replicateM 100 (readChan c) >>= (@?= [1 .. 100])
  replicateM 100 (readChan d) >>= (@?= [1 .. 100])

retries :: Assertion
retries = do
  v <- newTVarIO (0 :: Int)
  done <- newEmptyMVar
  _ <- forkIO (atomically (readTVar v >>= \x -> check (x >= 3) >> writeTVar v 100) >> putMVar done ())
  forM_ [1 .. 3] (\i -> atomically (writeTVar v i) >> yield)
  takeMVar done
  readTVarIO v >>= (@?= 100)

orElses :: Assertion
orElses = do
  a <- newTVarIO 0
  b <- newTVarIO (0 :: Int)
  log' <- newTVarIO (0 :: Int)
  let positive v = readTVar v >>= \x -> check (x > 0) >> pure x
      either' = (modifyTVar' log' (+ 1) >> positive a) `orElse` positive b
  done <- newEmptyMVar
  forM_ [a, b] $ \v -> do
    _ <- forkIO (atomically either' >>= putMVar done)
    replicateM_ 5 yield
    atomically (writeTVar v 7)
    takeMVar done >>= (@?= 7)
    atomically (writeTVar v 0)
  -- Of the first alternative, once.
  readTVarIO log' >>= (@?= 1)
  r <- try (atomically (catchSTM (writeTVar a 5 >> throwSTM (ErrorCall "x")) (\(ErrorCall _) -> readTVar a >>= throwSTM . ErrorCall . show)))
  either (\(ErrorCall e) -> e @?= "0") (\() -> assertFailure "no exception") r

transfers :: Assertion
transfers = do
  vs <- replicateM 4 (newTVarIO (100 :: Int))
  done <- newEmptyMVar
  forM_ [0 .. 3] $ \i -> forkIO $ do
    forM_ [1 .. 200] $ \k -> do
      let from = vs !! i
          to = vs !! ((i + k) `mod` 4)
      atomically $ do
        x <- readTVar from
        check (x > 0) `orElse` pure ()
        when (x > 0) (writeTVar from (x - 1) >> modifyTVar' to (+ 1))
      yield
    putMVar done ()
  replicateM_ 4 (takeMVar done)
  total <- atomically (sum <$> mapM readTVar vs)
  total @?= 400

ends :: (forall a. IO a -> IO a) -> Assertion
ends with = do
  r <- try (with (forkIO (forever yield) >> throwIO (ErrorCall "main")))
  either (\(ErrorCall e) -> e @?= "main") (\() -> assertFailure "no exception") r
  with (forkIO (threadDelay 10_000_000) >> pure 'x') >>= (@?= 'x')

osPingPong :: Assertion
osPingPong = do
  a <- OS.newEmptyMVar
  b <- OS.newEmptyMVar
  _ <- OS.forkIO (forM_ [1 .. 300 :: Int] (\i -> OS.takeMVar a >>= \x -> OS.putMVar b (x + i)))
  forM_ [1 .. 300] (\i -> OS.putMVar a i >> OS.takeMVar b >>= (@?= 2 * i))

osKilled :: Assertion
osKilled = do
  m <- OS.newEmptyMVar
  out <- OS.newEmptyMVar
  ts <- replicateM 3 (OS.forkIO ((OS.takeMVar m >>= OS.putMVar out) `catch` \e -> OS.putMVar out (if e == ThreadKilled then 'k' else '?')))
  OS.killThread (head' ts)
  OS.takeMVar out >>= (@?= 'k')
  forM_ "ab" (\c -> OS.putMVar m c >> OS.takeMVar out >>= (@?= c))
  where
    head' = \case
      t : _ -> t
      [] -> error "no threads"
