-- | Patterns of paths, rules that go by them, and hosts.
module GlobTest (tests) where

import Control.Monad
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Either (isLeft)
import Data.Maybe (mapMaybe)
import Test.QuickCheck
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck (testProperty)
import Weft.Http.Hosts
import Weft.Http.Request (Field (..))
import Weft.Http.Static.Glob
import Weft.Http.Static.Rules

tests :: TestTree
tests =
  testGroup
    "patterns"
    [ testCase "what fits" fits,
      testCase "what does not fit" fitsNot,
      testCase "what is no pattern" noPattern,
      testProperty "as a plain matcher has it" prop_reference,
      testCase "many stars take no time" $ do
        glob <- pattern' ("/" <> B.concat (replicate 300 "*a") <> "b")
        matchesGlob glob ("/" <> B.replicate 5000 0x61) @?= False
        deep <- pattern' (B.concat (replicate 100 "/**/a") <> "/b")
        matchesGlob deep (B.concat (replicate 2000 "/a")) @?= False,
      testCase "later rules win, field by field" rules,
      testCase "fields that cannot be set" problems,
      testCase "hosts" hosts,
      testCase "what is no host" (mapM_ (\h -> assertBool (show h) (isLeft (parseHostPattern h))) ["", "*", "*.", "a.*.b", "a:80", "a b", "a..b", ".a", "*.[::1]", "a/b"])
    ]

pattern' :: ByteString -> IO Glob
pattern' text = either (\e -> assertFailure (show text <> " " <> e)) pure (parseGlob text)

fits, fitsNot :: Assertion
fits =
  forM_
    [ ("*.css", "/a.css"),
      ("*.css", "/x/y/a.css"),
      ("*.css", "/.css"),
      ("index.html", "/a/index.html"),
      ("*.{css,js}", "/a.js"),
      ("/assets/**", "/assets/a"),
      ("/assets/**", "/assets/a/b/c"),
      ("/assets/**", "/assets/"),
      ("/**", "/"),
      ("/**/b", "/b"),
      ("/**/b", "/a/a/b"),
      ("/a/**/z.js", "/a/z.js"),
      ("/a/**/z.js", "/a/b/c/z.js"),
      ("/a/*/z", "/a/b/z"),
      ("/?", "/x"),
      ("/\\*", "/*"),
      ("/a{,b}c", "/ac"),
      ("/a{,b}c", "/abc"),
      ("/a\\{b", "/a{b"),
      ("a*b*c", "/axxbxxc")
    ]
    (check True)
fitsNot =
  forM_
    [ ("*.css", "/a.css.map"),
      ("*.css", "/a.css/b"),
      ("/*.css", "/x/a.css"),
      ("/assets/**", "/assetsx"),
      ("/assets/*", "/assets/a/b"),
      ("/a/*/z", "/a/z"),
      ("/a/*/z", "/a/b/c/z"),
      ("/?", "/"),
      ("/?", "/xx"),
      ("/\\*", "/x"),
      ("index.html", "/Index.html")
    ]
    (check False)

check :: Bool -> (ByteString, ByteString) -> Assertion
check expected (text, path) = do
  glob <- pattern' text
  assertEqual (show (text, path)) expected (matchesGlob glob path)

noPattern :: Assertion
noPattern = forM_ ["", "a/b", "/a/", "/a//b", "/a/../b", "/a**", "/***", "{a", "a}", "{a,{b}}", "a\\", "[a]", "a\nb", B.replicate 2000 0x61, B.concat (replicate 7 "{a,b}")] $ \text ->
  assertBool (show text) (isLeft (parseGlob text))

-- | Against the plain matcher, which tries everything.
prop_reference :: Property
prop_reference = forAll genPattern $ \parts -> forAll (resize 5 (listOf (resize 4 (listOf1 (elements "ab"))))) $ \components ->
  let text = C.pack (concatMap ('/' :) parts)
      path = C.pack (if null components then "/" else concatMap ('/' :) components)
      expected = plain parts components
   in cover 10 expected "fits" . counterexample (show (text, path)) $
        fmap (`matchesGlob` path) (parseGlob text) === Right expected
  where
    genPattern = resize 5 (listOf1 (frequency [(1, pure "**"), (3, resize 4 (listOf1 (elements "ab*?")) `suchThat` noDoubleStar)]))
    noDoubleStar = not . C.isInfixOf "**" . C.pack
    plain :: [String] -> [String] -> Bool
    plain [] cs = null cs
    plain ("**" : ps) cs = any (plain ps) (suffixes cs)
    plain (p : ps) (c : cs) = component p c && plain ps cs
    plain _ [] = False
    component [] c = null c
    component ('*' : p) c = any (component p) (suffixes c)
    component ('?' : p) (_ : c) = component p c
    component (x : p) (y : c) = x == y && component p c
    component _ [] = False
    suffixes xs =
      xs : case xs of
        [] -> []
        _ : rest -> suffixes rest

rules :: Assertion
rules = do
  css <- pattern' "*.css"
  all' <- pattern' "/**"
  every <- made (headerRule [all'] [Field "X-A" "1", Field "Cache-Control" "no-cache"] False)
  styles <- made (headerRule [css] [Field "cache-control" "max-age=60"] False)
  without <- made (headerRule [css] [Field "X-A" ""] False)
  let fieldsOf rs path = overriding (fieldsFor rs path) [Field "Content-Type" "x"]
  fieldsOf [every, styles] "/a.css" @?= [Field "Content-Type" "x", Field "X-A" "1", Field "cache-control" "max-age=60"]
  fieldsOf [styles, every] "/a.css" @?= [Field "Content-Type" "x", Field "X-A" "1", Field "Cache-Control" "no-cache"]
  fieldsOf [every, without] "/a.css" @?= [Field "Content-Type" "x", Field "Cache-Control" "no-cache"]
  fieldsOf [every, styles] "/a.js" @?= [Field "Content-Type" "x", Field "X-A" "1", Field "Cache-Control" "no-cache"]
  -- Fields that the server sets for an answer stay.
  overriding [Field "Vary" "Origin"] [Field "Vary" "Accept-Encoding"] @?= [Field "Vary" "Accept-Encoding, Origin"]
  overriding [Field "Vary" ""] [Field "Vary" "Accept-Encoding"] @?= [Field "Vary" "Accept-Encoding"]
  where
    made = either (assertFailure . unwords) pure

problems :: Assertion
problems = do
  length (mapMaybe fieldProblem [Field "a b" "", Field "" "x", Field "X" "a\r\nY: b", Field "X" "a\0", Field "X" " a", Field "date" "x", Field "CONTENT-LENGTH" "1", Field "Transfer-Encoding" "x", Field "Connection" "close"]) @?= 9
  mapMaybe fieldProblem [Field "X" "", Field "Strict-Transport-Security" "max-age=1; preload", Field "Vary" "Origin"] @?= []

hosts :: Assertion
hosts = do
  table <- either assertFailure (pure . hostTable) $ traverse (\(h, v) -> (,v) <$> parseHostPattern h) [("example.org", 'a'), ("*.example.org", 'b'), ("*.deep.example.org", 'c'), ("[::1]", 'd'), ("*.org", 'e'), ("Example.ORG", 'x')]
  let found = map (lookupHost table) ["example.org", "EXAMPLE.org:80", "example.org.", "example.org.:80", "www.example.org", "a.b.example.org", "x.deep.example.org", "deep.example.org", "[::1]:80", "other.org", "org", "example.com", "", ".", "xexample.org", "[::2]"]
  found @?= map Just "aaaabbcb" <> [Just 'd', Just 'e', Nothing, Nothing, Nothing, Nothing, Just 'e', Nothing]
