-- |
-- Description : Packets, segments and messages as bytes
module WireTest (tests) where

import Data.Bits (complement, shiftR, xor, (.&.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Either (isLeft)
import Data.Word (Word16, Word32, Word8)
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (testCase, (@?=))
import Test.Tasty.QuickCheck hiding ((.&.))
import Weft.Tcp.Checksum
import Weft.Tcp.Icmp
import Weft.Tcp.Packet
import Weft.Tcp.Segment
import Weft.Tcp.Sequence
import Weft.Tcp.Udp

newtype Bytes = Bytes ByteString
  deriving stock (Show)

instance Arbitrary Bytes where
  arbitrary = Bytes . B.pack <$> (choose (0, 90) >>= vector)
  shrink (Bytes b) = Bytes . B.pack <$> shrink (B.unpack b)

-- | Two addresses of one family.
data Path = Path Address Address
  deriving stock (Show)

instance Arbitrary Path where
  arbitrary =
    oneof
      [ Path <$> (Address4 <$> arbitrary) <*> (Address4 <$> arbitrary),
        Path <$> (Address6 <$> arbitrary <*> arbitrary) <*> (Address6 <$> arbitrary <*> arbitrary)
      ]

newtype AnyPacket = AnyPacket Packet
  deriving stock (Show)

instance Arbitrary AnyPacket where
  arbitrary = do
    Path source target <- arbitrary
    Bytes payload <- arbitrary
    flow <- choose (0, case source of Address4 {} -> 0xffff; Address6 {} -> 0xfffff)
    protocol <- elements [1, 6, 17, 58]
    hops <- arbitrary
    tos <- arbitrary
    pure (AnyPacket (Packet source target protocol hops tos flow payload))

newtype AnySegment = AnySegment (Ports, Segment, ByteString)
  deriving stock (Show)

instance Arbitrary AnySegment where
  arbitrary = do
    Bytes payload <- arbitrary
    ports <- Ports <$> choose (1, 65535) <*> choose (1, 65535)
    timestamps <- oneof [pure Nothing, Just <$> (Timestamps <$> arbitrary <*> arbitrary)]
    blocks <- choose (0, maybe 4 (const 3) timestamps)
    options <-
      if blocks > 0
        then Options Nothing Nothing False timestamps <$> vectorOf blocks (Range . Seq <$> arbitrary <*> (Seq <$> arbitrary)) <*> pure Nothing
        else Options <$> arbitrary <*> oneof [pure Nothing, Just <$> choose (0, 14)] <*> arbitrary <*> pure timestamps <*> pure [] <*> arbitrary
    s <- Segment . Seq <$> arbitrary <*> (Seq <$> arbitrary) <*> (Flags <$> choose (0, 255)) <*> arbitrary <*> arbitrary
    pure (AnySegment (ports, s options (fromIntegral (B.length payload)), payload))

newtype AnyMessage = AnyMessage Message
  deriving stock (Show)

instance Arbitrary AnyMessage where
  arbitrary = do
    Bytes d <- arbitrary
    AnyMessage
      <$> oneof
        [ EchoRequest <$> arbitrary <*> arbitrary <*> pure d,
          EchoReply <$> arbitrary <*> arbitrary <*> pure d,
          Trouble . Unreachable <$> elements [0, 1, 2, 3] <*> pure d,
          Trouble . TooBig <$> choose (0, 65535) <*> pure d,
          Trouble . TimeExceeded <$> arbitrary <*> pure d,
          Trouble . BadParameter <$> arbitrary <*> pure d,
          pure (Other 200 7 (B.pack [1, 2, 3, 4] <> d))
        ]

-- | All that differ in one bit.
flips :: ByteString -> [ByteString]
flips b = [B.pack (zipWith (\i x -> if i == at then x `xor` (2 ^ bit) else x) [0 ..] (B.unpack b)) | at <- [0 .. B.length b - 1], bit <- [0 .. 7 :: Int]]

-- | With the checksum of a control message where it belongs.
summed :: Address -> Address -> ByteString -> ByteString
summed a b x
  | B.length x < 4 = x
  | otherwise = B.concat [B.take 2 x, B.pack [fromIntegral (s `shiftR` 8), fromIntegral s], B.drop 4 x]
  where
    s = checksum (addresses <> sumBytes (B.concat [B.take 2 x, B.pack [0, 0], B.drop 4 x]))
    addresses = case a of
      Address4 _ -> mempty
      Address6 _ _ -> pseudoHeader a b protocolIcmp6 (B.length x)

-- | All proper beginnings.
cuts :: ByteString -> [ByteString]
cuts b = [B.take n b | n <- [0 .. B.length b - 1]]

-- | RFC 1071's definition, a word at a time.
naive :: ByteString -> Word16
naive = go 0 . B.unpack
  where
    go :: Word32 -> [Word8] -> Word16
    go s (x : y : rest) = go (s + fromIntegral x * 256 + fromIntegral y) rest
    go s [x] = go s [x, 0]
    go s [] = complement (fromIntegral (fold (fold s)))
    fold s = (s .&. 0xffff) + (s `shiftR` 16)

-- Only what the parser returns is compared: a packet that is forced and shown has no bottom in it.
harmless :: (Show a) => a -> Property
harmless x = property (foldr seq True (show x))

tests :: TestTree
tests =
  testGroup
    "wire"
    [ testGroup
        "checksum"
        [ testCase "the example of RFC 1071" $
            checksum (sumBytes (B.pack [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7])) @?= complement 0xddf2,
          testCase "a header known to be right" $
            checksum (sumBytes header791) @?= 0xb861,
          testProperty "is the naive sum" $ \(Bytes a) (Positive n) ->
            let b = B.concat (replicate (n * 3) a) in checksum (sumBytes b) === naive b,
          testProperty "of all ones" $ \(NonNegative n) ->
            let b = B.replicate (n * 701) 0xff in checksum (sumBytes b) === naive b,
          testProperty "is a sum of parts" $ \(Bytes a) (Bytes b) ->
            let even' = B.take (B.length a `div` 2 * 2) a in checksum (sumBytes even' <> sumBytes b) === naive (even' <> b)
        ],
      testGroup
        "packet"
        [ testProperty "build, then parse" $ \(AnyPacket p) -> parsePacket (buildPacket p) === Right p,
          testProperty "what follows is ignored" $ \(AnyPacket p) (Bytes more) -> parsePacket (buildPacket p <> more) === Right p,
          testProperty "a bit changes it" $ \(AnyPacket p) ->
            conjoin [counterexample (show b) (parsePacket b =/= Right p) | b <- flips (buildPacket p)],
          testProperty "cut off" $ \(AnyPacket p) -> conjoin [counterexample (show b) (isLeft (parsePacket b)) | b <- cuts (buildPacket p)],
          testProperty "any bytes" $ \(Bytes b) -> harmless (parsePacket b),
          testProperty "any bytes after a good beginning" $ \(AnyPacket p) (NonNegative n) (Bytes b) ->
            harmless (parsePacket (B.take n (buildPacket p) <> b)),
          testProperty "any extension headers" $ \(AnyPacket p) kind (Bytes b) ->
            harmless (parsePacket (buildPacket p {packetProtocol = kind, packetPayload = b})),
          testCase "extension headers are skipped" $ do
            let p = Packet (Address6 1 2) (Address6 3 4) 6 64 0 0 (B.pack [9, 9])
                padding = [1, 4, 0, 0, 0, 0]
                with kinds payload = parsePacket (buildPacket p {packetProtocol = kinds, packetPayload = B.pack payload})
            with 0 ([60, 0] <> padding <> [6, 0] <> padding <> [9, 9]) @?= Right p
            with 60 ([0, 0] <> padding <> [6, 0] <> padding <> [9, 9]) @?= Left (BadOption 0)
            with 44 ([6, 0, 0, 1, 0, 0, 0, 0] <> [9, 9]) @?= Left Fragmented
            with 43 ([6, 0, 0, 1, 0, 0, 0, 0] <> [9, 9]) @?= Left (BadOption 43)
            with 60 ([6, 0, 0xc3, 4, 0, 0, 0, 0] <> [9, 9]) @?= Left (BadOption 60),
          testCase "fragments are refused" $
            parsePacket (resum (B.concat [B.take 6 fragment, B.pack [0x20, 0], B.drop 8 fragment])) @?= Left Fragmented
        ],
      testGroup
        "segment"
        [ testProperty "build, then parse" $ \(Path a b) (AnySegment x@(ports, s, payload)) ->
            parseSegment a b (buildSegment a b ports s payload) === Right x,
          testProperty "length of the options" $ \(Path a b) (AnySegment (ports, s, payload)) ->
            B.length (buildSegment a b ports s payload) === 20 + optionsLength (segmentOptions s) + B.length payload,
          testProperty "a bit is refused" $ \(Path a b) (AnySegment (ports, s, payload)) ->
            conjoin [counterexample (show x) (isLeft (parseSegment a b x)) | x <- flips (buildSegment a b ports s payload)],
          testProperty "cut off" $ \(Path a b) (AnySegment (ports, s, payload)) ->
            -- Two beginnings in 65,536 have the right checksum by chance: the length is in the sum.
            conjoin [counterexample (show x) (parseSegment a b x =/= Right (ports, s, payload)) | x <- cuts (buildSegment a b ports s payload)],
          testProperty "cut off in the header" $ \(Path a b) (AnySegment (ports, s, _)) ->
            conjoin [counterexample (show x) (isLeft (parseSegment a b x)) | x <- cuts (buildSegment a b ports s B.empty)],
          testProperty "of another path" $ \(AnySegment (ports, s, payload)) ->
            isLeft (parseSegment (Address4 1) (Address4 3) (buildSegment (Address4 1) (Address4 2) ports s payload)),
          testProperty "any options" $ \(Bytes o) (Bytes payload) -> case segmentWith o payload of
            r@(Right (_, s, p)) -> harmless r .&&. p === payload .&&. segmentLength s === fromIntegral (B.length payload)
            r -> harmless r,
          testCase "options" $ do
            let parsed = fmap (\(_, s, _) -> segmentOptions s) . (`segmentWith` B.empty) . B.pack
            parsed [2, 4, 5, 0xb4, 1, 3, 3, 7, 1, 1, 4, 2] @?= Right noOptions {optionMss = Just 1460, optionScale = Just 7, optionSackPermitted = True}
            parsed [99, 6, 1, 2, 3, 4, 3, 3, 15, 0, 2, 0] @?= Right noOptions {optionScale = Just 14}
            parsed [2, 3, 5, 1] @?= Left (BadOption 2)
            parsed [99, 0, 0, 0] @?= Left (BadOption 99)
            parsed [99, 1, 0, 0] @?= Left (BadOption 99)
            parsed [1, 1, 99, 3] @?= Left (BadOption 99)
            parsed [1, 1, 1, 99] @?= Left (BadOption 99)
            parsed [5, 6, 0, 0, 0, 1, 0, 0] @?= Left (BadOption 5)
            parsed [5, 2, 0, 0] @?= Left (BadOption 5)
            parsed [8, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0] @?= Left (BadOption 8)
        ],
      testGroup
        "datagram"
        [ testProperty "build, then parse" $ \(Path a b) source (Positive target) (Bytes payload) ->
            parseDatagram a b (buildDatagram a b (Ports source target) payload) === Right (Ports source target, payload),
          testProperty "a bit is refused" $ \(Path a b) (Bytes payload) ->
            let good = buildDatagram a b (Ports 53 54) payload
             in conjoin [counterexample (show x) (parseDatagram a b x =/= Right (Ports 53 54, payload)) | x <- flips good],
          testProperty "cut off" $ \(Path a b) (Bytes payload) ->
            conjoin [isLeft (parseDatagram a b x) | x <- cuts (buildDatagram a b (Ports 53 54) payload)],
          testProperty "any bytes" $ \(Path a b) (Bytes x) -> harmless (parseDatagram a b x) .&&. harmless (parseVerifiedDatagram x),
          testProperty "what follows is ignored" $ \(Path a b) (Bytes payload) (Bytes more) ->
            parseDatagram a b (buildDatagram a b (Ports 53 54) payload <> more) === Right (Ports 53 54, payload),
          testProperty "a verified one needs no checksum" $ \(Path a b) (Bytes payload) sum16 ->
            let good = buildDatagram a b (Ports 53 54) payload
                changed = B.concat [B.take 6 good, B.pack [fromIntegral (sum16 `shiftR` 8), fromIntegral (sum16 :: Word16)], B.drop 8 good]
             in parseVerifiedDatagram changed === Right (Ports 53 54, payload),
          testCase "without a checksum, over version 4 only" $ do
            let unsummed = B.pack [0, 53, 0, 54, 0, 9, 0, 0, 7]
            parseDatagram (Address4 1) (Address4 2) unsummed @?= Right (Ports 53 54, B.pack [7])
            parseDatagram (Address6 0 1) (Address6 0 2) unsummed @?= Left BadChecksum,
          testCase "a checksum that is 0 is sent as all ones" $ do
            -- The words before it add up to 0xffff.
            let ports = Ports 0xffce 1
                sent = buildDatagram (Address4 1) (Address4 9) ports (B.pack [0, 1])
            B.take 2 (B.drop 6 sent) @?= B.pack [0xff, 0xff]
            parseDatagram (Address4 1) (Address4 9) sent @?= Right (ports, B.pack [0, 1]),
          testCase "lengths" $ do
            let saying n = parseVerifiedDatagram (B.pack ([0, 53, 0, 54, 0, n, 0, 0] <> [1, 2, 3]))
            map saying [7, 8, 10, 11, 12]
              @?= [Left BadLength, Right (Ports 53 54, B.empty), Right (Ports 53 54, B.pack [1, 2]), Right (Ports 53 54, B.pack [1, 2, 3]), Left Truncated],
          testCase "no port" $ parseVerifiedDatagram (B.pack [0, 53, 0, 0, 0, 8, 0, 0]) @?= Left BadPort
        ],
      testGroup
        "control message"
        [ testProperty "build, then parse" $ \(Path a b) (AnyMessage m) -> parseMessage a b (buildMessage a b m) === Right m,
          testProperty "a bit is refused" $ \(Path a b) (AnyMessage m) ->
            conjoin [counterexample (show x) (isLeft (parseMessage a b x)) | x <- flips (buildMessage a b m)],
          testProperty "any bytes" $ \(Path a b) (Bytes x) -> harmless (parseMessage a b x) .&&. harmless (parseQuoted x),
          testProperty "any bytes under a right checksum" $ \(Path a b) (AnyMessage m) (Bytes x) ->
            -- The first byte is the kind of message.
            harmless (parseMessage a b (summed a b (B.take 1 (buildMessage a b m) <> x))) .&&. harmless (parseMessage a b (summed a b x)),
          testProperty "quotes a segment" $ \(Path a b) (AnySegment (ports, s, payload)) (NonNegative more) ->
            let packet = buildPacket (Packet a b 6 64 0 0 (buildSegment a b ports s payload))
             in parseQuoted (B.take (headerLength a + 8 + more) packet) === Just (Quoted a b 6 ports (segmentSeq s)),
          testProperty "quotes a datagram" $ \(Path a b) source target (Bytes payload) ->
            let packet = buildPacket (Packet a b 17 64 0 0 (buildDatagram a b (Ports source target) payload))
                said q = (quotedSource q, quotedTarget q, quotedProtocol q, quotedPorts q)
             in fmap said (parseQuoted (B.take (headerLength a + 8) packet)) === Just (a, b, 17, Ports source target)
        ]
    ]
  where
    header791 = B.pack [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7]
    fragment = buildPacket (Packet (Address4 1) (Address4 2) 6 64 0 0 (B.pack [1, 2, 3]))
    resum b =
      let blank = B.concat [B.take 10 b, B.pack [0, 0], B.drop 12 b]
          s = naive (B.take 20 blank)
       in B.concat [B.take 10 b, B.pack [fromIntegral (s `shiftR` 8), fromIntegral s], B.drop 12 b]

-- | A segment with these bytes as its options (padded, at most 40), its checksum right.
segmentWith :: ByteString -> ByteString -> Either Malformed (Ports, Segment, ByteString)
segmentWith options payload = parseSegment (Address4 1) (Address4 2) (B.concat [B.take 16 blank, B.pack [fromIntegral (s `shiftR` 8), fromIntegral s], B.drop 18 blank])
  where
    padded = let o = B.take 40 options in o <> B.replicate (negate (B.length o) `mod` 4) 0
    blank =
      B.concat
        [ B.pack [0, 80, 0, 81, 0, 0, 0, 1, 0, 0, 0, 2, fromIntegral ((5 + B.length padded `div` 4) * 16), 16, 1, 0, 0, 0, 0, 0],
          padded,
          payload
        ]
    s = naive (pseudo <> blank)
    pseudo = B.pack [0, 0, 0, 1, 0, 0, 0, 2, 0, 6, fromIntegral (B.length blank `shiftR` 8), fromIntegral (B.length blank)]
