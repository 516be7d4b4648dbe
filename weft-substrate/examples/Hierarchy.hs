-- |
-- Description : Schedulers of schedulers
module Hierarchy (Next, Group (..), firstCome, lastCome, share, run, fork, yield, example) where

import Control.Monad (forM, forM_, void, when)
import Data.List (sortOn)
import Data.Maybe (fromMaybe)
import Data.Ratio ((%))
import Data.Sequence (Seq (..), (<|), (|>))
import Data.Sequence qualified as Seq
import Weft.Substrate

-- | A scheduler, for those above it: the stack that runs next, if one is ready. If none is, it
-- changes nothing.
type Next = PTM (Maybe StackId)

-- | A scheduler of threads.
data Group = Group {enqueue :: StackId -> PTM (), next :: Next}

-- | The stack that came first is next, so threads that yield take turns.
firstCome :: IO Group
firstCome = group (|>)

-- | The stack that came last is next, so a thread that yields goes on.
lastCome :: IO Group
lastCome = group (flip (<|))

group :: (Seq StackId -> StackId -> Seq StackId) -> IO Group
group put = do
  ready <- newPVarIO Seq.empty
  pure
    Group
      { enqueue = \t -> readPVar ready >>= \q -> writePVar ready $! put q t,
        next =
          readPVar ready >>= \case
            t :<| q -> Just t <$ writePVar ready q
            Empty -> pure Nothing
      }

-- | A scheduler of schedulers, which have turns in proportion to their weights. A turn takes
-- the longer the smaller the weight, as if each had a slower processor of its own. The one whose turn
-- would begin first is served; one that had nothing to run begins now, and saves up no turns.
-- (Goyal, Guo and Vin 1996: start-time fair queueing.)
share :: [(Integer, Next)] -> IO Next
share schedulers = do
  clock <- newPVarIO 0
  members <- forM schedulers $ \(weight, below) -> (,,) (1 % weight) below <$> newPVarIO 0
  pure $ do
    now <- readPVar clock
    turns <- forM members $ \(long, below, free) -> (\t -> (max now t, long, below, free)) <$> readPVar free
    let try [] = pure Nothing
        try ((begin, long, below, free) : others) =
          below >>= \case
            Nothing -> try others
            found -> found <$ ((writePVar clock $! begin) >> (writePVar free $! begin + long))
    try (sortOn (\(begin, _, _, _) -> begin) turns)

-- | Run a program that forks threads, and then these until none is ready. The program is told how a
-- HEC goes on, which threads need in order to yield.
run :: Next -> (PTM StackId -> IO ()) -> IO ()
run root program = void . inCall $ do
  idle <- atomicPTM getStackId
  let goOn = fromMaybe idle <$> root
  program goOn
  switch goOn

fork :: PTM StackId -> Group -> IO () -> IO ()
fork goOn g act = newStack (act >> switch goOn) >>= atomicPTM . enqueue g

yield :: PTM StackId -> Group -> IO ()
yield goOn g = switch (getStackId >>= enqueue g >> goOn)

example :: (String -> IO ()) -> IO ()
example say = do
  web <- firstCome
  mail <- firstCome
  batch <- lastCome
  background <- share [(1, next mail), (1, next batch)]
  root <- share [(2, next web), (1, background)]
  run root $ \goOn -> do
    let thread g name second = fork goOn g . forM_ [1 .. 4 :: Int] $ \i -> do
          say (name <> " " <> show i)
          when (i == 3) second
          yield goOn g
    thread web "web a" (thread mail "mail" (pure ()))
    thread web "web b" (pure ())
    thread batch "batch a" (pure ())
    thread batch "batch b" (pure ())
