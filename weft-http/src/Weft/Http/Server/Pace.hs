{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | How slow a client may be: minimum rates (Note [Credit]), and the waits that they are about.
module Weft.Http.Server.Pace (receiveAtPace, startingCredit, sendAtPace, creditAfter) where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Int (Int64)
import Data.Maybe (isJust)
import Weft
import Weft.Http.Server.Phase
import Weft.Http.Server.State
import Weft.Mask (mask_)
import Weft.Time

-- Note [Credit]
-- ~~~~~~~~~~~~~
-- A time limit that begins anew with each byte ends no client that sends one byte in each such time. So
-- a client has a credit beside it: the time for which it may yet be waited for. It begins with the
-- grace period, becomes less by each wait, and more by what each octet is worth at the minimum rate.
-- While it is positive the client has sent what the rate asks for, but for a grace period.
--
--   * Only waits count: the time that a handler takes between two pieces is its own.
--   * Credit is not saved up, or a client that has sent a megabyte quickly could be slow for an
--     hour: it is never more than the grace period and what the last step was worth. The latter
--     because octets come in lumps (segments; or all that a socket's buffer has room for), of which
--     a slow client needs the time of the next before it comes.
--   * Under a layer a lump is a record of 16 KB, of which nothing is seen before its end.
--
-- The time limit of the wait itself stays what it is; whichever ends first ends the phase.

-- | Octets that a layer may gather before any is seen.
lumpOf :: Connection -> Int64
lumpOf c = if isJust (connectionTransport c) then 16_384 else 0

-- | Of an octet, in nanoseconds.
worthOfOne :: MinimumRate -> Int64
worthOfOne rate = 1_000_000_000 `quot` max 1 (rateOctets rate)

-- | The credit in nanoseconds, given the octets of a lump, the credit before, the wait, and the octets.
creditAfter :: MinimumRate -> Int64 -> Int64 -> Int64 -> Int64 -> Int64
creditAfter rate lump credit waited octets =
  min (graceOf rate + each * max octets lump) (credit - waited + each * octets)
  where
    each = worthOfOne rate

-- | At the beginning of a body.
startingCredit :: Server -> Connection -> Int64
startingCredit server c = case serverBodyRate (serverSettings server) of
  Nothing -> 0
  Just rate -> graceOf rate + worthOfOne rate * lumpOf c

-- | Wait for a piece of a body, with this credit: the piece, and what is left of the credit.
receiveAtPace :: Server -> Connection -> Int64 -> Thread ByteString -> Thread (ByteString, Int64)
receiveAtPace server c credit receiving = case serverBodyRate (serverSettings server) of
  Nothing -> do
    liftIO (enter server c ReceivingBody)
    (,credit) <$> receiving
  Just rate -> do
    -- The phase first: an interruption of the one before must not come between.
    liftIO (enterWithin server c ReceivingBody ReceivingAtPace credit)
    (bytes, waited) <- timed receiving
    pure (bytes, creditAfter rate (lumpOf c) credit waited (fromIntegral (B.length bytes)))

-- | Wait until the client has taken some of a response: how many octets those were.
sendAtPace :: Server -> Connection -> Thread Int -> Thread Int
sendAtPace server c sending = case serverResponseRate (serverSettings server) of
  Nothing -> do
    liftIO (enter server c Sending)
    sending
  Just rate -> do
    -- As above.
    credit <- liftIO (readCredit (connectionMember c))
    liftIO (enterWithin server c Sending SendingAtPace credit)
    (n, waited) <- timed sending
    n <$ liftIO (writeCredit (connectionMember c) $! creditAfter rate (lumpOf c) credit waited (fromIntegral n))

-- | A wait, and its nanoseconds. The clock is read masked: an interruption that comes as the wait succeeds
-- would lose what was received, and the rest of a body would be taken from the next request.
timed :: Thread a -> Thread (a, Int64)
timed waiting = do
  start <- now
  a <- waiting
  end <- mask_ now
  pure (a, instantNanoseconds end - instantNanoseconds start)
