module Test.Exploring (tests) where
import Test.Tasty
tests :: TestTree
tests = testGroup "Exploring" []
