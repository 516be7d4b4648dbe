-- |
-- Description : Options of sockets
--
-- What @setsockopt@ and @getsockopt@ mean, pure: the one table from an option to the settings of a connection, or to an
-- input. A layer with sockets keeps the 'Values' of each, and uses those that concern sockets itself. Numbers, units,
-- bounds and errors are Linux's. An option that is not in the table is refused with @ENOPROTOOPT@.
module Weft.Tcp.Options
  ( -- * Values
    Option,
    Values,
    noValues,
    setValue,
    getValue,
    valueOf,

    -- * Connections
    settingsWith,
    connectionValue,
    retuned,
    tuning,
    deferrals,

    -- * Congestion control
    congestionNamed,
  )
where

import Data.Bits (shiftL, shiftR, (.&.), (.|.))
import Data.Char (chr, ord)
import Data.Int (Int64)
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Maybe (fromMaybe, isJust)
import Foreign.C.Error
import Weft.Tcp.Congestion
import Weft.Tcp.Connection
import Weft.Tcp.Internal.Tcb

-- | The level and the number of an option.
type Option = (Int, Int)

-- | The options of a socket that were set, as they are read.
newtype Values = Values (Map Option Int)
  deriving newtype (Eq)

-- | No option was set.
noValues :: Values
noValues = Values Map.empty

-- The meaning of an option.
data Rule = Rule
  { -- The value that is kept.
    ruleKept :: Int -> Either Errno Int,
    -- The value that is read if none was set.
    ruleDefault :: Settings -> Int,
    ruleSetting :: Int -> Settings -> Settings
  }

-- | The values with this option set. Fails with @ENOPROTOOPT@ (there is no such option, or it cannot be set), @EINVAL@ or
-- @ENOENT@ (no congestion control has this name).
setValue :: Option -> Int -> Values -> Either Errno Values
setValue option v (Values m) = do
  r <- maybe (Left eNOPROTOOPT) Right (rule (canonical option))
  kept <- ruleKept r v
  pure (Values (Map.insert (canonical option) kept m))

-- | The value of an option, with the settings of connections if it was not set.
getValue :: Settings -> Option -> Values -> Either Errno Int
getValue s option values = case rule (canonical option) of
  Nothing -> Left eNOPROTOOPT
  Just r -> Right (fromMaybe (ruleDefault r s) (valueOf option values))

-- | The value of an option that was set.
valueOf :: Option -> Values -> Maybe Int
valueOf option (Values m) = Map.lookup (canonical option) m

-- | These settings, changed by the options. In the order of their numbers: whether keep-alive is on comes before its times.
settingsWith :: Values -> Settings -> Settings
settingsWith (Values m) s = Map.foldlWithKey' (\x option v -> maybe x (\r -> ruleSetting r v x) (rule option)) s m

-- | The value of an option that depends on the connection.
connectionValue :: Option -> Tcb -> Maybe Int
connectionValue option t = case option of
  -- TCP_MAXSEG, TCP_QUICKACK
  (6, 2) -> Just (fromIntegral (if tcbState t `elem` [SynSent, SynReceived] then settingMss (tcbSettings t) else segmentSize t))
  (6, 12) -> Just (fromEnum (not (t `is` Interactive)))
  _ -> Nothing

-- | The settings of an existing connection, given its options, the settings that a new one would have and its own. The segment size stays
-- as it was agreed. So does the memory, unless the options give its size; the right edge of the window does not go back.
retuned :: Values -> Settings -> Settings -> Settings
retuned values new old
  | settingMss new == settingMss old && keepsMemory = told new
  | otherwise = told memory {settingMss = settingMss old}
  where
    -- What the peer has told of its user timeout stays.
    told s = case (settingTimeoutOption s, settingTimeoutOption old) of
      (AgreeTimeout least most _, AgreeTimeout _ _ known) | known > 0 -> s {settingTimeoutOption = AgreeTimeout least most known}
      _ -> s
    -- SO_RCVBUF
    isGiven = isJust (valueOf (1, 8) values)
    keepsMemory = isGiven || settingReceiveBuffer new == settingReceiveBuffer old && settingReceiveLimit new == settingReceiveLimit old
    memory = if isGiven then new else new {settingReceiveBuffer = settingReceiveBuffer old, settingReceiveLimit = settingReceiveLimit old}

-- | What an existing connection is to be told of an option that was just set, by these settings.
tuning :: Option -> Int -> Settings -> [Input]
tuning option v s = case option of
  -- TCP_QUICKACK
  (6, 12) -> [Hasten (v /= 0)]
  -- TCP_NODELAY: what was corked is sent, once.
  (6, 1) | v /= 0, settingCork s -> [Tune s {settingCork = False}, Tune s]
  _ -> [Tune s]

-- | With @TCP_DEFER_ACCEPT@: how often the answer to a SYN is repeated before an acknowledgement without data is enough.
deferrals :: Values -> Int
deferrals values = maybe 0 (\seconds -> length (takeWhile (< seconds) (0 : periods))) (valueOf (6, 9) values)

-- How long the answer to a SYN was waited for after each repetition, in seconds.
periods :: [Int]
periods = take 255 (scanl1 (+) (iterate (min 60 . (* 2)) 1))

-- | The value of @TCP_CONGESTION@ for a name: its bytes, the first of which is the least. For sockets of the system, too.
congestionNamed :: String -> Int
congestionNamed = foldr (\c n -> n `shiftL` 8 .|. (ord c .&. 255)) 0 . take 7

-- Options for version 6 that are the same as those for version 4: IPV6_TCLASS.
canonical :: Option -> Option
canonical = \case
  (41, 67) -> (0, 1)
  option -> option

rule :: Option -> Maybe Rule
rule = \case
  -- SO_REUSEADDR, SO_REUSEPORT, IPV6_V6ONLY
  (1, 2) -> Just (flag (const False))
  (1, 15) -> Just (flag (const False))
  (41, 26) -> Just (flag (const False))
  -- SO_TYPE, SO_ERROR, SO_ACCEPTCONN, SO_PROTOCOL; IP_TTL, IP_MTU_DISCOVER (IP_PMTUDISC_WANT), IP_MTU
  (1, 3) -> fixed (const 1)
  (1, 4) -> fixed (const 0)
  (1, 30) -> fixed (const 0)
  (1, 38) -> fixed (const 6)
  (0, 2) -> fixed (const 64)
  (0, 10) -> fixed (const 1)
  (0, 14) -> fixed (\s -> fromIntegral (settingMss s + settingHeaders s))
  -- SO_SNDBUF, SO_RCVBUF: read twice as large as set; of a receive buffer half is for payload. More than 2^30 has no order
  -- among sequence numbers.
  (1, 7) -> Just (Rule (Right . max 4608 . twice) (const 0) (const id))
  (1, 8) -> Just (Rule (Right . max 2304 . twice) (twice . fromIntegral . settingReceiveBuffer) (\v s -> let n = fromIntegral (v `div` 2) in s {settingReceiveBuffer = n, settingReceiveLimit = n}))
  -- SO_KEEPALIVE
  (1, 9) -> Just (flag (isJust . settingKeepAlive)) {ruleSetting = \v s -> s {settingKeepAlive = if v /= 0 then Just (keepAlive s) else Nothing}}
  -- SO_LINGER: seconds; 0 resets, and a negative number does not linger.
  (1, 13) -> Just (Rule (Right . max (-1)) (const (-1)) (const id))
  -- SO_RCVLOWAT
  (1, 18) -> Just (Rule (\v -> Right (if v < 0 then 0x7fffffff else max 1 v)) (const 1) (const id))
  -- IP_TOS, less the bits of ECN.
  (0, 1) -> Just (Rule (\v -> Right (v .&. 0xfc)) (const 0) (const id))
  -- TCP_NODELAY, TCP_MAXSEG, TCP_CORK
  (6, 1) -> Just (flag settingNoDelay) {ruleSetting = \v s -> s {settingNoDelay = v /= 0}}
  (6, 2) -> Just (Rule (\v -> if v == 0 then Right 0 else within 88 32767 v) (const 536) (\v s -> if v == 0 then s else s {settingMss = min (settingMss s) (fromIntegral v)}))
  (6, 3) -> Just (flag settingCork) {ruleSetting = \v s -> s {settingCork = v /= 0}}
  -- TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT
  (6, 4) -> Just (Rule (within 1 32767) (inSeconds . keepIdle . keepAlive) (\v -> alive (\k -> k {keepIdle = fromIntegral v * second})))
  (6, 5) -> Just (Rule (within 1 32767) (inSeconds . keepInterval . keepAlive) (\v -> alive (\k -> k {keepInterval = fromIntegral v * second})))
  (6, 6) -> Just (Rule (within 1 127) (fromIntegral . keepCount . keepAlive) (\v -> alive (\k -> k {keepCount = fromIntegral v})))
  -- TCP_SYNCNT, TCP_LINGER2 (seconds; with a negative number it does not wait), TCP_DEFER_ACCEPT (seconds, rounded up)
  (6, 7) -> Just (Rule (within 1 127) (fromIntegral . settingSynRetries) (\v s -> s {settingSynRetries = fromIntegral v}))
  (6, 8) -> Just (Rule (Right . max (-1) . min 120) (inSeconds . settingFinWait) (\v s -> if v == 0 then s else s {settingFinWait = fromIntegral (max 0 v) * second}))
  (6, 9) -> Just (Rule (\v -> Right (if v <= 0 then 0 else last (takeWhile (< v) periods <> take 1 (dropWhile (< v) periods)))) (const 0) (const id))
  -- TCP_QUICKACK: the connection has it.
  (6, 12) -> Just (flag (const True))
  -- TCP_CONGESTION
  (6, 13) -> Just (Rule named (congestionNamed . nameOf . settingControl) (\v s -> maybe s (\c -> s {settingControl = c}) (lookup (nameIn v) controls)))
  -- TCP_USER_TIMEOUT: milliseconds; 0 is the default. The peer's counts no more (RFC 5482, section 3.1).
  (6, 18) -> Just (Rule (\v -> if v < 0 then Left eINVAL else Right v) (const 0) (\v s -> if v == 0 then s else s {settingUserTimeout = fromIntegral v * 1000, settingTimeoutOption = toldOnly (settingTimeoutOption s)}))
  -- TCP_NOTSENT_LOWAT
  (6, 25) -> Just (Rule (Right . max 0) (const 0) (const id))
  _ -> Nothing
  where
    flag from = Rule (Right . fromEnum . (/= 0)) (fromEnum . from) (const id)
    fixed from = Just (Rule (const (Left eNOPROTOOPT)) from (const id))
    within low high v = if v < low || v > high then Left eINVAL else Right v
    twice v = 2 * max 0 (min (2 ^ (30 :: Int)) v)
    alive f s = s {settingKeepAlive = f <$> settingKeepAlive s}
    keepAlive s = fromMaybe (KeepAlive (7200 * second) (75 * second) 9) (settingKeepAlive s)
    toldOnly = \case
      AgreeTimeout {} -> TellTimeout
      other -> other
    inSeconds = fromIntegral . (`div` second)
    named v = if nameIn v `elem` map fst controls then Right v else Left eNOENT
    nameIn v = map (chr . (.&. 255)) (takeWhile (/= 0) (iterate (`shiftR` 8) v))
    controls = [("reno", newReno), ("cubic", cubic)]
    nameOf c = if controlName c == controlName newReno then "reno" else controlName c

second :: Int64
second = 1000000
