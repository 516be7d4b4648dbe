-- |
-- Description : Where a stack's packets come from and go to
--
-- A device carries IP packets, one at a time, and may lose any of them, as a network does.
-- "Weft.Tcp.Device.Tun" and "Weft.Tcp.Device.Interface" have those of the system; 'newPair' makes two that are joined in memory.
module Weft.Tcp.Device
  ( Device (..),
    noDevice,
    queuesOf,

    -- * In memory
    newPair,
    Link (..),
    perfectLink,
    Inbox,
    newInbox,
    putPacket,
    readingFrom,
  )
where

import Control.Exception (IOException, try)
import Control.Monad (void, when)
import Data.ByteString (ByteString)
import Data.IORef
import Weft (Thread)
import Weft.Kernel (Outcome (..), Waiter, deliver, suspend)
import Weft.Tcp.Packet (Address)

-- | A way for packets to and from a stack.
data Device = Device
  { -- | For messages.
    deviceName :: !String,
    -- | The largest packet that it carries now, in bytes. It may change. Cheap; from any OS thread.
    deviceMtu :: !(IO Int),
    -- | Packets that have come, in their order; none if there are none. Does not block. They may
    -- share memory that is overwritten by the next call. Throws an 'IOError' if there will be none
    -- any more.
    deviceRead :: !(IO [ByteString]),
    -- | Has it verified the checksums of TCP and UDP in what it reads?
    deviceVerifies :: !Bool,
    -- | Does it bring packets to the stack's own addresses back? Otherwise the stack does, at once.
    deviceLoops :: !Bool,
    -- | Wait until there may be one. An ordinary system call of a thread, so that it can be
    -- simulated; may return for nothing. Throws an 'IOError' if there will be none any more.
    deviceAwait :: !(Thread ()),
    -- | Send a packet, or lose it. Does not block; any OS thread calls it, one at a time unless the run has several
    -- workers.
    deviceSend :: !(ByteString -> IO ()),
    -- | If it can: 'deviceSend' for a packet of TCP in whose checksum only the pseudo-header is
    -- summed. The device completes it, and first cuts what is longer into segments with this much
    -- payload.
    deviceSendWhole :: !(Maybe (Int -> ByteString -> IO ())),
    -- | If it has more queues of packets: open another, which is a device of its own, and which the first outlives. Each
    -- brings some of the packets, mostly of flows that it has sent packets of. May throw an 'IOError'.
    deviceAnother :: !(Maybe (IO Device)),
    -- | Is there a way to a host with this address, as far as is known without a question? Where there is none, connecting fails
    -- at once (@ENETUNREACH@).
    deviceReaches :: !(Address -> Bool),
    -- | What it counts, by the names of "Weft.Counters". From any OS thread.
    deviceCounters :: !(IO [(String, Int)]),
    -- | Give it back. Nothing is called afterwards.
    deviceClose :: !(IO ())
  }

-- | A device to nowhere: a stack on it has its own addresses only.
noDevice :: Device
noDevice =
  Device
    { deviceName = "none",
      deviceMtu = pure 65535,
      deviceLoops = False,
      deviceRead = pure [],
      deviceAwait = suspend "wait for a packet that never comes" (\_ -> pure ()),
      deviceSend = \_ -> pure (),
      deviceVerifies = False,
      deviceSendWhole = Nothing,
      deviceAnother = Nothing,
      deviceReaches = const True,
      deviceCounters = pure [],
      deviceClose = pure ()
    }

-- | A device for each of several readers, the given number: queues of this one. Where it has no more, a reader sends by the first and
-- reads nothing.
queuesOf :: Int -> Device -> IO [Device]
queuesOf n first = go (n - 1) (deviceAnother first)
  where
    go left = \case
      Just another | left > 0 -> try another >>= either (\(_ :: IOException) -> go left Nothing) (\d -> (<> [d]) <$> go (left - 1) (deviceAnother first))
      _ -> pure (first : replicate left mute)
    mute = first {deviceRead = pure [], deviceAwait = deviceAwait noDevice, deviceAnother = Nothing, deviceCounters = pure [], deviceClose = pure ()}

-- | The behaviour of a joint in memory towards packets of one direction.
data Link = Link
  { -- | The most packets that wait to be read; further ones are lost.
    linkQueue :: !Int,
    -- | The packets that arrive in the place of each.
    linkDelivers :: !(ByteString -> IO [ByteString])
  }

-- | Every packet arrives, in order, as long as no more than 10,000 wait.
perfectLink :: Link
perfectLink = Link 10000 (\p -> pure [p])

-- | Packets that have come and wait to be read. Of any OS thread.
newtype Inbox = Inbox (IORef Arrived)

-- Packets, newest first, their number, and the thread that waits for one.
data Arrived = Arrived !Int [ByteString] (Maybe (Waiter ()))

-- | An inbox without packets.
newInbox :: IO Inbox
newInbox = Inbox <$> newIORef (Arrived 0 [] Nothing)

-- | One more, unless the given number wait; it is lost then.
putPacket :: Int -> Inbox -> ByteString -> IO ()
putPacket most (Inbox ref) packet = do
  waiter <- atomicModifyIORef' ref $ \case
    full@(Arrived n _ _) | n >= most -> (full, Nothing)
    Arrived n ps w -> (Arrived (n + 1) (packet : ps) Nothing, w)
  mapM_ (`deliver` Answered ()) waiter

-- | A device that reads from there: its name, its MTU, and how it sends.
readingFrom :: Inbox -> String -> Int -> (ByteString -> IO ()) -> Device
readingFrom (Inbox ref) name mtu send =
  Device
    { deviceName = name,
      deviceMtu = pure mtu,
      deviceLoops = False,
      deviceRead = atomicModifyIORef' ref (\(Arrived _ ps w) -> (Arrived 0 [] w, reverse ps)),
      deviceAwait = suspend "wait for a packet" await,
      deviceSend = send,
      deviceVerifies = False,
      deviceSendWhole = Nothing,
      deviceAnother = Nothing,
      deviceReaches = const True,
      deviceCounters = pure [],
      deviceClose = pure ()
    }
  where
    await waiter = do
      there <- atomicModifyIORef' ref $ \(Arrived n ps w) -> if n > 0 then (Arrived n ps w, True) else (Arrived n ps (Just waiter), False)
      when there (void (deliver waiter (Answered ())))

-- | Two devices that are joined: what one sends the other reads. They may be used by two runs. The
-- MTU, and the links from the first to the second and back.
newPair :: Int -> Link -> Link -> IO (Device, Device)
newPair mtu there back = do
  a <- newInbox
  b <- newInbox
  pure (readingFrom a "pair-a" mtu (over there b), readingFrom b "pair-b" mtu (over back a))
  where
    over link inbox packet = linkDelivers link packet >>= mapM_ (putPacket (linkQueue link) inbox)
