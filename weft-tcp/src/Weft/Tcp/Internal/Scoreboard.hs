{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Outstanding bytes, and their known state
--
-- The sender's book of what it sent and what was not acknowledged: ranges in order without gaps,
-- each with the time of its last transmission and its status. It serves selective acknowledgements
-- (RFC 2018), counts what is on the way (the pipe of RFC 6675), and finds losses by time
-- (RACK, RFC 8985). While nothing is outstanding all connections without a search share one empty book.
--
-- An acknowledgement costs what it changes, times the logarithm of the number of pieces: those on the
-- way are in a second order, of time, and neighbours that arrived are one.
module Weft.Tcp.Internal.Scoreboard
  ( Scoreboard (..),
    Piece (..),
    PieceStatus (..),
    emptyScoreboard,
    mostPieces,
    sackedRanges,
    firstLost,
    headTime,
    lastSegment,
    renewed,

    -- * Sending
    sentNew,
    sentAgain,

    -- * Hearing
    Heard (..),
    nothingHeard,
    Told (..),
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

import Control.Applicative ((<|>))
import Data.Foldable qualified as Foldable
import Data.Int (Int64)
import Data.Sequence (ViewL (..), ViewR (..), viewl, viewr, (<|), (><), (|>))
import Data.Sequence qualified as S
import Data.Set (Set)
import Data.Set qualified as Set
import Data.Word (Word32)
import Weft.Tcp.Internal.PathMtu (Search)
import Weft.Tcp.Sequence

-- | The known state of a piece.
data PieceStatus
  = -- | It is on the way, as far as is known.
    Outstanding
  | -- | The peer says that it arrived.
    Sacked
  | -- | It is taken for lost, and was not sent again since.
    Lost
  deriving stock (Eq, Show)

-- | A range that shares one status.
data Piece = Piece
  { pieceRange :: {-# UNPACK #-} !Range,
    -- | When it was last sent.
    pieceTime :: {-# UNPACK #-} !Int64,
    pieceStatus :: !PieceStatus,
    -- | Was it ever sent again?
    pieceAgain :: !Bool,
    -- | The length of its segments, the last of which may be shorter, and how much of the first was
    -- cut off.
    pieceSize, pieceLead :: {-# UNPACK #-} !Word32
  }
  deriving stock (Eq, Show)

-- | When a piece was last sent, and where it begins: the order of RFC 8985.
data Sent = Sent {-# UNPACK #-} !Int64 !Place
  deriving stock (Eq, Ord, Show)

-- | The book. Amounts are bytes and times microseconds.
data Scoreboard = Scoreboard
  { boardPieces :: !(S.Seq Piece),
    -- | The pieces on the way in the order of time, and the beginnings of those that are lost.
    boardQueue :: !(Set Sent),
    boardLosses :: !(Set Place),
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
    boardProbe :: !(Maybe (Seq, Bool)),
    boardSearch :: !(Maybe Search)
  }
  deriving stock (Eq, Show)

-- | Nothing is outstanding.
emptyScoreboard :: Scoreboard
emptyScoreboard =
  Scoreboard
    { boardPieces = S.empty,
      boardQueue = Set.empty,
      boardLosses = Set.empty,
      boardSacked = 0,
      boardLost = 0,
      boardHighest = Seq 0,
      rackTime = -1,
      rackEnd = Seq 0,
      rackRtt = 0,
      boardReordered = False,
      boardPatience = 1,
      boardPersist = 0,
      boardProbe = Nothing,
      boardSearch = Nothing
    }

-- | How many pieces there may be. What a peer reports beyond them is not entered, and may be sent again.
mostPieces :: Int
mostPieces = 8192

-- | The ranges that arrived out of turn, in order.
sackedRanges :: Scoreboard -> [Range]
sackedRanges b = joined [pieceRange p | p <- Foldable.toList (boardPieces b), pieceStatus p == Sacked]
  where
    joined (Range x y : Range y' z : rest) | y == y' = joined (Range x z : rest)
    joined (r : rest) = r : joined rest
    joined [] = []

-- | The first range that is lost and was not sent again.
firstLost :: Scoreboard -> Maybe Range
firstLost b = do
  Place at <- Set.lookupMin (boardLosses b)
  pieceRange <$> S.lookup (place at (boardPieces b)) (boardPieces b)

-- | When the oldest piece was last sent.
headTime :: Scoreboard -> Maybe Int64
headTime b = pieceTime <$> S.lookup 0 (boardPieces b)

-- | How long the segment is that was the last to be sent of the newest piece.
lastSegment :: Scoreboard -> Word32
lastSegment b = case viewr (boardPieces b) of
  _ :> p -> let n = rangeLength (pieceRange p) in min n ((pieceLead p + n - 1) `rem` pieceSize p + 1)
  EmptyR -> 0

-- The sums and the two orders, without a piece and with it.
leave, enter :: Scoreboard -> Piece -> Scoreboard
leave b p = case pieceStatus p of
  Outstanding -> b {boardQueue = Set.delete (sentOf p) (boardQueue b)}
  Sacked -> b {boardSacked = boardSacked b - rangeLength (pieceRange p)}
  Lost -> b {boardLost = boardLost b - rangeLength (pieceRange p), boardLosses = Set.delete (placeOf p) (boardLosses b)}
enter b p = case pieceStatus p of
  Outstanding -> b {boardQueue = Set.insert (sentOf p) (boardQueue b)}
  Sacked -> b {boardSacked = boardSacked b + rangeLength (pieceRange p)}
  Lost -> b {boardLost = boardLost b + rangeLength (pieceRange p), boardLosses = Set.insert (placeOf p) (boardLosses b)}

sentOf :: Piece -> Sent
sentOf p = Sent (pieceTime p) (placeOf p)

placeOf :: Piece -> Place
placeOf = Place . rangeStart . pieceRange

-- | The book with these pieces, all sums and orders made anew.
renewed :: S.Seq Piece -> Scoreboard -> Scoreboard
renewed pieces b = Foldable.foldl' enter blank pieces
  where
    blank = b {boardPieces = pieces, boardQueue = Set.empty, boardLosses = Set.empty, boardSacked = 0, boardLost = 0}

-- Sending ------------------------------------------------------------------------------------

-- | A segment of new data was sent.
sentNew :: Int64 -> Range -> Scoreboard -> Scoreboard
sentNew now r b = case viewr (boardPieces b) of
  rest :> p
    | pieceTime p == now,
      pieceStatus p == Outstanding,
      not (pieceAgain p),
      -- All segments before the last are of one length.
      (pieceLead p + rangeLength (pieceRange p)) `rem` pieceSize p == 0,
      rangeLength r <= pieceSize p ->
        b {boardPieces = rest |> p {pieceRange = Range (rangeStart (pieceRange p)) (rangeEnd r)}}
  _ -> b {boardPieces = boardPieces b |> new, boardQueue = Set.insert (sentOf new) (boardQueue b)}
  where
    new = Piece r now Outstanding False (rangeLength r) 0

-- | A segment was sent again: after all that is known to have arrived, also by a clock that shows the same time.
sentAgain :: Int64 -> Range -> Scoreboard -> Scoreboard
sentAgain now r b = flip (change r) b $ \p ->
  if pieceStatus p == Sacked then p else Piece (pieceRange p) (max now (rackTime b + 1)) Outstanding True (rangeLength (pieceRange p)) 0

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

-- The part of a piece in a range, which is not empty.
part :: Range -> Piece -> Piece
part r p = p {pieceRange = x, pieceLead = (pieceLead p + distance (rangeStart (pieceRange p)) (rangeStart x)) `rem` pieceSize p}
  where
    x = pieceRange p `intersect` r

-- The pieces before a range, those that reach into it, and those after it.
around :: Range -> S.Seq Piece -> (S.Seq Piece, [Piece], S.Seq Piece)
around (Range a b) pieces = (front, Foldable.toList middle, back)
  where
    (front, rest) = S.splitAt (place a pieces) pieces
    (middle, back) = S.spanl (\p -> rangeStart (pieceRange p) `before` b) rest

-- The parts of these pieces before a range, and after it.
outside :: Range -> [Piece] -> ([Piece], [Piece])
outside (Range a b) ps = ([part (Range s a) p | (Range s _, p) <- those, s `before` a], [part (Range b e) p | (Range _ e, p) <- those, b `before` e])
  where
    those = [(pieceRange p, p) | p <- ps]

-- Apply a function to the part of each piece that lies in a range.
change :: Range -> (Piece -> Piece) -> Scoreboard -> Scoreboard
change r f b = Foldable.foldl' enter (Foldable.foldl' leave b {boardPieces = front >< S.fromList new >< back} old) new
  where
    (front, old, back) = around r (boardPieces b)
    (left, right) = outside r old
    new = left ++ map (f . part r) old ++ right

-- Hearing ------------------------------------------------------------------------------------

-- | The news of an acknowledgement for the board.
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

-- | A board, and the news that it was told.
data Told = Told {toldBoard :: !Scoreboard, toldNews :: !Heard}

-- The news of a piece's arrival; RFC 8985, section 6.2, steps 1 to 3. A round trip shorter than any
-- before is one of the first transmission, not of the second.
arrives :: Int64 -> Word32 -> Told -> Piece -> Told
arrives now shortest (Told b h) p
  | pieceStatus p == Sacked = Told b h
  | otherwise =
      Told
        (if newest then b' {rackTime = pieceTime p, rackEnd = end, rackRtt = fromIntegral rtt} else b')
        h
          { heardBytes = heardBytes h + rangeLength (pieceRange p),
            heardTime = heardTime h <|> if pieceAgain p then Nothing else Just (pieceTime p),
            heardOriginal = heardOriginal h || not (pieceAgain p),
            heardAgain = heardAgain h || pieceAgain p
          }
  where
    end = rangeEnd (pieceRange p)
    !rtt = min 600000000 (now - pieceTime p)
    newest =
      not (pieceAgain p && rtt < fromIntegral shortest)
        && (pieceTime p > rackTime b || pieceTime p == rackTime b && rackEnd b `before` end)
    b' = b {boardReordered = boardReordered b || overtaken}
    -- It was sent once, and something above it arrived before.
    overtaken = boardSacked b > 0 && not (pieceAgain p) && end `before` boardHighest b

-- | Everything before this number was acknowledged.
forget :: Int64 -> Word32 -> Seq -> Scoreboard -> Told
forget now shortest una b0 = go b0 nothingHeard
  where
    go b h = case viewl (boardPieces b) of
      p :< rest
        | rangeStart (pieceRange p) `before` una ->
            let Range s e = pieceRange p
                !(Told b' h') = arrives now shortest (Told b h) (part (Range s una) p)
                without' = (leave b' p) {boardPieces = rest}
                left = part (Range una e) p
             in if una `before` e then Told (enter without' {boardPieces = left <| rest} left) h' else go without' h'
      _ -> Told b h

-- | Enter a range that arrived out of turn; it lies in what is outstanding. Only whole segments
-- count, or a peer could cut the book into single bytes.
--
-- > mark now shortestRoundTrip range
mark :: Int64 -> Word32 -> Range -> Told -> Told
mark now shortest r0 told@(Told b _)
  | S.length pieces >= mostPieces || isEmpty r || null news = told
  | otherwise =
      Told
        ( (Foldable.foldl' enter (Foldable.foldl' leave b' (before' ++ old ++ after')) new)
            { boardPieces = front' >< S.fromList new >< back',
              boardHighest = if boardSacked b == 0 then rangeEnd r else later (boardHighest b) (rangeEnd r)
            }
        )
        h' {heardSacked = True}
  where
    pieces = boardPieces b
    (front, old, back) = around r pieces
    news = [part r p | p <- old, pieceStatus p /= Sacked]
    Told b' h' = Foldable.foldl' (arrives now shortest) told news
    (left, right) = outside r (filter ((/= Sacked) . pieceStatus) old)
    (front', before') = case viewr front of
      rest :> p | pieceStatus p == Sacked, null left -> (rest, [p])
      _ -> (front, [])
    (back', after') = case viewl back of
      p :< rest | pieceStatus p == Sacked, null right -> (rest, [p])
      _ -> (back, [])
    new = left ++ [foldl1 join (before' ++ map here old ++ after')] ++ right
    here p = if pieceStatus p == Sacked then p else (part r p) {pieceStatus = Sacked}
    join p q =
      p
        { pieceRange = Range (rangeStart (pieceRange p)) (rangeEnd (pieceRange q)),
          pieceTime = max (pieceTime p) (pieceTime q),
          pieceAgain = pieceAgain p || pieceAgain q
        }
    -- Moved to where segments begin and end.
    r = Range (whole (rangeStart r0) up) (whole (rangeEnd r0) down)
    whole at f = case S.lookup (place at pieces) pieces of
      Just p | Range s e <- pieceRange p, s `before` at, pieceStatus p /= Sacked -> f s e p (pieceLead p + distance s at)
      _ -> at
    up s e p n = earlier e (s `advance` ((n + pieceSize p - 1) `quot` pieceSize p * pieceSize p - pieceLead p))
    down s _ p n = let at = n `quot` pieceSize p * pieceSize p in s `advance` (at - min at (pieceLead p))

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
  | otherwise = (soonest, Foldable.foldl' lose b late)
  where
    -- Bytes sent at one moment share a piece; what arrived of them was cut out of it.
    newest = Sent (rackTime b) (Place (rackEnd b))
    due = now - fromIntegral (rackRtt b) - window
    late = takeWhile (\s@(Sent at _) -> s < newest && at <= due) (Set.toAscList (boardQueue b))
    soonest = case Set.lookupLT newest (boardQueue b) of
      Just (Sent at _) | at > due -> Just (at - due)
      _ -> Nothing
    lose x (Sent _ (Place at)) = case S.lookup i (boardPieces x) of
      Just p | p' <- p {pieceStatus = Lost} -> (enter (leave x p) p') {boardPieces = S.update i p' (boardPieces x)}
      Nothing -> x
      where
        i = place at (boardPieces x)

-- All pieces of some statuses have another one.
turned :: (PieceStatus -> Bool) -> PieceStatus -> Scoreboard -> Scoreboard
turned those status b = renewed ((\p -> if those (pieceStatus p) then p {pieceStatus = status} else p) <$> boardPieces b) b

-- | Everything that is not known to have arrived is lost (RFC 6298, section 5.4; RFC 8985, 6.3).
loseAll :: Scoreboard -> Scoreboard
loseAll b = (turned (/= Sacked) Lost b) {boardProbe = Nothing}

-- | The first segment is lost, without more being known (RFC 6582).
loseHead :: Scoreboard -> Scoreboard
loseHead b = case viewl (boardPieces b) of
  p :< _
    | pieceStatus p == Outstanding ->
        let Range s e = pieceRange p
            first = Range s (earlier e (s `advance` (pieceSize p - pieceLead p)))
         in change first (\x -> x {pieceStatus = Lost}) b
  _ -> b

-- | Nothing was lost after all.
loseNone :: Scoreboard -> Scoreboard
loseNone b
  | boardLost b == 0 = b
  | otherwise = turned (== Lost) Outstanding b

-- | The peer dropped what it said it had (RFC 2018, section 8): the first piece is one of those.
renege :: Scoreboard -> Scoreboard
renege b = case viewl (boardPieces b) of
  p :< _ | pieceStatus p == Sacked -> turned (== Sacked) Outstanding b
  _ -> b
