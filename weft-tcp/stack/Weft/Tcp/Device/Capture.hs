-- |
-- Description : The packets of a device, written to a file
--
-- Every packet that a stack reads from its device or sends through it, in the format pcapng, which Wireshark and tcpdump read.
module Weft.Tcp.Device.Capture (capturing) where

import Control.Concurrent.MVar (modifyMVar_, newMVar)
import Control.Exception (IOException, onException, try)
import Control.Monad (forM_)
import Data.ByteString.Builder (hPutBuilder)
import Data.Time.Clock.System (getSystemTime)
import System.IO
import Weft.Tcp.Device
import Weft.Tcp.Device.Pcapng

-- | A device whose packets are also written to this file, with the time and the direction.
-- The file is made anew. All packets so far are in it whenever the device has nothing to read, and
-- when it is closed. Writing blocks as files do. A write that fails ends the capture, not the
-- device.
--
-- Of what a device cuts into segments or gives uncut the file has the whole, with a checksum that is
-- not complete.
--
-- Throws an 'IOError' if the file cannot be made, and closes the device then. Packets from a stack to
-- its own addresses pass no device.
capturing :: FilePath -> Device -> IO Device
capturing path device = do
  file <- begun `onException` deviceClose device
  -- Several workers write, one block at a time.
  open <- newMVar True
  let attempt act = modifyMVar_ open $ \writable ->
        if writable then either (\(_ :: IOException) -> False) (const True) <$> try act else pure False
      record direction packet = attempt (getSystemTime >>= \t -> hPutBuilder file (packetBlock direction t packet))
      recorded queue =
        queue
          { deviceRead = do
              packets <- deviceRead queue
              if null packets then attempt (hFlush file) else forM_ packets (record Inbound)
              pure packets,
            deviceSend = \packet -> record Outbound packet >> deviceSend queue packet,
            deviceSendWhole = (\send cut packet -> record Outbound packet >> send cut packet) <$> deviceSendWhole queue,
            deviceAnother = fmap recorded <$> deviceAnother queue
          }
  pure (recorded device) {deviceClose = deviceClose device >> attempt (hClose file)}
  where
    begun = do
      file <- openBinaryFile path WriteMode
      hSetBuffering file (BlockBuffering (Just 65536))
      hPutBuilder file preamble
      file <$ hFlush file
