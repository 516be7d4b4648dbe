-- |
-- Description : UDP datagrams
--
-- RFC 768.
module Weft.Tcp.Udp
  ( parseDatagram,
    parseVerifiedDatagram,
    buildDatagram,
  )
where

import Control.Monad (when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Weft.Tcp.Checksum
import Weft.Tcp.Internal.Bytes
import Weft.Tcp.Packet (Address (..), protocolUdp, pseudoHeader)
import Weft.Tcp.Segment (Ports (..))

-- | The ports and the payload (a slice) of a datagram between two addresses. A checksum of 0,
-- "none", is taken over version 4 only (RFC 8200, section 8.1). A source port of 0 is valid.
parseDatagram :: Address -> Address -> ByteString -> Either Malformed (Ports, ByteString)
parseDatagram source target b = do
  parsed@(_, payload) <- parseVerifiedDatagram b
  let size = 8 + B.length payload
      isSummed = word16 b 6 /= 0
      isWhole = holds (pseudoHeader source target protocolUdp size <> sumBytes (B.take size b))
  case source of
    Address4 {} | not isSummed -> pure parsed
    _ | isSummed && isWhole -> pure parsed
    _ -> Left BadChecksum

-- | 'parseDatagram', where the checksum was verified or never left the machine.
parseVerifiedDatagram :: ByteString -> Either Malformed (Ports, ByteString)
parseVerifiedDatagram b = do
  when (B.length b < 8) (Left Truncated)
  let size = fromIntegral (word16 b 4)
  when (size < 8) (Left BadLength)
  when (B.length b < size) (Left Truncated)
  when (word16 b 2 == 0) (Left BadPort)
  pure (Ports (word16 b 0) (word16 b 2), B.drop 8 (B.take size b))

-- | The bytes of a datagram of at most 65,527 bytes of payload.
buildDatagram :: Address -> Address -> Ports -> ByteString -> ByteString
buildDatagram source target ports payload = build (header (if sum16 == 0 then 0xffff else sum16) <> bytes payload)
  where
    size = 8 + B.length payload
    sum16 = checksum (pseudoHeader source target protocolUdp size <> sumBytes (build (header 0)) <> sumBytes payload)
    header s =
      byte16 (sourcePort ports) <> byte16 (targetPort ports) <> byte16 (fromIntegral size) <> byte16 s
