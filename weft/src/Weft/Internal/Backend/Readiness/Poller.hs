{-# OPTIONS_HADDOCK not-home #-}

-- | The interface of readiness sources, after O'Sullivan and Tibell 2010. Both front ends are built on it:
-- "Weft.Internal.Backend.Readiness" for the workers and "Weft.EventManager" for plain @IO@.
module Weft.Internal.Backend.Readiness.Poller
  ( -- * Pollers
    Poller (..),
    Trigger (..),
    putEvents,

    -- * Keys
    Key (..),
    makeKey,
    keyNumber,
    keySerial,

    -- * Interest
    Interest (..),
    interestIn,
    noInterest,
    bothDirections,
    toRead,
    toWrite,
    toSeePeerClose,

    -- * Events
    Events (..),
    has,
    readable,
    writable,
    peerClosed,
    failed,
    invalid,
    closed,
    refused,
  )
where

import Control.Monad (zipWithM_)
import Data.Bits (shiftL, shiftR, (.&.), (.|.))
import Data.Int (Int32, Int64)
import Data.Word (Word32, Word64)
import Foreign.C.Types (CInt)
import Foreign.Ptr (Ptr)
import Foreign.Storable (pokeElemOff)
import Weft.Internal.Backend (Direction (..))
import Weft.Internal.Os.Sys (Result)
import Weft.Internal.Os.Sys qualified as Sys

-- | When a poller reports a descriptor.
data Trigger
  = -- | As long as it is ready. A worker registers it for the directions in which an operation waits only.
    Level
  | -- | When it becomes ready, and once when it is registered. A worker registers it once, with
    -- 'bothDirections'.
    Edge
  | -- | As 'Level', but one event at most: then not again until it is registered again.
    Once
  deriving stock (Eq, Show, Enum)

-- | A source of readiness: a system call that waits for descriptors, or what imitates one. One thread at a
-- time uses it. Every function answers a number: zero or more, or the negated @errno@ of a failure.
data Poller = Poller
  { -- | Its name, for messages.
    pollerName :: !String,
    -- | With which a worker registers: 'Edge' where it is known, else 'Level', which every poller
    -- knows. The event manager uses 'Level' and 'Once'.
    pollerTrigger :: !Trigger,
    -- | Does it know 'Once'? Where not, the event manager removes what has fired.
    pollerHasOnce :: !Bool,
    -- | May any thread watch and remove, also while another one waits? Else the thread that waits does,
    -- between two waits.
    pollerIsShared :: !Bool,
    -- | The clock by which it waits: nanoseconds since an origin of its own. It never goes backwards.
    pollerClock :: !(IO Int64),
    -- | Register a descriptor under a key, or replace what it is registered for. @EPERM@ for one that
    -- is always ready.
    pollerWatch :: !(CInt -> Key -> Trigger -> Interest -> IO Result),
    -- | Drop a descriptor. Harmless for one that is not registered.
    pollerRemove :: !(CInt -> IO ()),
    -- | Collect events, at most this many: the key and the bits of each, 64 bits each ('putEvents').
    -- Never blocks.
    pollerLook :: !(Ptr Word64 -> Int -> IO Result),
    -- | As 'pollerLook', but when there is none block for at most this many nanoseconds (negative: for
    -- ever), in one @safe@ foreign call. It must return when a descriptor that it watches becomes
    -- ready, and may return sooner.
    pollerWait :: !(Ptr Word64 -> Int -> Int64 -> IO Result),
    -- | Free the resources. Nothing is called afterwards.
    pollerFree :: !(IO ())
  }

-- | Put events where 'pollerLook' was asked to, as many as fit; answers how many.
putEvents :: Ptr Word64 -> Int -> [(Key, Events)] -> IO Result
putEvents buffer capacity events = do
  zipWithM_ put [0 ..] some
  pure (length some)
  where
    some = take capacity events
    put i (Key key, Events bits) = do
      pokeElemOff buffer (2 * i) key
      pokeElemOff buffer (2 * i + 1) (fromIntegral bits)

-- | Identifies a descriptor in an event: its number and its serial, so that an event of one that is
-- gone is never taken for one of its successor.
newtype Key = Key Word64
  deriving newtype (Eq, Show)

makeKey :: CInt -> Word32 -> Key
makeKey number serial =
  Key ((fromIntegral serial `shiftL` 32) .|. fromIntegral (fromIntegral number :: Word32))

keyNumber :: Key -> CInt
keyNumber (Key k) = fromIntegral (fromIntegral k :: Int32)

keySerial :: Key -> Word32
keySerial (Key k) = fromIntegral (k `shiftR` 32)

-- | A set of conditions of a descriptor to wait for. Combine with '<>'.
newtype Interest = Interest
  { -- | In the bits of this library, which are no event source's.
    interestBits :: Int
  }
  deriving newtype (Eq, Show)

instance Semigroup Interest where
  Interest a <> Interest b = Interest (a .|. b)

interestIn :: Direction -> Interest
interestIn = \case
  Reading -> toRead
  Writing -> toWrite

noInterest :: Interest
noInterest = Interest 0

bothDirections :: Interest
bothDirections = toRead <> toWrite

-- | A read would not block: there is something to read, or the end of it, or a failure.
toRead :: Interest
toRead = Interest Sys.readableBit

-- | A write would not block: there is room, or a failure.
toWrite :: Interest
toWrite = Interest Sys.writableBit

-- | The other side of a socket has ended its sending, or is gone, whatever is still to be read.
-- @select@ cannot wait for it.
toSeePeerClose :: Interest
toSeePeerClose = Interest Sys.peerClosedBit

-- | A set of things that have happened to a descriptor. Combine with '<>', ask with 'has'.
newtype Events = Events
  { -- | In the same bits as an 'Interest', and others.
    eventBits :: Int
  }
  deriving newtype (Eq)

instance Semigroup Events where
  Events a <> Events b = Events (a .|. b)

instance Monoid Events where
  mempty = Events 0

instance Show Events where
  showsPrec p events = showParen (p > 6) $ case [name | (name, e) <- names, events `has` e] of
    [] -> showString "mempty"
    first : others -> showString first . foldr (\name rest -> showString " <> " . showString name . rest) id others
    where
      names =
        [ ("readable", readable),
          ("writable", writable),
          ("peerClosed", peerClosed),
          ("failed", failed),
          ("closed", closed),
          ("refused", refused)
        ]

-- | Is any of the second set in the first one?
--
-- >>> (readable <> peerClosed) `has` peerClosed
-- True
has :: Events -> Events -> Bool
has (Events a) (Events b) = a .&. b /= 0

-- | A read would not block.
readable :: Events
readable = Events Sys.readableBit

-- | A write would not block.
writable :: Events
writable = Events Sys.writableBit

-- | The other side sends nothing more, or is gone. What it has sent before may still be there.
peerClosed :: Events
peerClosed = Events Sys.peerClosedBit

-- | An error is pending; the next operation says which. The reading side of a pipe that is gone is one
-- for the writing side.
failed :: Events
failed = Events Sys.failedBit

-- | The number is not an open descriptor. For pollers: the event manager makes 'closed' of it.
invalid :: Events
invalid = Events Sys.invalidBit

-- | The descriptor was closed on this side. It is not registered any more.
closed :: Events
closed = Events 128

-- | The poller cannot watch the descriptor. It is not registered any more.
refused :: Events
refused = Events 256
