-- |
-- Description : Services in segments
--
-- The scenarios of the HTTP server and the replicated store, whose connections are streams elsewhere,
-- with few seeds; weft-tcp-explore runs many.
module ServicesTest (tests) where

import Explore.Scenario
import Explore.Segments
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Sim

tests :: TestTree
tests = testGroup "services" [testCase (scenarioName s) (mapM_ (run s) seeds) | s <- scenarios, let seeds = seedsOf s, not (null seeds)]
  where
    run s seed = check (scenarioConfig s seed) [seed] (scenarioProgram s seed) verdictOf
    -- In calm links and bad ones; of those that take long, and of many that are alike, one.
    seedsOf s
      | name `elem` ["thousand", "pace", "faults", "sluggish", "disk"] = []
      | name `elem` ["conversations", "bytes", "uploads", "cut-off", "vanishing", "draining"] = [0, 2, 4, 6]
      | otherwise = [4]
      where
        name = drop (length "segments/http/") (scenarioName s)
