-- |
-- Description : Threads with priorities, none of which waits for ever
module Priorities (Scheduler, run, fork, yield, example) where

import Control.Monad (forM_, void)
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Weft.Substrate

-- | The ready stacks, the stack that goes on when there are none, and the priority of each thread.
data Scheduler = Scheduler {ready :: PVar Ready, idle :: StackId, priority :: SLSKey Int}

-- | How many threads have queued so far, and the place of each in the queue: first when it is due, then
-- when it came. The first place is served first.
data Ready = Ready !Int !(Map (Int, Int) StackId)

-- | A thread is due when it joins the queue, but this many places earlier for each step of its priority. So
-- it goes before those of the next lower priority, unless they have joined that much earlier; and its own
-- wait is bounded, because all that join late enough go after it.
patience :: Int
patience = 3

-- | Run a main thread, of priority 0, and all that it forks, until none is ready.
run :: (Scheduler -> IO ()) -> IO ()
run program = void . inCall $ do
  s <- Scheduler <$> newPVarIO (Ready 0 Map.empty) <*> atomicPTM getStackId <*> newSLSKey 0
  fork s 0 (program s)
  switch (next s)

-- | A thread keeps its priority in its stack.
fork :: Scheduler -> Int -> IO () -> IO ()
fork s p act = newStack (setSLS (priority s) p >> act >> switch (next s)) >>= atomicPTM . enqueue s p

enqueue :: Scheduler -> Int -> StackId -> PTM ()
enqueue s p t =
  readPVar (ready s) >>= \(Ready now q) ->
    writePVar (ready s) $! Ready (now + 1) (Map.insert (now - patience * p, now) t q)

next :: Scheduler -> PTM StackId
next s =
  readPVar (ready s) >>= \(Ready now q) -> case Map.minView q of
    Just (t, rest) -> t <$ (writePVar (ready s) $! Ready now rest)
    Nothing -> pure (idle s)

yield :: Scheduler -> IO ()
yield s = switch $ do
  p <- getSLS (priority s)
  getStackId >>= enqueue s p
  next s

example :: (String -> IO ()) -> IO ()
example say = run $ \s ->
  forM_ [(1, "low", 3), (2, "high", 6)] $ \(p, name, turns) ->
    fork s p . forM_ [1 .. turns :: Int] $ \i -> say (name <> " " <> show i) >> yield s
