-- |
-- Description : Sequence numbers and ranges of them
--
-- Arithmetic modulo 2^32 (RFC 9293, section 3.4). Numbers are compared by their distance, so
-- there is no 'Ord': two of them are in an order only if they are less than 2^31 apart, which
-- windows of at most 2^30 bytes guarantee.
module Weft.Tcp.Sequence
  ( -- * Numbers
    Seq (..),
    advance,
    retreat,
    distance,
    before,
    upTo,
    earlier,
    later,
    Place (..),

    -- * Ranges
    Range (..),
    rangeLength,
    isEmpty,
    within,
    touches,
    intersect,
    without,
  )
where

import Data.Int (Int32)
import Data.Word (Word32)

-- | A sequence number: of a byte, of a SYN or of a FIN.
newtype Seq = Seq Word32
  deriving newtype (Eq)
  deriving stock (Show)

-- | The given number of numbers on.
advance :: Seq -> Word32 -> Seq
advance (Seq a) n = Seq (a + n)

-- | The given number of numbers back.
retreat :: Seq -> Word32 -> Seq
retreat (Seq a) n = Seq (a - n)

-- | From the first on to the second, modulo 2^32.
--
-- > a `advance` distance a b == b
distance :: Seq -> Seq -> Word32
distance (Seq a) (Seq b) = b - a

-- | Is the first strictly before the second?
before :: Seq -> Seq -> Bool
before (Seq a) (Seq b) = (fromIntegral (a - b) :: Int32) < 0

-- | Is the first before the second, or the same?
upTo :: Seq -> Seq -> Bool
upTo a b = not (b `before` a)

-- | The earlier of two.
earlier :: Seq -> Seq -> Seq
earlier a b = if b `before` a then b else a

-- | The later of two.
later :: Seq -> Seq -> Seq
later a b = if a `before` b then b else a

-- | A number among others that lie in less than 2^31, where there is an order: a key of a set.
newtype Place = Place Seq
  deriving newtype (Eq)
  deriving stock (Show)

instance Ord Place where
  compare (Place a) (Place b)
    | a == b = EQ
    | a `before` b = LT
    | otherwise = GT

-- | The numbers from the first on, without the second.
data Range = Range {rangeStart :: {-# UNPACK #-} !Seq, rangeEnd :: {-# UNPACK #-} !Seq}
  deriving stock (Eq, Show)

-- | How many numbers there are in a range that is not reversed.
rangeLength :: Range -> Word32
rangeLength (Range a b) = distance a b

-- | A range of no numbers, or a reversed one.
isEmpty :: Range -> Bool
isEmpty (Range a b) = b `upTo` a

-- | Is the number in the range?
within :: Seq -> Range -> Bool
within s (Range a b) = a `upTo` s && s `before` b

-- | Do two ranges share a number, or is one right after the other?
touches :: Range -> Range -> Bool
touches (Range a b) (Range c d) = a `upTo` d && c `upTo` b

-- | The intersection of two ranges; maybe an empty or a reversed range.
intersect :: Range -> Range -> Range
intersect (Range a b) (Range c d) = Range (later a c) (earlier b d)

-- | The parts of the first range that are not in the second, in order.
without :: Range -> Range -> [Range]
without r@(Range a b) cut
  | isEmpty r = []
  | isEmpty both = [r]
  | otherwise = filter (not . isEmpty) [Range a (rangeStart both), Range (rangeEnd both) b]
  where
    both = r `intersect` cut
