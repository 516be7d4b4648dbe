-- | The PROXY protocol, versions 1 and 2 (HAProxy's @proxy-protocol.txt@): a proxy sends the client's
-- address first.
--
-- Anyone can write such a header. So read it only from trusted networks ('isTrusted'), and require it
-- from them: otherwise a client could choose its address. Refuse all other peers.
--
-- @
-- server <- newServer defaultServerSettings {serverProxy = Just ('proxyLayer' networks)} handler
-- @
module Weft.Http.Proxy
  ( -- * Parsing
    parseProxyHeader,
    defaultProxyLimit,
    ProxyParsed (..),
    ProxyHeader (..),
    ProxyFault (..),
    proxyFaultText,
    clientOf,

    -- * Receiving
    receiveProxyHeader,
    ProxyRefused (..),

    -- * Serving
    proxyLayer,
    Presence (..),
    proxyLayerOfAnybody,

    -- * Trust
    Network,
    parseNetwork,
    parseNetworks,
    renderNetwork,
    contains,
    isTrusted,
  )
where

import Control.Exception (Exception (..))
import Control.Monad (unless)
import Data.Bits (complement, unsafeShiftL, (.&.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.ByteString.Unsafe (unsafeUseAsCString)
import Data.IORef
import Data.Word (Word32)
import Foreign.Marshal.Utils (copyBytes)
import Foreign.Ptr (castPtr, plusPtr)
import Weft
import Weft.Buffer
import Weft.Http.Internal.Address
import Weft.Http.Internal.Ascii (splitCommas)
import Weft.Http.Proxy.Header
import Weft.Http.Server.Types
import Weft.Socket (SockAddr (..), showAddress)

-- | Parse the beginning of a connection. The number bounds what follows the 16 bytes of version 2.
--
-- Monotonic in the input: further bytes change neither a refusal nor a header.
--
-- >>> parseProxyHeader defaultProxyLimit "PROXY TCP4 192.0.2.1 198.51.100.2 4711 443\r\nGET /"
-- Header (Proxied 192.0.2.1:4711 198.51.100.2:443) 44
-- >>> parseProxyHeader defaultProxyLimit "GET / HTTP/1.1\r\n"
-- Refused NoSignature
parseProxyHeader :: Int -> ByteString -> ProxyParsed
parseProxyHeader limit input
  | have == 0 = NeedMore shortestLine
  | begins signature = if have < B.length signature then NeedMore (16 - have) else parseBinary limit input
  | begins "PROXY " = if have < 6 then NeedMore (shortestLine - have) else parseLine input
  | otherwise = Refused NoSignature
  where
    have = B.length input
    begins start = B.take have start == B.take (B.length start) input
    -- "PROXY UNKNOWN" and the line end.
    shortestLine = 15

-- | 4,096 bytes: enough for addresses and all values that proxies send.
defaultProxyLimit :: Int
defaultProxyLimit = 4096

-- | The client's and the local address, given those of the connection itself (peer, local).
clientOf :: (SockAddr, SockAddr) -> ProxyHeader -> (SockAddr, SockAddr)
clientOf own = \case
  Proxied client local -> (client, local)
  Local -> own
  Unknown -> own

-- | Why a connection was refused.
data ProxyRefused
  = ProxyRefused !ProxyFault
  | -- | It ended within the header, after this number of bytes.
    ProxyEnded !Int
  | -- | Its peer is not a trusted proxy.
    ProxyUntrusted !SockAddr
  deriving stock (Eq)

instance Show ProxyRefused where
  show = \case
    ProxyRefused fault -> proxyFaultText fault
    ProxyEnded 0 -> "the connection ended before its PROXY header"
    ProxyEnded n -> "the connection ended after " <> show n <> " bytes of its PROXY header"
    ProxyUntrusted peer -> "a connection from " <> showAddress peer <> ", which is no trusted proxy"

instance Exception ProxyRefused

-- | Receive a header, with the limit of 'parseProxyHeader': its contents, and the client's bytes after
-- it. The action returns more bytes, none at the end. Throws 'ProxyRefused'. Sets no time limit.
receiveProxyHeader :: Int -> Thread ByteString -> Thread (ProxyHeader, ByteString)
receiveProxyHeader limit next = go B.empty
  where
    go input = case parseProxyHeader limit input of
      Header header used -> pure (header, B.drop used input)
      Refused fault -> throwM (ProxyRefused fault)
      NeedMore _ -> do
        more <- next
        if B.null more then throwM (ProxyEnded (B.length input)) else go (input <> more)

-- | For 'Weft.Http.Server.serverProxy': requires these networks and a header, whose addresses become
-- the client's, and closes other connections unanswered.
proxyLayer :: [Network] -> Layer
proxyLayer networks tell transport client = do
  unless (isTrusted networks (clientAddress client)) (throwM (ProxyUntrusted (clientAddress client)))
  proxyLayerOfAnybody HeaderRequired tell transport client

-- | Is a header required?
data Presence
  = -- | Connections without one are closed unanswered.
    HeaderRequired
  | -- | Without one, the client has the socket's address.
    HeaderOptional
  deriving stock (Eq, Show)

-- | 'proxyLayer' for an address that only proxies can reach: any other peer could forge its address.
proxyLayerOfAnybody :: Presence -> Layer
proxyLayerOfAnybody presence _ transport client = do
  seen <- liftIO (newIORef B.empty)
  let next = do
        -- Usually enough for the header and a request.
        more <- receiveBytes transport 2048
        more <$ liftIO (modifyIORef' seen (<> more))
      plainly = \case
        refused | presence == HeaderOptional, isNone refused -> (,) Local <$> liftIO (readIORef seen)
        refused -> throwM refused
  (header, rest) <- receiveProxyHeader defaultProxyLimit next `catch` plainly
  let (address, local) = clientOf (clientAddress client, clientLocal client) header
  above <- liftIO (bytesBefore rest transport)
  pure (above, client {clientAddress = address, clientLocal = local})
  where
    -- The received bytes neither are nor begin a malformed header.
    isNone = \case
      ProxyRefused NoSignature -> True
      ProxyEnded _ -> True
      _ -> False

-- | A transport that first returns the client's bytes that arrived with the header.
bytesBefore :: ByteString -> Transport -> IO Transport
bytesBefore bytes transport
  | B.null bytes = pure transport
  | otherwise = do
      left <- newIORef bytes
      pure
        transport
          { transportReceive = \buffer offset count -> do
              have <- liftIO (readIORef left)
              if B.null have
                then transportReceive transport buffer offset count
                else liftIO $ do
                  n <- min (B.length have) <$> receiveRoom buffer offset count
                  unsafeUseAsCString have $ \from -> withBuffer buffer $ \to -> copyBytes (to `plusPtr` offset) (castPtr from) n
                  n <$ writeIORef left (B.drop n have),
            transportPending = do
              have <- readIORef left
              if B.null have then transportPending transport else pure True
          }

-- | The addresses with the same first bits, or all Unix-domain sockets.
data Network
  = -- | A prefix, with zeros after its first bits, and its length.
    Network !Address !Int
  | UnixSockets
  deriving stock (Eq, Show)

-- | Parse a network in CIDR notation, a single address, or @unix@ for all Unix-domain peers. An IPv4
-- network mapped into IPv6, such as @::ffff:10.0.0.0\/104@, is that IPv4 network.
--
-- >>> fmap renderNetwork (parseNetwork "10.0.0.0/8")
-- Right "10.0.0.0/8"
-- >>> parseNetwork "10.0.0.1/8"
-- Left "10.0.0.1/8: has bits after the first 8; the network is 10.0.0.0/8"
parseNetwork :: ByteString -> Either String Network
parseNetwork text
  | text == "unix" = Right UnixSockets
  | otherwise = do
      address <- maybe (wrong "no IPv4 or IPv6 address") Right (if C.elem ':' name then parseIPv6 name else parseIPv4 name)
      let width = widthOf address
      size <- case suffix of
        Nothing -> Right width
        Just digits -> maybe (wrong ("the prefix length is no number from 0 to " <> show width)) Right (parseDecimal width digits)
      let cut = masked size address
      if cut /= address
        then wrong ("has bits after the first " <> show size <> "; the network is " <> renderNetwork (Network cut size))
        else Right (normal cut size)
  where
    (name, rest) = C.break (== '/') text
    suffix = if B.null rest then Nothing else Just (B.drop 1 rest)
    wrong why = Left (C.unpack text <> ": " <> why)
    normal address size = case unmapped address of
      v4@(IPv4 _) | IPv6 {} <- address, size >= 96 -> Network v4 (size - 96)
      _ -> Network address size

-- | Parse networks separated by commas and blanks. An empty list is an error.
parseNetworks :: ByteString -> Either String [Network]
parseNetworks = traverse parseNetwork . splitCommas

widthOf :: Address -> Int
widthOf = \case
  IPv4 _ -> 32
  IPv6 {} -> 128

masked :: Int -> Address -> Address
masked size = \case
  IPv4 n -> IPv4 (n .&. ones size)
  IPv6 a b c d -> IPv6 (a .&. ones size) (b .&. ones (size - 32)) (c .&. ones (size - 64)) (d .&. ones (size - 96))
  where
    ones :: Int -> Word32
    ones n
      | n <= 0 = 0
      | n >= 32 = maxBound
      | otherwise = complement 0 `unsafeShiftL` (32 - n)

-- | Render a network for 'parseNetwork'.
renderNetwork :: Network -> String
renderNetwork = \case
  UnixSockets -> "unix"
  Network address size -> C.unpack (renderAddress address) <> "/" <> show size

-- | Is this peer in the network? A mapped IPv4 client counts as IPv4: @::\/0@ does not contain it.
contains :: Network -> SockAddr -> Bool
contains network peer = case (network, unmapped <$> addressOf peer) of
  (UnixSockets, Nothing) -> True
  (Network prefix size, Just address) -> widthOf prefix == widthOf address && masked size address == prefix
  _ -> False

-- | Is the peer in one of the networks?
isTrusted :: [Network] -> SockAddr -> Bool
isTrusted networks peer = any (`contains` peer) networks
