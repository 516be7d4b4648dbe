-- |
-- Description : Cancellation against hand-over
--
-- Threads that lock, take, acquire, send and receive in a loop while another cancels
-- them at random, over and over. What they have done is counted: no mutex, value or
-- permit is lost or doubled, and in the end no queue has an entry.
module Weft.Conformance.Handover (handover) where

import Control.Exception (Exception)
import Control.Monad (forM, replicateM_, unless, void, when)
import Data.IORef
import Data.List (sort)
import Data.Primitive.MutVar (readMutVar)
import Data.Primitive.PrimVar (readPrimVar)
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Channel qualified as Channel
import Weft.Conformance.Check
import Weft.Conformance.World
import Weft.Internal.Data.Cell (readCell)
import Weft.Internal.Sync (entries)
import Weft.Internal.Sync.Barrier qualified as Barrier
import Weft.Internal.Sync.Channel qualified as Internal.Channel
import Weft.Internal.Sync.Condition qualified as Condition
import Weft.Internal.Sync.Event qualified as Event
import Weft.Internal.Sync.MVar qualified as Internal.MVar
import Weft.Internal.Sync.Mutex (Mutex (..), mutexWord)
import Weft.Internal.Sync.Result qualified as Result
import Weft.Internal.Sync.Semaphore qualified as Internal.Semaphore
import Weft.MVar qualified as MVar
import Weft.Mutex
import Weft.Semaphore qualified as Semaphore
import Weft.Time (microseconds)
import Weft.Timeout (timeout)

-- | Whatever is handed over.
handover :: World -> TestTree
handover world =
  testGroup
    "cancellation against hand-over"
    [ testCase (name <> ", " <> show (worldRounds world perRun) <> " cancellations") (body world)
      | (name, body) <- [("mutex", mutexes), ("MVar", mvars), ("MVar, puts that wait", putting), ("semaphore", semaphores), ("channel", channels), ("condition", conditions), ("event", events), ("barrier", barriers)]
    ]

-- | Eight tests in two worlds: 100,000 and more together.
perRun :: Int
perRun = 12_000

-- | Has that been done often enough to mean something?
many :: World -> Int -> Bool
many world n = n > worldRounds world 1000

data Poke = Poke
  deriving stock (Show)

instance Exception Poke

-- | Run the given number of threads, each repeating its action, and poke them at random, until they
-- have also done enough; then let them end. Answers when they have. The actions run
-- masked: they are poked where they wait. Fails if too few pokes found a thread waiting.
poking :: World -> Int -> IO Bool -> (Int -> Thread ()) -> Thread ()
poking world n enough act = do
  stop <- liftIO (newIORef False)
  ended <- liftIO (newIORef 0)
  hits <- liftIO (newIORef (0 :: Int))
  victims <- forM [0 .. n - 1] $ \i -> forkWith defaultForkOptions {forkWorker = Just i} . masked $ do
    let go = do
          over <- liftIO (readIORef stop)
          unless over $ ((act i >> yield) `catch` \Poke -> count hits) >> go
    go
    count ended
  dice <- newDice 42
  let total = worldRounds world perRun
      pokes :: Int -> Thread ()
      pokes k = do
        over <- if k > 0 then pure False else liftIO enough
        unless over (poke >> pokes (k - 1))
      poke = do
        victim <- roll dice n
        pause <- roll dice 4
        cancelWith (victims !! victim) Poke
        -- Messages are looked at between two slices.
        if pause == 3 && worldTimePasses world then sleep (microseconds 20) else replicateM_ pause yield
      -- Threads that wait for what no thread will do any more must be poked.
      endAll = do
        k <- liftIO (readIORef ended)
        unless (k == n) $ mapM_ (`cancelWith` Poke) victims >> sleep (milliseconds 1) >> endAll
  pokes total
  liftIO (writeIORef stop True)
  endAll
  k <- liftIO (readIORef hits)
  -- There are orders in which hardly any thread has to wait; a simulation may choose one.
  when (worldInOrder world || worldTimePasses world) $ holds ("only " <> show k <> " waits were cancelled") (k > total `div` 4)
  where
    count ref = liftIO (atomicModifyIORef' ref (\k -> (k + 1 :: Int, ())))
    masked body = mask (\_ -> body)

mutexes :: World -> Assertion
mutexes world = do
  inside <- newIORef (0 :: Int)
  turns <- newIORef (0 :: Int)
  running world $ do
    m <- newMutex
    poking world 16 (many world <$> readIORef turns) $ \_ -> withMutex m $ do
      n <- liftIO (atomicModifyIORef' inside (\n -> (n + 1, n)))
      liftIO (n @?= 0)
      yield
      liftIO (atomicModifyIORef' inside (\k -> (k - 1, ())) >> modifyIORef' turns (+ 1))
    word <- liftIO (readPrimVar (mutexWord m))
    left <- liftIO (entries <$> readMutVar (mutexQueue m))
    liftIO ((word, left) @?= (0, 0))
  readIORef turns >>= \n -> assertBool (show n) (many world n)

mvars :: World -> Assertion
mvars world = running world $ do
  v <- MVar.newMVar (0 :: Int)
  turns <- liftIO (newIORef (0 :: Int))
  poking world 16 (pure True) $ \i ->
    if i `mod` 4 == 0
      then void (MVar.readMVar v)
      else do
        n <- MVar.takeMVar v
        yield
        -- No thread waits to put, so this does not wait and is not poked.
        MVar.putMVar v (n + 1)
        liftIO (atomicModifyIORef' turns (\k -> (k + 1, ())))
  n <- liftIO (readIORef turns)
  let var = Internal.MVar.mvarState v
  liftIO . readCell var $ \case
    Internal.MVar.Full k -> k @?= n
    _ -> assertFailure "somebody is left in the queue, or the value is lost"

-- | Values are put by some and taken by others; both wait, because they do not do the
-- same number in a turn.
putting :: World -> Assertion
putting world = do
  put <- newIORef []
  taken <- newIORef []
  let note list a = liftIO (atomicModifyIORef' list (\as -> (a : as, ())))
  running world $ do
    v <- MVar.newEmptyMVar
    fresh <- liftIO (newIORef (0 :: Int))
    poking world 16 (many world . length <$> readIORef taken) $ \i ->
      if even i
        then replicateM_ 9 (MVar.takeMVar v >>= note taken)
        else replicateM_ 7 $ do
          a <- liftIO (atomicModifyIORef' fresh (\k -> (k + 1, k)))
          MVar.putMVar v a
          note put a
    void (MVar.tryTakeMVar v >>= mapM_ (note taken))
    let var = Internal.MVar.mvarState v
    liftIO . readCell var $ \case
      Internal.MVar.Empty -> pure ()
      _ -> assertFailure "somebody is left in the queue"
  sent <- sort <$> readIORef put
  got <- sort <$> readIORef taken
  got @?= sent
  assertBool (show (length got)) (many world (length got))

semaphores :: World -> Assertion
semaphores world = running world $ do
  s <- Semaphore.newSemaphore 5
  poking world 16 (pure True) $ \i -> Semaphore.withPermits s (1 + i `mod` 5) yield
  let var = Internal.Semaphore.semaphoreState s
  Internal.Semaphore.SemaphoreState free queue <- liftIO (readMutVar var)
  liftIO ((free, entries queue) @?= (5, 0))

channels :: World -> Assertion
channels world = do
  sent <- newIORef []
  received <- newIORef []
  let note list a = liftIO (atomicModifyIORef' list (\as -> (a : as, ())))
  running world $ do
    c <- Channel.newChannel 2
    fresh <- liftIO (newIORef (0 :: Int))
    poking world 16 (many world . length <$> readIORef received) $ \i ->
      if even i
        then replicateM_ 9 (Channel.receive c >>= mapM_ (note received))
        else replicateM_ 7 $ do
          a <- liftIO (atomicModifyIORef' fresh (\k -> (k + 1, k)))
          Channel.send c a
          note sent a
    let drain =
          Channel.tryReceive c >>= \case
            Channel.Received a -> note received a >> drain
            _ -> pure ()
    drain
    state <- liftIO (readMutVar (Internal.Channel.channelState c))
    liftIO $ case state of
      Internal.Channel.Holding 0 [] [] -> pure ()
      _ -> assertFailure "somebody is left in the queue"
  out <- sort <$> readIORef sent
  got <- sort <$> readIORef received
  got @?= out
  assertBool (show (length got)) (many world (length got))

-- | A thread that was signalled or poked holds the mutex again, alone.
conditions :: World -> Assertion
conditions world = do
  inside <- newIORef (0 :: Int)
  turns <- newIORef (0 :: Int)
  running world $ do
    m <- newMutex
    c <- Condition.newCondition
    let alone = do
          n <- liftIO (atomicModifyIORef' inside (\n -> (n + 1, n)))
          liftIO (n @?= 0)
          yield
          liftIO (atomicModifyIORef' inside (\k -> (k - 1, ())))
    poking world 16 (many world <$> readIORef turns) $ \i -> case i `mod` 8 of
      0 -> withMutex m (Condition.signal c >> alone)
      1 -> withMutex m (Condition.broadcast c >> alone) >> replicateM_ 20 yield
      _ -> withMutex m ((Condition.wait c m >> liftIO (modifyIORef' turns (+ 1))) `finally` alone)
    -- The last signal may have left tombstones after the thread that it woke; they go with the next
    -- thread that leaves.
    given <- timeout (microseconds 10) (withMutex m (Condition.wait c m))
    liftIO (given @?= Nothing)
    word <- liftIO (readPrimVar (mutexWord m))
    let Condition.Condition queue _ = c
    left <- liftIO (entries <$> readMutVar queue)
    liftIO ((word, left) @?= (0, 0))
  readIORef turns >>= \n -> assertBool (show n) (many world n)

events :: World -> Assertion
events world = running world $ do
  e <- Event.newEvent
  poking world 16 (pure True) $ \i ->
    if i == 0
      then Event.set e >> yield >> Event.clear e >> replicateM_ 20 yield
      else Event.wait e
  let Event.Event (Result.ResultVar var) _ = e
  state <- liftIO (readMutVar var)
  liftIO $ case state of
    Result.Full () -> pure ()
    Result.Empty queue -> entries queue @?= 0

-- | It opens for four at a time, whichever threads were poked.
barriers :: World -> Assertion
barriers world = do
  arrived <- newIORef (0 :: Int)
  opened <- newIORef (0 :: Int)
  let bump ref = liftIO (atomicModifyIORef' ref (\k -> (k + 1, ())))
  running world $ do
    b <- Barrier.newBarrier 4
    poking world 16 (many world <$> readIORef opened) $ \_ -> do
      place <- Barrier.arrive b
      bump arrived
      when (place == 3) (bump opened)
    let Barrier.Barrier _ var _ = b
    Barrier.BarrierState _ n waiting <- liftIO (readMutVar var)
    liftIO ((n, length waiting) @?= (0, 0))
  n <- readIORef opened
  readIORef arrived >>= (@?= 4 * n)
  assertBool (show n) (many world n)
