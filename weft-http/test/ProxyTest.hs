-- | The PROXY protocol: what is understood, what is refused, and that neither depends on how
-- the bytes come.
module ProxyTest (tests) where

import Control.Monad (forM_)
import Data.Bits (shiftL, shiftR, (.&.), (.|.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Either (isLeft)
import Data.IORef
import Data.List (intercalate)
import Data.Word (Word16, Word32, Word8)
import Network.Socket (tupleToHostAddress, tupleToHostAddress6)
import Numeric (showHex)
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck hiding ((.&.))
import Weft
import Weft.Http.Internal.Address
import Weft.Http.Proxy
import Weft.Http.Proxy.Header (crc32c)
import Weft.Socket (SockAddr (..))

tests :: TestTree
tests =
  testGroup
    "PROXY protocol"
    [ testGroup "version 1" (map understood lines1 <> map refused bad1),
      testGroup "version 2" (map understood headers2 <> map refused bad2),
      testGroup
        "both"
        [ testCase "cut anywhere, a header is awaited until it is whole" $ forM_ (lines1 <> headers2) everyCut,
          testCase "what follows belongs to the client" $ forM_ (lines1 <> headers2) $ \(name, bytes, header) ->
            forM_ ["", "GET / HTTP/1.1\r\n", "\r\n", bytes] $ \rest ->
              assertEqual name (Header header (B.length bytes)) (parse (bytes <> rest)),
          testProperty "more bytes change nothing that was decided" prop_decided,
          testProperty "whatever is missing is missing" prop_missing,
          testProperty "a header made at random is understood" prop_made,
          testCase "received in pieces, the rest is untouched" received,
          testCase "a connection that ends early is refused" endsEarly
        ],
      testCase "CRC-32C of the numbers" $ crc32c "123456789" @?= 0xe3069283,
      testGroup "addresses" addresses,
      testCase "a refused client is named by the address, also where it is mapped into IPv6" $
        forM_ [SockAddrInet 7 (tupleToHostAddress (192, 0, 2, 1)), SockAddrInet6 7 0 (0, 0, 0xffff, 0xc0000201) 0] $ \peer ->
          show (ProxyUntrusted peer) @?= "a connection from 192.0.2.1:7, which is no trusted proxy",
      testGroup "trusted networks" networks
    ]

parse :: ByteString -> ProxyParsed
parse = parseProxyHeader defaultProxyLimit

understood :: (String, ByteString, ProxyHeader) -> TestTree
understood (name, bytes, header) = testCase name (parse bytes @?= Header header (B.length bytes))

refused :: (String, ByteString, ProxyFault) -> TestTree
refused (name, bytes, fault) = testCase name (parse bytes @?= Refused fault)

everyCut :: (String, ByteString, ProxyHeader) -> Assertion
everyCut (name, bytes, _) = forM_ [0 .. B.length bytes - 1] $ \n -> case parse (B.take n bytes) of
  NeedMore k | k > 0, n + k <= B.length bytes -> pure ()
  other -> assertFailure (name <> " cut at " <> show n <> ": " <> show other)

v4 :: (Word8, Word8, Word8, Word8) -> Int -> SockAddr
v4 a port = SockAddrInet (fromIntegral port) (tupleToHostAddress a)

simple :: SockAddr -> SockAddr -> ProxyHeader
simple = Proxied

lines1 :: [(String, ByteString, ProxyHeader)]
lines1 =
  [ ("TCP4", "PROXY TCP4 192.0.2.1 198.51.100.2 65535 0\r\n", simple (v4 (192, 0, 2, 1) 65535) (v4 (198, 51, 100, 2) 0)),
    ("TCP6", "PROXY TCP6 2001:DB8::1 ::1 4711 443\r\n", simple (v6 (0x2001, 0xdb8, 0, 0, 0, 0, 0, 1) 4711) (v6 (0, 0, 0, 0, 0, 0, 0, 1) 443)),
    ("TCP6, as long as it gets", "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n", simple ones ones),
    ("TCP6, mapped", "PROXY TCP6 ::ffff:192.0.2.1 ::1 1 2\r\n", simple (v6 (0, 0, 0, 0, 0, 0xffff, 0xc000, 0x201) 1) (v6 (0, 0, 0, 0, 0, 0, 0, 1) 2)),
    ("UNKNOWN", "PROXY UNKNOWN\r\n", Unknown),
    ("UNKNOWN, with anything", "PROXY UNKNOWN ff::g  \r 1 \n\xff\r\n", Unknown),
    ("UNKNOWN, 107 bytes", "PROXY UNKNOWN " <> C.replicate 91 'x' <> "\r\n", Unknown)
  ]
  where
    v6 a port = SockAddrInet6 port 0 (tupleToHostAddress6 a) 0
    ones = v6 (m, m, m, m, m, m, m, m) 65535
    m = 0xffff

bad1 :: [(String, ByteString, ProxyFault)]
bad1 =
  [ ("HTTP", "GET / HTTP/1.1\r\n", NoSignature),
    ("HTTP that begins like it", "PROPFIND / HTTP/1.1\r\n", NoSignature),
    ("lower case", "proxy TCP4", NoSignature),
    ("one wrong byte", "PROXz", NoSignature),
    ("a tabulator", "PROXY\tTCP4", NoSignature),
    ("107 bytes without an end", "PROXY UNKNOWN " <> C.replicate 93 'x', LineTooLong),
    ("an end in the bytes 107 and 108", "PROXY UNKNOWN " <> C.replicate 92 'x' <> "\r\n", LineTooLong),
    ("no protocol", "PROXY \r\n", BadLine),
    ("UDP", "PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n", BadLine),
    ("UNKNOWNS", "PROXY UNKNOWNS\r\n", BadLine),
    ("IPv6 in TCP4", "PROXY TCP4 ::1 ::1 1 2\r\n", BadLine),
    ("IPv4 in TCP6", "PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n", BadLine),
    ("two spaces", "PROXY TCP4  192.0.2.1 192.0.2.2 1 2\r\n", BadLine),
    ("a space at the end", "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n", BadLine),
    ("a field too many", "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n", BadLine),
    ("a field too few", "PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n", BadLine),
    ("a leading zero", "PROXY TCP4 192.0.2.01 192.0.2.2 1 2\r\n", BadLine),
    ("a leading zero of a port", "PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n", BadLine),
    ("256", "PROXY TCP4 192.0.2.256 192.0.2.2 1 2\r\n", BadLine),
    ("three numbers", "PROXY TCP4 192.0.2 192.0.2.2 1 2\r\n", BadLine),
    ("port 65536", "PROXY TCP4 192.0.2.1 192.0.2.2 65536 2\r\n", BadLine),
    ("a huge port", "PROXY TCP4 192.0.2.1 192.0.2.2 18446744073709551617 2\r\n", BadLine),
    ("a sign", "PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n", BadLine),
    ("a zone", "PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n", BadLine),
    ("a line feed alone", "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n\r\n", BadLine)
  ]

-- | A header of version 2: command, family, what follows.
binary :: Word8 -> Word8 -> ByteString -> ByteString
binary command family rest = "\r\n\r\n\0\r\nQUIT\n" <> B.pack [command, family, fromIntegral (B.length rest `shiftR` 8), fromIntegral (B.length rest .&. 0xff)] <> rest

tlv :: Word8 -> ByteString -> ByteString
tlv kind value = B.pack [kind, fromIntegral (B.length value `shiftR` 8), fromIntegral (B.length value .&. 0xff)] <> value

four :: ByteString
four = B.pack [192, 0, 2, 1, 198, 51, 100, 2, 0x12, 0x67, 0x01, 0xbb]

fourHeader :: ProxyHeader
fourHeader = Proxied (v4 (192, 0, 2, 1) 4711) (v4 (198, 51, 100, 2) 443)

word32 :: Word32 -> ByteString
word32 n = B.pack [fromIntegral (n `shiftR` by) | by <- [24, 16, 8, 0]]

-- | With a checksum, right or wrong.
summed :: Word32 -> ByteString
summed wrong = before <> word32 (crc32c (before <> B.replicate 4 0 <> behind) + wrong) <> behind
  where
    whole = binary 0x21 0x11 (four <> tlv 0x04 "xx" <> tlv 0x03 "\0\0\0\0" <> tlv 0x02 "example.org")
    (before, rest) = B.splitAt (16 + 12 + 5 + 3) whole
    behind = B.drop 4 rest

headers2 :: [(String, ByteString, ProxyHeader)]
headers2 =
  [ ("LOCAL", binary 0x20 0 "", Local),
    ("LOCAL, with what is to be ignored", binary 0x20 0xff "whatever", Local),
    ("of no family", binary 0x21 0 "", Unknown),
    ("of no family, with what is to be ignored", binary 0x21 0 "\1\2", Unknown),
    ("TCP over IPv4", binary 0x21 0x11 four, fourHeader),
    ( "TCP over IPv6",
      binary 0x21 0x21 (B.pack ([0x20, 1] <> replicate 13 0 <> [7] <> replicate 15 0 <> [1] <> [0, 80, 1, 0])),
      Proxied (SockAddrInet6 80 0 (tupleToHostAddress6 (0x2001, 0, 0, 0, 0, 0, 0, 7)) 0) (SockAddrInet6 256 0 (tupleToHostAddress6 (0, 0, 0, 0, 0, 0, 0, 1)) 0)
    ),
    ( "Unix domain",
      binary 0x21 0x31 ("/run/client" <> B.replicate 97 0 <> "\0abstract" <> B.replicate 99 0),
      Proxied (SockAddrUnix "/run/client") (SockAddrUnix "\0abstract")
    ),
    ("with values", binary 0x21 0x11 (four <> tlv 0x01 "http/1.1" <> tlv 0xe7 "of somebody else" <> tlv 0x02 "example.org" <> tlv 0x04 ""), fourHeader),
    ("with a value of no bytes that is the last", binary 0x21 0x11 (four <> tlv 0x20 ""), fourHeader),
    ("a checksum", summed 0, fourHeader),
    ("as long as the limit", binary 0x21 0x11 (four <> tlv 0x04 (B.replicate (4096 - 15) 0)), fourHeader)
  ]

bad2 :: [(String, ByteString, ProxyFault)]
bad2 =
  [ ("a signature with a wrong byte", "\r\n\r\n\0\r\nQUIT\r", NoSignature),
    ("version 1", binary 0x11 0x11 four, BadCommand),
    ("version 3", binary 0x31 0x11 four, BadCommand),
    ("command 2", binary 0x22 0x11 four, BadCommand),
    ("family 4", binary 0x21 0x41 four, BadFamily),
    ("a family without a transport", binary 0x21 0x10 four, BadFamily),
    ("a transport without a family", binary 0x21 0x01 four, BadFamily),
    ("datagrams", binary 0x21 0x12 four, BadFamily),
    ("too short for IPv4", binary 0x21 0x11 (B.drop 1 four), TooShort),
    ("too short for IPv6", binary 0x21 0x21 (B.replicate 35 0), TooShort),
    ("too short for Unix", binary 0x21 0x31 (B.replicate 215 0), TooShort),
    ("longer than the limit", binary 0x21 0x11 (four <> tlv 0x04 (B.replicate (4096 - 14) 0)), TooLong),
    ("longer than the limit, of LOCAL", binary 0x20 0 (B.replicate 4097 0), TooLong),
    ("half a value", binary 0x21 0x11 (four <> "\1\0"), BadValues),
    ("a value that does not end", binary 0x21 0x11 (four <> "\1\0\2x"), BadValues),
    ("a byte after the values", binary 0x21 0x11 (four <> tlv 0x01 "x" <> "\4"), BadValues),
    ("a checksum of three bytes", binary 0x21 0x11 (four <> tlv 0x03 "\0\0\0"), BadValues),
    ("a wrong checksum", summed 1, BadChecksum)
  ]

-- | Headers, whole, damaged or cut, and noise.
genInput :: Gen ByteString
genInput = do
  bytes <- oneof [elements [b | (_, b, _) <- lines1 <> headers2], elements [b | (_, b, _) <- bad1 <> bad2], B.pack <$> arbitrary]
  damage <- frequency [(2, pure id), (3, change <$> arbitrary <*> choose (0, max 0 (min 60 (B.length bytes) - 1))), (1, B.take <$> choose (0, B.length bytes))]
  (damage bytes <>) . B.pack <$> arbitrary
  where
    change b at bytes = B.take at bytes <> B.singleton b <> B.drop (at + 1) bytes

prop_decided :: Property
prop_decided = forAll genInput $ \input -> forAll (choose (0, B.length input)) $ \n ->
  let whole = parse input
   in case parse (B.take n input) of
        NeedMore _ -> classify True "undecided" True
        early -> classify True "decided" (early == whole)

prop_missing :: Property
prop_missing = forAll genInput $ \input -> forAll (choose (0, B.length input)) $ \n -> case (parse (B.take n input), parse input) of
  (NeedMore k, Header _ used) -> counterexample (show (n, k, used)) (n + k <= used)
  (NeedMore k, _) -> property (k > 0)
  _ -> property True

prop_made :: Property
prop_made = forAll ((,,,) <$> arbitrary <*> arbitrary <*> arbitrary <*> arbitrary) $ \(a, b, from, to :: Word16) ->
  let dotted n = intercalate "." [show (n `shiftR` by .&. 0xff) | by <- [24, 16, 8, 0 :: Int]]
      source = toSockAddr (IPv4 a) (fromIntegral from)
      destination = toSockAddr (IPv4 b) (fromIntegral to)
      line = C.pack (unwords ["PROXY TCP4", dotted a, dotted b, show (from :: Word16), show to] <> "\r\n")
      block = word32 a <> word32 b <> B.pack [fromIntegral (from `shiftR` 8), fromIntegral from, fromIntegral (to `shiftR` 8), fromIntegral to]
   in conjoin [parse bytes === Header (simple source destination) (B.length bytes) | bytes <- [line, binary 0x21 0x11 block]]

received :: IO ()
received = forM_ (lines1 <> headers2) $ \(name, bytes, header) -> forM_ [1, 2, 7, 10_000] $ \size -> do
  let rest = "GET / HTTP/1.1\r\n\r\n"
  left <- newIORef (bytes <> rest)
  (got, over) <- run (receiveProxyHeader defaultProxyLimit (liftIO (atomicModifyIORef' left (\b -> (B.drop size b, B.take size b)))))
  unread <- readIORef left
  assertEqual name header got
  assertEqual name rest (over <> unread)

endsEarly :: IO ()
endsEarly = forM_ (lines1 <> headers2) $ \(name, bytes, _) -> do
  left <- newIORef (B.init bytes)
  outcome <- run (try (receiveProxyHeader defaultProxyLimit (liftIO (atomicModifyIORef' left ("",)))))
  assertEqual name (Left (ProxyEnded (B.length bytes - 1))) outcome
  none <- run (try (receiveProxyHeader defaultProxyLimit (pure "nonsense")))
  none @?= Left (ProxyRefused NoSignature)

addresses :: [TestTree]
addresses =
  [ testProperty "IPv6 addresses are read as they are written" $ forAll genIPv6 $ \a -> parseIPv6 (renderAddress a) === Just a,
    testProperty "IPv6 addresses of eight groups are read" $ forAll (vectorOf 8 (choose (0, 0xffff :: Word32))) $ \gs -> case gs of
      [a, b, c, d, e, f, g, h] -> parseIPv6 (C.pack (intercalate ":" (map (`showHex` "") gs))) === Just (IPv6 (a `shiftL` 16 .|. b) (c `shiftL` 16 .|. d) (e `shiftL` 16 .|. f) (g `shiftL` 16 .|. h))
      _ -> property False,
    testCase "what is no IPv6 address" $
      forM_ [":", ":::", "1", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1::2:3:4:5:6:7:8", "1::2::3", "12345::", ":1::", "::1:", "g::", "1:2:3:4:5:6:7:1.2.3.4", "1.2.3.4::", "::1.2.3", "[::1]", "::00001", ":1:2:3:4:5:6:7:8", " ::1", "fe80::1%lo", "::1\0", ""] $ \text ->
        assertEqual (show text) Nothing (parseIPv6 text),
    testCase "what is no IPv4 address" $
      forM_ ["1.2.3", "1.2.3.4.5", "1.2.3.", ".1.2.3", "1..2.3", "1.2.3.256", "1.2.3.04", "0x1.2.3.4", " 1.2.3.4", "1.2.3.4 ", "1.2.3.-4", "1.2.3.4\0", "16909060", ""] $ \text ->
        assertEqual (show text) Nothing (parseIPv4 text)
  ]
  where
    genIPv6 = IPv6 <$> word <*> word <*> word <*> word
    word = frequency [(2, pure 0), (1, choose (0, 0xffff)), (1, (`shiftL` 16) <$> choose (0, 0xffff)), (1, arbitrary)]

networks :: [TestTree]
networks =
  [ testCase "inside and outside"
      $ forM_
        [ ("10.0.0.0/8", ["10.0.0.0", "10.255.255.255"], ["9.255.255.255", "11.0.0.0", "::1"]),
          ("192.0.2.1", ["192.0.2.1"], ["192.0.2.0", "192.0.2.2"]),
          ("0.0.0.0/0", ["0.0.0.0", "255.255.255.255"], ["::"]),
          ("192.0.2.128/25", ["192.0.2.128", "192.0.2.255"], ["192.0.2.127"]),
          ("2001:db8::/33", ["2001:db8:7fff:ffff:ffff:ffff:ffff:ffff"], ["2001:db8:8000::", "2001:db7::"]),
          ("::/0", ["::", "ffff::"], ["10.0.0.1"]),
          ("::1", ["::1"], ["::", "::2"]),
          ("fe80::/10", ["fe80::1", "febf::"], ["fec0::"]),
          ("::ffff:10.0.0.0/104", ["10.1.2.3"], ["11.0.0.0"])
        ]
      $ \(text, inside, outside) -> do
        network <- either assertFailure pure (parseNetwork text)
        forM_ inside (\a -> assertBool (show (text, a)) (network `contains` peer a))
        forM_ outside (\a -> assertBool (show (text, a)) (not (network `contains` peer a))),
    testCase "an IPv4 client of a socket for both families" $ do
      let mapped = peer "::ffff:10.1.2.3"
      fmap (`isTrusted` mapped) (parseNetworks "10.0.0.0/8") @?= Right True
      fmap (`isTrusted` mapped) (parseNetworks "::/0") @?= Right False,
    testCase "Unix-domain sockets" $ do
      fmap (`isTrusted` SockAddrUnix "") (parseNetworks "10.0.0.0/8, unix") @?= Right True
      fmap (`isTrusted` SockAddrUnix "") (parseNetworks "0.0.0.0/0,::/0") @?= Right False,
    testCase "what is no network" $
      forM_ ["", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/08", "10.0.0.0/-1", "10.0.0.1/8", "::1/64", "::/129", "example.org", "10.0.0.0/8/8", "UNIX", "/8"] $ \text ->
        assertBool (show text) (isLeft (parseNetwork text)),
    testCase "one that is wrong makes the list wrong" $ assertBool "" (isLeft (parseNetworks "10.0.0.0/8,") && isLeft (parseNetworks "")),
    testProperty "the first bits decide" $ forAll ((,,) <$> arbitrary <*> choose (0, 32) <*> arbitrary) $ \(a, size, b) ->
      let cut n = if size == 0 then 0 else n `shiftR` (32 - size) `shiftL` (32 - size) :: Word32
       in case parseNetwork (renderAddress (IPv4 (cut a)) <> "/" <> C.pack (show size)) of
            Right network -> contains network (toSockAddr (IPv4 b) 1) === (cut a == cut b)
            Left why -> counterexample why False,
    testProperty "written and read again" $ forAll ((,) <$> arbitrary <*> choose (0, 32 :: Int)) $ \(a, size) ->
      let cut = if size == 0 then 0 else a `shiftR` (32 - size) `shiftL` (32 - size) :: Word32
          text = renderAddress (IPv4 cut) <> "/" <> C.pack (show size)
       in fmap (C.pack . renderNetwork) (parseNetwork text) === Right text
  ]
  where
    peer text = case if C.elem ':' text then parseIPv6 text else parseIPv4 text of
      Just a -> toSockAddr a 9
      Nothing -> error (show text)
