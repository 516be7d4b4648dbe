{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Which stack runs next
--
-- A HEC that finds none ready goes over to its scheduler stack, which looks for events, and waits for them or
-- sleeps. (Li 2008, section 5.2.2.)
module Weft.ConcLib.Internal.Scheduler
  ( Library (..),
    newLibrary,

    -- * Running
    schedule,
    collectAll,
    ending,

    -- * In transactions
    next,
    nextAfter,
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
import Weft.ConcLib.Internal.Ready
import Weft.Substrate
import Weft.Substrate.Internal.Takeover (unwatched)
import Weft.Substrate.Internal.Transaction (unsafeIOToPTM)

-- | The state that the threads of one run share.
data Library = Library
  { libraryReady :: !Ready,
    -- | The stack of each HEC that sleeps in its place.
    librarySchedulers :: !(PVar (Map HEC StackId)),
    -- | Has the main thread ended?
    libraryOver :: !(PVar Bool),
    libraryPoller :: !Poller,
    -- | How often a HEC went from a thread to the next. Written by all without care: it only says
    -- when it is time to look for events.
    librarySwitches :: !(MutableByteArray RealWorld)
  }

newLibrary :: Collecting -> IO Library
newLibrary collecting = do
  switches <- newByteArray 8
  writeByteArray switches 0 (0 :: Int)
  poller <- newPoller
  ready <- newReady collecting (kick poller)
  schedulers <- newPVarIO Map.empty
  over <- newPVarIO False
  pure (Library ready schedulers over poller switches)

-- Running ------------------------------------------------------------------------------------

-- | The scheduler stack of a HEC, until the main thread has ended: enter a ready thread,
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
    ready = libraryReady library
    go chosen = do
      when (readyCollecting ready == ByScheduler) (look (libraryPoller library))
      switch $ do
        unsafeIOToPTM (writeIORef chosen False)
        readPVar (libraryOver library) >>= \case
          True -> getStackId
          False ->
            readPVar (readyStacks ready) >>= \q -> case pop q of
              Just (t, rest) -> t <$ writePVar (readyStacks ready) rest
              Nothing -> do
                h <- getHEC
                Resting idle collector <- readPVar (readyResting ready)
                events <-
                  if collector == Nobody && readyCollecting ready == ByScheduler
                    then hasEvents (libraryPoller library)
                    else pure False
                if events
                  then do
                    writePVar (readyResting ready) (Resting (filter (/= h) idle) Waits)
                    unsafeIOToPTM (writeIORef chosen True)
                    getStackId
                  else do
                    unless (h `elem` idle) (writePVar (readyResting ready) (Resting (h : idle) collector))
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
  unwatched . collect (libraryPoller library) . atomicPTM $
    readPVar resting >>= \case
      Resting (h : idle) Kicked -> writePVar resting (Resting idle Nobody) >> wakeupHEC h
      Resting idle _ -> writePVar resting (Resting idle Nobody)
  where
    resting = readyResting (libraryReady library)

-- | The loop of a HEC that collects events only, until the main thread has ended.
collectAll :: Library -> IO ()
collectAll library = do
  over <- newIORef False
  atomicPTM $ do
    ended <- readPVar (libraryOver library)
    unsafeIOToPTM (writeIORef over ended)
    unless ended $ do
      Resting idle _ <- readPVar (readyResting (libraryReady library))
      writePVar (readyResting (libraryReady library)) (Resting idle Waits)
  ended <- readIORef over
  unless ended (collectOnce library >> collectAll library)

-- | The stack that runs next on this HEC.
next :: Library -> PTM StackId
next library = do
  due <- isDue library
  q <- readPVar (readyStacks (libraryReady library))
  case pop q of
    Just (t, rest) | not due -> t <$ writePVar (readyStacks (libraryReady library)) rest
    _ -> scheduler library

-- | The stack that runs next where one, which is ready, lets others run: itself if it is alone.
nextAfter :: Library -> StackId -> PTM StackId
nextAfter library here = do
  due <- isDue library
  q <- readPVar (readyStacks (libraryReady library))
  case pop q of
    _ | due -> (writePVar (readyStacks (libraryReady library)) $! push q here) >> scheduler library
    Nothing -> pure here
    Just (t, rest) -> t <$ (writePVar (readyStacks (libraryReady library)) $! push rest here)
{-# INLINE nextAfter #-}

-- | The scheduler stack of this HEC.
scheduler :: Library -> PTM StackId
scheduler library = do
  h <- getHEC
  (Map.! h) <$> readPVar (librarySchedulers library)

-- | Is it the scheduler stack's turn? It ends the run, and looks for events, once in 64 times where no HEC of its own
-- does that. An old answer to whether the run is over is that of a moment ago, so it is no read of the transaction.
isDue :: Library -> PTM Bool
isDue library = unsafeIOToPTM $ do
  over <- readPVarIO (libraryOver library)
  if over || readyCollecting (libraryReady library) == ByOwnHEC
    then pure over
    else do
      n <- readByteArray (librarySwitches library) 0 :: IO Int
      writeByteArray (librarySwitches library) 0 (n + 1)
      pure (n .&. 63 == 63)
{-# INLINE isDue #-}

-- | The main thread has ended: so do the scheduler stacks.
ending :: Library -> PTM ()
ending library = do
  writePVar (libraryOver library) True
  Resting idle _ <- readPVar (readyResting (libraryReady library))
  mapM_ wakeupHEC idle
  kickCollector (libraryReady library)
