-- | Paths: nothing gets out, and what is harmless gets through.
module PathTest (tests) where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Either (isLeft, isRight)
import Data.Maybe (mapMaybe)
import Test.QuickCheck
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck (testProperty)
import Weft.Http.Path

tests :: TestTree
tests =
  testGroup
    "paths"
    [ testProperty "never escape" (withMaxSuccess 5000 prop_inside),
      testProperty "never escape, paths of every kind" (checkCoverage prop_inside),
      testProperty "any name, encoded, is found again" prop_names,
      testProperty "percent-encoding is undone" prop_decode,
      testCase "refused" refused,
      testCase "accepted" accepted,
      testCase "length" lengths
    ]

-- | Pieces of the paths with which servers have been left.
genPath :: Gen ByteString
genPath = C.pack . ('/' :) . concat <$> resize 8 (listOf (frequency [(6, elements ["a", "b", "/", ".x"]), (1, elements evil)]))
  where
    evil = [".", "..", "%2e", "%2E", "%2f", "%5c", "\\", "%00", "%", "%c0%ae", "%252e", "%25", "//", "\0", "%0a", "~", "C:", "%e9"]

prop_inside :: Property
prop_inside = forAll genPath $ \path ->
  let answer = safePath path
   in cover 20 (isRight answer) "accepted" . cover 10 (isLeft answer) "refused" $
        case answer of
          Left _ -> property True
          Right safe ->
            conjoin
              [ property (all harmless (pathComponents safe)),
                property (not ("/" `B.isPrefixOf` relativePath safe)),
                property (".." `notElem` C.split '/' (relativePath safe)),
                -- Decoding once is all that is done.
                pathComponents safe === filter (/= ".") (filter (not . B.null) (mapMaybe percentDecode (C.split '/' path)))
              ]
  where
    harmless c =
      not (B.null c) && c `notElem` [".", ".."] && not (B.any (\w -> w `B.elem` "/\\\DEL" || w < 32) c)

prop_names :: Property
prop_names = forAll (resize 5 (listOf1 name)) $ \names ->
  forAll arbitrary $ \directory ->
    let path = B.concat (map (\n -> "/" <> encodeComponent n) names) <> (if directory then "/" else "")
     in fmap (\p -> (pathComponents p, pathIsDirectory p)) (safePath path) === Right (names, directory)
  where
    name = (B.pack <$> resize 20 (listOf1 (arbitrary `suchThat` (\w -> w >= 32 && w /= 127 && w /= 47 && w /= 92)))) `suchThat` (`notElem` [".", ".."])

prop_decode :: Property
prop_decode = forAll (B.pack <$> arbitrary) $ \name -> percentDecode (encodeComponent name) === Just name

refused :: Assertion
refused = sequence_ [safePath path @?= Left fault | (path, fault) <- cases]
  where
    cases =
      [ ("", NotAbsolute),
        ("a", NotAbsolute),
        ("*", NotAbsolute),
        ("../a", NotAbsolute),
        ("/..", ParentComponent),
        ("/a/../b", ParentComponent),
        ("/%2e%2e/b", ParentComponent),
        ("/.%2E", ParentComponent),
        ("//etc/passwd", EmptyComponent),
        ("/a//b", EmptyComponent),
        ("//", EmptyComponent),
        ("/a%2fb", EncodedSlash),
        ("/%2fetc", EncodedSlash),
        ("/..%2f..", EncodedSlash),
        ("/..%5c..", Backslash),
        ("/..\\..", Backslash),
        ("/a%00.txt", ControlByte),
        ("/a%0d%0aSet-Cookie:", ControlByte),
        ("/a\0", ControlByte),
        ("/%7f", ControlByte),
        ("/%", BadEncoding),
        ("/%2", BadEncoding),
        ("/%zz", BadEncoding),
        ("/%+1", BadEncoding)
      ]

accepted :: Assertion
accepted = do
  seen "/" @?= Right ("", True)
  seen "/." @?= Right ("", True)
  seen "/a" @?= Right ("a", False)
  seen "/a/" @?= Right ("a", True)
  seen "/a/./b/%2e" @?= Right ("a/b", True)
  seen "/a/..." @?= Right ("a/...", False)
  seen "/..a/b.." @?= Right ("..a/b..", False)
  seen "/%252e%252e/c" @?= Right ("%2e%2e/c", False)
  -- An overlong encoding of a dot is two bytes that mean nothing to Unix.
  seen "/%c0%ae%c0%ae" @?= Right ("\xc0\xae\xc0\xae", False)
  hasHiddenComponent <$> safePath "/a/.git/config" @?= Right True
  hasHiddenComponent <$> safePath "/a/b.git" @?= Right False
  where
    seen path = (\p -> (relativePath p, pathIsDirectory p)) <$> safePath path

lengths :: Assertion
lengths = do
  assertBool "255" (isRight (safePath ("/" <> C.replicate 255 'a')))
  safePath ("/" <> C.replicate 256 'a') @?= Left TooLong
  assertBool "255 encoded" (isRight (safePath ("/" <> B.concat (replicate 255 "%41"))))
  safePath (B.concat (replicate 2048 "/a")) @?= Left TooLong
  assertBool "2047 components" (isRight (safePath (B.concat (replicate 2047 "/a"))))
  safePath ("/" <> C.replicate 20000 '.') @?= Left TooLong
