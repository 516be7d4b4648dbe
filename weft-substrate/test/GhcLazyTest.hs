{-# LANGUAGE RecordWildCards #-}

-- |
-- Description : GHC's own tests of threads that compute without end, or wait in lazy values
--
-- For the libraries in which such a thread leaves the others their turns; see "GhcTest".
module GhcLazyTest (tests) where

import Control.Concurrent qualified as GHC
import Control.Exception hiding (throwTo)
import Control.Monad
import Data.List (sort)
import Foreign.Ptr (FunPtr, freeHaskellFunPtr)
import Library
import System.IO.Unsafe (unsafeInterleaveIO, unsafePerformIO)
import System.Mem (performMajorGC)
import Test.Tasty
import Test.Tasty.HUnit
import Weft.ConcLib.MP (getChanContents, newChan, newEmptyMVar, newMVar, putMVar, readChan, takeMVar, tryPutMVar, tryTakeMVar, writeChan)
import Weft.ConcLib.STM

tests :: TestTree
tests = testGroup "GHC's tests, beside lazy values" (onLibraries (\library -> if preempts library then every library else []))

every :: Library t -> [TestTree]
every library =
  -- Where threads are preempted it takes very long in one of some hundred runs of all tests, and hardly ever by itself;
  -- the cause is not known (docs/substrate.md).
  testCase retried (limitedAgain retried (with library (lazyRetry library)))
    : [ testCase name (limited (with library (test library)))
        | (name, test) <-
            [ ("conc007: of two values the one that has an end", chooses),
              ("conc032: lazy values that fork, wait and kill", lazyForks),
              ("conc038: a call that blocks, and a callback that waits", callsAndCallbacks),
              ("async001: a lazy value is left, whose handler throws on", lazyKilled),
              ("a channel read lazily", contents)
            ]
      ]
  where
    retried = "T5866: a lazy value that waits for ever is left, and evaluated again"

-- The other is killed while it computes.
chooses :: Library t -> Assertion
chooses Library {..} = do
  choose (sum [1 ..]) (sum [1 .. 42]) >>= (@?= (903 :: Integer))
  choose (sum [1 .. 42]) (sum [1 ..]) >>= (@?= (903 :: Integer))
  where
    choose a b = do
      ready <- newMVar ()
      answer <- newEmptyMVar
      ends <- newChan
      ts <- forM [a, b] (\x -> forkFinally (evaluate x >> takeMVar ready >> putMVar answer x) (writeChan ends . either (const "killed") (const "ended")))
      it <- takeMVar answer
      mapM_ (`throwTo` ThreadKilled) ts
      became <- replicateM 2 (readChan ends)
      it <$ (sort became @?= ["ended", "killed"])

-- Whether all of some functions say so, each on a thread; the others are killed once one does not. None
-- looks at an argument that has no end without need.
lazyForks :: Library t -> Assertion
lazyForks Library {..} = do
  [three (x, y, z) | x <- [True, False], y <- [True, False], z <- [True, False]] @?= [1, 1, 0, 3, 2, 0, 2, 3]
  three (True, True, odd (sum [1 :: Integer ..])) @?= 1
  where
    three :: (Bool, Bool, Bool) -> Int
    three v
      | every' [\(x, _, _) -> x, \(_, y, _) -> y, const True] v = 1
      | every' [\(x, _, _) -> not x, const True, \(_, _, z) -> z] v = 2
      | every' [const True, \(_, y, _) -> not y, \(_, _, z) -> not z] v = 3
      | otherwise = 0
    every' fs v = unsafePerformIO $ do
      m <- newEmptyMVar
      ts <- forM fs (\f -> forkIO (putMVar m $! f v))
      let assess 0 = pure True
          assess n = takeMVar m >>= \so -> if so then assess (n - 1 :: Int) else pure False
      assess (length fs) <* mapM_ (`throwTo` ThreadKilled) ts

callsAndCallbacks :: Library t -> Assertion
callsAndCallbacks Library {..} = do
  go <- GHC.newEmptyMVar
  first <- newEmptyMVar
  end <- newEmptyMVar
  _ <- forkIO (GHC.takeMVar go >> putMVar end "called")
  callback <- wrapped (takeMVar first >>= putMVar end)
  _ <- forkIO (called callback >> putMVar end "returned")
  putMVar first "waited"
  replicateM 2 (takeMVar end) >>= (@?= ["waited", "returned"])
  GHC.putMVar go ()
  takeMVar end >>= (@?= "called")
  freeHaskellFunPtr callback

lazyRetry :: Library t -> Assertion
lazyRetry Library {..} = do
  end <- newEmptyMVar
  waits <- newEmptyMVar
  x <- unsafeInterleaveIO (putMVar waits () >> atomically retry) :: IO ()
  t <- forkIO $ do
    -- By what the value is left, also if that is wrong.
    let left = either (show @SomeException) show <$> try (evaluate x)
    ends <- replicateM 2 left
    putMVar end ends
  takeMVar waits
  throwTo t ThreadKilled
  collected (tryTakeMVar end) >>= (@?= [show ThreadKilled, show BlockedIndefinitelyOnMVar])
  where
    collected look = performMajorGC >> yield >> look >>= maybe (collected look) pure

lazyKilled :: Library t -> Assertion
lazyKilled Library {..} = do
  ready <- newEmptyMVar
  never <- newEmptyMVar
  end <- newEmptyMVar
  let x = unsafePerformIO ((putMVar ready () >> takeMVar never) `onException` pure ()) :: Int
  t <- forkFinally (void (evaluate x)) (const (putMVar end ()))
  takeMVar ready
  throwTo t ThreadKilled
  takeMVar end
  r <- try (evaluate x)
  r @?= Left ThreadKilled
  tryPutMVar never 1 >>= (@?= True)

foreign import ccall "wrapper" wrapped :: IO () -> IO (FunPtr (IO ()))

foreign import ccall "dynamic" called :: FunPtr (IO ()) -> IO ()

contents :: Library t -> Assertion
contents Library {..} = do
  c <- newChan
  _ <- forkIO (forM_ [1 .. 50 :: Int] (\i -> writeChan c i >> yield))
  xs <- getChanContents c
  take 50 xs @?= [1 .. 50]
