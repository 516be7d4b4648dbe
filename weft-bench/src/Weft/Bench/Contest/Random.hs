-- |
-- Description : The generator that all contenders have
--
-- Knuth's linear congruential generator, 64 bits: the peers in C and Go have the same, so
-- that all compute the same and read the same places of a file.
module Weft.Bench.Contest.Random (State, seeded, next, steps, upTo) where

import Data.Bits (shiftR)
import Data.Word (Word64)

-- | The state of the generator.
type State = Word64

-- | The one of the thread with this number.
seeded :: Int -> State
seeded i = next (fromIntegral i + 1)

-- | The next one.
next :: State -> State
next x = x * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407

-- | The state after this number of steps.
steps :: Int -> State -> State
steps 0 !x = x
steps n !x = steps (n - 1) (next x)

-- | A number below a bound, from the upper bits: the lower ones have short periods.
upTo :: Word64 -> State -> Word64
upTo bound x = (x `shiftR` 33) `mod` bound
