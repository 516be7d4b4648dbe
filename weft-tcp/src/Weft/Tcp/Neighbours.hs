-- |
-- Description : The hosts on a link of Ethernet
--
-- A packet for a host on the same link, or for a router there, goes in a frame to that machine's hardware address, which
-- is asked for: by ARP (RFC 826) with IPv4, by neighbour solicitations (RFC 4861) with IPv6. Pure: state, time and a
-- packet or a frame in, state and frames out. It needs no timers, since it asks again only when there is more to send.
--
-- Note [What neighbours may change]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- An address is learnt only from an answer to a question of ours that is open. A question of another host is answered
-- to where its frame came from, and nothing is kept of it, so that a flood of them costs no memory and changes no entry.
-- The open questions, the packets that wait for their answers and the addresses that are known are bounded; what has been there
-- longest goes first.
module Weft.Tcp.Neighbours
  ( -- * This end
    Mac (..),
    macAt,
    isGroup,
    Station (..),
    Attachment (..),
    isReachable,
    frameHeader,

    -- * Its hosts
    Neighbours,
    noNeighbours,
    stationOf,
    renamed,
    knownHosts,
    openQuestions,
    mostKnown,
    mostAsked,
    mostWaiting,

    -- * Frames
    Out (..),
    sendTo,
    receiveFrame,
    frameFor,
  )
where

import Control.Monad (guard)
import Data.Bits (shiftL, shiftR, testBit, (.&.), (.|.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Foldable (minimumBy)
import Data.Int (Int64)
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Maybe (fromMaybe, isJust, listToMaybe)
import Data.Ord (comparing)
import Data.Word (Word16, Word32, Word64, Word8)
import Weft.Tcp.Icmp
import Weft.Tcp.Internal.Bytes
import Weft.Tcp.Packet

-- | A hardware address: 48 bits, the first byte on top.
newtype Mac = Mac Word64
  deriving stock (Eq, Ord, Show)

-- | This end of a link.
data Station = Station
  { stationMac :: !Mac,
    -- | Of either version of IP, or of both. Frames of a version without an address are ignored.
    stationAttachments :: ![Attachment]
  }
  deriving stock (Eq, Show)

-- | An address of the stack, and its network.
data Attachment = Attachment
  { attachmentAddress :: !Address,
    -- | How many leading bits the addresses of its link have in common.
    attachmentPrefix :: !Int,
    -- | The router for all other addresses of this version, one on this link. Without one, packets for them are lost.
    attachmentRouter :: !(Maybe Address)
  }
  deriving stock (Eq, Show)

-- | The length of a frame's header in bytes.
frameHeader :: Int
frameHeader = 14

-- | What is known of the hosts of a link, and the packets, each an @a@, that wait for more.
data Neighbours a = Neighbours !Station !(Map Address Known) !(Map Address (Asked a))

-- | A hardware address, and until when it is used without a new question, in microseconds.
data Known = Known !Mac !Int64

-- | An open question: how often it was asked, when it may be asked again, and the packets that wait, newest first.
data Asked a = Asked !Int !Int64 ![a]

-- | Nobody is known.
noNeighbours :: Station -> Neighbours a
noNeighbours station = Neighbours station Map.empty Map.empty

-- | This end.
stationOf :: Neighbours a -> Station
stationOf (Neighbours station _ _) = station

-- | This end has another hardware address from now on, and says so to all hosts, of which those that know it change their
-- entry (RFC 5227, section 3; RFC 4861, section 7.2.6).
renamed :: Mac -> Neighbours a -> (Neighbours a, [Out a])
renamed mac n@(Neighbours station known asked)
  | mac == stationMac station = (n, [])
  | otherwise = (Neighbours station' known asked, map (Say . announcement station' . attachmentAddress) (stationAttachments station))
  where
    station' = station {stationMac = mac}

-- | The hosts whose hardware addresses are known.
knownHosts :: Neighbours a -> [(Address, Mac)]
knownHosts (Neighbours _ known _) = [(address, mac) | (address, Known mac _) <- Map.toList known]

-- | The open questions, and how many packets wait for each.
openQuestions :: Neighbours a -> [(Address, Int)]
openQuestions (Neighbours _ _ asked) = [(address, length waiting) | (address, Asked _ _ waiting) <- Map.toList asked]

-- | How many hosts are known, how many questions are open, and how many packets wait for the answer to each.
mostKnown, mostAsked, mostWaiting :: Int
mostKnown = 1024
mostAsked = 128
mostWaiting = 3

-- How long an answer counts, how long a question waits for it, and how many fail until the host is taken to be gone.
freshFor, patience :: Int64
freshFor = 30000000
patience = 1000000

mostTries :: Int
mostTries = 3

-- | What leaves.
data Out a
  = -- | A packet, in a frame to there.
    Carry !Mac a
  | -- | A whole frame.
    Say !ByteString

-- | Send a packet to an address, at this time in microseconds. It may have to wait, and may be lost then, as on any
-- network.
sendTo :: Int64 -> Address -> a -> Neighbours a -> (Neighbours a, [Out a])
sendTo now target packet n@(Neighbours station known asked) = case nextHop station target of
  Nothing -> (n, [])
  Just (own, hop) -> case Map.lookup hop known of
    Just (Known mac until')
      | now < until' -> (n, [Carry mac packet])
      | Just (Asked tries again _) <- Map.lookup hop asked,
        tries >= mostTries,
        again <= now ->
          unknown own hop (Map.delete hop known) (Map.delete hop asked)
      | otherwise -> (Carry mac packet :) <$> asking own hop known asked []
    Nothing -> unknown own hop known asked
  where
    unknown own hop known' asked' = asking own hop known' asked' [packet]
    asking own hop known' asked' waits = case Map.lookup hop asked' of
      Just (Asked tries again waiting)
        | now < again -> (entered (Asked tries again kept), [])
        | otherwise -> (entered (Asked (min mostTries (tries + 1)) (now + patience) kept), [Say (questionFor station own hop)])
        where
          kept = newest (waits <> waiting)
      Nothing -> (entered (Asked 1 (now + patience) waits), [Say (questionFor station own hop)])
      where
        entered entry = Neighbours station known' (Map.insert hop entry (if Map.member hop asked' then asked' else roomIn mostAsked (\(Asked _ again _) -> again) asked'))

-- The first of these, so that nothing refers to the others any more.
newest :: [a] -> [a]
newest packets = foldr seq kept kept
  where
    kept = take mostWaiting packets

-- Room for one more.
roomIn :: Int -> (v -> Int64) -> Map Address v -> Map Address v
roomIn most age entries
  | Map.size entries < most = entries
  | otherwise = Map.delete (fst (minimumBy (comparing (age . snd)) (Map.toList entries))) entries

-- The host on the link that takes a packet for this address, and the address by which it is asked for.
nextHop :: Station -> Address -> Maybe (Address, Address)
nextHop station target = listToMaybe ([(attachmentAddress p, target) | p <- attachments, target `isOn` p] <> [(attachmentAddress p, router) | p <- attachments, Just router <- [attachmentRouter p]])
  where
    attachments = filter (sameFamily target . attachmentAddress) (stationAttachments station)

-- | Is there a way to this address: on the link, or by a router?
isReachable :: Station -> Address -> Bool
isReachable station = isJust . nextHop station

isOn :: Address -> Attachment -> Bool
isOn target attachment = case (target, attachmentAddress attachment) of
  (Address4 a, Address4 b) -> same (fromIntegral a `shiftL` 32) (fromIntegral b `shiftL` 32) bits
  (Address6 a b, Address6 c d) -> same a c bits && same b d (bits - 64) || a .&. 0xffc0000000000000 == 0xfe80000000000000
  _ -> False
  where
    bits = attachmentPrefix attachment
    same :: Word64 -> Word64 -> Int -> Bool
    same a b count = count <= 0 || (a `shiftR` (64 - min 64 count)) == (b `shiftR` (64 - min 64 count))

-- | A frame came at this time. The packet in it that is for this host's stack, if there is one; what leaves.
receiveFrame :: Int64 -> ByteString -> Neighbours a -> (Neighbours a, Maybe ByteString, [Out a])
receiveFrame now frame n@(Neighbours station _ _)
  -- No host has an address of a group.
  | B.length frame < frameHeader || isGroup from = (n, Nothing, [])
  | otherwise = case word16 frame 12 of
      0x0806 -> maybe (n, Nothing, []) said (readArp station from content)
      0x0800 | speaks 4 -> forStack
      0x86dd
        | isDiscovery content -> maybe (n, Nothing, []) said (readDiscovery station from content)
        | speaks 6 -> forStack
      _ -> (n, Nothing, [])
  where
    speaks version = any ((== version) . versionOf . attachmentAddress) (stationAttachments station)
    to = macAt frame 0
    from = macAt frame 6
    content = B.drop frameHeader frame
    forStack = (n, if to == stationMac station then Just content else Nothing, [])
    said = \case
      Asks answer -> (n, Nothing, [Say answer])
      Tells address mac -> let (n', out) = learnt now address mac n in (n', Nothing, out)

-- | What another host says: a question about this one, with the frame that answers it; or an answer.
data Said = Asks !ByteString | Tells !Address !Mac

-- An answer that nobody waits for changes nothing.
learnt :: Int64 -> Address -> Mac -> Neighbours a -> (Neighbours a, [Out a])
learnt now address mac n@(Neighbours station known asked) = case Map.lookup address asked of
  Just (Asked _ _ waiting)
    | not (isGroup mac) ->
        (Neighbours station (Map.insert address (Known mac (now + freshFor)) others) (Map.delete address asked), map (Carry mac) (reverse waiting))
  _ -> (n, [])
  where
    others = if Map.member address known then known else roomIn mostKnown (\(Known _ until') -> until') known

-- | Is it the address of several hosts?
isGroup :: Mac -> Bool
isGroup (Mac m) = testBit m 40

-- | The packet in a frame to there.
frameFor :: Station -> Mac -> ByteString -> ByteString
frameFor station to packet = framed station to (if octet packet 0 < 0x50 then 0x0800 else 0x86dd) (bytes packet)

framed :: Station -> Mac -> Word16 -> Builder -> ByteString
framed station to kind content = build (macBuilder to <> macBuilder (stationMac station) <> byte16 kind <> content)

macBuilder :: Mac -> Builder
macBuilder (Mac m) = byte16 (fromIntegral (m `shiftR` 32)) <> byte32 (fromIntegral m)

-- | The hardware address in a frame at this offset: 0 that of its target, 6 that of its source. The frame is long enough.
macAt :: ByteString -> Int -> Mac
macAt b i = Mac (fromIntegral (word16 b i) `shiftL` 32 .|. fromIntegral (word32 b (i + 2)))

-- The frame that asks, by an own address, for the hardware address of a host.
questionFor :: Station -> Address -> Address -> ByteString
questionFor station own target = case target of
  Address6 a b ->
    let group = Address6 0xff02000000000000 (0x00000001ff000000 .|. (b .&. 0xffffff))
     in framed station (Mac (0x333300000000 .|. 0xff000000 .|. (b .&. 0xffffff))) 0x86dd (discovery station own group 135 (byte32 0 <> byte64 a <> byte64 b) 1)
  _ -> framed station (Mac 0xffffffffffff) 0x0806 (arp 1 (stationMac station) (short own) (Mac 0) (short target))

-- The frame that tells all hosts the hardware address of an own address.
announcement :: Station -> Address -> ByteString
announcement station own = case own of
  Address6 a b -> framed station (Mac 0x333300000001) 0x86dd (discovery station own allHosts6 136 (byte32 0x20000000 <> byte64 a <> byte64 b) 2)
  _ -> framed station (Mac 0xffffffffffff) 0x0806 (arp 1 (stationMac station) (short own) (Mac 0) (short own))

allHosts6 :: Address
allHosts6 = Address6 0xff02000000000000 1

short :: Address -> Word32
short = \case
  Address4 a -> a
  Address6 _ a -> fromIntegral a

arp :: Word16 -> Mac -> Word32 -> Mac -> Word32 -> Builder
arp operation mac address otherMac other =
  byte16 1 <> byte16 0x0800 <> byte8 6 <> byte8 4 <> byte16 operation <> macBuilder mac <> byte32 address <> macBuilder otherMac <> byte32 other

-- RFC 826. Frames may have padding.
readArp :: Station -> Mac -> ByteString -> Maybe Said
readArp station from b = do
  guard (B.length b >= 28 && word32 b 0 == 0x00010800 && word16 b 4 == 0x0604 && isOwn station (Address4 own))
  case word16 b 6 of
    1 -> Just (Asks (framed station from 0x0806 (arp 2 (stationMac station) own (macAt b 8) (word32 b 14))))
    2 -> Just (Tells (Address4 (word32 b 14)) (macAt b 8))
    _ -> Nothing
  where
    own = word32 b 24

isOwn :: Station -> Address -> Bool
isOwn station address = any ((== address) . attachmentAddress) (stationAttachments station)

versionOf :: Address -> Int
versionOf = \case
  Address4 _ -> 4
  Address6 _ _ -> 6

-- A message of neighbour discovery from an address of this host: its target, its kind, what it has in front of its option, and
-- that option's kind.
discovery :: Station -> Address -> Address -> Word8 -> Builder -> Word8 -> Builder
discovery station own target kind front option =
  bytes (buildPacket (Packet own target protocolIcmp6 255 0 0 (buildMessage own target (Other kind 0 content))))
  where
    content = build (front <> byte8 option <> byte8 1 <> macBuilder (stationMac station))

-- Is the packet a solicitation or an advertisement of a neighbour?
isDiscovery :: ByteString -> Bool
isDiscovery b = B.length b >= 41 && octet b 6 == protocolIcmp6 && octet b 40 `elem` [135, 136]

-- RFC 4861, sections 7.1 and 7.2. With fewer than 255 hops left, a message is not from this link.
readDiscovery :: Station -> Mac -> ByteString -> Maybe Said
readDiscovery station from b = do
  p <- either (const Nothing) Just (parsePacket b)
  guard (packetHops p == 255)
  Other kind 0 content <- either (const Nothing) Just (parseMessage (packetSource p) (packetTarget p) (packetPayload p))
  guard (B.length content >= 20)
  let about = Address6 (word64 content 4) (word64 content 12)
      asksForDuplicates = packetSource p == Address6 0 0
      -- All hosts; a host that has no address yet cannot be told alone.
      teller = if asksForDuplicates then allHosts6 else packetSource p
      flags = if asksForDuplicates then 0x20000000 else 0x60000000
      answer = framed station (if asksForDuplicates then Mac 0x333300000001 else from) 0x86dd (discovery station about teller 136 (byte32 flags <> bytes (B.take 16 (B.drop 4 content))) 2)
  case kind of
    135 | isOwn station about -> Just (Asks answer)
    136 | isOwn station (packetTarget p) -> Just (Tells about (fromMaybe from (optionOf 2 (B.drop 20 content))))
    _ -> Nothing

-- The hardware address in an option of this kind.
optionOf :: Word8 -> ByteString -> Maybe Mac
optionOf kind b
  | B.length b < 8 || octet b 1 == 0 = Nothing
  | octet b 0 == kind = Just (macAt b 2)
  | otherwise = optionOf kind (B.drop (8 * fromIntegral (octet b 1)) b)
