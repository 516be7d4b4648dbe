{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : How a connection's segments travel
--
-- One direction of a connection is a queue of segments with the time at which each arrives, and
-- one event for the first of them. What does not get through stays in the queue and is tried
-- again, with pauses that grow, until the sender's patience is over. What arrives does to its end
-- what TCP's state machine would do.
--
-- See Note [One event for a flow].
module Weft.Sim.Internal.Network.Segments
  ( push,
    pushBytes,
    roomFreed,
    die,
    cancelAlarm,
    isThere,
  )
where

import Control.Monad (unless, void, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.Foldable (for_)
import Data.IORef
import Data.Int (Int64)
import Data.Maybe (fromMaybe)
import Data.Sequence (Seq (..), (|>))
import Data.Sequence qualified as Seq
import Foreign.C.Error (Errno, eCONNRESET, ePIPE, eTIMEDOUT)
import Weft.Internal.Data.Time (Duration (..))
import Weft.Sim.Internal.Conditions
import Weft.Sim.Internal.Events
import Weft.Sim.Internal.Network.Bytes
import Weft.Sim.Internal.Network.Line
import Weft.Sim.Internal.Network.Links
import Weft.Sim.Internal.Network.Types
import Weft.Sim.Internal.Random
import Weft.Sim.Internal.World

-- Note [One event for a flow]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- Events of one instant happen in any order, but segments of one direction must
-- arrive in theirs. So the order is that of the queue `flowFlight`, whose times never
-- decrease, and an event delivers whatever is first and due. Invariants:
--
--   (1) `flowPumping` is set exactly while an event for the flow exists or runs;
--   (2) if the queue is not empty, (1) holds.
--
-- A delivery may make others send on the same flow; they find (1) and only append.

-- | Send a segment from an end to its peer.
push :: Network -> End -> Segment -> IO ()
push net from segment =
  readIORef (endPeer from) >>= \case
    Nothing -> pure ()
    Just to -> case flowPath (endOut from) of
      Through -> arrive net from to segment
      path -> do
        let flow = endOut from
            world = netWorld net
        arrival <- arrivalOver world path (sizeOfSegment segment)
        lastOne <- readIORef (flowLast flow)
        now <- clock (worldEvents world)
        pumping <- readIORef (flowPumping flow)
        let due = max arrival lastOne
        writeIORef (flowLast flow) due
        if due <= now && not pumping && path == Loopback
          then arrive net from to segment
          else do
            modifyIORef' (flowFlight flow) (|> (due, segment))
            unless pumping (schedule net from to due)

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
      modifyIORef' (flowHeld (endOut from)) (+ ByteString.length piece)
      breaks <- if isOnNetwork then chance random (connectionResets conditions) else pure False
      push net from (if breaks then Broken else Data piece)

schedule :: Network -> End -> End -> Int64 -> IO ()
schedule net from to instant = do
  writeIORef (flowPumping (endOut from)) True
  void (at (worldEvents (netWorld net)) instant (pump net from to))

-- | Deliver what is due.
pump :: Network -> End -> End -> IO ()
pump net from to = do
  flight <- readIORef (flowFlight flow)
  now <- clock (worldEvents world)
  case flight of
    Empty -> writeIORef (flowPumping flow) False
    (due, segment) :<| rest
      | due > now -> schedule net from to due
      | otherwise -> do
          stalled <- readIORef (flowStalled flow)
          -- Only a machine that has not crashed sends again.
          alive <- maybe (pure True) (\_ -> isThere from) stalled
          passes <- crosses
          if
            | not alive -> stop
            | not passes -> stall now segment
            | otherwise -> do
                writeIORef (flowFlight flow) rest
                writeIORef (flowStalled flow) Nothing
                arrive net from to segment
                pump net from to
  where
    world = netWorld net
    flow = endOut from
    crosses = do
      up <- readIORef (machineUp (endMachine to))
      whole <- isPassable (flowPath flow)
      if up && whole then not <$> isLossy world (flowPath flow) else pure False
    stop = do
      writeIORef (flowFlight flow) Seq.empty
      writeIORef (flowPumping flow) False
      writeIORef (flowStalled flow) Nothing
    -- It did not get through. A reset is not sent again, and neither is anything by
    -- a machine that has crashed.
    stall now segment = do
      alive <- isThere from
      (since, pause) <- fromMaybe (now, 200_000_000) <$> readIORef (flowStalled flow)
      let patience = since + durationNanoseconds (retransmissionPatience (worldConditions world))
      case segment of
        Reset -> lost "is lost" >> stop
        _
          | not alive -> stop
          | now >= patience -> do
              lost "was sent again for too long"
              stop
              die net from eTIMEDOUT
          | otherwise -> do
              lost ("is lost; it is sent again in " <> show (pause `div` 1_000_000) <> " ms")
              writeIORef (flowStalled flow) (Just (since, min 120_000_000_000 (2 * pause)))
              schedule net from to (min patience (now + pause))
      where
        lost what = note world (endName from <> " -> " <> endName to <> ": " <> describe segment <> " " <> what)

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
arrive net from to segment = do
  here <- isThere to
  closed <- readIORef (endClosed to)
  phase <- readIORef (endPhase to)
  case segment of
    _ | not here -> answerReset
    Reset -> do
      told
      -- An end whose peer has ended its direction only learns that it cannot send.
      ended <- readIORef (flowEnded flow)
      unless closed (die net to (if ended then ePIPE else eCONNRESET))
    Broken -> do
      told
      unless closed (die net to eCONNRESET)
      there <- isThere from
      left <- readIORef (endClosed from)
      when (there && not left) (die net from eCONNRESET)
    Data bytes
      | closed || isGone phase -> do
          modifyIORef' (flowHeld flow) (subtract (ByteString.length bytes))
          answerReset
      | otherwise -> do
          told
          append (flowUnread flow) bytes
          serve (endReaders to)
    Finished
      | closed || isGone phase -> pure ()
      | otherwise -> do
          told
          writeIORef (flowEnded flow) True
          serve (endReaders to)
    Opened -> case phase of
      Connecting
        | closed -> answerReset
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
            answerReset
          else do
            writeIORef (endPhase to) Established
            modifyIORef' (listenerQueue listener) (|> to)
            serve (listenerAccepting listener)
      -- Its listener was closed.
      Dead -> answerReset
      Unconnected -> answerReset
      Established -> pure ()
  where
    flow = endIn to
    told = note (netWorld net) (endName from <> " -> " <> endName to <> ": " <> describe segment)
    answerReset = case segment of
      Reset -> pure ()
      Broken -> pure ()
      _ -> do
        note (netWorld net) (endName from <> " -> " <> endName to <> ": " <> describe segment <> " for a connection that is gone")
        push net to Reset

-- | The attempt to connect is over.
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
    for_ stalled $ \_ -> writeIORef (flowFlight (endOut end)) Seq.empty
    serve (endReaders end)
    serve (endWriters end)

-- | The given number of bytes were read at an end: its peer, if it waits for room, hears of it.
roomFreed :: Network -> End -> Int -> IO ()
roomFreed net to n = do
  modifyIORef' (flowHeld (endIn to)) (subtract n)
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
