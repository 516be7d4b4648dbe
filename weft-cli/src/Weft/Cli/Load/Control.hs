{-# OPTIONS_HADDOCK not-home #-}

-- | When requests may be sent, and how many: every connection of a load asks here before it sends.
-- A few words in shared memory; nothing blocks.
module Weft.Cli.Load.Control
  ( Control,
    newControl,
    clockNow,
    setWindow,
    windowStart,
    windowEnd,
    endNow,
    claim,
    takeScheduled,
  )
where

import Data.Maybe (isJust)
import GHC.Clock (getMonotonicTimeNSec)
import Weft.Cli.Load.Cells

-- | The monotonic clock, in nanoseconds.
clockNow :: IO Int
clockNow = fromIntegral <$> getMonotonicTimeNSec

data Control = Control !Bool !Cells

-- The cells: the window, the requests left, and of a schedule the number taken and its start.
cellFrom, cellUntil, cellTickets, cellTaken, cellZero :: Int
cellFrom = 0
cellUntil = 1
cellTickets = 2
cellTaken = 3
cellZero = 4

newControl :: Maybe Int -> IO Control
newControl count = do
  cells <- newCells 16
  pokeCell cells cellFrom maxBound
  pokeCell cells cellUntil maxBound
  mapM_ (pokeCell cells cellTickets) count
  pure (Control (isJust count) cells)

-- | Set the start of the schedule and the measured window, in nanoseconds of the monotonic clock.
setWindow :: Control -> Int -> Int -> Int -> IO ()
setWindow (Control _ cells) zero from to = pokeCell cells cellZero zero >> pokeCell cells cellFrom from >> pokeCell cells cellUntil to

windowStart, windowEnd :: Control -> IO Int
windowStart (Control _ cells) = peekCell cells cellFrom
windowEnd (Control _ cells) = peekCell cells cellUntil

endNow :: Control -> Int -> IO ()
endNow (Control _ cells) = minCell cells cellUntil

-- | How many of a number of requests may be sent now. Those before the window are free.
claim :: Control -> Int -> Int -> IO Int
claim (Control limited cells) now wanted = do
  start <- peekCell cells cellFrom
  end <- peekCell cells cellUntil
  if
    | now >= end -> pure 0
    | not limited || now < start -> pure wanted
    | otherwise -> max 0 . min wanted <$> addCell cells cellTickets (negate wanted)

-- | When the next request of a schedule is due, at this interval in nanoseconds; 'Nothing' at the
-- end of the schedule.
takeScheduled :: Control -> Double -> IO (Maybe Int)
takeScheduled (Control limited cells) pace = do
  zero <- peekCell cells cellZero
  start <- peekCell cells cellFrom
  end <- peekCell cells cellUntil
  i <- addCell cells cellTaken 1
  let due = zero + round (fromIntegral i * pace)
  if
    | due >= end -> pure Nothing
    | limited && due >= start -> (\left -> if left > 0 then Just due else Nothing) <$> addCell cells cellTickets (-1)
    | otherwise -> pure (Just due)
