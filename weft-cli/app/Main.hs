-- | The program @weft@.
module Main (main) where

import Weft.Cli qualified

main :: IO ()
main = Weft.Cli.main
