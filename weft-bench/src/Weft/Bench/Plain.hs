-- |
-- Description : Weft's HTTP server with a plain handler
--
-- The page and the greeting from memory: what a request costs when the handler costs
-- nothing, beside the file service of @weft serve@ and beside servers of other
-- languages whose handlers do the same.
module Weft.Bench.Plain (servePlain, plainFlags) where

import Control.Monad (void)
import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as Bytes
import System.Posix.Signals (sigINT, sigTERM)
import Weft
import Weft.Bench.Http.Page
import Weft.Http.Server
import Weft.Http.Status
import Weft.Signal
import Weft.Socket

-- | Options of the run-time system: those of the program @weft@.
plainFlags :: [String]
plainFlags = ["-A4m", "-n256k", "-I0", "-Fd0.1", "--disable-delayed-os-memory-return"]

-- | Serve on 127.0.0.1, on one worker, until SIGTERM or SIGINT. Idle connections are
-- kept for an hour, as the other servers of the comparison are told to.
servePlain :: BackendChoice -> Int -> IO ()
servePlain backend port =
  runWith defaultSettings {settingWorkers = Just 1, settingKernel = systemKernel defaultSystemSettings {systemBackend = backend}} $ do
    listener <- listenTcp (Just "127.0.0.1") (show port) 4096
    withSignals [sigTERM, sigINT] $ \signals -> do
      server <-
        newServer
          defaultServerSettings
            { serverMaxConnections = 18_000,
              serverGrace = seconds 1,
              serverTimeouts = defaultTimeouts {timeoutIdle = seconds 3600}
            }
          (\_clock -> handler)
      fork_ (serve server listener)
      void (nextSignal signals)
      void (drain server [listener])

handler :: Handler
handler request
  | path == Bytes.pack greetingPath = pure (found "text/plain" greeting)
  | path == Bytes.pack pagePath = pure (found "text/html" page)
  | otherwise = pure (plain notFound404 [] "")
  where
    path = requestPath request

found :: ByteString -> ByteString -> Response
found kind = plain ok200 [Field "Content-Type" kind]
