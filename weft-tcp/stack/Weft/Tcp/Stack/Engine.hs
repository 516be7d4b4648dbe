-- As in "Weft.Tcp.Internal.Output".
{-# OPTIONS_GHC -fno-cpr-anal -fno-spec-constr #-}
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

    -- * Making connections
    newConn,
    openingStep,
    firstByte,
    settingsFor,
    freshNumbers,
    routeTo,

    -- * Timers
    setAlarm,

    -- * The end of a connection

    -- * Packets
    joined,

    -- * Derived
    roomOf,
    ended,
  )
where

import Control.Monad (foldM, forM_, void, when)
import Data.Bits ((.|.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.IORef
import Data.List (find)
import Data.Sequence qualified as Sequence
import Data.Word (Word32)
import Foreign.C.Error
import Weft.Internal.Core.Home (Home)
import Weft.Internal.Data.Timers qualified as Timers
import Weft.Tcp.Connection
import Weft.Tcp.Device
import Weft.Tcp.Internal.Bytes (build)
import Weft.Tcp.Internal.Small (waitingOf)
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Options
import Weft.Tcp.Packet
import Weft.Tcp.Segment hiding (Malformed)
import Weft.Tcp.Sequence hiding (isEmpty)
import Weft.Tcp.Stack.Backlog (push)
import Weft.Tcp.Stack.Effects
import Weft.Tcp.Stack.Flow
import Weft.Tcp.Stack.Held
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
      | not (isHost peer) || not (isOwn st peer || deviceReaches (stackDevice st) peer) = Left eNETUNREACH
      | otherwise = maybe (Left eNETUNREACH) suits source
    suits a
      | not (sameFamily a peer) = Left eAFNOSUPPORT
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
settingsFor st o peer = do
  known <- readIORef (stackShared st)
  case lookup key known of
    Just shared -> pure shared
    Nothing -> made <$ writeIORef (stackShared st) (take 8 ((key, made) : known))
  where
    base = tcpConnections (stackSettings st)
    headers = 20 + headerLength peer
    segment = if loops st peer then 65535 - headers else max 64 (min (fromIntegral (settingMss base)) (deviceMtu (stackDevice st) - headers))
    key = (optValues o, segment, headers)
    !made = settingsWith (optValues o) base {settingMss = fromIntegral segment, settingHeaders = fromIntegral headers}

-- | Enter a connection into the table; no other has its addresses.
newConn :: Stack -> Flow -> Step -> Owner -> SocketOptions -> IO Conn
newConn st flow first owner options = do
  c <- Conn flow <$> newIORef (Active (newBody (stepTcb first) owner options))
  c <$ Table.insert (stackConns st) c

-- | Do what the first step of a new connection says. A segment that led to it may have brought this payload, from
-- this number on.
openingStep :: Stack -> Maybe Home -> Conn -> Seq -> ByteString -> Step -> IO ()
openingStep st here c start payload first = readBody c >>= \b -> applyStep st here c start payload b first

-- | The number of the first byte that an input brings.
firstByte :: Input -> Seq
firstByte = \case
  Arrived s -> if segmentFlags s `has` syn then segmentSeq s `advance` 1 else segmentSeq s
  _ -> Seq 0

-- | Give a connection an input, with the payload if it is a segment.
advanceConn :: Stack -> Maybe Home -> Instant -> Conn -> Input -> ByteString -> IO ()
advanceConn st here now c input payload = do
  b <- readBody c
  applyStep st here c (firstByte input) payload b (step now input (bodyTcb b))

applyStep :: Stack -> Maybe Home -> Conn -> Seq -> ByteString -> Body -> Step -> IO ()
applyStep st here c start payload before' (Step reached segments answers) = case waitingOf reached of
  Nothing -> settle st here c start payload before' reached segments answers (pure ())
  -- For its socket a connection has ended when TIME-WAIT begins. It enters the other table first, for other shards that
  -- look (Note [Shards] in "Weft.Tcp.Stack.Shards").
  Just w -> settle st here c start payload before' reached {tcbState = Closed, timerAt = never} segments answers (enterTimeWait st (connFlow c) w)

-- The next state of a connection, and all that follows. The action comes before a closed one leaves its table.
settle :: Stack -> Maybe Home -> Conn -> Seq -> ByteString -> Body -> Tcb -> [Segment] -> [Answer] -> IO () -> IO ()
settle st here c start payload before' t segments answers leaving
  -- Most of the time nobody waits to write, and nothing ends.
  | [] <- answers, [] <- segments, tcbState t /= Closed, [] <- bodyWriters before' = setAlarm st (Deadline c) before' {bodyTcb = t} >>= writeBody c
  | otherwise = do
      b1 <- foldM answered before' {bodyTcb = t} answers
      let closed = tcbState t == Closed
          told = any isNews answers
          readersGo = not (null (bodyReaders b1)) && (closed || told && (readable t > 0 || ended b1))
          -- A writer that waits is told that another thread has ended the stream.
          writersGo = not (null (bodyWriters b1)) && (closed || Opened `elem` answers || t `is` FinQueued || roomy st b1)
          again = length (filter isAgain segments)
          b2 =
            b1
              { bodyReaders = if readersGo then [] else bodyReaders b1,
                bodyWriters = if writersGo then [] else bodyWriters b1,
                bodyRetransmitted = bodyRetransmitted b1 + fromIntegral again,
                -- Nothing more is sent, and what a user that has gone might have read is of no use.
                bodyOut = if closed then heldNothing else bodyOut b1,
                bodyIn = if closed && isOrphan b1 then heldNothing else bodyIn b1
              }
      b3 <- setAlarm st (Deadline c) b2
      writeBody c b3
      forM_ segments $ \s -> do
        count st SegmentsOut
        when (isAgain s) (count st Retransmitted)
      sendSegments st c b1 segments
      leaving
      when closed (retire st c b3)
      when readersGo (wakeAll here (bodyReaders b1))
      when writersGo (wakeAll here (bodyWriters b1))
  where
    isAgain s = segmentLength s > 0 && segmentSeq s `before` sndNxt (bodyTcb before')
    isNews = \case
      Acknowledged _ -> False
      _ -> True
    answered b = \case
      Opened -> do
        case bodyOwner b of
          Unaccepted l -> push (listenerBacklog l) (stackShard st) c >>= wakeAll here
          _ -> pure ()
        pure b
      Store ranges -> pure b {bodyIn = foldl (store b) (bodyIn b) ranges}
      Acknowledged n -> do
        case bodyOwner b of
          Orphan number -> modifyIORef' (stackOrphans st) (acknowledged number (fromIntegral n))
          _ -> pure ()
        pure b {bodyOut = dropFront (fromIntegral n) (bodyOut b)}
      EndOfStream -> pure b
      Failed why -> pure b {bodyFailure = Just why}
    -- The payload is part of what the device read: only its own bytes are kept.
    store b h (Range from to)
      | isOrphan b = h
      | otherwise =
          insertAt (rcvRead (bodyTcb before')) from (B.copy (B.take (fromIntegral (distance from to)) (B.drop (fromIntegral (distance start from)) payload))) h

-- | Has the peer ended its stream, or the connection itself ended?
ended :: Body -> Bool
ended b = tcbState t == Closed || t `is` FinSeen && rcvFin t `before` rcvNxt t
  where
    t = bodyTcb b

-- | How many more bytes the user may write.
roomOf :: Stack -> Body -> Int
roomOf st b = max 0 (min (buffer - size (bodyOut b)) unsentRoom)
  where
    o = bodyOptions b
    buffer = if optSendBuffer o > 0 then optSendBuffer o else tcpSendBuffer (stackSettings st)
    unsentRoom = if optUnsent o > 0 then optUnsent o - fromIntegral (unsent (bodyTcb b)) else maxBound

-- Is there enough room to be worth waking a writer?
roomy :: Stack -> Body -> Bool
roomy st b = maySend (tcbState (bodyTcb b)) && 3 * roomOf st b >= least
  where
    o = bodyOptions b
    buffer = if optSendBuffer o > 0 then optSendBuffer o else tcpSendBuffer (stackSettings st)
    least = if optUnsent o > 0 then min buffer (optUnsent o) else buffer

-- | A connection has ended: it leaves the table. A socket may still have it.
retire :: Stack -> Conn -> Body -> IO ()
retire st c b = do
  -- Another connection may have its addresses by now.
  there <- Table.lookup (stackConns st) (connFlow c)
  when ((connStage <$> there) == Just (connStage c)) (Table.delete (stackConns st) (connFlow c))
  cancelAlarm st b
  case bodyOwner b of
    Orphan number -> modifyIORef' (stackOrphans st) (leave number)
    _ -> pure ()
  writeBody c b {bodyAlarm = NoAlarm}

-- Segments of one step, in their order. A device that cuts gets those that belong together as one.
sendSegments :: Stack -> Conn -> Body -> [Segment] -> IO ()
sendSegments st c b segments = case deviceSendWhole (stackDevice st) of
  Just send | not loop -> forM_ (joined segments) $ \(cut, s) -> do
    count st PacketsOut
    send cut (packetOf PseudoHeaderSummed s)
  _ -> forM_ segments $ \s -> do
    count st PacketsOut
    let packet = packetOf AllSummed s
    if loop
      then modifyIORef' (stackLoop st) (Sequence.|> packet)
      else deviceSend (stackDevice st) packet
  where
    loop = loops st (connPeer c)
    packetOf sums s =
      build . packetBuilder (Packet (connLocal c) (connPeer c) protocolTcp 64 (optClass (bodyOptions b) .|. classOf s) 0 B.empty) $
        segmentBuilder sums (connLocal c) (connPeer c) (Ports (connLocalPort c) (connPeerPort c)) s (slices (segmentSeq s) (fromIntegral (segmentLength s)) (bodyOut b))

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

-- | Set the timer of a connection to its deadline, unless it is earlier. A timer that is early is
-- corrected when it fires: an acknowledgement writes none.
setAlarm :: Stack -> Alarm -> Body -> IO Body
setAlarm st alarm b
  | due' >= set = pure b
  | otherwise = do
      cancelAlarm st b
      key <- at st due' alarm
      pure b {bodyAlarm = Alarmed due' key}
  where
    due' = deadline (bodyTcb b)
    set = case bodyAlarm b of
      NoAlarm -> never
      Alarmed t _ -> t

cancelAlarm :: Stack -> Body -> IO ()
cancelAlarm st b = case bodyAlarm b of
  NoAlarm -> pure ()
  Alarmed _ key -> void (Timers.cancel (stackTimers st) key)
