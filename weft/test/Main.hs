-- |
-- The tests of the package.
module Main
  ( main,
  )
where

import System.Environment (setEnv)
import Test.Pool qualified
import Test.Readiness qualified
import Test.Tasty

-- One test at a time: some lower the limit on descriptors of the whole process.
main :: IO ()
main = do
  setEnv "TASTY_NUM_THREADS" "1"
  defaultMain (testGroup "weft" [Test.Pool.tests, Test.Readiness.tests])
