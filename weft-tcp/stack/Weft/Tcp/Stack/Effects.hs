{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Packets out, and alarms
--
-- A stack sends packets, to a device or to itself, and has its clock thread wake up. Everything here runs in
-- the stack's turn ("Weft.Tcp.Stack.Turn").
module Weft.Tcp.Stack.Effects
  ( -- * Addresses
    isOwn,
    loops,

    -- * Packets
    sendPacket,
    sendBare,

    -- * Alarms
    at,
    instead,
  )
where

import Control.Monad (forM_, void, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.IORef
import Data.Sequence qualified as Sequence
import Data.Word (Word8)
import Weft.Internal.Core.SystemCall (Outcome (Answered), deliver)
import Weft.Internal.Data.Timers qualified as Timers
import Weft.Tcp.Connection
import Weft.Tcp.Device
import Weft.Tcp.Packet
import Weft.Tcp.Segment hiding (Malformed)
import Weft.Tcp.Stack.Flow
import Weft.Tcp.Stack.Names
import Weft.Tcp.Stack.State

-- | Is it an address of the stack?
isOwn :: Stack -> Address -> Bool
isOwn st a =
  isLoopback a || case a of
    -- By their words: 400 instructions of a round trip less than by 'Eq'.
    Address4 x -> or [x == y | Address4 y <- own]
    Address6 x x' -> or [x == y && x' == y' | Address6 y y' <- own]
  where
    own = tcpAddresses (stackSettings st)

-- | Does the stack itself deliver packets to this address?
loops :: Stack -> Address -> Bool
loops st a = isOwn st a && not (deviceLoops (stackDevice st))

-- | Send a packet with this payload, to the stack itself or by the device: from, to, protocol.
sendPacket :: Stack -> Bool -> Address -> Address -> Word8 -> ByteString -> IO ()
sendPacket st loop source target protocol payload = do
  count st PacketsOut
  let packet = buildPacket (Packet source target protocol 64 0 0 payload)
  if loop
    then modifyIORef' (stackLoop st) (Sequence.|> packet)
    else deviceSend (stackDevice st) packet

-- | Send segments of a flow that have no payload.
sendBare :: Stack -> Flow -> [Segment] -> IO ()
sendBare st (Flow local localPort peer peerPort) segments = forM_ segments $ \s -> do
  count st SegmentsOut
  sendPacket st (loops st peer) local peer protocolTcp (buildSegment local peer (Ports localPort peerPort) s B.empty)

-- | Have something happen at a time.
at :: Stack -> Instant -> Alarm -> IO Timers.TimerKey
at st t alarm = Timers.insert (stackTimers st) t alarm <* hasten st t

-- | Have it happen at another time than the alarm before it.
instead :: Stack -> Timers.TimerKey -> Instant -> Alarm -> IO Timers.TimerKey
instead st before t alarm = Timers.cancel (stackTimers st) before >> at st t alarm

-- | The clock thread is to look at this time at the latest.
hasten :: Stack -> Instant -> IO ()
hasten st t = do
  sooner <- atomicModifyIORef' (stackSoonest st) (\s -> (min s t, t < s))
  when sooner $
    readIORef (stackClock st) >>= \case
      Just (until', waiter) | t < until' -> void (deliver waiter (Answered ()))
      _ -> pure ()
