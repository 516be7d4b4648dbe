-- | GHC's threads without @-threaded@, as a contender of @weft-bench pipes@.
module Main (main) where

import System.Environment (getArgs)
import System.Exit (die)
import Weft.Bench.Contest (parsePoint, printWork)
import Weft.Bench.Contest.Kind (Kind (Ghc))
import Weft.Bench.Contest.Pipes (pipesWork)

main :: IO ()
main =
  getArgs >>= \case
    "pipes" : arguments -> either (die . ("weft-bench-select: " ++)) (>>= printWork) (parsePoint arguments >>= pipesWork Ghc)
    _ -> die "usage: weft-bench-select pipes KEY=VALUE.."
