-- | An HTTP/1.1 client on Weft threads, with a pool of persistent connections.
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
-- Import this module qualified. Any number of threads may share a client. All operations can be
-- cancelled, which closes the connection in use and frees its place. A simulated kernel runs them, too.
--
-- == HTTPS
--
-- The package @weft-tls@ secures connections and verifies servers:
--
-- @
-- tls <- 'Weft.Tls.Client.clientTls' 'Weft.Tls.Client.SystemAuthorities' Nothing
-- Client.'withClient' Client.'defaultClientSettings' {Client.'clientSecure' = Just ('Weft.Tls.Client.secureWith' tls)} $ \\client -> ...
-- @
--
-- == Connections
--
-- The pool keeps a connection when both sides allow it and the response was received to its end, and
-- reuses the most recent one first. Requests wait for a connection in turn. An idle connection that the
-- server closes is closed. If that crosses a request, the client repeats it once on a new connection,
-- provided that its method is idempotent, its body is not a stream and no byte of a response has
-- arrived; otherwise it fails with 'ConnectionLost'. A 'TimedOut' request is not repeated.
module Weft.Http.Client
  ( -- * Clients
    Client,
    withClient,

    -- * Requests
    get,
    request,
    withResponse,
    ClientRequest (..),
    ClientRequestBody (..),
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
    ClientResponse,
    responseStatus,
    responseVersion,
    responseFields,
    responseUrl,
    receivePiece,
    readResponseBody,

    -- * Errors
    HttpError (..),
    ClientPhase (..),

    -- * Settings
    ClientSettings (..),
    defaultClientSettings,
    ClientTimeouts (..),
    defaultClientTimeouts,

    -- ** Connections
    connectPlain,
    Transport (..),

    -- * Statistics
    openConnections,
    idleConnections,
  )
where

import Control.Monad (unless, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Foldable (traverse_)
import Data.Maybe (isNothing)
import Weft
import Weft.Http.Body (collect)
import Weft.Http.Client.Exchange
import Weft.Http.Client.Pool
import Weft.Http.Client.Types
import Weft.Http.Client.Url
import Weft.Http.Internal.Ascii
import Weft.Http.Internal.Types (Field (..), Method (..), defaultLimits, isOneOf, lookupField, methodName)
import Weft.Http.Response (BadField (..), renderFields)
import Weft.Http.Status
import Weft.Http.Transport (Transport (..))
import Weft.Time (after, now)

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

-- | A request without fields or body.
requestTo :: Method -> Url -> ClientRequest
requestTo method to = ClientRequest method to [] Empty False

-- | Parse a URL. Throws 'InvalidUrl'.
url :: ByteString -> Thread Url
url text = either (throwM . InvalidUrl text) pure (parseUrl text)

-- | A whole response.
data Reply = Reply
  { replyStatus :: !Status,
    replyFields :: ![Field],
    replyContent :: !ByteString,
    -- | The URL of this response, after redirections.
    replyUrl :: !Url
  }
  deriving stock (Eq, Show)

-- | GET a URL and wait for the whole response, whatever its status. Throws 'HttpError': among these
-- 'ContentTooLong' for more than 'clientMostContent'.
get :: Client -> ByteString -> Thread Reply
get client text = url text >>= request client . requestTo Get

-- | Send a request and wait for the whole response, with the errors of 'get'.
request :: Client -> ClientRequest -> Thread Reply
request client asked = withResponse client asked $ \response -> do
  content <- readResponseBody (clientMostContent (poolSettings client)) response
  pure (Reply (responseStatus response) (responseFields response) content (responseUrl response))

-- | The rest of the content; throws 'ContentTooLong' if it exceeds the given number of octets.
readResponseBody :: Int -> ClientResponse -> Thread ByteString
readResponseBody limit response = collect limit (receivePiece response) >>= maybe (throwM (ContentTooLong limit)) pure

-- | Send a request and use the response while its content arrives ('receivePiece'). Content that has
-- not ended with the body closes the connection.
withResponse :: Client -> ClientRequest -> (ClientResponse -> Thread a) -> Thread a
withResponse client asked use = do
  end <- traverse (\d -> after d <$> now) (timeoutWhole timeouts)
  follow (TimeLimits timeouts end) (clientRedirects settings) asked
  where
    settings = poolSettings client
    timeouts = clientTimeouts settings
    follow clock left this = do
      outcome <- attempt clock this $ \response -> case redirection left this response of
        Nothing -> Right <$> use response
        Just next -> Left <$> either throwM pure next
      case outcome of
        Right a -> pure a
        Left next -> follow clock (left - 1) next
    -- The server may have closed an old connection while the request was on its way.
    attempt clock this body = do
      h <- either (throwM . InvalidField) pure (renderRequest (clientFields settings) this)
      let once new = withConnection client new (within clock) (urlTarget (requestUrl this)) $ \lease ->
            try (exchange (clientLimits settings) clock lease this h body) >>= \case
              Right (a, verdict) -> pure (Right a, verdict)
              Left (Unanswered e)
                | leaseUsed lease && not new && isIdempotent (requestMethod this) && isReplayable (requestBody this) -> pure (Left (), Discard)
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

-- | The request after a redirection; 'Nothing' if its body cannot be sent again.
redirect :: Int -> ByteString -> ClientRequest -> Maybe (Either HttpError ClientRequest)
redirect status location this
  | becomesGet = Just (moved bodiless)
  | isReplayable (requestBody this) = Just (moved id)
  | otherwise = Nothing
  where
    becomesGet =
      (status == 303 && requestMethod this `notElem` [Get, Head])
        || (status `elem` [301, 302] && requestMethod this == Post)
    moved change = case location `relativeTo` requestUrl this of
      Left _ -> Left (BadRedirect location)
      Right to -> Right (change this {requestUrl = to, requestFields = filter (mayFollow to) (requestFields this)})
    -- Credentials for one server are not sent to another.
    mayFollow to f
      | urlTarget to == urlTarget (requestUrl this) = True
      | otherwise = not (f `isOneOf` ["authorization", "cookie", "host", "proxy-authorization"])
    -- Without what describes the body (RFC 9110, section 15.4).
    bodiless r =
      r
        { requestMethod = Get,
          requestBody = Empty,
          requestExpectContinue = False,
          requestFields = filter (not . (`isOneOf` ofContent)) (requestFields r)
        }
    ofContent = ["content-encoding", "content-language", "content-location", "content-type", "digest", "last-modified"]

-- | Render a head, with the standard fields that the request lacks.
renderRequest :: [Field] -> ClientRequest -> Either BadField ByteString
renderRequest standard asked = do
  rendered <- renderFields (B.concat [method, " ", path, " HTTP/1.1\r\n"]) fields
  traverse_ reserved (standard <> own)
  unless (isToken method) (Left (BadName method))
  if "/" `B.isPrefixOf` path && B.all isTargetByte path then Right rendered else Left (BadValue "the path of the request")
  where
    method = methodName (requestMethod asked)
    path = urlPath (requestUrl asked)
    own = requestFields asked
    fields = host <> own <> filter (\f -> isNothing (lookupField (lowered (fieldName f)) own)) standard <> framing
    host = [Field "Host" (authority (urlTarget (requestUrl asked))) | isNothing (lookupField "host" (own <> standard))]
    framing = case requestBody asked of
      Empty -> [Field "Content-Length" "0" | requestMethod asked `elem` [Post, Put, Patch]]
      Whole bytes -> Field "Content-Length" (renderDecimal (fromIntegral (B.length bytes))) : expect
      Streamed (Just n) _ -> Field "Content-Length" (renderDecimal n) : expect
      Streamed Nothing _ -> Field "Transfer-Encoding" "chunked" : expect
    expect = [Field "Expect" "100-continue" | requestExpectContinue asked]
    -- The client alone sends the framing fields.
    reserved field = when (field `isOneOf` ["content-length", "transfer-encoding", "expect"]) (Left (BadName (fieldName field)))
