-- | The parts of @weft load@ by themselves: the histogram against exact percentiles, the quick
-- scanner against the full parser, what URLs and lists say.
module LoadUnitTest (tests) where

import Control.Exception (evaluate)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.ByteString.Unsafe (unsafeUseAsCString)
import Data.List (sort)
import Data.Map.Strict qualified as Map
import Foreign.Ptr (castPtr)
import Test.QuickCheck
import Test.QuickCheck.Monadic
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck (testProperty)
import Weft.Buffer (newBuffer)
import Weft.Cli.Load.Cells
import Weft.Cli.Load.Histogram
import Weft.Cli.Load.Report (showCount, showTime)
import Weft.Cli.Load.Scan
import Weft.Cli.Load.Source
import Weft.Cli.Load.Tally (parsePairs)
import Weft.Http.Internal.ResponseHead
import Weft.Http.RequestHead (Framing (..), Method (..), defaultLimits)
import Weft.Http.Status (statusCode)

tests :: TestTree
tests =
  testGroup
    "load, its parts"
    [ testProperty "percentiles are exact to one part in a thousand" (withMaxSuccess 500 prop_percentiles),
      testProperty "histograms add up" prop_merge,
      testProperty "each value is in its bucket, and buckets follow each other" (withMaxSuccess 2000 prop_buckets),
      testProperty "the quick scanner agrees with the parser, cut anywhere" (withMaxSuccess 3000 prop_scan),
      testProperty "the quick scanner meets heads of every kind" (checkCoverage prop_scan),
      testCase "patterns and lists" patterns,
      testCase "requests of patterns are within their ranges, and all of them come" chosen,
      testCase "weights" weights,
      testCase "the counters of the system" counters,
      testCase "numbers for people" numbers
    ]

-- | Values of all sizes.
genValue :: Gen Int
genValue = choose (0, 40) >>= \e -> choose (0, 2 ^ (e :: Int))

recorded :: [Int] -> IO Distribution
recorded values = newHistogram >>= \h -> mapM_ (record h) values >> freeze h

prop_percentiles :: Property
prop_percentiles = forAll (listOf1 genValue) $ \values -> forAll (elements [0, 0.1, 0.5, 0.9, 0.99, 0.999, 1]) $ \p -> monadicIO $ do
  d <- run (recorded values)
  let exact = sort values !! max 0 (ceiling (p * fromIntegral (length values) - 1e-9) - 1) :: Int
      got = percentile p d
  monitor (counterexample (show (exact, got)))
  assertWith (got >= exact && (got - exact) * 1024 <= exact) "the percentile"
  assertWith (distributionCount d == length values) "the number"
  assertWith (abs (mean d - fromIntegral (sum values) / fromIntegral (length values)) <= 1e-6 * (1 + mean d)) "the mean"
  assertWith (distributionLeast d == minimum values && distributionLargest d == maximum values) "the extremes"

prop_merge :: Property
prop_merge = forAll ((,) <$> listOf genValue <*> listOf genValue) $ \(a, b) -> monadicIO $ do
  (both, together) <- run ((,) <$> (merge <$> recorded a <*> recorded b) <*> recorded (a <> b))
  monitor (counterexample (show (both, together)))
  assertWith (both == together) "both"

prop_buckets :: Property
prop_buckets = forAll genValue $ \v ->
  let i = bucketOf v
   in conjoin
        [ counterexample (show (i, bucketLow i, bucketHigh i)) (bucketLow i <= v && v <= bucketHigh i),
          bucketOf (bucketLow i) === i,
          bucketOf (bucketHigh i) === i,
          bucketHigh i + 1 === bucketLow (i + 1),
          property ((bucketHigh i - bucketLow i) * 1024 <= v)
        ]

-- | If the quick scanner judges a head, then as the parser does; and if it waits for more, then
-- the parser would, too. The bytes after the head are those of the content.
prop_scan :: Property
prop_scan = forAll genHead $ \text -> forAll (elements [Get, Get, Head]) $ \method -> forAll (frequency [(2, pure (B.length text)), (1, choose (0, B.length text))]) $ \cut -> monadicIO $ do
  let given = B.take cut text
      parsed = parseResponse defaultLimits method 0 given
  (end, status, size) <- run $ do
    cells <- newCells 4
    -- In memory of exactly this size, so that a look past its end could be noticed.
    end <- unsafeUseAsCString (B.copy given) (\p -> scanHead cells 0 1 (method == Head) (castPtr p) 0 (B.length given))
    (,,) end <$> peekCell cells 0 <*> peekCell cells 1
  monitor (cover 20 (end > 0) "judged" . cover 10 (end == incomplete) "incomplete" . cover 2 (end == unusual) "left to the parser" . counterexample (show (end, status, size, parsed)))
  assertWith (agrees end status size parsed) "the same"
  where
    agrees end status size parsed
      | end == unusual = True
      | end == incomplete = case parsed of IncompleteResponse _ -> True; BadResponse _ -> True; _ -> False
      | otherwise = case parsed of
          ParsedResponse h n -> n == end && statusCode (headStatus h) == status && headExtent h == Framed (if size == 0 then NoBody else FixedBody (fromIntegral size)) && isReusable h
          _ -> False

-- | Heads, usual and unusual, and some with a line that begins with a stray CR.
genHead :: Gen ByteString
genHead = do
  version <- frequency [(20, pure "HTTP/1.1"), (1, pure "HTTP/1.0")]
  code <- elements ["200", "200", "404", "204", "304", "100", "503"]
  fields <- resize 6 (listOf field)
  size <- frequency [(16, lengthField), (1, pure ""), (1, pure "Transfer-Encoding: chunked\r\n")]
  at <- choose (0, length fields)
  rest <- elements ["", "hello", "\r\n\r\n"]
  pure (B.concat ([version, " ", code, " Fine\r\n"] <> take at fields <> [size] <> drop at fields <> ["\r\n", rest]))
  where
    lengthField = (\name n -> name <> C.pack (show (n :: Int)) <> "\r\n") <$> elements ["Content-Length: ", "content-length:", "CONTENT-LENGTH: ", "Content-Length:  "] <*> oneof [choose (0, 20), choose (0, 10 ^ (12 :: Int))]
    field =
      frequency
        [ (4, elements ["Date: Sat, 21 Nov 2026 19:00:00 GMT\r\n", "Server: x\r\n", "Content-Type: text/html\r\n", "Cache-Control: x\r\n", "C: d\r\n", "T: e\r\n", "Content-Lengthy: 7\r\n", "ETag: \"a\"\r\n"]),
          (2, elements ["Connection: keep-alive\r\n", "connection:Keep-Alive\r\n"]),
          (1, elements ["Connection: close\r\n", "Connection: keep-alive, x\r\n", "Trailer: z\r\n", "\rX: y\r\n", "\r\r\n"])
        ]

patterns :: Assertion
patterns = do
  parsePattern "/a" @?= Right (Pattern "/a" [])
  parsePattern "/f{0..131071}/{7..7}x" @?= Right (Pattern "/f" [(0, 131071, "/"), (7, 7, "x")])
  mapM_ (either (const (pure ())) (assertFailure . show) . parsePattern) ["/{", "/{}", "/{1}", "/{1..}", "/{2..1}", "/{-1..1}", "/{1..2", "/{a..b}", "/{1..+2}"]
  parseList "http://a/ 3\n\n# no\nhttp://b/\r\n" @?= Right [Weighted 3 "http://a/", Weighted 1 "http://b/"]
  mapM_ (either (\e -> assertBool e ("line 2" == take 6 e)) (assertFailure . show) . parseList) ["a\nb 0", "a\nb x", "a\nb 1 2", "a\nb 1000001"]

-- | The requests that a source makes, one at a time.
draw :: [Weighted Pattern] -> Int -> Int -> IO [ByteString]
draw requests depth count = do
  cells <- newCells 1
  let source = newSource depth requests
  buffer <- newBuffer (depth * sourceLargest source)
  mapM (const (nextRequests source cells 0 buffer depth >>= evaluate . B.copy)) [1 .. count]

chosen :: Assertion
chosen = do
  one <- draw [Weighted 1 (Pattern "x" [(8, 12, "y")])] 1 2000
  Map.keys (Map.fromList [(b, ()) | b <- one]) @?= ["x10y", "x11y", "x12y", "x8y", "x9y"]
  three <- draw [Weighted 1 (Pattern "a" [])] 3 2
  three @?= ["aaa", "aaa"]
  pairs <- draw [Weighted 1 (Pattern "" [(0, 1, "")])] 2 500
  Map.size (Map.fromList [(b, ()) | b <- pairs]) @?= 4

weights :: Assertion
weights = do
  drawn <- draw [Weighted 1 (Pattern "a" []), Weighted 8 (Pattern "b" []), Weighted 1 (Pattern "c" [])] 1 10_000
  let count b = length (filter (== b) drawn)
  mapM_ (\(b, low, high) -> assertBool (show (b, count b)) (count b >= low && count b <= high)) [("a", 850, 1150), ("b", 7700, 8300), ("c", 850, 1150)]

counters :: Assertion
counters =
  Map.toList (parsePairs "TcpExt: A ListenOverflows\nTcpExt: 1 22\nnoise\nIp: B\nIp: -3\n")
    @?= [("Ip.B", -3), ("TcpExt.A", 1), ("TcpExt.ListenOverflows", 22)]

numbers :: Assertion
numbers = do
  map showTime [0, 950, 1_000, 12_345, 999_499, 1_500_000, 2_340_000_000, 61_000_000_000] @?= ["0 ns", "950 ns", "1.00 µs", "12.3 µs", "999 µs", "1.50 ms", "2.34 s", "61.0 s"]
  map showCount [0, 12.34, 999, 1_000, 1_234_567.8] @?= ["0", "12.3", "999", "1,000", "1,234,568"]
