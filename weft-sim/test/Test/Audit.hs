{-# LANGUAGE OverloadedStrings #-}

-- |
-- Effects of a program outside of its simulation are reported, where they can be seen.
module Test.Audit (tests) where

import Control.Concurrent (threadDelay)
import Control.Monad (forM_, void, when)
import Data.IORef
import Data.List (isInfixOf)
import System.IO (IOMode (..), hClose, openFile)
import System.IO.Unsafe (unsafePerformIO)
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.IO qualified as Direct
import Weft.Sim

tests :: TestTree
tests =
  testGroup
    "audit"
    [ testCase "nothing is told of a program that keeps inside" $ audited good >>= (@?= []),
      testCase "an effect that sleeps for real is named with its thread" $ do
        told <- audited (good >> label "sleeper" >> liftIO (threadDelay 30_000))
        assertBool (show told) (any (\t -> "real time" `isInfixOf` t && "sleeper" `isInfixOf` t) told),
      testCase "an effect that the machine holds up once is not" $ do
        times <- newIORef (0 :: Int)
        told <- audited . liftIO $ do
          n <- atomicModifyIORef' times (\n -> (n + 1, n))
          when (n == 0) (threadDelay 30_000)
        told @?= []
        readIORef times >>= (@?= 4),
      testCase "so is one in direct style" $ do
        told <- audited (Direct.direct (Direct.yield >> threadDelay 30_000))
        assertBool (show told) (any ("real time" `isInfixOf`) told),
      testCase "an effect that opens a descriptor is named with what it opened" $ do
        kept <- newIORef []
        told <- audited (liftIO (openFile "/dev/null" ReadMode >>= \h -> modifyIORef kept (h :)))
        readIORef kept >>= mapM_ hClose
        assertBool (show told) (any (\t -> "opened" `isInfixOf` t && "/dev/null" `isInfixOf` t) told),
      testCase "a program whose runs differ is told with the first difference" $ do
        told <- audited $ do
          n <- liftIO (atomicModifyIORef' counter (\n -> (n + 1, n)))
          when (even n) yield
        assertBool (show told) (any ("differ" `isInfixOf`) told)
    ]
  where
    audited = audit defaultConfig 1

-- | One that is not of the run.
counter :: IORef Int
counter = unsafePerformIO (newIORef 0)
{-# NOINLINE counter #-}

good :: Thread ()
good = do
  forM_ [1 .. 3 :: Int] $ \i -> fork (sleep (milliseconds i))
  box <- liftIO (newIORef (0 :: Int))
  liftIO (modifyIORef' box (+ 1))
  void (liftIO (readIORef box))
