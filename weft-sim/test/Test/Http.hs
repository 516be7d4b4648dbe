{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : The HTTP server in simulated worlds
--
-- The scenarios of @explore\/Explore\/Http@ with a bounded budget, and what they have found, by
-- name.
module Test.Http (tests) where

import Control.Monad (forM_)
import Explore.Http
import Explore.Scenario
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Sim

tests :: TestTree
tests =
  testGroup
    "http"
    [ testGroup "exploration" (map scenario scenarios),
      testGroup "found by seeds" [testCase (name <> " " <> show n <> ": " <> what) (again name n) | (name, n, what) <- found],
      testCase "the server does nothing outside of its world" outside
    ]

-- | As many seeds as the scenario deserves, and the schedules of the small ones.
scenario :: Scenario -> TestTree
scenario s = testCase (scenarioName s <> ": " <> scenarioAbout s) $ do
  case scenarioKind s of
    Small preemptions -> forM_ [1, 2] $ \workers ->
      checkAll (Bounds (min 1 preemptions) 300 False) (systematicConfig workers) (scenarioProgram s 0) verdictOf
    Drawn -> pure ()
  forM_ [0 .. most] (run s)
  where
    -- Those that take long; more of them is for weft-explore.
    most = case scenarioName s of
      "http/thousand" -> 1
      "http/overload-handlers" -> 5
      "http/overload-connections" -> 5
      _ -> 63

run :: Scenario -> Seed -> IO ()
run s seed = check (scenarioConfig s seed) [seed] (scenarioProgram s seed) verdictOf

-- | Seeds with which something has gone wrong once.
found :: [(String, Seed, String)]
found =
  [ ("http/bytes", 729, "draining waits for an acceptor that has a connection in its hand"),
    ("http/dates", 1083, "draining waits for an acceptor that has a connection in its hand"),
    ("http/draining-kept", 97, "a request that comes when draining begins is answered"),
    ("http/draining", 105, "a request that comes when draining begins is answered")
  ]

again :: String -> Seed -> IO ()
again name seed = case filter ((== name) . scenarioName) scenarios of
  [s] -> run s seed
  _ -> assertFailure ("no scenario " <> name)

-- | Two runs with one seed are one, and no effect opens a descriptor of the operating system or
-- takes real time.
outside :: IO ()
outside = forM_ (filter ((`elem` ["http/conversations", "http/draining", "http/replaced"]) . scenarioName) scenarios) $ \s ->
  audit (scenarioConfig s 9) 9 (scenarioProgram s 9) >>= (@?= [])
