module Main (main) where

import Test.Explore qualified
import Test.Tasty

main :: IO ()
main = defaultMain Test.Explore.tests
