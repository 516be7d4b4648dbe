-- | The program that the hand-over tests start: a server as an operator would run it. The
-- test executable is this program if @WEFT_TEST_SERVE@ says what to answer.
module HandOverChild (serveUntilTold) where

import Control.Monad (unless)
import Data.ByteString.Char8 qualified as C
import Data.Maybe (fromMaybe)
import System.Environment (lookupEnv)
import System.Exit (exitFailure)
import System.IO (hPutStrLn, stderr)
import System.Posix.Signals (sigTERM)
import Weft
import Weft.Http.Listen
import Weft.Http.Notify
import Weft.Http.Server
import Weft.Http.Status
import Weft.Signal

-- | Serve on the sockets that were inherited, or on the port in @WEFT_TEST_PORT@ beside
-- others; drain on SIGTERM. Fails if a connection had to be cut off.
serveUntilTold :: String -> IO ()
serveUntilTold answer = do
  ended <- run . withSignals [sigTERM] $ \signals -> do
    notifier <- openNotifier (hPutStrLn stderr)
    port <- liftIO (fromMaybe "none" <$> lookupEnv "WEFT_TEST_PORT")
    sockets <- listeners (listenOn Shared (Just "127.0.0.1") port 1024)
    server <- newServer defaultServerSettings (\_ _ -> pure (plain ok200 [] (C.pack answer)))
    mapM_ (fork_ . serve server) sockets
    notifyReady notifier
    _ <- nextSignal signals
    notifyStopping notifier
    drain server sockets
  unless ended exitFailure
