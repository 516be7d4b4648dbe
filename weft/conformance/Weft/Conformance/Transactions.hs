-- |
-- Description : Transactions
--
-- Transactions that answer, fail and wait for each other, and their cancellation.
module Weft.Conformance.Transactions (transactions) where

import Control.Monad (forM, replicateM_, when)
import Data.IORef
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Conformance.Check
import Weft.Conformance.Waiting
import Weft.Conformance.World
import Weft.STM

-- | Transactions.
transactions :: World -> TestTree
transactions world =
  testGroup
    "transactions"
    [ testCase "increments from all workers" (increments world),
      testCase "alternatives, and exceptions undo" (alternatives world),
      testCase "retry waits for a change" (retries world),
      testCase "an exception of a transaction is the thread's, at once or later" (exceptions world),
      testCase "a thread that waits is cancelled, and its transaction never commits" (cancelled world (replicateM_ 3 yield)),
      testCase "one that has waited for a while, likewise" (cancelled world (sleep (milliseconds 2))),
      testCase "a transaction that has committed is not lost" (committed world)
    ]

increments :: World -> Assertion
increments world = running world $ do
  v <- liftIO (newTVarIO (0 :: Int))
  waits <- forM [0 .. 9] $ \i -> spawnOn (Just i) (replicateM_ 100 (atomically (modifyTVar' v (+ 1)) >> yield))
  sequence_ waits
  liftIO (readTVarIO v) >>= (`is` 1000)

alternatives :: World -> Assertion
alternatives world = running world $ do
  v <- liftIO (newTVarIO 'a')
  atomically ((writeTVar v 'b' >> retry) `orElse` readTVar v) >>= (`is` 'a')
  r <- try (atomically (writeTVar v 'c' >> throwSTM (userError "undone")))
  r `is` (Left (userError "undone") :: Either IOError ())
  atomically ((writeTVar v 'd' >> throwSTM (userError "caught")) `catchSTM` \e -> check (e == userError "caught"))
  liftIO (readTVarIO v) >>= (`is` 'a')

retries :: World -> Assertion
retries world = running world $ do
  a <- liftIO (newTVarIO (0 :: Int))
  b <- liftIO (newTVarIO (0 :: Int))
  wait <- spawn . atomically $ (readTVar a >>= \n -> check (n > 1) >> pure 'a') `orElse` (readTVar b >>= \n -> check (n > 0) >> pure 'b')
  replicateM_ 3 yield
  atomically (writeTVar a 1)
  sleep (milliseconds 1)
  atomically (writeTVar b 1)
  got <- wait
  liftIO (got @?= 'b')

exceptions :: World -> Assertion
exceptions world = running world $ do
  now <- try (atomically (throwSTM (userError "now")))
  liftIO (now @?= (Left (userError "now") :: Either IOError ()))
  v <- liftIO (newTVarIO False)
  wait <- spawn (try (atomically (readTVar v >>= check >> throwSTM (userError "later"))))
  yield
  atomically (writeTVar v True)
  later <- wait
  liftIO (later @?= (Left (userError "later") :: Either IOError ()))

-- | Cancelled after this.
cancelled :: World -> Thread () -> Assertion
cancelled world waitAWhile = running world $ do
  v <- liftIO (newTVarIO (0 :: Int))
  gate <- newGate
  t <- fork (atomically (readTVar v >>= \n -> check (n > 0) >> writeTVar v 100) `catch` \Cancelled -> openGate gate ())
  waitAWhile
  cancel t
  waitGate gate
  atomically (writeTVar v 1)
  sleep (milliseconds 2)
  n <- liftIO (readTVarIO v)
  liftIO (n @?= 1)

-- | Tokens are taken by transactions that are cancelled at random. Each cancellation
-- finds the thread before its commit (and the token is there) or after it (and the
-- thread has the token): the two outcomes that are allowed.
committed :: World -> Assertion
committed world = do
  taken <- newIORef (0 :: Int)
  tokens <- newTVarIO (0 :: Int)
  running world $ do
    waits <- forM [1 .. 300 :: Int] $ \i -> do
      done <- newGate
      t <- forkWith defaultForkOptions {forkWorker = Just i} $ mask $ \_ -> do
        got <- try (atomically (readTVar tokens >>= \n -> check (n > 0) >> writeTVar tokens (n - 1)))
        case got of
          Right () -> liftIO (atomicModifyIORef' taken (\k -> (k + 1, ())))
          Left Cancelled -> pure ()
        openGate done ()
      when (i `mod` 3 == 0) yield
      when (even i) (atomically (modifyTVar' tokens (+ 1)))
      when (i `mod` 5 == 0) (sleep (milliseconds 1))
      cancel t
      pure (waitGate done)
    sequence_ waits
  k <- readIORef taken
  left <- readTVarIO tokens
  k + left @?= 150
