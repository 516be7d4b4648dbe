-- |
-- Description : An echo server over TCP of our own
module Echo (main, overTun) where

import Control.Monad (unless)
import Data.ByteString qualified as ByteString
import Weft
import Weft.Serve
import Weft.Socket
import Weft.Tcp.Device.Tun
import Weft.Tcp.Packet
import Weft.Tcp.Stack

main :: IO ()
main = runWith overTun (serveTcp defaultServeSettings Nothing "7000" session)

overTun :: Settings
overTun = defaultSettings {settingKernel = withTcp settings (systemKernel defaultSystemSettings)}
  where
    settings = defaultTcpSettings (openTun "tun0" address 24) [address]
    -- 10.9.0.2
    address = Address4 0x0a090002

session :: Socket -> SockAddr -> Thread ()
session client peer = do
  bytes <- receive client 4096
  unless (ByteString.null bytes) (sendAll client bytes >> session client peer)
