{-# LANGUAGE CPP #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | One type for all failures caused by a peer, in words for an operator.
module Weft.Tls.Internal.Failure (TlsFailure (..), failureOf, asIOError, alertName) where

import Control.Exception
import Data.Char (isAlpha, isUpper, toLower)
import Data.List (intercalate, isPrefixOf)
import GHC.IO.Exception (IOErrorType (ProtocolError), IOException (..))
import Network.TLS (AlertDescription, TLSError (..), TLSException (..))
import Weft.Internal.Os.Report (exceptionText)

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
ofError _ Error_EOF = Vanished
ofError _ inner | Just (text, alert) <- protocolError inner = Refused (text <> " (" <> show alert <> ")")
ofError why inner = case inner of
  Error_Packet text -> if "partial packet" `isPrefixOf` text then Vanished else Refused text
  Error_Packet_unexpected got wanted -> Refused ("got " <> got <> wanted)
  -- Only the first line is informative.
  Error_Packet_Parsing text -> Refused ("it cannot be parsed: " <> takeWhile (/= '\n') text)
  Error_Certificate text -> Refused ("its certificate: " <> text)
  Error_HandshakePolicy text -> Refused text
  Error_Misc text -> Refused (if null text then why else text)
  -- Others come with an alert of the peer's ('Weft.Tls.Internal.Library.noteAlerts').
  other -> Refused (show other)

-- | A violation of the protocol, and its alert.
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

-- | The name in RFC 8446 of an alert in the library's notation: @ProtocolVersion@ is
-- @protocol_version@. Uses the last word of the argument.
alertName :: String -> String
alertName shown = drop 1 (concatMap split (lastWord shown))
  where
    lastWord = reverse . takeWhile isAlpha . dropWhile (not . isAlpha) . reverse
    split c = if isUpper c then ['_', toLower c] else [c]
