-- |
-- Description : The tests of simulated disks, signals and names
module Main (main) where

import Test.Disk qualified
import Test.DiskCrash qualified
import Test.DiskModel qualified
import Test.Names qualified
import Test.Signals qualified
import Test.Tasty

main :: IO ()
main =
  defaultMain . localOption (mkTimeout 60_000_000) $
    testGroup "weft-sim: disks" [Test.Disk.tests, Test.DiskModel.tests, Test.DiskCrash.tests, Test.Signals.tests, Test.Names.tests]
