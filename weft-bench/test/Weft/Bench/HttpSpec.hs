-- | The pure parts of the comparison of servers.
module Weft.Bench.HttpSpec (tests) where

import Data.ByteString qualified as Bytes
import Data.Either (isLeft)
import Data.Maybe (isJust, mapMaybe)
import Data.Text (Text)
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (assertBool, testCase, (@?=))
import Test.Tasty.QuickCheck (Positive (..), testProperty, (===))
import Weft.Bench.Http.Config
import Weft.Bench.Http.Load
import Weft.Bench.Http.Page
import Weft.Bench.Http.Probe
import Weft.Bench.Http.Scenario
import Weft.Bench.Http.Server (Backend (..), ServerName (..), parseServer, serverName)
import Weft.Bench.Http.Summary
import Weft.Bench.Http.Wrk
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
            traverse (parseScenario . showScenario) [Scenario a 0, Scenario a i] === Right [Scenario a 0, Scenario a i],
          testCase "nonsense is refused" $
            assertBool "parsed" (all (isLeft . parseScenario) ["", "0", "64+", "+64", "64+0", "-1", "64+1+1", "64 "]),
          testCase "lists" $ listOf parseScenario "64,1000" @?= Right [Scenario 64 0, Scenario 1000 0],
          testCase "a list with a hole" $ assertBool "parsed" (isLeft (listOf parseScenario "64,,1000"))
        ],
      testCase "every server is known by its name" $
        mapM_ (\s -> parseServer (serverName s) @?= Right s) [Weft Epoll, Weft IoUring, Weft Poll, Nginx Sendfile, Nginx Copy, Lighttpd, Warp, Rawloop],
      testCase "no other is" $ assertBool "parsed" (isLeft (parseServer "apache")),
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
        ],
      testGroup
        "Summary"
        [ testCase "medians, and ratios to the floor in the same round" $ do
            let rows = summaryRows [nginx, Rawloop] plain
            map (map (lookup "server")) rows @?= [[Just (Name "nginx"), Just (Name "rawloop")]]
            map (cells "cpu_ns_per_request") rows @?= [[Figure 2000, Figure 1000]]
            -- 2.0, 2.5 and 1.0 in the three rounds
            map (cells "cpu_ratio") rows @?= [[Figure 2, Figure 1]],
          testCase "without the floor there is no ratio" $
            map (cells "cpu_ratio") (summaryRows [nginx] plain') @?= [[Absent]],
          testCase "beside idle connections" $ do
            let rows = summaryRows [nginx] [idle 1 100 90, idle 2 1000 800, idle 3 50 50]
            map (cells "with_idle_ratio") rows @?= [[Figure 0.9]]
            map (cells "requests_per_second") rows @?= [[Figure 90]]
            map (cells "idle_lost") rows @?= [[Count 3]],
          testCase "a sample is a row" $
            map (lookup "load") (observationRow (idle 1 100 90)) @?= [Just (Name "alone"), Just (Name "beside_idle")]
        ]
    ]
  where
    answer = "HTTP/1.1 200 OK\r\nServer: x\r\ncontent-LENGTH:  5 \r\n\r\nhello"
    place = Place {placePort = 8099, placeRoot = "/srv/site", placeOwn = "/srv/own", placeRunsAsRoot = False}
    nginx = Nginx Sendfile
    plain =
      [ observation r server (sample 10 cpu)
        | (r, raw, other) <- [(1, 1000, 2000), (2, 400, 1000), (3, 5000, 5000)],
          (server, cpu) <- [(Rawloop, raw), (nginx, other)]
      ]
    plain' = filter ((== nginx) . observedServer) plain
    observation r server s = Observation (Scenario 64 0) r server s Nothing
    idle r without with =
      Observation (Scenario 64 15000) r nginx (sample without 1) (Just (Beside (sample with 1) (Held (15000 - r) r)))
    sample rate cpu = Sample (WrkReport 1 rate 1000 2000 0) (CpuTime cpu cpu)

cells :: Text -> [Row] -> [Cell]
cells name = mapMaybe (lookup name)
