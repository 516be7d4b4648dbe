{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The user timeout option (RFC 5482)
--
-- An end tells its peer for how long it waits for acknowledgements, so that neither gives up long before the other. Off by default
-- ('settingTimeoutOption').
module Weft.Tcp.Internal.UserTimeout
  ( patience,
    toldTimeout,
    agreeing,
  )
where

import Data.Bits (testBit, (.&.), (.|.))
import Data.Int (Int64)
import Data.Word (Word16)
import Weft.Tcp.Internal.Settings
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Segment

-- | For how long acknowledgements are waited for: the user timeout, or within bounds the peer's if that is longer.
patience :: Settings -> Int64
patience s = case settingTimeoutOption s of
  AgreeTimeout least most told | told > 0 -> max (settingUserTimeout s) (min most (max least told))
  _ -> settingUserTimeout s

-- | The value of the option that this end sends, if it does: seconds, or minutes with the upper bit, and never 0 (section 3). One without end
-- cannot be told.
toldTimeout :: Settings -> Maybe Word16
toldTimeout s = case settingTimeoutOption s of
  NoTimeoutOption -> Nothing
  _
    | settingUserTimeout s == never -> Nothing
    | seconds <= 32767 -> Just (fromIntegral (max 1 seconds))
    | otherwise -> Just (0x8000 .|. fromIntegral (min 32767 (seconds `div` 60)))
  where
    seconds = settingUserTimeout s `div` 1000000

-- | What an acceptable segment tells is remembered, if it is to be heeded. 0 is not valid.
agreeing :: Options -> Tcb -> Tcb
agreeing o t = case (settingTimeoutOption settings, timeOf <$> optionUserTimeout o) of
  (AgreeTimeout least most known, Just told) | told > 0, told /= known -> t {tcbSettings = settings {settingTimeoutOption = AgreeTimeout least most told}}
  _ -> t
  where
    settings = tcbSettings t
    timeOf value = fromIntegral (value .&. 0x7fff) * (if testBit value 15 then 60000000 else 1000000)
