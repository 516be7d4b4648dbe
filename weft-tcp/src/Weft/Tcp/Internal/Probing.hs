{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : A connection and the size of its segments
--
-- Applies "Weft.Tcp.Internal.PathMtu" to a connection: when segments become smaller, when a probe may leave
-- (RFC 4821, section 7), and what its arrival or loss means.
module Weft.Tcp.Internal.Probing
  ( -- * Smaller
    blackHole,
    pathTakes,

    -- * Larger
    probeDue,
    probeSent,
    sentAgainOver,
    probeArrived,
    onlyProbeLost,
    emptied,
  )
where

import Data.Maybe (listToMaybe)
import Data.Sequence (ViewL (..), viewl)
import Data.Word (Word16, Word32)
import Weft.Tcp.Congestion (Window (windowBytes))
import Weft.Tcp.Internal.PathMtu
import Weft.Tcp.Internal.Scoreboard
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Sequence

search :: Tcb -> Maybe Search
search = boardSearch . tcbScoreboard

searching :: Maybe Search -> Tcb -> Tcb
searching s t = t {tcbScoreboard = (tcbScoreboard t) {boardSearch = s}}

-- | The retransmission timer fires. The third time in a row, if a smaller segment might pass where the first
-- outstanding one does not, segments become smaller (RFC 4821, section 7.7), and again at each further time.
blackHole :: Instant -> Tcb -> Tcb
blackHole now t
  | settingPathProbing (tcbSettings t),
    sndRetries t >= 2,
    Just size <- listToMaybe [x | x <- baseSizes (headersOf t) (isVersion6 t), x < sndMss t, fromIntegral x < headLength] =
      searching (Just (reduced (now + 1000000) (sndMss t) (search t))) t {sndMss = size}
  | otherwise = t
  where
    headLength = case viewl (boardPieces (tcbScoreboard t)) of
      p :< _ -> min (rangeLength (pieceRange p)) (pieceSize p - pieceLead p)
      EmptyL -> 0

-- | A router says that it takes this size: what is outstanding and too large is lost. Of a probe, that its
-- size was too large and this one is not. Larger ones are tried after ten minutes.
pathTakes :: Instant -> Word16 -> Seq -> Tcb -> Maybe Tcb
pathTakes now size number t
  | size < sndMss t = Just (remembered t {sndMss = size, tcbScoreboard = loseAll (tcbScoreboard t)})
  | Just s@Search {searchProbe = ProbeOut r} <- search t,
    number == rangeStart r,
    fromIntegral size < rangeLength r =
      -- Its loss is noticed as any other, and is still no congestion.
      Just (searching (Just (reduced (now + searchPause) size (Just s)) {searchProbe = searchProbe s}) t {sndMss = size})
  | otherwise = Nothing
  where
    remembered x
      | settingPathProbing (tcbSettings t) = searching (Just (reduced (now + searchPause) (sndMss t) (search t))) x
      | otherwise = x

-- | The length of a probe that is to be the next new segment. Data follow it, so that its loss is
-- noticed soon; and it waits until the congestion window has room for it.
probeDue :: Instant -> Tcb -> Maybe Word32
probeDue now t
  | -- What costs little is asked first.
    unsent t > 3 * fromIntegral (sndMss t),
    Just size <- probeFor now (headersOf t) (sndMss t) =<< search t,
    Open <- tcbRecovery t,
    t `is` SackOn,
    boardSacked board == 0,
    boardLost board == 0,
    let length' = fromIntegral size
        behind = length' + 3 * fromIntegral (sndMss t),
    unsent t >= behind,
    usable t >= behind,
    windowBytes (tcbWindow t) >= length' =
      Just length'
  | otherwise = Nothing
  where
    board = tcbScoreboard t

-- | The probe left.
probeSent :: Range -> Tcb -> Tcb
probeSent r t = searching ((\s -> s {searchProbe = ProbeOut r}) <$> search t) t

-- | A range was sent again. A probe in it was lost, or it will not be known what arrived.
sentAgainOver :: Instant -> Range -> Tcb -> Tcb
sentAgainOver now again t = case search t of
  Just s@Search {searchProbe = ProbeOut r}
    | not (isEmpty (r `intersect` again)) -> searching (Just (probeLost now (headersOf t) (sndMss t) (fromIntegral (rangeLength r)) s)) t
  _ -> t

-- | Everything before 'sndUna' was acknowledged. If that is the whole probe, segments have its size from now on.
probeArrived :: Instant -> Tcb -> Tcb
probeArrived now t = case search t of
  Just s@Search {searchProbe = ProbeOut r}
    | rangeEnd r `upTo` sndUna t,
      let size = max (sndMss t) (fromIntegral (rangeLength r)) ->
        searching
          (probeFound now (headersOf t) size s)
          t {sndMss = size, tcbWindow = (tcbWindow t) {windowBytes = max (fromIntegral size) (windowBytes (tcbWindow t))}}
  _ -> t

-- | Is the probe all that is lost? That is no sign of congestion (RFC 4821, section 7.6.2).
onlyProbeLost :: Tcb -> Bool
onlyProbeLost t = case search t of
  Just Search {searchProbe = ProbeOut r} -> boardLost board == rangeLength r && firstLost board == Just r
  _ -> False
  where
    board = tcbScoreboard t

-- | Nothing is outstanding any more. A search stays; else connections share one book.
emptied :: Scoreboard -> Scoreboard
emptied b = case boardSearch b of
  Nothing -> emptyScoreboard
  s -> emptyScoreboard {boardSearch = s}
