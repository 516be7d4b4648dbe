-- |
-- Description : What threads do to each other: turns, values, ends
--
-- The operations that goals of @weft-substrate@ are about, by GHC's threads and by those of ConcLib_MP: a turn given to the
-- others, an 'Control.Concurrent.MVar' between two threads and within one, threads that are forked and waited for.
module Weft.Bench.Contest.Turns
  ( turnsWork,
    Exercise (..),
    turnKinds,
  )
where

import Control.Concurrent qualified as GHC
import Control.Monad (forM_, replicateM, replicateM_, void)
import Weft.Bench.Contest
import Weft.Bench.Contest.Kind
import Weft.ConcLib.MP qualified as MP

-- | What is done over and over.
data Exercise
  = -- | Each of @threads@ gives its turn to the others.
    Yields
  | -- | One thread passes a value to another, which answers: each way counts.
    PingPong
  | -- | A thread puts a value, and takes it. Nobody waits.
    PutTake
  | -- | A thread forks @threads@ others, each of which puts a value, and takes all.
    ForkJoin
  deriving stock (Eq, Show)

-- | Those that have these operations.
turnKinds :: [Kind]
turnKinds = [Ghc, ConcMp MP.ByScheduler]

-- | The operations of a library: to yield, to fork, and to make, take and put a variable.
data Operations = forall v. Operations (IO ()) (IO () -> IO ()) (IO (v ())) (v () -> IO ()) (v () -> () -> IO ())

-- | By threads of a kind. The point: @processors@, @threads@ (1 where there are no more) and @total@ operations.
turnsWork :: Exercise -> Kind -> Point -> Either String (IO Work)
turnsWork exercise kind point = do
  processors <- number point "processors"
  threads <- number point "threads"
  total <- number point "total"
  let each = max 1 (total `div` max 1 threads)
  runKind processors (each * threads) <$> case kind of
    Ghc -> Right (InGhc False (bodies each threads ghc))
    _ | Just library <- concLibOf kind, kind `elem` turnKinds -> Right (InConcLib library (bodies each threads mp))
    _ -> notPart kind
  where
    ghc = Operations GHC.yield (void . GHC.forkIO) GHC.newEmptyMVar GHC.takeMVar GHC.putMVar
    mp = Operations MP.yield (void . MP.forkIO) MP.newEmptyMVar MP.takeMVar MP.putMVar
    bodies each threads (Operations yield fork new take' put') = case exercise of
      Yields -> pure (replicate threads (replicateM_ each yield))
      PingPong -> do
        there <- new
        back <- new
        let ways = each * threads `div` 2
        pure [replicateM_ ways (put' there () >> take' back), replicateM_ ways (take' there >> put' back ())]
      PutTake -> do
        v <- new
        pure [replicateM_ (each * threads) (put' v () >> take' v)]
      ForkJoin ->
        pure
          [ replicateM_ each $ do
              vs <- replicateM threads (new >>= \v -> v <$ fork (put' v ()))
              forM_ vs take'
          ]
