{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Machines that start, crash and start again
--
-- Threads on a machine that crashes, beside disks and networks: they are gone without notice.
module Test.Machines (tests) where

import Control.Monad (forever, replicateM, replicateM_, void)
import Data.IORef
import Data.Maybe (fromMaybe)
import Data.Set qualified as Set
import Data.Text qualified as Text
import Network.Socket (tupleToHostAddress)
import System.IO.Unsafe (unsafePerformIO)
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
      testCase "the code of a thread that is ready when its machine crashes is not evaluated" unevaluated,
      testCase "a failure says on which machine" failing,
      testCase "crashes as a fault script" scripted,
      testCase "a run ends when only crashed threads are left" ends,
      testCase "no schedule wakes a thread that has crashed" explored,
      testCase "faults of one instant happen in the order of the script" oneInstant,
      testCase "the main thread crashes with the machine it is on, and the report says so" mainCrashes,
      testCase "a machine that is down starts its program when it is up" bootedWhileDown,
      testCase "no program starts when the run closes" restartedAtTheEnd,
      testCase "a hundred thousand machines have as many addresses" manyAddresses
    ]

oneInstant :: Assertion
oneInstant = do
  up <- mapM (isUpBehind [Crash "server", Restart "server"]) [0 .. 9]
  up @?= replicate 10 "value True"
  down <- mapM (isUpBehind [Restart "server", Crash "server"]) [0 .. 9]
  down @?= replicate 10 "value False"
  where
    isUpBehind faults seed = fmap tell . simulate seed defaultConfig {configFaults = map (At 1_000_000) faults} $ do
      m <- newMachine "server"
      boot m (pure ())
      sleep (seconds 1)
      isUp m

mainCrashes :: Assertion
mainCrashes = do
  dead <- simulate 0 inOrder (newMachine "server" >>= \m -> onMachine m (crash m))
  fmap problemText (flawless dead) @?= Just "the main thread was on a machine that has crashed, and nothing can ever happen any more"
  others' <- simulate 0 inOrder {configMaxTime = seconds 10} $ do
    m <- newMachine "server"
    fork_ (forever (sleep (seconds 1)))
    onMachine m (crash m)
  fmap problemText (flawless others') @?= Just "the run was not over in the time it was given: the main thread was on a machine that has crashed"
  slow <- simulate 0 inOrder {configMaxTime = seconds 10} (sleep (seconds 100))
  fmap problemText (flawless slow) @?= Just "the run was not over in the time it was given"

bootedWhileDown :: Assertion
bootedWhileDown = do
  result <- simulate 0 inOrder $ do
    starts <- newRef (0 :: Int)
    m <- newMachine "server"
    crash m
    boot m (atomicModifyRef_ starts (+ 1))
    sleep (seconds 1)
    before <- atomicReadRef starts
    restart m
    sleep (seconds 1)
    (before,) <$> atomicReadRef starts
  tell result @?= "value (0,1)"

restartedAtTheEnd :: Assertion
restartedAtTheEnd = do
  -- The machine starts while a finalizer still runs.
  result <- simulate 0 inOrder {configFaults = [At 2_000_000_000 (Crash "server"), At 4_000_000_000 (Restart "server")]} $ do
    m <- newMachine "server"
    boot m (forever (sleep (seconds 1)))
    fork_ (sleep (seconds 100) `finally` sleep (seconds 2))
    sleep (seconds 3)
  (tell result, resultTime result) @?= ("value ()", 5_000_000_000)
  fmap problemText (flawless result) @?= Nothing

manyAddresses :: Assertion
manyAddresses = do
  result <- simulate 0 inOrder $ do
    addresses <- map machineAddress <$> mapM (newMachine . Text.pack . show) [1 .. 100_000 :: Int]
    pure (Set.size (Set.fromList addresses), take 1 addresses == [tupleToHostAddress (10, 0, 0, 2)], last addresses == tupleToHostAddress (10, 1, 134, 161))
  tell result @?= "value (100000,True,True)"

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

unevaluated :: Assertion
unevaluated = do
  looked <- newIORef False
  result <- simulate 0 inOrder $ do
    go <- Event.newEvent
    m <- newMachine "server"
    boot m (Event.wait go >>= \u -> unsafePerformIO (writeIORef looked (u == ())) `seq` pure u)
    sleep (seconds 1)
    Event.set go
    crash m
    sleep (seconds 1)
  tell result @?= "value ()"
  readIORef looked >>= (@?= False)

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
