-- |
-- Description : The costs of thread-local state
module Test.Local (tests) where

import Control.Monad (replicateM_)
import System.Mem (getAllocationCounter)
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Local

tests :: TestTree
tests =
  testGroup
    "Local"
    [ testCase "reading allocates a constant amount" $ do
        bytes <- runningQuietly $ do
          k <- newLocal (0 :: Int)
          setLocal k 1
          before <- liftIO getAllocationCounter
          replicateM_ 1000 (getLocal k)
          after' <- liftIO getAllocationCounter
          pure ((before - after') `div` 1000)
        assertBool (show bytes <> " bytes") (bytes < 400)
    ]
