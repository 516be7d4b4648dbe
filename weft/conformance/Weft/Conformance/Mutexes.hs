{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Mutexes and conditions
--
-- Litmus programs with every allowed outcome, and mutual exclusion.
module Weft.Conformance.Mutexes (mutexes) where

import Control.Exception (fromException)
import Control.Monad (forM, forM_, join, replicateM_, unless, when)
import Data.IORef
import Data.List (isInfixOf, sort)
import Data.Maybe (catMaybes)
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Condition qualified as Condition
import Weft.Conformance.Check
import Weft.Conformance.Litmus
import Weft.Conformance.Waiting
import Weft.Conformance.World
import Weft.Mutex

-- | Mutexes, and waiting for a condition.
mutexes :: World -> TestTree
mutexes world = testGroup "mutexes" [testGroup "mutex" (locking world), testGroup "condition" (conditions world)]

alreadyHeld, notHeld :: MutexError -> Bool
alreadyHeld = \case AlreadyHeld _ -> True; NotHeld _ -> False
notHeld = not . alreadyHeld

locking :: World -> [TestTree]
locking world =
  catMaybes
    [ ordered world "threads get it in the order in which they came" $
        allowed world [["1", "2", "3", "4"]] $ \say -> do
          m <- newMutex
          lock m
          waits <- forM [1 .. 4 :: Int] $ \i -> spawn (withMutex m (say (show i)))
          yield
          unlock m
          sequence_ waits,
      ordered world "who unlocks cannot come in before those that wait" $
        allowed world [["waited", "again"]] $ \say -> do
          m <- newMutex
          lock m
          wait <- spawn (withMutex m (say "waited"))
          yield
          unlock m
          withMutex m (say "again")
          wait,
      always "locking again is an error, said at once" . running world $ do
        m <- newMutexNamed "accounts"
        lock m
        try (lock m) >>= throws (\e -> alreadyHeld e && "(accounts)" `isInfixOf` show e)
        held <- tryLock m
        liftIO (held @?= False)
        unlock m,
      always "unlocking what another thread holds is an error" . running world $ do
        m <- newMutex
        try (unlock m) >>= throws notHeld
        join (spawn (lock m))
        try (unlock m) >>= throws notHeld
        held <- isHeld m
        liftIO (held @?= True),
      always "a failing body unlocks" . running world $ do
        m <- newMutex
        try (withMutex m (throwM (userError "body"))) >>= throws @_ @() (== userError "body")
        held <- isHeld m
        liftIO (held @?= False),
      ordered world "a thread that is cancelled while it waits is passed over" $
        allowed world [["cancelled", "second"]] $ \say -> do
          m <- newMutex
          lock m
          t <- fork (lock m `onException` say "cancelled")
          wait <- spawn (withMutex m (say "second"))
          yield
          cancel t
          sleep (milliseconds 1)
          unlock m
          wait
          held <- isHeld m
          when held (say "still held"),
      -- It was handed the mutex; so it holds it, and is cancelled at its next call.
      ordered world "a cancellation after the hand-over does not undo it" $
        allowed world [["has it", "cancelled", "free"]] $ \say -> do
          m <- newMutex
          lock m
          t <- fork (withMutex m (say "has it" >> sleep (seconds 1000) >> say "not reached") `onException` say "cancelled")
          yield
          unlock m
          cancel t
          sleep (milliseconds 1)
          held <- isHeld m
          unless held (say "free"),
      always "one at a time" $ do
        inside <- newIORef (0 :: Int)
        worst <- newIORef 0
        turns <- newIORef (0 :: Int)
        running world $ do
          m <- newMutex
          waits <- forM [0 .. 19] $ \i -> spawnOn (Just i) . replicateM_ 500 . withMutex m $ do
            n <- liftIO (atomicModifyIORef' inside (\n -> (n + 1, n + 1)))
            liftIO (modifyIORef' worst (max n))
            -- Not atomic: only the mutex protects it.
            before <- liftIO (readIORef turns)
            when (before `mod` 3 == 0) yield
            liftIO (writeIORef turns $! before + 1)
            liftIO (atomicModifyIORef' inside (\k -> (k - 1, ())))
          sequence_ waits
          held <- isHeld m
          liftIO (held @?= False)
        readIORef worst >>= (@?= 1)
        readIORef turns >>= (@?= 10_000)
    ]

conditions :: World -> [TestTree]
conditions world =
  catMaybes
    [ ordered world "a signal wakes the first, a broadcast the rest" $
        allowed world [["1", "2", "3"]] $ \say -> do
          m <- newMutex
          c <- Condition.newCondition
          waits <- forM [1 .. 3 :: Int] $ \i -> spawn (withMutex m (Condition.wait c m >> say (show i)))
          yield
          Condition.signal c
          replicateM_ 5 yield
          Condition.broadcast c
          sequence_ waits,
      ordered world "a thread that is cancelled holds the mutex again" . running world $ do
        m <- newMutex
        c <- Condition.newCondition
        gate <- newGate
        -- No other thread has locked, so only its own hold refuses it.
        t <- fork . withMutex m $ Condition.wait c m `onException` (tryLock m >>= openGate gate)
        yield
        cancel t
        got <- waitGate gate
        liftIO (got @?= False)
        sleep (milliseconds 1)
        held <- isHeld m
        liftIO (held @?= False),
      always "waiting without the mutex is an error" . running world $ do
        m <- newMutex
        c <- Condition.newCondition
        try (Condition.wait c m) >>= throws notHeld
        tryLock m ===> True
        unlock m,
      always "who was cancelled before it waits gets the cancellation, and the mutex is free" . running world $ do
        m <- newMutex
        c <- Condition.newCondition
        got <- newGate
        _ <- fork $ do
          outcome <- try . withMutex m $ do
            -- Not yet a wait, so that it is noticed by the wait.
            myThreadId >>= cancel
            Condition.wait c m
          openGate got (either (Just . fromException) (const Nothing) outcome)
        waitGate got ===> Just (Just Cancelled)
        tryLock m ===> True,
      always "producers and consumers of a place for one" $ do
        got <- newIORef []
        running world $ do
          m <- newMutex
          changed <- Condition.newCondition
          place <- liftIO (newIORef Nothing)
          let untilJust look = liftIO look >>= maybe (Condition.wait changed m >> untilJust look) pure
              put a = withMutex m $ do
                untilJust (maybe (Just ()) (const Nothing) <$> readIORef place)
                liftIO (writeIORef place (Just a))
                Condition.broadcast changed
              take' = withMutex m $ do
                a <- untilJust (readIORef place)
                liftIO (writeIORef place Nothing)
                Condition.broadcast changed
                pure a
          producers <- forM [0 .. 3] $ \p -> spawnOn (Just p) (forM_ [1 .. 50] (\i -> put (p * 50 + i)))
          consumers <- forM [0 .. 3] $ \p -> spawnOn (Just p) (replicateM_ 50 (take' >>= \a -> liftIO (atomicModifyIORef' got (\as -> (a : as, ())))))
          sequence_ producers >> sequence_ consumers
        readIORef got >>= (@?= [1 .. 200]) . sort
    ]
