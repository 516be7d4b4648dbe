{-# OPTIONS_HADDOCK not-home #-}

-- | Version 1 is a line of text: single spaces, addresses of the named family, ports without leading
-- zeros. Version 2 is binary: a signature, command, family, length of the rest, two addresses, and
-- values with type and length (TLVs), of which only the checksum is used. Pure.
module Weft.Http.Proxy.Header
  ( ProxyHeader (..),
    ProxyParsed (..),
    ProxyFault (..),
    proxyFaultText,
    parseLine,
    parseBinary,
    signature,
    crc32c,
  )
where

import Data.Bits (complement, testBit, unsafeShiftL, unsafeShiftR, xor, (.|.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Maybe (fromMaybe, isNothing)
import Data.Word (Word16, Word32, Word8)
import Weft.Http.Internal.Address
import Weft.Socket (SockAddr (..))

-- | The first bytes of every header, with which no HTTP request begins.
signature :: ByteString
signature = "\r\n\r\n\0\r\nQUIT\n"

-- | Parse input that begins with 'signature'; the number bounds the bytes after the first 16.
parseBinary :: Int -> ByteString -> ProxyParsed
parseBinary limit input
  -- Each byte is judged when it arrives, so that more bytes do not change the outcome.
  | have > 12, command > 0x21 || command < 0x20 = Refused BadCommand
  | have > 13, command == 0x21, isNothing (addressSize family) = Refused BadFamily
  | have < 16 = NeedMore (16 - have)
  | size > limit = Refused TooLong
  | command == 0x21, maybe False (size <) (addressSize family) = Refused TooShort
  | have < 16 + size = NeedMore (16 + size - have)
  -- Of a health check the rest is ignored, including the family.
  | command == 0x20 = Header Local (16 + size)
  | family == 0 = Header Unknown (16 + size)
  | otherwise = either Refused (`Header` (16 + size)) (proxied family (B.take (16 + size) input))
  where
    have = B.length input
    command = B.index input 12
    family = B.index input 13
    size = fromIntegral (word16 14 input)

-- | The bytes of both addresses of a family; 'Nothing' if it is refused.
addressSize :: Word8 -> Maybe Int
addressSize = \case
  0x00 -> Just 0
  0x11 -> Just 12
  0x21 -> Just 36
  0x31 -> Just 216
  _ -> Nothing

proxied :: Word8 -> ByteString -> Either ProxyFault ProxyHeader
proxied family whole = do
  values <- maybe (Left BadValues) Right (splitValues (B.drop start whole))
  if all ((== 4) . B.length) [v | (0x03, v) <- values] then Right () else Left BadValues
  if checksumHolds whole start values then Right (Proxied client local) else Left BadChecksum
  where
    start = 16 + fromMaybe 0 (addressSize family)
    block = B.drop 16 whole
    port at = fromIntegral (word16 at block)
    (client, local) = case family of
      0x11 -> (toSockAddr (IPv4 (word32 0 block)) (port 8), toSockAddr (IPv4 (word32 4 block)) (port 10))
      0x21 -> (toSockAddr (ipv6 0) (port 32), toSockAddr (ipv6 16) (port 34))
      _ -> (SockAddrUnix (path 0), SockAddrUnix (path 108))
    ipv6 at = IPv6 (word32 at block) (word32 (at + 4) block) (word32 (at + 8) block) (word32 (at + 12) block)
    -- Padded with zeros; an abstract name begins with one.
    path at = C.unpack $ case B.take 108 (B.drop at block) of
      name
        | B.isPrefixOf "\0" name -> B.dropWhileEnd (== 0) name
        | otherwise -> B.takeWhile (/= 0) name

-- | Types and contents; 'Nothing' if they do not fill the bytes exactly.
splitValues :: ByteString -> Maybe [(Word8, ByteString)]
splitValues bytes
  | B.null bytes = Just []
  | B.length bytes < 3 || B.length bytes < 3 + size = Nothing
  | otherwise = ((B.head bytes, B.take size (B.drop 3 bytes)) :) <$> splitValues (B.drop (3 + size) bytes)
  where
    size = fromIntegral (word16 1 bytes) :: Int

-- | Is the checksum, if present, that of the header with zeros there? Given the offset of the values.
checksumHolds :: ByteString -> Int -> [(Word8, ByteString)] -> Bool
checksumHolds whole start values = case break ((== 0x03) . fst) values of
  (before, (_, sent) : _) ->
    let at = start + sum [3 + B.length v | (_, v) <- before] + 3
     in crc32c (B.take at whole <> B.replicate 4 0 <> B.drop (at + 4) whole) == word32 0 sent
  _ -> True

-- | CRC-32C (Castagnoli), bit by bit: headers are short, and few have a checksum.
crc32c :: ByteString -> Word32
crc32c = complement . B.foldl' byte 0xffffffff
  where
    byte crc b = iterate bit' (crc `xor` fromIntegral b) !! 8
    bit' crc = (crc `unsafeShiftR` 1) `xor` (if testBit crc 0 then 0x82f63b78 else 0)

-- | A number in network byte order at an offset.
word16 :: Int -> ByteString -> Word16
word16 at bytes = fromIntegral (B.index bytes at) `unsafeShiftL` 8 .|. fromIntegral (B.index bytes (at + 1))

word32 :: Int -> ByteString -> Word32
word32 at bytes = fromIntegral (word16 at bytes) `unsafeShiftL` 16 .|. fromIntegral (word16 (at + 2) bytes)

-- | The origin of a connection, according to the proxy.
data ProxyHeader
  = -- | The proxy itself, such as its health check: the connection's own addresses apply.
    Local
  | -- | Unknown to the proxy, or of another family: the connection's own addresses apply.
    Unknown
  | -- | The client's address, and the address that it connected to.
    Proxied !SockAddr !SockAddr
  deriving stock (Eq, Show)

-- | The outcome of parsing the beginning of a connection.
data ProxyParsed
  = -- | An incomplete header; at least this number of bytes are missing.
    NeedMore !Int
  | -- | No header, or a refused one; more bytes do not change that.
    Refused !ProxyFault
  | -- | A header and its length in bytes. The client's bytes follow.
    Header !ProxyHeader !Int
  deriving stock (Eq, Show)

-- | Why a connection is refused, as 'proxyFaultText' explains.
data ProxyFault
  = NoSignature
  | LineTooLong
  | BadLine
  | BadCommand
  | BadFamily
  | TooShort
  | TooLong
  | BadValues
  | BadChecksum
  deriving stock (Eq, Show, Enum, Bounded)

-- | A line for the operator.
proxyFaultText :: ProxyFault -> String
proxyFaultText = \case
  NoSignature -> "the connection does not begin with a PROXY header"
  LineTooLong -> "a PROXY line of more than 107 bytes"
  BadLine -> "a malformed PROXY line"
  BadCommand -> "a PROXY header of an unknown version or command"
  BadFamily -> "a PROXY header of an unknown address family or transport"
  TooShort -> "a PROXY header too short for its addresses"
  TooLong -> "a PROXY header longer than the limit"
  BadValues -> "a PROXY header with malformed values"
  BadChecksum -> "a PROXY header with a wrong checksum"

-- | A line of version 1 in bytes, with its end.
longestLine :: Int
longestLine = 107

-- | Parse input that begins with @PROXY@ and a space.
parseLine :: ByteString -> ProxyParsed
parseLine input = case B.breakSubstring "\r\n" (B.take longestLine input) of
  (line, end)
    | not (B.null end) -> maybe (Refused BadLine) (\header -> Header header (B.length line + 2)) (lineHeader line)
    | B.length input >= longestLine -> Refused LineTooLong
    -- All or half of the line end is missing.
    | C.isSuffixOf "\r" input -> NeedMore 1
    | otherwise -> NeedMore (if B.length input == longestLine - 1 then 1 else 2)

lineHeader :: ByteString -> Maybe ProxyHeader
lineHeader line = case C.split ' ' line of
  -- The rest of the line is ignored.
  _ : "UNKNOWN" : _ -> Just Unknown
  [_, "TCP4", source, destination, from, to] -> between (parseIPv4 source) (parseIPv4 destination) from to
  [_, "TCP6", source, destination, from, to] -> between (parseIPv6 source) (parseIPv6 destination) from to
  _ -> Nothing
  where
    between source destination from to = do
      client <- toSockAddr <$> source <*> port from
      local <- toSockAddr <$> destination <*> port to
      Just (Proxied client local)
    port = fmap fromIntegral . parseDecimal 65535
