{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The bytes of one direction that a stack keeps
--
-- Payload by its sequence number: what the peer has not acknowledged, or what came and was not
-- read. Nothing is kept for a direction without such bytes. Pieces have memory of their own, of
-- exactly their length, never a part of what a device read. Small neighbours are joined (Note [Small pieces]).
module Weft.Tcp.Stack.Held
  ( Held,
    heldNothing,
    isEmpty,
    size,
    append,
    insertAt,
    dropFront,
    slices,
    heldPieces,
    copyFront,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.Word (Word8)
import Foreign.Ptr (Ptr)
import Weft.Tcp.Internal.Bytes (putPieces)
import Weft.Tcp.Sequence hiding (isEmpty)

-- Note [Small pieces]
-- ~~~~~~~~~~~~~~~~~~~
-- A piece takes some 130 bytes beside its own. A peer that sends its window byte by byte, or a user that writes so,
-- would have 256 KB take 34 MB. So no two pieces with one end in common have 'smallest' bytes or less together: of n
-- bytes there are at most 2 n / 'smallest' pieces, and one for each gap, of which there are few
-- ("Weft.Tcp.Internal.Reassembly"). A small piece costs a copy of less than 'smallest' bytes at most twice.

-- Up to here neighbours are joined.
smallest :: Int
smallest = 512

-- | Bytes: all idle connections share 'HeldNothing'.
data Held
  = HeldNothing
  | -- | One piece, not empty, and the number of its first byte. Most of what is kept is that.
    One !Seq !ByteString
  | -- | The place of the first byte in the stream, its sequence number, and pieces by their places,
    -- which do not overlap. Places are not taken modulo 2^32.
    Held !Int !Seq !(IntMap ByteString)

-- | No bytes.
heldNothing :: Held
heldNothing = HeldNothing

-- | Are there none?
isEmpty :: Held -> Bool
isEmpty = \case
  HeldNothing -> True
  One {} -> False
  Held _ _ m -> IntMap.null m

-- | From the first number to the end of the last piece.
size :: Held -> Int
size = \case
  HeldNothing -> 0
  One _ b -> B.length b
  Held at _ m -> maybe 0 (\(k, b) -> k + B.length b - at) (IntMap.lookupMax m)

-- | At the end, which has this number.
append :: Seq -> ByteString -> Held -> Held
append end b h
  | B.null b = h
  | otherwise = case h of
      HeldNothing -> One end b
      One from first
        | fits first b -> One from (first <> b)
        | otherwise -> Held 0 from (IntMap.fromDistinctAscList [(0, first), (B.length first, b)])
      Held at from m -> Held at from (enter (at + size h) b m)

-- | At its number, which overlaps no other piece and is not before the first byte's, which is given
-- first.
insertAt :: Seq -> Seq -> ByteString -> Held -> Held
insertAt first s b h
  | B.null b = h
  | otherwise = case h of
      HeldNothing
        | s == first -> One s b
        | otherwise -> insertAt first s b (Held 0 first IntMap.empty)
      One from piece
        | fits piece b, s == from `advance` fromIntegral (B.length piece) -> One from (piece <> b)
        | otherwise -> insertAt first s b (Held 0 from (IntMap.singleton 0 piece))
      Held at from m -> Held at from (enter (at + fromIntegral (distance from s)) b m)

-- Are two neighbours small enough to be joined?
fits :: ByteString -> ByteString -> Bool
fits x y = B.length x + B.length y <= smallest

-- A piece at its place, joined with its neighbours if they are small.
enter :: Int -> ByteString -> IntMap ByteString -> IntMap ByteString
enter k b m
  | B.length b >= smallest = IntMap.insert k b m
  | Just (l, a) <- IntMap.lookupLT k m, l + B.length a == k, fits a b = after l (a <> b) m
  | otherwise = after k b m
  where
    after at piece pieces = case IntMap.lookupGE (k + B.length b) pieces of
      Just (r, c) | r == k + B.length b, fits piece c -> IntMap.insert at (piece <> c) (IntMap.delete r pieces)
      _ -> IntMap.insert at piece pieces

-- | Without the given number at the front.
dropFront :: Int -> Held -> Held
dropFront _ HeldNothing = HeldNothing
dropFront n h@(One from b)
  | n <= 0 = h
  | n >= B.length b = HeldNothing
  | otherwise = One (from `advance` fromIntegral n) (B.drop n b)
dropFront n (Held at from m)
  | n <= 0 = Held at from m
  | IntMap.null rest = HeldNothing
  | otherwise = Held at' from' rest
  where
    at' = at + n
    from' = from `advance` fromIntegral n
    rest = go m
    go pieces = case IntMap.lookupMin pieces of
      Just (k, b)
        | k + B.length b <= at' -> go (IntMap.deleteMin pieces)
        | k < at' -> IntMap.insert at' (B.drop (at' - k) b) (IntMap.deleteMin pieces)
      _ -> pieces

-- | The bytes of the given number of numbers from one on, which are all there.
slices :: Seq -> Int -> Held -> [ByteString]
slices _ _ HeldNothing = []
slices s n (One from b) = [piece | let piece = B.take n (B.drop (fromIntegral (distance from s)) b), not (B.null piece)]
slices s n (Held at from m)
  | n <= 0 = []
  | otherwise = go (at + fromIntegral (distance from s)) n
  where
    go k left = case IntMap.lookupLE k m of
      Just (start, b)
        | piece <- B.take left (B.drop (k - start) b), not (B.null piece) -> piece : if B.length piece < left then go (k + B.length piece) (left - B.length piece) else []
      _ -> []

-- | All bytes in pieces, each with the number of its first one.
heldPieces :: Held -> [(Seq, ByteString)]
heldPieces HeldNothing = []
heldPieces (One from b) = [(from, b)]
heldPieces (Held at from m) = [(from `advance` fromIntegral (k - at), b) | (k, b) <- IntMap.toList m]

-- | Copy the given number from the front, which are there.
copyFront :: Ptr Word8 -> Int -> Held -> IO ()
copyFront to n h = case h of
  HeldNothing -> pure ()
  One from _ -> putPieces to (slices from n h)
  Held _ from _ -> putPieces to (slices from n h)
