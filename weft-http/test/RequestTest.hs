-- | The parser of request heads against the reference, and cut anywhere.
module RequestTest (tests) where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Maybe (isJust, isNothing)
import Data.Word (Word8)
import Reference (Answer (..), reference)
import Reference qualified as R
import RequestGen
import Test.QuickCheck
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck (testProperty)
import Weft.Http.Internal.Ascii
import Weft.Http.Path (encodeComponent)
import Weft.Http.RequestHead
import Weft.Http.Status (badRequest400, statusCode)

tests :: TestTree
tests =
  testGroup
    "request heads"
    [ testProperty "agree with the reference" (withMaxSuccess 20000 prop_reference),
      testProperty "agree on requests of every kind" (checkCoverage prop_reference),
      testProperty "agree with the reference under other limits" (withMaxSuccess 3000 prop_extension),
      testProperty "agree with the reference under the usual limits" (withMaxSuccess 3000 prop_usual),
      testProperty "cut at every byte" (withMaxSuccess 3000 prop_cuts),
      testProperty "cut at every byte, requests of every kind" (checkCoverage prop_cuts),
      testProperty "a valid head is incomplete up to its last byte" prop_prefix,
      testProperty "never looks past the end of the buffer" prop_slice,
      testProperty "the end of a value, eight bytes at a time" (withMaxSuccess 3000 prop_fieldEnd),
      testCase "classes of bytes" byteClasses,
      testCase "limits are exact" limitsExact,
      testCase "persistence" persistence,
      testCase "every fault has a text and a status from 400 up" faults
    ]

-- | The answer of either parser, in the reference's terms.
observe :: Parsed -> Answer
observe = \case
  Incomplete _ -> Wait
  Bad fault -> Refuse (statusCode (faultStatus fault))
  Parsed r n ->
    Accept
      R.Head
        { R.headMethod = C.unpack (methodName (headMethod r)),
          R.headMinor = case headVersion r of
            Http10 -> 0
            Http11 -> 1,
          R.headTarget = C.unpack (headTarget r),
          R.headPath = C.unpack (headPath r),
          R.headQuery = C.unpack (headQuery r),
          R.headHost = C.unpack <$> headHost r,
          R.headFields = [(C.unpack a, C.unpack b) | Field a b <- headFields r],
          R.headLength = case headFraming r of
            NoBody -> Just 0
            FixedBody size -> Just (toInteger size)
            ChunkedBody -> Nothing,
          R.headOptions = (headClose r, headKeepAlive r),
          R.headExpect = case headExpectation r of
            NoExpectation -> (False, False)
            ExpectContinue -> (True, False)
            ExpectUnknown -> (False, True),
          R.headConditions =
            map
              (fmap C.unpack . ($ headConditions r))
              [conditionIfMatch, conditionIfNoneMatch, conditionIfModifiedSince, conditionIfUnmodifiedSince, conditionIfRange, conditionRange]
        }
      n

prop_reference :: Property
prop_reference = forAllBlind genText $ \text ->
  let expected = reference tight (C.unpack text)
   in counterexample (show text)
        . cover 10 (isAccepted expected) "accepted"
        . cover 3 (expected == Wait) "incomplete"
        . cover 10 (expected == Refuse 400) "400"
        . cover 0.5 (expected == Refuse 414) "414"
        . cover 1 (expected == Refuse 431) "431"
        . cover 1 (expected == Refuse 501) "501"
        . cover 1 (expected == Refuse 505) "505"
        . cover 1 (with (isNothing . R.headLength) expected) "accepted with chunks"
        . cover 1 (with (maybe False (> 0) . R.headLength) expected) "accepted with a length"
        . cover 1 (with (\h -> R.headMinor h == 0) expected) "accepted in 1.0"
        . cover 1 (with (\h -> take 4 (R.headTarget h) == "http") expected) "accepted in absolute form"
        . cover 2 (with (any isJust . R.headConditions) expected) "accepted with conditions"
        $ observe (parseRequest tight 0 text) === expected
  where
    isAccepted = with (const True)
    with p = \case
      Accept h _ -> p h
      _ -> False

prop_extension :: Property
prop_extension = forAllBlind genText $ \text ->
  let limits = tight {limitExtensionMethods = True, limitConnect = True, limitHead = 200, limitRequestLine = 400}
   in counterexample (show text) $
        observe (parseRequest limits 0 text) === reference limits (C.unpack text)

prop_usual :: Property
prop_usual = forAllBlind genText $ \text ->
  counterexample (show text) $
    observe (parseRequest defaultLimits 0 text) === reference defaultLimits (C.unpack text)

-- | Whether the bytes arrive together or one by one, with the offset that the
-- parser gave: the first verdict is the verdict.
prop_cuts :: Property
prop_cuts = forAllBlind genText $ \text ->
  let whole = parseRequest tight 0 text
      arrive scanned = \case
        [] -> Incomplete scanned
        part : more -> case parseRequest tight scanned part of
          Incomplete next -> arrive next more
          decided -> decided
      isIncomplete = \case
        Incomplete _ -> True
        _ -> False
      isParsed = \case
        Parsed _ _ -> True
        _ -> False
      verdict = arrive 0 (B.inits text)
   in counterexample (show text)
        . cover 10 (isParsed whole) "accepted"
        . cover 2 (isIncomplete whole) "incomplete"
        $ if isIncomplete whole then property (isIncomplete verdict) else verdict === whole

prop_prefix :: Property
prop_prefix = forAllBlind (C.pack <$> genValid) $ \text ->
  case parseRequest defaultLimits 0 text of
    Parsed _ n ->
      counterexample (show text) $
        conjoin
          [ counterexample (show p) $ case parseRequest defaultLimits 0 p of
              Incomplete k -> property (k <= B.length p)
              other -> counterexample (show other) False
            | p <- B.inits (B.take (n - 1) text)
          ]
    _ -> discard

-- | A buffer has old bytes after the new ones. They must not matter.
prop_slice :: Property
prop_slice = forAllBlind ((,) <$> genText <*> elements ["\n", "\r\n", "\r\n\r\n", "GET", ":"]) $ \(text, stale) ->
  let shared = B.take (B.length text) (text <> stale)
   in counterexample (show (text, stale)) (parseRequest tight 0 shared === parseRequest tight 0 (B.copy text))

prop_fieldEnd :: Property
prop_fieldEnd = forAll (B.pack <$> resize 60 (listOf byte)) $ \value ->
  forAll (choose (0, B.length value)) $ \from ->
    let text = value <> "\n"
        expected = head' [i | i <- [from ..], not (isFieldByte (B.index text i))]
     in fieldEnd text from === expected .&&. isFieldValue value === B.all isFieldByte value
  where
    byte = frequency [(60, choose (32, 126)), (4, choose (128, 255)), (1, elements [0, 9, 10, 13, 31, 127, 159, 255])]
    head' xs = case xs of
      x : _ -> x
      [] -> -1

byteClasses :: Assertion
byteClasses = do
  same "token" isTokenByte (letters ++ digits ++ "!#$%&'*+-.^_`|~")
  same "host" isHostByte (letters ++ digits ++ "-._~!$&'()*+,;=")
  same "unreserved" (\w -> encodeComponent (B.singleton w) == B.singleton w) (letters ++ digits ++ "-._~")
  same "field" isFieldByte ('\t' : [' ' .. '~'] ++ ['\x80' .. '\xff'])
  same "target" isTargetByte (filter (/= '#') ['!' .. '~'])
  same "path" isPathByte (filter (\c -> c /= '#' && c /= '?') ['!' .. '~'])
  same "digit" isDigit digits
  same "hexadecimal" isHexDigit (digits ++ ['a' .. 'f'] ++ ['A' .. 'F'])
  where
    same :: String -> (Word8 -> Bool) -> String -> Assertion
    same name member set =
      assertEqual name (B.filter (`B.elem` C.pack set) everything) (B.filter member everything)
      where
        everything = B.pack [0 .. 255]
    letters = ['a' .. 'z'] ++ ['A' .. 'Z']
    digits = ['0' .. '9']

limitsExact :: Assertion
limitsExact = do
  let line = "GET / HTTP/1.1\r\n" :: ByteString
      text = line <> "Host: a\r\n\r\n"
      limits = defaultLimits {limitRequestLine = B.length line, limitHead = B.length text, limitFields = 1}
      verdict l = case parseRequest l 0 text of
        Parsed _ n -> Right n
        Bad fault -> Left fault
        Incomplete n -> Right (negate n)
  verdict limits @?= Right (B.length text)
  verdict limits {limitRequestLine = B.length line - 1} @?= Left RequestLineTooLong
  verdict limits {limitHead = B.length text - 1} @?= Left HeadTooLarge
  verdict limits {limitFields = 0} @?= Left TooManyFields
  parseRequest limits 0 (B.replicate (B.length line) 0x41) @?= Incomplete (B.length line)
  parseRequest limits 0 (B.replicate (B.length line + 1) 0x41) @?= Bad RequestLineTooLong
  parseRequest limits 0 "\r\n\r\n\r\n\r\n" @?= Incomplete 8
  parseRequest limits 0 "\r\n\r\n\r\n\r\n\r" @?= Bad BadRequestLine

persistence :: Assertion
persistence = do
  persistent "GET / HTTP/1.1\r\nHost: a\r\n\r\n" @?= Just True
  persistent "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" @?= Just False
  persistent "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, CLOSE\r\n\r\n" @?= Just False
  persistent "GET / HTTP/1.0\r\n\r\n" @?= Just False
  persistent "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n" @?= Just True
  where
    persistent text = case parseRequest defaultLimits 0 text of
      Parsed r _ -> Just (isPersistent r)
      _ -> Nothing

faults :: Assertion
faults = sequence_ [assertBool (show f) (faultStatus f >= badRequest400 && not (B.null (faultText f))) | f <- [minBound .. maxBound]]
