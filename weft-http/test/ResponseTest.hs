-- | Response heads: what is rendered can be read, and nothing can be injected.
module ResponseTest (tests) where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Either (isLeft, isRight)
import Data.Int (Int64)
import Data.List (intercalate)
import Test.QuickCheck
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck (testProperty)
import Weft.Http.ETag
import Weft.Http.Internal.Ascii (Decimal (..), decimal, renderDecimal)
import Weft.Http.Response
import Weft.Http.Status

tests :: TestTree
tests =
  testGroup
    "responses"
    [ testProperty "a head is its lines, and never one more" (checkCoverage prop_head),
      testProperty "decimals" prop_decimal,
      testCase "lengths" $ fieldValue (contentLength maxBound) @?= "9223372036854775807",
      testCase "status lines" statusLines,
      testProperty "entity tags are read as written" prop_etag,
      testProperty "lists of entity tags are read as written" prop_etags,
      testProperty "different files have different tags" prop_fileTag,
      testProperty "different contents have different tags" prop_contentTag,
      testCase "malformed entity tags" malformedTags
    ]

prop_head :: Property
prop_head = forAll (resize 4 (listOf genField)) $ \fields ->
  let answer = renderHead notFound404 fields
      ok = all (\(Field n v) -> not (B.null n) && C.all (`elem` ("abc-" :: String)) n && C.all (`elem` ("abc \t\xe9" :: String)) v) fields
      expected = "HTTP/1.1 404 Not Found" : [n <> ": " <> v | Field n v <- fields]
   in cover 20 ok "valid" . cover 20 (not ok) "refused" $
        if ok
          then answer === Right (B.concat (map (<> "\r\n") expected) <> "\r\n")
          else property (isLeft answer)
  where
    genField = Field <$> text "abc-" " :\r\n\0\xe9" <*> text "abc \t\xe9" "\r\n\0\x7f\x1b"
    text :: String -> String -> Gen ByteString
    text good bad = C.pack <$> resize 6 (listOf1 (frequency [(30, elements good), (1, elements bad)]))

prop_decimal :: Property
prop_decimal = forAll (oneof [arbitrarySizedNatural, abs <$> (arbitraryBoundedIntegral `suchThat` (> minBound))]) $ \n ->
  renderDecimal n === C.pack (show n) .&&. decimal (renderDecimal n) === Decimal (n :: Int64)

statusLines :: Assertion
statusLines = do
  statusLine ok200 @?= "HTTP/1.1 200 OK\r\n"
  statusLine requestHeaderFieldsTooLarge431 @?= "HTTP/1.1 431 Request Header Fields Too Large\r\n"
  statusLine (mkStatus 299 "a\r\nb") @?= "HTTP/1.1 299 \r\n"
  map hasNoBody [continue100, ok200, noContent204, partialContent206, notModified304] @?= [True, False, True, False, True]
  assertBool "valid" (isRight (renderHead ok200 [contentLength 0]))

genTag :: Gen ETag
genTag = elements [Strong, Weak] <*> (C.pack <$> resize 8 (listOf (elements "ab,/*W!\xe9")))

prop_etag :: Property
prop_etag = forAll genTag $ \tag -> parseETag (renderETag tag) === Just tag

prop_etags :: Property
prop_etags = forAll (resize 5 (listOf genTag)) $ \tags ->
  forAll (elements [",", ", ", " , ", ",,"]) $ \separator ->
    parseTagList (C.pack (intercalate separator (map (C.unpack . renderETag) tags))) === Tags tags

prop_fileTag :: Property
prop_fileTag = forAll ((,) <$> identity <*> identity) $ \(a, b) ->
  weakMatch (fileETag a) (fileETag b) === (a == b) .&&. strongMatch (fileETag a) (fileETag b) === False .&&. parseETag (renderETag (fileETag a)) === Just (fileETag a)
  where
    identity = FileIdentity <$> elements [0, 1, 17, 0x11] <*> elements [0, 1, 17, -1]

prop_contentTag :: Property
prop_contentTag = forAll ((,) <$> bytes <*> bytes) $ \(a, b) ->
  (contentETag a == contentETag b) === (a == b) .&&. parseETag (renderETag (contentETag a)) === Just (contentETag a)
  where
    bytes = B.pack <$> resize 3 (listOf (elements [0, 1, 255]))

malformedTags :: Assertion
malformedTags = do
  map parseETag ["a", "\"a", "w/\"a\"", "W/a", "\"a\"b", "", "\"a b\""] @?= replicate 7 Nothing
  parseTagList "\"a\" \"b\"" @?= Tags [Strong "a"]
  parseTagList "\"a\", b, \"c\"" @?= Tags [Strong "a"]
  parseTagList "*" @?= AnyTag
  parseTagList "\"a\", *" @?= Tags [Strong "a"]
