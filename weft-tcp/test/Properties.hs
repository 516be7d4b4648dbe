-- |
-- Description : Properties that are tried often enough
module Properties (atLeast, testCovered) where

import Test.Tasty (TestName, TestTree, adjustOption, testGroup)
import Test.Tasty.QuickCheck (QuickCheckTests (..), Testable, checkCoverage, testProperty)

-- | Properties that are tried so often at least, and as often as the command line says.
atLeast :: Int -> TestTree -> TestTree
atLeast n = adjustOption (\(QuickCheckTests given) -> QuickCheckTests (max n given))

-- | A property, and that its cases are of the kinds that it counts with @cover@. 'checkCoverage' ends a property
-- as soon as that is certain, after 100 cases often, no matter how many were asked for.
testCovered :: (Testable p) => TestName -> p -> TestTree
testCovered name p = testGroup name [testProperty "holds" p, testProperty "has cases of every kind" (checkCoverage p)]
