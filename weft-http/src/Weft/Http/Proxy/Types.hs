-- |
-- Description : What a PROXY header says
-- Stability   : not home
--
-- The vocabulary of both versions' parsers. Plain data.
module Weft.Http.Proxy.Types
  ( -- * Headers
    ProxyHeader (..),
    Extras (..),
    noExtras,
    ProxyTls (..),

    -- * Progress
    Parsed (..),
    ProxyFault (..),
    proxyFaultText,
  )
where

import Data.ByteString (ByteString)
import Weft.Socket (SockAddr)

-- | Where a connection comes from, as the proxy in front says.
data ProxyHeader
  = -- | From the proxy itself, such as its health check: the connection's own addresses are
    -- right (version 2 only).
    Local
  | -- | The proxy does not know, or it is of no family that this protocol has: the
    -- connection's own addresses are all there is.
    Unknown
  | -- | The client's address, the address that it connected to, and what else the proxy
    -- says.
    Proxied !SockAddr !SockAddr !Extras
  deriving stock (Eq, Show)

-- | What version 2 can say beside addresses. Byte strings are as the proxy sent them:
-- those of 'extrasAlpn', 'extrasAuthority' and 'tlsCommonName' come from the client in
-- the end.
data Extras = Extras
  { -- | The application protocol that client and proxy have agreed on.
    extrasAlpn :: !(Maybe ByteString),
    -- | The host name that the client asked for (in TLS: the server name).
    extrasAuthority :: !(Maybe ByteString),
    -- | A name that the proxy has given to the connection, at most 128 bytes.
    extrasUniqueId :: !(Maybe ByteString),
    -- | TLS between client and proxy; 'Nothing' if the proxy does not speak of it.
    extrasTls :: !(Maybe ProxyTls)
  }
  deriving stock (Eq, Show)

-- | Nothing.
noExtras :: Extras
noExtras = Extras Nothing Nothing Nothing Nothing

-- | TLS between client and proxy.
data ProxyTls = ProxyTls
  { -- | Did the client connect over TLS at all?
    tlsUsed :: !Bool,
    -- | Did it show a certificate, on this connection or in this session, and was it found
    -- to be good?
    tlsVerified :: !Bool,
    -- | Such as @TLSv1.3@.
    tlsVersion :: !(Maybe ByteString),
    tlsCipher :: !(Maybe ByteString),
    -- | Of the client's certificate.
    tlsCommonName :: !(Maybe ByteString)
  }
  deriving stock (Eq, Show)

-- | How far the beginning of a connection has been understood.
data Parsed
  = -- | It may be a header. At least so many bytes are missing.
    NeedMore !Int
  | -- | It is none, or one that is refused; more bytes do not change that.
    Refused !ProxyFault
  | -- | A header of so many bytes. What follows it belongs to the client.
    Header !ProxyHeader !Int
  deriving stock (Eq, Show)

-- | Why a connection is refused.
data ProxyFault
  = -- | It does not begin with either signature.
    NoSignature
  | -- | Version 1: no end of the line within 107 bytes.
    LineTooLong
  | -- | Version 1: the line is not as the protocol wants it.
    BadLine
  | -- | Version 2: a version or a command that there is not.
    BadCommand
  | -- | Version 2: a family or transport that there is not, or datagrams, which a
    -- connection does not carry.
    BadFamily
  | -- | Version 2: shorter than the addresses of its family.
    TooShort
  | -- | Version 2: longer than the limit.
    TooLong
  | -- | Version 2: the values behind the addresses do not end where the header does, or one
    -- of them has a length that it cannot have.
    BadValues
  | -- | Version 2: the checksum does not match.
    BadChecksum
  deriving stock (Eq, Show, Enum, Bounded)

-- | For the operator, on one line.
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
