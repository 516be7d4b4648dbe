{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : What the peer says it has, beyond what it acknowledges
--
-- The sender's side of selective acknowledgements (RFC 2018, RFC 6675): ranges in order, which do
-- not touch. What is between them is not known to have arrived. Whether it is lost is a matter of
-- how much above it did arrive, the same for all bytes of a gap.
module Weft.Tcp.Internal.Scoreboard
  ( Scoreboard,
    emptyScoreboard,
    isBlank,
    sackedRanges,
    sackedBytes,
    mostSacked,
    mark,
    forget,
    gaps,
    lostGaps,
  )
where

import Data.Word (Word32)
import Weft.Tcp.Sequence

-- | Ranges in order that do not touch.
newtype Scoreboard = Scoreboard [Range]
  deriving stock (Eq, Show)

-- | Nothing is known to have arrived.
emptyScoreboard :: Scoreboard
emptyScoreboard = Scoreboard []

-- | Is nothing known to have arrived?
isBlank :: Scoreboard -> Bool
isBlank (Scoreboard r) = null r

-- | What arrived, in order.
sackedRanges :: Scoreboard -> [Range]
sackedRanges (Scoreboard r) = r

-- | How many bytes arrived.
sackedBytes :: Scoreboard -> Word32
sackedBytes (Scoreboard r) = sum (map rangeLength r)

-- | How many ranges are kept. What a peer reports beyond them is forgotten, which costs at most
-- that it is sent again.
mostSacked :: Int
mostSacked = 256

-- | Enter a range that is not empty and lies in what was sent.
mark :: Range -> Scoreboard -> Scoreboard
mark new (Scoreboard old) = Scoreboard (take mostSacked (go new old))
  where
    go r [] = [r]
    go r@(Range a b) (s@(Range c d) : rest)
      | b `before` c = r : s : rest
      | d `before` a = s : go r rest
      | otherwise = go (Range (earlier a c) (later b d)) rest

-- | Everything before this number was acknowledged.
forget :: Seq -> Scoreboard -> Scoreboard
forget una s@(Scoreboard old) = case old of
  r : _ | rangeStart r `before` una -> Scoreboard [Range (later una a) b | Range a b <- old, una `before` b]
  _ -> s

-- | What of a range is not known to have arrived, in order.
gaps :: Range -> Scoreboard -> [Range]
gaps (Range from to) (Scoreboard old) = go from old
  where
    go a [] = keep (Range a to) []
    go a (Range c d : rest)
      | to `upTo` c = keep (Range a to) []
      | otherwise = keep (Range a c) (go (later a d) rest)
    keep r rest = if isEmpty r then rest else r : rest

-- | The gaps of a range that are lost (IsLost of RFC 6675, section 4): at least three ranges above
-- them arrived, or more than two segments' worth of bytes. They are the first ones of 'gaps'.
--
-- > lostGaps segment range scoreboard
lostGaps :: Word32 -> Range -> Scoreboard -> [Range]
lostGaps segment whole s = takeWhile (isLost . rangeEnd) (gaps whole s)
  where
    isLost end = go (0 :: Int) 0 [r | r <- sackedRanges s, end `upTo` rangeStart r]
    go n size rest
      | n >= 3 || size > 2 * segment = True
      | r : more <- rest = go (n + 1) (size + rangeLength r) more
      | otherwise = False
