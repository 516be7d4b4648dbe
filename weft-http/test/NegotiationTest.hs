-- | Codings that clients accept.
module NegotiationTest (tests) where

import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as C
import Data.Maybe (fromMaybe)
import Test.QuickCheck
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck (testProperty)
import Weft.Http.Negotiation

tests :: TestTree
tests =
  testGroup
    "negotiation"
    [ testCase "codings" codings,
      testCase "weights" weights,
      testCase "media types" mediaTypes,
      testProperty "nothing better could have been chosen" prop_best,
      testProperty "any bytes are read" prop_total
    ]

codings :: Assertion
codings = do
  [Brotli, Gzip] `given` [] `is` Identity
  [Brotli, Gzip] `given` [""] `is` Identity
  [Brotli, Gzip] `given` ["gzip, deflate, br, zstd"] `is` Brotli
  [Brotli, Zstandard, Gzip] `given` ["zstd, gzip"] `is` Zstandard
  [Brotli, Gzip] `given` ["gzip", "br;q=0.9"] `is` Gzip
  [Brotli, Gzip] `given` ["br;q=0, gzip;q=0.1"] `is` Gzip
  [Gzip] `given` ["br"] `is` Identity
  [Gzip] `given` ["GZIP"] `is` Gzip
  [Gzip] `given` ["x-gzip"] `is` Gzip
  [Gzip] `given` ["*"] `is` Gzip
  [Gzip] `given` ["*;q=0"] `is` Identity
  [Brotli, Gzip] `given` ["*, br;q=0"] `is` Gzip
  [Gzip] `given` ["gzip;q=0"] `is` Identity
  [Gzip] `given` ["gzip;q=0.000"] `is` Identity
  -- The plain form is preferred to a packed one.
  [Gzip] `given` ["gzip;q=0.5, identity"] `is` Identity
  [Gzip] `given` ["gzip;q=0.5, identity;q=0.5"] `is` Gzip
  [Gzip] `given` ["gzip;q=0.5, *"] `is` Identity
  [Gzip] `given` ["identity;q=0, gzip;q=0.1"] `is` Gzip
  -- There is nothing else.
  [] `given` ["identity;q=0, gzip"] `is` Identity
  -- A weight that is none is no reason to send what was perhaps not asked for.
  [Gzip] `given` ["gzip;q=2"] `is` Identity
  [Gzip] `given` ["gzip;q=yes"] `is` Identity
  [Gzip] `given` ["gzip ; Q=1.0 , ,"] `is` Gzip
  [Gzip] `given` ["gzipped, not-gzip"] `is` Identity
  where
    given available values = (values, chooseCoding values available)
    is (values, chosen) expected = assertEqual (show (values :: [ByteString])) expected chosen

weights :: Assertion
weights = do
  let w q = map weight (parseWeighted ["a;q=" <> q])
  map w ["0", "1", "0.5", "0.05", "0.123", "1.000", "1.", "0."] @?= map pure [0, 1000, 500, 50, 123, 1000, 1000, 0]
  map w ["", "2", "1.001", "0.1234", "-1", ".5", "0,5", "1e0", "0.x"] @?= map (const []) [1 .. 6 :: Int] <> [[0, 1000]] <> [[], []]

mediaTypes :: Assertion
mediaTypes = do
  let html values = acceptsType values "text/html"
  map html [[], ["text/html"], ["text/*"], ["*/*"], ["Text/HTML;level=1;q=0.4"], ["image/png", "text/html"]] @?= replicate 6 True
  map html [[""], ["application/json"], ["text/html;q=0, */*"], ["text/*;q=0, */*"], ["*/*;q=0"], ["text/htm"]] @?= replicate 6 False

-- | Of all there is, what is chosen weighs most, and to be sent unpacked weighs no more.
prop_best :: Property
prop_best = forAll (sublistOf [Brotli, Zstandard, Gzip] >>= shuffle) $ \available -> forAll (shuffle [Identity ..] >>= sublistOf >>= traverse weighted) $ \listed ->
  let value = C.intercalate ", " [codingName c <> ";q=0." <> C.pack (show q) | (c, q) <- listed]
      chosen = chooseCoding [value] available
      weightOf c = fromMaybe 0 (lookup c listed)
   in cover 20 (chosen /= Identity) "packed" . counterexample (show (value, available, chosen)) $
        if chosen == Identity
          then all (\c -> weightOf c == 0 || weightOf c < weightOf Identity) available
          else chosen `elem` available && weightOf chosen > 0 && all (\c -> weightOf c <= weightOf chosen) (Identity : available)
  where
    weighted c = (,) c <$> chooseInt (0, 9)

prop_total :: Property
prop_total = forAll (C.pack <$> listOf (elements "gzipbr,;=q01. *\t\"x")) $ \value ->
  chooseCoding [value] [Gzip] `elem` [Identity, Gzip]
