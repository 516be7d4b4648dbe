-- |
-- Serves WAI applications with the HTTP server of "Weft.Http.Server".
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
-- The names are those of @Network.Wai.Handler.Warp@: an application that runs under Warp
-- runs here after a change of one import. An executable needs @-threaded@, and uses as
-- many processors as @+RTS -N@ says.
--
-- An application begins as a direct thread ("Weft.IO"): what it wants of its client (a piece
-- of the body, to have its response sent) suspends it and holds up nobody, and all the
-- operations of "Weft.IO" work in it. Applications that block otherwise (in an
-- 'Control.Concurrent.MVar.MVar', in @threadDelay@, in the client of a database) are noticed,
-- and run on threads of GHC's from then on, as under Warp: see 'ApplicationStyle'.
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

    -- ** Of no effect here
    setFdCacheDuration,
    setFileInfoCacheDuration,
    setGracefulCloseTimeout1,
    setGracefulCloseTimeout2,
    setHTTP2Disabled,

    -- * In applications
    requestClient,
    Client (..),
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
import Weft.Http.Request (Client (..), Security (..))
import Weft.Http.Server (Layer, ServerSettings)
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

-- | The address to listen on.
getHost :: Settings -> HostPreference
getHost = settingsHost

-- | What is done with an exception that leaves an application, and with the request where
-- there is one. Default: 'defaultOnException'. Not called when the client has reset its
-- connection, which interrupts the application with an asynchronous exception.
setOnException :: (Maybe Request -> SomeException -> IO ()) -> Settings -> Settings
setOnException action settings = settings {settingsOnException = action}

-- | What is done with an exception.
getOnException :: Settings -> Maybe Request -> SomeException -> IO ()
getOnException = settingsOnException

-- | What is answered instead, if the response has not begun. Default:
-- 'defaultOnExceptionResponse'. Not for what is no request, which never comes to an
-- application.
setOnExceptionResponse :: (SomeException -> Response) -> Settings -> Settings
setOnExceptionResponse respond settings = settings {settingsOnExceptionResponse = respond}

-- | What is done when a connection has been accepted; @False@ closes it.
setOnOpen :: (SockAddr -> IO Bool) -> Settings -> Settings
setOnOpen action settings = settings {settingsOnOpen = Just action}

-- | What is done when a connection has been accepted.
getOnOpen :: Settings -> SockAddr -> IO Bool
getOnOpen settings = fromMaybe (\_ -> pure True) (settingsOnOpen settings)

-- | What is done when a connection ends.
setOnClose :: (SockAddr -> IO ()) -> Settings -> Settings
setOnClose action settings = settings {settingsOnClose = Just action}

-- | What is done when a connection ends.
getOnClose :: Settings -> SockAddr -> IO ()
getOnClose settings = fromMaybe (\_ -> pure ()) (settingsOnClose settings)

-- | In seconds: how long a client may take to send a head, between two pieces of a body and
-- between two requests, and to accept some of a response. Default: 30. Zero: for ever. An
-- application may take as long as it likes.
setTimeout :: Int -> Settings -> Settings
setTimeout limit settings = settings {settingsTimeout = limit}

-- | Of a body that an application has not read, at most so many octets are received so that
-- the connection can go on; 'Nothing': any number. Default: 8192.
setMaximumBodyFlush :: Maybe Int -> Settings -> Settings
setMaximumBodyFlush most settings = settings {settingsMaximumBodyFlush = fmap (max 0) most}

-- | In octets; a larger head is answered with 431. Default: 51,200.
setMaxTotalHeaderLength :: Int -> Settings -> Settings
setMaxTotalHeaderLength most settings = settings {settingsMaxTotalHeaderLength = most}

-- | In octets: a larger body is answered with 413. Default: any size.
setMaximumRequestBody :: Maybe Int -> Settings -> Settings
setMaximumRequestBody most settings = settings {settingsMaximumRequestBody = most}

-- | Done when the socket listens and before connections are accepted.
setBeforeMainLoop :: IO () -> Settings -> Settings
setBeforeMainLoop action settings = settings {settingsBeforeMainLoop = action}

-- | Is given an action that ends the service, to be called from anywhere, such as a handler
-- of a signal: nothing is accepted any more, idle connections are closed, requests under
-- way are answered, and then 'runSettings' returns.
setInstallShutdownHandler :: (IO () -> IO ()) -> Settings -> Settings
setInstallShutdownHandler install settings = settings {settingsInstallShutdownHandler = install}

-- | In seconds: how long requests under way may take after that. Default: 'Nothing', as
-- long as they like.
setGracefulShutdownTimeout :: Maybe Int -> Settings -> Settings
setGracefulShutdownTimeout limit settings = settings {settingsGracefulShutdownTimeout = limit}

-- | In seconds: how long requests under way may take at the end.
getGracefulShutdownTimeout :: Settings -> Maybe Int
getGracefulShutdownTimeout = settingsGracefulShutdownTimeout

-- | The @Server@ field of responses that have none. Default: @weft@. Empty: none.
setServerName :: ByteString -> Settings -> Settings
setServerName name settings = settings {settingsServerName = name}

-- | Add an @Alt-Svc@ field to all responses.
setAltSvc :: ByteString -> Settings -> Settings
setAltSvc value settings = settings {settingsAltSvc = Just value}

-- | In octets: what a builder builds is kept in memory up to here, and sent with its
-- length. What is larger is sent as it is built, in chunks (but with its length where the
-- application names that). Default: 65,536.
setMaxBuilderResponseBufferSize :: Int -> Settings -> Settings
setMaxBuilderResponseBufferSize most settings = settings {settingsMaxBuilderResponseBufferSize = most}

-- | Give applications the target's path as it is, also where it is an absolute one.
setNoParsePath :: Bool -> Settings -> Settings
setNoParsePath unparsed settings = settings {settingsNoParsePath = unparsed}

-- | In octets: a body that says that it is not larger is received before its application
-- begins. Default: 65,536. What of larger ones is read lazily
-- ('Network.Wai.lazyRequestBody') holds up a worker while it is awaited. Where an application
-- has a thread of GHC's, nothing is received before it begins.
setPrefetchBody :: Int -> Settings -> Settings
setPrefetchBody most settings = settings {settingsPrefetchBody = most}

-- | Called after each response of an application, with its length where that was known
-- before it was sent. It must not block.
setLogger :: (Request -> Status -> Maybe Integer -> IO ()) -> Settings -> Settings
setLogger logger settings = settings {settingsLogger = Just logger}

-- | What runs applications. Default: 'Automatic'.
setApplicationStyle :: ApplicationStyle -> Settings -> Settings
setApplicationStyle style settings = settings {settingsStyle = style}

-- | How many workers there are. Default: one for each of GHC's capabilities (@+RTS -N@).
setWorkers :: Int -> Settings -> Settings
setWorkers n = setRuntime (\runtime -> runtime {Weft.settingWorkers = Just n})

-- | What tells the workers of events. Default: the better one of those that there are.
setBackend :: BackendChoice -> Settings -> Settings
setBackend backend =
  setRuntime (\runtime -> runtime {Weft.settingKernel = Weft.systemKernel Weft.defaultSystemSettings {Weft.systemBackend = backend}})

-- | Change how the runtime runs.
setRuntime :: (Weft.Settings -> Weft.Settings) -> Settings -> Settings
setRuntime change settings = settings {settingsRuntime = change . settingsRuntime settings}

-- | Change settings of the server that have no function here.
setServer :: (ServerSettings -> ServerSettings) -> Settings -> Settings
setServer change settings = settings {settingsServer = change . settingsServer settings}

-- | What stands between the socket and HTTP, the outermost first, such as TLS.
setLayers :: [Layer] -> Settings -> Settings
setLayers layers settings = settings {settingsLayers = layers}

-- | What tells who the client is, before the other layers: the PROXY protocol.
setProxyLayer :: Layer -> Settings -> Settings
setProxyLayer layer settings = settings {settingsProxy = Just layer}

-- | The socket says who the client is. The default.
setProxyProtocolNone :: Settings -> Settings
setProxyProtocolNone settings = settings {settingsProxy = Nothing}

-- | Each connection begins with a header of the PROXY protocol, version 1 or 2, which says
-- who the client is; one that does not is ended. Only for an address that nobody but the
-- proxy reaches: 'Weft.Http.Proxy.proxyLayer' (with 'setProxyLayer') takes the header from
-- named networks only.
setProxyProtocolRequired :: Settings -> Settings
setProxyProtocolRequired = setProxyLayer (proxyLayerOfAnybody HeaderRequired)

-- | The same where there is a header; where not, the socket says who the client is. Whoever
-- reaches the address can claim to be anybody.
setProxyProtocolOptional :: Settings -> Settings
setProxyProtocolOptional = setProxyLayer (proxyLayerOfAnybody HeaderOptional)

-- | Of no effect: a file that is asked for again is kept open, and what is sent is
-- what is there all the same.
setFdCacheDuration :: Int -> Settings -> Settings
setFdCacheDuration _ = id

-- | Of no effect: each response looks at its file.
setFileInfoCacheDuration :: Int -> Settings -> Settings
setFileInfoCacheDuration _ = id

-- | In octets: a body of which less than this comes in the time that 'setTimeout' says is
-- answered with 408, however many pieces that are. Only the time for which the client is waited for
-- counts. Default: 2,048. Zero: each piece has that time. (Bytes that trickle in never extend
-- the time of a head.) A client must take a response with 240 octets a second
-- ('Weft.Http.Server.serverResponseRate'), where there is a time-out.
setSlowlorisSize :: Int -> Settings -> Settings
setSlowlorisSize size settings = settings {settingsSlowlorisSize = size}

-- | Of no effect: at the end of a connection two seconds are allowed for what is on its way.
setGracefulCloseTimeout1 :: Int -> Settings -> Settings
setGracefulCloseTimeout1 _ = id

-- | Of no effect, as 'setGracefulCloseTimeout1'.
setGracefulCloseTimeout2 :: Int -> Settings -> Settings
setGracefulCloseTimeout2 _ = id

-- | Of no effect: there is only HTTP/1.
setHTTP2Disabled :: Settings -> Settings
setHTTP2Disabled = id

-- | What is known of the client: both addresses, and the connection's TLS. 'Nothing' for a
-- request that did not come from here.
requestClient :: Request -> Maybe Client
requestClient = Vault.lookup clientKey . vault
