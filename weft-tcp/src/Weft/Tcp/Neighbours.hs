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
--
-- What says unasked that a known host has another hardware address, a question of that host or an announcement, may be a
-- lie: RFC 826 and RFC 4861, section 7.2.5, would change the entry. Here it is doubted. The hardware address that is known is
-- asked, it alone, and used meanwhile. If it answers, the entry stays. If it does not, the host is unknown with the next packet, which
-- asks all. So a lie changes nothing while the host is there, and costs a frame; a change is learnt half a second later, and needs no
-- answer that was not asked for. Of a host that is not known nothing is kept.
--
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
    present,
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
import Data.List qualified as List
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
data Neighbours a = Neighbours !Station !Telling !(Map Address Known) !(Map Address (Asked a))

-- | How often this end's hardware address is still to be told to all hosts, and when next.
data Telling = Telling !Int !Int64

-- | A hardware address, until when it is used without a new question, in microseconds, and whether it is doubted.
data Known = Known !Mac !Int64 !Trust

-- | Not to be doubted before a time; or doubted, and forgotten at a time unless there is an answer before.
data Trust = Sure !Int64 | Doubted !Int64

-- | An open question: how often it was asked, when it may be asked again, and the packets that wait, newest first.
data Asked a = Asked !Int !Int64 ![a]

-- | Nobody is known.
noNeighbours :: Station -> Neighbours a
noNeighbours station = Neighbours station (Telling mostTold 0) Map.empty Map.empty

-- | This end.
stationOf :: Neighbours a -> Station
stationOf (Neighbours station _ _ _) = station

-- | This end has this hardware address at this time. All hosts are told of it at first, and when it is another one, three times with a second
-- between, for one frame may be lost; those that know this end change their entry (RFC 5227, section 3; RFC 4861, section 7.2.6).
present :: Int64 -> Mac -> Neighbours a -> (Neighbours a, [Out a])
present now mac n@(Neighbours station (Telling left next) known asked)
  | mac /= stationMac station = telling station {stationMac = mac} mostTold
  | left > 0 && next <= now = telling station left
  | otherwise = (n, [])
  where
    telling this times = (Neighbours this (Telling (times - 1) (now + patience)) known asked, map (Say . announcement this . attachmentAddress) (stationAttachments this))

-- | The hosts whose hardware addresses are known.
knownHosts :: Neighbours a -> [(Address, Mac)]
knownHosts (Neighbours _ _ known _) = [(address, mac) | (address, Known mac _ _) <- Map.toList known]

-- | The open questions, and how many packets wait for each.
openQuestions :: Neighbours a -> [(Address, Int)]
openQuestions (Neighbours _ _ _ asked) = [(address, length waiting) | (address, Asked _ _ waiting) <- Map.toList asked]

-- | How many hosts are known, how many questions are open, and how many packets wait for the answer to each.
mostKnown, mostAsked, mostWaiting :: Int
mostKnown = 1024
mostAsked = 128
mostWaiting = 3

-- How long an answer counts, how long a question waits for it, and how long that of a doubt does.
freshFor, patience, doubtFor :: Int64
freshFor = 30000000
patience = 1000000
doubtFor = 500000

-- How many questions fail until the host is taken to be gone, and how often all hosts are told of this one.
mostTries, mostTold :: Int
mostTries = 3
mostTold = 3

-- | What leaves.
data Out a
  = -- | A packet, in a frame to there.
    Carry !Mac a
  | -- | A whole frame.
    Say !ByteString

-- | Send a packet to an address, at this time in microseconds. It may have to wait, and may be lost then, as on any
-- network.
sendTo :: Int64 -> Address -> a -> Neighbours a -> (Neighbours a, [Out a])
sendTo now target packet n@(Neighbours station told known asked) = case nextHop station target of
  Nothing -> (n, [])
  Just (own, hop) -> case Map.lookup hop known of
    Just (Known mac until' trust)
      | Doubted end <- trust, end <= now -> unknown own hop (Map.delete hop known) asked
      | now < until' -> (n, [Carry mac packet])
      | Just (Asked tries again _) <- Map.lookup hop asked,
        tries >= mostTries,
        again <= now ->
          unknown own hop (Map.delete hop known) (Map.delete hop asked)
      -- It goes out in any case, and waits for the answer that may name another one.
      | otherwise -> (Carry mac packet :) <$> asking own hop known asked [packet]
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
        entered entry = Neighbours station told known' (Map.insert hop entry (if Map.member hop asked' then asked' else roomIn mostAsked (\(Asked _ again _) -> again) asked'))

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
receiveFrame now frame n@(Neighbours station _ _ _)
  -- No host has an address of a group.
  | B.length frame < frameHeader || isGroup from = (n, Nothing, [])
  | otherwise = case word16 frame 12 of
      0x0806 -> heard (readArp station from content)
      0x0800 | speaks 4 -> forStack
      0x86dd
        | isDiscovery content -> heard (readDiscovery station from content)
        | speaks 6 -> forStack
      _ -> (n, Nothing, [])
  where
    speaks version = any ((== version) . versionOf . attachmentAddress) (stationAttachments station)
    to = macAt frame 0
    from = macAt frame 6
    content = B.drop frameHeader frame
    forStack = (n, if to == stationMac station then Just content else Nothing, [])
    heard said = let (n', out) = List.foldl' (\(x, before) one -> (before <>) <$> hear one x) (n, []) said in (n', Nothing, out)
    hear = \case
      Asks answer -> (,[Say answer])
      Tells address mac -> answered now address mac
      Claims address mac -> doubted now address mac

-- | What another host says: a question about this one, with the frame that answers it; an answer to this one; or, unasked, that an address
-- has this hardware address.
data Said = Asks !ByteString | Tells !Address !Mac | Claims !Address !Mac

-- An answer ends a question that is open, or a doubt. Another one is a claim. Packets that wait went to the host that was known, if
-- one was.
answered :: Int64 -> Address -> Mac -> Neighbours a -> (Neighbours a, [Out a])
answered now address mac n@(Neighbours station tells known asked)
  | Just (Asked _ _ waiting) <- Map.lookup address asked,
    not (isGroup mac) =
      (Neighbours station tells (learnt now others) (Map.delete address asked), [Carry mac packet | mac `notElem` before, packet <- reverse waiting])
  | Just (Known mac' _ (Doubted _)) <- Map.lookup address known, mac' == mac = (Neighbours station tells (learnt (now + patience) known) asked, [])
  | otherwise = doubted now address mac n
  where
    learnt sure = Map.insert address (Known mac (now + freshFor) (Sure sure))
    before = [mac' | Just (Known mac' _ _) <- [Map.lookup address known]]
    others = if Map.member address known then known else roomIn mostKnown (\(Known _ until' _) -> until') known

-- Is the entry of a known host wrong? That is not asked for a second after it was found to be right.
doubted :: Int64 -> Address -> Mac -> Neighbours a -> (Neighbours a, [Out a])
doubted now address mac n@(Neighbours station tells known asked) = case Map.lookup address known of
  Just (Known mac' until' (Sure from))
    | mac /= mac' && from <= now && Map.notMember address asked,
      Just (own, hop) <- nextHop station address,
      hop == address ->
        (Neighbours station tells (Map.insert address (Known mac' until' (Doubted (now + doubtFor))) known) asked, [Say (questionTo mac' station own address)])
  _ -> (n, [])

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
  Address6 _ b ->
    let low = b .&. 0xffffff in question (Mac (0x3333ff000000 .|. low)) (Address6 0xff02000000000000 (0x00000001ff000000 .|. low)) station own target
  _ -> question (Mac 0xffffffffffff) target station own target

-- It asks one host alone, which has, or had, this hardware address.
questionTo :: Mac -> Station -> Address -> Address -> ByteString
questionTo mac station own target = question mac target station own target

-- To this hardware address, and to this address of version 6.
question :: Mac -> Address -> Station -> Address -> Address -> ByteString
question mac to station own target = case target of
  Address6 a b -> framed station mac 0x86dd (discovery station own to 135 (byte32 0 <> byte64 a <> byte64 b) 1)
  _ -> framed station mac 0x0806 (arp 1 (stationMac station) (short own) (Mac 0) (short target))

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
readArp :: Station -> Mac -> ByteString -> [Said]
readArp station from b
  | B.length b < 28 || word32 b 0 /= 0x00010800 || word16 b 4 /= 0x0604 = []
  | otherwise = case word16 b 6 of
      1 -> [Asks (framed station from 0x0806 (arp 2 (stationMac station) own (macAt b 8) (word32 b 14))) | mine] <> [Claims sender (macAt b 8)]
      2 -> [if mine then Tells sender (macAt b 8) else Claims sender (macAt b 8)]
      _ -> []
  where
    own = word32 b 24
    mine = isOwn station (Address4 own)
    sender = Address4 (word32 b 14)

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
readDiscovery :: Station -> Mac -> ByteString -> [Said]
readDiscovery station from b = fromMaybe [] $ do
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
      hardware option = optionOf option (B.drop 20 content)
  pure $ case kind of
    135 -> [Asks answer | isOwn station about] <> [Claims (packetSource p) mac | Just mac <- [hardware 1]]
    136
      | isOwn station (packetTarget p) -> [Tells about (fromMaybe from (hardware 2))]
      | otherwise -> [Claims about mac | Just mac <- [hardware 2]]
    _ -> []

-- The hardware address in an option of this kind.
optionOf :: Word8 -> ByteString -> Maybe Mac
optionOf kind b
  | B.length b < 8 || octet b 1 == 0 = Nothing
  | octet b 0 == kind = Just (macAt b 2)
  | otherwise = optionOf kind (B.drop (8 * fromIntegral (octet b 1)) b)
