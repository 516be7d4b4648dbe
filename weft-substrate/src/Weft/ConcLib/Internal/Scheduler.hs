{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Which stack runs next
--
-- One queue of ready stacks for all HECs of a run. A HEC that finds it empty goes over to its
-- scheduler stack, which looks for events, and waits for them or sleeps. (Li 2008, section 5.2.2.)
module Weft.ConcLib.Internal.Scheduler
  ( Library (..),
    Collecting (..),
    newLibrary,

    -- * Running
    schedule,
    collectAll,
    ending,

    -- * In transactions
    enqueue,
    next,
    nextAfter,
    kickCollector,
  )
where

import Control.Monad (unless, when)
import Data.Bits ((.&.))
import Data.IORef (newIORef, readIORef, writeIORef)
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Primitive.ByteArray (MutableByteArray, newByteArray, readByteArray, writeByteArray)
import GHC.Exts (RealWorld)
import Weft.ConcLib.Internal.Poller
import Weft.ConcLib.Internal.Queue
import Weft.Substrate
import Weft.Substrate.Internal.Transaction (unsafeIOToPTM)

-- | What the threads of one run share.
data Library = Library
  { libraryReady :: !(PVar (Queue StackId)),
    libraryResting :: !(PVar Resting),
    -- | The stack of each HEC that sleeps in its place.
    librarySchedulers :: !(PVar (Map HEC StackId)),
    -- | Has the main thread ended?
    libraryOver :: !(PVar Bool),
    libraryPoller :: !Poller,
    libraryCollecting :: !Collecting,
    -- | How often a HEC went from a thread to the next. Written by all without care: it only says
    -- when it is time to look for events.
    librarySwitches :: !(MutableByteArray RealWorld)
  }

-- | What collects the events of descriptors, time and the disk.
data Collecting
  = -- | The scheduler stacks: each now and then, and one that has nothing to do waits for them.
    ByScheduler
  | -- | A HEC of its own, which does nothing else. (Li 2008, section 5.2.2.)
    ByOwnHEC
  deriving stock (Eq, Show)

-- | The HECs that sleep because nothing is ready, and whether one waits for events.
data Resting = Resting ![HEC] !Collector

-- | See Note [Waiting for events].
data Collector = Nobody | Waits | Kicked
  deriving stock (Eq)

newLibrary :: Collecting -> IO Library
newLibrary collecting = do
  switches <- newByteArray 8
  writeByteArray switches 0 (0 :: Int)
  Library
    <$> newPVarIO empty
    <*> newPVarIO (Resting [] Nobody)
    <*> newPVarIO Map.empty
    <*> newPVarIO False
    <*> newPoller
    <*> pure collecting
    <*> pure switches

-- Running ------------------------------------------------------------------------------------

-- | What the scheduler stack of a HEC does until the main thread has ended: enter a ready thread,
-- and sleep, or wait for events, while none is.
schedule :: Library -> IO ()
schedule library = do
  atomicPTM $ do
    h <- getHEC
    me <- getStackId
    readPVar (librarySchedulers library) >>= writePVar (librarySchedulers library) . Map.insert h me
  chosen <- newIORef False
  go chosen
  where
    go chosen = do
      when (libraryCollecting library == ByScheduler) (look (libraryPoller library))
      switch $ do
        unsafeIOToPTM (writeIORef chosen False)
        readPVar (libraryOver library) >>= \case
          True -> getStackId
          False ->
            dequeue library >>= \case
              Just t -> pure t
              Nothing -> do
                h <- getHEC
                Resting idle collector <- readPVar (libraryResting library)
                events <-
                  if collector == Nobody && libraryCollecting library == ByScheduler
                    then hasEvents (libraryPoller library)
                    else pure False
                if events
                  then do
                    writePVar (libraryResting library) (Resting (filter (/= h) idle) Waits)
                    unsafeIOToPTM (writeIORef chosen True)
                    getStackId
                  else do
                    unless (h `elem` idle) (writePVar (libraryResting library) (Resting (h : idle) collector))
                    sleepHEC
      collects <- readIORef chosen
      when collects (collectOnce library)
      over <- readPVarIO (libraryOver library)
      unless over (go chosen)

-- Note [Waiting for events]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~
-- One HEC at a time waits for events. It has said so (`Waits`) in the transaction that found no thread
-- ready: from then on a thread that makes another ready while no HEC sleeps, or begins a timer that is
-- now the first, says `Kicked`, and kicks once that is committed. A kick that comes before the wait is
-- kept by its descriptor, and only the HEC that waits takes it from there. The deadline is read after the
-- transaction, so an earlier one that is added later kicks.
--
-- Until the HEC is back no other may wait: two waiting HECs could take each other's kicks. One
-- that has found nothing to do meanwhile sleeps, so the HEC that comes back from a kick wakes it to wait
-- for events in its place.

-- | Wait for events, on the HEC that has said so.
collectOnce :: Library -> IO ()
collectOnce library =
  collect (libraryPoller library) . atomicPTM $
    readPVar (libraryResting library) >>= \case
      Resting (h : idle) Kicked -> writePVar (libraryResting library) (Resting idle Nobody) >> wakeupHEC h
      Resting idle _ -> writePVar (libraryResting library) (Resting idle Nobody)

-- | What a HEC does that collects events only, until the main thread has ended.
collectAll :: Library -> IO ()
collectAll library = do
  over <- newIORef False
  atomicPTM $ do
    ended <- readPVar (libraryOver library)
    unsafeIOToPTM (writeIORef over ended)
    unless ended $ do
      Resting idle _ <- readPVar (libraryResting library)
      writePVar (libraryResting library) (Resting idle Waits)
  ended <- readIORef over
  unless ended (collectOnce library >> collectAll library)

-- | Make the HEC that waits for events, if one does, look again.
kickCollector :: Library -> PTM ()
kickCollector library =
  readPVar (libraryResting library) >>= \case
    Resting idle Waits -> do
      writePVar (libraryResting library) (Resting idle Kicked)
      afterCommit (kick (libraryPoller library))
    _ -> pure ()

dequeue :: Library -> PTM (Maybe StackId)
dequeue library =
  readPVar (libraryReady library) >>= \q -> case pop q of
    Just (t, rest) -> Just t <$ writePVar (libraryReady library) rest
    Nothing -> pure Nothing
{-# INLINE dequeue #-}

-- | A stack can run. Wakes a HEC that has nothing to do.
enqueue :: Library -> StackId -> PTM ()
enqueue library t = do
  q <- readPVar (libraryReady library)
  writePVar (libraryReady library) $! push q t
  readPVar (libraryResting library) >>= \case
    Resting (h : hs) collector -> writePVar (libraryResting library) (Resting hs collector) >> wakeupHEC h
    Resting [] Waits | libraryCollecting library == ByScheduler -> kickCollector library
    Resting [] _ -> pure ()
{-# INLINE enqueue #-}

-- | The stack that runs next on this HEC: now and then its scheduler stack, which looks for events and for the end.
next :: Library -> PTM StackId
next library = do
  over <- readPVar (libraryOver library)
  toScheduler <- if over then pure True else isDue library
  ready <- if toScheduler then pure Nothing else dequeue library
  maybe (scheduler library) pure ready

-- | The scheduler stack of this HEC.
scheduler :: Library -> PTM StackId
scheduler library = do
  h <- getHEC
  (Map.! h) <$> readPVar (librarySchedulers library)

-- | Is it time to look for events? Once in 64 times. Where a HEC of its own does that, only the end is looked for.
isDue :: Library -> PTM Bool
isDue library
  | libraryCollecting library == ByOwnHEC = readPVar (libraryOver library)
  | otherwise = unsafeIOToPTM $ do
      n <- readByteArray (librarySwitches library) 0 :: IO Int
      writeByteArray (librarySwitches library) 0 (n + 1)
      pure (n .&. 63 == 63)
{-# INLINE isDue #-}

-- | The stack that runs next where one, which is ready, lets others run: itself if it is alone.
nextAfter :: Library -> StackId -> PTM StackId
nextAfter library here = do
  q <- readPVar (libraryReady library)
  due <- isDue library
  case pop q of
    _ | due -> (writePVar (libraryReady library) $! push q here) >> scheduler library
    Nothing -> pure here
    Just (t, rest) -> t <$ (writePVar (libraryReady library) $! push rest here)
{-# INLINE nextAfter #-}

-- | The main thread has ended: so do the scheduler stacks.
ending :: Library -> PTM ()
ending library = do
  writePVar (libraryOver library) True
  Resting idle _ <- readPVar (libraryResting library)
  mapM_ wakeupHEC idle
  kickCollector library
