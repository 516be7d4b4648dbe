{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Small programs that are wrong in a well-known way, and right ones beside them
--
-- Each answers what came of it as a text. What they may answer, and in how many schedules, is in
-- "Test.Litmus".
module Test.Litmus.Programs
  ( -- * Lost updates and locks
    lostUpdate,
    atomicUpdate,
    philosophers,
    orderlyPhilosophers,
    doubleChecked,
    doubleCheckedRight,

    -- * Lost wake-ups
    checkThenWait,
    checkUnderLock,
    lostPost,
    keptPost,
    newsOfCommit,

    -- * Cancellation
    leakingAcquire,
    leakingRelease,
    properBracket,

    -- * Memory
    storeBuffer,
    messagePassing,
    recycled,

    -- * Progress and time
    starvedWriter,
    fairWriter,
    photoFinish,
  )
where

import Control.Monad (replicateM, unless, void, when, zipWithM)
import Data.List (sort)
import Test.Support
import Weft
import Weft.Channel qualified as Channel
import Weft.Condition qualified as Condition
import Weft.Mutex
import Weft.Ref
import Weft.STM qualified as STM
import Weft.Scope
import Weft.Semaphore qualified as Semaphore
import Weft.Time (wallClock)
import Weft.Timeout (timeout)

-- | Two threads increment: read, then write.
lostUpdate :: Thread String
lostUpdate = do
  counter <- newRefNamed "counter" (0 :: Int)
  together (times 2 (modifyRef' counter (+ 1)))
  show <$> readRef counter

-- | Two threads increment, in one step each.
atomicUpdate :: Thread String
atomicUpdate = do
  counter <- newRef (0 :: Int)
  together (times 2 (atomicModifyRef_ counter (+ 1)))
  show <$> readRef counter

-- | The given number, each of which takes the fork at the left and then that at the right.
philosophers :: Int -> Thread String
philosophers = dining (,)

-- | The last of them begins at the right, as Dijkstra (1971) has it: then there is an order in which
-- all of them take their forks.
orderlyPhilosophers :: Int -> Thread String
orderlyPhilosophers = dining (\a b -> (min a b, max a b))

dining :: (Int -> Int -> (Int, Int)) -> Int -> Thread String
dining order n = do
  forks <- replicateM n (newMutexNamed "fork")
  let eat i = case order i ((i + 1) `mod` n) of
        (first, second) -> withMutex (forks !! first) (withMutex (forks !! second) (pure ()))
  together (map eat [0 .. n - 1])
  pure "all have eaten"

-- | Made once, by the first thread, under a lock that is only taken if the flag says that nothing
-- is there. The flag is set before something is.
doubleChecked :: Thread String
doubleChecked = initialised (\ready value -> atomicWriteRef ready True >> atomicWriteRef value 42)

-- | The flag is set when everything is there.
doubleCheckedRight :: Thread String
doubleCheckedRight = initialised (\ready value -> atomicWriteRef value 42 >> atomicWriteRef ready True)

initialised :: (Ref Bool -> Ref Int -> Thread ()) -> Thread String
initialised publish = do
  m <- newMutex
  ready <- newRefNamed "ready" False
  value <- newRefNamed "value" 0
  let get = do
        quick <- atomicReadRef ready
        unless quick . withMutex m $ do
          there <- atomicReadRef ready
          unless there (publish ready value)
        atomicReadRef value
  seen <- newRef []
  together (times 2 (get >>= \v -> atomicModifyRef_ seen (v :)))
  show . sort <$> readRef seen

-- | A channel by hand: the receiver looks, and then waits; what is sent between the two wakes
-- no thread.
checkThenWait :: Thread String
checkThenWait = handMade $ \place m changed ->
  ( atomicWriteRef place True >> Condition.signal changed,
    atomicReadRef place >>= \there -> unless there (withMutex m (Condition.wait changed m))
  )

-- | Looking and beginning to wait are one step, under the lock.
checkUnderLock :: Thread String
checkUnderLock = handMade $ \place m changed ->
  ( withMutex m (writeRef place True >> Condition.signal changed),
    withMutex m (readRef place >>= \there -> unless there (Condition.wait changed m))
  )

handMade :: (Ref Bool -> Mutex -> Condition.Condition -> (Thread (), Thread ())) -> Thread String
handMade make = do
  place <- newRefNamed "place" False
  m <- newMutex
  changed <- Condition.newConditionNamed "changed"
  let (sender, receiver) = make place m changed
  together [receiver, sender]
  pure "received"

-- | A semaphore that counts to one, by hand: post if nothing is posted. Of two posts, one gets lost.
lostPost :: Thread String
lostPost = posting (\s -> Semaphore.available s >>= \n -> when (n == 0) (Semaphore.release s 1))

-- | A semaphore counts.
keptPost :: Thread String
keptPost = posting (`Semaphore.release` 1)

posting :: (Semaphore.Semaphore -> Thread ()) -> Thread String
posting post = do
  posted <- Semaphore.newSemaphoreNamed "posted" 0
  together [post posted, Semaphore.acquire posted 1, post posted, Semaphore.acquire posted 1]
  pure "both"

-- | One transaction waits for another, and a thread that is never idle waits for the first.
newsOfCommit :: Thread String
newsOfCommit = do
  there <- liftIO (STM.newTVarIO False)
  over <- newRef False
  let untilOver = atomicReadRef over >>= \o -> unless o (yield >> untilOver)
  together
    [ STM.atomically (STM.readTVar there >>= STM.check) >> atomicWriteRef over True,
      STM.atomically (STM.writeTVar there True),
      untilOver
    ]
  pure "heard"

-- | Acquire, make a system call, and only then say how to release. How many are left is
-- answered. (Without a system call in between nothing would be lost: a cancellation is
-- raised at one.)
leakingAcquire :: Thread String
leakingAcquire = cancelled $ \used -> do
  atomicModifyRef_ used (+ 1)
  _ <- wallClock
  yield `finally` atomicModifyRef_ used (subtract 1)

-- | 'leakingAcquire' as it should be.
properBracket :: Thread String
properBracket = cancelled $ \used ->
  bracket_ (atomicModifyRef_ used (+ 1)) (atomicModifyRef_ used (subtract 1)) yield

cancelled :: (Ref Int -> Thread ()) -> Thread String
cancelled body = do
  used <- newRef 0
  withScope $ \scope -> do
    child <- forkIn scope (body used)
    cancel (childThread child)
    void (resultOf child)
  left <- readRef used
  pure (show left <> " in use")

-- | A pool of one, with a bracket by hand: given back after a failure and after success, but not if the
-- cancellation comes while it is given back.
leakingRelease :: Thread String
leakingRelease = do
  pool <- Channel.newChannel 1
  Channel.send pool ()
  withScope $ \scope -> do
    child <- forkIn scope $ do
      _ <- Channel.receive pool
      yield `onException` Channel.send pool ()
      Channel.send pool ()
    yield
    cancel (childThread child)
    void (resultOf child)
  left <- Channel.waitingValues pool
  pure (show (1 - left) <> " in use")

-- | Two threads, each writes one variable and reads the other's.
storeBuffer :: Thread String
storeBuffer = do
  x <- newRefNamed "x" (0 :: Int)
  y <- newRefNamed "y" (0 :: Int)
  saw <- zipWithM (\_ _ -> newRef (0 :: Int)) [x, y] [y, x]
  let side (mine, other, result) = writeRef mine 1 >> readRef other >>= writeRef result
  together (map side (zip3 [x, y] [y, x] saw))
  unwords . map show <$> mapM readRef saw

-- | One writes the value and then the flag; the other reads the flag and then the value.
messagePassing :: Thread String
messagePassing = do
  value <- newRefNamed "value" (0 :: Int)
  flag <- newRefNamed "flag" (0 :: Int)
  saw <- newRef ""
  together
    [ writeRef value 1 >> writeRef flag 1,
      do
        f <- readRef flag
        v <- readRef value
        writeRef saw (show f <> " " <> show v)
    ]
  readRef saw

-- | A stack of the cells 1 and 2, with compare-and-swap on its top and nothing that tells that a cell has
-- been away. One thread pops; the other pops both and puts the first back. The answer: the cells of each.
recycled :: Thread String
recycled = do
  top <- newRefNamed "top" (1 :: Int)
  below <- newRef (2 :: Int)
  let below' cell = if cell == 1 then atomicReadRef below else pure 0
      swap old new = atomicModifyRef top (\now -> if now == old then (new, True) else (now, False))
      pop = do
        cell <- atomicReadRef top
        if cell == 0
          then pure 0
          else do
            rest <- below' cell
            done <- swap cell rest
            if done then pure cell else pop
      push cell = do
        old <- atomicReadRef top
        when (cell == 1) (atomicWriteRef below old)
        done <- swap old cell
        unless done (push cell)
  mine <- newRef 0
  its <- newRef 0
  together
    [ pop >>= atomicWriteRef mine,
      do
        first <- pop
        second <- pop
        unless (first == 0) (push first)
        atomicWriteRef its second
    ]
  left <- readRef top
  a <- readRef mine
  b <- readRef its
  let cells = filter (/= 0) [a, b, left]
  pure (if cells == dedup cells then "apart" else "one cell twice")
  where
    dedup = foldr (\c seen -> if c `elem` seen then seen else c : seen) []

-- | Readers come and go, and there is always one: the writer, which waits until there is none, waits for
-- ever.
starvedWriter :: Thread String
starvedWriter = readersAndWriter $ \readers _ write ->
  let enter = atomicReadRef readers >>= \n -> if n == (0 :: Int) then write else yield >> enter in enter

-- | A waiting writer keeps new readers out.
fairWriter :: Thread String
fairWriter = readersAndWriter $ \readers gate write ->
  withMutex gate $
    let enter = atomicReadRef readers >>= \n -> if n == 0 then write else yield >> enter in enter

readersAndWriter :: (Ref Int -> Mutex -> Thread () -> Thread ()) -> Thread String
readersAndWriter writing = do
  readers <- newRefNamed "readers" 0
  gate <- newMutexNamed "gate"
  written <- newRef False
  let reader = do
        withMutex gate (atomicModifyRef_ readers (+ 1))
        yield
        atomicModifyRef_ readers (subtract 1)
        over <- atomicReadRef written
        unless over reader
      staggered = withMutex gate (atomicModifyRef_ readers (+ 1)) >> yield >> yield >> atomicModifyRef_ readers (subtract 1) >> reader
  together [reader, staggered, writing readers gate (atomicWriteRef written True)]
  pure "written"

-- | A limit and what it limits are over at the same instant.
photoFinish :: Thread String
photoFinish = maybe "too late" (const "in time") <$> timeout (milliseconds 1) (sleep (milliseconds 1))
