-- | The pure parts of the comparison of servers, but for the pictures.
module Weft.Bench.HttpSpec (tests) where

import Data.ByteString qualified as Bytes
import Data.Either (isLeft)
import Data.Map.Strict qualified as Map
import Data.Maybe (isJust, mapMaybe)
import Data.Text (Text)
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (assertBool, testCase, (@?=))
import Test.Tasty.QuickCheck (Positive (..), testProperty, (===))
import Weft.Bench.Http.Client.Report
import Weft.Bench.Http.Config
import Weft.Bench.Http.Content (Content (..))
import Weft.Bench.Http.Experiment (ExperimentName (..))
import Weft.Bench.Http.Load
import Weft.Bench.Http.Memory
import Weft.Bench.Http.Name
import Weft.Bench.Http.Observation
import Weft.Bench.Http.Page
import Weft.Bench.Http.Probe
import Weft.Bench.Http.Scenario
import Weft.Bench.Http.Server (parseAllocated)
import Weft.Bench.Http.Summary
import Weft.Bench.Named (listOf, named)
import Weft.Bench.Proc
import Weft.Bench.Report (Cell (..), Row)

tests :: TestTree
tests =
  testGroup
    "Http"
    [ testCase "the page has its size" $ Bytes.length page @?= 305,
      testGroup
        "Scenario"
        [ testProperty "what is shown is parsed" $ \(Positive a) (Positive i) ->
            let all' = Scenario a i AsAnswered : [Scenario a 0 pace | pace <- [minBound ..]]
             in traverse (parseScenario . showScenario) all' === Right all',
          testCase "nonsense is refused" $
            assertBool "parsed" (all (isLeft . parseScenario) ["", "0", "64+", "+64", "64+0", "-1", "64+1+1", "64 ", "64@", "64@best", "64+1@own", "@own"]),
          testCase "lists" $ listOf parseScenario "64,1000" @?= Right [closedLoop 64, closedLoop 1000],
          testCase "a complaint says which there are" $
            named "thing" id ["a", "b"] "c" @?= Left "no such thing: c (there are a, b)",
          testCase "a list with a hole" $ assertBool "parsed" (isLeft (listOf parseScenario "64,,1000"))
        ],
      testCase "every server is known by its name" $
        mapM_ (\s -> parseServer (serverName s) @?= Right s) allServers,
      testCase "no other is" $ assertBool "parsed" (isLeft (parseServer "apache")),
      testCase "handlers serve no files" $
        filter (`serves` FileContent 1 1) allServers @?= map Weft [minBound ..] ++ map Nginx [minBound ..] ++ [Lighttpd, Apache Worker, Apache Event, GoHttp],
      testCase "what the run-time system leaves" $
        map parseAllocated [" [(\"bytes allocated\", \"52064\")\n ,(\"num_GCs\", \"1\")\n ]\n", "", "[(\"bytes allocated\", \"x\")]", "[(\"bytes allocated\", \"12"] @?= [Just 52064, Nothing, Nothing, Nothing],
      testGroup
        "Probe"
        [ testCase "an answer" $ parseAnswer answer @?= Just (Right (Answer 200 (Bytes.length answer - 5) "hello")),
          testCase "not before it is complete" $
            [n | n <- [0 .. Bytes.length answer - 1], isJust (parseAnswer (Bytes.take n answer))] @?= [],
          testCase "no length" $ assertBool "parsed" (fmap isLeft (parseAnswer "HTTP/1.1 200 OK\r\n\r\n") == Just True),
          testCase "not HTTP" $ assertBool "parsed" (fmap isLeft (parseAnswer "SSH-2.0\r\n\r\n") == Just True)
        ],
      testCase "what idle says" $
        map parseHeld ["held 14990 lost 10", "ready 15000", "held x lost 0"] @?= [Just (Held 14990 10), Nothing, Nothing],
      testGroup
        "Config"
        [ testCase "braces of nginx are balanced" $
            let text = nginxConfig Sendfile place in length (filter (== '{') text) @?= length (filter (== '}') text),
          testCase "nginx changes user for root only" $
            map (elem "user root;" . lines . nginxConfig Copy) [place, place {placeRunsAsRoot = True}] @?= [False, True],
          testCase "only this machine is listened on" $ do
            assertBool "nginx" ("    listen 127.0.0.1:8099 backlog=4096;" `elem` lines (nginxConfig Sendfile place))
            assertBool "lighttpd" ("server.bind = \"127.0.0.1\"" `elem` lines (lighttpdConfig place))
            assertBool "Apache" ("Listen 127.0.0.1:8099" `elem` lines (apacheConfig Event "m" place)),
          testCase "Apache's worker has a thread for each connection" $ do
            let value key n = [read v | [k, v] <- map words (lines (apacheConfig Worker "m" place {placeConnections = n})), k == key] :: [Int]
            mapM_ (\n -> assertBool (show n) (all (>= n) (value "MaxRequestWorkers" n))) [1, 64, 500, 1000, 10_000]
            (value "ThreadsPerChild" 64, value "ServerLimit" 64) @?= ([80], [1])
            (value "ThreadsPerChild" 10_000, value "StartServers" 10_000) @?= ([500], [21]),
          testCase "Apache changes user for root only" $
            map (elem "User nobody" . lines . apacheConfig Event "m") [place, place {placeRunsAsRoot = True}] @?= [False, True]
        ],
      testGroup
        "Memory"
        [ testCase "the kernel's" $
            parseKernel "MemTotal: 9 kB\nSlab:  100 kB\nSReclaimable: 50 kB\nKernelStack: 3 kB\nPageTables: 7 kB\nSecPageTables: 1000 kB\n" @?= 110 * 1024,
          testCase "pages in socket buffers" $
            map parseSocketPages ["sockets: used 12\nTCP: inuse 1 orphan 0 tw 0 alloc 1 mem 289\nUDP: inuse 0 mem 5\n", "", "TCP: inuse 1\n"] @?= [289, 0, 0],
          testCase "growth for each connection" $ growth 10 (Memory 100 50 7) (Memory 1100 60 0) @?= Growth 100 1 (-0.7)
        ],
      testGroup
        "Summary"
        [ testCase "medians, and ratios to the floor in the same round" $ do
            let rows = summaryRows Rawloop [nginx, Rawloop] plain
            map (map (lookup "server")) rows @?= [[Just (Name "nginx"), Just (Name "rawloop")]]
            map (cells "cpu_ns_per_request") rows @?= [[Figure 2000, Figure 1000]]
            -- 2.0, 2.5 and 1.0 in the three rounds
            map (cells "cpu_ratio") rows @?= [[Figure 2, Figure 1]],
          testCase "without the floor there is no ratio" $
            map (cells "cpu_ratio") (summaryRows Rawloop [nginx] plain') @?= [[Absent]],
          testCase "beside idle connections" $ do
            let rows = summaryRows Rawloop [nginx] [idle 1 100 90, idle 2 1000 800, idle 3 50 50]
            map (cells "with_idle_ratio") rows @?= [[Figure 0.9]]
            map (cells "requests_per_second") rows @?= [[Figure 90]]
            map (cells "idle_lost") rows @?= [[Count 3]],
          testCase "a sample is a row" $
            map (lookup "load") (observationRow (idle 1 100 90)) @?= [Just (Name "alone"), Just (Name "beside_idle")],
          testCase "memory has columns of its own" $ do
            let rows = summaryRows Rawloop [nginx] [(idle r 1 1) {observedMemory = Just (Memory 1000 900 0, Growth g 2 3)} | (r, g) <- [(1, 10), (2, 30), (3, 20)]]
            map (cells "resident_per_connection") rows @?= [[Figure 20]]
            map (cells "requests_per_second") rows @?= [[]],
          testCase "what is allocated is added where it is known" $
            map (lookup "allocated_bytes_per_request") (withAllocation (Map.fromList [("a", 5)]) [[("server", Name "a")], [("server", Name "b")]]) @?= [Just (Figure 5), Nothing],
          testCase "the measured load is n t / T" $
            measuredLoad (LoadReport 1000 2 500 4e6 0 0 Nothing 0 Nothing) @?= 2
        ]
    ]
  where
    answer = "HTTP/1.1 200 OK\r\nServer: x\r\ncontent-LENGTH:  5 \r\n\r\nhello"
    place = Place {placePort = 8099, placeRoot = "/srv/site", placeOwn = "/srv/own", placeRunsAsRoot = False, placeConnections = 64, placeBacklog = 4096}
    nginx = Nginx Sendfile
    plain =
      [ observation r server (sample 10 cpu)
        | (r, raw, other) <- [(1, 1000, 2000), (2, 400, 1000), (3, 5000, 5000)],
          (server, cpu) <- [(Rawloop, raw), (nginx, other)]
      ]
    plain' = filter ((== nginx) . observedServer) plain
    observation r server s = Observation PageLoad (closedLoop 64) r server s Nothing Nothing Nothing
    idle r without with =
      Observation IdleBeside (Scenario 64 15000 AsAnswered) r nginx (sample without 1) (Just (Beside (sample with 1) (Held (15000 - r) r))) Nothing Nothing
    sample rate cpu = LoadSample (LoadReport 1 1 rate 1500 1000 2000 Nothing 0 Nothing) (CpuTime cpu cpu) 0

cells :: Text -> [Row] -> [Cell]
cells name = mapMaybe (lookup name)
