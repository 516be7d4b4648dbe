-- | The program @weft-kv@.
module Main (main) where

import Replicated.Commands (replayCommand, simulateCommand)
import Replicated.Program (mainWith)

main :: IO ()
main = mainWith [simulateCommand putStrLn, replayCommand putStrLn]
