-- | Workloads by contenders: arguments, rows, and each workload once, small.
module Weft.Bench.ContestSpec (tests) where

import Control.Exception (ErrorCall, try)
import Control.Monad (void)
import Data.ByteString.Lazy qualified as Lazy
import Data.Either (isLeft)
import Data.Map.Strict qualified as Map
import Data.Text (Text)
import Data.Text qualified as Text
import System.IO.Temp (withSystemTempDirectory)
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (assertBool, assertFailure, testCase, (@?=))
import Weft (liftIO)
import Weft qualified
import Weft.Bench.Child (withNursery)
import Weft.Bench.Contest
import Weft.Bench.Contest.Kind
import Weft.Bench.Contest.Workload
import Weft.Bench.Measure (Nanoseconds (..))
import Weft.Bench.Report (Cell (..), renderJson)
import Weft.Substrate (NotOnHEC (..), atomicPTM, getHEC)

tests :: TestTree
tests =
  testGroup
    "Contest"
    [ testCase "a point and its arguments" $ do
        parsePoint (pointArguments point) @?= Right point
        assertBool "parsed" (all (isLeft . parsePoint . pure) ["pairs", "=1", ""]),
      testCase "all combinations, the first parameter slowest" $
        map (map snd) (pointsOf [("a", [1, 2]), ("b", [3, 4])]) @?= [["1", "3"], ["1", "4"], ["2", "3"], ["2", "4"]],
      testCase "a sample comes back from its line" $
        parseSample (Lazy.toStrict (renderJson (sampleRow sample))) @?= Right sample,
      testCase "rates, their range, and ratios within the rounds" $ do
        let rows = contestRows contest samples
            of' name cell = [lookup cell r | r <- rows, lookup "contender" r == Just (Name name)]
        of' "a" "per_second" @?= [Just (Figure 200), Just (Figure 300)]
        of' "a" "per_second_least" @?= [Just (Figure 100), Just (Figure 150)]
        of' "a" "per_second_most" @?= [Just (Figure 300), Just (Figure 450)]
        of' "a" "speedup" @?= [Just (Figure 1), Just (Figure 1.5)]
        of' "b" "rate_ratio" @?= [Just (Figure 0.5), Just (Figure 0.5)]
        of' "b" "cpu_ns_per_operation" @?= [Just (Figure 1e7), Just (Figure (2e9 / 300))]
        of' "b" "processors" @?= [Just (Count 1), Just (Count 2)],
      testCase "what was measured before is not measured again" . withNursery $ \nursery -> do
        let never = Contest "c" [Contender "a" (const (Left "asked"))] [[("n", "1")]] 1 1
            known = Sample "c" "a" 1 [("n", "1")] (Map.fromList [("operations", 1), ("seconds", 1)])
        got <- runContest nursery [known] (const (assertFailure "told")) never
        got @?= [known]
        none <- runContest nursery [known {sampleRound = 2}] (const (assertFailure "told")) never
        none @?= [],
      testCase "workers that ConcLib_OS starts are HECs, others are not" $ do
        let onHec = liftIO (atomicPTM (void getHEC))
        Weft.runWith (onHecs Weft.defaultSettings) onHec
        try (Weft.runWith Weft.defaultSettings onHec) >>= (@?= Left NotOnHEC),
      -- Not by io_uring, which not every machine has; its threads are the same.
      testGroup "small, by each kind" [testGroup (Text.unpack (workloadName w)) [testCase (Text.unpack (kindName k)) (small w k) | k <- ks, not ("io_uring" `Text.isSuffixOf` kindName k)] | w@Workload {workloadBy = ByThreads _ ks _ _} <- workloads]
    ]
  where
    point = [("pairs", "2"), ("file", "/tmp/a=b")]
    sample = Sample "pipes" "NPTL" 3 [("pairs", "2")] (Map.fromList [("operations", 5), ("seconds", 0.125)])
    contest = Contest "c" [Contender n (const (Left "")) | n <- ["a", "b"]] (pointsOf [("processors", [1, 2])]) 3 1
    samples =
      [ Sample "c" n r [("processors", p)] (Map.fromList [("operations", 100 * f * fromIntegral r * g), ("seconds", 1), ("cpu_seconds", 2 * f)])
        | r <- [1 .. 3],
          (n, f) <- [("a", 1), ("b", 0.5)],
          (p, g) <- [("1", 1), ("2", 1.5)]
      ]

-- | All operations are done, by a point that has every parameter.
small :: Workload -> Kind -> IO ()
small w kind = withSystemTempDirectory "contest" $ \directory -> withPlaces directory [size] $ \places -> do
  extra <- either assertFailure pure (parsePoint places)
  run <- either assertFailure pure (workBy w (kindName kind) (size ++ extra))
  done <- try run
  case done of
    Left e -> assertFailure (show (e :: ErrorCall))
    Right d -> do
      workOperations d @?= expected
      assertBool "no time" (workTime d > Nanoseconds 0)
      assertBool "collected for longer than it took" (maybe (workloadName w == "memory") (\x -> x >= 0 && x <= 1) (lookup "gc_share" (workMore d)))
  where
    (size, expected) = tiny (workloadName w)

tiny :: Text -> (Point, Int)
tiny = \case
  "pipes" -> (at [("processors", 1), ("pairs", 2), ("bytes", 10_000), ("capacity", 4_096), ("idle", 3), ("total", 80_000)], 80_000)
  "stm" -> (at [("processors", 1), ("total", 1_000)], 1_000)
  "disk-random" -> (at [("processors", 1), ("threads", 4), ("reads", 64), ("file-bytes", 65_536)], 64)
  "spread" -> (at [("processors", 1), ("threads", 8), ("turns", 5), ("steps", 10), ("counter", 1)], 40)
  "memory" -> (at [("threads", 3), ("buffer", 100)], 3)
  name
    | name `elem` ["yields", "switches", "fork-join", "kept"] -> (at [("processors", 1), ("threads", 5), ("total", 20)], 20)
    | name `elem` ["ping-pong", "os-ping-pong", "put-take", "exchanges"] -> (at [("processors", 1), ("threads", 2), ("total", 20)], 20)
  other -> error ("no size for " ++ Text.unpack other)
  where
    at = map (fmap (Text.pack . show @Int))
