-- |
-- Description : A scheduler with preemption
--
-- Threads take turns on one HEC. One that computes or blocks for long loses the HEC to the others, and
-- joins the queue again when it comes to an operation of the substrate.
module Preemptive (Scheduler, run, fork, yield) where

import Control.Monad (void)
import Data.Sequence (Seq (..), empty, (|>))
import Weft.Substrate

-- | The stacks that are ready, the HEC if it sleeps, how many threads have not ended, and the stack that goes on
-- when all have, while it waits for that.
data Scheduler = Scheduler {ready :: PVar (Seq StackId), asleep :: PVar (Maybe HEC), alive :: PVar Int, idle :: PVar (Maybe StackId)}

-- | Run a main thread, and all that it forks, until all have ended.
run :: (Scheduler -> IO ()) -> IO ()
run program = do
  s <- Scheduler <$> newPVarIO empty <*> newPVarIO Nothing <*> newPVarIO 0 <*> newPVarIO Nothing
  void . inCallWith True (handlers s) $ do
    fork s (program s)
    switch (getStackId >>= writePVar (idle s) . Just >> next s)

handlers :: Scheduler -> Handlers
handlers s = Handlers {displaced = \_ _ -> next s, returned = enqueue s}

fork :: Scheduler -> IO () -> IO ()
fork s act = do
  t <- newStack (act >> atomicPTM (count (subtract 1)) >> switch (next s))
  atomicPTM (count (+ 1) >> enqueue s t)
  where
    count f = readPVar (alive s) >>= \n -> writePVar (alive s) $! f n

-- | The next stack that is ready. If none is, sleep until one has returned.
next :: Scheduler -> PTM StackId
next s =
  readPVar (ready s) >>= \case
    t :<| q -> t <$ writePVar (ready s) q
    Empty -> do
      n <- readPVar (alive s)
      end <- readPVar (idle s)
      case end of
        Just t | n == 0 -> t <$ writePVar (idle s) Nothing
        _ -> (getHEC >>= writePVar (asleep s) . Just) >> sleepHEC

enqueue :: Scheduler -> StackId -> PTM ()
enqueue s t = do
  readPVar (ready s) >>= \q -> writePVar (ready s) $! q |> t
  readPVar (asleep s) >>= mapM_ wakeupHEC

yield :: Scheduler -> IO ()
yield s = switch (getStackId >>= enqueue s >> next s)
