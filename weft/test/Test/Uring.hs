module Test.Uring (tests) where

import Test.Tasty

tests :: TestTree
tests = testGroup "Uring" []
