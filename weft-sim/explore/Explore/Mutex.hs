-- |
-- Description : Mutexes under exploration
module Explore.Mutex (scenarios) where

import Control.Monad (forM_, void)
import Control.Monad.Catch (Handler (..), catches)
import Data.IORef
import Explore.Crowd
import Explore.Draw
import Explore.Scenario
import Weft
import Weft.Mutex

scenarios :: [Scenario]
scenarios =
  [ small "mutex/exclusive" 2 "two threads are never inside at once" (exclusive 2),
    small "mutex/exclusive-three" 2 "three threads are never inside at once" (exclusive 3),
    small "mutex/cancelled" 3 "one that is cancelled while it waits, or holds, leaves the mutex free" cancelled,
    small "mutex/fair" 2 "threads that wait get it in the order in which they came" fair,
    drawn "mutex/model" "random clients see one lock" (crowd (pure model))
  ]

exclusive :: Int -> Thread Complaints
exclusive n = do
  mutex <- newMutex
  inside <- liftIO (newIORef (0 :: Int))
  most <- liftIO (newIORef 0)
  _ <- spread . replicate n . withMutex mutex $ do
    liftIO (modifyIORef' inside (+ 1) >> readIORef inside >>= modifyIORef' most . max)
    yield
    liftIO (modifyIORef' inside (subtract 1))
  quiet
  (\m held -> expectEqual "threads inside at once" 1 m <> expect "it is held when all have left" (not held)) <$> liftIO (readIORef most) <*> isHeld mutex

cancelled :: Thread Complaints
cancelled = do
  mutex <- newMutex
  log' <- newLog
  threads <- spread [withMutex mutex (say log' 'a' >> yield), withMutex mutex (say log' 'b' >> yield)]
  void (forkOn 1 (mapM_ cancel (take 1 threads)))
  void (forkOn 0 (mapM_ cancel (drop 1 threads)))
  quiet
  free <- tryLock mutex
  pure (expect "somebody who was cancelled holds it still" free)

fair :: Thread Complaints
fair = do
  mutex <- newMutex
  log' <- newLog
  lock mutex
  forM_ [1 .. 3 :: Int] $ \i -> forkOn i (withMutex mutex (say log' i)) >> quiet
  unlock mutex
  quiet
  expectEqual "order of the holders" [1 .. 3] <$> said log'

data Op = Lock | TryLock | Unlock | IsHeld
  deriving stock (Show)

data Answer = Done | Is Bool | Wrong
  deriving stock (Eq, Show)

model :: Model Mutex Op Answer Int
model =
  Model
    { modelNew = newMutex,
      modelDo = \m op -> answer m op `catches` [Handler (\e -> Wrong <$ pure (e :: MutexError))],
      modelStart = 0,
      modelStep = \holder me -> \case
        Lock
          | holder == 0 -> [(me, Done)]
          | holder == me -> [(holder, Wrong)]
          | otherwise -> []
        TryLock
          | holder == 0 -> [(me, Is True)]
          | otherwise -> [(holder, Is False)]
        Unlock
          | holder == me -> [(0, Done)]
          | otherwise -> [(holder, Wrong)]
        IsHeld -> [(holder, Is (holder /= 0))],
      modelOps = weighted [(4, pure Lock), (4, pure Unlock), (2, pure TryLock), (1, pure IsHeld)],
      modelLast = [IsHeld],
      modelWaits = NobodyWaits
    }
  where
    answer m = \case
      Lock -> Done <$ lock m
      TryLock -> Is <$> tryLock m
      Unlock -> Done <$ unlock m
      IsHeld -> Is <$> isHeld m
