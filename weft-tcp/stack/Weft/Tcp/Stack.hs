-- |
-- Description : TCP of our own under a program's sockets
--
-- 'withTcp' is a kernel whose sockets for TCP and UDP belong to a TCP\/IP stack in this process, on a packet
-- device ("Weft.Tcp.Device"). A program notices nothing but another value in @settingKernel@: the
-- system calls are those of "Weft.Socket" (Li & Zdancewic 2007, section 6; Li 2008, section 3.3).
--
-- As there, the loops that wait for packets and for timers are threads like any other, over the
-- system calls of the kernel underneath, for each worker.
module Weft.Tcp.Stack
  ( withTcp,
    TcpSettings (..),
    defaultTcpSettings,

    -- * Addresses
    parseAddress,
  )
where

import Control.Exception (mask_, onException)
import Control.Monad (when)
import Data.Char (isDigit)
import Data.IORef
import Weft.Internal.Kernel.Peer (describesSockets)
import Weft.Kernel
import Weft.Tcp.Connection qualified as Tcp
import Weft.Tcp.Device
import Weft.Tcp.Info (publishing)
import Weft.Tcp.Packet (Address (..))
import Weft.Tcp.Stack.Calls
import Weft.Tcp.Stack.Names
import Weft.Tcp.Stack.State

-- | A stack on this device with these addresses: connections as 'Tcp.defaultSettings' has them but
-- without Nagle's algorithm and with segments as large as the device takes, a send buffer of 256 KB that becomes up to 4 MB, 256 MB each for what buffers hold for readers beyond their first sizes, and for peers, a million sockets, 4,096 half-open connections
-- of each listener before it answers by cookies, 262,144 connections in TIME-WAIT, 16,384 closed ones with 128 MB, and a second for what is still to be sent at the end.
--
-- Nagle's algorithm as RFC 9293 has it keeps the end of each response back that is longer than a
-- segment, until the peer's acknowledgement, which comes 40 milliseconds late. Small pieces that
-- belong together are kept back by the sender ('MoreFollows').
defaultTcpSettings :: IO Device -> [Address] -> TcpSettings
defaultTcpSettings device addresses =
  TcpSettings
    { tcpDevice = device,
      tcpAddresses = addresses,
      tcpConnections = Tcp.defaultSettings {Tcp.settingNoDelay = True, Tcp.settingMss = maxBound},
      tcpSendBuffer = 262144,
      tcpSendLimit = 4194304,
      tcpSpareMemory = 268435456,
      tcpDatagrams = True,
      tcpMostSockets = pure 1000000,
      tcpMostHalfOpen = 4096,
      tcpMostTimeWait = 262144,
      tcpMostOrphans = 16384,
      tcpOrphanBytes = 134217728,
      tcpLinger = 1000000,
      tcpDivided = True,
      tcpOpened = \_ -> pure ()
    }

-- | An address with the length of its network: @10.9.0.2\/24@, @fd09::2\/64@. If there is no length, it is 24
-- for version 4 and 64 for version 6.
parseAddress :: String -> Either String (Address, Int)
parseAddress text = case break (== '/') text of
  (host, slash)
    | Just a <- parseHost host, Just n <- len a slash -> Right (a, n)
  _ -> Left (show text <> " is not an address with the length of its network, such as 10.9.0.2/24 or fd09::2/64")
  where
    len a = \case
      "" -> Just usual
      '/' : digits | not (null digits), all isDigit digits, length digits < 4, n <- read digits, n >= 1, n <= most -> Just n
      _ -> Nothing
      where
        (usual, most) = case a of
          Address4 _ -> (24, 30)
          Address6 {} -> (64, 126)

-- | A kernel whose sockets of families @AF_INET@ and @AF_INET6@ and types 'Stream' and 'Datagram' are those
-- of a stack in this process. All else is the kernel's underneath: sockets of the Unix domain, those
-- that were inherited ('Weft.Socket.adoptSocket'), names, files, time.
--
-- The calls mean what they mean on the system's sockets. The stack's sockets have negative numbers
-- ('descriptorNumber'). Several workers share it by flow: each has a part of it and a queue of the device, if the device has
-- that many. Its threads, for packets and for timers of each worker, start with the first socket; when
-- the run ends they go on for 'tcpLinger' if closed connections have something to send, and then
-- reset what is left.
--
-- Opening the device may throw an 'IOError', which the run then does.
withTcp :: TcpSettings -> Kernel -> Kernel
withTcp settings kernel =
  kernel
    { kernelName = kernelName kernel <> ", TCP of its own",
      openKernel = \workers -> mask_ $ do
        inner <- openKernel kernel workers
        device <- tcpDevice settings `onException` closeKernel inner
        devices <- if tcpDivided settings then queuesOf workers device else pure [device]
        st <- newShards settings devices
        undescribe <- describesSockets (describeSocket st)
        unpublish <- publishing st
        pure
          inner
            { startKernel = \host -> do
                when (hostWorker host == 0) (writeIORef (stackReport st) (hostReport host))
                answeringFor st host <$> startKernel inner host,
              openedGauges = (<>) <$> openedGauges inner <*> gauges st,
              closeKernel = closeKernel inner >> undescribe >> unpublish >> mapM_ deviceClose devices
            }
    }

answeringFor :: Stack -> Host -> Instance -> Instance
answeringFor st host started = case instanceAnswer started of
  AnswerCall inner -> started {instanceAnswer = AnswerCall (answer st (hostHome host) inner)}
