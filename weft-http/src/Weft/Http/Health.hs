-- | Liveness and readiness for orchestrators and load balancers, served on a separate address.
--
-- [@\/healthz@] 200 as long as the program answers; an orchestrator restarts one that does not.
-- [@\/readyz@] 200 while the service accepts requests; 503 before it has started and once it is
--   about to stop, which diverts requests without a restart.
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
import Weft.Http.Server.Types

-- | The shared readiness of a service.
newtype Health = Health (IORef Readiness)

-- | Does the service accept requests?
data Readiness
  = -- | Not yet.
    Starting
  | Ready
  | -- | About to stop; it still answers the requests that arrive.
    Stopping
  deriving stock (Eq, Show, Enum, Bounded)

-- | Make a state that is 'Starting'.
newHealth :: IO Health
newHealth = Health <$> newIORef Starting

-- | Read the state. From any thread.
readiness :: Health -> IO Readiness
readiness (Health ref) = readIORef ref

-- | Become 'Ready' unless the service is 'Stopping'. From any thread.
becomeReady :: Health -> IO ()
becomeReady (Health ref) = atomicModifyIORef' ref (\now' -> (if now' == Starting then Ready else now', ()))

-- | Become 'Stopping'. From any thread.
becomeStopping :: Health -> IO ()
becomeStopping (Health ref) = atomicModifyIORef' ref (const (Stopping, ()))

-- | Become 'Stopping', then sleep until load balancers, which poll, have noticed. Can be cancelled.
stopAfter :: Health -> Duration -> Thread ()
stopAfter health delay = liftIO (becomeStopping health) >> sleep delay

-- | Answer @\/healthz@ and @\/readyz@; 404 for other paths.
healthHandler :: Health -> Handler
healthHandler health request = case requestPath request of
  path
    | path `notElem` ["/healthz", "/readyz"] -> pure (answer notFound404 "not found\n")
    | requestMethod request `notElem` [Get, Head] -> pure (plain methodNotAllowed405 [Field "Allow" "GET, HEAD"] "")
  "/healthz" -> pure (answer ok200 "ok\n")
  _ ->
    liftIO (readiness health) >>= \now' -> pure $ case now' of
      Starting -> answer serviceUnavailable503 "starting\n"
      Ready -> answer ok200 "ready\n"
      Stopping -> answer serviceUnavailable503 "stopping\n"

answer :: Status -> ByteString -> Response
answer status = plain status [Field "Content-Type" "text/plain; charset=utf-8", Field "Cache-Control" "no-store"]

-- | Answer @\/metrics@, @\/healthz@ and @\/readyz@.
adminHandler :: Registry -> Health -> Handler
adminHandler registry health request = case requestPath request of
  "/metrics" -> metricsHandler registry request
  _ -> healthHandler health request
