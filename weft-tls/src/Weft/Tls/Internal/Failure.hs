-- |
-- Description : Why a TLS connection did not come about, or ended
-- Stability   : not home
--
-- One type for all that goes wrong with a peer, in words for an operator.
module Weft.Tls.Internal.Failure
  ( TlsFailure (..),
    failureOf,
    asIOError,
    alertName,
  )
where

import Control.Exception
import Data.Char (isAlpha, isUpper, toLower)
import Data.List (isPrefixOf)
import GHC.IO.Exception (IOErrorType (ProtocolError), IOException (..))
import Network.TLS (TLSError (..), TLSException (..))

-- | What went wrong with a peer.
data TlsFailure
  = -- | A client spoke HTTP without TLS. It was told so.
    PlainHttp
  | -- | What a client sent first is not TLS.
    NotTls
  | -- | The connection ended before anything was sent on it, as probes do.
    NothingSent
  | -- | The connection ended, or was reset, before the handshake did; a time limit
    -- counts as that.
    Vanished
  | -- | It was refused here, for this reason.
    Refused String
  | -- | The peer has refused, with this alert: its name in RFC 8446, such as @unknown_ca@.
    RefusedByPeer String
  | -- | The certificate of the server is not trusted, for these reasons.
    Untrusted [String]
  | -- | The stream ended without the peer having said so: what came may be a part only.
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
    Untrusted reasons -> "TLS: the certificate of the server is not trusted: " <> commas reasons
    Truncated -> "TLS: the connection was cut off"
    where
      commas [] = "no reason is known"
      commas rs = foldr1 (\a b -> a <> ", " <> b) rs

instance Exception TlsFailure

-- | What an exception of the library, or of a socket, means.
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
  | otherwise = Refused (displayException e)

ofError :: String -> TLSError -> TlsFailure
ofError _ Error_EOF = Vanished
ofError why inner = case inner of
  Error_Protocol (text, _, alert)
    | "remote side fatal error" `isPrefixOf` text -> RefusedByPeer (alertName (show alert))
    | otherwise -> Refused (text <> " (" <> show alert <> ")")
  Error_Packet text -> if "partial packet" `isPrefixOf` text then Vanished else Refused text
  Error_Packet_unexpected got wanted
    | "Alert" `isPrefixOf` got -> RefusedByPeer (alertName got)
    | otherwise -> Refused ("got " <> got <> wanted)
  -- Several lines, of which the first says it.
  Error_Packet_Parsing text -> Refused ("it cannot be parsed: " <> takeWhile (/= '\n') text)
  Error_Certificate text -> Refused ("its certificate: " <> text)
  Error_HandshakePolicy text -> Refused text
  Error_Misc text -> Refused (if null text then why else text)

-- | As the server of weft-http takes the end of a connection: it is no news.
asIOError :: TlsFailure -> IOException
asIOError failure = IOError Nothing ProtocolError "TLS" (displayException failure) Nothing Nothing

-- | The name in RFC 8446 of an alert that the library calls so: @ProtocolVersion@ is
-- @protocol_version@. The last word in what is given counts.
alertName :: String -> String
alertName shown = drop 1 (concatMap split (lastWord shown))
  where
    lastWord = reverse . takeWhile isAlpha . dropWhile (not . isAlpha) . reverse
    split c = if isUpper c then ['_', toLower c] else [c]
