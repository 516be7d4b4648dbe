module Test.Property (tests) where
import Test.Tasty
tests :: TestTree
tests = testGroup "Property" []
