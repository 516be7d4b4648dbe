-- |
-- Description : Programs with every outcome that is allowed
--
-- Small concurrent programs that say what happens; what they said must be one of the
-- listed outcomes. Which of them came is not asserted.
module Weft.Conformance.Litmus
  ( litmus,
    litmusIn,
    allowed,
  )
where

import Control.Monad (forM_, replicateM, unless)
import Data.ByteString (ByteString)
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Conformance.Check
import Weft.Conformance.World

-- | Run it many times in one run; every log must be one of these.
litmus :: World -> TestName -> [[String]] -> ((String -> Thread ()) -> Thread ()) -> TestTree
litmus world name outcomes program = testCase name (repeatedly world outcomes program)

-- | 'litmus' in a directory.
litmusIn :: World -> TestName -> [[String]] -> (ByteString -> (String -> Thread ()) -> Thread ()) -> TestTree
litmusIn world name outcomes program = testCase name . worldDirectory world $ repeatedly world outcomes . program

repeatedly :: World -> [[String]] -> ((String -> Thread ()) -> Thread ()) -> Assertion
repeatedly world outcomes program = do
  logs <- running world . replicateM (worldRounds world 200) $ do
    (say, said) <- liftIO newLog
    () <- program say
    liftIO said
  forM_ logs (`among` outcomes)

-- | Run it once.
allowed :: World -> [[String]] -> ((String -> Thread ()) -> Thread ()) -> Assertion
allowed world outcomes program = do
  (say, said) <- newLog
  running world (program say)
  got <- said
  got `among` outcomes

among :: [String] -> [[String]] -> Assertion
among got outcomes = unless (got `elem` outcomes) (assertFailure (show got <> " is not one of " <> show outcomes))
