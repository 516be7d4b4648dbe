{-# LANGUAGE BlockArguments #-}
{-# LANGUAGE MultiWayIf #-}
{-# OPTIONS_GHC -O2 #-}

-- |
-- Description : A completion-shaped event source on top of a readiness source
-- Stability   : not home
--
-- The portable front end: it makes a 'Backend' out of a 'Poller'. An operation
-- on a stream goes to "Weft.Internal.Backend.Readiness.Stream", one on a file to
-- the pool ("Weft.Internal.Backend.Readiness.Jobs"). This module is called by the worker that owns the backend (but for 'wake').
-- The division into a front end and small pollers is that of GHC's own event
-- manager (O'Sullivan and Tibell 2010).
module Weft.Internal.Backend.Readiness
  ( newReadiness,
  )
where

import Control.Monad (unless, when)
import Data.IORef
import Data.IntMap.Strict qualified as IntMap
import Data.Primitive.PrimVar (newPrimVar)
import Data.Word (Word64)
import Foreign.Marshal.Alloc (free, mallocBytes)
import Foreign.Ptr (Ptr)
import Foreign.Storable (peekElemOff)
import Weft.Internal.Backend
import Weft.Internal.Backend.Readiness.Jobs
import Weft.Internal.Backend.Readiness.Poller
import Weft.Internal.Backend.Readiness.Source
import Weft.Internal.Backend.Readiness.Stream
import Weft.Internal.Backend.Readiness.Table
import Weft.Internal.Backend.Wakeup
import Weft.Internal.Pool (Pool)
import Weft.Internal.Sys qualified as Sys

-- | A backend on a poller. File operations run in the pool and come back
-- through the post.
newReadiness :: Poller -> Pool -> Post -> IO Backend
newReadiness poller pool post = do
  table <- newTable
  wakeup <- newWakeup
  _ <-
    Sys.throwFailure "watch a wake-up" $
      pollerWatch poller (wakeupDescriptor wakeup) (wakeupKey wakeup) (interestIn Reading)
  numbers <- newPrimVar 0
  deliveries <- newIORef []
  jobs <- newIORef IntMap.empty
  closing <- newIORef IntMap.empty
  events <- newEvents 256 >>= newIORef
  isShut <- newIORef False
  let src = Source poller table wakeup pool post numbers deliveries jobs closing events isShut
  pure
    Backend
      { backendName = pollerName poller,
        submit = submitTo src,
        cancel = cancelIn src,
        poll = pollOnce src,
        wake = wakeUp wakeup,
        forget = forgetIn src,
        shutdown = shutdownSource src
      }

-- The number alone would do while it is open; no descriptor is made of it.
wakeupKey :: Wakeup -> Key
wakeupKey w = makeKey (wakeupDescriptor w) 0

newEvents :: Int -> IO Events
newEvents capacity = (`Events` capacity) <$> mallocBytes (16 * capacity)

-- | As of 'submit'.
submitTo :: Source -> Operation -> Completion -> IO Answer
submitTo src op done = case op of
  Receive d _ _ -> onStream src Reading d op done
  Send d _ _ -> onStream src Writing d op done
  ReceiveMessage d _ -> onStream src Reading d op done
  SendMessage d _ -> onStream src Writing d op done
  Accept d _ _ -> onStream src Reading d op done
  Connect d _ _ -> onStream src Writing d op done
  AwaitReadable d -> onStream src Reading d op done
  AwaitWritable d -> onStream src Writing d op done
  ReadStream d _ _ -> onStream src Reading d op done
  WriteStream d _ _ -> onStream src Writing d op done
  SendFile d _ _ _ -> onStream src Writing d op done
  ReadAt d p n offset -> onFile src d done (Sys.readAt (descriptorNumber d) p n offset)
  WriteAt d p n offset -> onFile src d done (Sys.writeAt (descriptorNumber d) p n offset)
  Sync d dataOnly -> onFile src d done (Sys.sync (descriptorNumber d) (fromEnum dataOnly))
  OpenAt dir path flags mode resolve -> inPool src [] done (Sys.openAt dir path flags mode resolve)
  StatAt dir path flags mask buffer -> inPool src [] done (Sys.statAt dir path flags mask buffer)

-- Functions of their own and not local ones: as local functions they are closures
-- that every call allocates, whichever of them it uses.

onStream :: Source -> Direction -> Descriptor -> Operation -> Completion -> IO Answer
onStream src direction d op done = withSlot src d \slot -> submitStream src slot direction d op done

onFile :: Source -> Descriptor -> Completion -> IO Int -> IO Answer
onFile src d done system = withSlot src d \_ -> inPool src [d] done system

inPool :: Source -> [Descriptor] -> Completion -> IO Int -> IO Answer
inPool src descriptors done system = do
  key <- nextSequence src
  started <- startJob src key Whole descriptors done system \job r ->
    enqueue src (Complete (jobCompletion job) r)
  pure if started then pending (jobToken key) else Sys.canceled

-- | As of 'cancel'.
cancelIn :: Source -> Token -> IO ()
cancelIn src token
  | partInPool parts = withdrawJob src (partSequence parts)
  | otherwise = cancelWaiter src parts
  where
    parts = tokenParts token

-- | As of 'poll'.
pollOnce :: Source -> Timeout -> IO Int
pollOnce src limit = do
  delivered <- deliverAll src
  Events buffer capacity <- readIORef (sourceEvents src)
  let look = pollerLook poller buffer capacity
  n <-
    Sys.throwFailure ("wait for " <> pollerName poller) $
      if limit == noWait || delivered > 0
        then look
        else blockUnlessWoken (sourceWakeup src) (pollerWait poller buffer capacity limit) look
  ran <- dispatch src buffer n
  when (n == capacity && capacity < mostEvents) $ moreEvents src
  pure (delivered + ran)
  where
    poller = sourcePoller src

-- | Run what each of so many events brings about.
dispatch :: Source -> Ptr Word64 -> Int -> IO Int
dispatch src buffer n = go 0 0
  where
    go !i !ran
      | i == n = pure ran
      | otherwise = do
          key <- Key <$> peekElemOff buffer (2 * i)
          bits <- fromIntegral <$> peekElemOff buffer (2 * i + 1)
          more <- event key bits
          go (i + 1) (ran + more)
    event key bits
      | key == wakeupKey (sourceWakeup src) = 0 <$ drainWakeup (sourceWakeup src)
      | otherwise =
          existingSlot (sourceTable src) (keyNumber key) >>= \case
            Nothing -> pure 0
            Just slot -> do
              phase <- slotPhase slot
              serial <- slotSerial slot
              -- An event of a descriptor that is gone can still be reported
              -- while a forked process holds its open file.
              if phase == Occupied && serial == keySerial key
                then wakeSlot src slot (keyNumber key) bits
                else pure 0

-- | A full buffer means that there may be more: twice the room for next time.
moreEvents :: Source -> IO ()
moreEvents src = do
  Events buffer capacity <- readIORef (sourceEvents src)
  newEvents (2 * capacity) >>= writeIORef (sourceEvents src)
  free buffer

mostEvents :: Int
mostEvents = 16_384

-- | As of 'forget'. Final: the backend refuses the descriptor from now on.
forgetIn :: Source -> Descriptor -> IO () -> IO ()
forgetIn src d action =
  slotOf src d >>= \case
    Nothing -> action
    Just slot -> do
      registration <- readRegistration slot
      when (registration /= Unregistered) $ pollerRemove (sourcePoller src) (descriptorNumber d)
      waited <- cancelWaiters src slot
      before <- readJobs slot
      withdrawn <- if before == 0 then pure 0 else withdrawJobsOf src d
      begun <- readJobs slot
      vacateSlot slot
      if
        | begun > 0 -> closeAfterJobs src d (Closing begun action)
        | waited + withdrawn > 0 -> enqueue src (Finish action)
        | otherwise -> action

-- | As of 'shutdown'. Every operation that is pending completes, from inside
-- this call.
shutdownSource :: Source -> IO ()
shutdownSource src = do
  isShut <- readIORef (sourceIsShut src)
  unless isShut do
    writeIORef (sourceIsShut src) True
    allSlots (sourceTable src) >>= mapM_ (cancelWaiters src)
    stopJobs src
    _ <- deliverAll src
    freeWakeup (sourceWakeup src)
    pollerFree (sourcePoller src)
    Events buffer _ <- readIORef (sourceEvents src)
    free buffer
