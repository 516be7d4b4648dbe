-- |
-- Description : Semaphores under exploration
module Explore.Semaphore (scenarios) where

import Control.Monad (forM_)
import Explore.Crowd
import Explore.Draw
import Explore.Scenario
import Weft
import Weft.Mask (mask_)
import Weft.Semaphore

scenarios :: [Scenario]
scenarios =
  [ small "semaphore/permits" 2 "a thread that is cancelled while it waits, or holds, keeps no permit" permits,
    small "semaphore/many" 2 "one that wants many is not overtaken, and those behind one that is cancelled go on" many,
    small "semaphore/order" 2 "permits go to the thread that has waited longest" order,
    drawn "semaphore/model" "random clients see one number of permits" (crowd model)
  ]

permits :: Thread Complaints
permits = do
  semaphore <- newSemaphore 1
  threads <- spread (replicate 3 (withPermit semaphore yield))
  _ <- forkOn 1 (mapM_ cancel (take 2 threads))
  quiet
  expectEqual "permits at the end" 1 <$> available semaphore

many :: Thread Complaints
many = do
  semaphore <- newSemaphore 1
  log' <- newLog
  big <- forkOn 1 (mask_ (acquire semaphore 3 >> say log' 'b'))
  quiet
  _ <- forkOn 2 (acquire semaphore 1 >> say log' 's')
  quiet
  before <- said log'
  _ <- forkOn 0 (cancel big)
  _ <- forkOn 1 (release semaphore 1)
  quiet
  after' <- said log'
  free <- available semaphore
  pure (expectEqual "overtaken by" "" before <> expectEqual "who went on, and what is free" ("s", 1) (after', free))

order :: Thread Complaints
order = do
  semaphore <- newSemaphore 0
  log' <- newLog
  forM_ [1 .. 3 :: Int] $ \i -> forkOn 0 (acquire semaphore 1 >> say log' i) >> quiet
  -- A permit that is released while the others are about to wait is for the first of them.
  _ <- spread [release semaphore 1 >> quiet >> release semaphore 1]
  quiet
  quiet
  release semaphore 1
  quiet
  expectEqual "order" [1 .. 3] <$> said log'

data Op = Acquire Int | TryAcquire Int | Release Int | Available
  deriving stock (Show)

data Answer = Done | Is Bool | Number Int
  deriving stock (Eq, Show)

model :: Draw (Model Semaphore Op Answer Int)
model = do
  start <- between (-1) 3
  pure
    Model
      { modelNew = newSemaphore start,
        modelDo = \s -> \case
          Acquire n -> Done <$ acquire s n
          TryAcquire n -> Is <$> tryAcquire s n
          Release n -> Done <$ release s n
          Available -> Number <$> available s,
        modelStart = start,
        modelStep = \free _ -> \case
          Acquire n -> [(free - n, Done) | free >= n]
          -- It does not overtake, so it may fail though there are enough.
          TryAcquire n -> [(free - n, Is True) | free >= n] <> [(free, Is False)]
          Release n -> [(free + n, Done)]
          Available -> [(free, Number free)],
        modelOps =
          weighted
            [ (5, Acquire <$> between 0 3),
              (4, Release <$> between 1 2),
              (2, TryAcquire <$> between 0 2),
              (1, pure Available)
            ],
        modelLast = [Available],
        modelWaits = InLine
      }
