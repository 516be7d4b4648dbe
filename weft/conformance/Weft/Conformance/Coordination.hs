-- |
-- Description : Events, semaphores and barriers
--
-- Litmus programs with every allowed outcome, and what must hold however the threads
-- are interleaved.
module Weft.Conformance.Coordination (coordination) where

import Control.Exception (ErrorCall)
import Control.Monad (forM, forM_, replicateM, replicateM_, unless, void, when)
import Data.IORef
import Data.List (sort)
import Data.Maybe (catMaybes)
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Barrier qualified as Barrier
import Weft.Conformance.Check
import Weft.Conformance.Litmus
import Weft.Conformance.Waiting
import Weft.Conformance.World
import Weft.Event qualified as Event
import Weft.Mask (mask_)
import Weft.Semaphore qualified as Semaphore

-- | Events, semaphores, barriers.
coordination :: World -> TestTree
coordination world =
  testGroup "coordination" [testGroup "event" (events world), testGroup "semaphore" (semaphores world), testGroup "barrier" (barriers world)]

events :: World -> [TestTree]
events world =
  catMaybes
    [ ordered world "all that wait go on when it is set, and later nobody waits" $
        allowed world [["set", "1", "2", "late"]] $ \say -> do
          e <- Event.newEvent
          waits <- forM ["1", "2"] $ \name -> spawn (Event.wait e >> say name)
          yield
          say "set"
          Event.set e
          sequence_ waits
          Event.wait e
          say "late",
      ordered world "who was woken goes on although the event was cleared" $
        allowed world [["woken", "cleared"]] $ \say -> do
          e <- Event.newEvent
          wait <- spawn (Event.wait e >> say "woken")
          yield
          Event.set e
          Event.clear e
          wait
          still <- Event.isSet e
          unless still (say "cleared")
    ]

semaphores :: World -> [TestTree]
semaphores world =
  catMaybes
    [ ordered world "many permits are not overtaken by few" $
        allowed world [["three", "one"]] $ \say -> do
          s <- Semaphore.newSemaphore 2
          three <- spawn (Semaphore.acquire s 3 >> say "three" >> Semaphore.release s 3)
          yield
          single <- spawn (Semaphore.acquire s 1 >> say "one" >> Semaphore.release s 1)
          yield
          lucky <- Semaphore.tryAcquire s 1
          when lucky (say "overtook")
          Semaphore.release s 1
          three >> single,
      ordered world "when the first is cancelled, those behind get what is there" $
        allowed world [["one"]] $ \say -> do
          s <- Semaphore.newSemaphore 1
          t <- fork (Semaphore.acquire s 3 >> say "three")
          yield
          single <- spawn (Semaphore.acquire s 1 >> say "one")
          yield
          cancel t
          single,
      always "never more inside than permits" $ do
        inside <- newIORef (0 :: Int)
        worst <- newIORef 0
        running world $ do
          s <- Semaphore.newSemaphore 3
          waits <- forM [0 .. 11] $ \i -> spawnOn (Just i) . replicateM_ 200 $ do
            let n = 1 + i `mod` 3
            Semaphore.withPermits s n $ do
              k <- liftIO (atomicModifyIORef' inside (\k -> (k + n, k + n)))
              liftIO (atomicModifyIORef' worst (\w -> (max w k, ())))
              yield
              liftIO (atomicModifyIORef' inside (\j -> (j - n, ())))
          sequence_ waits
          left <- Semaphore.available s
          liftIO (left @?= 3)
        readIORef worst >>= (@?= 3),
      always "a negative number is an error" . running world $ do
        s <- Semaphore.newSemaphore 1
        try (Semaphore.acquire s (-1)) >>= throws (const True :: ErrorCall -> Bool)
    ]

barriers :: World -> [TestTree]
barriers world =
  catMaybes
    [ always "nobody is a round ahead" $ do
        counts <- replicateM 4 (newIORef (0 :: Int))
        running world $ do
          b <- Barrier.newBarrier 4
          waits <- forM (zip [0 ..] counts) $ \(i, mine) -> spawnOn (Just i) . forM_ [1 .. 100] $ \r -> do
            liftIO (writeIORef mine r)
            _ <- Barrier.arrive b
            others <- liftIO (mapM readIORef counts)
            liftIO (assertBool (show others) (all (== r) others))
            void (Barrier.arrive b)
          sequence_ waits,
      ordered world "places are 0 to n - 1; who was cancelled has not arrived" . running world $ do
        b <- Barrier.newBarrier 3
        t <- fork (void (Barrier.arrive b))
        yield
        cancel t
        sleep (milliseconds 1)
        waits <- replicateM 3 (spawn (Barrier.arrive b))
        places <- sequence waits
        liftIO (sort places @?= [0, 1, 2]),
      Just . litmus world "the last arrival against the cancellation of the other: both go on, or it has not arrived" [["both"], ["cancelled", "replaced"]] $ \say -> do
        b <- Barrier.newBarrier 2
        result <- newGate
        t <- forkWith defaultForkOptions {forkWorker = Just 0} (mask_ (try (Barrier.arrive b) >>= openGate result))
        yield
        other <- spawnOn (Just 1) (void (Barrier.arrive b))
        cancel t
        waitGate result >>= \case
          Right _ -> other >> say "both"
          Left Cancelled -> say "cancelled" >> Barrier.arrive b >> other >> say "replaced"
    ]
