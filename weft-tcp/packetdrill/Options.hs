-- |
-- Description : Socket options and error numbers, as Linux counts them
module Options
  ( optionDefault,
    optionSetting,
    settingsFromFlags,
    information,

    -- * Error numbers
    eBadF,
    eNoEnt,
    eNoProtoOpt,
    eInval,
    ePipe,
    eNotConn,
    eIsConn,
    eAlready,
    eInProgress,
    eAddrInUse,
    eConnAborted,
  )
where

import Data.Int (Int64)
import Data.List qualified as List
import Data.Maybe (fromMaybe)
import Data.Word (Word32)
import Weft.Tcp.Congestion
import Weft.Tcp.Connection
import Weft.Tcp.Internal.Tcb

eBadF, eInval, ePipe, eNotConn, eIsConn, eAlready, eInProgress, eAddrInUse, eConnAborted, eNoEnt, eNoProtoOpt :: Int
eNoEnt = 2
eNoProtoOpt = 92
eBadF = 9
eInval = 22
ePipe = 32
eNotConn = 107
eIsConn = 106
eAlready = 114
eInProgress = 115
eAddrInUse = 98
eConnAborted = 103

-- | The value of an option that was not set.
optionDefault :: Settings -> (Int, Int) -> Int
optionDefault s = \case
  -- SO_RCVBUF, SO_SNDBUF, SO_TYPE, SO_PROTOCOL
  (1, 8) -> 131072
  (1, 7) -> 4194304
  (1, 3) -> 1
  (1, 38) -> 6
  -- TCP_NODELAY, TCP_CORK
  (6, 1) -> fromEnum (settingNoDelay s)
  (6, 3) -> fromEnum (settingCork s)
  -- TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT
  (6, 4) -> 7200
  (6, 5) -> 75
  (6, 6) -> 9
  -- SO_RCVLOWAT, IP_TTL, IP_MTU_DISCOVER, IP_MTU, TCP_SYNCNT
  (0, 14) -> fromIntegral (settingMss s + settingHeaders s)
  (1, 18) -> 1
  (0, 2) -> 64
  (0, 10) -> 1
  (6, 7) -> fromIntegral (settingSynRetries s)
  -- TCP_LINGER2
  (6, 8) -> fromIntegral (settingFinWait s `div` 1000000)
  _ -> 0

-- | The value that an option keeps, and the settings with it.
optionSetting :: (Int, Int) -> Int -> Settings -> Either Int (Int, Settings)
optionSetting option v s = case option of
  (1, 7) -> Right (max 4608 (2 * v), s)
  -- Half of it is room for payload.
  (1, 8) -> Right (max 2304 (2 * v), s {settingReceiveBuffer = max 1152 (fromIntegral v), settingReceiveLimit = max (fromIntegral v) (min (settingReceiveLimit s) (fromIntegral v))})
  (1, 9)
    | v /= 0 -> Right (1, s {settingKeepAlive = Just (fromMaybe (KeepAlive (7200 * second) (75 * second) 9) (settingKeepAlive s))})
    | otherwise -> Right (0, s {settingKeepAlive = Nothing})
  (6, 1) -> Right (fromEnum (v /= 0), s {settingNoDelay = v /= 0})
  (6, 2)
    | v /= 0 && (v < 88 || v > 32767) -> Left eInval
    | otherwise -> Right (v, if v == 0 then s else s {settingMss = min (settingMss s) (fromIntegral v)})
  (6, 3) -> Right (fromEnum (v /= 0), s {settingCork = v /= 0})
  (6, 4) | v < 1 || v > 32767 -> Left eInval
  (6, 4) -> Right (v, alive (\k -> k {keepIdle = fromIntegral v * second}))
  (6, 5) | v < 1 || v > 32767 -> Left eInval
  (6, 5) -> Right (v, alive (\k -> k {keepInterval = fromIntegral v * second}))
  (6, 6) | v < 1 || v > 127 -> Left eInval
  (6, 6) -> Right (v, alive (\k -> k {keepCount = fromIntegral v}))
  (6, 7)
    | v < 1 || v > 127 -> Left eInval
    | otherwise -> Right (v, s {settingSynRetries = fromIntegral v})
  -- TCP_CONGESTION, by its first letter; 0 is another name.
  (6, 13) -> case toEnum v of
    'r' -> Right (v, s {settingControl = newReno})
    'c' -> Right (v, s {settingControl = cubic})
    _ -> Left eNoEnt
  (6, n) | n < 1 || n > 45 -> Left eNoProtoOpt
  -- SO_RCVLOWAT
  (1, 18) -> Right (max 1 v, s)
  (6, 8) -> Right (v, if v > 0 then s {settingFinWait = fromIntegral v * second} else s)
  (6, 18)
    | v < 0 -> Left eInval
    | otherwise -> Right (v, s {settingUserTimeout = if v == 0 then 924600000 else fromIntegral v * 1000})
  _ -> Right (v, s)
  where
    alive f = s {settingKeepAlive = f <$> settingKeepAlive s}

second :: Int64
second = 1000000

-- | Linux's defaults, changed by the words that packetdrill was given in @--so_flags@, with commas
-- between them.
settingsFromFlags :: String -> Settings
settingsFromFlags = List.foldl' word linux . split
  where
    linux =
      defaultSettings
        { settingReceiveBuffer = 64240,
          settingReceiveLimit = 6291456,
          settingUserTimeout = 924600000,
          settingPathProbing = False
        }
    split x = case break (== ',') x of
      (a, _ : rest) -> a : split rest
      (a, []) -> [a]
    word s = \case
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
