{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Machines that start, crash and start again
--
-- What threads on them notice, beside disks and networks: nothing, they are gone.
module Test.Machines (tests) where

import Control.Monad (forever, replicateM, replicateM_, void)
import Data.Maybe (fromMaybe)
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Channel qualified as Channel
import Weft.Event qualified as Event
import Weft.MVar
import Weft.Mutex
import Weft.Ref
import Weft.Scope
import Weft.Sim
import Weft.Timeout (timeout)

tests :: TestTree
tests =
  testGroup
    "Machines"
    [ testCase "a crash takes the threads, and no finalizer runs" noFinalizers,
      testCase "a restart runs the program again" restarted,
      testCase "a crash of what is down, and a start of what is up, are nothing" idle,
      testCase "threads are where they were forked" inherited,
      testCase "what threads elsewhere wait for goes on" others,
      testCase "a thread that is ready when its machine crashes does not run" ready,
      testCase "a failure says on which machine" failing,
      testCase "crashes as a fault script" scripted,
      testCase "a run ends when only crashed threads are left" ends,
      testCase "no schedule wakes a thread that has crashed" explored
    ]

noFinalizers :: Assertion
noFinalizers = do
  result <- simulate 0 inOrder $ do
    said <- newRef []
    let say text = atomicModifyRef_ said (text :)
    m <- newMachine "server"
    boot m ((say "up" >> sleep (seconds 10) >> say "over") `finally` say ("finalizer" :: String))
    sleep (seconds 1)
    crash m
    up <- isUp m
    sleep (seconds 100)
    (up,) . reverse <$> readRef said
  tell result @?= "value (False,[\"up\"])"
  map stuckThread (resultLeft result) @?= []
  fmap problemText (flawless result) @?= Nothing

restarted :: Assertion
restarted = do
  result <- simulate 0 inOrder $ do
    lives <- newRef (0 :: Int)
    m <- newMachine "server"
    boot m (atomicModifyRef_ lives (+ 1) >> forever (sleep (seconds 1)))
    replicateM_ 3 (sleep (seconds 5) >> crash m >> sleep (seconds 1) >> restart m)
    sleep (seconds 1)
    up <- isUp m
    n <- atomicReadRef lives
    pure (up, n)
  tell result @?= "value (True,4)"
  fmap problemText (flawless result) @?= Nothing

idle :: Assertion
idle = do
  result <- simulate 0 inOrder $ do
    lives <- newRef (0 :: Int)
    m <- newMachine "server"
    boot m (atomicModifyRef_ lives (+ 1) >> sleep (seconds 100))
    restart m
    sleep (seconds 1)
    once <- atomicReadRef lives
    crash m
    crash m
    sleep (seconds 1)
    restart m
    restart m
    sleep (seconds 1)
    (once,) <$> atomicReadRef lives
  tell result @?= "value (1,2)"

inherited :: Assertion
inherited = do
  result <- simulate 0 inOrder $ do
    m <- newMachine "server"
    names <- Channel.newUnboundedChannel
    let tellName = thisMachine >>= Channel.send names . machineName
        next = fromMaybe "" <$> Channel.receive names
    tellName
    onMachine m $ do
      tellName
      fork_ tellName
      withScope (\s -> forkIn s tellName >>= awaitChild)
      yield
    tellName
    replicateM 5 next
  tell result @?= "value [\"home\",\"server\",\"server\",\"server\",\"home\"]"

others :: Assertion
others = do
  result <- simulate 0 inOrder $ do
    m <- newMachine "server"
    gone <- newEmptyMVar @Int
    got <- newEmptyMVar @Int
    boot m (sleep (seconds 2) >> putMVar gone 1)
    fork_ (sleep (seconds 3) >> putMVar got 2)
    sleep (seconds 1)
    crash m
    a <- takeMVar got
    b <- timeout (seconds 60) (takeMVar gone)
    pure (a, b)
  tell result @?= "value (2,Nothing)"

-- | It was woken and had not yet run.
ready :: Assertion
ready = do
  result <- simulate 0 inOrder $ do
    ran <- newRef False
    go <- Event.newEvent
    m <- newMachine "server"
    boot m (Event.wait go >> atomicWriteRef ran True)
    sleep (seconds 1)
    Event.set go
    crash m
    sleep (seconds 1)
    atomicReadRef ran
  tell result @?= "value False"

failing :: Assertion
failing = do
  result <- simulate 0 inOrder $ do
    m <- newMachine "server"
    boot m (label "accepting" >> throwM (userError "oops"))
    sleep (seconds 1)
  fmap problemText (flawless result) @?= Just "thread 2 (accepting) on server was ended by an exception: user error (oops)"

scripted :: Assertion
scripted = do
  result <- simulate 0 inOrder {configFaults = [At 1_500_000_000 (Crash "server"), At 2_500_000_000 (Restart "server"), At 3_000_000_000 (Crash "nobody")]} $ do
    log' <- newRef []
    m <- newMachine "server"
    boot m (forever (sleep (seconds 1) >> atomicModifyRef_ log' ('x' :)))
    sleep (milliseconds 4_900)
    readRef log'
  -- At 1 s; and at 3.5 s and 4.5 s.
  tell result @?= "value \"xxx\""

ends :: Assertion
ends = do
  result <- simulate 0 inOrder $ do
    m <- newMachine "server"
    mutex <- newMutex
    boot m (withMutex mutex (sleep (seconds 1000)))
    sleep (seconds 1)
    crash m
  (tell result, resultTime result, length (resultLeft result)) @?= ("value ()", 1_000_000_000, 0)

explored :: Assertion
explored = do
  seen <- within 2 flawless $ do
    ran <- newRef (0 :: Int)
    m <- newMachine "server"
    boot m (replicateM_ 2 (atomicModifyRef_ ran (+ 1)) `finally` atomicModifyRef_ ran (+ 10))
    crash m
    before <- atomicReadRef ran
    yield
    later <- atomicReadRef ran
    void (sleep (seconds 1))
    pure (show (before, later - before))
  outcomesOf seen @?= ["(0,0)", "(1,0)", "(12,0)", "(2,0)"]
