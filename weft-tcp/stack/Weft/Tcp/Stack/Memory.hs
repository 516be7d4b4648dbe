{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The memory of a stack's connections
--
-- Both buffers of a connection grow beyond their first sizes ("Weft.Tcp.Internal.Growth"; the one for sending with the congestion
-- window), and what is in them beyond that is counted for all connections of a shard. Everything here runs in the stack's turn
-- ("Weft.Tcp.Stack.Turn").
--
-- Note [When memory is short]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- While connections hold 'tcpSpareMemory' or more beyond their first sizes, no buffer grows, writers have the first
-- size, and of what comes only that is kept which begins within the first size of its connection: what has been offered may be filled by all
-- peers at once. So a stack holds at most its spare memory, the first sizes, and what one write or segment adds. The peer
-- sends again what was dropped. What the user is to read next begins within the first size, or as much as that is there to be
-- read: no connection waits for another one.
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

-- | A connection's next state, with what it holds beyond its first sizes counted.
weighed :: Stack -> Body -> IO Body
weighed st b
  | beyond == bodyBeyond b = pure b
  | otherwise = recounted st beyond b
  where
    !beyond = beyondOf (firstSendBuffer st b) (isOrphan b) (bodyTcb b)

-- Out of line, or all fields are read for it before that is known: 200 instructions of a round trip.
recounted :: Stack -> Int -> Body -> IO Body
recounted st beyond b = b {bodyBeyond = beyond} <$ modifyIORef' (stackBeyond st) (+ (beyond - bodyBeyond b))
{-# NOINLINE recounted #-}

-- How many bytes it holds beyond its first sizes, given that of the buffer for sending, and whether it has no user any more.
beyondOf :: Int -> Bool -> Tcb -> Int
beyondOf sendBuffer orphan t
  | tcbState t == Closed = if orphan then 0 else incoming
  -- Once the FIN is acknowledged, 'sndUna' is after the last byte.
  | sndEnd t `before` sndUna t = incoming
  | otherwise = incoming + distance (sndUna t) (sndEnd t) `over` fromIntegral sendBuffer
  where
    -- With gaps, as if there were none.
    incoming = distance (rcvRead t) (if isComplete (tcbReassembly t) then rcvNxt t else rcvAdv t) `over` settingReceiveBuffer (tcbSettings t)

over :: Word32 -> Word32 -> Int
over held first = if held > first then fromIntegral (held - first) else 0

-- | Is the spare memory used up? Note [When memory is short].
isShort :: Stack -> IO Bool
isShort st = (>= stackSpare st) <$> readIORef (stackBeyond st)

firstSendBuffer :: Stack -> Body -> Int
firstSendBuffer st b = if fixed > 0 then fixed else tcpSendBuffer (stackSettings st)
  where
    fixed = optSendBuffer (bodyOptions b)

-- | How many bytes it takes from its user that the peer has not acknowledged: two congestion windows, so that one is there when
-- the other was acknowledged.
sendBufferOf :: Stack -> Body -> IO Int
sendBufferOf st b
  | optSendBuffer (bodyOptions b) > 0 || wanted <= first = pure first
  | otherwise = (\short -> if short then first else wanted) <$> isShort st
  where
    first = firstSendBuffer st b
    wanted = min (tcpSendLimit (stackSettings st)) (2 * fromIntegral (windowBytes (tcbWindow (bodyTcb b))))

-- | How many more bytes the user may write.
roomOf :: Stack -> Body -> IO Int
roomOf st b = (\buffer -> max 0 (min (buffer - size (bodyOut b)) unsentRoom)) <$> sendBufferOf st b
  where
    limit = optUnsent (bodyOptions b)
    unsentRoom = if limit > 0 then limit - fromIntegral (unsent (bodyTcb b)) else maxBound

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
