-- |
-- Description : What a hostile machine sends
--
-- A table of floods against a machine with a stack, as packets. The attacker sees what comes to its own address, and knows the
-- numbers of a connection of others, as far as a kind of flood is about numbers that are nearly right.
module Floods
  ( Flood (..),
    Scene (..),
    floods,
    attacker,
    server,
    victim,
  )
where

import Data.Bits (shiftR, xor)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Word (Word16, Word32)
import Weft.Tcp.Icmp
import Weft.Tcp.Packet
import Weft.Tcp.Segment
import Weft.Tcp.Sequence (Range (..), Seq (..), advance)

-- | A kind of flood.
data Flood = Flood
  { floodName :: String,
    -- | The packets of a turn, given its number.
    floodSends :: Scene -> Int -> [ByteString],
    -- | The packets that follow a segment that came to this port of the attacker.
    floodAnswers :: Word16 -> Segment -> [ByteString],
    -- | How many packets the server sends for each packet of the flood, at most.
    floodWorth :: Double,
    -- | The honest flow takes at most this many times as long as alone.
    floodSlows :: Double
  }

-- | What the attacker knows.
data Scene = Scene
  { -- | Of the victim's connection: its port, the next number of the server, and the next one that the server expects.
    sceneVictim :: !(Word16, Seq, Seq),
    -- | The first and the last segment that the server sent to each port of the attacker.
    sceneOwn :: !(Map Word16 (Segment, Segment))
  }

server, attacker, victim :: Address
victim = Address4 0x0a000001
server = Address4 0x0a000002
attacker = Address4 0x0a000003

-- | All kinds.
floods :: [Flood]
floods =
  [ -- Without a connection.
    blind "SYNs of many hosts" 1 (\_ n -> [from (stranger n) (port n) (Segment (hashed n) (Seq 0) syn 1000 0 (Options (Just 1460) (Just 7) True Nothing [] Nothing) 0) B.empty]),
    blind "SYNs of the victim" 0.1 (\s n -> [spoofed s syn (hashed n) (Seq 0) B.empty]),
    blind "acknowledgements for no connection" 1 (\_ n -> [own (port n) ack (hashed n) (hashed (n + 1)) 1000 noOptions B.empty]),
    blind "FINs for no connection" 1 (\_ n -> [own (port n) (ack <> fin) (hashed n) (hashed (n + 1)) 1000 noOptions B.empty]),
    blind "resets for no connection" 0 (\_ n -> [own (port n) rst (hashed n) (Seq 0) 0 noOptions B.empty]),
    blind "packets that are no packets" 0 (\s n -> [B.cons 0x45 (B.drop 1 (noise (20 + n `mod` 60) n)), flipped n (spoofed s ack (near s 0) (Seq 0) (noise 20 n)), B.take (n `mod` 40) (spoofed s ack (Seq 0) (Seq 0) B.empty)]),
    blind "fragments" 0 (\s n -> let p = spoofed s ack (near s 0) (Seq 0) (noise 40 n) in [B.concat [B.take 6 p, B.pack [0x20, 0], B.drop 8 p]]),
    blind "echo requests" 1 (\_ n -> [icmp (EchoRequest 1 (fromIntegral n) (noise 56 n))]),
    -- Into the victim's connection, by someone who does not see it. A challenge goes twice a second at most.
    blind "resets in the window" 0.1 (\s n -> [spoofed s rst (near s (20000 + n `mod` 9000)) (Seq 0) B.empty]),
    blind "resets out of the window" 0 (\s n -> [spoofed s rst (near s (0x20000000 + n * 4096)) (Seq 0) B.empty]),
    blind "SYNs in the window" 0.1 (\s n -> [spoofed s (syn <> ack) (near s (20000 + n `mod` 9000)) (hashed n) B.empty]),
    blind "FINs out of the window" 1 (\s n -> [spoofed s (ack <> fin) (near s (0x20000000 + n * 4096)) (acknowledging s 0) B.empty]),
    blind "FINs in the window, with a wrong acknowledgement" 0.1 (\s n -> [spoofed s (ack <> fin) (near s (20000 + n `mod` 9000)) (acknowledging s (0x10000000 + n)) B.empty]),
    blind "acknowledgements of what was never sent" 0.1 (\s n -> [spoofed s ack (near s 0) (acknowledging s (0x10000000 + n)) B.empty]),
    blind "acknowledgements of long ago" 0.1 (\s n -> [spoofed s ack (near s 0) (acknowledging s (0x90000000 + n)) B.empty]),
    blind "acknowledgements out of the window" 0.1 (\s n -> [spoofed s ack (near s (0x20000000 + n * 4096)) (acknowledging s 0) B.empty]),
    blind "data in the window, with a wrong acknowledgement" 0.1 (\s n -> [spoofed s (ack <> psh) (near s (20000 + n `mod` 9000)) (acknowledging s (0x10000000 + n)) (noise 100 n)]),
    blind "data out of the window" 1 (\s n -> [spoofed s (ack <> psh) (near s (0x20000000 + n * 4096)) (acknowledging s 0) (noise 100 n)]),
    blind "data without an acknowledgement" 0.1 (\s n -> [spoofed s psh (near s (20000 + n `mod` 9000)) (Seq 0) (noise 100 n)]),
    blind "messages about what is not outstanding" 0 (\s n -> [about s (TooBig 68) (0x10000000 + n), about s (Unreachable 2) (0x80000000 + n)]),
    blind "messages that say that the host cannot be reached" 0 (\s n -> [about s what (negate 1) | what <- [Unreachable (if n `mod` 16 == 4 then 1 else fromIntegral (n `mod` 16)), TimeExceeded 0, BadParameter 0]]),
    (blind "messages that nothing passes the path" 1 (\s _ -> [about s (TooBig 68) (negate 1)])) {floodSlows = 1.5},
    -- By connections of its own.
    Flood "connections that are reset" (\_ n -> [opens 1460 n]) (\p g -> if isOpening g then [own p ack (segmentAck g) (segmentEnd g) 1000 noOptions B.empty, own p rst (segmentAck g) (Seq 0) 0 noOptions B.empty] else []) 1 1.1,
    Flood "connections that are left half closed" (\_ n -> [opens 1460 n | n `mod` 4 == 0]) (\p g -> [own p (ack <> fin) (segmentAck g) (segmentEnd g) 1000 noOptions B.empty | isOpening g]) 9 1.1,
    Flood "connections that close their windows (sockstress)" (\_ n -> [opens 1460 n | n `mod` 4 == 0]) (\p g -> [asking p g 0]) 1 1.1,
    downloading "windows that shrink" 3 (\p g -> [own p ack (segmentAck g) (segmentEnd g) (fromIntegral (mixed (fromIntegral p + number g) `mod` 3000)) noOptions B.empty]),
    downloading "windows of a few bytes" 3 (\p g -> [own p ack (segmentAck g) (segmentEnd g) (fromIntegral (number g `mod` 4)) noOptions B.empty]),
    (downloading "segments as small as can be" 3 (\p g -> [own p ack (segmentAck g) (segmentEnd g) 60000 noOptions B.empty])) {floodSends = \_ n -> [opens 1 0 | n == 0]},
    downloading "acknowledgements of single bytes" 1.5 (\p g -> [own p ack (segmentAck g) (segmentSeq g `advance` k) 60000 noOptions B.empty | k <- [1 .. min 20 (segmentLength g)]]),
    turning "acknowledgements ahead of time" 12 (\p _ g n -> [own p ack (segmentAck g) (segmentEnd g `advance` fromIntegral (1460 * k)) 60000 noOptions B.empty | k <- [n `mod` 10 .. n `mod` 10 + 3]]),
    turning "selective acknowledgements of single bytes" 12 (\p f g n -> let una = segmentEnd f in [own p ack (segmentAck g) una 60000 noOptions {optionSack = [Range at (at `advance` 1) | k <- [1 .. 3], let { at = una `advance` (mixed (3 * n + k) `mod` 100000) }]} B.empty]),
    uploading "every second byte" 1.1 (\n -> (2 * n + 2, 1)),
    uploading "data that overlap" 1 (\n -> (1 + fromIntegral (mixed n `mod` 60000), 1 + n `mod` 1400)),
    Flood "segments with any flags" (\s n -> let p = port (n `div` 40) in opens 1460 (n `div` 40) : [own p (Flags (fromIntegral (mixed n `mod` 256))) (segmentAck g `advance` (mixed (n + 7) `mod` 3)) (segmentEnd g) 1000 noOptions (noise (n `mod` 3) n) | Just (_, g) <- [Map.lookup p (sceneOwn s)]]) (\p g -> [asking p g 1000 | isOpening g]) 2 1.1
  ]

-- A flood by someone who sees no answer.
blind :: String -> Double -> (Scene -> Int -> [ByteString]) -> Flood
blind name worth sends = Flood name sends (\_ _ -> []) worth 1.1

-- A connection that asks for much, and what it says to each segment.
downloading :: String -> Double -> (Word16 -> Segment -> [ByteString]) -> Flood
downloading name worth says = Flood name (\_ n -> [opens 1460 (n `div` 20) | n `mod` 20 == 0]) (\p g -> if isOpening g then [asking p g 60000] else says p g) worth 1.1

-- One that says something each turn, given the first and the last segment of the server, until it has ended.
turning :: String -> Double -> (Word16 -> Segment -> Segment -> Int -> [ByteString]) -> Flood
turning name worth says = Flood name sends (\p g -> [asking p g 60000 | isOpening g]) worth 1.1
  where
    sends s n = [opens 1460 (n `div` 500) | n `mod` 500 == 0] <> concat [says p f g n | let p = port (n `div` 500), Just (f, g) <- [Map.lookup p (sceneOwn s)]]

-- One that sends payload of this length at this distance from the first.
uploading :: String -> Double -> (Int -> (Int, Int)) -> Flood
uploading name worth piece = Flood name sends (\p g -> [own p ack (segmentAck g) (segmentEnd g) 60000 noOptions (B.singleton 0x75) | isOpening g]) worth 1.1
  where
    sends s n = [opens 1460 0 | n == 0] <> [own p (ack <> psh) (segmentAck f `advance` fromIntegral at) (segmentEnd g) 60000 noOptions (noise size n) | let (at, size) = piece n; p = port 0, Just (f, g) <- [Map.lookup p (sceneOwn s)]]

-- Packets --------------------------------------------------------------------------------------

-- A segment of an address, to the server.
from :: Address -> Word16 -> Segment -> ByteString -> ByteString
from source p s payload = buildPacket (Packet source server protocolTcp 64 0 0 (buildSegment source server (Ports p 80) s {segmentLength = fromIntegral (B.length payload)} payload))

own :: Word16 -> Flags -> Seq -> Seq -> Word16 -> Options -> ByteString -> ByteString
own p f s a w o = from attacker p (Segment s a f w 0 o 0)

-- A SYN that offers segments of this size, from the port of a number.
opens :: Word16 -> Int -> ByteString
opens size n = own (port n) syn (hashed n) (Seq 0) 60000 (Options (Just size) Nothing True Nothing [] Nothing) B.empty

-- The end of a handshake, and a question with a long answer; to another segment an acknowledgement of what came.
asking :: Word16 -> Segment -> Word16 -> ByteString
asking p g window = own p ack (segmentAck g) (segmentEnd g) window noOptions (if isOpening g then B.singleton 0x64 else B.empty)

isOpening :: Segment -> Bool
isOpening g = segmentFlags g `has` syn

number :: Segment -> Int
number g = let Seq n = segmentSeq g in fromIntegral n

spoofed :: Scene -> Flags -> Seq -> Seq -> ByteString -> ByteString
spoofed (Scene (p, _, _) _) f s a = from victim p (Segment s a f 1000 0 noOptions 0)

-- A number that is the given one, and a little, from what the server expects.
near :: Scene -> Int -> Seq
near (Scene (_, _, next) _) n = next `advance` fromIntegral n

acknowledging :: Scene -> Int -> Seq
acknowledging (Scene (_, next, _) _) n = next `advance` fromIntegral n

icmp :: Message -> ByteString
icmp = buildPacket . Packet attacker server protocolIcmp 64 0 0 . buildMessage attacker server

-- About a segment of the server to the victim.
about :: Scene -> Trouble -> Int -> ByteString
about (Scene (p, next, _) _) what n = icmp (Trouble what (B.take 28 quoted))
  where
    quoted = buildPacket (Packet server victim protocolTcp 64 0 0 (buildSegment server victim (Ports 80 p) (Segment (next `advance` fromIntegral n) (Seq 0) ack 0 0 noOptions 0) B.empty))

-- Nobody has this address.
stranger :: Int -> Address
stranger n = Address4 (0x0b000000 + fromIntegral (n `mod` 1000000))

port :: Int -> Word16
port n = fromIntegral (1024 + n `mod` 60000)

-- Numbers without a pattern.
hashed :: Int -> Seq
hashed n = Seq (mixed n)

mixed :: Int -> Word32
mixed n = let x = fromIntegral n * 0x9e3779b1; y = x `xor` (x `shiftR` 15) in y * 0x85ebca77 `xor` (y `shiftR` 13)

noise :: Int -> Int -> ByteString
noise size n = B.take size (B.drop (fromIntegral (mixed n `mod` 2000)) something)

something :: ByteString
something = B.pack (map (fromIntegral . mixed) [1 .. 4000])

flipped :: Int -> ByteString -> ByteString
flipped n b = case B.splitAt (20 + n `mod` (B.length b - 20)) b of
  (x, y) -> x <> maybe y (\(z, rest) -> B.cons (z `xor` 4) rest) (B.uncons y)
