{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | A completion-shaped event source on top of a readiness source. The portable front end: a
-- 'Backend' out of a 'Poller'. An operation on a stream goes to
-- "Weft.Internal.Backend.Readiness.Stream", one on a file to the pool
-- ("Weft.Internal.Backend.Readiness.Jobs"). The division into a front end and small pollers is that
-- of GHC's own event manager (O'Sullivan and Tibell 2010).
module Weft.Internal.Backend.Readiness (newReadiness) where

import Control.Exception (onException)
import Control.Monad (foldM, unless, void, when)
import Data.IORef
import Data.IntMap.Strict qualified as IntMap
import Data.Primitive.PrimVar (newPrimVar, readPrimVar, writePrimVar)
import Foreign.Marshal.Alloc (free)
import Foreign.Storable (peekElemOff)
import Weft.Internal.Backend
import Weft.Internal.Backend.Readiness.Foreign
import Weft.Internal.Backend.Readiness.Jobs
import Weft.Internal.Backend.Readiness.Leaving
import Weft.Internal.Backend.Readiness.Poller
import Weft.Internal.Backend.Readiness.Source
import Weft.Internal.Backend.Readiness.Stream
import Weft.Internal.Backend.Readiness.Table
import Weft.Internal.Backend.Wakeup
import Weft.Internal.Data.Buckets (newBuckets)
import Weft.Internal.Data.Conditional
import Weft.Internal.Os.Descriptor (Descriptor (..))
import Weft.Internal.Os.Pool (Pool)
import Weft.Internal.Os.Sys qualified as Sys

-- | A backend on a new poller. File operations run in the pool and come back through the post.
newReadiness :: IO Poller -> Pool -> Post -> IO (Backend w)
newReadiness source pool post =
  source >>= \poller -> flip onException (pollerFree poller) do
    table <- newTable
    wakeup <- watchedWakeup poller (pollerTrigger poller) newWakeup
    numbers <- newPrimVar 0
    deliveries <- newIORef []
    jobs <- newIORef IntMap.empty
    closing <- newIORef IntMap.empty
    foreignNumbers <- newBuckets
    events <- newBuffer 256 >>= newIORef
    next <- newPrimVar 0
    end <- newPrimVar 0
    isShut <- newIORef False
    let src = Source poller table wakeup pool post numbers deliveries jobs closing foreignNumbers events next end isShut
    pure
      Backend
        { backendName = pollerName poller,
          submit = submitTo src,
          cancel = cancelIn src,
          stand = standWaiter src,
          poll = pollOnce src,
          wake = wakeUp wakeup,
          forget = forgetIn src,
          visit = visitSource src,
          pendingTokens = tokensOf src,
          -- Registrations, jobs and the event counter belong to the process.
          adopt = pure (),
          shutdown = shutdownSource src
        }

-- | 'submit' of a readiness backend.
submitTo :: Source w -> Operation -> Completion w -> IO Answer
submitTo src op done = case op of
  Receive d _ _ -> onStream src Reading d op done
  Send d _ _ -> onStream src Writing d op done
  ReceiveMessage d _ -> onStream src Reading d op done
  SendMessage d _ -> onStream src Writing d op done
  Accept d _ _ -> onStream src Reading d op done
  Connect d _ _ -> onStream src Writing d op done
  AwaitReadable d -> onStream src Reading d op done
  AwaitWritable d -> onStream src Writing d op done
  AwaitReadableFd n -> awaitForeign src Reading n op done
  AwaitWritableFd n -> awaitForeign src Writing n op done
  ReadStream d _ _ -> onStream src Reading d op done
  WriteStream d _ _ -> onStream src Writing d op done
  SendFile d _ _ _ -> onStream src Writing d op done
  ReadAt d p n offset -> onFile src d op done (Sys.readAt (descriptorNumber d) p n offset)
  WriteAt d p n offset -> onFile src d op done (Sys.writeAt (descriptorNumber d) p n offset)
  Sync d dataOnly -> onFile src d op done (Sys.sync (descriptorNumber d) (fromEnum dataOnly))
  OpenAt dir path flags mode resolve -> inPool src [] op done (Sys.openAt dir path flags mode resolve)
  StatAt dir path flags mask buffer -> inPool src [] op done (Sys.statAt dir path flags mask buffer)

-- Functions of their own: as local ones they would be closures that every call allocates.

onStream :: Source w -> Direction -> Descriptor -> Operation -> Completion w -> IO Answer
onStream src direction d op done = withSlot src d \slot -> submitStream src slot direction (descriptorNumber d) op done

onFile :: Source w -> Descriptor -> Operation -> Completion w -> IO Int -> IO Answer
onFile src d op done system = withSlot src d \_ -> inPool src [d] op done system

inPool :: Source w -> [Descriptor] -> Operation -> Completion w -> IO Int -> IO Answer
inPool src descriptors op done system = do
  key <- nextSequence src
  started <- startJob src key Whole descriptors op done system \job r ->
    enqueue src (Complete (jobOperation job) (jobCompletion job) r)
  pure if started then pending (jobToken key) else Sys.canceled

-- | 'cancel' of a readiness backend.
cancelIn :: Source w -> Token -> IO ()
cancelIn src token
  | partInPool parts = withdrawJob src (partSequence parts)
  | otherwise = cancelForeign src parts >>= \found -> unless found (cancelWaiter src parts)
  where
    parts = tokenParts token

-- Note [Events in portions]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~
-- With a thousand connections one look finds hundreds of events. If all were handled at once, all their
-- receives would come first and all their sends long after, when nothing of the connection is in the
-- processor's near memory any more. So a poll handles a portion, the threads that it makes ready run,
-- and the next poll goes on where this one stopped.
--
-- An event that waits in our memory is to Note [No wake-up is lost] one that was not collected yet: it
-- finds the flags, the waiters and the serial of the moment in which it is handled. Nothing blocks
-- while there is one.

-- | How many events are handled in one poll.
portion :: Int
portion = 16

-- | 'poll' of a readiness backend.
pollOnce :: Source w -> PollLimit -> IO Int
pollOnce src limit = do
  delivered <- deliverAll src
  next <- readPrimVar (sourceNext src)
  end <- readPrimVar (sourceEnd src)
  if next < end
    then do
      ran <- handleSome src next end
      -- Perhaps no operation waited for these.
      if delivered + ran > 0 then pure (delivered + ran) else pollOnce src limit
    else do
      n <- collect src (if delivered > 0 then noWait else limit)
      writePrimVar (sourceEnd src) n
      (delivered +) <$> handleSome src 0 n

-- | Have the poller fill the buffer; all that was in it is handled.
collect :: Source w -> PollLimit -> IO Int
collect src limit = do
  found <- readPrimVar (sourceEnd src)
  enlarge found (sourceEvents src)
  EventBuffer buffer capacity <- readIORef (sourceEvents src)
  let look = pollerLook poller buffer capacity
  Sys.throwFailure ("wait for " <> pollerName poller) $
    if limit == noWait
      then look
      else blockUnlessWoken (sourceWakeup src) (pollerWait poller buffer capacity limit) look
  where
    poller = sourcePoller src

-- | Handle a portion of these events.
handleSome :: Source w -> Int -> Int -> IO Int
handleSome src from end = do
  EventBuffer buffer _ <- readIORef (sourceEvents src)
  let to = min end (from + portion)
      go !i !ran
        | i == to = pure ran
        | otherwise = do
            key <- Key <$> peekElemOff buffer (2 * i)
            bits <- fromIntegral <$> peekElemOff buffer (2 * i + 1)
            more <- event key bits
            go (i + 1) (ran + more)
  -- First, because an exception on the way must not have them handled twice.
  writePrimVar (sourceNext src) to
  go from 0
  where
    event key bits
      | keySerial key == foreignSerial =
          if key == wakeupKey (sourceWakeup src)
            then 0 <$ drainWakeup (sourceWakeup src)
            else wakeForeign src (keyNumber key) bits
      | otherwise =
          existingSlot (sourceTable src) (keyNumber key) >>= \case
            Nothing -> pure 0
            Just slot -> do
              alone <- standsAlone slot (keySerial key)
              if alone && isReadable bits then wakeStanding src slot (keyNumber key) else others key bits slot
    others key bits slot = do
      phase <- slotPhase slot
      serial <- slotSerial slot
      -- One of a descriptor that is gone can still be reported while a forked process holds its file.
      if phase == Occupied && serial == keySerial key
        then wakeSlot src slot (keyNumber key) bits
        else pure 0

-- | 'forget' of the backend. Final: the backend refuses the descriptor from now on.
forgetIn :: Source w -> Descriptor -> IO () -> IO ()
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

-- | 'visit' of the backend. An operation is in a slot, among the foreign ones, in the pool, or over and
-- not yet said.
visitSource :: Source w -> (Operation -> w -> r -> IO r) -> r -> IO r
visitSource src f z =
  foldSlots (foldSlotWaiters onWaiter) z (sourceTable src) >>= inForeign >>= inJobs >>= inDeliveries
  where
    onWaiter _ w = f (waiterOperation w) (completionFor (waiterCompletion w))
    inForeign acc = foreigners src >>= foldM (\before (Foreigner direction w) -> onWaiter direction w before) acc
    inJobs acc = do
      jobs <- readIORef (sourceJobs src)
      IntMap.foldr (\job next !a -> onJob job a >>= next) pure jobs acc
    onJob job = f (jobOperation job) (completionFor (jobCompletion job))
    inDeliveries acc = readIORef (sourceDeliveries src) >>= onDeliveries acc
    onDeliveries !acc = \case
      [] -> pure acc
      Complete op done _ : rest -> f op (completionFor done) acc >>= (`onDeliveries` rest)
      Finish _ : rest -> onDeliveries acc rest

-- | 'pendingTokens' of a readiness backend. An operation that is over has no valid token.
tokensOf :: Source w -> (w -> Bool) -> IO [Token]
tokensOf src wanted = do
  waiting <- foldSlots (foldSlotWaiters token) [] (sourceTable src)
  jobs <- readIORef (sourceJobs src)
  foreign' <- foreignTokens src wanted
  pure ([jobToken key | (key, job) <- IntMap.toList jobs, wanted (completionFor (jobCompletion job))] <> foreign' <> waiting)
  where
    numberOf = \case
      AwaitReadableFd n -> Just n
      AwaitWritableFd n -> Just n
      op -> descriptorNumber <$> streamOf op
    token direction w found =
      pure $ case numberOf (waiterOperation w) of
        Just number | wanted (completionFor (waiterCompletion w)) -> streamToken (waiterSequence w) number direction : found
        _ -> found

-- | 'shutdown' of the backend. Every operation that is pending completes, from inside this call.
shutdownSource :: Source w -> IO ()
shutdownSource src =
  unlessM (readIORef (sourceIsShut src)) do
    writeIORef (sourceIsShut src) True
    foldSlots (\slot () -> void (cancelWaiters src slot)) () (sourceTable src)
    cancelForeigners src
    stopJobs src
    _ <- deliverAll src
    freeWakeup (sourceWakeup src)
    pollerFree (sourcePoller src)
    EventBuffer buffer _ <- readIORef (sourceEvents src)
    free buffer
