{-# OPTIONS_HADDOCK not-home #-}

-- | The settings, under Warp's names where they mean the same, and the responses to failures.
module Weft.Wai.Internal.Settings
  ( Settings (..),
    defaultSettings,
    serverSettingsOf,
    headLimits,
    defaultOnException,
    defaultShouldDisplayException,
    defaultOnExceptionResponse,
    exceptionResponseForDebug,
  )
where

import Control.Exception (AsyncException (ThreadKilled), SomeAsyncException, SomeException, fromException)
import Control.Monad (when)
import Data.ByteString (ByteString)
import Data.ByteString.Builder (stringUtf8)
import Data.Maybe (isNothing)
import Data.Streaming.Network (HostPreference)
import GHC.IO.Exception (IOErrorType (InvalidArgument, ResourceVanished))
import Network.HTTP.Types qualified as Http
import Network.Socket (SockAddr)
import Network.Wai (Request, Response, responseBuilder)
import System.IO.Error (ioeGetErrorType)
import Weft (bracket, liftIO, seconds)
import Weft qualified
import Weft.Http.Request (BodyError (..), ClientInfo (..))
import Weft.Http.Server (Limits (..), MinimumRate (..), ServerSettings (..), Timeouts (..), defaultLimits, defaultMinimumRate, defaultServerSettings, defaultTimeouts)
import Weft.Internal.Os.Report (exceptionText, writeStderr)
import Weft.Socket (Socket)
import Weft.Wai.Internal.Perform

-- | How applications are served; change 'defaultSettings' with the functions @set…@.
data Settings = Settings
  { settingsPort :: !Int,
    settingsHost :: !HostPreference,
    settingsOnException :: Maybe Request -> SomeException -> IO (),
    settingsOnExceptionResponse :: SomeException -> Response,
    settingsOnOpen :: !(Maybe (SockAddr -> IO Bool)),
    settingsOnClose :: !(Maybe (SockAddr -> IO ())),
    -- | In seconds.
    settingsTimeout :: !Int,
    -- | In octets, for each 'settingsTimeout' that a body is waited for.
    settingsSlowlorisSize :: !Int,
    settingsBeforeMainLoop :: IO (),
    settingsInstallShutdownHandler :: IO () -> IO (),
    -- | In seconds.
    settingsGracefulShutdownTimeout :: !(Maybe Int),
    settingsAltSvc :: !(Maybe ByteString),
    settingsLogger :: !(Maybe (Request -> Http.Status -> Maybe Integer -> IO ())),
    settingsNoParsePath :: !Bool,
    settingsMaxBuilderResponseBufferSize :: !Int,
    settingsStyle :: !ApplicationStyle,
    settingsPrefetchBody :: !Int,
    -- | All that 'Weft.Wai.setServer' and others change there.
    settingsServer :: ServerSettings -> ServerSettings,
    settingsRuntime :: Weft.Settings -> Weft.Settings,
    -- | In place of port and host.
    settingsListen :: !(Maybe (Weft.Thread Socket))
  }

-- | Port 3000, any IPv4 address, 30 seconds: Warp's defaults, where it has such a setting.
defaultSettings :: Settings
defaultSettings =
  Settings
    { settingsPort = 3000,
      settingsHost = "*4",
      settingsOnException = defaultOnException,
      settingsOnExceptionResponse = defaultOnExceptionResponse,
      settingsOnOpen = Nothing,
      settingsOnClose = Nothing,
      settingsTimeout = 30,
      settingsSlowlorisSize = 2048,
      settingsBeforeMainLoop = pure (),
      settingsInstallShutdownHandler = \_ -> pure (),
      settingsGracefulShutdownTimeout = Nothing,
      settingsAltSvc = Nothing,
      settingsLogger = Nothing,
      settingsNoParsePath = False,
      settingsMaxBuilderResponseBufferSize = 65_536,
      settingsStyle = Automatic,
      settingsPrefetchBody = 65_536,
      settingsServer = id,
      settingsRuntime = id,
      settingsListen = Nothing
    }

serverSettingsOf :: Settings -> ServerSettings
serverSettingsOf settings =
  settingsServer settings $
    defaultServerSettings
      { serverLimits = headLimits (50 * 1024) defaultLimits {limitExtensionMethods = True},
        serverTimeouts = defaultTimeouts {timeoutHead = limit, timeoutBody = limit, timeoutIdle = limit, timeoutWrite = limit},
        serverBodyRate =
          if settingsTimeout settings <= 0 || settingsSlowlorisSize settings <= 0
            then Nothing
            else Just (MinimumRate (max 1 (fromIntegral (settingsSlowlorisSize settings `div` settingsTimeout settings))) limit),
        serverResponseRate = if settingsTimeout settings <= 0 then Nothing else Just defaultMinimumRate,
        serverMaxBody = maxBound,
        serverGrace = maybe forever' (seconds . max 0) (settingsGracefulShutdownTimeout settings),
        serverSkipBody = 8192,
        serverAround = around
      }
  where
    limit = if settingsTimeout settings <= 0 then forever' else seconds (settingsTimeout settings)
    -- Ten years; sums of it with the clock do not overflow.
    forever' = seconds (10 * 366 * 86_400)
    around
      | isNothing (settingsOnOpen settings) && isNothing (settingsOnClose settings) = Nothing
      | otherwise = Just $ \client session ->
          bracket
            (liftIO (maybe (pure True) ($ clientAddress client) (settingsOnOpen settings)))
            (\_ -> liftIO (maybe (pure ()) ($ clientAddress client) (settingsOnClose settings)))
            (`when` session)

-- | These limits, for heads of at most this number of octets.
headLimits :: Int -> Limits -> Limits
headLimits given limits =
  limits {limitRequestLine = most, limitHead = most, limitFields = max 100 (most `div` 50)}
  where
    most = max 256 given

-- | Print exceptions that are worth it ('defaultShouldDisplayException') to standard error.
defaultOnException :: Maybe Request -> SomeException -> IO ()
defaultOnException _ e
  | defaultShouldDisplayException e = writeStderr (exceptionText e <> "\n")
  | otherwise = pure ()

-- | Not that a client has gone away, and not that a thread was told to end.
defaultShouldDisplayException :: SomeException -> Bool
defaultShouldDisplayException e
  | Just ThreadKilled <- fromException e = False
  | Just (_ :: SomeAsyncException) <- fromException e = False
  | Just (_ :: BodyError) <- fromException e = False
  | Just failure <- fromException e = ioeGetErrorType failure `notElem` [ResourceVanished, InvalidArgument]
  | otherwise = True

-- | 413 for a body that is too large, 408 for a slow one, 400 for a malformed one; otherwise 500.
defaultOnExceptionResponse :: SomeException -> Response
defaultOnExceptionResponse e = case fromException e of
  Just BodyTooLarge -> saying Http.requestEntityTooLarge413 "Request body too large"
  Just BodyTimedOut -> saying Http.requestTimeout408 "Request body took too long"
  Just _ -> saying Http.badRequest400 "Bad Request"
  Nothing -> saying Http.internalServerError500 "Something went wrong"
  where
    saying status = responseBuilder status [(Http.hContentType, "text/plain; charset=utf-8")]

-- | The exception itself, with status 500: for development only.
exceptionResponseForDebug :: SomeException -> Response
exceptionResponseForDebug e =
  responseBuilder
    Http.internalServerError500
    [(Http.hContentType, "text/plain; charset=utf-8")]
    ("Exception: " <> stringUtf8 (exceptionText e))
