-- |
-- Description : Where a stack's packets come from and go to
--
-- A device carries IP packets, one at a time, and may lose any of them, as a network does.
-- "Weft.Tcp.Device.Tun" has one of the system's; 'newPair' makes two that are joined in memory.
module Weft.Tcp.Device
  ( Device (..),
    noDevice,

    -- * In memory
    newPair,
    Link (..),
    perfectLink,
  )
where

import Control.Monad (unless, void, when)
import Data.ByteString (ByteString)
import Data.IORef
import Weft (Thread)
import Weft.Kernel (Outcome (..), Waiter, deliver, suspend)

-- | A way for packets to and from a stack.
data Device = Device
  { -- | For messages.
    deviceName :: !String,
    -- | The largest packet that it carries, in bytes.
    deviceMtu :: !Int,
    -- | Packets that have come, in their order; none if there are none. Does not block. They may
    -- share memory that is overwritten by the next call. Throws an 'IOError' if there will be none
    -- any more.
    deviceRead :: !(IO [ByteString]),
    -- | Wait until there may be one. An ordinary system call of a thread, so that it can be
    -- simulated; may return for nothing.
    deviceAwait :: !(Thread ()),
    -- | Send a packet, or lose it. Does not block; any OS thread calls it, one at a time.
    deviceSend :: !(ByteString -> IO ()),
    -- | Give it back. Nothing is called afterwards.
    deviceClose :: !(IO ())
  }

-- | A device to nowhere: a stack on it has its own addresses only.
noDevice :: Device
noDevice =
  Device
    { deviceName = "none",
      deviceMtu = 65535,
      deviceRead = pure [],
      deviceAwait = suspend "wait for a packet that never comes" (\_ -> pure ()),
      deviceSend = \_ -> pure (),
      deviceClose = pure ()
    }

-- | What a joint in memory does to packets of one direction.
data Link = Link
  { -- | The most packets that wait to be read; further ones are lost.
    linkQueue :: !Int,
    -- | What becomes of each: the packets that arrive in its place.
    linkFate :: !(ByteString -> IO [ByteString])
  }

-- | Every packet arrives, in order, as long as no more than 10,000 wait.
perfectLink :: Link
perfectLink = Link 10000 (\p -> pure [p])

-- Packets, newest first, their number, and who waits for one.
data Queue = Queue !Int [ByteString] (Maybe (Waiter ()))

-- | Two devices that are joined: what one sends the other reads. They may be used by two runs. The
-- MTU, and the links from the first to the second and back.
newPair :: Int -> Link -> Link -> IO (Device, Device)
newPair mtu there back = do
  a <- newIORef (Queue 0 [] Nothing)
  b <- newIORef (Queue 0 [] Nothing)
  pure (end "pair-a" a (push b there), end "pair-b" b (push a back))
  where
    end name queue send =
      Device
        { deviceName = name,
          deviceMtu = mtu,
          deviceRead = atomicModifyIORef' queue (\(Queue _ ps w) -> (Queue 0 [] w, reverse ps)),
          deviceAwait = suspend "wait for a packet" (await queue),
          deviceSend = send,
          deviceClose = pure ()
        }
    await queue waiter = do
      there' <- atomicModifyIORef' queue $ \(Queue n ps w) -> if n > 0 then (Queue n ps w, True) else (Queue n ps (Just waiter), False)
      when there' (void (deliver waiter (Answered ())))
    push queue link packet = linkFate link packet >>= mapM_ (pushOne queue link)
    pushOne queue link packet = do
      waiting <- atomicModifyIORef' queue $ \q@(Queue n ps w) -> if n >= linkQueue link then (q, Nothing) else (Queue (n + 1) (packet : ps) Nothing, w)
      unless (null waiting) (mapM_ (\w -> deliver w (Answered ())) waiting)
