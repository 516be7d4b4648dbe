{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | A completion-shaped event source on top of a readiness source: a 'Backend' out of a 'Poller'. An operation
-- on a stream goes to "Weft.Internal.Backend.Readiness.Stream", one on a file to the pool. The division into a front end and small pollers is that of
-- GHC's own event manager (O'Sullivan and Tibell 2010).
module Weft.Internal.Backend.Readiness (newReadiness) where

import Control.Monad (unless, void, when)
import Data.Bits ((.&.), (.|.))
import Data.Foldable (for_)
import Data.IORef
import Data.IntMap.Strict qualified as IntMap
import Data.Sequence (Seq (..), (|>))
import Data.Sequence qualified as Seq
import Data.Word (Word32)
import Foreign.C.Error (ePERM)
import Foreign.C.Types (CInt)
import Weft.Internal.Backend
import Weft.Internal.Backend.Readiness.Collector
import Weft.Internal.Backend.Readiness.Poller
import Weft.Internal.Backend.Readiness.Source
import Weft.Internal.Backend.Readiness.Stream
import Weft.Internal.Backend.Readiness.Table
import Weft.Internal.Backend.Wakeup (wakeUp)
import Weft.Internal.Data.Conditional
import Weft.Internal.Os.Descriptor (Descriptor (..))
import Weft.Internal.Os.Pool (Pool)
import Weft.Internal.Os.Sys (Result)
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
  Await direction d -> onStream src direction d op done
  AwaitFd direction n -> awaitForeign src direction n op done
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
  | isInPool token = withdrawJob src key
  | otherwise =
      existingSlot (sourceTable src) number >>= mapM_ \slot ->
        standing slot >>= \case
          Standing _ _ w | direction == Reading, waiterSequence w == key -> leavePlace slot >> completeLater src Sys.canceled w
          _ -> do
            ws <- readWaiters slot direction
            case Seq.breakl ((== key) . waiterSequence) ws of
              -- Perhaps it is on its way through the pool.
              (_, Empty) -> withdrawJob src key
              (before, w :<| later) -> do
                writeWaiters slot direction (before <> later)
                occupied <- isOccupied slot
                if occupied
                  then settle src slot number
                  else -- A poller that reports once may report too much: 'wakeForeign' tells it again.
                    unless (pollerHasOnce (sourcePoller src)) $ void (settleForeign src slot number)
                completeLater src Sys.canceled w
  where
    key = tokenSequence token
    number = tokenNumber token
    direction = tokenDirection token

-- | Cancel all that wait on a slot; answers how many there were.
cancelWaiters :: Source w -> Slot w -> IO Int
cancelWaiters src slot = do
  ws <- allWaiters slot
  for_ [Reading, Writing] \direction -> writeWaiters slot direction Empty
  leavePlace slot
  mapM_ (completeLater src Sys.canceled) ws
  pure (length ws)

-- Note [Events in portions]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~
-- With a thousand connections one look finds hundreds of events. If all were handled at once, their sends
-- would come long after their receives, when nothing of the connection is in the processor's near memory. So
-- a poll handles a portion, the threads that it makes ready run, and the next poll goes on from there. An event that waits in our memory is to Note [No wake-up is lost] one that was not collected yet. Nothing
-- blocks while there is one.

-- | How many events are handled in one poll.
portion :: Int
portion = 16

-- | 'poll' of a readiness backend.
pollOnce :: Source w -> PollLimit -> IO Int
pollOnce src limit = do
  delivered <- deliverAll src
  left <- hasEvents (sourceCollector src)
  unless left . void . collect (sourceCollector src) $! if delivered > 0 then noWait else limit
  ran <- (delivered +) <$> handleSome src
  -- Perhaps no operation waited for these.
  if left && ran == 0 then pollOnce src limit else pure ran

-- | Handle a portion of the events.
handleSome :: Source w -> IO Int
handleSome src = handleEvents (sourceCollector src) portion event
  where
    event key bits =
      existingSlot (sourceTable src) (keyNumber key) >>= \case
        Nothing -> pure 0
        Just slot -> do
          alone <- standsAlone slot (keySerial key)
          if alone && isReadable bits then wakeStanding src slot (keyNumber key) else anyEvent src slot key bits

anyEvent :: Source w -> Slot w -> Key -> Int -> IO Int
anyEvent src slot key bits
  | keySerial key == foreignSerial = wakeForeign src slot (keyNumber key) bits
  | otherwise = do
      -- One of a descriptor that is gone can still be reported while a forked process holds its file.
      present <- slot `holds` keySerial key
      if present then wakeSlot src slot (keyNumber key) bits else pure 0
{-# NOINLINE anyEvent #-}

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
    onWaiter _ (StreamWaiter _ op done) = f op (completionFor done)
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
      AwaitFd _ n -> Just n
      op -> descriptorNumber . snd <$> streamOf op
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

-- Note [Foreign numbers]
-- ~~~~~~~~~~~~~~~~~~~~~~
-- Weft registers a descriptor of its own once, and knows when it is closed. A foreign one is used and
-- closed by code that does not say so. So each wait has the poller told anew, for one level-triggered
-- event ('Once'; where the poller does not know that, it is told to drop what no operation waits for).
-- What it still knows of a file that is gone is replaced, or finds no waiter.
--
-- The operations wait in the slot of the number while it is not occupied. All events of foreign numbers
-- have one serial, which no descriptor of Weft's has. An event that was collected before the number was
-- closed can end a wait for its next file: the caller tries its operation and waits again.
--
-- A number can be Weft's on this worker, because the program has given its socket to a library: then the
-- operation waits as those on the socket do. It can become Weft's while an operation waits for it as a
-- foreign one ('Weft.Socket.adoptSocket'): these waits end ('withSlot').

-- | The serial in the events of foreign numbers.
foreignSerial :: Word32
foreignSerial = 0

-- | 'submit' for a wait for a foreign number.
awaitForeign :: Source w -> Direction -> CInt -> Operation -> Completion w -> IO Answer
awaitForeign src direction number op done
  | number < 0 = pure Sys.badDescriptor
  | otherwise =
      existingSlot (sourceTable src) number >>= \case
        Just slot -> waitIn slot
        -- Any number at all must not make the table large.
        Nothing -> ifM (Sys.isOpen number) (slotAt (sourceTable src) number >>= waitIn) (pure Sys.badDescriptor)
  where
    waitIn slot = do
      occupied <- isOccupied slot
      if occupied then submitStream src slot direction number op done else waitForeign slot
    waitForeign slot = do
      others <- waitedFor slot
      r <- watchForeign src number (others <> interestIn direction)
      if
        | r == Sys.failureCode ePERM -> pure 0
        | Sys.isFailure r -> pure r
        | otherwise -> do
            key <- nextSequence src
            let !w = StreamWaiter key op done
            readWaiters slot direction >>= writeWaiters slot direction . (|> w)
            pure (pending (streamToken key number direction))

-- | Have the poller report this, once.
watchForeign :: Source w -> CInt -> Interest -> IO Result
watchForeign src number = pollerWatch poller number (makeKey number foreignSerial) (if pollerHasOnce poller then Once else Level)
  where
    poller = sourcePoller src

-- | Some operations have ended: have the poller report what the others wait for. Answers how many
-- completions ran, because the poller refuses.
settleForeign :: Source w -> Slot w -> CInt -> IO Int
settleForeign src slot number = do
  wanted <- waitedFor slot
  if wanted == noInterest
    then 0 <$ unless (pollerHasOnce (sourcePoller src)) (pollerRemove (sourcePoller src) number)
    else do
      r <- watchForeign src number wanted
      if Sys.isFailure r then endWaits slot [Reading, Writing] r else pure 0

-- | Complete all that wait in these directions; answers how many there were.
endWaits :: Slot w -> [Direction] -> Result -> IO Int
endWaits slot directions r = do
  ended <- mconcat <$> mapM (readWaiters slot) directions
  for_ directions \direction -> writeWaiters slot direction Empty
  for_ ended \w -> complete (waiterCompletion w) r
  pure (length ended)

-- | An event: the readiness bits of a foreign number. Answers how many completions ran.
wakeForeign :: Source w -> Slot w -> CInt -> Int -> IO Int
wakeForeign src slot number bits = do
  occupied <- isOccupied slot
  if
    | occupied -> pure 0
    | bits .&. Sys.invalidBit /= 0 -> endWaits slot [Reading, Writing] Sys.badDescriptor <* settleForeign src slot number
    | otherwise -> do
        met <- endWaits slot (filter concerned [Reading, Writing]) 0
        (met +) <$> settleForeign src slot number
  where
    concerned = \case
      Reading -> bits .&. (Sys.readableBit .|. Sys.readHangupBit) /= 0
      Writing -> bits .&. (Sys.writableBit .|. Sys.writeHangupBit) /= 0
