{-# OPTIONS_HADDOCK not-home #-}

-- | The polls of io_uring as a readiness source, for the event manager: Note [Polls in a ring]. (The workers
-- have operations on a ring.)
module Weft.Internal.Backend.Uring.Poller (ioUring) where

import Control.Monad (unless, void, when)
import Data.Foldable (for_)
import Data.IORef
import Data.Int (Int64)
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.IntSet (IntSet)
import Data.IntSet qualified as IntSet
import Data.Word (Word64)
import Foreign.C.Error (eBADF)
import Foreign.C.Types (CInt)
import Foreign.Ptr (Ptr, nullPtr)
import Weft.Internal.Backend.Readiness.Poller
import Weft.Internal.Backend.Uring.Ring (CompletionWork (..), Ring, UringSettings (..), defaultUringSettings)
import Weft.Internal.Backend.Uring.Ring qualified as Ring
import Weft.Internal.Data.Slots (SlotKey, Slots)
import Weft.Internal.Data.Slots qualified as Slots
import Weft.Internal.Os.Sys (Result)
import Weft.Internal.Os.Sys qualified as Sys

-- Note [Polls in a ring]
-- ~~~~~~~~~~~~~~~~~~~~~~
-- A poll is a request that completes once, and at once if its descriptor is ready. What is watched for longer
-- than one event is asked for again after each, before the next wait: that is level-triggered. All requests
-- of a step go to the kernel with its wait, in one system call.
--
-- Each request has a key of its own (a flight). A descriptor that is watched anew, or no more, has the
-- old request cancelled and forgets its flight: its completion finds no watch. A request of an OS thread
-- that ends is cancelled by the kernel, unasked: the poller submits it again.

data Polled = Polled
  { polledKey :: !Key,
    polledTrigger :: !Trigger,
    polledInterest :: !Interest,
    -- | Its request.
    polledFlight :: !(Maybe Slots.SlotKey)
  }

data Polls = Polls
  { pollsRing :: !Ring,
    -- | The numbers that requests in the kernel are about.
    pollsFlights :: !(Slots CInt),
    pollsByNumber :: !(IORef (IntMap Polled)),
    -- | The numbers to ask for, and the requests to cancel, before the next wait.
    pollsUnasked :: !(IORef IntSet),
    pollsUnwanted :: !(IORef [Slots.SlotKey]),
    -- | Events that did not fit, latest first.
    pollsFound :: !(IORef [(Key, Events)])
  }

-- | Linux's @io_uring@, by its polls: a wait costs time for what is ready, and hands over all that was
-- registered since the last one in the same system call. Throws an 'IOError' where the kernel has no
-- ring to give.
ioUring :: IO Poller
ioUring = do
  -- Work that waits for the next call of a thread that does not come back would be lost.
  ring <- Ring.open defaultUringSettings {completionEntries = 8192, completionWork = Interrupting} >>= either (ioError . userError) pure
  polls <- Polls ring <$> Slots.new <*> newIORef IntMap.empty <*> newIORef IntSet.empty <*> newIORef [] <*> newIORef []
  pure
    Poller
      { pollerName = "io_uring",
        pollerTrigger = Level,
        pollerHasOnce = True,
        pollerIsShared = False,
        pollerClock = Sys.monotonicNow,
        pollerWatch = watch polls,
        pollerRemove = unwatch polls,
        pollerLook = collect polls 0,
        pollerWait = \events capacity limit -> collect polls limit events capacity,
        pollerFree = release polls
      }

watch :: Polls -> CInt -> Key -> Trigger -> Interest -> IO Result
watch polls number key trigger interest = do
  unwatch polls number
  modifyIORef' (pollsByNumber polls) (IntMap.insert (fromIntegral number) (Polled key trigger interest Nothing))
  0 <$ modifyIORef' (pollsUnasked polls) (IntSet.insert (fromIntegral number))

unwatch :: Polls -> CInt -> IO ()
unwatch polls number = do
  watches <- readIORef (pollsByNumber polls)
  for_ (IntMap.lookup (fromIntegral number) watches) \w -> do
    writeIORef (pollsByNumber polls) $! IntMap.delete (fromIntegral number) watches
    for_ (polledFlight w) \flight -> modifyIORef' (pollsUnwanted polls) (flight :)

-- | Hand everything over, and collect what has completed; wait for it for this long.
collect :: Polls -> Int64 -> Ptr Word64 -> Int -> IO Result
collect polls limit buffer capacity = do
  wentAll <- handOver polls
  left <- readIORef (pollsFound polls)
  n <- if limit == 0 || not wentAll || not (null left) then Ring.turn ring else Ring.wait ring limit
  r <- takeAll n
  if r < 0
    then pure r
    else do
      (some, rest) <- splitAt capacity . reverse <$> readIORef (pollsFound polls)
      writeIORef (pollsFound polls) (reverse rest)
      putEvents buffer capacity some
  where
    ring = pollsRing polls
    takeAll n
      | n < 0 = pure n
      | otherwise = do
          for_ [0 .. n - 1] (completion polls)
          if n == Ring.eventsAtOnce then Ring.turn ring >>= takeAll else pure n

-- | Cancel what is not wanted, and ask for what is not asked for. False if there was no room for all.
handOver :: Polls -> IO Bool
handOver polls = do
  unwanted <- readIORef (pollsUnwanted polls) >>= whileRoom (`Ring.cancelOne` pollsRing polls)
  writeIORef (pollsUnwanted polls) unwanted
  unasked <- readIORef (pollsUnasked polls) >>= whileRoom (ask polls) . IntSet.toList
  writeIORef (pollsUnasked polls) $! IntSet.fromDistinctAscList unasked
  pure (null unwanted && null unasked)
  where
    whileRoom submit = \case
      [] -> pure []
      left@(x : rest) -> submit x >>= \went -> if went then whileRoom submit rest else pure left

-- | Ask for a number, if it is still watched. False if there was no room.
ask :: Polls -> Int -> IO Bool
ask polls number = do
  watches <- readIORef (pollsByNumber polls)
  case IntMap.lookup number watches of
    Just w@Polled {polledFlight = Nothing} -> do
      events <- Sys.pollEvents (interestBits (polledInterest w))
      flight <- Slots.insert (pollsFlights polls) (fromIntegral number)
      went <- Ring.submit Ring.AwaitEvents (fromIntegral number) nullPtr 0 0 events (pollsRing polls) flight
      went
        <$ if went
          then writeIORef (pollsByNumber polls) $! IntMap.insert number w {polledFlight = Just flight} watches
          else Slots.remove (pollsFlights polls) flight
    _ -> pure True

-- | Handle the completion with this index.
completion :: Polls -> Int -> IO ()
completion polls i = Ring.event (pollsRing polls) i \case
  Ring.Completed flight r -> completed polls flight r
  _ -> pure ()

completed :: Polls -> SlotKey -> Int -> IO ()
completed polls flight r =
  Slots.take (pollsFlights polls) flight >>= mapM_ \number -> do
    let key = fromIntegral number
        change f = modifyIORef' (pollsByNumber polls) (IntMap.alter f key)
        found w events = modifyIORef' (pollsFound polls) ((polledKey w, events) :)
        again w = do
          change (const (Just w {polledFlight = Nothing}))
          modifyIORef' (pollsUnasked polls) (IntSet.insert key)
    watches <- readIORef (pollsByNumber polls)
    for_ (IntMap.lookup key watches) \w ->
      when (polledFlight w == Just flight) $
        if
          | r >= 0 -> do
              bits <- Sys.pollBits r
              found w (Events (fromIntegral bits))
              if polledTrigger w == Once then change (const Nothing) else again w
          | r == Sys.failureCode eBADF -> found w invalid >> change (const Nothing)
          | otherwise -> again w

-- | Have the kernel give back the files that it holds, and close the ring.
release :: Polls -> IO ()
release polls = do
  Ring.quiesce (pollsRing polls)
  writeIORef (pollsByNumber polls) IntMap.empty
  settle (100 :: Int)
  Ring.close (pollsRing polls)
  where
    -- To cancel takes microseconds; what the kernel has not done by then it does later.
    settle rounds = do
      flying <- Slots.size (pollsFlights polls)
      unless (flying == 0 || rounds == 0) do
        void (Ring.cancelAll (pollsRing polls))
        n <- Ring.wait (pollsRing polls) 10_000_000
        for_ [0 .. n - 1] (completion polls)
        settle (rounds - 1)
