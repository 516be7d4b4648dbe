{-# LANGUAGE RecordWildCards #-}

-- |
-- Description : The concurrency libraries
module ConcLibTest (tests) where

import Control.Concurrent qualified as GHC
import Control.Exception hiding (throwTo)
import Control.Monad
import Data.ByteString qualified as ByteString
import Data.IORef
import Data.List (sort)
import GHC.Clock (getMonotonicTimeNSec)
import Library
import System.Mem (performMajorGC)
import System.Mem.Weak (deRefWeak)
import System.Posix.IO.ByteString (closeFd, createPipe, fdRead, fdWrite)
import Test.Tasty
import Test.Tasty.HUnit
import Weft.ConcLib.Internal.MVar (waitersForMVar)
import Weft.ConcLib.Internal.Semaphore (waitersForQSemN)
import Weft.ConcLib.MP hiding (forkFinally, forkIO, forkIOWithUnmask, killThread, myThreadId, outside, throwTo, yield)
import Weft.ConcLib.MP qualified as MP
import Weft.ConcLib.OS qualified as OS
import Weft.ConcLib.STM

tests :: TestTree
tests =
  testGroup
    "concurrency libraries"
    [ testGroup "each" (onLibraries every),
      testGroup "the end of the main thread is the end" [testCase (show n <> " HECs, " <> show c) (limited (ends c n)) | c <- [ByScheduler, ByOwnHEC], n <- [1, 2]],
      testCase "threads of two libraries share a variable" (limited shared),
      testCase "a hundred thousand that wait for one variable go on" (limited (withConcLib 1 crowd)),
      testCase "a thread keeps no value that it has taken" (limited forgotten)
    ]

every :: Library t -> [TestTree]
every library =
  [ testCase name (limited (with library (test library)))
    | (name, test) <-
        [ ("many threads, forked and joined", joined),
          ("ping-pong", pingPong),
          ("an MVar is fair", fair),
          ("readers see, one takes", reading),
          ("withMVar puts back", puttingBack),
          ("a killed thread releases once", releases),
          ("a killed taker takes nothing", takesNothing),
          ("masked, it is not interrupted before it waits", masked),
          ("throwTo oneself", oneself),
          ("delays end, and not before their time", delays),
          ("tokens through a pipe", pipes),
          ("what blocks outside blocks nobody", blocking),
          ("what waits outside is interrupted", interruptedOutside),
          ("what waits outside is interrupted once", interruptedOnce),
          ("a channel keeps the order", channel),
          ("semaphores are taken in turn, and by none that was killed", semaphores),
          ("retry waits for what was read", retries),
          ("orElse undoes the first, and waits for both", orElses),
          ("a handler that retries waits for what the failed part has read", handlerRetries),
          ("transfers between accounts", transfers)
        ]
          <> [("the longest delay does not end at once", longest) | isStack library]
  ]

semaphores :: Library t -> Assertion
semaphores Library {..} = do
  s <- newQSemN 0
  got <- newChan
  ended <- newIORef False
  let taker k name n = forkFinally (waitQSemN s n) ((writeIORef ended True >>) . writeChan got . either (\(_ :: SomeException) -> name <> " killed") (const name)) <* untilTrue yield ((== k) <$> waitersForQSemN s)
  first <- taker 1 "first" 5
  _ <- taker 2 "second" 2
  _ <- taker 3 "third" 1
  signalQSemN s 3
  replicateM_ 3 yield
  -- The first waits for more, and the others for the first.
  readIORef ended >>= (@?= False)
  throwTo first ThreadKilled
  told <- replicateM 3 (readChan got)
  sort told @?= ["first killed", "second", "third"]
  one <- newQSem 1
  waitQSem one
  end <- newEmptyMVar
  _ <- forkIO (waitQSem one >> putMVar end 'x')
  signalQSem one
  takeMVar end >>= (@?= 'x')

joined :: Library t -> Assertion
joined Library {..} = do
  count <- newMVar (0 :: Int)
  done <- newEmptyMVar
  replicateM_ n (forkIO (modifyMVar_ count (pure . (+ 1)) >> putMVar done ()))
  replicateM_ n (takeMVar done)
  readMVar count >>= (@?= n)
  where
    n = if isStack then 2_000 else 200

pingPong :: Library t -> Assertion
pingPong Library {..} = do
  a <- newEmptyMVar
  b <- newEmptyMVar
  _ <- forkIO (forM_ [1 .. 1000 :: Int] (\i -> takeMVar a >>= \x -> putMVar b (x + i)))
  forM_ [1 .. 1000] (\i -> putMVar a i >> takeMVar b >>= (@?= 2 * i))

fair :: Library t -> Assertion
fair Library {..} = do
  m <- newEmptyMVar
  out <- newChan
  forM_ [1 .. 3 :: Int] $ \i -> do
    _ <- forkIO (takeMVar m >>= \x -> writeChan out (i, x :: Char))
    untilTrue yield ((== i) <$> waitersForMVar m)
  -- Each takes in its turn.
  forM_ (zip [1 ..] "xyz") $ \(i, c) -> putMVar m c >> readChan out >>= (@?= (i, c))

-- | Yield until this is true.
untilTrue :: IO () -> IO Bool -> IO ()
untilTrue yielding condition = condition >>= \met -> unless met (yielding >> untilTrue yielding condition)

reading :: Library t -> Assertion
reading Library {..} = do
  m <- newEmptyMVar
  out <- newChan
  forM_ [1 .. 3 :: Int] $ \_ -> forkIO (readMVar m >>= writeChan out)
  replicateM_ 5 yield
  putMVar m 'x'
  replicateM 3 (readChan out) >>= (@?= "xxx")
  _ <- forkIO (takeMVar m >>= writeChan out)
  readChan out >>= (@?= 'x')
  tryReadMVar m >>= (@?= Nothing)

puttingBack :: Library t -> Assertion
puttingBack _ = do
  m <- newMVar 'x'
  r <- try (withMVar m (\_ -> throwIO (ErrorCall "inside")))
  either (\(ErrorCall e) -> e @?= "inside") (\() -> assertFailure "no exception") r
  tryTakeMVar m >>= (@?= Just 'x')
  tryPutMVar m 'y' >>= (@?= True)
  tryPutMVar m 'z' >>= (@?= False)
  swapMVar m 'z' >>= (@?= 'y')
  isEmptyMVar m >>= (@?= False)

releases :: Library t -> Assertion
releases Library {..} = do
  released <- newMVar (0 :: Int)
  never <- newEmptyMVar
  done <- newEmptyMVar
  ts <- replicateM 300 $ do
    ready <- newEmptyMVar
    t <- forkIO (bracket_ (putMVar ready ()) (modifyMVar_ released (pure . (+ 1)) >> putMVar done ()) (takeMVar never))
    takeMVar ready
    pure t
  mapM_ (`throwTo` ThreadKilled) ts
  replicateM_ 300 (takeMVar done)
  readMVar released >>= (@?= 300)

takesNothing :: Library t -> Assertion
takesNothing Library {..} = do
  m <- newEmptyMVar
  gone <- newEmptyMVar
  ready <- newEmptyMVar
  t <- forkIO ((putMVar ready () >> void (takeMVar m)) `finally` putMVar gone ())
  takeMVar ready
  throwTo t ThreadKilled
  takeMVar gone
  putMVar m 'x'
  tryTakeMVar m >>= (@?= Just 'x')

masked :: Library t -> Assertion
masked Library {..} = do
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
  throwTo t ThreadKilled
  replicateM 3 (readChan out) >>= (@?= ["masked", "still", "thread killed"])

oneself :: Library t -> Assertion
oneself Library {..} = do
  me <- myThreadId
  r <- try (throwTo me (ErrorCall "me"))
  either (\(ErrorCall e) -> e @?= "me") (\() -> assertFailure "no exception") r

delays :: Library t -> Assertion
delays Library {..} = do
  out <- newChan
  start <- getMonotonicTimeNSec
  forM_ [30, 10, 20] $ \i -> forkIO (threadDelay (fromIntegral i * 1000) >> getMonotonicTimeNSec >>= \end -> writeChan out (i, end - start >= i * 1_000_000))
  t <- forkIO (threadDelay 10_000_000)
  throwTo t ThreadKilled
  -- Under load two may end together.
  replicateM 3 (readChan out) >>= (@?= [(i, True) | i <- [10, 20, 30]]) . sort

longest :: Library t -> Assertion
longest Library {..} = do
  ready <- newEmptyMVar
  out <- newEmptyMVar
  t <- forkIO ((putMVar ready () >> threadDelay maxBound >> putMVar out "ended") `catch` \e -> putMVar out (show (e :: AsyncException)))
  takeMVar ready
  -- A shorter delay would have ended before this one.
  threadDelay 1000
  throwTo t ThreadKilled
  takeMVar out >>= (@?= "thread killed")

pipes :: Library t -> Assertion
pipes Library {..} = do
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

blocking :: Library t -> Assertion
blocking Library {..} = do
  gate <- GHC.newEmptyMVar
  done <- newEmptyMVar
  _ <- forkIO (outside (GHC.takeMVar gate) >>= putMVar done)
  _ <- forkIO (replicateM_ 5 yield >> GHC.putMVar gate 'x')
  takeMVar done >>= (@?= 'x')
  r <- try (outside (throwIO (ErrorCall "there")))
  either (\(ErrorCall e) -> e @?= "there") (\() -> assertFailure "no exception") r

interruptedOutside :: Library t -> Assertion
interruptedOutside Library {..} = do
  never <- GHC.newEmptyMVar
  ready <- newEmptyMVar
  out <- newEmptyMVar
  t <- forkIO ((putMVar ready () >> outside (GHC.readMVar never)) `catch` \e -> putMVar out (show (e :: AsyncException)))
  takeMVar ready
  throwTo t ThreadKilled
  takeMVar out >>= (@?= "thread killed")
  GHC.putMVar never ()

-- The action handles the exception itself.
interruptedOnce :: Library t -> Assertion
interruptedOnce Library {..} = do
  never <- GHC.newEmptyMVar
  waits <- GHC.newEmptyMVar
  out <- newEmptyMVar
  t <- forkIO $ do
    r <- outside ((GHC.putMVar waits () >> GHC.readMVar never >> pure "read") `catch` \e -> pure (show (e :: AsyncException)))
    yield
    putMVar out r
  outside (GHC.takeMVar waits)
  throwTo t ThreadKilled
  takeMVar out >>= (@?= "thread killed")
  GHC.putMVar never ()

channel :: Library t -> Assertion
channel Library {..} = do
  c <- newChan
  d <- dupChan c
  _ <- forkIO (writeList2Chan c [1 .. 100 :: Int])
  replicateM 100 (readChan c) >>= (@?= [1 .. 100])
  replicateM 100 (readChan d) >>= (@?= [1 .. 100])

retries :: Library t -> Assertion
retries Library {..} = do
  v <- newTVarIO (0 :: Int)
  done <- newEmptyMVar
  _ <- forkIO (atomically (readTVar v >>= \x -> check (x >= 3) >> writeTVar v 100) >> putMVar done ())
  forM_ [1 .. 3] (\i -> atomically (writeTVar v i) >> yield)
  takeMVar done
  readTVarIO v >>= (@?= 100)

orElses :: Library t -> Assertion
orElses Library {..} = do
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

handlerRetries :: Library t -> Assertion
handlerRetries Library {..} = do
  v <- newTVarIO False
  ready <- newEmptyMVar
  done <- newEmptyMVar
  _ <- forkIO $ do
    putMVar ready ()
    atomically (catchSTM (readTVar v >>= \x -> unless x (throwSTM (ErrorCall "not yet"))) (\(ErrorCall _) -> retry))
    putMVar done ()
  takeMVar ready
  replicateM_ 5 yield
  atomically (writeTVar v True)
  takeMVar done

transfers :: Library t -> Assertion
transfers Library {..} = do
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

collectingOn :: Collecting -> Int -> IO a -> IO a
collectingOn collecting n = withConcLibSettings defaultSettings {settingCollecting = collecting, settingHECs = n}

ends :: Collecting -> Int -> Assertion
ends collecting n = do
  r <- try (collectingOn collecting n (MP.forkIO (forever MP.yield) >> throwIO (ErrorCall "main")))
  either (\(ErrorCall e) -> e @?= "main") (\() -> assertFailure "no exception") r
  collectingOn collecting n (MP.forkIO (threadDelay 10_000_000) >> pure 'x') >>= (@?= 'x')
  -- A thread that is alone on another HEC, and yields.
  when (n > 1) . collectingOn collecting n $ do
    running <- GHC.newEmptyMVar
    _ <- MP.forkIO (GHC.putMVar running () >> forever MP.yield)
    GHC.takeMVar running

-- Minutes, if one transaction woke them all.
crowd :: Assertion
crowd = do
  gate <- newEmptyMVar
  end <- newEmptyMVar
  (arrived, gone) <- (,) <$> newIORef 0 <*> newIORef 0
  let many = 100_000 :: Int
      count v = atomicModifyIORef' v (\n -> (n + 1, n + 1))
      settle = readIORef arrived >>= \n -> unless (n == many) (MP.yield >> settle)
  replicateM_ many . MP.forkIO $ do
    _ <- count arrived
    x <- readMVar gate
    n <- count gone
    when (n == many) (putMVar end x)
  settle
  putMVar gate 'x'
  takeMVar end >>= (@?= 'x')

-- The thread has waited for the value, and has not waited since.
forgotten :: Assertion
forgotten = withConcLib 1 $ do
  m <- newEmptyMVar
  seen <- newIORef False
  stop <- newIORef False
  let spin v = readIORef v >>= \end -> unless end (MP.yield >> spin v)
  _ <- MP.forkIO ((takeMVar m >>= (readIORef >=> writeIORef seen)) >> spin stop)
  replicateM_ 5 MP.yield
  isEmptyMVar m >>= (@?= True)
  value <- newIORef True
  weak <- mkWeakIORef value (pure ())
  putMVar m value
  spin seen
  performMajorGC
  kept <- deRefWeak weak
  assertBool "it is kept" (null kept)
  writeIORef stop True

shared :: Assertion
shared = do
  there <- newEmptyMVar
  back <- newEmptyMVar
  _ <- OS.forkIO (replicateM_ 50 (takeMVar there >>= putMVar back . (* 2)))
  withConcLib 1 (forM_ [1 .. 50 :: Int] (\i -> putMVar there i >> takeMVar back >>= (@?= 2 * i)))
