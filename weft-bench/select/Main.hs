-- |
-- Description : A contender of weft-bench events without threads
--
-- Linked without @-threaded@, GHC's threads wait with @select@ in the scheduler of the run-time
-- system. Its arguments are a workload and a point.
module Main (main) where

import Data.Text qualified as Text
import System.Environment (getArgs)
import System.Exit (die)
import Weft.Bench.Command.Events (runContender)
import Weft.Bench.Events.Manager (Manager (OfGhc))

main :: IO ()
main =
  getArgs >>= \case
    workload : point -> runContender OfGhc (Text.pack workload) point
    [] -> die "usage: weft-bench-select WORKLOAD KEY=VALUE.. (weft-bench events runs it)"
