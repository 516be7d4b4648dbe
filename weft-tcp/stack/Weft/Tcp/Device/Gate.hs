-- |
-- Description : A device with a gate
--
-- A stack behind a gate that is shut reads nothing and what it sends is dropped, so that another stack can have the
-- device ("Weft.Tcp.Handover").
module Weft.Tcp.Device.Gate
  ( Gate,
    newGate,
    openGate,
    shutGate,
    gated,
  )
where

import Control.Monad (void, when)
import Data.IORef
import Weft.Kernel (Outcome (..), Waiter, deliver, suspend)
import Weft.Tcp.Device

-- | Open or shut. Of any OS thread.
newtype Gate = Gate (IORef GateState)

data GateState
  = Open
  | -- | The threads that wait for it to be opened.
    Shut [Waiter ()]

-- | A gate. The flag: is it open?
newGate :: Bool -> IO Gate
newGate open = Gate <$> newIORef (if open then Open else Shut [])

-- | Open it: the stack has the device from now on.
openGate :: Gate -> IO ()
openGate (Gate ref) = do
  waiting <- atomicModifyIORef' ref $ \case
    Open -> (Open, [])
    Shut ws -> (Open, ws)
  mapM_ (\w -> void (deliver w (Answered ()))) waiting

-- | Shut it. A stack that is in its turn may still read and send once.
shutGate :: Gate -> IO ()
shutGate (Gate ref) = atomicModifyIORef' ref $ \case
  Open -> (Shut [], ())
  shut -> (shut, ())

isOpen :: Gate -> IO Bool
isOpen (Gate ref) =
  readIORef ref >>= \case
    Open -> pure True
    Shut _ -> pure False

-- | The device behind the gate.
gated :: Gate -> Device -> Device
gated gate@(Gate ref) device =
  device
    { deviceRead = isOpen gate >>= \open -> if open then deviceRead device else pure [],
      deviceAwait = do
        suspend "until the network device belongs to this stack" $ \waiter -> do
          open <- atomicModifyIORef' ref $ \case
            Open -> (Open, True)
            Shut ws -> (Shut (waiter : ws), False)
          when open (void (deliver waiter (Answered ())))
        deviceAwait device,
      deviceSend = \packet -> isOpen gate >>= \open -> when open (deviceSend device packet),
      deviceSendWhole = (\send cut packet -> isOpen gate >>= \open -> when open (send cut packet)) <$> deviceSendWhole device,
      deviceAnother = fmap (gated gate) <$> deviceAnother device
    }
