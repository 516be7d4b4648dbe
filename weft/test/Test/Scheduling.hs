{-# LANGUAGE GADTs #-}

-- |
-- Description : Which thread runs when
--
-- Litmus programs with every allowed outcome, fairness, policies (the library's
-- and a user's own) against models, the ring against a list, and the inbox under
-- several writers. Work that moves is in "Test.Scheduling.Workers".
module Test.Scheduling (tests) where

import Control.Concurrent (forkOS)
import Control.Concurrent.MVar
import Control.Monad (forM, forM_, forever, replicateM, replicateM_, unless, void, when)
import Data.IORef
import Data.List (minimumBy, permutations, sort)
import Data.Ord (comparing)
import Policies (lastInFirstOut)
import System.IO.Unsafe (unsafePerformIO)
import System.Mem (getAllocationCounter)
import Test.QuickCheck.Monadic (monadicIO)
import Test.QuickCheck.Monadic qualified as Q
import Test.Scheduling.Workers (workers)
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck hiding (label)
import Weft hiding (myThreadId)
import Weft.Channel (Channel, newChannel, tryReceive)
import Weft.Internal.Core.Policy (newReadyQueue, popAny, push, size, takeSome)
import Weft.Internal.Core.Ring
import Weft.Internal.Core.SystemCall (Socket (..))
import Weft.Internal.Core.Trace (Context (..), Identity (..), Status (..), Trace (Done, Parked), newTcb, rootContext, tcbNumber)
import Weft.Internal.Data.Cell (newCell)
import Weft.Internal.Data.Inbox
import Weft.Internal.Os.Descriptor (newDescriptor)
import Weft.Kernel
import Weft.MVar qualified as Weft
import Weft.Mask (mask_)
import Weft.Mutex
import Weft.Policy
import Weft.Socket (Family (..), SocketType (..), awaitReadable, awaitWritable)

tests :: TestTree
tests =
  testGroup
    "Scheduling"
    [ testGroup "litmus" litmus,
      testGroup "fairness" fairness,
      testGroup "policies" policies,
      testGroup "ring" [testProperty "is a queue, across chunks" ringModel],
      testProperty "threads that may not move are passed over only if one is taken" takesSome,
      testGroup "inbox" [testCase "no message is lost and no wake-up is missed" inboxStress],
      workers
    ]

-- | The log of a program under some settings, when it has ended.
logOf :: Settings -> ((String -> Thread ()) -> Thread ()) -> IO [String]
logOf settings program = do
  events <- newIORef []
  runWith settings (program (\what -> liftIO (atomicModifyIORef' events (\es -> (what : es, ())))))
  reverse <$> readIORef events

one :: Settings
one = settingsFor (Config Epoll 1)

-- | The log of a program must be one of these.
allowed :: TestName -> [[String]] -> Settings -> ((String -> Thread ()) -> Thread ()) -> TestTree
allowed name outcomes settings program = testCase name $ do
  got <- logOf settings program
  assertBool (show got <> " is not one of " <> show outcomes) (got `elem` outcomes)

-- * Litmus

litmus :: [TestTree]
litmus =
  [ testGroup
      "with little fuel a thread gets on all the same"
      [ allowed (show fuel) [["effect", "caught", "called"]] one {settingFuel = fuel} $ \say -> do
          say "effect"
          throwM (userError "x") `catch` \(_ :: IOError) -> say "caught"
          _ <- workerCount
          say "called"
        | fuel <- [minBound, 0, 1, 2, 3]
      ],
    testGroup
      "with little fuel a thread that is cancelled and masked gets on all the same"
      [ allowed (show fuel) [["through", "waited"]] one {settingFuel = fuel} $ \say -> do
          child <- mask_ (fork (replicateM_ 50 (liftIO (pure ())) >> say "through"))
          cancel child
          replicateM_ 500 yield
          say "waited"
        | fuel <- [1 .. 8]
      ],
    allowed "a child does not run before its parent waits" [["parent", "child"]] one $ \say -> do
      fork_ (say "child")
      say "parent"
      yield,
    allowed "children run in the order of forking" [["1", "2", "3"]] one $ \say -> do
      forM_ [1 .. 3 :: Int] (fork_ . say . show)
      yield,
    allowed "yields take turns" [["a1", "b1", "a2", "b2"]] one $ \say -> do
      fork_ (say "a1" >> yield >> say "a2")
      fork_ (say "b1" >> yield >> say "b2")
      replicateM_ 3 yield,
    allowed "a grandchild comes after the children" [["child", "sister", "grandchild"]] one $ \say -> do
      fork_ (say "child" >> fork_ (say "grandchild"))
      fork_ (say "sister")
      replicateM_ 3 yield,
    allowed "effects between two system calls are not interleaved" [["a", "a", "b", "b"]] one $ \say -> do
      fork_ (say "a" >> say "a")
      fork_ (say "b" >> say "b")
      yield,
    allowed "a thread that is woken goes to the end" [["woke", "other", "sleeper"], ["other", "woke", "sleeper"]] one $ \say -> do
      gate <- newGate
      wait <- spawn (waitGate gate >> say "sleeper")
      yield
      openGate gate ()
      fork_ (say "other")
      say "woke"
      wait,
    allowed "the run ends with its main thread" [["main"]] one $ \say -> do
      fork_ (forever yield)
      fork_ (sleep (seconds 1000) >> say "never")
      yield
      say "main",
    allowed "two workers: any order, nothing lost" (permutations ["here", "there", "main"]) (settingsFor (Config Epoll 2)) $ \say -> do
      here <- spawnOn (Just 0) (say "here")
      there <- spawnOn (Just 1) (say "there")
      say "main"
      here >> there
  ]

-- * Fairness

-- | In each a thread that never stops runs beside one that must get through.
fairness :: [TestTree]
fairness =
  [ testCase name . forM_ [Config Epoll 1, Config Uring 1, Config Poll 1] $ \config ->
      running config $ do
        hogs <- liftIO (newIORef (0 :: Int))
        replicateM_ 2 (fork_ (hog hogs))
        sleep (milliseconds 2)
        (r, w) <- socketPairs
        fork_ (sleep (milliseconds 1) >> w)
        r
        rounds <- liftIO (readIORef hogs)
        liftIO (assertBool "the others ran too" (rounds > 0))
    | (name, hog) <- hogs'
  ]
  where
    hogs' =
      [ ("yielding for ever does not starve timers and wake-ups", \n -> forever (count n >> yield)),
        ("effects without end do not either (fuel)", forever . count),
        ("nor calls that are answered at once", \n -> forever (count n >> workerCount)),
        ("nor exceptions that are thrown and caught without end", \n -> forever (count n >> (throwM (userError "again") `catch` \(_ :: IOError) -> pure ()))),
        ("nor exceptions out of effects", \n -> forever (count n >> (liftIO (ioError (userError "again")) `catch` \(_ :: IOError) -> pure ()))),
        ("nor a thread that forks without end", \n -> let brood = count n >> fork_ (pure ()) >> brood in brood),
        ("nor masks without end", \n -> forever (mask (\restore -> restore (count n)))),
        ("nor taking and putting without end", \n -> count n >> Weft.newMVar () >>= \v -> forever (Weft.takeMVar v >>= Weft.putMVar v)),
        ("nor locking and unlocking without end", \n -> count n >> newMutex >>= \m -> forever (lock m >> unlock m)),
        ("nor looking for values without end", \n -> count n >> newChannel 1 >>= \c -> forever (tryReceive (c :: Channel ())))
      ]
    count n = liftIO (modifyIORef' n (+ 1))
    socketPairs = do
      gate <- newGate
      pure (waitGate gate, openGate gate ())

-- * Policies

policies :: [TestTree]
policies =
  [ testGroup
      "each gives back every thread once, in its order"
      [ testProperty name (queueModel policy key)
        | (name, policy, key) <-
            [ ("fifo", fifo, \_ _ _ -> 0),
              ("priorities", priorities, \_ p _ -> p),
              ("favourConnections", favourConnections, \why _ _ -> if why == Accepted then 1 else 0),
              ("favourAccepting", favourAccepting, \why _ _ -> if why == Accepted then 0 else 1),
              ("bands", bands "three" 3 (\_ tcb -> tcbPriority tcb), \_ p _ -> max 0 (min 2 p)),
              ("a user's own, last in first out", lastInFirstOut, \_ _ n -> negate n)
            ]
      ],
    testCase "an emptied level makes no ring for the next, and few are kept" ringsReused,
    allowed "priorities: the most urgent first, whenever it was forked" [["-1", "0", "5", "7"]] one {settingPolicy = priorities} $ \say -> do
      forM_ [7, 0, 5, -1] $ \p ->
        void (forkWith defaultForkOptions {forkPriority = Just p} (myPriority >>= say . show))
      setPriority 100
      yield,
    allowed "a user's own policy runs a program" [["3", "2", "1"]] one {settingPolicy = lastInFirstOut} $ \say -> do
      waits <- forM [1 .. 3 :: Int] (spawn . say . show)
      sequence_ waits,
    allowed "favourConnections: new connections wait" [["connection", "connection", "accept", "accept"]] (scripted favourConnections) knot,
    allowed "favourAccepting: new connections first" [["accept", "accept", "connection", "connection"]] (scripted favourAccepting) knot,
    allowed "fifo: as they come" [["accept", "connection", "accept", "connection"]] (scripted fifo) knot
  ]
  where
    scripted policy = (settingsFor (Config Poll 1)) {settingPolicy = policy, settingKernel = scriptedKernel}

-- | Two threads whose accept succeeds and two whose receive completes, in turn.
knot :: (String -> Thread ()) -> Thread ()
knot say = do
  s <- liftIO (Socket <$> newDescriptor (-1) <*> pure AF_UNIX <*> pure Stream)
  done <- newGate
  left <- liftIO (newIORef (4 :: Int))
  let finish = do
        n <- liftIO (atomicModifyIORef' left (\n -> (n - 1, n - 1)))
        when (n == 0) (openGate done ())
  forM_ [1 :: Int, 2] $ \_ -> do
    fork_ (awaitWritable s >> say "accept" >> finish)
    fork_ (awaitReadable s >> say "connection" >> finish)
  waitGate done

-- | A kernel in which everything completes at once: writable as a connection that
-- was accepted, readable as an operation on one.
scriptedKernel :: Kernel
scriptedKernel =
  Kernel
    { kernelName = "scripted",
      openKernel = \_ -> pure Opened {startKernel = start, openedGauges = pure mempty, closeKernel = pure ()}
    }
  where
    start host = do
      bell <- newEmptyMVar
      pure
        Instance
          { instanceAnswer = AnswerCall $ \tcb request' k -> case request' of
              AwaitWritable _ -> Parked <$ hostReady host Accepted tcb k
              AwaitReadable _ -> Parked <$ hostReady host Completed tcb k
              Suspend _ action -> answerSuspend host request' action tcb k
              other -> fail ("not in the script: " <> describe other),
            instancePoll = \mayBlock -> False <$ when mayBlock (takeMVar bell),
            instanceAdopt = pure (),
            instanceWaits = \_ r -> pure r,
            instanceInterrupt = pure (),
            instanceQuiet = pure False,
            instanceGauges = pure mempty,
            instanceWake = void (tryPutMVar bell ()),
            instanceStop = pure ()
          }

-- | Enqueue for a reason with a priority, or dequeue.
data Operation = Enqueue Why Int | Dequeue
  deriving stock (Show)

instance Arbitrary Operation where
  arbitrary = oneof [Enqueue <$> arbitraryBoundedEnum <*> choose (-2, 3), pure Dequeue]

-- | A policy against a bag from which the smallest key is taken, the earliest
-- among equals.
queueModel :: Policy -> (Why -> Int -> Int -> Int) -> [Operation] -> Property
queueModel policy key operations = monadicIO $ do
  queue <- Q.run (newReadyQueue policy)
  let go _ [] [] = pure ()
      -- At the end everything that is left is taken.
      go n bag [] = go n bag [Dequeue]
      go n bag (Enqueue why p : rest) = do
        Q.run (push queue why (newTcb (numbered n) rootContext {contextPriority = p}) (const Done))
        go (n + 1) ((key why p n, n) : bag) rest
      go n bag (Dequeue : rest) = do
        got <- Q.run (fmap (\(Ready tcb _) -> tcbNumber tcb) <$> popAny queue)
        let wanted = if null bag then Nothing else Just (minimumBy (comparing id) bag)
        Q.monitor (counterexample (show (got, wanted)))
        Q.assert (got == fmap snd wanted)
        let bag' = filter (\x -> Just x /= wanted) bag
        left <- Q.run (size queue)
        Q.assert (left == length bag')
        go n bag' rest
  go 1 [] operations

-- | In allocated bytes: a ring has more than 2,000.
ringsReused :: Assertion
ringsReused = do
  later <- queueOf priorities
  -- Each is more urgent than those before, and the queue is drained after each.
  drained <- bytesOf (mapM_ (\r -> later [(Woken, r)] 1) (threads 1_000))
  drained < 1_000_000 @? "after each thread: " <> show drained
  -- All at once: most of their rings are dropped again.
  bursts <- replicateM 2 (bytesOf (later (map (Woken,) (threads 1_000)) 1_000))
  all (> 1_900_000) bursts @? "bursts: " <> show bursts
  connections <- queueOf favourConnections
  let r = Ready (newTcb (numbered 1) rootContext) (const Done)
  connections [(Accepted, r)] 0
  -- Both bands are emptied again and again, but not the queue.
  served <- bytesOf (replicateM_ 1_000 (connections [(Woken, r), (Accepted, r)] 2))
  served < 1_000_000 @? "bands: " <> show served
  where
    threads :: Int -> [Ready]
    threads n = [Ready (newTcb (numbered i) rootContext {contextPriority = negate i}) (const Done) | i <- [1 .. n]]
    -- Put these into the queue, then take this many.
    queueOf policy = do
      queue <- newReadyQueue policy
      pure $ \new n -> do
        forM_ new (\(why, Ready tcb resume) -> push queue why tcb resume)
        taken <- replicateM n (popAny queue)
        length (concatMap (foldMap pure) taken) @?= n
    bytesOf act = do
      before <- getAllocationCounter
      () <- act
      subtract <$> getAllocationCounter <*> pure before

-- | Of the threads at the front those with a multiple of a number are taken, if there is one of them. Otherwise no thread has
-- changed its place.
takesSome :: NonNegative Int -> NonNegative Int -> Positive Int -> NonNegative Int -> Property
takesSome (NonNegative before) (NonNegative many) (Positive every) (NonNegative part) = checkCoverage . cover 20 (null taken) "none" . cover 10 (not (null taken) && most < length threads) "some, of a part" . monadicIO $ do
  queue <- Q.run (newReadyQueue fifo)
  Q.run (forM_ (replicate before 1 <> threads) $ \i -> push queue Woken (newTcb (numbered i) rootContext) (const Done))
  -- So that the first chunk is not begun at its start.
  _ <- Q.run (replicateM before (popAny queue))
  got <- Q.run (takeSome queue most (pure . isTaken . tcbNumber))
  left <- Q.run (replicateM (length threads - length got) (popAny queue))
  let numbers = map (\(Ready tcb _) -> tcbNumber tcb)
      rest = if null taken then threads else drop most threads <> filter (not . isTaken) (take most threads)
  Q.monitor (counterexample (show (numbers got, concatMap (numbers . foldMap pure) left)))
  Q.assert (numbers got == taken && concatMap (numbers . foldMap pure) left == rest)
  where
    threads = [1 .. 1 + 5 * many]
    most = min (3 * part) (length threads)
    isTaken i = i `rem` (2 * every) == 0
    taken = filter isTaken (take most threads)

-- * Ring

-- | Bursts of pushes (positive) and pops (negative), long enough to cross chunks.
ringModel :: Property
ringModel = forAll (listOf (choose (-300, 300))) $ \bursts -> checkCoverage . cover 30 (sum (filter (> 0) bursts) > 500) "several chunks" . monadicIO $ do
  ring <- Q.run newRing
  let go _ model [] = do
        shown <- Q.run (foldRing (\ns tcb -> tcbNumber tcb : ns) [] ring)
        Q.assert (reverse shown == model)
      go n model (b : rest)
        | b >= 0 = do
            Q.run (forM_ [n .. n + b - 1] $ \i -> pushRing ring (newTcb (numbered i) rootContext) (const Done))
            check n b (model <> [n .. n + b - 1]) rest
        | otherwise = do
            got <- Q.run (replicateM (negate b) (popRing ring (pure Nothing) (\tcb _ -> pure (Just (tcbNumber tcb)))))
            let (front, back) = splitAt (negate b) model
            Q.assert (got == map Just front <> replicate (negate b - length front) Nothing)
            check n 0 back rest
      check n b model rest = do
        s <- Q.run (sizeRing ring)
        Q.assert (s == length model)
        go (n + b) model rest
  go (1 :: Int) [] bursts

-- * Inbox

-- | Several OS threads post; the reader blocks whenever it may. A wake-up that
-- was lost would leave it blocked for ever.
inboxStress :: Assertion
inboxStress = do
  inbox <- newInbox
  bell <- newEmptyMVar
  received <- newIORef []
  wakes <- newIORef (0 :: Int)
  sleeps <- newIORef (0 :: Int)
  forM_ [1 .. writers] $ \w -> forkOS . forM_ [1 .. messages] $ \m ->
    post inbox (atomicModifyIORef' wakes (\n -> (n + 1, ())) >> void (tryPutMVar bell ())) (modifyIORef' received ((w, m) :))
  let loop = do
        drain inbox
        n <- length <$> readIORef received
        unless (n == writers * messages) $ do
          mayBlock <- trySleep inbox
          when mayBlock $ do
            modifyIORef' sleeps (+ 1)
            takeMVar bell
            void (awake inbox)
          loop
  loop
  got <- reverse <$> readIORef received
  sort got @?= [(w, m) | w <- [1 .. writers], m <- [1 .. messages]]
  forM_ [1 .. writers] $ \w -> [m | (w', m) <- got, w' == w] @?= [1 .. messages]
  slept <- readIORef sleeps
  woken <- readIORef wakes
  assertBool ("one sleep costs at most one wake-up: " <> show (slept, woken)) (woken <= slept)
  where
    writers = 3 :: Int
    messages = 300 :: Int

-- | An identity with this number, of no thread that runs.
numbered :: Int -> Identity
numbered n = unsafePerformIO (Identity n <$> newCell Ended)
{-# NOINLINE numbered #-}
