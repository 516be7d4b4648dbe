{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The receive buffer grows
--
-- A peer sends in a round trip no more than the receive buffer has room for, so a buffer that is smaller than what the
-- path carries in that time is what limits it. Dynamic right-sizing (Fisk & Feng 2001): the buffer is to have twice what
-- the user reads in a round trip. So it is doubled when the user has read half of it in one; the slow start of
-- the peer then finds room for its next round.
--
-- The right edge of the window never goes back, so a buffer never becomes smaller. A user that reads slowly has the
-- buffer that it needs; one that reads nothing, the first. The round trip is the shortest of all that were measured: a queue
-- that the peer fills is no reason for a larger buffer.
module Weft.Tcp.Internal.Growth (growing, newRound) where

import Data.Bits (unsafeShiftR)
import Data.Word (Word32)
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Sequence

-- | After the user has read: if that ends a round, begin another, with a larger buffer if this one took a round trip at
-- most. The rest of the time this is one comparison.
growing :: Instant -> Tcb -> Tcb
growing now t
  | rcvRead t `before` rcvRound t = t
  | fromIntegral now - rcvRoundAt t <= roundTrip && receiveBuffer t < settingReceiveLimit settings && not (t `is` FinSeen) = newRound (fromIntegral now) t {rcvGrown = rcvGrown t + 1}
  | otherwise = newRound (fromIntegral now) t
  where
    settings = tcbSettings t
    -- A SYN that was sent twice measures nothing.
    roundTrip = if rttLeast t == 0 then fromIntegral (settingMinimumRto settings) else rttLeast t

-- | A round begins at this time, in microseconds that wrap: half of the buffer.
newRound :: Word32 -> Tcb -> Tcb
newRound now t = t {rcvRound = rcvRead t `advance` (receiveBuffer t `unsafeShiftR` 1), rcvRoundAt = now}
