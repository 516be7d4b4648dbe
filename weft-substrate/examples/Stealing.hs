-- |
-- Description : HECs that steal work from each other
module Stealing (Pool (..), Worker (..), run, fork, yield, example) where

import Control.Monad (forM, forM_, replicateM_, unless, void, when)
import Data.Foldable (maximumBy)
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Ord (comparing)
import Data.Sequence (Seq (..), (|>))
import Data.Sequence qualified as Seq
import Weft.Substrate

-- | The state that the HECs share: each other, how many threads have not ended, and which HECs sleep.
data Pool = Pool {workers :: PVar (Map HEC Worker), alive :: PVar Int, asleep :: PVar [HEC]}

-- | A HEC: the stacks that are ready there, and its first stack, which looks for work elsewhere when none is.
data Worker = Worker {hec :: HEC, ready :: PVar (Seq StackId), idle :: StackId}

-- | Run a main thread, and all that it forks, on the given number of HECs until all threads have ended.
run :: Int -> (Pool -> IO ()) -> IO ()
run n program = void . inCall $ do
  p <- Pool <$> newPVarIO Map.empty <*> newPVarIO 0 <*> newPVarIO []
  join p
  fork p (program p)
  replicateM_ (n - 1) (forkHEC (join p >> look p))
  look p

-- | This HEC takes part.
join :: Pool -> IO ()
join p = do
  queue <- newPVarIO Seq.empty
  atomicPTM $ do
    w <- (`Worker` queue) <$> getHEC <*> getStackId
    readPVar (workers p) >>= \ws -> writePVar (workers p) $! Map.insert (hec w) w ws

-- | The first stack of a HEC.
look :: Pool -> IO ()
look p = do
  switch (nextOr p (steal p))
  n <- readPVarIO (alive p)
  unless (n == 0) (look p)

-- | The next ready stack of this HEC, or else what the given transaction chooses.
nextOr :: Pool -> (Worker -> PTM StackId) -> PTM StackId
nextOr p other = do
  w <- (Map.!) <$> readPVar (workers p) <*> getHEC
  readPVar (ready w) >>= \case
    t :<| q -> t <$ writePVar (ready w) q
    Empty -> other w

-- | Take half of the longest queue, the half whose turn would come last. If all are empty, sleep.
steal :: Pool -> Worker -> PTM StackId
steal p w = do
  ws <- readPVar (workers p)
  queues <- forM (Map.elems ws) (\v -> (,) (ready v) <$> readPVar (ready v))
  let (victim, q) = maximumBy (comparing (length . snd)) queues
  case Seq.splitAt (length q `div` 2) q of
    (kept, t :<| rest) -> t <$ (writePVar victim kept >> writePVar (ready w) rest)
    _ ->
      readPVar (alive p) >>= \case
        0 -> pure (idle w)
        _ -> readPVar (asleep p) >>= writePVar (asleep p) . (hec w :) >> sleepHEC

-- | A stack is ready. If a HEC sleeps, it is woken to look for it.
push :: Pool -> StackId -> PTM ()
push p t = do
  w <- (Map.!) <$> readPVar (workers p) <*> getHEC
  readPVar (ready w) >>= \q -> writePVar (ready w) $! q |> t
  readPVar (asleep p) >>= \case
    h : hs -> writePVar (asleep p) hs >> wakeupHEC h
    [] -> pure ()

fork :: Pool -> IO () -> IO ()
fork p act = do
  t <- newStack (act >> switch (leave p))
  atomicPTM (count p 1 >> push p t)

-- | A thread ends, and with the last one all HECs.
leave :: Pool -> PTM StackId
leave p = do
  count p (-1)
  n <- readPVar (alive p)
  when (n == 0) (readPVar (asleep p) >>= mapM_ wakeupHEC)
  nextOr p (pure . idle)

count :: Pool -> Int -> PTM ()
count p i = readPVar (alive p) >>= \n -> writePVar (alive p) $! n + i

yield :: Pool -> IO ()
yield p = switch $ do
  me <- getStackId
  t <- nextOr p (\_ -> pure me)
  unless (t == me) (push p me)
  pure t

example :: Int -> (String -> IO ()) -> IO ()
example n say = run n $ \p ->
  forM_ "abc" $ \name -> fork p . forM_ [1 .. 2 :: Int] $ \i -> say (name : ' ' : show i) >> yield p
