-- | How clients are called, and what they say.
module Weft.Bench.ClientSpec (tests) where

import Data.Either (isLeft)
import Data.Text (Text)
import Data.Text qualified as Text
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (assertBool, testCase, (@?=))
import Weft.Bench.Child (Command (..))
import Weft.Bench.Http.Client

tests :: TestTree
tests =
  testGroup
    "Client"
    [ testCase "every client is known by its name" $
        mapM_ (\c -> parseClient (clientName c) @?= Right c) [minBound ..],
      testCase "no other is" $ assertBool "parsed" (isLeft (parseClient "abs")),
      testCase "wrk where it can, else ask" $
        map (chooseClient Wrk) [closed, closed {askingRate = Just 10}, closed {askingTarget = "/f{0..9}"}] @?= [Wrk, Ask, Ask],
      testCase "others can do all" $
        [chooseClient c closed {askingRate = Just 10} | c <- [Ask, WeftLoad]] @?= [Ask, WeftLoad],
      testCase "a connection for each request is what only ask and ab can do, and ab nothing else" $ do
        [chooseClient c closed {askingEach = Just 1} | c <- [minBound ..]] @?= [Ask, Ask, Ask, Ab]
        map (chooseClient Ab) [closed, closed {askingEach = Just 5}, closed {askingEach = Just 1, askingRate = Just 10}] @?= [Ask, Ask, Ask]
        clientCommand "bin/weft" "peers" Ask closed {askingEach = Just 5}
          @?= Command "peers/ask" ["http://127.0.0.1:8099/x", "-c", "64", "-d", "3", "--json", "--requests", "5", "--skip", "1000"],
      testCase "ask and weft load are called alike" $ do
        let a = closed {askingRate = Just 1234.6}
            arguments = ["http://127.0.0.1:8099/x", "-c", "64", "-d", "3", "--rate", "1235", "--json"]
        clientCommand "bin/weft" "peers" Ask a @?= Command "peers/ask" arguments
        clientCommand "bin/weft" "peers" WeftLoad a @?= Command "bin/weft" (["load", "--workers", "1"] ++ arguments),
      testCase "a report" $ readReport Ask said @?= Right (LoadReport 60000 3 20000 122500 85250 1376000 (Just 3736500) 2 (Just 2.5)),
      testCase "what only some say" $
        readReport Ask (without "client_cpu_seconds" (without "p999_us" said)) @?= Right (LoadReport 60000 3 20000 122500 85250 1376000 Nothing 2 Nothing),
      testCase "what all must say" $
        [f | f <- ["requests", "seconds", "requests_per_second", "mean_us", "p50_us", "p99_us", "errors"], not (isLeft (readReport Ask (without f said)))] @?= [],
      testCase "a report of weft load" $
        readReport WeftLoad loaded @?= Right (LoadReport 60000 3 20000 122500 85250 1376000 (Just 3736500) 7 (Just 2.5)),
      testCase "what weft load must say" $
        [f | f <- ["responses", "elapsed_ns", "responses_per_second", "latency_ns", "mean", "percentiles", "50", "99", "99.9", "errors", "cpu_ns"], not (isLeft (readReport WeftLoad (without f loaded)))] @?= [],
      testCase "no report" $ assertBool "read" (all (isLeft . readReport Ask) ["", "ask: connect: Connection refused\n"])
    ]
  where
    closed = Asking 8099 "/x" 64 3 Nothing Nothing

said :: Text
said =
  "{\"requests\":60000,\"seconds\":3,\"requests_per_second\":20000,\"mean_us\":122.5,\"p50_us\":85.25,\"p90_us\":143.1,\
  \\"p99_us\":1376,\"p999_us\":3736.5,\"max_us\":5280.4,\"errors\":2,\"reopened\":0,\"bytes\":2946,\"client_cpu_seconds\":2.5}\n"

loaded :: Text
loaded =
  "{\"url\":\"x\",\"rate\":null,\"elapsed_ns\":3000000000,\"responses\":60000,\"errors\":{\"connect\":2,\"status\":5},\
  \\"responses_per_second\":20000.0,\"latency_ns\":{\"mean\":122500.0,\"percentiles\":{\"50\":85250,\"99\":1376000,\"99.9\":3736500}},\
  \\"client\":{\"cpu_ns\":2500000000},\"idle\":null}\n"

-- Under another name it is another field.
without :: Text -> Text -> Text
without name = Text.replace ("\"" <> name <> "\"") "\"other\""
