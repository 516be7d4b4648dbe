-- |
-- Description : Contenders of weft-bench that have no OS threads
--
-- Linked without @-threaded@, GHC's threads wait with @select@ in the scheduler of the run-time
-- system: a contender of @weft-bench pipes@ and of @weft-bench events-pong@ and its like. Its
-- arguments are a workload and a point.
module Main (main) where

import Control.Monad (join)
import Data.Text qualified as Text
import System.Environment (getArgs)
import System.Exit (die)
import Weft.Bench.Contest (parsePoint, printWork)
import Weft.Bench.Contest.Workload (workByGhc, workloadName, workloads)
import Weft.Bench.Named (named)

main :: IO ()
main =
  getArgs >>= \case
    name : arguments -> join . either (die . ("weft-bench-select: " ++)) (pure . (>>= printWork)) $ do
      w <- named "workload" workloadName workloads (Text.pack name)
      parsePoint arguments >>= workByGhc w
    [] -> die "usage: weft-bench-select WORKLOAD KEY=VALUE.. (weft-bench pipes and events-pong run it)"
