{-# OPTIONS_HADDOCK not-home #-}

-- | Virtual time, and what is to happen in it. The clock of a simulated world and its event queue.
-- Only 'fireNext' moves the clock, to the time of the first event; nothing here reads a real clock.
-- Used by one OS thread at a time.
--
-- The order of events of one instant is drawn when they are made, as further bits of the key.
module Weft.Sim.Internal.Events
  ( Events,
    newEvents,
    worldStart,
    clock,
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
import Weft.Internal.Data.Timers (TimerKey, Timers)
import Weft.Internal.Data.Timers qualified as Timers

-- | The clock, the queue, and the source of a number below 64 that orders events of one instant.
data Events = Events !(PrimVar RealWorld Int64) !(Timers (IO ())) !(IO Int)

type EventKey = TimerKey

-- | No events; the clock stands at 'worldStart'. It ends at 2^56 nanoseconds (two years): what is due
-- later is due then, in no order.
newEvents :: IO Int -> IO Events
newEvents order = Events <$> newPrimVar worldStart <*> Timers.new <*> pure order

-- | The first time of the monotonic clock.
worldStart :: Int64
worldStart = 1_000_000_000

clock :: Events -> IO Int64
clock (Events now _ _) = readPrimVar now

-- | Schedule an event at an instant; a past one means now.
at :: Events -> Int64 -> IO () -> IO EventKey
at (Events now timers order) instant act = do
  moment <- readPrimVar now
  bits <- order
  Timers.insert timers (min latest (max moment instant) `shiftL` orderBits + fromIntegral bits) act

after :: Events -> Int64 -> IO () -> IO EventKey
after events delay act = do
  moment <- clock events
  at events (if delay > latest - moment then latest else moment + delay) act

orderBits :: Int
orderBits = 6

latest :: Int64
latest = 1 `shiftL` 56

-- | False if the event has happened.
revoke :: Events -> EventKey -> IO Bool
revoke (Events _ timers _) = Timers.cancel timers

pendingEvents :: Events -> IO Int
pendingEvents (Events _ timers _) = Timers.size timers

nextEvent :: Events -> IO (Maybe Int64)
nextEvent events@(Events _ timers _) = do
  n <- pendingEvents events
  if n == 0 then pure Nothing else Just . (`shiftR` orderBits) <$> Timers.nextDeadline timers

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
