-- |
-- Description : A scheduler in sixty lines
module Scheduler (Scheduler, run, fork, yield, Cell, newCell, fill, get, example) where

import Control.Monad (forM_, void)
import Data.Sequence (Seq (..), empty, (|>))
import Weft.Substrate

-- | The stacks that are ready, and the one that goes on when none is.
data Scheduler = Scheduler {ready :: PVar (Seq StackId), idle :: StackId}

-- | Run a main thread, and all that it forks, until none is ready.
run :: (Scheduler -> IO ()) -> IO ()
run program = void . inCall $ do
  s <- Scheduler <$> newPVarIO empty <*> atomicPTM getStackId
  fork s (program s)
  switch (next s)

-- | A thread is a stack that ends by going on with another.
fork :: Scheduler -> IO () -> IO ()
fork s act = newStack (act >> switch (next s)) >>= atomicPTM . enqueue s

enqueue :: Scheduler -> StackId -> PTM ()
enqueue s t = readPVar (ready s) >>= \q -> writePVar (ready s) $! q |> t

next :: Scheduler -> PTM StackId
next s =
  readPVar (ready s) >>= \case
    t :<| q -> t <$ writePVar (ready s) q
    Empty -> pure (idle s)

-- | Go to the end of the queue. No HEC finds this stack there before it was left.
yield :: Scheduler -> IO ()
yield s = switch (getStackId >>= enqueue s >> next s)

-- | A value that is not there yet, and the stacks that wait for it.
data Cell a = Cell (PVar (Maybe a)) (PVar [StackId])

newCell :: IO (Cell a)
newCell = Cell <$> newPVarIO Nothing <*> newPVarIO []

fill :: Scheduler -> Cell a -> a -> IO ()
fill s (Cell value waiting) a = atomicPTM $ do
  writePVar value (Just a)
  readPVar waiting >>= mapM_ (enqueue s) . reverse
  writePVar waiting []

get :: Scheduler -> Cell a -> IO a
get s c@(Cell value waiting) = do
  switch $ do
    me <- getStackId
    readPVar value >>= \case
      Just _ -> pure me
      Nothing -> readPVar waiting >>= writePVar waiting . (me :) >> next s
  readPVarIO value >>= maybe (get s c) pure

example :: (String -> IO ()) -> IO ()
example say = run $ \s -> do
  c <- newCell
  forM_ "ab" $ \name -> fork s $ do
    say (name : " waits")
    x <- get s c
    forM_ [1 .. 2 :: Int] $ \i -> say (name : ' ' : show (x + i)) >> yield s
  yield s
  say "main fills"
  fill s c 10
