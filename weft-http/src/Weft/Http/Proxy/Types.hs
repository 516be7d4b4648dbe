{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The contents of PROXY headers
--
-- The types of both versions' parsers.
module Weft.Http.Proxy.Types
  ( -- * Headers
    ProxyHeader (..),
    Extras (..),
    noExtras,
    ProxyTls (..),

    -- * Progress
    ProxyParsed (..),
    ProxyFault (..),
    proxyFaultText,
  )
where

import Data.ByteString (ByteString)
import Weft.Socket (SockAddr)

-- | The origin of a connection, according to the proxy.
data ProxyHeader
  = -- | The proxy itself, such as its health check: the connection's own addresses apply (version
    -- 2 only).
    Local
  | -- | Unknown to the proxy, or of another family: the connection's own addresses apply.
    Unknown
  | -- | The client's address, the address that it connected to, and the other values.
    Proxied !SockAddr !SockAddr !Extras
  deriving stock (Eq, Show)

-- | The other values of version 2, as the proxy sent them. 'extrasAlpn', 'extrasAuthority' and
-- 'tlsCommonName' come from the client.
data Extras = Extras
  { -- | The application protocol agreed on by client and proxy.
    extrasAlpn :: !(Maybe ByteString),
    -- | The host name that the client asked for (in TLS: the server name).
    extrasAuthority :: !(Maybe ByteString),
    -- | The proxy's identifier of the connection, at most 128 bytes.
    extrasUniqueId :: !(Maybe ByteString),
    -- | TLS between client and proxy; 'Nothing' if the proxy does not say.
    extrasTls :: !(Maybe ProxyTls)
  }
  deriving stock (Eq, Show)

-- | No values.
noExtras :: Extras
noExtras = Extras Nothing Nothing Nothing Nothing

-- | TLS between client and proxy.
data ProxyTls = ProxyTls
  { -- | Did the client connect over TLS?
    tlsUsed :: !Bool,
    -- | Did it present a valid certificate, on this connection or in this session?
    tlsVerified :: !Bool,
    -- | Such as @TLSv1.3@.
    tlsVersion :: !(Maybe ByteString),
    tlsCipher :: !(Maybe ByteString),
    -- | The common name of the client's certificate.
    tlsCommonName :: !(Maybe ByteString)
  }
  deriving stock (Eq, Show)

-- | The outcome of parsing the beginning of a connection.
data ProxyParsed
  = -- | An incomplete header; at least this many bytes are missing.
    NeedMore !Int
  | -- | No header, or a refused one; more bytes do not change that.
    Refused !ProxyFault
  | -- | A header and its length in bytes. The client's bytes follow.
    Header !ProxyHeader !Int
  deriving stock (Eq, Show)

-- | Why a connection is refused, as 'proxyFaultText' explains.
data ProxyFault
  = NoSignature
  | LineTooLong
  | BadLine
  | BadCommand
  | BadFamily
  | TooShort
  | TooLong
  | BadValues
  | BadChecksum
  deriving stock (Eq, Show, Enum, Bounded)

-- | A line for the operator.
proxyFaultText :: ProxyFault -> String
proxyFaultText = \case
  NoSignature -> "the connection does not begin with a PROXY header"
  LineTooLong -> "a PROXY line of more than 107 bytes"
  BadLine -> "a malformed PROXY line"
  BadCommand -> "a PROXY header of an unknown version or command"
  BadFamily -> "a PROXY header of an unknown address family or transport"
  TooShort -> "a PROXY header too short for its addresses"
  TooLong -> "a PROXY header longer than the limit"
  BadValues -> "a PROXY header with malformed values"
  BadChecksum -> "a PROXY header with a wrong checksum"
