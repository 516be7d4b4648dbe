{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | A completion-shaped event source on top of a readiness source. The portable front end: a
-- 'Backend' out of a 'Poller'. An operation on a stream goes to
-- "Weft.Internal.Backend.Readiness.Stream", one on a file to the pool
-- ("Weft.Internal.Backend.Readiness.Jobs"). The division into a front end and small pollers is that
-- of GHC's own event manager (O'Sullivan and Tibell 2010).
module Weft.Internal.Backend.Readiness (newReadiness) where

import Control.Monad (unless, void, when)
import Data.Foldable (for_)
import Data.IORef
import Data.IntMap.Strict qualified as IntMap
import Weft.Internal.Backend
import Weft.Internal.Backend.Readiness.Collector
import Weft.Internal.Backend.Readiness.Foreign
import Weft.Internal.Backend.Readiness.Jobs
import Weft.Internal.Backend.Readiness.Poller
import Weft.Internal.Backend.Readiness.Source
import Weft.Internal.Backend.Readiness.Stream
import Weft.Internal.Backend.Readiness.Table
import Weft.Internal.Backend.Wakeup (wakeUp)
import Weft.Internal.Data.Conditional
import Weft.Internal.Os.Descriptor (Descriptor (..))
import Weft.Internal.Os.Pool (Pool)
import Weft.Internal.Os.Sys qualified as Sys

-- | A backend on a new poller. File operations run in the pool and come back through the post.
newReadiness :: IO Poller -> Pool -> Post -> IO (Backend w)
newReadiness source pool post = do
  src <- newSource source pool post
  pure
    Backend
      { backendName = pollerName (sourcePoller src),
        submit = submitTo src,
        cancel = cancelIn src,
        stand = standWaiter src,
        poll = pollOnce src,
        wake = wakeUp (collectorWakeup (sourceCollector src)),
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
  | partInPool parts = withdrawJob src key
  | otherwise =
      existingSlot (sourceTable src) number >>= mapM_ \slot ->
        standing slot >>= \case
          Standing _ _ w | direction == Reading, waiterSequence w == key -> leavePlace slot >> completeLater src Sys.canceled w
          _ -> do
            ws <- readWaiters slot direction
            case takeWaiter key ws of
              -- Perhaps it is on its way through the pool.
              Nothing -> withdrawJob src key
              Just (w, rest) -> do
                writeWaiters slot direction rest
                phase <- slotPhase slot
                if phase == Occupied
                  then settle src slot number
                  else -- A poller that reports once may report too much: 'wakeForeign' tells it again.
                    unless (pollerHasOnce (sourcePoller src)) $ void (settleForeign src slot number)
                completeLater src Sys.canceled w
  where
    parts = tokenParts token
    key = partSequence parts
    number = partNumber parts
    direction = partDirection parts

-- | Cancel all that wait on a slot; answers how many there were.
cancelWaiters :: Source w -> Slot w -> IO Int
cancelWaiters src slot = do
  ws <- allWaiters slot
  for_ [Reading, Writing] \direction -> writeWaiters slot direction NoWaiter
  leavePlace slot
  mapM_ (completeLater src Sys.canceled) ws
  pure (length ws)

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
  left <- hasEvents (sourceCollector src)
  unless left . void $ collect (sourceCollector src) (if delivered > 0 then noWait else limit)
  ran <- handleSome src delivered
  -- Perhaps no operation waited for these.
  if left && ran == 0 then pollOnce src limit else pure ran

-- | Handle a portion of the events, after some completions.
handleSome :: Source w -> Int -> IO Int
handleSome src = go portion
  where
    go :: Int -> Int -> IO Int
    go 0 !ran = pure ran
    go n !ran = nextEvent (sourceCollector src) (pure ran) \key bits -> do
      more <- event key bits
      go (n - 1) (ran + more)
    event key bits =
      existingSlot (sourceTable src) (keyNumber key) >>= \case
        Nothing -> pure 0
        Just slot -> do
          alone <- standsAlone slot (keySerial key)
          if alone && isReadable bits then wakeStanding src slot (keyNumber key) else others key bits slot
    others key bits slot
      | keySerial key == foreignSerial = wakeForeign src slot (keyNumber key) bits
      | otherwise = do
          -- One of a descriptor that is gone can still be reported while a forked process holds its file.
          present <- slot `holds` keySerial key
          if present then wakeSlot src slot (keyNumber key) bits else pure 0

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

-- | 'visit' of the backend. An operation is in a slot, in the pool, or over and not yet said.
visitSource :: Source w -> (Operation -> w -> r -> IO r) -> r -> IO r
visitSource src f z =
  foldSlots (foldSlotWaiters onWaiter) z (sourceTable src) >>= inJobs >>= inDeliveries
  where
    onWaiter _ w = f (waiterOperation w) (completionFor (waiterCompletion w))
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
  pure ([jobToken key | (key, job) <- IntMap.toList jobs, wanted (completionFor (jobCompletion job))] <> waiting)
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
    stopJobs src
    _ <- deliverAll src
    freeCollector (sourceCollector src)
