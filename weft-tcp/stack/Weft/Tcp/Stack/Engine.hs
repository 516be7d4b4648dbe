{-# LANGUAGE MultiWayIf #-}
-- As in "Weft.Tcp.Internal.Output". And a step does not begin with thunks of what it needs in rare cases.
{-# OPTIONS_GHC -fno-cpr-anal -fno-spec-constr -fno-full-laziness #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : A step of a connection
--
-- Takes a connection from an input to its next value ('advanceConn') and does what the step says:
-- bytes are kept or dropped, segments sent, threads woken, the timer set. Everything here runs in
-- the stack's turn ("Weft.Tcp.Stack.Turn").
module Weft.Tcp.Stack.Engine
  ( -- * Inputs
    advanceConn,
    advanceFrom,
    takeBytes,
    isWorthReading,

    -- * Making connections
    newConn,
    openingStep,
    firstByte,
    settingsFor,
    settingsSized,
    freshNumbers,
    routeTo,

    -- * Timers
    alarmFor,

    -- * Packets
    joined,

    -- * Derived
    ended,
    streamEnded,
    failureOf,
  )
where

import Control.Monad (forM_, unless, void, when)
import Data.Bits ((.|.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.IORef
import Data.List (find)
import Data.List qualified as List
import Data.Sequence qualified as Sequence
import Data.Word (Word32, Word8)
import Foreign.C.Error
import Foreign.Ptr (Ptr, plusPtr)
import GHC.ForeignPtr (unsafeWithForeignPtr)
import Weft.Internal.Core.Home (Home (..))
import Weft.Internal.Core.SystemCall (Buffer (..), Intake (..), intakeOffset, takeIn)
import Weft.Internal.Data.Timers qualified as Timers
import Weft.Tcp.Connection
import Weft.Tcp.Device
import Weft.Tcp.Internal.Bytes (build)
import Weft.Tcp.Internal.Reassembly (isComplete)
import Weft.Tcp.Internal.Small (Waiting, waitingOf)
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Options
import Weft.Tcp.Packet
import Weft.Tcp.Segment hiding (Malformed)
import Weft.Tcp.Sequence hiding (isEmpty)
import Weft.Tcp.Stack.Backlog (push)
import Weft.Tcp.Stack.Effects
import Weft.Tcp.Stack.Flow
import Weft.Tcp.Stack.Held
import Weft.Tcp.Stack.Memory
import Weft.Tcp.Stack.Names
import Weft.Tcp.Stack.Orphans (acknowledged, leave)
import Weft.Tcp.Stack.State
import Weft.Tcp.Stack.Table qualified as Table
import Weft.Tcp.Stack.TimeWait

-- | The address that packets to a peer come from: the given one, unless it stands for all.
routeTo :: Stack -> Address -> Address -> IO (Either Errno Address)
routeTo st from peer = leads <$> readIORef (stackLost st)
  where
    leads lost
      | lost && not (isOwn st peer) = Left eNODEV
      -- As Linux, before it looks for a way.
      | not (isUnspecified from) && not (sameFamily from peer) = Left eAFNOSUPPORT
      | not (isHost peer) || not (isOwn st peer || deviceReaches (stackDevice st) peer) = Left eNETUNREACH
      | otherwise = maybe (Left eNETUNREACH) suits source
    suits a
      -- RFC 1122, section 3.2.1.3: it never leaves the host.
      | isLoopback a && not (isOwn st peer) = Left eINVAL
      | otherwise = Right a
    source
      | not (isUnspecified from) = Just from
      | isLoopback peer = Just (loopbackLike peer)
      | isOwn st peer = Just peer
      | otherwise = find (sameFamily peer) (tcpAddresses (stackSettings st))

-- | The initial sequence number of RFC 6528 and the offset of timestamps of a flow.
freshNumbers :: Stack -> Flow -> Instant -> IO (Seq, Word32)
freshNumbers st flow now = do
  secret <- secretOf st
  let hash = sealOf 0 secret flow
  pure (initialSequence (hash 0) now, hash 1)

-- | The settings for connections to this peer. Connections with the same options share them, the last
-- few of which are kept.
settingsFor :: Stack -> SocketOptions -> Address -> IO Settings
settingsFor st o = settingsSized st o Nothing

-- | 'settingsFor' with this first size of the receive buffer and this limit, if they are given.
settingsSized :: Stack -> SocketOptions -> Maybe (Word32, Word32) -> Address -> IO Settings
settingsSized st o buffers peer = do
  known <- readIORef (stackShared st)
  mtu <- if loops st peer then pure 65535 else min (fromIntegral (settingMss base) + headers) <$> deviceMtu (stackDevice st)
  let key = (optValues o, buffers, max 64 (mtu - headers), headers)
  case lookup key known of
    Just shared -> pure shared
    Nothing | !shared <- made key -> shared <$ writeIORef (stackShared st) (take 8 ((key, shared) : known))
  where
    base = tcpConnections (stackSettings st)
    headers = 20 + headerLength peer
    made (values, sized, segment, _) =
      let optioned = settingsWith values base {settingMss = fromIntegral segment, settingHeaders = fromIntegral headers}
       in case sized of
            Just (first, limit) -> optioned {settingReceiveBuffer = first, settingReceiveLimit = limit}
            Nothing -> optioned

-- | Enter a connection into the table; no other has its addresses.
newConn :: Stack -> Flow -> Step -> Owner -> SocketOptions -> IO Conn
newConn st flow first owner options = do
  c <- Conn flow <$> newIORef (Active (newBody (stepTcb first) owner options))
  c <$ Table.insert (stackConns st) c

-- | Do what the first step of a new connection says. A segment that led to it may have brought this payload, from
-- this number on.
openingStep :: Stack -> Maybe Home -> Instant -> Conn -> Seq -> ByteString -> Step -> IO ()
openingStep st here now c start payload first = readBody c >>= \b -> applyStep st here now c start payload b first

-- | The number of the first byte that an input brings.
firstByte :: Input -> Seq
firstByte = \case
  Arrived s -> if segmentFlags s `has` syn then segmentSeq s `advance` 1 else segmentSeq s
  _ -> Seq 0

-- | Give a connection an input, with the payload if it is a segment.
advanceConn :: Stack -> Maybe Home -> Instant -> Conn -> Input -> ByteString -> IO ()
advanceConn st here now c input payload = readBody c >>= \b -> advanceFrom st here now c b input payload

-- | 'advanceConn' from this state, which need not have been written.
advanceFrom :: Stack -> Maybe Home -> Instant -> Conn -> Body -> Input -> ByteString -> IO ()
advanceFrom st here now c b input payload = applyStep st here now c first payload b (step now input t)
  where
    !first = firstByte input
    !t = bodyTcb b

-- | Take bytes that have come, up to a number, for a reader. 0: there is not what it waits for.
takeBytes :: Stack -> Maybe Home -> Instant -> Conn -> Body -> Ptr Word8 -> Int -> IO Int
takeBytes st here now c b to most
  | n > 0 && (n >= most || optLowWater (bodyOptions b) <= 1 || isWorthReading b) = do
      copyFront to n (bodyIn b)
      short <- isShort st
      n <$ advanceFrom st here now c b {bodyIn = dropFront n (bodyIn b)} ((if short then ConsumedOnly else Consumed) (fromIntegral n)) B.empty
  | otherwise = pure 0
  where
    !n = min most (fromIntegral (readable (bodyTcb b)))

-- | Is there what a read waits for (@SO_RCVLOWAT@, but no more than half of the memory for it), or does no more come?
isWorthReading :: Body -> Bool
isWorthReading b = there > 0 && there >= min least (fromIntegral (settingReceiveBuffer (tcbSettings t)) `div` 2) || t `is` ReadShut || ended t
  where
    t = bodyTcb b
    there = fromIntegral (readable t)
    least = optLowWater (bodyOptions b)

-- Bytes have come for these readers, and the connection is this body, which need not have been written. One thread of this worker in
-- a standing receive gets them at once, as if it had asked first after the step. False: there is no such thread, or it does not take
-- all, and nothing was done.
-- Nobody else ends its wait meanwhile: others need the turn, and a cancellation the worker.
serve :: Stack -> Maybe Home -> Instant -> Conn -> Body -> [Wake] -> IO Bool
serve st here now c b = \case
  [w@(Receiving worker _ _ i k)] | maybe False ((== worker) . homeWorker) here -> do
    waits <- waitsStill w
    offset <- intakeOffset i
    let Buffer memory room = intakeBuffer i
    n <- if waits && fromIntegral (readable (bodyTcb b)) <= room - offset then unsafeWithForeignPtr memory (\p -> takeBytes st here now c b (p `plusPtr` offset) (room - offset)) else pure 0
    if n > 0
      then takeIn i n >>= \arrival -> True <$ wake here (goingOn (\_ -> k arrival) w)
      else pure False
  _ -> pure False

applyStep :: Stack -> Maybe Home -> Instant -> Conn -> Seq -> ByteString -> Body -> Step -> IO ()
applyStep st here now c !start payload before' (Step reached segments answers)
  -- Often nobody waits to write, and nothing ends.
  | [] <- answers,
    tcbState reached < TimeWait,
    [] <- bodyWriters before' = do
      alarm <- alarmFor st c (bodyAlarm before') reached
      tallied <- if null segments then pure before' else tally st segments before'
      weighed st tallied {bodyTcb = reached, bodyAlarm = alarm} >>= writeBody c
      unless (null segments) (sendSegments st c (bodyOptions before') (bodyOut before') segments)
  -- For its socket a connection has ended when TIME-WAIT begins. It enters the other table first, for other shards that
  -- look (Note [Shards] in "Weft.Tcp.Stack.Shards").
  | tcbState reached == TimeWait,
    Just w <- waitingOf reached =
      settle st here now c start payload before' reached {tcbState = Closed, timerAt = never} segments answers (Just w)
  | otherwise = settle st here now c start payload before' reached segments answers Nothing

-- The next state of a connection, and all that follows. With a record of a connection in TIME-WAIT, that enters its table before
-- this leaves its own.
settle :: Stack -> Maybe Home -> Instant -> Conn -> Seq -> ByteString -> Body -> Tcb -> [Segment] -> [Answer] -> Maybe Waiting -> IO ()
settle st here now c start payload before' t segments answers leaving = heed [] False False (bodyFailure before') (bodyOut before') answers
  where
    closed = tcbState t == Closed
    -- What the answers do. The ranges that have come; and the flags: is there news for a reader, and is the connection there?
    --
    -- Not the failure: then GHC knows that it is evaluated and forgets it at the next join, so that a connection's state is a thunk.
    heed fresh !told !opened failure !out = \case
      [] -> conclude fresh told opened failure out
      Acknowledged n : rest -> do
        case bodyOwner before' of
          Orphan number -> modifyIORef' (stackOrphans st) (acknowledged number (fromIntegral n))
          _ -> pure ()
        heed fresh told opened failure (dropFront (fromIntegral n) out) rest
      Store ranges : rest -> heed (if null fresh then ranges else fresh <> ranges) True opened failure out rest
      EndOfStream : rest -> heed fresh True opened failure out rest
      Failed why : rest -> heed fresh True opened (Just why) out rest
      Opened : rest -> do
        case bodyOwner before' of
          Unaccepted l -> push (listenerBacklog l) (stackShard st) c >>= wakeAll here
          _ -> pure ()
        heed fresh True True failure out rest
    conclude fresh told opened failure out = do
      -- What follows a step follows both, then. What has come is copied once, since all of it is taken.
      served <-
        if
          | told,
            [] <- segments,
            not closed,
            [] <- bodyWriters before',
            [Receiving {}] <- bodyReaders before',
            isComplete (tcbReassembly t) -> do
              let !came = stored id fresh
                  !b = before' {bodyTcb = t, bodyOut = out, bodyIn = came, bodyReaders = []}
              serve st here now c b (bodyReaders before')
          | otherwise -> pure False
      unless served $ do
        let !readersGo = not (null (bodyReaders before')) && (closed || told && (readable t > 0 || ended t))
        -- A writer that waits is told that another thread has ended the stream.
        writersGo <-
          if null (bodyWriters before')
            then pure False
            else if closed || opened || t `is` FinQueued then pure True else isRoomy st before' {bodyTcb = t, bodyOut = out}
        alarm <- alarmFor st c (bodyAlarm before') t
        tallied <- tally st segments before'
        b <-
          weighed
            st
            tallied
              { bodyTcb = t,
                -- Nothing more is sent, and what a user that has gone might have read is of no use.
                bodyOut = if closed then heldNothing else out,
                bodyIn = if closed && isOrphan before' then heldNothing else stored B.copy fresh,
                bodyReaders = if readersGo then [] else bodyReaders before',
                bodyWriters = if writersGo then [] else bodyWriters before',
                bodyFailure = failure,
                bodyAlarm = alarm
              }
        writeBody c b
        sendSegments st c (bodyOptions b) out segments
        forM_ leaving (enterTimeWait st (connFlow c))
        when closed (retire st c b)
        when readersGo (wakeAll here (bodyReaders before'))
        when writersGo (wakeAll here (bodyWriters before'))
    -- The payload is part of what the device read: what is kept is a copy of its own bytes.
    stored own fresh
      | isOrphan before' = bodyIn before'
      | otherwise = List.foldl' (\h (Range from to) -> insertAt (rcvRead (bodyTcb before')) from (own (B.take (fromIntegral (distance from to)) (B.drop (fromIntegral (distance start from)) payload))) h) (bodyIn before') fresh

-- Count segments that a connection in this state is to send.
tally :: Stack -> [Segment] -> Body -> IO Body
tally st segments b = case segments of
  [] -> pure b
  s : rest -> do
    count st SegmentsOut
    if segmentLength s > 0 && segmentSeq s `before` sndNxt (bodyTcb b)
      then count st Retransmitted >> tally st rest b {bodyRetransmitted = bodyRetransmitted b + 1}
      else tally st rest b

-- | Has the peer ended its stream, or the connection itself ended?
ended :: Tcb -> Bool
ended t = tcbState t == Closed || streamEnded t

-- | Has the whole stream of the peer come?
streamEnded :: Tcb -> Bool
streamEnded t = t `is` FinSeen && rcvFin t `before` rcvNxt t

-- | The error by which the user learns of a failure. A reset that comes after the end of the peer's stream is @EPIPE@, for it is not
-- reading that fails.
failureOf :: Tcb -> Failure -> Errno
failureOf t = \case
  Reset | streamEnded t -> ePIPE
  why -> failureErrno why

-- | A connection has ended: it leaves the table. A socket may still have it.
retire :: Stack -> Conn -> Body -> IO ()
retire st c b = do
  -- Another connection may have its addresses by now.
  there <- Table.lookup (stackConns st) (connFlow c)
  when ((connStage <$> there) == Just (connStage c)) (Table.delete (stackConns st) (connFlow c))
  cancelAlarm st (bodyAlarm b)
  case bodyOwner b of
    Orphan number -> modifyIORef' (stackOrphans st) (leave number)
    _ -> pure ()
  writeBody c b {bodyAlarm = NoAlarm}

-- Segments of one step, in their order, and the bytes to send. A device that cuts gets those that belong together as one.
sendSegments :: Stack -> Conn -> SocketOptions -> Held -> [Segment] -> IO ()
sendSegments st (Conn {connFlow = Flow local localPort peer peerPort}) options out = \case
  [] -> pure ()
  segments -> case deviceSendWhole (stackDevice st) of
    Just send | not loop -> case segments of
      [s] -> whole send (fromIntegral (segmentLength s)) s
      several -> forM_ (joined several) (uncurry (whole send))
    _ -> forM_ segments $ \s -> do
      count st PacketsOut
      let packet = packetOf AllSummed s
      if loop
        then modifyIORef' (stackLoop st) (Sequence.|> packet)
        else deviceSend (stackDevice st) packet
  where
    loop = loops st peer
    !ports = Ports localPort peerPort
    whole send !cut s = count st PacketsOut >> (send cut $! packetOf PseudoHeaderSummed s)
    packetOf sums s =
      let !payload = slices (segmentSeq s) (fromIntegral (segmentLength s)) out
       in build (packetBuilder (Packet local peer protocolTcp 64 (optClass options .|. classOf s) 0 B.empty) (segmentBuilder sums local peer ports s payload))
{-# OPAQUE sendSegments #-}

-- | Segments that differ in their place only are one, whose payload is to be cut into pieces of this
-- length. All but the last piece have it, and only the last may be marked.
joined :: [Segment] -> [(Int, Segment)]
joined = \case
  [] -> []
  s : rest -> go (segmentLength s) s rest
  where
    go cut s = \case
      next : rest
        | segmentLength s > 0,
          segmentLength s `rem` cut == 0,
          segmentLength next > 0,
          segmentLength next <= cut,
          segmentLength s + segmentLength next <= most,
          segmentSeq next == segmentEnd s,
          segmentFlags s `elem` [ack, ack <> ect],
          segmentFlags next `elem` [segmentFlags s, segmentFlags s <> psh, segmentFlags s <> fin, segmentFlags s <> psh <> fin],
          s {segmentSeq = segmentSeq next, segmentFlags = mempty, segmentLength = 0} == next {segmentFlags = mempty, segmentLength = 0} ->
            go cut s {segmentFlags = segmentFlags next, segmentLength = segmentLength s + segmentLength next} rest
      rest -> (fromIntegral cut, s) : joined rest
    -- With its headers it is no longer than a packet may be.
    most = 65535 - 120

-- | The timer of a connection with this state: the given one, unless the deadline is earlier than that. A timer that is
-- early is corrected when it fires: an acknowledgement sets none.
alarmFor :: Stack -> Conn -> Alarmed -> Tcb -> IO Alarmed
alarmFor st c set t
  | due' >= at' = pure set
  | otherwise = do
      cancelAlarm st set
      Alarmed due' <$> at st due' (Deadline c)
  where
    due' = deadline t
    at' = case set of
      NoAlarm -> never
      Alarmed i _ -> i

cancelAlarm :: Stack -> Alarmed -> IO ()
cancelAlarm st = \case
  NoAlarm -> pure ()
  Alarmed _ key -> void (Timers.cancel (stackTimers st) key)
