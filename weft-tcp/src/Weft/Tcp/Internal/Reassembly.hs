{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Segments that arrived before their turn
--
-- The ranges of sequence numbers beyond the next one expected that are here already. Their bytes
-- lie in the user's memory, not here. The ranges are in the order in which a selective
-- acknowledgement reports them, the one that grew last in front (RFC 2018, section 4); no two
-- touch. There are few, so everything walks a list.
module Weft.Tcp.Internal.Reassembly
  ( Reassembly (..),
    emptyReassembly,
    isComplete,
    isReporting,
    arrivedRanges,
    lastRepeated,
    noteRepeated,
    reported,
    mostRanges,
    insertRange,
    takeReady,
    Taken (..),
    takeIn,
  )
where

import Data.List (partition, sortOn)
import Weft.Tcp.Sequence

-- | Ranges that do not touch, the most recent first; and what arrived twice and was not reported.
data Reassembly = Reassembly ![Range] !(Maybe Range)
  deriving stock (Eq, Show)

-- | Nothing is out of turn. One value, shared by all connections to which that applies.
emptyReassembly :: Reassembly
emptyReassembly = Reassembly [] Nothing

-- | Is nothing out of turn?
isComplete :: Reassembly -> Bool
isComplete (Reassembly r _) = null r

-- | Is there anything to report?
isReporting :: Reassembly -> Bool
isReporting = \case
  Reassembly [] Nothing -> False
  _ -> True

-- | The ranges, the most recent first.
arrivedRanges :: Reassembly -> [Range]
arrivedRanges (Reassembly r _) = r

-- | The range that arrived twice and was not reported yet.
lastRepeated :: Reassembly -> Maybe Range
lastRepeated (Reassembly _ twice) = twice

-- | This arrived a second time.
noteRepeated :: Range -> Reassembly -> Reassembly
noteRepeated r (Reassembly old _) = Reassembly old (Just r)

-- | The state after its ranges were reported.
reported :: Reassembly -> Reassembly
reported r = case r of
  Reassembly [] _ -> emptyReassembly
  Reassembly old (Just _) -> Reassembly old Nothing
  _ -> r

-- | How many ranges there may be. A peer that sends every second byte costs this much, and the
-- rest of what it sends is dropped, but for what is expected next; it is sent again.
mostRanges :: Int
mostRanges = 64

-- | Enter a range that is not empty. The answer is what of it is new, in order: what is here
-- already is not taken a second time, so that bytes a user may have seen never change. 'Nothing':
-- there are too many ranges, and the bytes must be dropped.
insertRange :: Range -> Reassembly -> Maybe (Reassembly, [Range])
insertRange new r@(Reassembly old _)
  | length old >= mostRanges && not (any (touches new) old) = Nothing
  | otherwise = Just (joinRange new r)

-- Enter it, however many there are.
joinRange :: Range -> Reassembly -> (Reassembly, [Range])
joinRange new (Reassembly old twice) = (Reassembly (whole : apart) (if isEmpty again then twice else Just again), fresh)
  where
    -- The part of it that is here already (RFC 2883).
    again = case sortOn (distance (rangeStart new) . rangeStart) [x | r <- old, let x = new `intersect` r, not (isEmpty x)] of
      x : _ -> x
      [] -> Range (rangeStart new) (rangeStart new)
    (joined, apart) = partition (touches new) old
    whole = foldr (\(Range a b) (Range c d) -> Range (earlier a c) (later b d)) new joined
    -- Sorted by the distance from the first number of all, since there is no order on them.
    fresh = foldl (\pieces cut -> concatMap (`without` cut) pieces) [new] (inOrder joined)
    inOrder = sortOn (distance (rangeStart whole) . rangeStart)

-- | What a range brought: where the bytes that are here without a gap end, what remains out of turn, and the new
-- ranges.
data Taken = Taken !Seq !Reassembly ![Range]
  deriving stock (Eq, Show)

-- | Enter a range that begins at the next number expected or later, or is empty, and take what is ready.
takeIn :: Seq -> Range -> Reassembly -> Taken
takeIn next new r
  -- In order, and nothing is out of turn.
  | rangeStart new == next, isComplete r, not (isEmpty new) = Taken (rangeEnd new) r [new]
  | isEmpty new = ready r []
  -- What is expected next does not stay. Were it dropped where there are too many, nothing would be taken ever again.
  | rangeStart new == next = uncurry ready (joinRange new r)
  | otherwise = maybe (ready r []) (uncurry ready) (insertRange new r)
  where
    ready queue fresh = let (end, rest) = takeReady next queue in Taken end rest fresh

-- | Given the next number expected: where the bytes that are here without a gap end, and what
-- remains out of turn.
takeReady :: Seq -> Reassembly -> (Seq, Reassembly)
takeReady next r@(Reassembly old twice) = case filter (upToNext . rangeStart) old of
  [] -> (next, r)
  ready -> (foldr (later . rangeEnd) next ready, smaller (filter (not . upToNext . rangeStart) old))
  where
    -- The usual end is the one value that all share.
    smaller [] | Nothing <- twice = emptyReassembly
    smaller left = Reassembly left twice
    upToNext = (`upTo` next)
