-- | Ranges against sets of positions, and multipart framing against its own
-- concatenation.
module RangeTest (tests) where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Int (Int64)
import Data.List (intercalate, nub, sort)
import Data.Maybe (mapMaybe)
import Test.QuickCheck
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck (testProperty)
import Weft.Http.Multipart
import Weft.Http.Range

tests :: TestTree
tests =
  testGroup
    "ranges"
    [ testProperty "select the positions asked for" (checkCoverage prop_positions),
      testProperty "select the positions asked for, many times" (withMaxSuccess 3000 prop_positions),
      testProperty "are apart, inside, and in the order asked for" prop_apart,
      testProperty "are read as written" prop_read,
      testProperty "multipart length is exact" prop_multipart,
      testCase "ignored" ignored,
      testCase "huge numbers" huge,
      testCase "attack: many tiny overlapping ranges" attack,
      testCase "empty representation" emptyFile,
      testCase "multipart, byte by byte" example
    ]

genSpecs :: Gen [RangeSpec]
genSpecs = resize 5 (listOf1 one)
  where
    one = frequency [(6, short), (1, FromTo <$> p <*> p >>= ordered), (1, From <$> p), (1, Suffix <$> p)]
    short = (\a n -> FromTo a (a + n)) <$> p <*> choose (0, 3)
    p = choose (0, 40)
    ordered = \case
      FromTo a b -> pure (FromTo (min a b) (max a b))
      other -> pure other

written :: [RangeSpec] -> ByteString
written specs = C.pack ("bytes=" ++ intercalate ", " (map one specs))
  where
    one = \case
      FromTo a b -> show a ++ "-" ++ show b
      From a -> show a ++ "-"
      Suffix n -> "-" ++ show n

exact :: RangeLimits
exact = defaultRangeLimits {limitGap = 0}

-- | The positions that a range names, one by one.
positions :: Int64 -> RangeSpec -> [Int64]
positions size = \case
  FromTo a b -> [i | i <- every, i >= a, i <= b]
  From a -> [i | i <- every, i >= a]
  Suffix n -> [i | i <- every, i >= size - n]
  where
    every = [0 .. size - 1]

parts :: Selection -> [ByteRange]
parts = \case
  Single r -> [r]
  Several rs -> rs
  _ -> []

prop_positions :: Property
prop_positions = forAll (choose (1, 40)) $ \size ->
  forAll genSpecs $ \specs ->
    let selection = resolveRange exact size (written specs)
        wanted = sort (nub (concatMap (positions size) specs))
        got = concat [[rangeFirst r .. rangeLast r] | r <- parts selection]
     in cover 3 (selection == Unsatisfiable) "unsatisfiable"
          . cover 20 (length (parts selection) == 1) "one"
          . cover 10 (length (parts selection) > 1) "several"
          $ sort got === wanted .&&. (selection == Unsatisfiable) === null wanted

prop_apart :: Property
prop_apart = forAll (choose (1, 60)) $ \size ->
  forAll (choose (0, 5)) $ \gap ->
    forAll genSpecs $ \specs ->
      let selection = resolveRange defaultRangeLimits {limitGap = gap} size (written specs)
          chosen = parts selection
          asked = mapMaybe (satisfy size) specs
          holds r q = rangeFirst r <= rangeFirst q && rangeLast q <= rangeLast r
          sorted = sort chosen
          -- The place of the first range asked for that a part contains.
          place r = head' [i | (i, s) <- zip [0 :: Int ..] specs, Just q <- [satisfy size s], holds r q]
          head' xs = case xs of
            x : _ -> x
            [] -> -1
       in checkCoverage . cover 10 (length chosen > 1) "several" . conjoin $
            [ property (selection == Whole || all (\q -> any (`holds` q) chosen) asked),
              property (all (\r -> 0 <= rangeFirst r && rangeFirst r <= rangeLast r && rangeLast r < size) chosen),
              property (and (zipWith (\a b -> rangeFirst b - rangeLast a - 1 > gap) sorted (drop 1 sorted))),
              map place chosen === sort (map place chosen)
            ]

prop_read :: Property
prop_read = forAll genSpecs $ \specs -> parseRanges 10 (written specs) === Just specs

prop_multipart :: Property
prop_multipart = forAll (choose (1, 60)) $ \size ->
  forAll genSpecs $ \specs ->
    let content = C.pack (take (fromIntegral size) (cycle "0123456789"))
        chosen = parts (resolveRange exact size (written specs))
        framed = multipart (boundary 1 2) "text/plain" size chosen
     in cover 10 (length chosen > 1) "several" $
          map partRange (multipartParts framed) === chosen .&&. multipartLength framed === fromIntegral (B.length (render content framed))

render :: ByteString -> Multipart -> ByteString
render content framed =
  B.concat [partPreamble p <> cut (partRange p) | p <- multipartParts framed] <> multipartEnd framed
  where
    cut r = B.take (fromIntegral (rangeLength r)) (B.drop (fromIntegral (rangeFirst r)) content)

ignored :: Assertion
ignored =
  [ field | field <- fields, resolveRange defaultRangeLimits 100 field /= Whole
  ]
    @?= []
  where
    fields =
      [ "",
        "bytes",
        "bytes=",
        "bytes=,",
        "bytes=-",
        "bytes=a-b",
        "bytes=2-1",
        "bytes=0-1,2-1",
        "bytes=1-2-3",
        "bytes=+1-2",
        "bytes=1 -2",
        "bytes= 0-1 2-3",
        "bytes =0-1",
        "lines=0-1",
        "bytes=0x1-2",
        "bytes=18446744073709551617-18446744073709551616"
      ]

huge :: Assertion
huge = do
  resolveRange exact 100 "bytes=10-99999999999999999999" @?= Single (ByteRange 10 99)
  resolveRange exact 100 "bytes=-99999999999999999999" @?= Single (ByteRange 0 99)
  resolveRange exact 100 "bytes=99999999999999999999-" @?= Unsatisfiable
  resolveRange exact maxBound "bytes=0-9223372036854775806" @?= Single (ByteRange 0 (maxBound - 1))
  resolveRange exact 100 "BYTES=0-0,,99-" @?= Several [ByteRange 0 0, ByteRange 99 99]

attack :: Assertion
attack = do
  let many n = C.pack ("bytes=" ++ intercalate "," (replicate n "0-"))
  resolveRange defaultRangeLimits 1000 (many 16) @?= Single (ByteRange 0 999)
  resolveRange defaultRangeLimits 1000 (many 17) @?= Whole
  resolveRange defaultRangeLimits 1000 ("bytes=0-1" <> C.replicate 4000 ',') @?= Whole
  -- Every tenth byte of a small file: sent as one, which is cheaper than asked.
  resolveRange defaultRangeLimits 1000 "bytes=0-0,10-10,20-20,30-30" @?= Single (ByteRange 0 30)

emptyFile :: Assertion
emptyFile = do
  resolveRange exact 0 "bytes=0-" @?= Unsatisfiable
  resolveRange exact 0 "bytes=-5" @?= Whole
  resolveRange exact 0 "bytes=-0" @?= Unsatisfiable
  resolveRange exact 5 "bytes=-0" @?= Unsatisfiable

example :: Assertion
example = do
  let framed = multipart (boundary 0 0) "text/plain" 10 [ByteRange 0 1, ByteRange 8 9]
      name = boundary 0 0
  multipartType framed @?= "multipart/byteranges; boundary=" <> name
  render "0123456789" framed
    @?= B.concat
      [ "--" <> name <> "\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-1/10\r\n\r\n01\r\n",
        "--" <> name <> "\r\nContent-Type: text/plain\r\nContent-Range: bytes 8-9/10\r\n\r\n89\r\n",
        "--" <> name <> "--\r\n"
      ]
