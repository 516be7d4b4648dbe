{-# OPTIONS_HADDOCK not-home #-}

-- | A stream of random numbers from a seed. SplitMix (Steele, Lea & Flood 2014) in a variable: the
-- only source of randomness in a simulation. Each purpose has its own stream, split from the seed,
-- so that one more draw for the network does not change what the scheduler draws.
module Weft.Sim.Internal.Random (Seed (..), Random, newRandom, below, chance, within, lasting) where

import Control.Monad.Primitive (RealWorld)
import Data.Bits (xor)
import Data.Int (Int64)
import Data.Primitive.MutVar
import Data.Word (Word64)
import System.Random.SplitMix
import Text.Read (readPrec)
import Weft.Internal.Data.Time (Duration (..))

-- | A simulated run is a function of its seed, the program and its configuration.
newtype Seed = Seed Word64
  deriving stock (Eq, Ord)
  deriving newtype (Num, Enum)

instance Show Seed where
  showsPrec _ (Seed n) = shows n

instance Read Seed where
  readPrec = Seed <$> readPrec

newtype Random = Random (MutVar RealWorld SMGen)

-- | The stream of a seed for the purpose of this number.
newRandom :: Seed -> Word64 -> IO Random
newRandom (Seed seed) purpose = Random <$> newMutVar (mkSMGen (seed `xor` (purpose * 0x9e3779b97f4a7c15)))

-- | A number from 0 to below the limit; 0 if the limit is 0.
below :: Random -> Int -> IO Int
below (Random ref) n
  | n <= 1 = pure 0
  | otherwise = do
      (w, g) <- bitmaskWithRejection64' (fromIntegral (n - 1)) <$> readMutVar ref
      writeMutVar ref $! g
      pure (fromIntegral w)
{-# INLINE below #-}

-- | True with this probability. Draws nothing if that is 0 or 1.
chance :: Random -> Double -> IO Bool
chance (Random ref) p
  | p <= 0 = pure False
  | p >= 1 = pure True
  | otherwise = do
      (d, g) <- nextDouble <$> readMutVar ref
      writeMutVar ref $! g
      pure (d < p)

within :: Random -> (Int64, Int64) -> IO Int64
within r (low, high)
  | high <= low = pure low
  | otherwise = (low +) . fromIntegral <$> below r (fromIntegral (high - low) + 1)

-- | A duration of the closed interval, in nanoseconds.
lasting :: Random -> (Duration, Duration) -> IO Int64
lasting r (Duration low, Duration high) = within r (low, high)
