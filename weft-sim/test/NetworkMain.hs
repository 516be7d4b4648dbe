-- |
-- The tests of the simulated network.
module Main (main) where

import Test.Network qualified
import Test.Tasty

main :: IO ()
main = defaultMain (localOption (mkTimeout 20_000_000) Test.Network.tests)
