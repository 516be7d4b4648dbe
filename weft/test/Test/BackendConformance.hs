{-# LANGUAGE BlockArguments #-}

-- |
-- The behaviour that every backend shares, whatever it is made of. The suite takes the
-- function that makes the backend; each that is added to Weft runs it.
module Test.BackendConformance
  ( tests,
    MakeBackend,
  )
where

import Control.Concurrent (forkIO, newEmptyMVar, putMVar, takeMVar)
import Control.Exception (bracket)
import Control.Monad hiding (forever)
import Data.Foldable (for_)
import Data.IORef
import Test.BackendConformance.Cancellation (cancellation)
import Test.BackendConformance.Connections (connections)
import Test.BackendConformance.Files (files)
import Test.BackendConformance.Streams (ends, streams)
import Test.BackendConformance.Support
import Test.Rig
import Test.Signals (waitsOutSignals)
import Test.StreamModel qualified as StreamModel
import Test.Tasty
import Test.Tasty.HUnit
import Test.Visit qualified as Visit
import Weft.Internal.Backend
import Weft.Internal.Os.Pool (submitPool)
import Weft.Internal.Os.Sys qualified as Sys

-- | The suite for a backend, under its name.
tests :: String -> MakeBackend -> TestTree
tests name make =
  testGroup
    ("backend " <> name)
    [ testGroup "streams" (streams make),
      testGroup "ends of streams" (ends make),
      testGroup "connections" (connections make),
      testGroup "files" (files make),
      testGroup "cancellation" (cancellation make),
      testGroup "waiting" (waiting make),
      StreamModel.tests (name `elem` ["epoll", "io_uring"]) make,
      Visit.tests make
    ]

waiting :: MakeBackend -> [TestTree]
waiting make =
  [ rigged "a time limit is kept, never early" make \rig -> do
      -- The first poll may have something of its own to see to.
      _ <- turn rig noWait
      for_ [100_000, 1_000_000, 5_500_000] \limit -> do
        before <- Sys.monotonicNow
        n <- turn rig limit
        later <- Sys.monotonicNow
        n @?= 0
        assertBool ("early: " <> show (later - before)) (later - before >= limit),
    rigged "signals do not end a wait" make \rig -> do
      _ <- turn rig noWait
      waitsOutSignals (turn rig),
    rigged "another thread wakes a blocked poll" make \rig -> for_ [1 .. 100 :: Int] \_ -> do
      done <- newEmptyMVar
      _ <- forkIO (wake (rigBackend rig) >> putMVar done ())
      _ <- turn rig forever
      takeMVar done,
    rigged "a wake before the poll counts" make \rig -> do
      wake (rigBackend rig)
      _ <- turn rig noWait
      n <- turn rig forever
      n @?= 0,
    rigged "many wakes are one" make \rig -> do
      _ <- turn rig noWait
      replicateM_ 1_000 (wake (rigBackend rig))
      _ <- turn rig forever
      before <- Sys.monotonicNow
      _ <- turn rig 10_000_000
      later <- Sys.monotonicNow
      assertBool ("woken again after " <> show (later - before)) (later - before >= 10_000_000),
    rigged "no wake is lost to a race" make \rig -> do
      -- The inbox counts up to its end only if each post is seen.
      counter <- newIORef (0 :: Int)
      let post action = do
            atomicModifyIORef' (rigInbox rig) \xs -> (action : xs, ())
            wake (rigBackend rig)
      bracket (replicateM 4 newEmptyMVar) (mapM_ takeMVar) \dones -> do
        for_ dones \done -> forkIO do
          replicateM_ 2_000 (post (modifyIORef' counter (+ 1)))
          putMVar done ()
        turnUntil rig "every post" ((== 8_000) <$> readIORef counter),
    rigged "the pool's answers wake the worker" make \rig -> do
      answered <- newIORef False
      _ <- submitPool (rigPool rig) do
        atomicModifyIORef' (rigInbox rig) \xs -> (writeIORef answered True : xs, ())
        wake (rigBackend rig)
      turnUntil rig "the answer" (readIORef answered)
  ]
