module Main (main) where

import System.Environment (setEnv)
import Test.Conformance (tests)
import Test.Tasty

main :: IO ()
main = setEnv "TASTY_NUM_THREADS" "1" >> defaultMain (localOption (mkTimeout 15_000_000) tests)
