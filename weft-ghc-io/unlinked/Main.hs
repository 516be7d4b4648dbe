-- |
-- Description : A program in which the waits of base are not replaced
--
-- It is linked dynamically: what the libraries refer to is in libraries of their own, and no option
-- of this link changes it.
module Main (main) where

import Control.Concurrent (threadDelay)
import Control.Exception (try)
import System.Exit (die)
import Weft.GhcIO qualified as GhcIO

main :: IO ()
main =
  try GhcIO.install >>= \case
    Left GhcIO.NotRelinked -> threadDelay 10 >> print GhcIO.NotRelinked
    Right () -> die "install has found nothing wrong"
