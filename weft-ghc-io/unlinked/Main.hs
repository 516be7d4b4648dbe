-- |
-- Description : A program in which the waits of base are not replaced
--
-- It is linked dynamically: what the libraries refer to is in libraries of their own, and no option
-- of this link changes it. Or it is linked without @-threaded@: base does not wait in the functions that are replaced.
module Main (main) where

import Control.Concurrent (threadDelay)
import Control.Exception (try)
import Test.Tasty (defaultMain)
import Test.Tasty.HUnit (assertFailure, testCase)
import Weft.GhcIO qualified as GhcIO

main :: IO ()
main =
  defaultMain . testCase "in a program that is linked dynamically, or without -threaded, install refuses, and delays go on" $
    try GhcIO.install >>= \case
      Left GhcIO.NotRelinked -> threadDelay 10
      Right () -> assertFailure "install has found nothing wrong"
