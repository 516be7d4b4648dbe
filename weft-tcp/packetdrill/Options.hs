-- |
-- Description : The settings of scripts, and TCP_INFO as Linux counts it
module Options (settingsFromFlags, information) where

import Data.List qualified as List
import Data.Word (Word32)
import Weft.Tcp.Congestion
import Weft.Tcp.Connection
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Stack (TcpSettings (..))

-- | Linux's defaults, changed by the words that packetdrill was given in @--so_flags@, with commas
-- between them.
settingsFromFlags :: String -> TcpSettings -> TcpSettings
settingsFromFlags flags stack = List.foldl' word stack {tcpConnections = linux, tcpSendBuffer = 4194304} (split flags)
  where
    linux =
      defaultSettings
        { settingReceiveBuffer = 64240,
          settingReceiveLimit = 6291456,
          settingUserTimeout = 924600000,
          settingMss = maxBound,
          settingPathProbing = False
        }
    split x = case break (== ',') x of
      (a, _ : rest) -> a : split rest
      (a, []) -> [a]
    word x = \case
      -- No half-open connection is remembered.
      "cookies" -> x {tcpMostHalfOpen = 0}
      flag -> x {tcpConnections = setting (tcpConnections x) flag}
    setting s = \case
      "reno" -> s {settingControl = newReno}
      "cubic" -> s {settingControl = cubic}
      "nosack" -> s {settingSack = False}
      "ecn" -> s {settingEcn = OfferEcn}
      "noecn" -> s {settingEcn = NoEcn}
      "mtuprobing" -> s {settingPathProbing = True}
      "notlp" -> s {settingTailProbe = False}
      "notimestamps" -> s {settingTimestamps = False}
      "noscale" -> s {settingScaling = False}
      -- The settings of Google's scripts.
      "google" -> s {settingReceiveBuffer = 270000, settingReceiveLimit = 15728640}
      _ -> s

-- | State, congestion window and threshold in segments, what is out, selectively acknowledged,
-- retransmissions in a row, round trip and its variance.
information :: Tcb -> [Word32]
information t =
  [ state,
    segments (windowBytes (tcbWindow t)),
    if windowThreshold (tcbWindow t) > 2 ^ (30 :: Int) then 0x7fffffff else segments (windowThreshold (tcbWindow t)),
    (flight t + mss - 1) `div` mss,
    fromIntegral (sndBackoff t),
    rttSmooth t,
    rttVar t,
    mss
  ]
  where
    mss = fromIntegral (sndMss t)
    segments n = n `div` mss
    state = case tcbState t of
      Established -> 1
      SynSent -> 2
      SynReceived -> 3
      FinWait1 -> 4
      FinWait2 -> 5
      TimeWait -> 6
      Closed -> 7
      CloseWait -> 8
      LastAck -> 9
      Closing -> 11
