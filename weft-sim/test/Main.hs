module Main (main) where
import Test.Races qualified
import Test.Litmus qualified
import Test.Determinism qualified
import Test.Reports qualified
import Test.Tasty
main :: IO ()
main = defaultMain (testGroup "" [Test.Races.tests, Test.Litmus.tests, Test.Determinism.tests, Test.Reports.tests])
