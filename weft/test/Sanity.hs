-- |
-- Description : Direct threads under the checks of GHC's debugging run-time system
--
-- This program is linked with @-debug@ and runs with @+RTS -DS -c@: after every collection
-- the run-time system looks at every stack, captured continuation and heap object, and the
-- old generation is compacted. A capture that left a malformed frame, or an object that the
-- collector cannot mark (Note [Prompt tags of two words], "Weft.Internal.Os.Capture"), ends the
-- program here.
module Main (main) where

import System.Environment (lookupEnv, setEnv)
import Test.Direct qualified
import Test.Direct.Programs qualified
import Test.Laws qualified
import Test.Tasty
import Test.Tasty.QuickCheck (testProperty)

main :: IO ()
main = do
  setEnv "TASTY_NUM_THREADS" "1"
  lookupEnv "TASTY_PATTERN" >>= maybe (setEnv "TASTY_PATTERN" suitable) (const (pure ()))
  defaultMain . localOption (mkTimeout 120_000_000) $
    testGroup
      "weft, sanity checks"
      [ Test.Direct.tests,
        testProperty "2,000 random programs" (Test.Direct.Programs.randomPrograms 2000),
        Test.Laws.tests
      ]

-- | Each collection walks the whole stack and the heap: not the tests whose stacks are deep
-- or whose programs are many. What is allocated is another figure here. One storm and
-- two workers are enough.
suitable :: String
suitable = "!/,000 frames/ && !/bytes allocated/ && !/Poll/ && !/1 worker/ && !/released once.Epoll/ && !/random programs do/ && !/random programs are/"
