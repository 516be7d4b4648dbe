{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The search for the largest segment that a path takes
--
-- Sizes and times of packetization-layer path-MTU discovery (RFC 4821), with the three tries of RFC 8899. A
-- size is the payload beside the options of every segment, as the connection's segment size, which
-- is the lower end of the search. Most connections never need a search and have none.
module Weft.Tcp.Internal.PathMtu
  ( Search (..),
    Probe (..),
    mostSize,

    -- * Transitions
    reduced,
    probeFor,
    probeFound,
    probeLost,
    searchPause,

    -- * Sizes
    baseSizes,
    nextSize,
  )
where

import Data.Int (Int64)
import Data.Word (Word16, Word8)
import Weft.Tcp.Sequence (Range)

-- | A larger segment size is looked for. A connection whose segments are as large as both ends allow has none.
data Search = Search
  { -- | The largest size that may pass, as far as is known.
    searchHigh :: !Word16,
    -- | The largest size that both ends allow.
    searchMost :: !Word16,
    -- | How many probes of the size that is tried were lost.
    searchTries :: !Word8,
    -- | No probe leaves before this time, in microseconds.
    searchAt :: !Int64,
    searchProbe :: !Probe
  }
  deriving stock (Eq, Show)

-- | A segment that is larger than the others, to see whether it arrives.
data Probe = NoProbe | ProbeOut {-# UNPACK #-} !Range
  deriving stock (Eq, Show)

-- | The largest size that both ends allow, given the present one.
mostSize :: Word16 -> Maybe Search -> Word16
mostSize size = maybe size searchMost

-- | Segments have become smaller than this size; larger ones are not tried before the time.
reduced :: Int64 -> Word16 -> Maybe Search -> Search
reduced at size s = Search {searchHigh = most, searchMost = most, searchTries = 0, searchAt = at, searchProbe = NoProbe}
  where
    most = mostSize size s

-- | The size to try now, if one is to be tried: time, length of the headers, present size.
probeFor :: Int64 -> Int -> Word16 -> Search -> Maybe Word16
probeFor now headers size s
  | NoProbe <- searchProbe s, searchAt s <= now = nextSize headers size (searchHigh s) (searchMost s)
  | otherwise = Nothing

-- | A probe of this size arrived: time, length of the headers, size.
probeFound :: Int64 -> Int -> Word16 -> Search -> Maybe Search
probeFound now headers size s
  | size >= searchMost s = Nothing
  | otherwise = Just $ ending now headers size s {searchTries = 0, searchProbe = NoProbe}

-- | A probe of a size was lost: time, length of the headers, present size, that of the probe. Any
-- segment can be lost, so only the third of a size says that it does not pass (RFC 8899, section 5.1.2). The next
-- probe leaves a second later at the earliest, because its loss may be congestion that nobody heeds.
probeLost :: Int64 -> Int -> Word16 -> Word16 -> Search -> Search
probeLost now headers size tried s
  | searchTries s < 2 = later {searchTries = searchTries s + 1}
  | otherwise = ending now headers size later {searchTries = 0, searchHigh = min (searchHigh s) (tried - 1)}
  where
    later = s {searchAt = max (searchAt s) (now + 1000000), searchProbe = NoProbe}

-- | Paths change: in microseconds, ten minutes after its end the search begins anew (RFC 1191, section 6.3).
searchPause :: Int64
searchPause = 600000000

ending :: Int64 -> Int -> Word16 -> Search -> Search
ending now headers size s = case nextSize headers size (searchHigh s) (searchMost s) of
  Nothing -> reduced (now + searchPause) size (Just s)
  Just _ -> s

-- | The sizes to go down to when segments vanish, the larger one first: those of packets of 1,280 bytes, which every
-- path of version 6 takes and nearly every one of version 4, and 552 with version 4. Given the length of the
-- headers, and whether the version is 6.
baseSizes :: Int -> Bool -> [Word16]
baseSizes headers version6 = [fromIntegral (mtu - headers) | mtu <- if version6 then [1280] else [1280, 552]]

-- | The next size to try: length of the headers, what passes, what may pass, what both ends allow. First the most: an
-- outage looks like a path that takes less. Then the usual sizes, halving their number; then any,
-- until 16 bytes are not worth a probe.
nextSize :: Int -> Word16 -> Word16 -> Word16 -> Maybe Word16
nextSize headers low high most
  | low >= high = Nothing
  | high == most = Just most
  | n > 0 = Just (sizes !! (n `div` 2))
  | high - low > 16 = Just (low + (high - low + 1) `div` 2)
  | otherwise = Nothing
  where
    sizes = [fromIntegral size | mtu <- usual, let size = mtu - headers, fromIntegral low < size, size <= fromIntegral high]
    n = length sizes
    -- Ethernet, alone and under PPP, tunnels of several kinds and WireGuard; FDDI; jumbo frames.
    usual = [576, 1006, 1280, 1400, 1420, 1450, 1480, 1492, 1500, 4352, 9000]
