-- | The parser of response heads: against a plain reference, and cut anywhere.
module ClientHeadTest (tests) where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Char (isDigit, toLower)
import Data.List (isPrefixOf)
import Test.QuickCheck
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck (testProperty)
import Weft.Http.Internal.ResponseHead
import Weft.Http.RequestHead (Fault (..), Field (..), Framing (..), Limits (..), Method (..), Version (..), defaultLimits)
import Weft.Http.Status

tests :: TestTree
tests =
  testGroup
    "response heads"
    [ testProperty "agree with the reference" (withMaxSuccess 20000 prop_reference),
      testProperty "agree on responses of every kind" (checkCoverage prop_reference),
      testProperty "cut at every byte" (withMaxSuccess 3000 prop_cuts),
      testProperty "never looks past the end of the buffer" prop_slice,
      testCase "limits are exact" limitsExact,
      testCase "what is not HTTP is refused at its first bytes" notHttp,
      testCase "lengths" lengths,
      testCase "persistence" persistence
    ]

-- | The answer of both parsers: wait, refuse, or version, status, fields, extent, and the bytes used.
data Verdict = Wait | Refuse | Accept (Int, Int, [(String, String)], Maybe (Maybe Integer)) Int
  deriving stock (Eq, Show)

observe :: ParsedResponse -> Verdict
observe = \case
  IncompleteResponse _ -> Wait
  BadResponse _ -> Refuse
  ParsedResponse h n ->
    Accept
      ( case headVersion h of Http10 -> 0; Http11 -> 1,
        statusCode (headStatus h),
        [(C.unpack a, C.unpack b) | Field a b <- headFields h],
        case headExtent h of
          UntilClose -> Nothing
          Framed NoBody -> Just (Just 0)
          Framed (FixedBody k) -> Just (Just (toInteger k))
          Framed ChunkedBody -> Just Nothing
      )
      n

-- | The grammar written down plainly, over lines.
reference :: Method -> String -> Verdict
reference method text
  | not ("HTTP/" `isPrefixOf` text || text `isPrefixOf` "HTTP/") = Refuse
  | otherwise = case whole text of
      Nothing -> if length text >= limitHead tight then Refuse else Wait
      Just (h, n)
        | n > limitHead tight -> Refuse
        | otherwise -> maybe Refuse (`Accept` n) (response =<< linesOf h)
  where
    response [] = Nothing
    response (start : more) = do
      (minor, code) <- start' start
      fields <- mapM field more
      if length fields > limitFields tight then Nothing else Just ()
      extent <- extentOf minor code fields
      pure (if minor == 0 then 0 else 1, code, fields, extent)
    start' l = case splitAt 5 l of
      ("HTTP/", '1' : '.' : m : ' ' : a : b : c : rest)
        | all isDigit [m, a, b, c],
          let code = read [a, b, c],
          code >= 100 && code <= 599,
          null rest || take 1 rest == " ",
          all fieldChar rest ->
            Just (if m == '0' then 0 else 1 :: Int, code :: Int)
      _ -> Nothing
    field l = case break (== ':') l of
      (name@(_ : _), ':' : value) | all tokenChar name, all fieldChar value -> Just (name, trim value)
      _ -> Nothing
    extentOf minor code fields
      | method == Head || code < 200 || code == 204 || code == 304 = Just (Just (Just 0))
      | otherwise = case (values "transfer-encoding" fields, values "content-length" fields) of
          ([], []) -> Just Nothing
          ([], [v]) | not (null v), all isDigit v, let k = read v :: Integer, k < 2 ^ (63 :: Int) -> Just (Just (Just k))
          ([c], []) | minor == 1, map toLower c == "chunked" -> Just (Just Nothing)
          _ -> Nothing
    values name fields = [v | (n, v) <- fields, map toLower n == name]
    trim = dropBlanks . reverse . dropBlanks . reverse
    dropBlanks = dropWhile (\c -> c == ' ' || c == '\t')
    tokenChar c = c `elem` (['a' .. 'z'] ++ ['A' .. 'Z'] ++ ['0' .. '9'] ++ "!#$%&'*+-.^_`|~")
    fieldChar c = (c >= ' ' && c /= '\DEL') || c == '\t'

-- | Up to the first empty line, however its lines end.
whole :: String -> Maybe (String, Int)
whole = go 0 ""
  where
    go :: Int -> String -> String -> Maybe (String, Int)
    go n seen = \case
      '\n' : '\n' : _ -> Just (reverse ('\n' : '\n' : seen), n + 2)
      '\n' : '\r' : '\n' : _ -> Just (reverse ('\n' : '\r' : '\n' : seen), n + 3)
      c : rest -> go (n + 1) (c : seen) rest
      [] -> Nothing

-- | The lines before the empty one, if all end in CR LF.
linesOf :: String -> Maybe [String]
linesOf text = case break (\c -> c == '\r' || c == '\n') text of
  ("", '\r' : '\n' : "") -> Just []
  (l, '\r' : '\n' : rest) | not (null l) -> (l :) <$> linesOf rest
  _ -> Nothing

tight :: Limits
tight = defaultLimits {limitHead = 160, limitFields = 5}

prop_reference :: Property
prop_reference = forAllBlind ((,) <$> elements [Get, Get, Get, Head] <*> genText) $ \(method, text) ->
  let expected = reference method (C.unpack text)
      isAccepted = \case Accept _ _ -> True; _ -> False
      extentIs p = \case Accept (_, _, _, e) _ -> p e; _ -> False
   in counterexample (show (method, text))
        . cover 10 (isAccepted expected) "accepted"
        . cover 3 (expected == Wait) "incomplete"
        . cover 10 (expected == Refuse) "refused"
        . cover 1 (extentIs (== Nothing) expected) "to the end of the connection"
        . cover 1 (extentIs (== Just Nothing) expected) "chunked"
        . cover 2 (extentIs (\case Just (Just k) -> k > 0; _ -> False) expected) "of a length"
        $ observe (parseResponse tight method 0 text) === expected

prop_cuts :: Property
prop_cuts = forAllBlind genText $ \text ->
  let all' = parseResponse tight Get 0 text
      arrive scanned = \case
        [] -> IncompleteResponse scanned
        part : more -> case parseResponse tight Get scanned part of
          IncompleteResponse next -> arrive next more
          decided -> decided
      verdict = arrive 0 (drop 1 (B.inits text))
   in counterexample (show text) $ case all' of
        IncompleteResponse _ -> observe verdict === Wait
        _ -> verdict === all'

prop_slice :: Property
prop_slice = forAllBlind ((,) <$> genText <*> elements ["\n", "\r\n", "\r\n\r\n", "HTTP", ":"]) $ \(text, stale) ->
  parseResponse tight Get 0 (B.take (B.length text) (text <> stale)) === parseResponse tight Get 0 (B.copy text)

-- | Mostly responses; some with something changed, cut off or followed by more.
genText :: Gen ByteString
genText = do
  text <- genResponse
  C.pack <$> frequency [(6, pure text), (3, mutate text), (1, (`take` text) <$> choose (0, length text)), (1, (text <>) <$> elements ["x", "\r\n", "HTTP/1.1 "])]
  where
    mutate text = do
      at <- choose (0, length text - 1)
      let (before, after') = splitAt at text
      c <- elements "\r\n \t:0159aHTP/.;,\DEL\0\200"
      elements [before <> [c] <> after', before <> drop 1 after', before <> [c] <> drop 1 after']

genResponse :: Gen String
genResponse = do
  version <- frequency [(8, pure "HTTP/1.1"), (2, pure "HTTP/1.0"), (1, elements ["HTTP/2.0", "HTTP/1.7", "http/1.1", "HTTP/11"])]
  code <- frequency [(8, elements ["200", "404", "500", "302"]), (2, elements ["100", "101", "204", "304"]), (1, elements ["099", "600", "20", "2000", "abc"])]
  reason <- elements [" OK", " ", "", " Not Found", " a\tb", "  "]
  fields <- resize 5 (listOf genField)
  pure (version <> " " <> code <> reason <> "\r\n" <> concat fields <> "\r\n")

genField :: Gen String
genField = do
  (name, value) <-
    frequency
      [ (4, (,) "Content-Length" <$> frequency [(6, show <$> choose (0, 9999 :: Int)), (1, elements ["", "+1", "0x1", "1, 1", "-1", "9223372036854775807", "9223372036854775808"])]),
        (3, (,) "transfer-encoding" <$> frequency [(5, pure "chunked"), (1, elements ["Chunked", "gzip", "gzip, chunked", ""])]),
        (2, (,) "Connection" <$> elements ["close", "keep-alive", "Close, x"]),
        (2, pure ("Date", "Sat, 21 Nov 2026 19:00:00 GMT")),
        (1, pure ("X", ""))
      ]
  blank <- elements ["", " ", " ", "\t "]
  pure (name <> ":" <> blank <> value <> elementOr blank <> "\r\n")
  where
    elementOr b = if b == "\t " then " " else ""

limitsExact :: Assertion
limitsExact = do
  let text = "HTTP/1.1 204 No Content\r\nA: b\r\n\r\n" :: ByteString
      verdict l = observe (parseResponse l Get 0 text)
  assertBool "fits" (verdict defaultLimits {limitHead = B.length text, limitFields = 1} /= Refuse)
  parseResponse defaultLimits {limitHead = B.length text - 1} Get 0 text @?= BadResponse (BadHead HeadTooLarge)
  parseResponse defaultLimits {limitFields = 0} Get 0 text @?= BadResponse (BadHead TooManyFields)
  parseResponse defaultLimits {limitHead = 20} Get 0 (B.take 20 text) @?= BadResponse (BadHead HeadTooLarge)

notHttp :: Assertion
notHttp = mapM_ (\t -> parseResponse defaultLimits Get 0 t @?= BadResponse BadStatusLine) ["S", "SSH-2.0", "220 mail", "\22\3\1", "HTTQ"]

lengths :: Assertion
lengths = do
  extent "Content-Length: 5\r\nContent-Length: 5\r\n" @?= Left (BadHead BadContentLength)
  extent "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n" @?= Left (BadHead AmbiguousLength)
  extent "Transfer-Encoding: gzip, chunked\r\n" @?= Left (BadHead UnknownTransferCoding)
  extent "Transfer-Encoding: chunked\r\n" @?= Right (Framed ChunkedBody)
  extent "" @?= Right UntilClose
  where
    extent fields = case parseResponse defaultLimits Get 0 ("HTTP/1.1 200 OK\r\n" <> fields <> "\r\n") of
      ParsedResponse h _ -> Right (headExtent h)
      BadResponse f -> Left f
      IncompleteResponse _ -> Left BadStatusLine

persistence :: Assertion
persistence = do
  reusable "HTTP/1.1 204 x\r\n\r\n" @?= Just True
  reusable "HTTP/1.1 204 x\r\nConnection: close\r\n\r\n" @?= Just False
  reusable "HTTP/1.0 204 x\r\n\r\n" @?= Just False
  reusable "HTTP/1.0 204 x\r\nConnection: keep-alive\r\n\r\n" @?= Just True
  reusable "HTTP/1.1 200 x\r\n\r\n" @?= Just False
  where
    reusable text = case parseResponse defaultLimits Get 0 text of
      ParsedResponse h _ -> Just (isReusable h)
      _ -> Nothing
