-- | Counts failed handshakes among the metrics of "Weft.Http.Metrics".
--
-- @
-- registry <- liftIO 'Weft.Http.Metrics.newRegistry'
-- count <- liftIO ('countFailures' registry)
-- tls <- 'Weft.Tls.Server.loadTls' 'Weft.Tls.Server.defaultTlsSettings' {'Weft.Tls.Server.tlsOnFailure' = Just count}
-- @
module Weft.Tls.Metrics (countFailures) where

import Data.IORef
import Data.Map.Strict qualified as Map
import Data.Maybe (fromMaybe)
import Data.Text.Encoding (decodeLatin1)
import Weft.Http.Metrics
import Weft.Tls.Internal.Failure

-- | Register @weft_tls_handshake_failures_total@ by reason and alert (some hundreds); the action counts.
countFailures :: Registry -> IO (FailedHandshake -> IO ())
countFailures registry = do
  counts <- newIORef Map.empty
  register
    registry
    [Description "weft_tls_handshake_failures_total" "TLS handshakes that failed, by reason and by the alert that was sent or received." CounterKind]
    (pure . map (\((reason, alert), n) -> sample [("reason", decodeLatin1 reason), ("alert", decodeLatin1 alert)] (Whole n)) . Map.toList <$> readIORef counts)
  pure $ \failed ->
    let key = (failedReason (failedWhy failed), fromMaybe "none" (failedAlert failed))
     in atomicModifyIORef' counts (\m -> (Map.insertWith (+) key 1 m, ()))
