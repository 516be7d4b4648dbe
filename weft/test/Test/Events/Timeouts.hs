{-# LANGUAGE BlockArguments #-}

-- |
-- Description : Timeouts, on every source
module Test.Events.Timeouts
  ( timeouts,
  )
where

import Control.Concurrent.STM (atomically)
import Control.Exception (try)
import Control.Monad (forM, forM_, join, replicateM, void)
import Data.IORef
import Data.List (sort)
import Test.Events.Rig
import Test.Tasty
import Test.Tasty.HUnit
import Weft.EventManager
import Weft.Internal.Data.Time

-- | Their order, changes to them, and many.
timeouts :: Rig -> TestTree
timeouts rig =
  testGroup
    "timeouts"
    [ testCase "never inside of setTimeout, and in the next step" $ withRig rig \m _ _ -> do
        (note, noted) <- collecting
        forM_ [-1, 0] \n -> setTimeout m (nanoseconds n) (note n)
        noted >>= (@?= [])
        step m Nothing >>= (@?= 2)
        noted >>= (@?= [-1, 0]) . sort,
      testCase "in the order in which they are due, and not before" $ withRig rig \m _ clock -> do
        -- Times that are further apart than it takes to set them.
        let inUnits unit = do
              (note, noted) <- collecting
              start <- clock
              forM_ [3, 1, 2] \n -> setTimeout m (milliseconds (n * unit)) (clock >>= \t -> note (n, t - start >= n * unit * 1_000_000))
              set <- clock
              until' m "three" ((== 3) . length <$> noted)
              if set - start >= unit * 1_000_000 then inUnits (10 * unit) else noted >>= (@?= [(1, True), (2, True), (3, True)])
        inUnits 1,
      testCase "one that is put off runs once, then" $ withRig rig \m _ clock -> do
        (note, noted) <- collecting
        start <- clock
        timeout <- setTimeout m (milliseconds 1) (clock >>= note)
        forM_ [2 .. 5] \n -> updateTimeout timeout (milliseconds n) >>= (@?= True)
        until' m "one" (not . null <$> noted)
        [end] <- noted
        assertBool "5 ms after" (end - start >= 5_000_000)
        updateTimeout timeout (milliseconds 1) >>= (@?= False)
        cancelTimeout timeout >>= (@?= False),
      testCase "one that is brought forward runs then" $ withRig rig \m _ clock -> do
        (note, noted) <- collecting
        timeout <- setTimeout m (seconds 3600) (clock >>= note)
        -- It is in the heap already.
        _ <- step m (Just (nanoseconds 0))
        updateTimeout timeout (milliseconds 1) >>= (@?= True)
        until' m "one" (not . null <$> noted),
      testCase "what is cancelled does not run, nor what one that is due cancels" $ withRig rig \m _ _ -> do
        (note, noted) <- collecting
        first <- setTimeout m (milliseconds 1) (note "first")
        cancelTimeout first >>= (@?= True)
        cancelTimeout first >>= (@?= False)
        later <- newIORef (pure False)
        _ <- setTimeout m (milliseconds 2) (join (readIORef later) >>= note . show)
        third <- setTimeout m (milliseconds 2) (note "third")
        writeIORef later (cancelTimeout third)
        _ <- setTimeout m (milliseconds 3) (note "last")
        until' m "the last" ((== 2) . length <$> noted)
        noted >>= (@?= ["True", "last"]),
      testCase "a callback that throws leaves the others" $ withRig rig \m _ _ -> do
        (note, noted) <- collecting
        forM_ [1 .. 3] \n -> setTimeout m (nanoseconds 0) (note n >> ioError (userError "callback"))
        results <- replicateM 4 (try @IOError (step m (Just (nanoseconds 0))))
        length [() | Left _ <- results] @?= 3
        noted >>= (@?= [1, 2, 3 :: Int]),
      testCase "a limit ends a step" $ withRig rig \m _ clock -> do
        _ <- setTimeout m (seconds 3600) (pure ())
        -- This one ends at once, for something was set.
        step m (Just (seconds 3600)) >>= (@?= 0)
        start <- clock
        step m (Just (milliseconds 2)) >>= (@?= 0)
        end <- clock
        assertBool "after 2 ms" (end - start >= 2_000_000),
      testCase "100,000 of a millisecond" $ withRig rig \m _ _ -> do
        count <- newIORef (0 :: Int)
        forM_ [1 .. 100_000 :: Int] \_ -> setTimeout m (milliseconds 1) (modifyIORef' count (+ 1))
        until' m "all" ((== 100_000) <$> readIORef count),
      testCase "10,000 that are cancelled" $ withRig rig \m _ _ -> do
        count <- newIORef (0 :: Int)
        all' <- replicateM 10_000 (setTimeout m (milliseconds 1) (modifyIORef' count (+ 1)))
        -- None runs outside of a step.
        cancelled <- forM all' cancelTimeout
        length (filter not cancelled) @?= 0
        void (step m (Just (milliseconds 3)))
        void (settled m)
        readIORef count >>= (@?= 0),
      testCase "a timer of STM rings, or is cancelled" $ withRig rig \m _ _ -> do
        rings <- startTimer m (milliseconds 1)
        other <- startTimer m (milliseconds 1)
        cancelTimer other >>= (@?= True)
        atomically (mapM timerState [rings, other]) >>= (@?= [Running, Cancelled])
        until' m "the ring" ((== Rung) <$> atomically (timerState rings))
        atomically (mapM awaitTimer [rings, other]) >>= (@?= [True, False])
        cancelTimer rings >>= (@?= False)
    ]
