-- | Bodies: whatever was put into chunks comes out, however the bytes arrive; and
-- damaged ones are judged as the reference judges them.
module BodyTest (tests) where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Numeric (showHex)
import Reference (ChunksAnswer (..), referenceChunks)
import Test.QuickCheck
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck (testProperty)
import Weft.Http.Body
import Weft.Http.RequestHead

tests :: TestTree
tests =
  testGroup
    "bodies"
    [ testProperty "chunks come out as they went in, cut anywhere" prop_chunks,
      testProperty "agree with the reference" (withMaxSuccess 5000 prop_reference),
      testProperty "agree on bodies of every kind" (checkCoverage prop_reference),
      testProperty "a fixed length takes exactly its octets" prop_fixed,
      testProperty "gathering is decoding" prop_gather,
      testCase "small pieces are gathered" gathering,
      testCase "sizes" sizes,
      testCase "overhead is bounded" overhead
    ]

-- | Everything a decoder says about pieces that arrive one after the other.
feed :: Decoder -> [ByteString] -> ChunksAnswer
feed = go ""
  where
    go done _ [] = ChunksWait (C.unpack done)
    go done decoder (input : more) = case decode decoder input of
      More next -> go done next more
      Piece here rest next -> go (done <> here) next (rest : more)
      End _ rest -> ChunksEnd (C.unpack done) (C.unpack (B.concat (rest : more)))
      Broken _ -> ChunksRefuse

chunked :: Decoder
chunked = bodyDecoder defaultLimits ChunkedBody

genPieces :: ByteString -> Gen [ByteString]
genPieces b
  | B.null b = pure []
  | otherwise = do
      n <- frequency [(3, choose (0, 3)), (1, choose (0, B.length b))]
      (B.take n b :) <$> genPieces (B.drop n b)

genChunks :: Gen (String, String)
genChunks = do
  pieces <- resize 5 (listOf (resize 40 (listOf1 arbitraryASCIIChar)))
  encoded <- mapM chunk pieces
  zero <- elements ["0", "00"]
  end <- extension
  trailer <- elements ["", "X: y\r\n", "A:\r\nB: c d\r\n"]
  pure (concat pieces, concat encoded ++ zero ++ end ++ "\r\n" ++ trailer ++ "\r\n")
  where
    chunk piece = do
      zeros <- elements ["", "0"]
      ext <- extension
      pure (zeros ++ showHex (length piece) "" ++ ext ++ "\r\n" ++ piece ++ "\r\n")
    extension = elements ["", "", ";a", " ;a=\"b\"", "\t; x=y"]

prop_chunks :: Property
prop_chunks = forAll genChunks $ \(content, encoded) ->
  forAll (genPieces (C.pack (encoded ++ "GET /"))) $ \pieces ->
    feed chunked pieces === ChunksEnd content "GET /"

prop_reference :: Property
prop_reference = forAll (genChunks >>= damaged . snd) $ \text ->
  forAll (genPieces (C.pack text)) $ \pieces ->
    let expected = referenceChunks text
        ended = \case
          ChunksEnd _ _ -> True
          _ -> False
        waits = \case
          ChunksWait _ -> True
          _ -> False
     in cover 10 (ended expected) "ends" . cover 5 (waits expected) "incomplete" . cover 10 (expected == ChunksRefuse) "refused" $
          conjoin [feed chunked pieces === expected, feed chunked [C.pack text] === expected]
  where
    damaged text = do
      i <- choose (0, length text)
      let (a, b) = splitAt i text
      byte <- elements "\r\n\0 ;:0fFg\xe9-"
      elements [text, a ++ drop 1 b, a ++ [byte] ++ b, a ++ [byte] ++ drop 1 b, a]

prop_fixed :: Property
prop_fixed = forAll (resize 60 (listOf arbitraryASCIIChar)) $ \text ->
  forAll (choose (0, length text)) $ \n ->
    forAll (genPieces (C.pack text)) $ \pieces ->
      let framing = if n == 0 then NoBody else FixedBody (fromIntegral n)
          answer = feed (bodyDecoder defaultLimits framing) (pieces ++ [""])
       in answer === ChunksEnd (take n text) (drop n text)

-- | A gathered body has the bytes of one decoded piece by piece.
prop_gather :: Property
prop_gather = forAll genChunks $ \(content, encoded) ->
  forAll (genPieces (C.pack (encoded ++ "GET /"))) $ \pieces ->
    let go done _ [] = ChunksWait (C.unpack done)
        go done decoder (input : more) = case gather decoder input of
          More next -> go done next more
          End _ rest -> ChunksEnd (C.unpack done) (C.unpack (B.concat (rest : more)))
          Broken _ -> ChunksRefuse
          Piece found rest next -> go (done <> found) next (rest : more)
     in go "" chunked pieces === ChunksEnd content "GET /"

-- | Small ones together, up to a bound; a large one alone.
gathering :: Assertion
gathering = do
  let ones = B.concat (replicate 40_000 "1\r\na\r\n")
  case gather chunked ones of
    Piece found rest _ -> (B.length found, B.length rest) @?= (16_384, B.length ones - 16_384 * 6 + 2)
    other -> assertFailure (show other)
  case gather chunked ("5000\r\n" <> B.replicate 0x5000 0x62 <> "\r\n1\r\na\r\n") of
    Piece found rest _ -> (B.length found, rest) @?= (0x5000, "\r\n1\r\na\r\n")
    other -> assertFailure (show other)
  case gather chunked "2\r\nab\r\nx" of
    Piece found _ next -> (found, skip next "\r\nx") @?= ("ab", Broken BadChunk)
    other -> assertFailure (show other)

sizes :: Assertion
sizes = do
  skip chunked "7fffffffffffffff\r\nabc" `isMore` True
  skip chunked "8000000000000000\r\n" @?= Broken BadChunk
  skip chunked "10000000000000000\r\n" @?= Broken BadChunk
  skip chunked "-1\r\n" @?= Broken BadChunk
  skip chunked "0x1\r\n" @?= Broken BadChunk
  skip chunked "1 \r\na\r\n" @?= Broken BadChunk
  skip chunked "1\na\r\n" @?= Broken BadChunk
  skip chunked "1;a\n\r\na\r\n" @?= Broken BadChunk
  skip chunked "1\r\nab\r\n" @?= Broken BadChunk
  skip chunked "0\r\nX : y\r\n\r\n" @?= Broken BadChunk
  skip chunked "\r\n0\r\n\r\n" @?= Broken BadChunk
  skip chunked "1\r\na\r\n0\r\n\r\nnext" @?= End [] "next"
  where
    isMore answer expected = case answer of
      More _ -> expected @?= True
      other -> assertFailure (show other)

overhead :: Assertion
overhead = do
  let spent = C.pack (concat (replicate 9000 "1;\r\na\r\n"))
      zeros = B.replicate 10000 0x30
      trailer = "0\r\n" <> C.pack (concat (replicate 90 ("Field: " ++ replicate 100 'v' ++ "\r\n"))) <> "\r\n"
      plain = C.pack (concat (replicate 9000 "1\r\na\r\n") ++ "0\r\n\r\n")
  skip chunked spent @?= Broken ChunkOverhead
  skip chunked zeros @?= Broken ChunkOverhead
  skip chunked trailer @?= Broken ChunkOverhead
  skip chunked plain @?= End [] ""
