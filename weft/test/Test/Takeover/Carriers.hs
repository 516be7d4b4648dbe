{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : OS threads in reserve, their limit, and the end of a run whose threads are stuck
module Test.Takeover.Carriers (carriers) where

import Control.Concurrent (forkIO, threadDelay)
import Control.Concurrent.MVar
import Control.Exception (BlockedIndefinitelyOnMVar (..), evaluate)
import Control.Monad
import Data.IORef
import Data.List (isInfixOf)
import System.Directory (listDirectory)
import System.Mem (performMajorGC)
import System.Mem.Weak (deRefWeak)
import System.Timeout (timeout)
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Counters (Counters (..), counterReader)
import Weft.Kernel (Kernel (..), Opened (..))

carriers :: TestTree
carriers =
  testGroup
    "Carriers"
    [ testCase "a worker that was slow to start is watched, too" slowStart,
      testGroup
        "threads that block are more than those that may run"
        [testCase (describeConfig config <> ", " <> show n <> " threads") (blockedGrow config n) | config <- [Config Epoll 1, Config Epoll 2], n <- [65, 200]],
      testCase "at the limit it is said once which threads hold the OS threads" limitIsReported,
      testCase "stuck threads all the time: OS threads stay few, and go" carriersAreBounded,
      testCase "the run ends while a thread computes" endsWhileComputing,
      testCase "the run ends when all carriers are stuck" endsAtTheLimit,
      testCase "the run ends at the limit when several threads are stuck" severalAtTheLimit,
      testCase "nothing of a run is kept when its last thread has come back" runIsForgotten,
      testCase "nobody can wake it: GHC's exception reaches it" blockedIndefinitely
    ]

-- | So slow that the monitor has gone to sleep before any worker was awake; and then the
-- worker's thread is stuck before it has ever slept.
slowStart :: IO ()
slowStart = do
  box <- newEmptyMVar
  got <- runWith settings {settingKernel = slow (settingKernel settings)} $ do
    stuck <- spawn (liftIO (takeMVar box))
    yield
    liftIO (putMVar box 'x')
    stuck
  got @?= 'x'
  where
    settings = takenOver (Config Epoll 1)
    slow kernel = kernel {openKernel = fmap late . openKernel kernel}
    late opened = opened {startKernel = \host -> threadDelay 100_000 >> startKernel opened host}

-- | All of them are blocked, and the last of the program's threads runs.
blockedGrow :: Config -> Int -> IO ()
blockedGrow config n = do
  box <- newEmptyMVar
  got <- timeout 60_000_000 . runningWith (takenOver config) $ do
    waits <- replicateM n (spawn (liftIO (readMVar box)))
    yield
    reader <- counterReader
    eventually "carriers" ((>= n - configWorkers config) . countersCarriers <$> reader)
    liftIO (putMVar box ())
    length waits <$ sequence_ waits
  got @?= Just n

-- | Two reports of one state would come within the seconds that its threads take to be
-- cancelled one after the other; the second state is another.
limitIsReported :: IO ()
limitIsReported = do
  box <- newEmptyMVar
  said <- newIORef []
  told <- newEmptyMVar
  let note text = atomicModifyIORef' said (\texts -> (text : texts, ())) >> putMVar told ()
  ended <- newEmptyMVar
  void . forkIO $ do
    got <- timeout 60_000_000 . runWith (takenOver (Config Epoll 1)) {settingCarriers = 5, settingReport = note} $ do
      waits <- replicateM 8 (spawn (label "holder" >> liftIO (readMVar box)))
      sequence_ waits
    putMVar ended got
  -- Nothing of the program can run but what reports it.
  takeMVar told
  putMVar box ()
  takeMVar ended >>= (@?= Just ())
  texts <- readIORef said
  case texts of
    [text] -> do
      assertBool text ("settingCarriers: 6 " `isInfixOf` text)
      assertBool text ("6 threads \"holder\"" `isInfixOf` text && "blocked on an MVar of GHC's, for " `isInfixOf` text)
    _ -> assertFailure (show texts)

-- | Six at a time, thirty times: the number of OS threads has a bound, and comes back
-- to what it was.
carriersAreBounded :: IO ()
carriersAreBounded = do
  (before, most) <- runWith settings $ do
    before <- liftIO osThreads
    most <- liftIO (newIORef 0)
    replicateM_ 30 $ do
      box <- liftIO newEmptyMVar
      waits <- replicateM 6 (spawn (liftIO (readMVar box)))
      yield
      liftIO osThreads >>= \n -> liftIO (modifyIORef' most (max n))
      liftIO (putMVar box ())
      sequence_ waits
    n <- liftIO (readIORef most)
    -- They stay for a second, for the next. (GHC may keep a few OS threads of its own.)
    eventually "OS threads to end" ((<= before + spares) <$> osThreads)
    pure (before, n)
  assertBool (show (before, most) <> ": at most 8 more, as set, and GHC's own") (most <= before + 8 + spares)
  where
    settings = (takenOver (Config Epoll 2)) {settingCarriers = 8}
    spares = 2

osThreads :: IO Int
osThreads = length <$> listDirectory "/proc/self/task"

endsWhileComputing :: IO ()
endsWhileComputing = do
  stop <- newIORef False
  got <- runWith (takenOver (Config Epoll 1)) {settingGrace = milliseconds 1} $ do
    fork_ (liftIO (goOn stop 0))
    yield
    sleep (milliseconds 1)
    pure 'x'
  got @?= 'x'
  writeIORef stop True
  where
    goOn :: IORef Bool -> Integer -> IO ()
    goOn stop n = do
      enough <- readIORef stop
      unless enough (evaluate (sum [n .. n + 10] `mod` 1000) >>= goOn stop)

-- | With no carrier to spare the worker waits for its thread; the caller of the run
-- can still end it.
endsAtTheLimit :: IO ()
endsAtTheLimit = do
  box <- newEmptyMVar
  got <- timeout 100_000 . runWith (settingsFor (Config Epoll 1)) {settingCarriers = 0, settingGrace = milliseconds 1} . liftIO $ takeMVar box
  got @?= (Nothing :: Maybe ())
  putMVar box ()

-- | 'endsAtTheLimit', with more stuck threads in the queue than there are carriers in reserve:
-- the carrier that takes the worker over to stop it runs none of them.
severalAtTheLimit :: IO ()
severalAtTheLimit = do
  box <- newEmptyMVar
  got <- timeout 60_000_000 . runWith (settingsFor (Config Epoll 1)) {settingCarriers = 0, settingGrace = milliseconds 1} $ do
    replicateM_ 5 (fork_ (liftIO (readMVar box)))
    pure 'x'
  putMVar box ()
  got @?= Just 'x'

-- | Threads come back late, or just as the run ends; then the run is garbage.
runIsForgotten :: IO ()
runIsForgotten = do
  runs <- replicateM 5 $ do
    box <- newEmptyMVar
    held <- newIORef ()
    weak <- mkWeakIORef held (pure ())
    let settings = (takenOver (Config Epoll 1)) {settingReport = \_ -> readIORef held, settingGrace = milliseconds 1}
    runWith settings $ do
      -- The first of them stays on the first carrier, which is no C thread's.
      replicateM_ 3 (fork_ (liftIO (readMVar box)))
      sleep (milliseconds 1)
    putMVar box ()
    pure weak
  runWith (takenOver (Config Epoll 1)) . eventually "all to be collected" $ do
    performMajorGC
    all (== Nothing) <$> mapM (fmap void . deRefWeak) runs

blockedIndefinitely :: IO ()
blockedIndefinitely = do
  got <- runWith (takenOver (Config Epoll 1)) $ do
    collector <- spawn (forever (liftIO performMajorGC >> sleep (milliseconds 1)))
    outcome <- try . liftIO $ newEmptyMVar >>= takeMVar
    outcome <$ pure collector
  case got of
    Left BlockedIndefinitelyOnMVar -> pure ()
    Right () -> assertFailure "nobody filled it"
