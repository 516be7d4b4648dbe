-- | Rows of the measurements of TCP stacks.
module Weft.Bench.TcpSpec (tests) where

import Control.Applicative ((<|>))
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (testCase, (@?=))
import Weft.Bench.Report (nameAt, numberAt)
import Weft.Bench.Tcp
import Weft.Bench.Tcp.Stacks

tests :: TestTree
tests =
  testGroup
    "Tcp"
    [ testCase "processor time is a round trip's, in microseconds, and its ratio the round's" $
        figures "round-trips@1" @?= [("floor", Just 2, Just 1), ("weft", Just 3, Just 2)],
      testCase "bulk is in seconds a gigabyte, beside the first stack that has it" $
        figures "bulk-in" @?= [("linux", Just 0.5, Just 1), ("weft", Just 1, Just 2)],
      testCase "an idle connection is its share of the growth" $
        [numberAt "bytes_per_connection" r | r <- rows, nameAt "experiment" r == Just "idle@10"] @?= [Just 400],
      testCase "the floor takes part where no connection is known" $
        filter (offers Floor) (experiments True) @?= [RoundTrips 1, RoundTrips 100, RoundTrips 1_000, Connections],
      testCase "the program weft serves pages, on either TCP" $
        [name | (name, s) <- stacks, offers s (Pages 64)] @?= ["weft-linux", "weft"],
      testCase "no two stacks have a device or an address" $
        length [() | (_, a) <- stacks, (_, b) <- stacks, a < b, stackDevice a == stackDevice b || stackAddress a == stackAddress b, stackAddress a /= "127.0.0.1"] @?= 0
    ]
  where
    figures e = [(n, numberAt "cpu_us" r <|> numberAt "cpu_s_per_gb" r, numberAt "ratio" r) | r <- rows, nameAt "experiment" r == Just e, Just n <- [nameAt "stack" r]]
    rows = sampleRows ["floor", "linux", "weft"] [RoundTrips 1, Into, Idle 10] samples
    samples =
      [ (RoundTrips 1, "floor", 1, cpu 1_000 1e6),
        (RoundTrips 1, "floor", 2, cpu 1_000 2e6),
        (RoundTrips 1, "floor", 3, cpu 1_000 9e6),
        (RoundTrips 1, "weft", 1, cpu 1_000 3e6),
        (RoundTrips 1, "weft", 2, cpu 1_000 4e6),
        (RoundTrips 1, "weft", 3, cpu 1_000 3e6),
        (Into, "linux", 1, cpu 1e9 0.5e9),
        (Into, "weft", 1, cpu 1e9 1e9),
        (Idle 10, "weft", 1, Measurement 0 1 0 4_000)
      ]
    cpu n c = Measurement n 1 c 0
