{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : What a readiness source must be able to do
--
-- A poller tells when a descriptor is ready and does nothing else: epoll,
-- poll, and whatever other kernels have. This module owns the small record of
-- functions that "Weft.Internal.Backend.Readiness" builds a backend on, and the
-- words for keys and readiness. After O'Sullivan and Tibell 2010.
module Weft.Internal.Backend.Readiness.Poller
  ( -- * Pollers
    Poller (..),
    Trigger (..),

    -- * Keys
    Key (..),
    makeKey,
    keyNumber,
    keySerial,

    -- * Directions
    Direction (..),
    Interest (..),
    interestIn,
    noInterest,
    bothDirections,
  )
where

import Data.Bits (shiftL, shiftR, (.|.))
import Data.Int (Int32, Int64)
import Data.Word (Word32, Word64)
import Foreign.C.Types (CInt)
import Foreign.Ptr (Ptr)
import Weft.Internal.Os.Sys (Result)
import Weft.Internal.Os.Sys qualified as Sys

-- | When a poller reports a descriptor.
data Trigger
  = -- | When it becomes ready, and once when it is registered. It is registered
    -- once for its life, with 'bothDirections'.
    Edge
  | -- | As long as it is ready. It is registered for the directions in which an
    -- operation waits, and for nothing else: what no operation waits for would be
    -- reported for ever.
    Level
  deriving stock (Eq, Show)

-- | A source of readiness. All functions are called by the worker that owns it.
data Poller = Poller
  { -- | As of @backendName@.
    pollerName :: !String,
    pollerTrigger :: !Trigger,
    -- | Register a descriptor under a key, or replace what it is registered
    -- for. Answers 0 or the negated @errno@.
    pollerWatch :: !(CInt -> Key -> Interest -> IO Result),
    -- | Drop a descriptor. Harmless for one that is not registered.
    pollerRemove :: !(CInt -> IO ()),
    -- | Collect events, at most this many: for each the key and the readiness bits
    -- of "Weft.Internal.Os.Sys", 64 bits each. Never blocks.
    pollerLook :: !(Ptr Word64 -> Int -> IO Result),
    -- | As 'pollerLook', but when there is none block for at most this many nanoseconds
    -- (negative: for ever). One @safe@ foreign call.
    pollerWait :: !(Ptr Word64 -> Int -> Int64 -> IO Result),
    -- | Free the resources.
    pollerFree :: !(IO ())
  }

-- | Identifies a descriptor in an event: its number and its serial, so that an
-- event of a descriptor that is gone is never taken for one of its successor.
newtype Key = Key Word64
  deriving newtype (Eq, Show)

-- | The key of a number and a serial.
makeKey :: CInt -> Word32 -> Key
makeKey number serial =
  Key ((fromIntegral serial `shiftL` 32) .|. fromIntegral (fromIntegral number :: Word32))
{-# INLINE makeKey #-}

-- | The number.
keyNumber :: Key -> CInt
keyNumber (Key k) = fromIntegral (fromIntegral k :: Int32)
{-# INLINE keyNumber #-}

-- | The serial.
keySerial :: Key -> Word32
keySerial (Key k) = fromIntegral (k `shiftR` 32)
{-# INLINE keySerial #-}

-- | Which of a descriptor's two streams of bytes an operation waits for.
data Direction = Reading | Writing
  deriving stock (Eq, Show)

-- | A set of directions, as readiness bits.
newtype Interest = Interest {interestBits :: Int}
  deriving newtype (Eq, Show)

instance Semigroup Interest where
  Interest a <> Interest b = Interest (a .|. b)

-- | One direction.
interestIn :: Direction -> Interest
interestIn = \case
  Reading -> Interest Sys.readableBit
  Writing -> Interest Sys.writableBit

-- | None.
noInterest :: Interest
noInterest = Interest 0

-- | Both.
bothDirections :: Interest
bothDirections = interestIn Reading <> interestIn Writing
