-- | Serves WAI applications with the HTTP server of "Weft.Http.Server".
--
-- @
-- import Network.HTTP.Types (status200)
-- import Network.Wai (responseLBS)
-- import Weft.Wai (run)
--
-- main :: IO ()
-- main = 'run' 3000 (\\_ respond -> respond (responseLBS status200 [] \"Hello, World!\"))
-- @
--
-- The names are those of @Network.Wai.Handler.Warp@: an application for Warp runs here after a change
-- of one import. An executable needs @-threaded@.
--
-- An application begins as a direct thread ("Weft.IO"): waiting for its client suspends it without
-- blocking others. Those that block otherwise (in an 'Control.Concurrent.MVar.MVar', @threadDelay@, a
-- database client) are detected, and then run on GHC threads, as under Warp: see 'ApplicationStyle'.
module Weft.Wai
  ( -- * Running
    run,
    runEnv,
    runSettings,
    runSettingsSocket,

    -- * Settings
    Settings,
    defaultSettings,

    -- ** Where
    setPort,
    getPort,
    setHost,
    getHost,
    HostPreference,
    setListen,
    Port,

    -- ** When something goes wrong
    setOnException,
    getOnException,
    defaultOnException,
    defaultShouldDisplayException,
    setOnExceptionResponse,
    defaultOnExceptionResponse,
    exceptionResponseForDebug,

    -- ** Connections
    setOnOpen,
    getOnOpen,
    setOnClose,
    getOnClose,
    setTimeout,
    setSlowlorisSize,
    setMaximumBodyFlush,
    setMaxTotalHeaderLength,
    setMaximumRequestBody,

    -- ** Beginning and end
    setBeforeMainLoop,
    setInstallShutdownHandler,
    setGracefulShutdownTimeout,
    getGracefulShutdownTimeout,

    -- ** Responses
    setServerName,
    setAltSvc,
    setMaxBuilderResponseBufferSize,

    -- ** Requests
    setNoParsePath,
    setPrefetchBody,
    setLogger,

    -- ** The runtime
    setApplicationStyle,
    ApplicationStyle (..),
    setWorkers,
    setBackend,
    BackendChoice (..),
    setRuntime,
    setServer,

    -- ** Layers
    setLayers,
    setProxyLayer,
    setProxyProtocolNone,
    setProxyProtocolRequired,
    setProxyProtocolOptional,

    -- ** Without effect
    setFdCacheDuration,
    setFileInfoCacheDuration,
    setGracefulCloseTimeout1,
    setGracefulCloseTimeout2,
    setHTTP2Disabled,

    -- * In applications
    requestClient,
    ClientInfo (..),
    Security (..),

    -- * For tests
    withApplication,
    withApplicationSettings,
    testWithApplication,
    testWithApplicationSettings,
    openFreePort,
  )
where

import Control.Exception (SomeException)
import Data.ByteString (ByteString)
import Data.Maybe (fromMaybe)
import Data.Streaming.Network (HostPreference)
import Data.Vault.Lazy qualified as Vault
import Network.HTTP.Types (Status)
import Network.Socket (SockAddr)
import Network.Wai (Request, Response, vault)
import Weft (BackendChoice (..))
import Weft qualified
import Weft.Http.Proxy (Presence (..), proxyLayerOfAnybody)
import Weft.Http.Request (ClientInfo (..), Security (..))
import Weft.Http.Server (Layer, ServerSettings (..))
import Weft.Socket (Socket)
import Weft.Wai.Internal.Perform
import Weft.Wai.Internal.Request
import Weft.Wai.Internal.Run
import Weft.Wai.Internal.Settings

-- | A TCP port.
type Port = Int

-- | The port to listen on. Default: 3000.
setPort :: Port -> Settings -> Settings
setPort port settings = settings {settingsPort = port}

-- | The port to listen on.
getPort :: Settings -> Port
getPort = settingsPort

-- | The address to listen on. Default: any of IPv4.
setHost :: HostPreference -> Settings -> Settings
setHost host settings = settings {settingsHost = host}

-- | Listen on this socket, which the run opens and closes, in place of port and host. For another
-- kernel than the system's ('setRuntime'), such as a TCP of its own:
--
-- > setListen (listenTcp (Just "10.9.0.2") "3000" 4096) (setRuntime (\s -> s {settingKernel = withTcp tcp (settingKernel s)}) defaultSettings)
setListen :: Weft.Thread Socket -> Settings -> Settings
setListen listening settings = settings {settingsListen = Just listening}

-- | The address to listen on.
getHost :: Settings -> HostPreference
getHost = settingsHost

-- | Called with an exception that leaves an application, and the request if there is one. Default:
-- 'defaultOnException'. Not called when the client resets its connection.
setOnException :: (Maybe Request -> SomeException -> IO ()) -> Settings -> Settings
setOnException action settings = settings {settingsOnException = action}

-- | The handler of exceptions.
getOnException :: Settings -> Maybe Request -> SomeException -> IO ()
getOnException = settingsOnException

-- | The response to an exception, if none has begun. Default: 'defaultOnExceptionResponse'.
setOnExceptionResponse :: (SomeException -> Response) -> Settings -> Settings
setOnExceptionResponse respond settings = settings {settingsOnExceptionResponse = respond}

-- | Called when a connection was accepted; @False@ closes it.
setOnOpen :: (SockAddr -> IO Bool) -> Settings -> Settings
setOnOpen action settings = settings {settingsOnOpen = Just action}

-- | The action for accepted connections.
getOnOpen :: Settings -> SockAddr -> IO Bool
getOnOpen settings = fromMaybe (\_ -> pure True) (settingsOnOpen settings)

-- | Called when a connection ends.
setOnClose :: (SockAddr -> IO ()) -> Settings -> Settings
setOnClose action settings = settings {settingsOnClose = Just action}

-- | The action for ended connections.
getOnClose :: Settings -> SockAddr -> IO ()
getOnClose settings = fromMaybe (\_ -> pure ()) (settingsOnClose settings)

-- | In seconds: how long a client may take to send a head, between two pieces of a body and between
-- requests, and to accept a part of a response. Default: 30. Zero: unlimited.
setTimeout :: Int -> Settings -> Settings
setTimeout limit settings = settings {settingsTimeout = limit}

-- | In octets: how much unread body is received to keep the connection; 'Nothing': all. Default: 8192.
setMaximumBodyFlush :: Maybe Int -> Settings -> Settings
setMaximumBodyFlush most = setServer (\server -> server {serverSkipBody = maybe maxBound (fromIntegral . max 0) most})

-- | In octets; a larger head is answered with 431. Default: 51,200.
setMaxTotalHeaderLength :: Int -> Settings -> Settings
setMaxTotalHeaderLength most = setServer (\server -> server {serverLimits = headLimits most (serverLimits server)})

-- | In octets: a larger body is answered with 413. Default: any size.
setMaximumRequestBody :: Maybe Int -> Settings -> Settings
setMaximumRequestBody most = setServer (\server -> server {serverMaxBody = maybe maxBound fromIntegral most})

-- | Run when the socket listens, before connections are accepted.
setBeforeMainLoop :: IO () -> Settings -> Settings
setBeforeMainLoop action settings = settings {settingsBeforeMainLoop = action}

-- | Receives an action that ends the service gracefully, so that 'runSettings' returns; for any thread.
setInstallShutdownHandler :: (IO () -> IO ()) -> Settings -> Settings
setInstallShutdownHandler install settings = settings {settingsInstallShutdownHandler = install}

-- | In seconds: how long requests may take after that. Default: 'Nothing', unlimited.
setGracefulShutdownTimeout :: Maybe Int -> Settings -> Settings
setGracefulShutdownTimeout limit settings = settings {settingsGracefulShutdownTimeout = limit}

-- | The limit for requests at shutdown, in seconds.
getGracefulShutdownTimeout :: Settings -> Maybe Int
getGracefulShutdownTimeout = settingsGracefulShutdownTimeout

-- | The @Server@ field of responses that have none. Default: @weft@. Empty: none.
setServerName :: ByteString -> Settings -> Settings
setServerName name = setServer (\server -> server {serverName = name})

-- | Add an @Alt-Svc@ field to all responses.
setAltSvc :: ByteString -> Settings -> Settings
setAltSvc value settings = settings {settingsAltSvc = Just value}

-- | In octets: a builder's output up to this size is sent with its length. Larger output is streamed in
-- chunks, or with the length that the application names. Default: 65,536.
setMaxBuilderResponseBufferSize :: Int -> Settings -> Settings
setMaxBuilderResponseBufferSize most settings = settings {settingsMaxBuilderResponseBufferSize = most}

-- | Pass the target's path unparsed, even of an absolute target.
setNoParsePath :: Bool -> Settings -> Settings
setNoParsePath unparsed settings = settings {settingsNoParsePath = unparsed}

-- | In octets: a body of a known length up to this is received before its application begins, unless
-- that runs on a GHC thread. Default: 65,536. Reading a larger one lazily
-- ('Network.Wai.lazyRequestBody') blocks a worker.
setPrefetchBody :: Int -> Settings -> Settings
setPrefetchBody most settings = settings {settingsPrefetchBody = most}

-- | Called after each response, with its length if known before sending. It must not block.
setLogger :: (Request -> Status -> Maybe Integer -> IO ()) -> Settings -> Settings
setLogger logger settings = settings {settingsLogger = Just logger}

-- | The threads that run applications. Default: 'Automatic'.
setApplicationStyle :: ApplicationStyle -> Settings -> Settings
setApplicationStyle style settings = settings {settingsStyle = style}

-- | How many workers there are. Default: one for each of GHC's capabilities (@+RTS -N@).
setWorkers :: Int -> Settings -> Settings
setWorkers n = setRuntime (\runtime -> runtime {Weft.settingWorkers = Just n})

-- | The event source of the workers. Default: the best available.
setBackend :: BackendChoice -> Settings -> Settings
setBackend backend =
  setRuntime (\runtime -> runtime {Weft.settingKernel = Weft.systemKernel Weft.defaultSystemSettings {Weft.systemBackend = backend}})

-- | Change how the runtime runs.
setRuntime :: (Weft.Settings -> Weft.Settings) -> Settings -> Settings
setRuntime change settings = settings {settingsRuntime = change . settingsRuntime settings}

-- | Change settings of the server that have no function here. Changes apply in the order of the calls, after
-- 'setTimeout', 'setGracefulShutdownTimeout', 'setOnOpen' and 'setOnClose'.
setServer :: (ServerSettings -> ServerSettings) -> Settings -> Settings
setServer change settings = settings {settingsServer = change . settingsServer settings}

-- | Layers between the socket and HTTP, such as TLS, outermost first.
setLayers :: [Layer] -> Settings -> Settings
setLayers layers = setServer (\server -> server {serverLayers = layers})

-- | A layer below the others that determines the client's address: the PROXY protocol.
setProxyLayer :: Layer -> Settings -> Settings
setProxyLayer layer = setServer (\server -> server {serverProxy = Just layer})

-- | Use the socket's address of the client. The default.
setProxyProtocolNone :: Settings -> Settings
setProxyProtocolNone = setServer (\server -> server {serverProxy = Nothing})

-- | Require a header of the PROXY protocol, and close other connections. Only for an address that the
-- proxy alone can reach; 'Weft.Http.Proxy.proxyLayer' (with 'setProxyLayer') is for named networks.
setProxyProtocolRequired :: Settings -> Settings
setProxyProtocolRequired = setProxyLayer (proxyLayerOfAnybody HeaderRequired)

-- | Accept a header of the PROXY protocol, too. Anyone who reaches the address can forge the client's.
setProxyProtocolOptional :: Settings -> Settings
setProxyProtocolOptional = setProxyLayer (proxyLayerOfAnybody HeaderOptional)

-- | In octets: a body that brings less than this in the time of 'setTimeout' is answered with 408. Only
-- waits for the client count. Default: 2,048. Zero: each piece has that time. A client must take 240
-- octets of a response a second ('Weft.Http.Server.serverResponseRate'), if there is a time limit.
setSlowlorisSize :: Int -> Settings -> Settings
setSlowlorisSize size settings = settings {settingsSlowlorisSize = size}

-- | Without effect: files are checked on each request, a closing connection has two seconds.
setFdCacheDuration, setFileInfoCacheDuration, setGracefulCloseTimeout1, setGracefulCloseTimeout2 :: Int -> Settings -> Settings
setFdCacheDuration _ = id
setFileInfoCacheDuration _ = id
setGracefulCloseTimeout1 _ = id
setGracefulCloseTimeout2 _ = id

-- | Without effect: only HTTP/1 is supported.
setHTTP2Disabled :: Settings -> Settings
setHTTP2Disabled = id

-- | The client's addresses and TLS; 'Nothing' for a request not received by this server.
requestClient :: Request -> Maybe ClientInfo
requestClient = Vault.lookup clientKey . vault
