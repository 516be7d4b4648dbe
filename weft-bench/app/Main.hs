-- | The program @weft-bench@. Everything it does is in the library of this
-- package; this is where the run-time system's options are attached.
module Main (main) where

import Weft.Bench.Command (runCommand)

main :: IO ()
main = runCommand
