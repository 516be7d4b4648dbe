-- |
-- Description : The tests of the package weft
--
-- One tree of all tests. They run one at a time: several count descriptors,
-- measure CPU time or change limits of the whole process. Some need a process of their
-- own, which is this program again ("Test.Ending").
module Main (main) where

import System.Environment (lookupEnv, setEnv)
import System.IO (hSetEncoding, stdout, utf8)
import Test.Adoption qualified
import Test.AtOnce qualified
import Test.Attempts qualified
import Test.CancelStorm qualified
import Test.Costs qualified
import Test.Counters qualified
import Test.Direct qualified
import Test.Direct.Programs qualified
import Test.Dump qualified
import Test.Elsewhere qualified
import Test.Ending qualified
import Test.Examples qualified
import Test.Failures qualified
import Test.Files qualified
import Test.Foreign qualified
import Test.Guests qualified
import Test.Laws qualified
import Test.Laziness qualified
import Test.Local qualified
import Test.Monitor qualified
import Test.Moves qualified
import Test.Operator qualified
import Test.Park qualified
import Test.Pool qualified
import Test.Readiness qualified
import Test.Registry qualified
import Test.Scheduling qualified
import Test.Scheduling.Workers qualified
import Test.Slots qualified
import Test.Sockets qualified
import Test.Strays qualified
import Test.Support (configurations)
import Test.Takeover qualified
import Test.Tasty
import Test.Timeline qualified
import Test.Timers qualified
import Test.Transactions qualified
import Test.Tutorial qualified
import Test.Uring qualified
import Test.World (realWorld)
import Weft.Conformance (conformance)

main :: IO ()
main = lookupEnv Test.Ending.partVariable >>= maybe everything (sequence_ . (`lookup` (Test.Ending.parts <> Test.Operator.parts <> Test.Scheduling.Workers.parts)))

everything :: IO ()
everything = do
  hSetEncoding stdout utf8
  setEnv "TASTY_NUM_THREADS" "1"
  defaultMain . adjustOption limited $
    testGroup
      "weft"
      [ testGroup "Conformance" (map (conformance . realWorld) configurations),
        Test.Laws.tests,
        Test.Laziness.tests,
        Test.Operator.tests,
        Test.Scheduling.tests,
        Test.Strays.tests,
        Test.Guests.tests,
        Test.Elsewhere.tests,
        Test.Failures.tests,
        Test.Direct.tests,
        Test.Direct.Programs.tests,
        Test.Examples.tests,
        Test.Tutorial.tests,
        Test.Costs.tests,
        Test.Counters.tests,
        Test.Sockets.tests,
        Test.Files.tests,
        Test.Foreign.tests,
        Test.Transactions.tests,
        Test.Attempts.tests,
        Test.Registry.tests,
        Test.Slots.tests,
        Test.Timers.tests,
        Test.Uring.tests,
        Test.Park.tests,
        Test.Pool.tests,
        Test.Readiness.tests,
        Test.Adoption.tests,
        Test.AtOnce.tests,
        Test.CancelStorm.tests,
        Test.Dump.tests,
        Test.Takeover.tests,
        Test.Monitor.tests,
        Test.Moves.tests,
        Test.Ending.tests,
        Test.Local.tests,
        Test.Timeline.tests
      ]

-- | A test that takes longer hangs.
limited :: Timeout -> Timeout
limited = \case
  NoTimeout -> mkTimeout 180_000_000
  chosen -> chosen
