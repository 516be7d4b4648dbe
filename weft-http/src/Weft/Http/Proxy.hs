-- |
-- The PROXY protocol, versions 1 and 2, as HAProxy's @proxy-protocol.txt@ has it: a proxy
-- in front says, in a header before the first byte of the client, where the connection
-- comes from.
--
-- Whoever can connect can write such a header. So it is read from peers in trusted
-- networks only ('isTrusted'), and from them it must come: a connection that may have one
-- or not is one whose address the client chooses. What to do with others is the server's
-- business; refusing them is safe.
--
-- @
-- server <- newServer defaultServerSettings {serverProxy = Just ('proxyLayer' networks)} handler
-- @
module Weft.Http.Proxy
  ( -- * Parsing
    parseProxyHeader,
    defaultProxyLimit,
    Parsed (..),
    ProxyHeader (..),
    Extras (..),
    noExtras,
    ProxyTls (..),
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
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.IORef
import Weft
import Weft.Buffer
import Weft.Http.Proxy.Before
import Weft.Http.Proxy.Binary
import Weft.Http.Proxy.Line
import Weft.Http.Proxy.Networks
import Weft.Http.Proxy.Types
import Weft.Http.Request (Client (..))
import Weft.Http.Server.Types
import Weft.Socket (SockAddr, showAddress)

-- | Look at what a connection has begun with. The number bounds what version 2 may have
-- behind its first 16 bytes; a line of version 1 has at most 107 bytes.
--
-- It can be asked again with more of the same input: what was refused stays refused, and a
-- header stays that header, whatever follows.
--
-- >>> parseProxyHeader defaultProxyLimit "PROXY TCP4 192.0.2.1 198.51.100.2 4711 443\r\nGET /"
-- Header (Proxied 192.0.2.1:4711 198.51.100.2:443 (Extras {extrasAlpn = Nothing, extrasAuthority = Nothing, extrasUniqueId = Nothing, extrasTls = Nothing})) 44
-- >>> parseProxyHeader defaultProxyLimit "GET / HTTP/1.1\r\n"
-- Refused NoSignature
parseProxyHeader :: Int -> ByteString -> Parsed
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

-- | 4,096 bytes: addresses, and every value that proxies send.
defaultProxyLimit :: Int
defaultProxyLimit = 4096

-- | The client and the address that it connected to, given those of the connection
-- itself (peer, local).
clientOf :: (SockAddr, SockAddr) -> ProxyHeader -> (SockAddr, SockAddr)
clientOf own = \case
  Proxied client local _ -> (client, local)
  Local -> own
  Unknown -> own

-- | A connection did not begin with a header that is taken.
data ProxyRefused
  = ProxyRefused !ProxyFault
  | -- | It ended before the header did; so many bytes had come.
    ProxyEnded !Int
  | -- | It came from somebody who may not send one.
    ProxyUntrusted !SockAddr
  deriving stock (Eq)

instance Show ProxyRefused where
  show = \case
    ProxyRefused fault -> proxyFaultText fault
    ProxyEnded 0 -> "the connection ended before its PROXY header"
    ProxyEnded n -> "the connection ended after " <> show n <> " bytes of its PROXY header"
    ProxyUntrusted peer -> "a connection from " <> showAddress peer <> ", which is no trusted proxy"

instance Exception ProxyRefused

-- | Receive until the header is whole: what it says, and the bytes that came with it and
-- belong to the client, untouched. The limit is that of 'parseProxyHeader'; the action
-- waits for the next bytes, and gives none at the end. Throws 'ProxyRefused'.
--
-- It sets no time limit: the server's for a request head is a good one.
receiveProxyHeader :: Int -> Thread ByteString -> Thread (ProxyHeader, ByteString)
receiveProxyHeader limit next = go B.empty
  where
    go input = case parseProxyHeader limit input of
      Header header used -> pure (header, B.drop used input)
      Refused fault -> throwM (ProxyRefused fault)
      NeedMore _ -> do
        more <- next
        if B.null more then throwM (ProxyEnded (B.length input)) else go (input <> more)

-- | For 'Weft.Http.Server.serverProxy': each connection comes from these networks and begins
-- with a header, or it ends without an answer. The client's addresses are those of the
-- header, if it has some.
proxyLayer :: [Network] -> Layer
proxyLayer networks tell transport client = do
  unless (isTrusted networks (clientAddress client)) (throwM (ProxyUntrusted (clientAddress client)))
  proxyLayerOfAnybody HeaderRequired tell transport client

-- | Must a connection begin with a header?
data Presence
  = -- | One that does not ends without an answer.
    HeaderRequired
  | -- | It may. Where not, the client is who the socket says.
    HeaderOptional
  deriving stock (Eq, Show)

-- | The same from wherever the connection comes: for an address that only proxies can reach.
-- Anybody else who reaches it is whoever he says.
proxyLayerOfAnybody :: Presence -> Layer
proxyLayerOfAnybody presence _ transport client = do
  buffer <- liftIO (newBuffer roomForBoth)
  seen <- liftIO (newIORef B.empty)
  let next = do
        n <- transportReceive transport buffer 0 roomForBoth
        more <- liftIO (copyBuffer buffer 0 n)
        more <$ liftIO (modifyIORef' seen (<> more))
      plainly = \case
        refused | presence == HeaderOptional, isNone refused -> (,) Local <$> liftIO (readIORef seen)
        refused -> throwM refused
  (header, rest) <- receiveProxyHeader defaultProxyLimit next `catch` plainly
  let (address, local) = clientOf (clientAddress client, clientLocal client) header
  above <- liftIO (bytesBefore rest transport)
  pure (above, client {clientAddress = address, clientLocal = local})
  where
    -- The header and a request, most often.
    roomForBoth = 2048
    -- What has come is no header, nor the beginning of one that is wrong.
    isNone = \case
      ProxyRefused NoSignature -> True
      ProxyEnded _ -> True
      _ -> False
