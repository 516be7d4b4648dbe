{-# LANGUAGE CPP #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The failures caused by a peer, in words and labels, and rate-limited reports of failed handshakes.
module Weft.Tls.Internal.Failure
  ( TlsFailure (..),
    failureOf,
    asIOError,
    FailedHandshake (..),
    failedReason,
    FailureLog,
    newFailureLog,
    logFailure,
    Quiet (..),
    admit,
    alertIn,
  )
where

import Control.Exception (Exception (..), IOException, SomeException)
import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as C
import Data.Char (isAlpha, isUpper, toLower)
import Data.Foldable (for_)
import Data.IORef
import Data.List (intercalate, isPrefixOf, stripPrefix)
import GHC.IO.Exception (IOErrorType (ProtocolError), IOException (..))
import Network.TLS (AlertDescription, TLSError (..), TLSException (..))
import Weft
import Weft.Internal.Os.Report (exceptionText)
import Weft.Socket (SockAddr)
import Weft.Time (Instant, after, now)

-- | A failure caused by a peer.
data TlsFailure
  = -- | A client spoke HTTP without TLS, and was told so.
    PlainHttp
  | -- | A client's first bytes are not TLS.
    NotTls
  | -- | The connection ended before anything was sent on it, as probes do.
    NothingSent
  | -- | The connection ended, was reset, or timed out during the handshake.
    Vanished
  | -- | We refused the peer for this reason.
    Refused String
  | -- | The peer refused us with this alert: its name in RFC 8446, such as @unknown_ca@.
    RefusedByPeer String
  | -- | The server's certificate is not trusted, for these reasons.
    Untrusted [String]
  | -- | The stream ended unannounced, so the data may be incomplete.
    Truncated
  deriving stock (Eq)

instance Show TlsFailure where
  show = \case
    PlainHttp -> "TLS: the client spoke plain HTTP"
    NotTls -> "TLS: what came first is not TLS"
    NothingSent -> "TLS: nothing was sent"
    Vanished -> "TLS: the peer was gone before the handshake had ended"
    Refused why -> "TLS: refused: " <> why
    RefusedByPeer alert -> "TLS: the peer has refused: " <> alert
    Untrusted reasons -> "TLS: the certificate of the server is not trusted: " <> if null reasons then "no reason is known" else intercalate ", " reasons
    Truncated -> "TLS: the connection was cut off"

instance Exception TlsFailure

-- | Translate an exception of the library or a socket.
failureOf :: SomeException -> TlsFailure
failureOf e
  | Just failure <- fromException e = failure
  | Just (_ :: IOException) <- fromException e = Vanished
  | Just tls <- fromException e = case tls of
      Terminated True why _ -> RefusedByPeer (alertName why)
      Terminated False why inner -> ofError why inner
      HandshakeFailed inner -> ofError "" inner
      PostHandshake inner -> ofError "" inner
      Uncontextualized inner -> ofError "" inner
      other -> Refused (show other)
  | otherwise = Refused (exceptionText e)

ofError :: String -> TLSError -> TlsFailure
ofError why inner = case inner of
  Error_EOF -> Vanished
  _ | Just (text, alert) <- protocolError inner -> Refused (text <> " (" <> show alert <> ")")
  Error_Packet text -> if "partial packet" `isPrefixOf` text then Vanished else Refused text
  Error_Packet_unexpected got wanted -> Refused ("got " <> got <> wanted)
  -- Only the first line is informative.
  Error_Packet_Parsing text -> Refused ("it cannot be parsed: " <> takeWhile (/= '\n') text)
  Error_Certificate text -> Refused ("its certificate: " <> text)
  Error_HandshakePolicy text -> Refused text
  Error_Misc text -> Refused (if null text then why else text)
  -- Others come with an alert of the peer's ('Weft.Tls.Internal.Library.noteAlerts').
  other -> Refused (show other)

protocolError :: TLSError -> Maybe (String, AlertDescription)
#if MIN_VERSION_tls(1,9,0)
protocolError = \case
  Error_Protocol text alert -> Just (text, alert)
  Error_Protocol_Warning text alert -> Just (text, alert)
  _ -> Nothing
#else
protocolError = \case
  Error_Protocol (text, _, alert) -> Just (text, alert)
  _ -> Nothing
#endif

-- | A failure as the end of a connection, which weft-http's server does not report.
asIOError :: TlsFailure -> IOException
asIOError failure = IOError Nothing ProtocolError "TLS" (displayException failure) Nothing Nothing

-- | A failed handshake of a server.
data FailedHandshake = FailedHandshake
  { failedClient :: !SockAddr,
    failedWhy :: !TlsFailure,
    -- | The alert sent to or received from the client, by its name in RFC 8446 (@protocol_version@).
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

newFailureLog :: (String -> IO ()) -> IO FailureLog
newFailureLog tell = FailureLog tell <$> newIORef Loud

-- | Report a failure, at most every ten seconds, with the number of others; nothing of probes.
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

-- | The name in RFC 8446 of the alert in the last word: @ProtocolVersion@ is @protocol_version@.
alertName :: String -> String
alertName shown = drop 1 (concatMap split (lastWord shown))
  where
    lastWord = reverse . takeWhile isAlpha . dropWhile (not . isAlpha) . reverse
    split c = if isUpper c then ['_', toLower c] else [c]
