-- |
-- Description : What threads do to each other: turns, values, ends
--
-- The operations that goals of @weft-substrate@ are about, by GHC's threads, by those of the libraries on it and by its stacks:
-- a turn given to the others, an 'Control.Concurrent.MVar' between two threads and within one, threads that are forked and
-- waited for, transactions; and what a thread keeps alive that waits.
module Weft.Bench.Contest.Turns (turnsWork, Exercise (..), turnKinds, boundKinds, bareKinds, keptKinds) where

import Control.Concurrent qualified as GHC
import Control.Concurrent.STM qualified as STM
import Control.Exception (throwIO)
import Control.Monad (forM_, replicateM, replicateM_, void)
import Data.IORef (IORef, newIORef, readIORef, writeIORef)
import Data.Sequence qualified as Seq
import GHC.Stats (GCDetails (..), RTSStats (..), getRTSStats)
import System.Mem (performMajorGC)
import Weft.Bench.Contest
import Weft.Bench.Contest.Kind
import Weft.ConcLib.MP qualified as MP
import Weft.ConcLib.OS qualified as OS
import Weft.Substrate

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
  | -- | A thread for each processor exchanges the values of two variables that all share, in a transaction.
    Exchange
  | -- | What is counted is the bytes that each of @threads@ keeps alive that waits for an 'Control.Concurrent.MVar', or as a
    -- stack for its turn.
    Keep
  deriving stock (Eq, Show)

-- | Threads that share OS threads.
turnKinds :: [Kind]
turnKinds = [Ghc, ConcMp MP.ByScheduler]

-- | Threads that are OS threads.
boundKinds :: [Kind]
boundKinds = [Bound, ConcOs]

-- | The substrate by itself, and what GHC has for it.
bareKinds :: [Kind]
bareKinds = [Ghc, Stacks]

-- | Threads, and a stack.
keptKinds :: [Kind]
keptKinds = [Ghc, ConcMp MP.ByScheduler, Stacks]

-- | The operations of a library: to yield, to fork, and to make, take and put a variable.
data Operations = forall v. Operations (IO ()) (IO () -> IO ()) (IO (v ())) (v () -> IO ()) (v () -> () -> IO ())

-- | By threads of a kind. The point: @processors@, @threads@ (1 where there are no more) and @total@ operations.
turnsWork :: Exercise -> Kind -> Point -> Either String (IO Work)
turnsWork exercise kind point = do
  processors <- number point "processors"
  threads <- number point "threads"
  total <- number point "total"
  let each = max 1 (total `div` max 1 threads)
      run = runKind processors
      bodies (Operations yield fork new take' put') kept = case exercise of
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
        Exchange -> pure []
        Keep ->
          pure
            [ do
                vs <- replicateM threads new
                keeping threads kept (forM_ vs (fork . void . take') >> yield >> yield)
                forM_ vs (`put'` ())
            ]
      exchanges once = pure (replicate processors (replicateM_ (total `div` processors) once))
      kind' = case (exercise, kind) of
        (Exchange, Ghc) -> Just (const (InGhc True (STM.newTVarIO 'a' >>= \a -> STM.newTVarIO 'b' >>= exchanges . STM.atomically . exchangeStm a)))
        (Exchange, Stacks) -> Just (const (InGhc True (newPVarIO 'a' >>= \a -> newPVarIO 'b' >>= exchanges . atomicPTM . exchangePtm a)))
        (Exchange, _) -> Nothing
        (_, Ghc) -> Just (InGhc False . bodies (ghc GHC.forkIO))
        (_, Bound) -> Just (InBound . bodies (ghc GHC.forkOS))
        (_, Stacks) -> Just (\kept -> InConcLib alone (pure [ring threads each (if exercise == Keep then keeping threads kept else id)]))
        (_, ConcOs) -> (\library -> InConcLib library . bodies (concLib OS.yield (void . OS.forkIO))) <$> concLibOf kind
        _ -> (\library -> InConcLib library . bodies (concLib MP.yield (void . MP.forkIO))) <$> concLibOf kind
  case kind' of
    Nothing -> notPart kind
    Just of' -> Right $ do
      kept <- newIORef Nothing
      work <- run (each * threads) (of' kept)
      bytes <- readIORef kept
      pure work {workMore = workMore work <> [("live_bytes_per_thread", b) | Just b <- [bytes]]}
  where
    ghc fork = Operations GHC.yield (void . fork) GHC.newEmptyMVar GHC.takeMVar GHC.putMVar
    -- Both libraries have the same variables.
    concLib yield fork = Operations yield fork MP.newEmptyMVar MP.takeMVar MP.putMVar
    exchangeStm a b = STM.readTVar a >>= \x -> STM.readTVar b >>= STM.writeTVar a >> STM.writeTVar b x
    exchangePtm a b = readPVar a >>= \x -> readPVar b >>= writePVar a >> writePVar b x

-- | One HEC, and what is forked is done at once.
alone :: ConcLib
alone = ConcLib {runConcLib = \_ act -> inCall act >>= maybe (throwIO NotOnHEC) pure, forkConcLib = id}

-- | Perform an action, and keep how many bytes it has left alive for each of this number.
keeping :: Int -> IORef (Maybe Double) -> IO () -> IO ()
keeping threads kept act = do
  before <- live
  act
  after <- live
  writeIORef kept (Just ((after - before) / fromIntegral threads))
  where
    live = performMajorGC >> fromIntegral . gcdetails_live_bytes . gc <$> getRTSStats

-- | Stacks in a queue, each of which goes to its end and on with the first, so often. The action is around their making and
-- first turns.
ring :: Int -> Int -> (IO () -> IO ()) -> IO ()
ring stacks each around = do
  home <- atomicPTM getStackId
  queue <- newPVarIO Seq.empty
  let enqueue t = readPVar queue >>= \q -> writePVar queue $! q Seq.|> t
      next =
        readPVar queue >>= \case
          t Seq.:<| q -> t <$ writePVar queue q
          Seq.Empty -> pure home
      turn = switch (getStackId >>= enqueue >> next)
  around (replicateM_ stacks (newStack (replicateM_ each turn >> switch next) >>= atomicPTM . enqueue) >> turn)
  switch next
