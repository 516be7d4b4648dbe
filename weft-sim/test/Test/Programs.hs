{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Little concurrent programs, drawn at random
--
-- A grammar over everything that threads do with each other, and an interpreter. The programs do
-- not make sense: they deadlock, race and fail. What matters is that two runs of one agree, and that
-- none of it can upset the scheduler.
module Test.Programs
  ( Program (..),
    Step (..),
    running,
    runningUnder,
    forks,
  )
where

import Control.Exception (ErrorCall (..))
import Control.Monad (void, when)
import Test.QuickCheck
import Weft
import Weft.Barrier (Barrier, arrive, newBarrier)
import Weft.Channel (Channel)
import Weft.Channel qualified as Channel
import Weft.Concurrently qualified as Concurrently
import Weft.Condition (Condition)
import Weft.Condition qualified as Condition
import Weft.Event (Event)
import Weft.Event qualified as Event
import Weft.IO qualified as Direct
import Weft.MVar
import Weft.Mask (mask_)
import Weft.Mutex
import Weft.Ref
import Weft.STM (TVar, atomically, newTVarIO, readTVar, retry, writeTVar)
import Weft.Scope
import Weft.Semaphore (Semaphore)
import Weft.Semaphore qualified as Semaphore
import Weft.Time (now, wallClock)
import Weft.Timeout (timeout)

-- | Threads with their steps. If their number is odd the main thread is the first of them. Otherwise
-- it forks them all and ends after a while, and what still waits is cancelled.
newtype Program = Program [[Step]]
  deriving stock (Show)

-- | A step of a thread. The numbers choose between two objects of the kind.
data Step
  = Locking Int [Step]
  | TryLocking Int [Step]
  | Take Int
  | Put Int
  | Send Int
  | Receive
  | CloseChannel
  | Acquire Int
  | Release Int
  | Arrive
  | WaitChange
  | SignalChange
  | BroadcastChange
  | SetEvent
  | ClearEvent
  | WaitEvent
  | Increment Int
  | Decrement Int
  | ReadVariable Int
  | WriteVariable Int
  | ModifyVariable Int
  | Sleep Int
  | LookAtClocks
  | Yielding
  | Failing
  | Guarded [Step]
  | Handled [Step]
  | Masked [Step]
  | Limited Int [Step]
  | Racing [Step] [Step]
  | Concurrent [Step] [Step]
  | Scoped [[Step]]
  | Forked [Step]
  | Cancelled' [Step]
  | Directly [Step]
  deriving stock (Show)

instance Arbitrary Program where
  arbitrary = do
    threads <- chooseInt (2, 4)
    Program <$> vectorOf threads (steps 2)
  shrink (Program threads) = Program <$> filter (not . null) (shrinkList shrinkSteps threads)

steps :: Int -> Gen [Step]
steps depth = chooseInt (1, 4) >>= \n -> vectorOf n (step depth)

step :: Int -> Gen Step
step depth
  | depth <= 0 = simple
  | otherwise = frequency [(3, simple), (1, nested)]
  where
    inner = steps (depth - 1)
    which = chooseInt (0, 1)
    simple =
      oneof
        [ Take <$> which,
          Put <$> which,
          Send <$> which,
          pure Receive,
          frequency [(1, pure CloseChannel), (9, pure Receive)],
          Acquire <$> which,
          Release <$> which,
          pure Arrive,
          pure WaitChange,
          pure SignalChange,
          pure BroadcastChange,
          pure SetEvent,
          pure ClearEvent,
          pure WaitEvent,
          Increment <$> which,
          Decrement <$> which,
          ReadVariable <$> which,
          WriteVariable <$> which,
          ModifyVariable <$> which,
          Sleep <$> chooseInt (0, 2),
          pure LookAtClocks,
          pure Yielding,
          frequency [(1, pure Failing), (5, pure Yielding)]
        ]
    nested =
      oneof
        [ Locking <$> which <*> inner,
          TryLocking <$> which <*> inner,
          Guarded <$> inner,
          Handled <$> inner,
          Masked <$> inner,
          Limited <$> chooseInt (0, 2) <*> inner,
          Racing <$> inner <*> inner,
          Concurrent <$> inner <*> inner,
          Scoped <$> (chooseInt (1, 3) >>= \n -> vectorOf n inner),
          Forked <$> inner,
          Cancelled' <$> inner,
          Directly <$> inner
        ]

shrinkSteps :: [Step] -> [[Step]]
shrinkSteps = shrinkList (const [])

-- | Does a thread fork, other than into a scope?
forks :: Program -> Bool
forks (Program threads) = any (any forking) threads
  where
    forking = \case
      Locking _ s -> any forking s
      TryLocking _ s -> any forking s
      Guarded s -> any forking s
      Handled s -> any forking s
      Masked s -> any forking s
      Limited _ s -> any forking s
      Racing a b -> any forking (a <> b)
      Concurrent a b -> any forking (a <> b)
      Scoped several -> any (any forking) several
      Forked _ -> True
      Cancelled' _ -> True
      Directly s -> any forking s
      _ -> False

-- | The objects that the threads share.
data Shared = Shared
  { mutexes :: Int -> Mutex,
    places :: Int -> MVar Int,
    channel :: Channel Int,
    semaphores :: Int -> Semaphore,
    barrier :: Barrier,
    changed :: Condition,
    event :: Event,
    counters :: Int -> TVar Int,
    variables :: Int -> Ref Int,
    -- | How plain accesses are made.
    guarding :: Thread () -> Thread (),
    -- | Results that the threads have seen, latest first.
    seen :: Ref [Int]
  }

newShared :: (Thread () -> Thread ()) -> Thread Shared
newShared under = do
  m <- (,) <$> newMutexNamed "one" <*> newMutexNamed "two"
  p <- (,) <$> newMVar 0 <*> newEmptyMVarNamed "empty"
  c <- Channel.newChannelNamed "channel" 1
  s <- (,) <$> Semaphore.newSemaphore 0 <*> Semaphore.newSemaphore 2
  b <- newBarrier 2
  w <- Condition.newCondition
  e <- Event.newEvent
  t <- liftIO ((,) <$> newTVarIO 0 <*> newTVarIO 1)
  v <- (,) <$> newRefNamed "x" 0 <*> newRefNamed "y" 0
  Shared (of' m) (of' p) c (of' s) b w e (of' t) (of' v) under <$> newRef []
  where
    of' (a, b) i = if i == (0 :: Int) then a else b

-- | Run it; all that its threads have seen.
running :: Program -> Thread [Int]
running = runningUnder (pure id)

-- | 'running', with all plain accesses under a lock that this makes.
runningUnder :: Thread (Thread () -> Thread ()) -> Program -> Thread [Int]
runningUnder lock' (Program threads) = do
  shared <- lock' >>= newShared
  case threads of
    [] -> pure ()
    first : others
      | even (length threads) -> do
          mapM_ (fork_ . perform shared) threads
          sleep (milliseconds 5)
      | otherwise -> do
          mapM_ (fork_ . perform shared) others
          perform shared first
  atomicReadRef (seen shared)

perform :: Shared -> [Step] -> Thread ()
perform shared = mapM_ go
  where
    inside = perform shared
    saw n = atomicModifyRef_ (seen shared) (n :)
    go = \case
      Locking i body -> withMutex (mutexes shared i) (inside body)
      TryLocking i body -> do
        got <- tryLock (mutexes shared i)
        when got (inside body `finally` unlock (mutexes shared i))
      Take i -> takeMVar (places shared i) >>= saw
      Put i -> putMVar (places shared i) i
      Send i -> Channel.send (channel shared) i
      Receive -> Channel.receive (channel shared) >>= maybe (saw (-1)) saw
      CloseChannel -> Channel.close (channel shared)
      Acquire i -> Semaphore.acquire (semaphores shared i) 1
      Release i -> Semaphore.release (semaphores shared i) 1
      Arrive -> arrive (barrier shared) >>= saw
      WaitChange -> withMutex (mutexes shared 0) (Condition.wait (changed shared) (mutexes shared 0))
      SignalChange -> Condition.signal (changed shared)
      BroadcastChange -> Condition.broadcast (changed shared)
      SetEvent -> Event.set (event shared)
      ClearEvent -> Event.clear (event shared)
      WaitEvent -> Event.wait (event shared)
      Increment i -> atomically (readTVar (counters shared i) >>= writeTVar (counters shared i) . (+ 1))
      Decrement i -> do
        n <- atomically $ do
          n <- readTVar (counters shared i)
          if n > 0 then n <$ writeTVar (counters shared i) (n - 1) else retry
        saw n
      ReadVariable i -> guarding shared (readRef (variables shared i) >>= saw)
      WriteVariable i -> guarding shared (writeRef (variables shared i) 7)
      ModifyVariable i -> guarding shared (modifyRef' (variables shared i) (+ 1))
      Sleep ms -> sleep (milliseconds ms)
      LookAtClocks -> now >> wallClock >>= saw . (`mod` 1000) . fromIntegral . (`div` 1_000_000)
      Yielding -> yield
      Failing -> throwM (ErrorCall "failing")
      Guarded body -> inside body `finally` saw 100
      Handled body -> inside body `catch` \(ErrorCall _) -> saw 101
      Masked body -> mask_ (inside body)
      Limited ms body -> timeout (milliseconds ms) (inside body) >>= maybe (saw 102) pure
      Racing a b -> Concurrently.race (inside a) (inside b) >>= either (const (saw 103)) (const (saw 104))
      Concurrent a b -> Concurrently.concurrently_ (inside a) (inside b)
      Scoped several -> withScope (\scope -> mapM_ (forkIn_ scope . inside) several)
      Forked body -> void (fork (inside body))
      Cancelled' body -> do
        t <- fork (inside body `onException` saw 105)
        yield
        cancel t
      Directly body -> Direct.direct (mapM_ (Direct.await . go) body)
