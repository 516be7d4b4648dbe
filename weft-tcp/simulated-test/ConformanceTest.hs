-- |
-- Description : The stack's sockets mean what sockets mean, in simulated worlds too
--
-- "Weft.Conformance" where both the machine and its links are simulated and the stack is the real
-- one: calm and in order, and over links that lose, double, reorder and corrupt what a machine sends
-- to itself.
module ConformanceTest (tests) where

import Network.Socket (SocketOption (Linger))
import Test.Tasty
import Weft.Conformance
import Weft.Sim
import Weft.Sim.Conformance
import Weft.Socket (setOption)
import Weft.Tcp.Connection qualified as Tcp
import Weft.Tcp.Simulated
import Weft.Tcp.Stack (TcpSettings (..))

tests :: TestTree
tests =
  testGroup
    "Conformance"
    [ networkConformance (world "segments, in order" 1 calmIp {ipTcp = quick} defaultConfig {configStrategy = InOrder}),
      networkConformance (world "segments, 2 workers" 3 calmIp {ipTcp = quick} defaultConfig {configWorkers = 2}),
      networkConformance (world "segments, rough, 2 workers" 2 roughIp {ipTcp = withoutDatagrams . quick} roughConfig)
    ]
  where
    -- Small pieces one after the other wait for acknowledgements, by Nagle's algorithm.
    quick s = s {tcpConnections = Tcp.defaultSettings {Tcp.settingAckDelay = 1000}}
    -- The suite does not expect that datagrams are lost on the way to their own machine.
    withoutDatagrams s = s {tcpDatagrams = False}

-- | Closing leaves no port in TIME-WAIT.
world :: String -> Seed -> IpSettings -> Config -> World
world name seed ip config =
  (simulatedWorld name seed config {configLayer = overSegments ip})
    { worldPunctual = configConditions config == calm,
      worldCuts = configConditions config /= calm,
      worldFirstCome = configWorkers config == 1,
      worldLeaveNoPort = \s -> setOption s Linger 0
    }
