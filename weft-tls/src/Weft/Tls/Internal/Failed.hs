{-# OPTIONS_HADDOCK not-home #-}

-- | Describes failed handshakes in words and labels, and limits the rate of the reports.
module Weft.Tls.Internal.Failed
  ( FailedHandshake (..),
    failedReason,
    FailureLog,
    newFailureLog,
    logFailure,
    Quiet (..),
    admit,
    alertIn,
  )
where

import Control.Exception (displayException)
import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as C
import Data.Foldable (for_)
import Data.IORef
import Data.List (stripPrefix)
import Weft
import Weft.Socket (SockAddr)
import Weft.Time (Instant, after, now)
import Weft.Tls.Internal.Failure

-- | A failed handshake of a server.
data FailedHandshake = FailedHandshake
  { failedClient :: !SockAddr,
    failedWhy :: !TlsFailure,
    -- | The alert sent to or received from the client ('RefusedByPeer'), by its name in RFC 8446
    -- such as @protocol_version@.
    failedAlert :: !(Maybe ByteString)
  }
  deriving stock (Eq, Show)

-- | The failure as one of a few labels of a metric.
failedReason :: TlsFailure -> ByteString
failedReason = \case
  PlainHttp -> "plain_http"
  NotTls -> "not_tls"
  NothingSent -> "nothing_sent"
  Vanished -> "vanished"
  Refused _ -> "refused"
  RefusedByPeer _ -> "refused_by_peer"
  Untrusted _ -> "untrusted"
  Truncated -> "truncated"

-- | An action that reports, and the state of the rate limit.
data FailureLog = FailureLog !(String -> IO ()) !(IORef Quiet)

-- | No report before an instant, and the number of suppressed reports.
data Quiet = Loud | QuietUntil !Instant !Int
  deriving stock (Eq, Show)

-- | A log that reports lines by this action.
newFailureLog :: (String -> IO ()) -> IO FailureLog
newFailureLog tell = FailureLog tell <$> newIORef Loud

-- | Report a failure, at most every ten seconds, with the number of those suppressed: anyone can
-- cause failures. Ignores connections that sent nothing, as probes do.
logFailure :: FailureLog -> FailedHandshake -> Thread ()
logFailure (FailureLog tell state) failed
  | failedWhy failed == NothingSent = pure ()
  | otherwise = do
      t <- now
      liftIO (atomicModifyIORef' state (admit t) >>= \passed -> for_ passed (tell . line failed))

-- | Is a failure at this instant reported, and how many were suppressed before it?
admit :: Instant -> Quiet -> (Quiet, Maybe Int)
admit t = \case
  QuietUntil end n
    | t < end -> (QuietUntil end (n + 1), Nothing)
    | otherwise -> (next, Just n)
  Loud -> (next, Just 0)
  where
    next = QuietUntil (after (seconds 10) t) 0

line :: FailedHandshake -> Int -> String
line (FailedHandshake client why alert) n =
  "handshake with " <> show client <> " failed: " <> displayException why <> sent <> more
  where
    sent = case (why, alert) of
      (RefusedByPeer _, _) -> ""
      (_, Just name) -> "; alert sent: " <> C.unpack name
      _ -> "; no alert sent"
    more = if n == 0 then "" else " (and " <> show n <> " more since the last report)"

-- | The alert in a packet, as the library shows packets.
alertIn :: String -> Maybe ByteString
alertIn packet = case stripPrefix "Alert" packet of
  Just rest | '(' : parts <- dropWhile (/= '(') rest -> Just (C.pack (alertName (takeWhile (/= ')') parts)))
  _ -> Nothing
