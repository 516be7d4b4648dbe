{-# OPTIONS_HADDOCK not-home #-}

-- | How a connection's segments travel. One direction of a connection is a queue of segments with
-- the time at which each arrives, and one event for the first of them. What does not get through
-- stays in the queue and is tried again, with pauses that grow, until the sender's patience is
-- over. What arrives does to its end what TCP's state machine would do.
--
-- See Note [One event for a flow].
module Weft.Sim.Internal.Network.Segments (push, pushBytes, roomFreed, die, cancelAlarm, isThere) where

import Control.Monad (unless, void, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.Foldable (for_)
import Data.IORef
import Data.Int (Int64)
import Data.Maybe (fromMaybe)
import Data.Sequence ((|>))
import Foreign.C.Error (Errno, eCONNRESET, ePIPE, eTIMEDOUT)
import Weft.Internal.Data.Time (Duration (..))
import Weft.Sim.Internal.Network.Bytes
import Weft.Sim.Internal.Network.Types
import Weft.Sim.Internal.World

-- Note [One event for a flow]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- Events of one instant happen in any order, but segments of one direction must
-- arrive in theirs. So the order is that of the queue `flowFlight`, whose times never
-- decrease, and an event delivers whatever is first and due. Invariants:
--
--   (1) `Pumping` is set exactly while an event for the flow exists or runs;
--   (2) if the queue is not empty, (1) holds.
--
-- A delivery may make others send on the same flow; they find (1) and only append.

-- Note [Small functions]
-- ~~~~~~~~~~~~~~~~~~~~~~
-- What a segment passes through takes the records of world, network and ends as they are, and is
-- split where a rare case begins. Of a larger function, or one that gets the fields, GHC reads all
-- thirty at the beginning and saves them around each evaluation, half of what `pump` did. GHC
-- leaves these functions whole by itself (decision 120).

push :: Network -> End -> Segment -> IO ()
push net from segment =
  readIORef (endPeer from) >>= \case
    Nothing -> pure ()
    Just to -> case flowPath (endOut from) of
      Through -> arrive net from to segment
      path -> do
        arrival <- arrivalOver (netWorld net) path (sizeOfSegment segment)
        travel net from to segment arrival

-- | On its way until then, or until what was sent before it has arrived.
travel :: Network -> End -> End -> Segment -> Int64 -> IO ()
travel net from to segment arrival = do
  lastOne <- wordOf (flowWords flow) LastArrival
  pumping <- isSet (flowWords flow) Pumping
  let due = max arrival (fromIntegral lastOne)
  setWord (flowWords flow) LastArrival (fromIntegral due)
  now <- clock (worldEvents (netWorld net))
  if due <= now && not pumping && flowPath flow == Loopback
    then arrive net from to segment
    else do
      modifyIORef' (flowFlight flow) (`snoc` Flying due segment)
      unless pumping (schedule net from to due)
  where
    flow = endOut from

sizeOfSegment :: Segment -> Int
sizeOfSegment = \case
  Data bytes -> ByteString.length bytes
  _ -> 0

-- | Send bytes, in one segment or, if the world cuts them, in several.
pushBytes :: Network -> End -> ByteString -> IO ()
pushBytes net from bytes
  | segmentation conditions && ByteString.length bytes > 1 && isOnNetwork = do
      whole <- chance random 0.4
      n <- if whole then pure (ByteString.length bytes) else (1 +) <$> below random (ByteString.length bytes)
      pushPiece (ByteString.take n bytes)
      unless (n >= ByteString.length bytes) (pushBytes net from (ByteString.drop n bytes))
  | otherwise = pushPiece bytes
  where
    conditions = worldConditions (netWorld net)
    random = worldRandom (netWorld net)
    isOnNetwork = flowPath (endOut from) /= Through
    pushPiece piece = do
      addTo (flowWords (endOut from)) Held (ByteString.length piece)
      breaks <- if isOnNetwork then chance random (connectionResets conditions) else pure False
      push net from (if breaks then Broken else Data piece)

schedule :: Network -> End -> End -> Int64 -> IO ()
schedule net from to instant = do
  setFlag (flowWords (endOut from)) Pumping True
  void (at (worldEvents (netWorld net)) instant (pump net from to))

pump :: Network -> End -> End -> IO ()
pump net from to = do
  flight <- readIORef (flowFlight flow)
  case first flight of
    NoFirst -> setFlag (flowWords flow) Pumping False
    First (Flying due segment) rest -> do
      now <- clock (worldEvents (netWorld net))
      if due > now
        then schedule net from to due
        else do
          passes <- crosses net from to
          if passes
            then do
              writeIORef (flowFlight flow) rest
              arrive net from to segment
              pump net from to
            else stall net from to segment
  where
    flow = endOut from

-- | Does the segment that is due get through? If it did not before, its sender has to send it again,
-- and must not have crashed.
crosses :: Network -> End -> End -> IO Bool
crosses net from to = do
  stalled <- readIORef (flowStalled flow)
  sent <- maybe (pure True) (\_ -> isThere from) stalled
  up <- readIORef (machineUp (endMachine to))
  whole <- isPassable (flowPath flow)
  passes <- if sent && up && whole then not <$> isLossy (netWorld net) (flowPath flow) else pure False
  passes <$ when passes (for_ stalled (\_ -> writeIORef (flowStalled flow) Nothing))
  where
    flow = endOut from

-- | It did not get through. A reset is not sent again, nor anything by a machine that has crashed.
stall :: Network -> End -> End -> Segment -> IO ()
stall net from to segment = do
  now <- clock (worldEvents world)
  alive <- isThere from
  (since, pause) <- fromMaybe (now, 200_000_000) <$> readIORef (flowStalled flow)
  let patience = since + durationNanoseconds (retransmissionPatience (worldConditions world))
  case segment of
    Reset -> lost "is lost" >> stopFlow flow
    _
      | not alive -> stopFlow flow
      | now >= patience -> do
          lost "was sent again for too long"
          stopFlow flow
          die net from eTIMEDOUT
      | otherwise -> do
          lost ("is lost; it is sent again in " <> show (pause `div` 1_000_000) <> " ms")
          writeIORef (flowStalled flow) (Just (since, min 120_000_000_000 (2 * pause)))
          schedule net from to (min patience (now + pause))
  where
    world = netWorld net
    flow = endOut from
    lost what = note world (endName from <> " -> " <> endName to <> ": " <> describe segment <> " " <> what)

stopFlow :: Flow -> IO ()
stopFlow flow = do
  writeIORef (flowFlight flow) emptyFifo
  setFlag (flowWords flow) Pumping False
  writeIORef (flowStalled flow) Nothing

describe :: Segment -> String
describe = \case
  Data bytes -> "segment of " <> show (ByteString.length bytes) <> (if ByteString.length bytes == 1 then " byte" else " bytes")
  Opened -> "acknowledgement of the connection"
  Finished -> "end of the stream"
  Reset -> "reset"
  Broken -> "segment that breaks the connection"

-- | Is the machine of the end up, in the life in which the connection began?
isThere :: End -> IO Bool
isThere end = do
  up <- readIORef (machineUp (endMachine end))
  life <- readIORef (machineLife (endMachine end))
  pure (up && life == endLife end)

-- | A segment has come to an end.
arrive :: Network -> End -> End -> Segment -> IO ()
arrive net from to segment = case segment of
  Data bytes -> do
    here <- isThere to
    closed <- isSet (endFlags to) Closed
    phase <- readIORef (endPhase to)
    if here && not closed && not (isGone phase)
      then do
        told net from to segment
        append (flowUnread (endIn to)) bytes
        serve (endReaders to)
      else do
        when here (addTo (flowWords (endIn to)) Held (negate (ByteString.length bytes)))
        answerReset net from to segment
  _ -> arriveElse net from to segment

told :: Network -> End -> End -> Segment -> IO ()
told net from to segment = for_ (worldNote (netWorld net)) $ \_ ->
  note (netWorld net) (endName from <> " -> " <> endName to <> ": " <> describe segment)

answerReset :: Network -> End -> End -> Segment -> IO ()
answerReset net from to = \case
  Reset -> pure ()
  Broken -> pure ()
  segment -> do
    note (netWorld net) (endName from <> " -> " <> endName to <> ": " <> describe segment <> " for a connection that is gone")
    push net to Reset

-- | A segment without bytes has come to an end.
arriveElse :: Network -> End -> End -> Segment -> IO ()
arriveElse net from to segment = do
  here <- isThere to
  closed <- isSet (endFlags to) Closed
  phase <- readIORef (endPhase to)
  case segment of
    _ | not here -> reset
    Data _ -> pure ()
    Reset -> do
      told net from to segment
      -- An end whose peer has ended its direction only learns that it cannot send.
      ended <- isSet (flowWords flow) Ended
      unless closed (die net to (if ended then ePIPE else eCONNRESET))
    Broken -> do
      told net from to segment
      unless closed (die net to eCONNRESET)
      there <- isThere from
      left <- isSet (endFlags from) Closed
      when (there && not left) (die net from eCONNRESET)
    Finished
      | isGone phase -> pure ()
      | closed -> setFlag (flowWords flow) Ended True
      | otherwise -> do
          told net from to segment
          setFlag (flowWords flow) Ended True
          serve (endReaders to)
    Opened -> case phase of
      Connecting
        | closed -> reset
        | otherwise -> do
            note (netWorld net) (endName to <> ": connected to " <> show (endRemote to))
            writeIORef (endPhase to) Established
            cancelAlarm net to
            push net to Opened
            serve (endWriters to)
            serve (endReaders to)
      HalfOpen listener -> do
        modifyIORef' (listenerPending listener) (subtract 1)
        gone <- readIORef (listenerClosed listener)
        if gone
          then do
            writeIORef (endPhase to) Dead
            reset
          else do
            writeIORef (endPhase to) Established
            modifyIORef' (listenerQueue listener) (|> to)
            serve (listenerAccepting listener)
      -- Its listener was closed.
      Dead -> reset
      Unconnected -> reset
      Established -> pure ()
  where
    flow = endIn to
    reset = answerReset net from to segment

cancelAlarm :: Network -> End -> IO ()
cancelAlarm net end = do
  readIORef (endAlarm end) >>= mapM_ (revoke (worldEvents (netWorld net)))
  writeIORef (endAlarm end) Nothing

-- | The connection has ended for this end, with this error.
die :: Network -> End -> Errno -> IO ()
die net end e = do
  phase <- readIORef (endPhase end)
  cancelAlarm net end
  unless (isGone phase) $ do
    case phase of
      HalfOpen listener -> modifyIORef' (listenerPending listener) (subtract 1)
      _ -> pure ()
    writeIORef (endPhase end) $ case phase of
      Connecting -> Unconnected
      _ -> Dead
    writeIORef (endError end) (Just e)
    -- Bytes that were sent and not acknowledged are not sent again.
    stalled <- readIORef (flowStalled (endOut end))
    for_ stalled $ \_ -> writeIORef (flowFlight (endOut end)) emptyFifo
    serve (endReaders end)
    serve (endWriters end)

-- | The given number of bytes were read at an end: its peer, if it waits for room, hears of it.
roomFreed :: Network -> End -> Int -> IO ()
roomFreed net to n = do
  addTo (flowWords (endIn to)) Held (negate n)
  readIORef (endPeer to)
    >>= mapM_
      ( \from -> do
          nobody <- isDeserted (endWriters from)
          unless nobody $ case flowPath (endIn to) of
            Through -> serve (endWriters from)
            _ -> do
              instant <- arrivalOver world (flowPath (endOut to)) 0
              void (at (worldEvents world) instant (serve (endWriters from)))
      )
  where
    world = netWorld net
