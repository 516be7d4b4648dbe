{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : What travels with a submission and comes back with its completion
--
-- 64 bits: the kind in the low three (0 for an operation; the others are made and
-- consumed in @cbits/weft_uring.c@), above it the 60 bits of the key under which
-- the operation is kept, which contain a generation. The topmost bit stays zero.
module Weft.Internal.Backend.Uring.UserData (operationData, operationKey, isOperation) where

import Data.Bits (shiftL, shiftR, (.&.))
import Data.Word (Word64)
import Weft.Internal.Data.Slots (SlotKey (..))

-- | The number that stands for the operation under a key.
operationData :: SlotKey -> Word64
operationData (SlotKey k) = fromIntegral k `shiftL` 3
{-# INLINE operationData #-}

-- | The key in a number for which 'isOperation' holds.
operationKey :: Word64 -> SlotKey
operationKey w = SlotKey (fromIntegral (w `shiftR` 3))
{-# INLINE operationKey #-}

-- | Is it an operation, and neither a cancellation nor the wake-up?
isOperation :: Word64 -> Bool
isOperation w = w .&. 7 == 0
{-# INLINE isOperation #-}
