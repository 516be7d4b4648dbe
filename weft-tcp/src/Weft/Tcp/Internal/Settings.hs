{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The settings of connections
--
-- What many connections have in common, and share by a pointer; and the clock that their times are of.
module Weft.Tcp.Internal.Settings
  ( Instant,
    never,
    Settings (..),
    KeepAlive (..),
    Ecn (..),
    TimeoutOption (..),
    defaultSettings,
  )
where

import Data.Int (Int64)
import Data.Word (Word16, Word32, Word8)
import Weft.Tcp.Congestion

-- | Microseconds on a clock that only goes forwards.
type Instant = Int64

-- | No time at all.
never :: Instant
never = maxBound

-- | The settings that many connections share. Times are in microseconds.
data Settings = Settings
  { -- | How many bytes the user's memory for what is received has at first.
    settingReceiveBuffer :: !Word32,
    -- | How large that memory may become, as the user reads in a round trip more than half of it. If it is no more than
    -- the first size, that stays. The window scale is offered for the larger one.
    settingReceiveLimit :: !Word32,
    -- | The largest payload that this end's link takes: MTU less 40 bytes, or 60 (version 6).
    settingMss :: !Word16,
    -- | The length of the headers in front of it: 40 bytes, or 60.
    settingHeaders :: !Word16,
    settingControl :: !Control,
    -- | Send small segments at once (no Nagle's algorithm).
    settingNoDelay :: !Bool,
    -- | Hold back what does not fill a segment, for as long as an old peer's window would be probed.
    settingCork :: !Bool,
    -- | Options that are offered.
    settingSack, settingTimestamps, settingScaling :: !Bool,
    -- | How long an acknowledgement may be kept back. At most half a second (RFC 9293, MUST-40).
    settingAckDelay :: !Int64,
    -- | How many segments are acknowledged at once in the beginning, so that a peer in slow start
    -- is not held up. The first answer ends it.
    settingQuickAcks :: !Word8,
    -- | Whether marks of congestion are used (RFC 3168).
    settingEcn :: !Ecn,
    -- | Probe the tail before the retransmission timer fires (RFC 8985, section 7).
    settingTailProbe :: !Bool,
    -- | Send smaller segments when large ones vanish, and then look for the largest that passes (RFC 4821).
    settingPathProbing :: !Bool,
    -- | Bounds of the retransmission timeout: the first is added to the round trip at least, the
    -- second is never exceeded. RFC 6298 asks for a second; the default is 200 milliseconds, as is
    -- usual.
    settingMinimumRto, settingMaximumRto :: !Int64,
    -- | Give up when nothing was acknowledged for this time (RFC 9293, section 3.8.3). A peer that
    -- answers probes of its closed window is waited for, and for this time once the user has closed.
    -- 'never': do not give up.
    settingUserTimeout :: !Int64,
    -- | Whether ends tell each other that time, and heed it (RFC 5482).
    settingTimeoutOption :: !TimeoutOption,
    -- | How often a SYN is sent again.
    settingSynRetries :: !Word8,
    settingKeepAlive :: !(Maybe KeepAlive),
    -- | How long TIME-WAIT lasts: twice the lifetime of a segment.
    settingTimeWait :: !Int64,
    -- | How long a connection that its user closed waits for the peer's FIN.
    settingFinWait :: !Int64
  }

-- | Use marks of congestion never, where the peer offers them, or offer them.
data Ecn = NoEcn | AcceptEcn | OfferEcn
  deriving stock (Eq, Show)

-- | The user timeout option.
data TimeoutOption
  = -- | It is neither sent nor read.
    NoTimeoutOption
  | -- | It is sent.
    TellTimeout
  | -- | It is sent, and the peer's counts if it is longer than 'settingUserTimeout': at least and at most this time. The last is what the
    -- peer has told, 0 before. A user that sets @TCP_USER_TIMEOUT@ has 'TellTimeout' from then on.
    AgreeTimeout !Int64 !Int64 !Int64
  deriving stock (Eq, Show)

-- | Asking whether a silent peer is there (RFC 9293, section 3.8.4): after how much silence, how
-- often, and after how many questions without an answer to give up.
data KeepAlive = KeepAlive {keepIdle :: !Int64, keepInterval :: !Int64, keepCount :: !Word8}

-- | 256 KB that become up to 6 MB, 1,460 bytes, CUBIC, all options but that of the user timeout, 40 ms, 200 ms to 60 s, 5 minutes, no keep-alive, a
-- minute each.
defaultSettings :: Settings
defaultSettings =
  Settings
    { settingReceiveBuffer = 262144,
      settingReceiveLimit = 6291456,
      settingMss = 1460,
      settingHeaders = 40,
      settingControl = cubic,
      settingNoDelay = False,
      settingCork = False,
      settingSack = True,
      settingTimestamps = True,
      settingScaling = True,
      settingAckDelay = 40000,
      settingQuickAcks = 16,
      settingEcn = AcceptEcn,
      settingTailProbe = True,
      settingPathProbing = True,
      settingMinimumRto = 200000,
      settingMaximumRto = 60000000,
      settingUserTimeout = 300000000,
      settingTimeoutOption = NoTimeoutOption,
      settingSynRetries = 6,
      settingKeepAlive = Nothing,
      settingTimeWait = 60000000,
      settingFinWait = 60000000
    }
