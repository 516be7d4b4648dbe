{-# OPTIONS_HADDOCK not-home #-}

-- | A poller at work: the wake-up of its owner, and the events that it has found. Both front ends collect
-- their events here. For the owner of the poller only.
module Weft.Internal.Backend.Readiness.Collector
  ( Collector (..),
    newCollector,
    freeCollector,
    collect,
    hasEvents,
    handleEvents,
  )
where

import Control.Exception (IOException, catch, onException)
import Control.Monad.Primitive (RealWorld)
import Data.IORef (IORef, newIORef, readIORef, writeIORef)
import Data.Int (Int64)
import Data.Primitive.PrimVar (PrimVar, newPrimVar, readPrimVar, writePrimVar)
import Data.Word (Word64)
import Foreign.Marshal.Alloc (free, mallocBytes)
import Foreign.Ptr (Ptr)
import Foreign.Storable (peekElemOff)
import Weft.Internal.Backend.Readiness.Poller
import Weft.Internal.Backend.Wakeup
import Weft.Internal.Os.Sys qualified as Sys

data Collector = Collector
  { collectorPoller :: !Poller,
    collectorWakeup :: {-# UNPACK #-} !Wakeup,
    collectorEvents :: {-# UNPACK #-} !(IORef EventBuffer),
    -- | The first event that was not handled yet, and how many there are.
    collectorNext :: {-# UNPACK #-} !(PrimVar RealWorld Int),
    collectorEnd :: {-# UNPACK #-} !(PrimVar RealWorld Int)
  }

-- | Memory for the events of a poller, and for how many.
data EventBuffer = EventBuffer !(Ptr Word64) !Int

newBuffer :: Int -> IO EventBuffer
newBuffer capacity = (`EventBuffer` capacity) <$> mallocBytes (16 * capacity)

-- | Own a new poller. Throws an 'IOError' where the poller refuses its wake-up.
newCollector :: IO Poller -> IO Collector
newCollector source =
  source >>= \poller -> flip onException (pollerFree poller) do
    events@(EventBuffer buffer _) <- newBuffer 256
    flip onException (free buffer) do
      wakeup <- watchedWakeup poller (pollerTrigger poller) newWakeup `catch` \(_ :: IOException) -> watchedWakeup poller Level newPipeWakeup
      Collector poller wakeup <$> newIORef events <*> newPrimVar 0 <*> newPrimVar 0

freeCollector :: Collector -> IO ()
freeCollector c = do
  freeWakeup (collectorWakeup c)
  pollerFree (collectorPoller c)
  EventBuffer buffer _ <- readIORef (collectorEvents c)
  free buffer

-- | Look for events, or block for at most this many nanoseconds (negative: for ever) until there are some.
-- All that there were must have been handled. Answers how many there are.
collect :: Collector -> Int64 -> IO Int
collect c !limit = do
  found <- readPrimVar (collectorEnd c)
  EventBuffer buffer capacity <- readIORef (collectorEvents c) >>= enlarged found
  writePrimVar (collectorNext c) 0
  writePrimVar (collectorEnd c) 0
  let look = pollerLook poller buffer capacity
  n <-
    Sys.throwFailure ("wait for " <> pollerName poller) $
      if limit == 0 then look else blockUnlessWoken (collectorWakeup c) (pollerWait poller buffer capacity limit) look
  n <$ writePrimVar (collectorEnd c) n
  where
    poller = collectorPoller c
    -- One that was full gets twice the room, up to a bound.
    enlarged found before@(EventBuffer buffer capacity)
      | found < capacity || capacity >= 16_384 = pure before
      | otherwise = do
          larger <- newBuffer (2 * capacity)
          writeIORef (collectorEvents c) larger
          larger <$ free buffer

-- | Is there an event that was not handled yet?
hasEvents :: Collector -> IO Bool
hasEvents c = (<) <$> readPrimVar (collectorNext c) <*> readPrimVar (collectorEnd c)

-- | Handle up to this many of the events, each with its key and its bits; the wake-up's are handled here.
-- Answers the sum of what the handler answers. After an exception in it the next call goes on behind that event.
handleEvents :: Collector -> Int -> (Key -> Int -> IO Int) -> IO Int
handleEvents c most handle = do
  from <- readPrimVar (collectorNext c)
  end <- readPrimVar (collectorEnd c)
  EventBuffer buffer _ <- readIORef (collectorEvents c)
  let to = from + min most (end - from)
      go !i !ran
        | i == to = pure ran
        | otherwise = do
            key <- Key <$> peekElemOff buffer (2 * i)
            bits <- fromIntegral <$> peekElemOff buffer (2 * i + 1)
            writePrimVar (collectorNext c) (i + 1)
            more <- if key == wakeupKey (collectorWakeup c) then 0 <$ woken c else handle key bits
            go (i + 1) (ran + more)
  go from 0
{-# INLINE handleEvents #-}

-- | Not inlined, or each call of 'handleEvents' makes a closure of it.
woken :: Collector -> IO ()
woken = drainWakeup . collectorWakeup
{-# NOINLINE woken #-}
