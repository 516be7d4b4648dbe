-- |
-- Whether a service is alive, and whether it wants requests: what orchestrators and load
-- balancers ask, on an address beside the service's own.
--
-- [@\/healthz@] 200 as long as the program answers at all. Who gets no answer starts it
--   anew.
-- [@\/readyz@] 200 while it wants requests; 503 before it has started and from the moment
--   at which it is to stop. Who gets that sends nobody, and leaves it alone.
module Weft.Http.Health
  ( -- * Health
    Health,
    newHealth,
    Readiness (..),
    readiness,
    becomeReady,
    becomeStopping,
    stopAfter,

    -- * Handlers
    healthHandler,
    adminHandler,
  )
where

import Data.ByteString (ByteString)
import Data.IORef
import Weft
import Weft.Http.Metrics (Registry, metricsHandler)
import Weft.Http.Request
import Weft.Http.Server.Types
import Weft.Http.Status

-- | What a service says of itself.
newtype Health = Health (IORef Readiness)

-- | Does it want requests?
data Readiness
  = -- | Not yet.
    Starting
  | Ready
  | -- | No more. It may still answer some.
    Stopping
  deriving stock (Eq, Show, Enum, Bounded)

-- | 'Starting'.
newHealth :: IO Health
newHealth = Health <$> newIORef Starting

-- | From any thread.
readiness :: Health -> IO Readiness
readiness (Health ref) = readIORef ref

-- | It accepts connections. One that is to stop does not become ready again.
becomeReady :: Health -> IO ()
becomeReady (Health ref) = atomicModifyIORef' ref (\now' -> (if now' == Starting then Ready else now', ()))

-- | It is to stop.
becomeStopping :: Health -> IO ()
becomeStopping (Health ref) = atomicModifyIORef' ref (const (Stopping, ()))

-- | Say that it is to stop, and go on as before for so long, until load balancers have
-- noticed: they ask only every few seconds. Drain afterwards. Can be cancelled.
stopAfter :: Health -> Duration -> Thread ()
stopAfter health delay = liftIO (becomeStopping health) >> sleep delay

-- | Answers for @\/healthz@ and @\/readyz@, and 404 to all else.
healthHandler :: Health -> Handler
healthHandler health request = case requestPath request of
  "/healthz" -> asked (pure (answer ok200 "ok\n"))
  "/readyz" ->
    asked $
      liftIO (readiness health) >>= \now' -> pure $ case now' of
        Starting -> answer serviceUnavailable503 "starting\n"
        Ready -> answer ok200 "ready\n"
        Stopping -> answer serviceUnavailable503 "stopping\n"
  _ -> pure (answer notFound404 "not found\n")
  where
    asked respond
      | requestMethod request `elem` [Get, Head] = respond
      | otherwise = pure (plain methodNotAllowed405 [Field "Allow" "GET, HEAD"] "")

answer :: Status -> ByteString -> Response
answer status = plain status [Field "Content-Type" "text/plain; charset=utf-8", Field "Cache-Control" "no-store"]

-- | All that is served beside the service: @\/metrics@, @\/healthz@ and @\/readyz@.
adminHandler :: Registry -> Health -> Handler
adminHandler registry health request = case requestPath request of
  "/metrics" -> metricsHandler registry request
  _ -> healthHandler health request
