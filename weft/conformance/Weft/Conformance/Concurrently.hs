{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Several things at once
--
-- 'race', 'concurrently' and the traversals in every way their parts can end.
module Weft.Conformance.Concurrently (concurrent) where

import Control.Exception (ErrorCall (..))
import Control.Monad (forM_, replicateM_, void, when)
import Data.IORef
import Data.List (sort)
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Concurrently
import Weft.Conformance.Check
import Weft.Conformance.Waiting
import Weft.Conformance.World
import Weft.Scope (ChildFailed (..))

-- | Racing, doing both, and traversals.
concurrent :: World -> TestTree
concurrent world =
  testGroup
    "concurrently"
    [testGroup "race" (races world), testGroup "concurrently" (both world), testGroup "traversals" (traversals world)]

races :: World -> [TestTree]
races world =
  [ testCase "the first decides, and the other is gone with its finalizers" . running world $ do
      (bump, count) <- newCounter
      -- One that has lost before it began has nothing to finalize.
      begun <- newGate
      r <- race ((openGate begun () >> block) `finally` (yield >> bump)) (waitGate begun >> replicateM_ 3 yield >> pure 'b')
      r `is` (Right 'b' :: Either () Char)
      begun' <- newGate
      r' <- race (waitGate begun' >> replicateM_ 3 yield >> pure 'a') ((openGate begun' () >> block) `finally` (yield >> bump))
      r' `is` (Left 'a' :: Either Char ())
      count >>= (`is` 2),
    testCase "an exception is a decision, raised as it was" . running world $ do
      (bump, count) <- newCounter
      begun <- newGate
      r <- try (race ((openGate begun () >> block) `finally` bump) (waitGate begun >> throwM (ErrorCall "x") :: Thread ()))
      r `is` (Left (ErrorCall "x") :: Either ErrorCall (Either () ()))
      count >>= (`is` 1),
    testCase "cancelling a race cancels both" . running world $ do
      (bump, count) <- newCounter
      ready <- newGate
      ready' <- newGate
      ended <- newGate
      t <- fork ((race_ ((openGate ready' () >> block) `finally` bump) ((openGate ready () >> block) `finally` bump) `finally` bump) `finally` openGate ended ())
      waitGate ready >> waitGate ready'
      cancel t
      waitGate ended
      count >>= (`is` 3),
    testCase "races in races" . running world $ do
      (bump, count) <- newCounter
      let tower :: Int -> Thread Int
          tower 0 = pure 0
          tower n = either id id <$> race (tower (n - 1)) (block `finally` bump)
      tower 50 >>= (`is` 0)
      -- Those that lost before they began have nothing to finalize.
      n <- count
      liftIO (assertBool (show n) (n <= 50))
  ]

both :: World -> [TestTree]
both world =
  [ testCase "both results" . running world $ concurrently (yield >> pure 'a') (pure 'b') >>= (`is` ('a', 'b')),
    testCase "a failure of either cancels the other and is raised as it was" . running world $ do
      (bump, count) <- newCounter
      l <- try (concurrently_ (yield >> throwM (ErrorCall "l") :: Thread ()) (block `finally` bump))
      l `is` Left (ErrorCall "l")
      r <- try (concurrently (block `finally` bump :: Thread ()) (yield >> throwM (ErrorCall "r") :: Thread ()))
      void r `is` Left (ErrorCall "r")
      n <- count
      liftIO (assertBool (show n) (n <= 2)),
    testCase "a part that was cancelled, or has left, is no end of this thread" . running world $ do
      let suicide = myThreadId >>= cancel >> block :: Thread ()
          wrapped r = case r of
            Left (ChildFailed {}) -> pure ()
            Right () -> liftIO (assertFailure "it has a result")
      forM_ [suicide, exit] $ \part -> do
        try (void (concurrently part (pure ()))) >>= wrapped
        try (void (race part block)) >>= wrapped
        try (void (race block part)) >>= wrapped
        try (void (forConcurrently [1, 2 :: Int] (\i -> when (i == 1) part))) >>= wrapped
        try (void (forConcurrentlyN 1 [1, 2 :: Int] (\i -> when (i == 1) part))) >>= wrapped
        -- Where no results are asked for it is over.
        (bump, count) <- newCounter
        concurrently_ part (yield >> bump)
        forConcurrently_ [1, 2 :: Int] (\i -> if i == 1 then part else bump)
        count >>= (`is` 2)
  ]

traversals :: World -> [TestTree]
traversals world =
  [ testCase "results in the order of the elements" . running world $ do
      r <- forConcurrently [1 .. 100 :: Int] (\i -> replicateM_ (100 - i) yield >> pure (i * i))
      r `is` map (^ (2 :: Int)) [1 .. 100]
      m <- mapConcurrentlyN 7 (\i -> replicateM_ (i `mod` 13) yield >> pure (i + 1)) [1 .. 1000 :: Int]
      m `is` [2 .. 1001]
      e <- mapConcurrentlyN 7 pure ([] :: [Int])
      e `is` []
      j <- forConcurrentlyN 3 (Just 'x') pure
      j `is` Just 'x',
    testCase "never more at a time than allowed, and all of them" . running world . forM_ [-1, 1, 2, 5] $ \limit -> do
      active <- liftIO (newIORef (0 :: Int))
      most <- liftIO (newIORef 0)
      seen <- liftIO (newIORef [])
      forConcurrentlyN_ limit [1 .. 200 :: Int] $ \i -> do
        n <- liftIO (atomicModifyIORef' active (\n -> (n + 1, n + 1)))
        liftIO (atomicModifyIORef' most (\m -> (max m n, ())))
        replicateM_ (i `mod` 5) yield
        liftIO (atomicModifyIORef' seen (\is' -> (i : is', ())))
        liftIO (atomicModifyIORef' active (\k -> (k - 1, ())))
      top <- liftIO (readIORef most)
      liftIO (assertBool (show top) (top <= max 1 limit && top >= min 1 limit))
      liftIO (readIORef seen) >>= (`is` [1 .. 200]) . sort,
    testCase "elements are taken one by one: an endless list ends with its failure" . running world $ do
      (bump, count) <- newCounter
      r <- try (forConcurrentlyN_ 4 [1 ..] (\i -> bump >> yield >> when (i == (1000 :: Int)) (throwM (ErrorCall "enough"))))
      r `is` Left (ErrorCall "enough")
      n <- count
      -- One that is held up before it throws lets the others of another worker go on.
      liftIO (assertBool (show n) (n >= 1000 && (n < 1100 || anyOrder world))),
    testCase "a failure cancels the rest, and is raised as it was" . running world $ do
      r <- try (forConcurrently_ [1 .. 50 :: Int] (\i -> if i == 25 then throwM (ErrorCall "25") else block))
      r `is` (Left (ErrorCall "25") :: Either ErrorCall ())
  ]
