-- |
-- Description : Exceptions of GHC's that are thrown at a worker
--
-- A worker is one thread of GHC's that runs many of Weft's. What a program throws at it
-- (Note [Strays] in "Weft.Internal.Core.Scheduler.Takeover") must neither end the run nor hurt a thread
-- that does not run, must still do its work inside one effect, and must never be lost.
module Test.Strays (tests) where

import Control.Concurrent (ThreadId, forkIO, myThreadId, newEmptyMVar, putMVar, takeMVar, tryTakeMVar)
import Control.Concurrent qualified as Concurrent
import Control.Exception
import Control.Monad
import Data.IORef
import Data.List (isInfixOf, nub, stripPrefix, tails, (\\))
import Data.Maybe (isJust)
import Data.Set qualified as Set
import GHC.Conc (BlockReason (..), ThreadStatus (..), threadStatus)
import System.Timeout qualified as Ghc
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft (BackendChoice (Epoll), Settings (..), liftIO)
import Weft qualified
import Weft.Counters (WorkerCounters (..), counters, total)
import Weft.IO (CannotSuspend, await, direct, sleep, yield)
import Weft.Kernel (Outcome (..), deliver, suspend)
import Weft.MVar qualified as Weft

tests :: TestTree
tests =
  testGroup
    "Exceptions of GHC's, thrown at a worker"
    [ testGroup
        "while it sleeps: reported, and nobody is hurt"
        [ testCase (describeConfig c <> name) (asleep c run')
          | c <- configurations,
            (name, run') <- [(", a direct thread waits", direct . await), (", a monadic one waits", id)]
        ],
      testCase "a time limit of GHC's ends the effect that it is around" (limits liftIO),
      testCase "and the segment of a direct thread" (limits direct),
      testCase "a time limit that has passed while its thread waited hurts nobody" overdue,
      testGroup
        "a direct thread that is hit runs its finalizers"
        [ testCase name (finalized act)
          | (name, act) <-
              [ ("at a yield", yield),
                ("at an await", await (pure ())),
                ("at a sleep", sleep mempty),
                ("at a masked await", mask_ (await Weft.yield))
              ]
        ],
      testCase "effects, and what they fork, are not masked" masking,
      testGroup "none is lost, whatever runs" [testCase (describeConfig c) (bombarded c) | c <- configurations],
      testGroup "at carriers that come and go" [testCase (describeConfig c) (relieved c) | c <- configurations]
    ]

newtype Boom = Boom Int
  deriving stock (Eq, Show)

instance Exception Boom

-- | Run with a list of what was reported. No carrier takes a worker over: on a loaded machine the
-- thread that 'asleep' throws at could lose its worker to another, and end.
reporting :: Config -> ([String] -> a -> Assertion) -> Weft.Thread a -> Assertion
reporting config verdict body = do
  said <- newIORef []
  a <- Weft.runWith (settingsFor config) {settingCarriers = 0, settingReport = \text -> atomicModifyIORef' said (\l -> (text : l, ()))} body
  reports <- reverse <$> readIORef said
  verdict reports a

-- | Wait until this thread of GHC's is found in this state.
untilStatus :: (ThreadStatus -> Bool) -> ThreadId -> IO ()
untilStatus wanted thread = do
  status <- threadStatus thread
  unless (wanted status) (Concurrent.yield >> untilStatus wanted thread)

-- | An exception thrown at a thread of another capability is first a message to that one. Wait
-- until it has been read there: a capability reads all its messages before it runs a thread
-- that was sent to it.
untilArrived :: ThreadId -> IO ()
untilArrived thread = do
  (capability, _) <- Concurrent.threadCapability thread
  ran <- newEmptyMVar
  _ <- Concurrent.forkOn capability (putMVar ran ())
  takeMVar ran

-- | The thread waits, its worker sleeps in a poll; then another thread throws at the worker, and
-- only after that has been thrown is the thread woken.
asleep :: Config -> (Weft.Thread () -> Weft.Thread ()) -> Assertion
asleep config waiting = reporting config verdict $ do
  here <- liftIO newEmptyMVar
  thrown <- liftIO newEmptyMVar
  waiting $ do
    liftIO (myThreadId >>= putMVar here)
    suspend "the test" $ \waiter -> void . forkIO $ do
      worker <- takeMVar here
      untilStatus (== ThreadBlocked BlockedOnForeignCall) worker
      thrower <- forkIO (throwTo worker (Boom 1) >> putMVar thrown ())
      -- A message of another worker's start may have woken this one meanwhile: then it has arrived.
      untilStatus (`elem` [ThreadBlocked BlockedOnException, ThreadFinished]) thrower
      untilArrived worker
      void (deliver waiter (Answered ()))
  -- The worker has taken another turn since.
  Weft.yield
  liftIO (takeMVar thrown)
  where
    verdict reports () = case reports of
      [text] -> assertBool text ("Boom 1" `isInfixOf` text && "thrown at a worker" `isInfixOf` text)
      _ -> assertFailure (show reports)

limits :: (forall a. IO a -> Weft.Thread a) -> Assertion
limits perform =
  reporting (Config Epoll 1) (\reports result -> (reports, result) @?= ([], Nothing)) $
    perform (Ghc.timeout 1_000 (forever (newIORef () >>= evaluate) :: IO ()))

-- | The thread's time limit passes while another computes and the thread itself waits.
-- Where the exception arrives is not known: at the worker itself (reported), or in the
-- other thread, whose own it may be. The first one always goes on.
overdue :: Assertion
overdue = reporting (Config Epoll 1) verdict $ do
  result <- Weft.newEmptyMVar
  done <- Weft.newEmptyMVar
  _ <- Weft.fork . direct $ do
    outcome <- Ghc.timeout 1_000 (await (Weft.takeMVar result))
    await (Weft.putMVar done outcome)
  -- Runs until the limit has passed for sure.
  passed <- liftIO newEmptyMVar
  _ <- liftIO . forkIO $ Concurrent.threadDelay 5_000 >> putMVar passed ()
  let wait = do
        over <- liftIO (isJust <$> tryTakeMVar passed) `Weft.catch` \(_ :: SomeException) -> pure False
        unless over (Weft.yield >> wait)
  wait
  (Weft.putMVar result 'a' >> Weft.takeMVar done) `Weft.catch` \(_ :: SomeException) -> Weft.takeMVar done
  where
    -- If the limit arrives in the thread's own segment it is its own.
    verdict _ outcome = assertBool (show outcome) (outcome `elem` [Just 'a', Nothing])

-- | The limit passes while the thread suspends and goes on, or at the worker between. Its
-- continuation is dropped in neither case: Note [Continuations are held or entered] in
-- "Weft.Internal.Core.Direct".
finalized :: IO () -> Assertion
finalized act = do
  reported <- newIORef False
  missed <- newIORef (0 :: Int)
  let untilReported = readIORef reported >>= \over -> unless over (act >> untilReported)
      settings = (settingsFor (Config Epoll 1)) {settingCarriers = 0, settingReport = \_ -> writeIORef reported True}
  Weft.runWith settings . replicateM_ 250 $ do
    liftIO (writeIORef reported False)
    final <- liftIO (newIORef False)
    ended <- Weft.newEmptyMVar
    Weft.fork_ $ do
      direct (void (Ghc.timeout 300 untilReported `finally` writeIORef final True)) `Weft.catch` \(_ :: SomeException) -> pure ()
      Weft.putMVar ended ()
    -- It may be in what this one does between two waits, too.
    let wait = Weft.takeMVar ended `Weft.catch` \(_ :: SomeException) -> wait
    wait
    liftIO (readIORef final >>= \ran -> unless ran (modifyIORef' missed (+ 1)))
  readIORef missed >>= (@?= 0)

masking :: Assertion
masking = reporting (Config Epoll 1) (\reports states -> (reports, states) @?= ([], replicate 4 Unmasked)) $ do
  effect <- liftIO getMaskingState
  child <- liftIO $ do
    box <- newEmptyMVar
    _ <- forkIO (getMaskingState >>= putMVar box)
    takeMVar box
  segment <- direct getMaskingState
  resumed <- direct (await Weft.yield >> getMaskingState)
  pure [effect, child, segment, resumed]

-- | Threads of every kind run, suspend, mask and recover while one of GHC's throws at their
-- worker, the next when the last has arrived: in a thread, or at the worker. Each does.
bombarded :: Config -> Assertion
bombarded config = do
  arrived <- newIORef []
  over <- newIORef False
  target <- newIORef Nothing
  let note n = atomicModifyIORef' arrived (\l -> (n : l, ()))
      noted e = mapM_ (\(Boom n) -> note n) (fromException e)
      publish = myThreadId >>= writeIORef target . Just
      bodies =
        [ direct (untilOver (publish >> await Weft.yield)),
          direct (untilOver (mask_ (await Weft.yield >> await Weft.yield))),
          direct (untilOver (mask (\restore -> restore (await Weft.yield) `finally` await Weft.yield))),
          -- It fails where something is pending, and that comes after the mask.
          direct (untilOver (uninterruptibleMask_ (await Weft.yield `catch` \e -> void (evaluate (e :: CannotSuspend))))),
          computing
        ]
      untilOver act = mask $ \restore ->
        let loop = do
              stop <- readIORef over
              unless stop (restore act `catch` (noted :: SomeException -> IO ()) >> loop)
         in loop
      -- Another takes its place when it has been hit between two handlers.
      computing = do
        stop <- liftIO (readIORef over) `Weft.catch` hit
        unless stop $ do
          _ <- (False <$ liftIO (evaluate (sum [1 .. 50 :: Int]))) `Weft.catch` hit
          Weft.yield
          computing
      hit (Boom n) = False <$ liftIO (note n)
      thrower = do
        forM_ [1 .. count] $ \n -> do
          untilIt (isJust <$> readIORef target)
          readIORef target >>= mapM_ (`throwTo` Boom n)
          untilIt (elem n . take 1 <$> readIORef arrived)
        writeIORef over True
      untilIt condition = condition >>= \met -> unless met (Concurrent.yield >> untilIt condition)
      -- No carrier ends before the run: what is thrown at one that has ended arrives nowhere.
      settings =
        (settingsFor config)
          { settingCarriers = 0,
            settingReport = mapM_ note . thrownIn,
            settingUncaught = \_ _ e -> noted e
          }
  -- The main thread performs no effects: it cannot be hit. It keeps all workers awake: one
  -- that sleeps hears nothing before it wakes.
  Weft.runWith settings $ do
    done <- Weft.newEmptyMVar
    mapM_ Weft.fork_ bodies
    Weft.fork_ $ suspend "the thrower" (\waiter -> void (forkIO (thrower >> void (deliver waiter (Answered ()))))) >> Weft.putMVar done ()
    let wait = Weft.tryTakeMVar done >>= maybe (knock >> Weft.yield >> wait) pure
        knock = forM_ [0 .. configWorkers config - 1] $ \i ->
          Weft.forkWith Weft.defaultForkOptions {Weft.forkWorker = Just i} (pure ())
    wait
  readIORef arrived >>= (@?= [1 .. count]) . reverse
  where
    count = 150 :: Int

-- | Threads block in effects, masked or not, so that their workers are taken over again and
-- again, while others throw at every carrier there has been: in an effect, on its way out
-- of its worker, in the reserve, when it begins. The run goes on to its end. Everything that is
-- thrown arrives in a thread, or is reported, or its carrier has ended; nothing twice.
relieved :: Config -> Assertion
relieved config = do
  arrived <- newIORef []
  over <- newIORef False
  targets <- newIORef Set.empty
  numbers <- newIORef (0 :: Int)
  let note n = atomicModifyIORef' arrived (\l -> (n : l, ()))
      noted e = mapM_ (\(Boom n) -> note n) (fromException e)
      publish = myThreadId >>= \me -> atomicModifyIORef' targets (\ts -> (Set.insert me ts, ()))
      stuck = publish >> uninterruptibleMask_ (Concurrent.threadDelay 6_000)
      -- Masked but for what it does to be hit.
      body (exposed, act) = Weft.mask $ \restore ->
        let loop = do
              stop <- liftIO (readIORef over)
              unless stop $ ((if exposed then restore act else act) `Weft.catch` \e -> liftIO (noted (e :: SomeException))) >> Weft.yield >> loop
         in loop
      kinds = [(True, liftIO stuck), (True, direct stuck), (False, liftIO stuck), (True, direct (await Weft.yield >> uninterruptibleMask_ stuck))]
      throwing left = unless (left == (0 :: Int)) $ do
        known <- Set.toList <$> readIORef targets
        n <- atomicModifyIORef' numbers (\n -> (n + 1, n + 1))
        case known of
          [] -> Concurrent.yield >> throwing left
          _ -> do
            let target = known !! (n * 7 `mod` length known)
            throwTo target (Boom n)
            status <- threadStatus target
            if status `elem` [ThreadFinished, ThreadDied]
              then atomicModifyIORef' targets (\ts -> (Set.delete target ts, ())) >> throwing left
              else throwing (left - 1)
      settings =
        (takenOver config)
          { settingReport = mapM_ note . thrownIn,
            settingUncaught = \_ _ e -> noted e
          }
  Weft.runWith settings $ do
    dones <- replicateM 6 Weft.newEmptyMVar
    forM_ (zip dones (cycle kinds)) $ \(done, act) -> Weft.fork_ (body act >> Weft.putMVar done ())
    -- Until enough have arrived while carriers came and went.
    let rounds = do
          suspend "the throwers" $ \waiter -> void . forkIO $ do
            ends <- replicateM 4 $ do
              end <- newEmptyMVar
              end <$ forkIO (throwing 100 >> putMVar end ())
            mapM_ takeMVar ends
            void (deliver waiter (Answered ()))
          takeovers <- countedTakeovers . total <$> counters
          found <- liftIO (readIORef arrived)
          unless (takeovers > 5 && length found > 50) rounds
    rounds
    liftIO (writeIORef over True)
    mapM_ Weft.takeMVar dones
  found <- readIORef arrived
  assertBool ("arrived twice: " <> show (found \\ nub found)) (length found == length (nub found))

-- | The exceptions that a report speaks of.
thrownIn :: String -> [Int]
thrownIn text = [n | rest <- tails text, Just digits <- [stripPrefix "Boom " rest], (n, _) <- reads digits]
