{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The memory of a stack's connections
--
-- Both buffers of a connection grow beyond their first sizes ("Weft.Tcp.Internal.Growth"; the one for sending with the congestion
-- window). What all connections of a shard hold for their readers beyond the first sizes is counted, and so is what they hold for
-- peers. Everything here runs in the stack's turn ("Weft.Tcp.Stack.Turn").
--
-- Note [When memory is short]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- While connections hold 'tcpSpareMemory' or more beyond their first receive buffers, no receive buffer grows, and of what comes only
-- that is kept which begins within the first size of its connection: what has been offered may be filled by all peers at once. The
-- peer sends again what was dropped. What the user is to read next begins within the first size, or as much as that is there to be
-- read: no connection waits for another one.
--
-- A peer needs few packets to have a server write much that it does not take: a question, and a closed window. So what is written
-- counts, in steps of 'leastSend', unless the user has given the buffer a size. While that comes to 'tcpSpareMemory' or more, a
-- writer has room for two congestion windows, as far as the first size goes. A peer that takes nothing has the initial window; one
-- that acknowledges is as quick as before.
--
-- Before its connections move to another process a stack takes what their users write at once, up to 'tcpSendLimit' for each and half of
-- 'tcpOrphanBytes' for all: a user whose peer reads slowly, or not at all, would keep a connection until it has written everything. What moves,
-- or was closed, is not reset for the memory that it has.
--
-- So a stack holds at most twice its spare memory, for each connection its first receive buffer and 'leastSend' bytes or two congestion
-- windows, and what one write or segment adds.
module Weft.Tcp.Stack.Memory
  ( -- * What is held
    weighed,
    isShort,

    -- * What is taken
    sendBufferOf,
    roomOf,
    isRoomy,
    isBeyond,
  )
where

import Data.IORef
import Data.Word (Word32)
import Weft.Tcp.Congestion (Window (..))
import Weft.Tcp.Connection
import Weft.Tcp.Internal.Reassembly (isComplete)
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Segment
import Weft.Tcp.Sequence
import Weft.Tcp.Stack.Held
import Weft.Tcp.Stack.State

-- | A connection's next state, with what it holds counted.
weighed :: Stack -> Body -> IO Body
weighed st b
  | incoming == bodyBeyond b && outgoing == bodyOwed b = pure b
  | otherwise = recounted st incoming outgoing b
  where
    t = bodyTcb b
    closed = tcbState t == Closed
    !incoming
      | closed && isOrphan b = 0
      -- With gaps, as if there were none.
      | otherwise = distance (rcvRead t) (if isComplete (tcbReassembly t) then rcvNxt t else rcvAdv t) `over` settingReceiveBuffer (tcbSettings t)
    !outgoing
      -- Once the FIN is acknowledged, 'sndUna' is after the last byte.
      | closed || sndEnd t `before` sndUna t || optSendBuffer (bodyOptions b) > 0 = 0
      -- In whole steps, so that it seldom changes.
      | owed <- fromIntegral (distance (sndUna t) (sndEnd t)) = owed - owed `rem` leastSend

-- Out of line, or all fields are read for it before that is known: 200 instructions of a round trip.
recounted :: Stack -> Int -> Int -> Body -> IO Body
recounted st incoming outgoing b = do
  modifyIORef' (stackBeyond st) (+ (incoming - bodyBeyond b))
  modifyIORef' (stackOwed st) (+ (outgoing - bodyOwed b))
  pure b {bodyBeyond = incoming, bodyOwed = outgoing}
{-# NOINLINE recounted #-}

over :: Word32 -> Word32 -> Int
over held first = if held > first then fromIntegral (held - first) else 0

-- | Is the spare memory for what is received used up? Note [When memory is short].
isShort :: Stack -> IO Bool
isShort st = readIORef (stackBeyond st) >>= \beyond -> pure $! beyond >= stackSpare st

-- | How many bytes to send no connection is asked to do without.
leastSend :: Int
leastSend = 32768

-- | How many bytes it takes from its user that the peer has not acknowledged: two congestion windows, so that one is there when
-- the other was acknowledged; and if there is memory, the first size at least.
sendBufferOf :: Stack -> Body -> IO Int
sendBufferOf st b
  | fixed > 0 = pure fixed
  | otherwise = readIORef (stackOwed st) >>= \owed -> pure $! if owed < stackSpare st then max first (min limit wanted) else min first (max leastSend wanted)
  where
    fixed = optSendBuffer (bodyOptions b)
    first = tcpSendBuffer (stackSettings st)
    limit = tcpSendLimit (stackSettings st)
    wanted = 2 * fromIntegral (windowBytes (tcbWindow (bodyTcb b)))

-- | How many more bytes the user may write.
roomOf :: Stack -> Body -> IO Int
roomOf st b = do
  buffer <- sendBufferOf st b
  let room = min (buffer - size (bodyOut b)) unsentRoom
  if room > 0 then pure room else roomToMove st b
  where
    limit = optUnsent (bodyOptions b)
    unsentRoom = if limit > 0 then limit - fromIntegral (unsent (bodyTcb b)) else maxBound

-- What there is beside that before the connection moves.
roomToMove :: Stack -> Body -> IO Int
roomToMove st b = do
  moves <- readIORef (stackTakesMore st)
  owed <- readIORef (stackOwed st)
  let counted = optSendBuffer (bodyOptions b) == 0
      most = min (stackSpare st) (tcpOrphanBytes (stackSettings st) `div` 2)
  pure (if moves && counted && owed < most then max 0 (tcpSendLimit (stackSettings st) - size (bodyOut b)) else 0)

-- | Is there enough room to be worth waking a writer: a third?
isRoomy :: Stack -> Body -> IO Bool
isRoomy st b
  | not (maySend (tcbState (bodyTcb b))) = pure False
  | otherwise = do
      room <- roomOf st b
      buffer <- sendBufferOf st b
      pure (3 * room >= if limit > 0 then min buffer limit else buffer)
  where
    limit = optUnsent (bodyOptions b)

-- | Does the payload of a segment begin beyond the first size of the connection's buffer?
isBeyond :: Segment -> Tcb -> Bool
isBeyond s t = synchronized (tcbState t) && segmentLength s > 0 && (rcvRead t `advance` settingReceiveBuffer (tcbSettings t)) `upTo` segmentSeq s
