{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : What is outstanding, and what is known of it
--
-- The sender's book of what it sent and what was not acknowledged: ranges in order without gaps,
-- each with the time of its last transmission and its fate. It serves selective acknowledgements
-- (RFC 2018), counts what is on the way (the pipe of RFC 6675), and finds losses by time
-- (RACK, RFC 8985). While nothing is outstanding all connections share one empty book.
module Weft.Tcp.Internal.Scoreboard
  ( Scoreboard (..),
    Piece (..),
    Fate (..),
    emptyScoreboard,
    mostPieces,
    sackedRanges,
    firstLost,
    headTime,
    lastPiece,

    -- * Sending
    sentNew,
    sentAgain,

    -- * Hearing
    Heard (..),
    nothingHeard,
    forget,
    mark,
    duplicated,

    -- * Losses
    detect,
    loseAll,
    loseHead,
    loseNone,
    renege,
  )
where

import Data.Foldable (toList)
import Data.Foldable qualified as Foldable
import Data.Int (Int64)
import Data.Maybe (listToMaybe)
import Data.Sequence (ViewL (..), viewl, (<|), (><), (|>))
import Data.Sequence qualified as S
import Data.Word (Word32)
import Weft.Tcp.Sequence

-- | What is known of a piece.
data Fate
  = -- | It is on the way, as far as is known.
    Outstanding
  | -- | The peer says that it arrived.
    Sacked
  | -- | It is taken for lost, and was not sent again since.
    Lost
  deriving stock (Eq, Show)

-- | A range that shares one fate.
data Piece = Piece
  { pieceRange :: {-# UNPACK #-} !Range,
    -- | When it was last sent.
    pieceTime :: {-# UNPACK #-} !Int64,
    pieceFate :: !Fate,
    -- | Was it ever sent again?
    pieceAgain :: !Bool
  }
  deriving stock (Eq, Show)

-- | The book. Amounts are bytes and times microseconds.
data Scoreboard = Scoreboard
  { boardPieces :: !(S.Seq Piece),
    boardSacked, boardLost :: !Word32,
    -- | The end of the highest range that arrived out of turn.
    boardHighest :: !Seq,
    -- | Of all that arrived what was sent last: when, and its end (RACK.xmit_ts and RACK.end_seq
    -- of RFC 8985; negative at first), and the round trip that it took.
    rackTime :: !Int64,
    rackEnd :: !Seq,
    rackRtt :: !Word32,
    -- | Was it seen that segments overtake each other? And by how much in quarters of a round trip
    -- they may, because needless retransmissions were reported; for how many recoveries.
    boardReordered :: !Bool,
    boardPatience, boardPersist :: !Word32,
    -- | A probe of the tail is out: what it was the end of, and whether it repeated old data.
    boardProbe :: !(Maybe (Seq, Bool))
  }
  deriving stock (Eq, Show)

-- | Nothing is outstanding.
emptyScoreboard :: Scoreboard
emptyScoreboard =
  Scoreboard
    { boardPieces = S.empty,
      boardSacked = 0,
      boardLost = 0,
      boardHighest = Seq 0,
      rackTime = -1,
      rackEnd = Seq 0,
      rackRtt = 0,
      boardReordered = False,
      boardPatience = 1,
      boardPersist = 0,
      boardProbe = Nothing
    }

-- | How many pieces there may be. What a peer reports beyond them is not entered, which costs at
-- most that it is sent again.
mostPieces :: Int
mostPieces = 8192

-- | What arrived out of turn, in order.
sackedRanges :: Scoreboard -> [Range]
sackedRanges b = joined [pieceRange p | p <- toList (boardPieces b), pieceFate p == Sacked]
  where
    joined (Range x y : Range y' z : rest) | y == y' = joined (Range x z : rest)
    joined (r : rest) = r : joined rest
    joined [] = []

-- | The first range that is lost and was not sent again.
firstLost :: Scoreboard -> Maybe Range
firstLost b
  | boardLost b == 0 = Nothing
  | otherwise = listToMaybe [pieceRange p | p <- toList (boardPieces b), pieceFate p == Lost]

-- | When the oldest piece was last sent.
headTime :: Scoreboard -> Maybe Int64
headTime b = case viewl (boardPieces b) of
  p :< _ -> Just (pieceTime p)
  EmptyL -> Nothing

-- | How long the newest piece is.
lastPiece :: Scoreboard -> Word32
lastPiece b = case S.viewr (boardPieces b) of
  _ S.:> p -> rangeLength (pieceRange p)
  S.EmptyR -> 0

-- Sending ------------------------------------------------------------------------------------

-- | New data were sent.
sentNew :: Int64 -> Range -> Scoreboard -> Scoreboard
sentNew now r b = case S.viewr (boardPieces b) of
  rest S.:> p
    | pieceTime p == now,
      pieceFate p == Outstanding,
      not (pieceAgain p) ->
        b {boardPieces = rest |> p {pieceRange = Range (rangeStart (pieceRange p)) (rangeEnd r)}}
  _ -> b {boardPieces = boardPieces b |> Piece r now Outstanding False}

-- | A range was sent again.
sentAgain :: Int64 -> Range -> Scoreboard -> Scoreboard
sentAgain now r b = b {boardPieces = pieces, boardLost = boardLost b - lost}
  where
    (pieces, lost) = change r (\p -> p {pieceTime = now, pieceFate = if pieceFate p == Sacked then Sacked else Outstanding, pieceAgain = True}) count 0 (boardPieces b)
    count n p = if pieceFate p == Lost then n + rangeLength (pieceRange p) else n

-- How many pieces end at a number or before it.
place :: Seq -> S.Seq Piece -> Int
place at pieces = go 0 (S.length pieces)
  where
    go low high
      | low >= high = low
      | rangeEnd (pieceRange (pieces `S.index` middle)) `upTo` at = go (middle + 1) high
      | otherwise = go low middle
      where
        middle = (low + high) `div` 2

-- Apply a function to the part of each piece that lies in a range, and fold over what it was.
change :: Range -> (Piece -> Piece) -> (a -> Piece -> a) -> a -> S.Seq Piece -> (S.Seq Piece, a)
change (Range a b) f count zero pieces = (front >< S.fromList changed >< back, Foldable.foldl' count zero inside)
  where
    (front, rest) = S.splitAt (place a pieces) pieces
    (middle, back) = S.spanl (\p -> rangeStart (pieceRange p) `before` b) rest
    changed = concatMap cut (toList middle)
    inside = [p {pieceRange = pieceRange p `intersect` Range a b} | p <- toList middle]
    cut p =
      [p {pieceRange = Range s (earlier a e)} | s `before` a]
        ++ [f p {pieceRange = Range (later a s) (earlier b e)}]
        ++ [p {pieceRange = Range (later b s) e} | b `before` e]
      where
        Range s e = pieceRange p

-- Hearing ------------------------------------------------------------------------------------

-- | What an acknowledgement brought.
data Heard = Heard
  { -- | Bytes that are known for the first time to have arrived.
    heardBytes :: !Word32,
    -- | When the first of them was sent, if none of them was sent twice.
    heardTime :: !(Maybe Int64),
    -- | Something arrived that was sent once only, and something that was sent again.
    heardOriginal, heardAgain :: !Bool,
    -- | Something arrived out of turn.
    heardSacked :: !Bool
  }
  deriving stock (Eq, Show)

-- | An acknowledgement that said nothing.
nothingHeard :: Heard
nothingHeard = Heard 0 Nothing False False False

-- What a piece's arrival says; RFC 8985, section 6.2, steps 1 to 3. A round trip shorter than any
-- before is one of the first transmission, not of the second.
arrives :: Int64 -> Word32 -> (Scoreboard, Heard) -> Piece -> (Scoreboard, Heard)
arrives now shortest (b, h) p
  | pieceFate p == Sacked = (b, h)
  | otherwise =
      ( if newest then b' {rackTime = pieceTime p, rackEnd = end, rackRtt = fromIntegral rtt} else b',
        Heard
          { heardBytes = heardBytes h + rangeLength (pieceRange p),
            heardTime = case heardTime h of
              Nothing | not (pieceAgain p) -> Just (pieceTime p)
              at -> at,
            heardOriginal = heardOriginal h || not (pieceAgain p),
            heardAgain = heardAgain h || pieceAgain p,
            heardSacked = heardSacked h
          }
      )
  where
    end = rangeEnd (pieceRange p)
    rtt = min 600000000 (now - pieceTime p)
    newest =
      not (pieceAgain p && rtt < fromIntegral shortest)
        && (pieceTime p > rackTime b || pieceTime p == rackTime b && rackEnd b `before` end)
    b' = b {boardReordered = boardReordered b || overtaken}
    -- It was sent once, and something above it arrived before.
    overtaken = boardSacked b > 0 && not (pieceAgain p) && end `before` boardHighest b

-- | Everything before this number was acknowledged.
forget :: Int64 -> Word32 -> Seq -> Scoreboard -> (Scoreboard, Heard)
forget now shortest una b0 = go b0 nothingHeard
  where
    go b h = case viewl (boardPieces b) of
      p :< rest
        | rangeStart (pieceRange p) `before` una ->
            let Range s e = pieceRange p
                gone = p {pieceRange = Range s (earlier e una)}
                size = distance s (earlier e una)
                left = if una `before` e then p {pieceRange = Range una e} <| rest else rest
                (b', h') = arrives now shortest (b, h) gone
             in go
                  b'
                    { boardPieces = left,
                      boardSacked = if pieceFate p == Sacked then boardSacked b - size else boardSacked b,
                      boardLost = if pieceFate p == Lost then boardLost b - size else boardLost b
                    }
                  h'
      _ -> (b, h)

-- | Enter a range that arrived out of turn; it lies in what is outstanding. Only whole segments
-- count, or a peer could cut the book into single bytes.
--
-- > mark now shortestRoundTrip segment range
mark :: Int64 -> Word32 -> Word32 -> Range -> (Scoreboard, Heard) -> (Scoreboard, Heard)
mark now shortest mss r0 (b, h)
  | S.length (boardPieces b) >= mostPieces || isEmpty r || null news = (b, h)
  | otherwise =
      ( b'
          { boardPieces = pieces,
            boardSacked = boardSacked b + size,
            boardLost = boardLost b - sum [rangeLength (pieceRange p) | p <- news, pieceFate p == Lost],
            boardHighest = if boardSacked b == 0 then rangeEnd r else later (boardHighest b) (rangeEnd r)
          },
        h' {heardSacked = True}
      )
  where
    (pieces, news) = change r (\p -> p {pieceFate = Sacked}) (\l p -> if pieceFate p == Sacked then l else p : l) [] (boardPieces b)
    size = sum (map (rangeLength . pieceRange) news)
    (b', h') = Foldable.foldl' (arrives now shortest) (b, h) (reverse news)
    -- The segments of a piece are full ones but the last.
    r = Range (whole (rangeStart r0) up) (whole (rangeEnd r0) down)
    whole at f = case S.lookup (place at (boardPieces b)) (boardPieces b) of
      Just p | Range s e <- pieceRange p, s `before` at, pieceFate p /= Sacked -> f s e (distance s at)
      _ -> at
    up s e n = earlier e (s `advance` ((n + mss - 1) `div` mss * mss))
    down s _ n = s `advance` (n `div` mss * mss)

-- | The peer says that it had something already (RFC 2883): losses were seen where there were none,
-- so there is more patience from now on (RFC 8985, section 6.2, step 4).
duplicated :: Scoreboard -> Scoreboard
duplicated b = b {boardPatience = min 16 (boardPatience b + 1), boardPersist = 16, boardReordered = True}

-- Losses -------------------------------------------------------------------------------------

-- | Find losses: pieces sent long enough before something that arrived. Given the time, and how
-- far segments may overtake each other. The answer is how long to wait for what may be lost soon.
--
-- > detect now window board
detect :: Int64 -> Int64 -> Scoreboard -> (Maybe Int64, Scoreboard)
detect now window b
  | rackTime b < 0 = (Nothing, b)
  | otherwise = (soonest, b {boardPieces = pieces, boardLost = lost})
  where
    (pieces, (lost, soonest)) = go (boardPieces b)
    -- Bytes sent at one moment share a piece; of a piece that reaches past the end only the part
    -- before it was sent earlier.
    go = Foldable.foldl' piece (S.empty, (boardLost b, Nothing))
    piece (done, (n, wait)) p
      | pieceFate p /= Outstanding || not sooner = (done |> p, (n, wait))
      | remaining <= 0 = (done |> p {pieceFate = Lost}, (n + rangeLength (pieceRange p), wait))
      | otherwise = (done |> p, (n, Just (maybe remaining (max remaining) wait)))
      where
        sooner = pieceTime p < rackTime b || pieceTime p == rackTime b && rangeEnd (pieceRange p) `before` rackEnd b
        remaining = pieceTime p + fromIntegral (rackRtt b) + window - now

-- | Everything that is not known to have arrived is lost (RFC 6298, section 5.4; RFC 8985, 6.3).
loseAll :: Scoreboard -> Scoreboard
loseAll b = b {boardPieces = fmap lose (boardPieces b), boardLost = total - boardSacked b, boardProbe = Nothing}
  where
    lose p = if pieceFate p == Sacked then p else p {pieceFate = Lost}
    total = sum (rangeLength . pieceRange <$> boardPieces b)

-- | The first bytes, the given number, are lost, without more being known (RFC 6582).
loseHead :: Word32 -> Scoreboard -> Scoreboard
loseHead n b = case viewl (boardPieces b) of
  p :< _
    | pieceFate p == Outstanding ->
        let Range s e = pieceRange p
            r = Range s (earlier e (s `advance` n))
         in b {boardPieces = fst (change r (\x -> x {pieceFate = Lost}) const () (boardPieces b)), boardLost = boardLost b + rangeLength r}
  _ -> b

-- | Nothing was lost after all.
loseNone :: Scoreboard -> Scoreboard
loseNone b = b {boardPieces = fmap found (boardPieces b), boardLost = 0}
  where
    found p = if pieceFate p == Lost then p {pieceFate = Outstanding} else p

-- | The peer dropped what it said it had (RFC 2018, section 8): the first piece is one of those.
renege :: Scoreboard -> Scoreboard
renege b = case viewl (boardPieces b) of
  p :< _ | pieceFate p == Sacked -> b {boardPieces = fmap (\x -> if pieceFate x == Sacked then x {pieceFate = Outstanding} else x) (boardPieces b), boardSacked = 0}
  _ -> b
