-- |
-- Description : Threads that compute and yield, and one integer that all processors increment
--
-- Each thread computes, increments a transactional variable that all share if that is asked
-- for, and yields; over and over (Li & Zdancewic 2007, figure 18: 1,024 threads). The work
-- allocates nothing, so that the collector has no part in it.
module Weft.Bench.Contest.Spread (spreadWork, stmWork) where

import Control.Concurrent qualified as Ghc
import Control.Concurrent.STM qualified as Stm
import Control.Exception (evaluate)
import Control.Monad (replicateM_, when)
import Weft (Thread, liftIO, yield)
import Weft.Bench.Contest
import Weft.Bench.Contest.Kind
import Weft.Bench.Contest.Random
import Weft.IO qualified as IO
import Weft.STM qualified as Weft

-- | By threads of a kind. The point: @processors@, @threads@, @turns@ of each (which are
-- the operations), @steps@ (of a generator in each turn), @counter@ (0 or 1).
spreadWork :: Kind -> Point -> Either String (IO Work)
spreadWork kind point = do
  processors <- number point "processors"
  threads <- number point "threads"
  turns <- number point "turns"
  work <- number point "steps"
  counter <- (> 0) <$> number point "counter"
  let monadic v = go turns
        where
          go :: Int -> State -> Thread ()
          go 0 _ = pure ()
          go k a = do
            b <- liftIO (evaluate (steps work a))
            when counter (Weft.atomically (count v))
            yield
            go (k - 1) b
      plain stm rest v = go turns
        where
          go :: Int -> State -> IO ()
          go 0 _ = pure ()
          go k a = do
            b <- evaluate (steps work a)
            when counter (stm (count v))
            () <- rest
            go (k - 1) b
      all' body = Stm.newTVarIO (0 :: Int) >>= \v -> pure [body v (seeded i) | i <- [0 .. threads - 1]]
  fmap (runKind processors (turns * threads)) $ case kind of
    Monadic backend -> Right $ InWeft backend False (liftIO (all' monadic))
    Direct backend -> Right $ InWeft backend False (liftIO (all' (\v a -> IO.direct (plain (IO.await . Weft.atomically) IO.yield v a))))
    Ghc -> Right $ InGhc False (all' (plain Stm.atomically Ghc.yield))
    _ -> notPart kind
  where
    count v = Stm.modifyTVar' v (+ 1)

-- | One thread for each processor; each increments the same transactional variable, in a transaction
-- each time (Li & Zdancewic 2007, figure 22). The peer in C locks a mutex. The point: @processors@, and
-- @total@ increments.
stmWork :: Kind -> Point -> Either String (IO Work)
stmWork kind point = do
  processors <- number point "processors"
  total <- number point "total"
  let share = max 1 (total `div` processors)
      weft :: Bool -> Thread [Thread ()]
      weft plain = do
        v <- liftIO (Stm.newTVarIO (0 :: Int))
        pure . replicate processors $
          if plain
            then IO.direct (replicateM_ share (IO.await (Weft.atomically (Stm.modifyTVar' v (+ 1)))))
            else replicateM_ share (Weft.atomically (Stm.modifyTVar' v (+ 1)))
  fmap (runKind processors (share * processors)) $ case kind of
    Monadic backend -> Right $ InWeft backend True (weft False)
    Direct backend -> Right $ InWeft backend True (weft True)
    Ghc -> Right $ InGhc True $ do
      v <- Stm.newTVarIO (0 :: Int)
      pure (replicate processors (replicateM_ share (Stm.atomically (Stm.modifyTVar' v (+ 1)))))
    _ -> notPart kind
