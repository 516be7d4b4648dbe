-- |
-- An HTTP/1.1 client on Weft threads, which keeps connections for the next request.
--
-- @
-- import Weft
-- import qualified Weft.Http.Client as Client
--
-- main = 'Weft.run' . Client.'withClient' Client.'defaultClientSettings' $ \\client -> do
--   reply <- Client.'get' client \"http:\/\/localhost:8080\/\"
--   liftIO (print (Client.'replyStatus' reply, Client.'replyContent' reply))
-- @
--
-- This module is meant to be imported qualified. A client may be used by any number of
-- threads; all of it can be cancelled, which closes the connection that was in use and
-- gives its place to the next who waits. Everything it does are system calls of Weft, so it
-- works under a simulated kernel as it is.
--
-- == HTTPS
--
-- The package @weft-tls@ secures connections, and verifies servers:
--
-- @
-- tls <- 'Weft.Tls.Client.clientTls' 'Weft.Tls.Client.SystemAuthorities' Nothing
-- Client.'withClient' Client.'defaultClientSettings' {Client.'clientSecure' = Just ('Weft.Tls.Client.secureWith' tls)} $ \client -> ...
-- @
--
-- == Connections
--
-- A connection is kept when both sides are content with that and the response was received
-- to its end. The one that was used last is used next. Who waits for one is served in turn.
-- An idle connection that the server closes is noticed and closed here too; should that
-- come so late that a request has been sent on it, and the request can be repeated without
-- harm (its method is idempotent, its body not a stream) and no byte of a response has come,
-- it is sent once more on a new connection. In all other cases the caller hears of it.
module Weft.Http.Client
  ( -- * Clients
    Client,
    withClient,

    -- * Requests
    get,
    request,
    withResponse,
    Request (..),
    RequestBody (..),
    Method (..),
    Field (..),
    requestTo,

    -- ** URLs
    Url (..),
    Target (..),
    Scheme (..),
    url,
    parseUrl,
    renderUrl,

    -- * Responses
    Reply (..),
    Response,
    responseStatus,
    responseVersion,
    responseFields,
    responseUrl,
    receivePiece,
    readResponseBody,

    -- * Errors
    HttpError (..),
    Phase (..),

    -- * Settings
    ClientSettings (..),
    defaultClientSettings,
    ClientTimeouts (..),
    defaultClientTimeouts,

    -- ** Connections
    connectPlain,
    Transport (..),

    -- * Looking
    openConnections,
    idleConnections,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Weft
import Weft.Http.Client.Connection (connectPlain)
import Weft.Http.Client.Exchange
import Weft.Http.Client.Pool (Lease (..), Pool, withConnection, withPool)
import Weft.Http.Client.Pool qualified as Pool
import Weft.Http.Client.Render
import Weft.Http.Client.Types
import Weft.Http.Client.Url
import Weft.Http.Internal.Ascii (eqCaseless)
import Weft.Http.Internal.Types (Field (..), Method (..), defaultLimits, lookupField)
import Weft.Http.Status
import Weft.Http.Transport (Transport (..))
import Weft.Time (after, now)

-- | A set of connections, and how they are used.
data Client = Client !ClientSettings !Pool

-- | The defaults named at each field.
defaultClientSettings :: ClientSettings
defaultClientSettings =
  ClientSettings
    { clientConnect = connectPlain,
      clientSecure = Nothing,
      clientTimeouts = defaultClientTimeouts,
      clientLimits = defaultLimits,
      clientConnections = 256,
      clientConnectionsPerTarget = 16,
      clientIdle = seconds 60,
      clientRedirects = 0,
      clientMostContent = 16 * 1024 * 1024,
      clientFields = []
    }

-- | A client for as long as the body runs. Its idle connections are closed then.
withClient :: ClientSettings -> (Client -> Thread a) -> Thread a
withClient settings body = withPool settings (body . Client settings)

-- | Connections that are open or being opened, idle ones included.
openConnections :: Client -> Thread Int
openConnections (Client _ pool) = Pool.openConnections pool

-- | Connections that wait for a request.
idleConnections :: Client -> Thread Int
idleConnections (Client _ pool) = Pool.idleConnections pool

-- | A request without fields or body.
requestTo :: Method -> Url -> Request
requestTo method to = Request method to [] Empty False

-- | Read a URL. Throws 'InvalidUrl'.
url :: ByteString -> Thread Url
url text = either (throwM . InvalidUrl text) pure (parseUrl text)

-- | A whole response.
data Reply = Reply
  { replyStatus :: !Status,
    replyFields :: ![Field],
    replyContent :: !ByteString,
    -- | Where it came from: after redirections, not what was asked for.
    replyUrl :: !Url
  }
  deriving stock (Eq, Show)

-- | GET a URL: the whole response, whatever its status. Throws 'HttpError', among them
-- 'ContentTooLong' for more than 'clientMostContent'.
get :: Client -> ByteString -> Thread Reply
get client text = url text >>= request client . requestTo Get

-- | Make any request: the whole response, as for 'get'.
request :: Client -> Request -> Thread Reply
request client@(Client settings _) asked = withResponse client asked $ \response -> do
  content <- readResponseBody (clientMostContent settings) response
  pure (Reply (responseStatus response) (responseFields response) content (responseUrl response))

-- | The rest of the content, if it is not longer than so many octets; else 'ContentTooLong'
-- is thrown.
readResponseBody :: Int -> Response -> Thread ByteString
readResponseBody limit response = go 0 []
  where
    go size pieces = do
      piece <- receivePiece response
      let size' = size + B.length piece
      if B.null piece
        then pure (B.concat (reverse pieces))
        else if size' > limit then throwM (ContentTooLong limit) else go size' (piece : pieces)

-- | Make a request and use the response while its content comes in ('receivePiece'). The
-- response is over when the body ends; when its content is not, the connection is closed.
withResponse :: Client -> Request -> (Response -> Thread a) -> Thread a
withResponse (Client settings pool) asked use = do
  end <- traverse (\d -> after d <$> now) (timeoutWhole timeouts)
  follow (Clock timeouts end) (clientRedirects settings) asked
  where
    timeouts = clientTimeouts settings
    follow clock left this = do
      outcome <- attempt clock this $ \response -> case redirection left this response of
        Nothing -> Right <$> use response
        Just next -> Left <$> either throwM pure next
      case outcome of
        Right a -> pure a
        Left next -> follow clock (left - 1) next
    -- An old connection may have been closed while the request was on its way.
    attempt clock this body = do
      h <- either (throwM . InvalidField) pure (renderRequest (clientFields settings) this)
      let once new = withConnection pool new (within clock) (urlTarget (requestUrl this)) $ \lease ->
            try (exchange (clientLimits settings) clock lease this h body) >>= \case
              Right (a, verdict) -> pure (Right a, verdict)
              Left (Unanswered e)
                | leaseUsed lease && not new && isIdempotent (requestMethod this) && isReplayable (requestBody this) -> pure (Left (), Pool.Discard)
                | otherwise -> throwM e
      once False >>= \case
        Right a -> pure a
        Left () -> once True >>= either (\() -> throwM (ConnectionLost AwaitingHead Nothing)) pure
    redirection left this response
      | clientRedirects settings <= 0 || statusCode (responseStatus response) `notElem` [301, 302, 303, 307, 308] = Nothing
      | Just location <- lookupField "location" (responseFields response) =
          if left <= 0
            then Just (Left (TooManyRedirects (clientRedirects settings)))
            else redirect (statusCode (responseStatus response)) location this
      | otherwise = Nothing

-- | The request that follows a redirection; 'Nothing' when it cannot be made again.
redirect :: Int -> ByteString -> Request -> Maybe (Either HttpError Request)
redirect status location this
  | becomesGet = Just (moved (\r -> r {requestMethod = Get, requestBody = Empty, requestExpectContinue = False}))
  | isReplayable (requestBody this) = Just (moved id)
  | otherwise = Nothing
  where
    becomesGet =
      (status == 303 && requestMethod this `notElem` [Get, Head])
        || (status `elem` [301, 302] && requestMethod this == Post)
    moved change = case location `relativeTo` requestUrl this of
      Left _ -> Left (BadRedirect location)
      Right to -> Right (change this {requestUrl = to, requestFields = filter (mayFollow to) (requestFields this)})
    -- What was meant for one server is not told to another.
    mayFollow to f
      | urlTarget to == urlTarget (requestUrl this) = True
      | otherwise = not (any (`eqCaseless` fieldName f) ["authorization", "cookie", "host", "proxy-authorization"])
