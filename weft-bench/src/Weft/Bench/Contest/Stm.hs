-- |
-- Description : One integer that all processors increment
--
-- One thread for each processor; each increments the same transactional variable, in a
-- transaction each time (Li & Zdancewic 2007, figure 22). The peer in C locks a mutex.
module Weft.Bench.Contest.Stm
  ( stmWork,
  )
where

import Control.Concurrent.STM qualified as Stm
import Control.Monad (replicateM_)
import Weft (Thread, liftIO)
import Weft.Bench.Contest
import Weft.Bench.Contest.Kind
import Weft.IO qualified as IO
import Weft.STM qualified as Weft

-- | By threads of a kind. The point: @processors@, and @total@ increments.
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
