-- |
-- Description : Transactions, and the way in from outside
--
-- Blocking transactions between threads of Weft and of GHC, and what GHC threads can
-- ask of a run.
module Test.Transactions (tests) where

import Control.Concurrent (forkIO, newEmptyMVar, putMVar, takeMVar, throwTo)
import Control.Concurrent qualified as Concurrent
import Control.Concurrent.STM qualified as Ghc
import Control.Exception (AsyncException (..), BlockedIndefinitelyOnSTM (..), mask_)
import Control.Exception qualified as Exception
import Control.Monad (forM, forM_, forever, join, replicateM, replicateM_, unless, void, when)
import Data.IORef
import GHC.Conc (unsafeIOToSTM)
import System.Mem (performMajorGC)
import System.Timeout (timeout)
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Channel qualified as Channel
import Weft.Internal.Core.Retries
import Weft.Outside
import Weft.STM

tests :: TestTree
tests =
  testGroup
    "Transactions and outside"
    [ testGroup
        "transactions"
        [ both "a TBQueue between threads of Weft and of GHC" queues,
          both "increments from both sides" increments,
          testCase "one that has to run again runs once more, from the start" again,
          testCase "nothing can ever wake it: BlockedIndefinitelyOnSTM" indefinitely
        ],
      testGroup
        "transactions that wait with their worker"
        [ testCase "what was read, in several records, and whether it has changed" readSets,
          testCase "they run again only when that has changed" selective,
          testCase "those that wait for one change go on in their order" inOrder,
          both "a change that no transaction of Weft has made, while the worker does not sleep" untold,
          testCase "a change by another worker, while theirs does not sleep" across,
          testCase "the worker looks only so often, and then GHC waits" sentOn,
          testCase "the worker tries only so often, and then GHC waits" inVain,
          testCase "one look is short: it leaves the oldest to GHC" shortLook,
          testCase "those that are cancelled are dropped, by a look, and in a simulation at once" cancelledWaits
        ],
      testGroup
        "outside"
        [ both "run a thread and wait for it" runs,
          testCase "a run that ends before its runner closes it" outlives,
          both "channels in both directions" crossing,
          testCase "an exception in the caller cancels the thread and waits for it" interrupts,
          testCase "a closed runner is an error, also for calls under way" closes
        ]
    ]

one :: Config
one = Config Epoll 1

both :: TestName -> (Config -> Assertion) -> TestTree
both name body = testGroup name [testCase (describeConfig c) (body c) | c <- [one, Config Epoll 2]]

queues :: Config -> Assertion
queues config = do
  there <- Ghc.newTBQueueIO 3
  back <- Ghc.newTChanIO
  _ <- forkIO . replicateM_ 200 $ Ghc.atomically (Ghc.readTBQueue there) >>= Ghc.atomically . Ghc.writeTChan back . (* 2)
  got <- running config $ do
    wait <- spawn (replicateM 200 (atomically (Ghc.readTChan back)))
    forM_ [1 .. 200] (atomically . Ghc.writeTBQueue there)
    wait
  got @?= map (* 2) [1 .. 200 :: Int]

increments :: Config -> Assertion
increments config = do
  v <- newTVarIO (0 :: Int)
  running config $ do
    _ <- liftIO . forkIO $ replicateM_ 1000 (Ghc.atomically (modifyTVar' v (+ 1)))
    waits <- forM [0 .. 9] $ \i -> spawnOn (Just i) (replicateM_ 100 (atomically (modifyTVar' v (+ 1))))
    sequence_ waits
    atomically (readTVar v >>= check . (== 2000))

-- Another thread commits to what the first run has read, before it ends.
again :: Assertion
again = do
  v <- newTVarIO 'a'
  seen <- newIORef ""
  running one . atomically $ do
    x <- readTVar v
    first <- unsafeIOToSTM (null <$> readIORef seen <* modifyIORef' seen (x :))
    when first (unsafeIOToSTM (disturb v))
    writeTVar v 'c'
  readIORef seen >>= (@?= "ba")
  readTVarIO v >>= (@?= 'c')
  where
    disturb v = do
      done <- newEmptyMVar
      _ <- forkIO (Ghc.atomically (writeTVar v 'b') >> putMVar done ())
      takeMVar done

indefinitely :: Assertion
indefinitely = running one $ do
  wait <- spawn (try (liftIO (newTVarIO False) >>= \v -> atomically (readTVar v >>= check)))
  over <- liftIO (newIORef False)
  fork_ . forever $ sleep (milliseconds 5) >> liftIO (readIORef over) >>= \o -> unless o (liftIO performMajorGC)
  got <- wait
  liftIO (writeIORef over True)
  case got of
    Left BlockedIndefinitelyOnSTM -> pure ()
    Right () -> liftIO (assertFailure "it cannot have gone on")

readSets :: Assertion
readSets = do
  vs <- replicateM 40 (newTVarIO False)
  let (front, back) = splitAt 7 vs
  found <- Ghc.atomically $ (Right <$> ((mapM_ readTVar front >> retry) `orElse` (mapM_ readTVar back >> retry))) `orElse` (Left <$> whatIsRead)
  case found of
    Right () -> assertFailure "it has not waited"
    Left reads' -> do
      hasChanged reads' >>= (@?= False)
      forM_ vs $ \v -> do
        before <- readTVarIO v
        Ghc.atomically (writeTVar v True)
        hasChanged reads' >>= (@?= True)
        Ghc.atomically (writeTVar v before)
        hasChanged reads' >>= (@?= False)

-- | Waits for this variable, and counts how often the transaction has begun.
counted :: IORef Int -> TVar Bool -> STM ()
counted begun v = unsafeIOToSTM (modifyIORef' begun (+ 1)) >> readTVar v >>= check

selective :: Assertion
selective = do
  begun <- newIORef 0
  (v, other) <- (,) <$> newTVarIO False <*> newTVarIO (0 :: Int)
  running one $ do
    wait <- spawn (atomically (counted begun v))
    yield
    replicateM_ 100 (atomically (modifyTVar' other (+ 1)))
    liftIO (readIORef begun >>= (@?= 1))
    atomically (writeTVar v True)
    wait
  readIORef begun >>= (@?= 2)

inOrder :: Assertion
inOrder = do
  v <- newTVarIO False
  order <- newIORef []
  running one $ do
    waits <- forM [1 .. 5 :: Int] $ \i -> spawn (atomically (readTVar v >>= check) >> liftIO (modifyIORef' order (i :)))
    yield
    atomically (writeTVar v True)
    sequence_ waits
  readIORef order >>= (@?= [5, 4 .. 1])

-- | A thread of the first worker waits for the variable, and another keeps that worker awake until it has gone on, and
-- after 600 switches, which are more than two slices, changes the variable so.
whileBusy :: Config -> (TVar Bool -> Thread ()) -> Assertion
whileBusy config set = do
  v <- newTVarIO False
  over <- newIORef False
  running config $ do
    wait <- spawnOn (Just 0) (atomically (readTVar v >>= check) >> liftIO (writeIORef over True))
    let busy :: Int -> Thread ()
        busy n = do
          when (n == 600) (set v)
          done <- liftIO (readIORef over)
          unless done (yield >> busy (n + 1))
    join' <- spawnOn (Just 0) (busy 0)
    wait >> join'

untold :: Config -> Assertion
untold config = whileBusy config (liftIO . Ghc.atomically . (`writeTVar` True))

across :: Assertion
across = whileBusy (Config Epoll 2) $ \v -> join (spawnOn (Just 1) (atomically (writeTVar v True)))

sentOn :: Assertion
sentOn = do
  begun <- newIORef 0
  (v, other) <- (,) <$> newTVarIO False <*> newTVarIO (0 :: Int)
  running one $ do
    wait <- spawn (atomically (counted begun v))
    let untilSent = do
          atomically (modifyTVar' other (+ 1))
          n <- liftIO (readIORef begun)
          when (n < 2) (yield >> untilSent)
    untilSent
    atomically (writeTVar v True)
    wait
  n <- readTVarIO other
  assertBool ("after " <> show n <> " transactions") (n > 100)

inVain :: Assertion
inVain = do
  tries <- newIORef (0 :: Int)
  v <- newTVarIO (0 :: Int)
  running one $ do
    worker <- liftIO Concurrent.myThreadId
    let onWorker = Concurrent.myThreadId >>= \me -> when (me == worker) (modifyIORef' tries (+ 1))
    waits <- replicateM 100 . spawn . atomically $ unsafeIOToSTM onWorker >> readTVar v >>= check . (>= 2000)
    replicateM_ 2000 (atomically (modifyTVar' v (+ 1)) >> yield)
    sequence_ waits
  n <- readIORef tries
  assertBool ("tried " <> show n <> " times") (n >= 100 && n <= 3000)

shortLook :: Assertion
shortLook = do
  v <- newTVarIO False
  retries <- newRetries True
  told <- newIORef []
  reads' <- Ghc.atomically ((readTVar v >> retry) `orElse` whatIsRead)
  forM_ [1 .. 1000 :: Int] $ \i -> void . addRetry retries reads' fullCredit (pure True) $ \found -> True <$ modifyIORef' told ((i, isNoMore found) :)
  lookAgain retries
  sent <- reverse <$> readIORef told
  sent @?= [(i, True) | i <- [1 .. length sent]]
  assertBool ("left " <> show (1000 - length sent)) (length sent >= 750 && length sent < 1000)
  writeIORef told []
  Ghc.atomically (writeTVar v True)
  lookAgain retries
  readIORef told >>= (@?= [(i, False) | i <- [length sent + 1 .. 1000]]) . reverse
  someWait retries >>= (@?= False)
  where
    isNoMore = \case
      NoMore -> True
      Changed _ -> False

cancelledWaits :: Assertion
cancelledWaits = forM_ [False, True] $ \selective' -> do
  retries <- newRetries selective'
  told <- newIORef []
  reads' <- Ghc.atomically (retry `orElse` whatIsRead)
  (one', two) <- (,) <$> newIORef True <*> newIORef True
  let add name waits = addRetry retries reads' fullCredit (readIORef waits) (\_ -> True <$ modifyIORef' told (name :))
  withdraw <- add 'a' one'
  _ <- add 'b' two
  writeIORef one' False
  withdraw
  when selective' (lookAgain retries)
  someWait retries >>= (@?= True)
  tellAll retries NoMore
  readIORef told >>= (@?= "b")

runs :: Config -> Assertion
runs config = running config . withRunner $ \runner -> do
  result <- liftIO newEmptyMVar
  v <- liftIO (newTVarIO (0 :: Int))
  _ <- liftIO . forkIO $ do
    a <- runThread runner (sleep (milliseconds 1) >> pure 'a')
    failed <- Exception.try (runThread runner (throwM (userError "inside")))
    startThread runner (atomically (writeTVar v 1))
    putMVar result (a, failed :: Either IOError ())
  atomically (readTVar v >>= check . (== 1))
  got <- blocking (takeMVar result)
  liftIO (got @?= ('a', Left (userError "inside")))

crossing :: Config -> Assertion
crossing config = running config . withRunner $ \runner -> do
  to <- Channel.newChannel 2
  from <- Channel.newChannel 2
  _ <- liftIO . forkIO $ forM_ [1 .. 100 :: Int] (sendFrom runner to)
  doubled <- liftIO newEmptyMVar
  _ <- liftIO . forkIO $ replicateM 100 (receiveFrom runner from) >>= putMVar doubled
  replicateM_ 100 (Channel.receive to >>= mapM_ (Channel.send from . (* 2)))
  got <- blocking (takeMVar doubled)
  liftIO (got @?= map (Just . (* 2)) [1 .. 100])

interrupts :: Assertion
interrupts = do
  events <- newIORef []
  let note what = atomicModifyIORef' events (\es -> (what : es, ()))
  running one . withRunner $ \runner -> do
    begun <- newGate
    ended <- liftIO newEmptyMVar
    caller <- liftIO . mask_ . forkIO $ do
      got <- Exception.try (runThread runner ((openGate begun () >> sleep (seconds 1000)) `finally` (sleep (milliseconds 2) >> liftIO (note "finalizer"))))
      note ("caller " <> either (\(e :: AsyncException) -> show e) show got)
      putMVar ended ()
    waitGate begun
    liftIO . void . forkIO $ throwTo caller UserInterrupt
    blocking (takeMVar ended)
  readIORef events >>= (@?= ["finalizer", "caller user interrupt"]) . reverse

closes :: Assertion
closes = do
  kept <- newIORef Nothing
  result <- newEmptyMVar
  running one $ do
    begun <- newGate
    cancelledInside <- newGate
    withRunner $ \runner -> do
      liftIO (writeIORef kept (Just runner))
      _ <- liftIO . forkIO $ Exception.try (runThread runner ((openGate begun () >> sleep (seconds 1000)) `onException` openGate cancelledInside ())) >>= putMVar result
      waitGate begun
    waitGate cancelledInside
  takeMVar result >>= (@?= Left RunnerClosed)
  readIORef kept >>= mapM_ (\runner -> Exception.try (runThread runner (pure ())) >>= (@?= Left RunnerClosed))

-- | A thread that does not end in time is dropped, and its runner with it.
outlives :: Assertion
outlives = do
  kept <- newIORef Nothing
  said <- newIORef (0 :: Int)
  let settings = (settingsFor one) {settingGrace = milliseconds 1, settingReport = \_ -> modifyIORef said (+ 1)}
  runWith settings $ do
    begun <- newGate
    fork_ $ uninterruptibleMask $ \_ -> withRunner $ \runner -> do
      liftIO (writeIORef kept (Just runner))
      openGate begun ()
      sleep (seconds 1000)
    waitGate begun
  dropped <- readIORef said
  assertBool "the thread was not dropped" (dropped > 0)
  answer <- timeout 60_000_000 (readIORef kept >>= mapM (\runner -> Exception.try (runThread runner (pure ()))))
  answer @?= Just (Just (Left RunnerClosed))
