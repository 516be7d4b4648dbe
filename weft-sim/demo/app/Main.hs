-- | The program @weft-kv@.
module Main (main) where

import Replicated.Program qualified

main :: IO ()
main = Replicated.Program.main
