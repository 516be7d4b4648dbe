{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The words that carriers and the monitor share
--
-- A few words of pinned memory tell the monitor which carriers are in user code, and a carrier
-- whether the worker is still its own. This module owns their layout (that of
-- @cbits/weft_monitor.h@) and the carrier's side of the protocol; the scheduler calls it twice for
-- every segment of a thread. See Note [Takeover].
module Weft.Internal.Os.Control
  ( -- * The words of a run
    Words,
    newWords,
    wordsAddress,

    -- * A carrier and its worker
    Carrier (..),
    carrierFor,
    endReserve,
    Line,
    enterDispatch,
    enterUser,
    enterNext,
    leaveUser,
    standing,
    CarrierStanding (..),
    stillOwner,

    -- * Sleep
    setAwake,
    monitorAsleep,

    -- * Observation
    carriersNow,
    inUser,
    sayBlocked,
  )
where

import Control.Concurrent (ThreadId, mkWeakThreadId, myThreadId)
import Control.Monad.Primitive (RealWorld)
import Data.Bits ((.&.))
import Data.Primitive.PrimArray
import Foreign.Marshal.Array (advancePtr)
import Foreign.Storable (peek, peekElemOff, poke, pokeElemOff)
import GHC.Exts (Int (..), Ptr (..), atomicCasWordAddr#, int2Word#, word2Int#)
import GHC.IO (IO (..))
import System.Mem.Weak (Weak)

-- Note [Takeover]
-- ~~~~~~~~~~~~~~~
-- A worker is a ready queue, an inbox, a kernel instance and timers; its carrier is the OS thread
-- that runs it at the moment. While the carrier runs user code (a segment of a trace, an effect)
-- it touches none of these, and another carrier may take the worker over: the stuck thread then
-- belongs to the old carrier, which puts it into the worker's inbox, like any woken thread, when
-- it comes back.
--
-- Three words of the carrier decide. NUMBER: that of the dispatch. USER: 1 while it is in user
-- code, else 0. MARK: 0 while it owns its worker and no request is pending.
--
--   carrier, at a dispatch                monitor, when USER has been 1 and NUMBER n for long
--     NUMBER := n                           MARK := PROPOSED            (cas)
--   carrier, entering user code             membarrier
--     USER := 1                             if USER == 1, and then NUMBER == n
--   carrier, leaving user code                MARK := LOST              (cas)
--     USER := 0                             else
--     if MARK == 0 go on                      MARK := 0                 (cas)
--     else if MARK is LOST: lost
--     else MARK := 0 (cas), go on
--          or, if that fails, look again
--
-- The carrier writes NUMBER before USER, and the monitor reads USER before NUMBER: where it finds 1
-- and n, the carrier was in user code, of dispatch n or of one before, and had not begun another
-- than n. So what it finds twice is one dispatch, and no later one is taken for it.
--
-- The carrier's path is two plain stores and a load, because it is taken some fifty million
-- times a second. A processor may reorder a store and a later load; membarrier(2) makes every OS
-- thread of the process pass a full barrier, after which either the monitor sees the carrier's
-- `USER := 0`, or the carrier's load of MARK sees PROPOSED. If both happen the cas decides.
--
-- Without membarrier (a kernel before 4.14, a sandbox that forbids it) only the monitor passes a
-- barrier. To be missed, the carrier's store would have to stay in its processor's buffer for as
-- long as a failed system call and a barrier take, at the end of a segment of ten milliseconds.
--
-- Besides, a processor must not show others what a carrier did in user code, or `USER := 1`
-- itself, before what it did to the worker earlier. On x86-64 stores are seen in their order.
-- Other processors need a releasing store to enter user code.
--
-- Only the monitor knows, and changes, which carrier owns which worker. The line of a pool carrier is used
-- again when the carrier has come back.
--
-- The second mark, ATTEND, is set by each look of the monitor that finds the carrier in user
-- code, and means: end this slice and look at the event source. It bounds a slice of long
-- segments in time: the monitor looks often at a worker that makes few dispatches (Note [When
-- the monitor looks] in @cbits/weft_monitor.c@).

newtype Words = Words (MutablePrimArray RealWorld Int)

-- | In words: what one carrier or worker writes must not share a cache line with
-- what another does.
line :: Int
line = 8

-- | The words for the given numbers of workers and of carriers in the pool. Worker i is
-- owned by carrier i.
newWords :: Int -> Int -> IO Words
newWords workers others = do
  let room = (carrierLines workers others + workers + 1) * line
  array <- newAlignedPinnedPrimArray room
  setPrimArray array 0 room 0
  pure (Words array)

-- | The workers' first carriers, the pool, and the reserves for the end of the run.
carrierLines :: Int -> Int -> Int
carrierLines workers others = workers + others + endReserve + workers

-- | The limit of additional carriers while the threads of a run are being ended; after that
-- one more for each worker. As in @cbits/weft_monitor.h@.
endReserve :: Int
endReserve = 64

-- | For the monitor; valid while the words are reachable.
wordsAddress :: Words -> Ptr Int
wordsAddress (Words array) = mutablePrimArrayContents array

-- | The address of a carrier's line, which it uses between two segments. One machine
-- word, so that the scheduler can have it at hand.
type Line = Ptr Int

userWord, markWord, numberWord :: Int
userWord = 0
markWord = 1
numberWord = 2

data Carrier = Carrier
  { carrierLine :: {-# UNPACK #-} !Line,
    -- | Its number: that of its line.
    carrierNumber :: {-# UNPACK #-} !Int,
    carrierWorker :: {-# UNPACK #-} !Line,
    carrierMonitor :: {-# UNPACK #-} !Line,
    -- | GHC's name for it. Weak: a thread named by a 'ThreadId' is never told that nothing can
    -- wake it.
    carrierThread :: !(Weak ThreadId),
    -- | Keeps them all.
    _carrierWords :: !Words
  }

-- | The calling thread as the carrier with this number, of the given numbers of workers and other
-- carriers, for a worker.
carrierFor :: Words -> Int -> Int -> Int -> Int -> IO Carrier
carrierFor shared workers others worker number = do
  self <- myThreadId >>= mkWeakThreadId
  pure
    Carrier
      { carrierLine = lineAt shared number,
        carrierNumber = number,
        carrierWorker = lineAt shared (carrierLines workers others + worker),
        carrierMonitor = monitorLine shared workers others,
        carrierThread = self,
        _carrierWords = shared
      }

lineAt :: Words -> Int -> Line
lineAt shared i = wordsAddress shared `advancePtr` (i * line)

monitorLine :: Words -> Int -> Int -> Line
monitorLine shared workers others = lineAt shared (carrierLines workers others + workers)

-- | A thread is dispatched, under this number (not 0), and its code is the user's.
enterDispatch :: Line -> Int -> IO ()
enterDispatch l n = pokeElemOff l numberWord n >> enterUser l

-- | User code follows again, in the same dispatch.
enterUser :: Line -> IO ()
enterUser l = pokeElemOff l userWord 1

-- | The next dispatch, in user code. For workers that the monitor does not give away, but only says that they seem to be
-- stuck: all that was marked before is forgotten.
enterNext :: Line -> IO ()
enterNext l = do
  pokeElemOff l markWord 0
  n <- peekElemOff l numberWord
  enterDispatch l (n + 1)

-- | How a carrier stands to its worker.
data CarrierStanding
  = -- | It owns the worker.
    Owner
  | -- | It does, and should look at the event source soon.
    OwnerWanted
  | -- | It does not, and must not touch the worker.
    Displaced
  deriving stock (Eq, Show)

-- | User code is over. True: the worker is still this carrier's, and nothing else is
-- wanted. Otherwise 'standing' says more.
leaveUser :: Line -> IO Bool
leaveUser l = do
  pokeElemOff l userWord 0
  (== 0) <$> peekElemOff l markWord

-- | 'CarrierStanding' of the carrier; clears the marks.
standing :: Line -> IO CarrierStanding
standing l = peekElemOff l markWord >>= go
  where
    go mark
      | mark == 0 = pure Owner
      | mark .&. lost /= 0 = pure Displaced
      | otherwise = do
          found <- compareAndSwap (l `advancePtr` markWord) mark 0
          if found == mark
            then pure (if mark .&. attend /= 0 then OwnerWanted else Owner)
            else go found
{-# NOINLINE standing #-}

attend, lost :: Int
attend = 2
lost = 4

-- | Answers the old value: the expected one if it was replaced.
compareAndSwap :: Ptr Int -> Int -> Int -> IO Int
compareAndSwap (Ptr address) (I# expected) (I# new) =
  IO $ \s -> case atomicCasWordAddr# address (int2Word# expected) (int2Word# new) s of
    (# s', found #) -> (# s', I# (word2Int# found) #)

stillOwner :: Line -> IO Bool
stillOwner l = (\mark -> mark .&. lost == 0) <$> peekElemOff l markWord

setAwake :: Carrier -> Bool -> IO ()
setAwake c awake = poke (carrierWorker c) (if awake then 1 else 0)

-- | Does the monitor sleep, so that a worker that wakes must wake it?
monitorAsleep :: Carrier -> IO Bool
monitorAsleep c = (/= 0) <$> peek (carrierMonitor c)

-- | How many carriers there are beside those that the workers began with; the monitor
-- keeps the number there. From anywhere.
carriersNow :: Carrier -> IO Int
carriersNow c = peekElemOff (carrierMonitor c) 1

inUser :: Carrier -> IO Bool
inUser c = (/= 0) <$> peekElemOff (carrierLine c) userWord

-- | Tell the monitor of the given numbers of workers and other carriers how many carriers are blocked.
sayBlocked :: Words -> Int -> Int -> Int -> IO ()
sayBlocked shared workers others = pokeElemOff (monitorLine shared workers others) 2
