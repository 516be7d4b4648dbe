-- |
-- Description : What an operator is told of handshakes that failed
-- Stability   : not home
--
-- A handshake that failed, in words and in labels; and who is told of how many of them. Used by
-- the threads of connections.
module Weft.Tls.Internal.Failed
  ( FailedHandshake (..),
    failedReason,

    -- * A line from time to time
    FailureLog,
    newFailureLog,
    logFailure,
    Quiet (..),
    admit,

    -- * Alerts
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

-- | A handshake of a server that did not come about.
data FailedHandshake = FailedHandshake
  { failedClient :: !SockAddr,
    failedWhy :: !TlsFailure,
    -- | The alert that the client was sent, or has sent ('RefusedByPeer'), by its name in
    -- RFC 8446 such as @protocol_version@.
    failedAlert :: !(Maybe ByteString)
  }
  deriving stock (Eq, Show)

-- | One of a few words, for a label of a metric.
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

-- | Who is told, and of which.
data FailureLog = FailureLog !(String -> IO ()) !(IORef Quiet)

-- | No line before an instant; and how many there would have been since the last.
data Quiet = Loud | QuietUntil !Instant !Int
  deriving stock (Eq, Show)

-- | Lines are told by this action.
newFailureLog :: (String -> IO ()) -> IO FailureLog
newFailureLog tell = FailureLog tell <$> newIORef Loud

-- | Anybody can make as many handshakes fail as they like: a line every ten seconds at most, with
-- the number of those that had none. None of a connection that has sent nothing, as probes do.
logFailure :: FailureLog -> FailedHandshake -> Thread ()
logFailure (FailureLog tell state) failed
  | failedWhy failed == NothingSent = pure ()
  | otherwise = do
      t <- now
      liftIO (atomicModifyIORef' state (admit t) >>= \passed -> for_ passed (tell . line failed))

-- | A handshake has failed at this instant: is it told, and of how many before it was nothing
-- told?
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

-- | The alert that a packet is, as the library shows packets.
alertIn :: String -> Maybe ByteString
alertIn packet = case stripPrefix "Alert" packet of
  Just rest | '(' : parts <- dropWhile (/= '(') rest -> Just (C.pack (alertName (takeWhile (/= ')') parts)))
  _ -> Nothing
