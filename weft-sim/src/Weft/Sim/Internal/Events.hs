-- |
-- Description : Virtual time, and what is to happen in it
-- Stability   : not home
--
-- The clock of a simulated world and its queue of events. The clock moves only in
-- 'fireNext', to the time of the first event; nothing here looks at a real clock. Used by
-- one OS thread at a time.
--
-- Events of one instant happen in an order that is drawn when they are made: the
-- queue is ordered by the instant and some further bits.
module Weft.Sim.Internal.Events
  ( Events,
    newEvents,

    -- * The clock
    clock,

    -- * Events
    EventKey,
    at,
    after,
    revoke,
    pendingEvents,
    nextEvent,
    fireNext,
  )
where

import Control.Monad (void)
import Control.Monad.Primitive (RealWorld)
import Data.Bits (shiftL, shiftR)
import Data.Int (Int64)
import Data.Primitive.PrimVar
import Weft.Internal.Timers (TimerKey, Timers)
import Weft.Internal.Timers qualified as Timers

-- | The clock, the queue, and how to order events of one instant: a number below 64.
data Events = Events !(PrimVar RealWorld Int64) !(Timers (IO ())) !(IO Int)

-- | Names one event, to revoke it.
type EventKey = TimerKey

-- | Nothing is to happen; the clock stands at this time, in nanoseconds. It may go on for
-- 2^57 of them (four years).
newEvents :: Int64 -> IO Int -> IO Events
newEvents start order = Events <$> newPrimVar start <*> Timers.new <*> pure order

-- | What time it is.
clock :: Events -> IO Int64
clock (Events now _ _) = readPrimVar now
{-# INLINE clock #-}

-- | Let something happen at an instant; in this one if that is past.
at :: Events -> Int64 -> IO () -> IO EventKey
at (Events now timers order) instant act = do
  moment <- readPrimVar now
  bits <- order
  Timers.insert timers (min latest (max moment instant) `shiftL` orderBits + fromIntegral bits) act

-- | Let something happen in so many nanoseconds.
after :: Events -> Int64 -> IO () -> IO EventKey
after events delay act = do
  moment <- clock events
  at events (if delay > latest - moment then latest else moment + delay) act

orderBits :: Int
orderBits = 6

latest :: Int64
latest = 1 `shiftL` 56

-- | It is not to happen. False if it has happened.
revoke :: Events -> EventKey -> IO Bool
revoke (Events _ timers _) = Timers.cancel timers

-- | How many are to happen.
pendingEvents :: Events -> IO Int
pendingEvents (Events _ timers _) = Timers.size timers

-- | When the next one happens.
nextEvent :: Events -> IO (Maybe Int64)
nextEvent (Events _ timers _) = do
  n <- Timers.size timers
  if n == 0 then pure Nothing else Just . (`shiftR` orderBits) <$> Timers.nextDeadline timers

-- | Go to the next event and let it happen. False if there is none.
fireNext :: Events -> IO Bool
fireNext (Events now timers _) = do
  n <- Timers.size timers
  if n == 0
    then pure False
    else do
      deadline <- Timers.nextDeadline timers
      moment <- readPrimVar now
      writePrimVar now (max moment (deadline `shiftR` orderBits))
      void (Timers.popExpired timers deadline id)
      pure True
