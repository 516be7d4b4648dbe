-- |
-- Description : Contenders of weft-bench that have no OS threads
--
-- Linked without @-threaded@, GHC's threads wait with @select@ in the scheduler of the run-time
-- system: a contender of @weft-bench pipes@ and of @weft-bench events@. Its arguments are a
-- workload and a point.
module Main (main) where

import Data.Text qualified as Text
import System.Environment (getArgs)
import System.Exit (die)
import Weft.Bench.Command.Events (runContender)
import Weft.Bench.Contest (parsePoint, printWork)
import Weft.Bench.Contest.Kind (Kind (Ghc))
import Weft.Bench.Contest.Pipes (pipesWork)
import Weft.Bench.Events.Manager (Manager (OfGhc))

main :: IO ()
main =
  getArgs >>= \case
    "pipes" : point -> either (die . ("weft-bench-select: " ++)) (>>= printWork) (parsePoint point >>= pipesWork Ghc)
    workload : point -> runContender OfGhc (Text.pack workload) point
    [] -> die "usage: weft-bench-select WORKLOAD KEY=VALUE.. (weft-bench pipes and events run it)"
