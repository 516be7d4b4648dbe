{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_GHC -O2 #-}

-- |
-- Description : The words that carriers and the monitor share
-- Stability   : not home
--
-- A few words of pinned memory tell the monitor which carriers are in user code,
-- and tell a carrier whether the worker is still its own. This module owns their
-- layout (that of @cbits/weft_monitor.h@) and the carrier's side of the protocol;
-- the scheduler calls it twice for every segment of a thread.
--
-- See Note [Takeover].
module Weft.Internal.Control
  ( -- * The words of a run
    Words,
    newWords,
    wordsAddress,

    -- * A carrier and its worker
    Carrier (..),
    firstCarrier,
    carrierFor,
    enterUser,
    leaveUser,
    Standing (..),
    stillOwner,

    -- * Sleep
    setAwake,
    monitorAsleep,

    -- * Observation
    carriersNow,
  )
where

import Control.Monad.Primitive (RealWorld)
import Data.Bits (shiftL, shiftR, (.&.))
import Data.Primitive.PrimArray
import Foreign.Ptr (Ptr)
import GHC.Exts (Int (..), casIntArray#)
import GHC.IO (IO (..))

-- Note [Takeover]
-- ~~~~~~~~~~~~~~~
-- A worker is a ready queue, an inbox, a kernel instance and timers. The OS thread
-- that runs it at the moment is its carrier. While the carrier runs code of the
-- user (a segment of a trace, an effect) it touches none of these, and another
-- carrier may take the worker over: the thread that does not come back is then
-- the old carrier's own affair, until it comes back and is put into the worker's
-- inbox like any thread that was woken.
--
-- Two words decide. USER belongs to the carrier: the number of the dispatch while
-- it is in user code, else 0. OWNER belongs to the worker: the number of the
-- carrier that owns it, and a mark.
--
--   carrier, entering user code           monitor, when USER has been n for long
--     USER := n                             OWNER := owner + PROPOSED   (cas)
--   carrier, leaving user code              membarrier
--     USER := 0                             if USER == n
--     if OWNER == me go on                    OWNER := heir             (cas)
--     else if OWNER is somebody else: lost  else
--     else OWNER := me (cas), go on           OWNER := owner            (cas)
--          or, if that fails, look again
--
-- The carrier's way is two plain stores and a load, because it is taken some fifty
-- million times a second. A store and a later load may change places in a
-- processor; membarrier(2) makes every OS thread of the process pass a full
-- barrier, so that after it either the monitor sees the carrier's `USER := 0`, or
-- the carrier's load of OWNER sees PROPOSED. If both happen the cas decides.
--
-- Without membarrier (a kernel before 4.14, a sandbox that forbids it) only the
-- monitor passes a barrier. The carrier's store would have to wait in its
-- processor's buffer for as long as the monitor takes for a failed system call and
-- a barrier, at the end of a segment that lasted ten milliseconds.
--
-- The second mark, ATTEND, is set once in a tick and means: end this slice and
-- look at the event source. It bounds a slice of long segments in time.

-- | The words.
newtype Words = Words (MutablePrimArray RealWorld Int)

-- | In words: what one carrier or worker writes must not share a cache line with
-- what another does.
line :: Int
line = 8

-- | The words for so many workers and so many carriers in the pool. Worker i is
-- owned by carrier i.
newWords :: Int -> Int -> IO Words
newWords workers others = do
  let carriers = carrierLines workers others
      room = (carriers + workers + 1) * line
  array <- newAlignedPinnedPrimArray room
  setPrimArray array 0 room 0
  let first w = writePrimArray array ((carriers + w) * line) ((w + carriers) `shiftL` ownerShift)
  mapM_ first [0 .. workers - 1]
  pure (Words array)

-- | The workers' first carriers, the pool, and the reserve for the end of the run.
carrierLines :: Int -> Int -> Int
carrierLines workers others = workers + others + workers

-- | For the monitor; good for as long as somebody holds the words.
wordsAddress :: Words -> Ptr Int
wordsAddress (Words array) = mutablePrimArrayContents array

ownerShift, attend :: Int
ownerShift = 2
attend = 2

-- | A carrier that owns, or owned, a worker.
data Carrier = Carrier
  { carrierWords :: {-# UNPACK #-} !(MutablePrimArray RealWorld Int),
    -- | Where its USER word is.
    carrierUser :: {-# UNPACK #-} !Int,
    -- | Where the worker's OWNER word is.
    carrierOwner :: {-# UNPACK #-} !Int,
    -- | What it says when this carrier owns the worker and there is no mark.
    carrierMe :: {-# UNPACK #-} !Int,
    -- | Where the monitor says that it sleeps.
    carrierMonitor :: {-# UNPACK #-} !Int
  }

-- | The first carrier of a worker, of so many workers and other carriers.
firstCarrier :: Words -> Int -> Int -> Int -> Carrier
firstCarrier w workers others worker = carrierFor w workers others worker (worker + carrierLines workers others)

-- | The carrier with this owner's number, for a worker.
carrierFor :: Words -> Int -> Int -> Int -> Int -> Carrier
carrierFor (Words array) workers others worker owner =
  Carrier
    { carrierWords = array,
      carrierUser = (owner `mod` carriers) * line,
      carrierOwner = (carriers + worker) * line,
      carrierMe = owner `shiftL` ownerShift,
      carrierMonitor = (carriers + workers) * line
    }
  where
    carriers = carrierLines workers others

-- | What follows is code of the user, in this dispatch (not 0).
enterUser :: Carrier -> Int -> IO ()
enterUser c = writePrimArray (carrierWords c) (carrierUser c)
{-# INLINE enterUser #-}

-- | How a carrier stands to its worker.
data Standing
  = -- | It owns the worker.
    Owner
  | -- | It does, and should look at the event source soon.
    OwnerWanted
  | -- | It does not, and must not touch the worker.
    Displaced
  deriving stock (Eq, Show)

-- | User code is over. The continuations are for the owner, and for the rest.
leaveUser :: Carrier -> IO r -> (Standing -> IO r) -> IO r
leaveUser c mine other = do
  writePrimArray (carrierWords c) (carrierUser c) 0
  owner <- readPrimArray (carrierWords c) (carrierOwner c)
  if owner == carrierMe c then mine else standing c >>= other
{-# INLINE leaveUser #-}

standing :: Carrier -> IO Standing
standing c = readPrimArray (carrierWords c) (carrierOwner c) >>= go
  where
    go seen
      | seen == carrierMe c = pure Owner
      | seen `shiftR` ownerShift /= carrierMe c `shiftR` ownerShift = pure Displaced
      | otherwise = do
          found <- compareAndSwap (carrierWords c) (carrierOwner c) seen (carrierMe c)
          if found == seen
            then pure (if seen .&. attend /= 0 then OwnerWanted else Owner)
            else go found
{-# NOINLINE standing #-}

-- | Answers what was found: the expected if it was replaced.
compareAndSwap :: MutablePrimArray RealWorld Int -> Int -> Int -> Int -> IO Int
compareAndSwap (MutablePrimArray array) (I# i) (I# expected) (I# new) =
  IO $ \s -> case casIntArray# array i expected new s of (# s', found #) -> (# s', I# found #)

-- | Does the carrier own the worker? Outside user code.
stillOwner :: Carrier -> IO Bool
stillOwner c = do
  owner <- readPrimArray (carrierWords c) (carrierOwner c)
  pure (owner `shiftR` ownerShift == carrierMe c `shiftR` ownerShift)
{-# INLINE stillOwner #-}

-- | Say that the worker is awake, or is about to sleep.
setAwake :: Carrier -> Bool -> IO ()
setAwake c awake = writePrimArray (carrierWords c) (carrierOwner c + 1) (if awake then 1 else 0)

-- | Does the monitor sleep, so that a worker that wakes must wake it?
monitorAsleep :: Carrier -> IO Bool
monitorAsleep c = (/= 0) <$> readPrimArray (carrierWords c) (carrierMonitor c)

-- | How many carriers there are beside those that the workers began with; the monitor
-- keeps the number there. From anywhere.
carriersNow :: Carrier -> IO Int
carriersNow c = readPrimArray (carrierWords c) (carrierMonitor c + 1)
