-- |
-- The other end of Linux's TCP, for the tests with it: a program over a TCP of its own that answers on port 7 with
-- what it gets, and joins each connection to port 8 to one that it makes, to port 8 of the system's end: what comes
-- from there goes there, and so do the end of a stream and a reset. Port 9090 has the page of @weft tcp list@. Says where
-- it listens in a line, and stops on SIGTERM.
--
-- > weft-tcp-peer DEVICE,ADDRESS/PREFIX SYSTEM'S-ADDRESS
--
-- In place of all that it serves a WAI application on port 3000, which answers with the body of the request.
--
-- > weft-tcp-peer wai DEVICE,ADDRESS/PREFIX
module Main (main) where

import Control.Monad (void)
import Data.ByteString qualified as B
import Data.Foldable (toList)
import Network.Wai qualified as Wai
import System.Environment (getArgs)
import System.Exit (die)
import System.IO (hFlush, stdout)
import System.Posix.Signals (Handler (Catch), installHandler, sigINT, sigTERM)
import Weft
import Weft.Cli.Tcp
import Weft.Concurrently
import Weft.Http.Server
import Weft.Http.Status
import Weft.Serve
import Weft.Signal
import Weft.Socket
import Weft.Tcp.Neighbours (Attachment (..))
import Weft.Tcp.Stack.Names (showHost)
import Weft.Wai qualified as Wai

main :: IO ()
main =
  getArgs >>= \case
    ["wai", device] | Right own <- parseOwnTcp device -> serving own
    [device, system] | Right own <- parseOwnTcp device -> runWith (over own defaultSettings) (peering own system)
    _ -> die "usage: weft-tcp-peer [wai] DEVICE,ADDRESS/PREFIX [SYSTEM'S-ADDRESS]"

over :: OwnTcp -> Settings -> Settings
over own s = s {settingWorkers = Just 2, settingKernel = overOwnTcp (Just own) (settingKernel s)}

says :: OwnTcp -> Int -> IO ()
says own port = putStrLn ("peer: listening on " <> concatMap (showHost . attachmentAddress) (take 1 (toList (ownAttachments own))) <> ":" <> show port) >> hFlush stdout

serving :: OwnTcp -> IO ()
serving own = Wai.runSettings settings $ \request respond ->
  Wai.strictRequestBody request >>= respond . Wai.responseLBS status200 [("Content-Type", "application/octet-stream")]
  where
    settings =
      Wai.setInstallShutdownHandler (\stop -> void (installHandler sigTERM (Catch stop) Nothing))
        . Wai.setBeforeMainLoop (says own 3000)
        . Wai.setListen (listenTcp Nothing "3000" 4096)
        $ Wai.setRuntime (over own) Wai.defaultSettings

peering :: OwnTcp -> HostName -> Thread ()
peering own system = do
  page <- newServer defaultServerSettings (\_ -> answeringTcp (\_ -> pure (plain notFound404 [] "")))
  listener <- listenTcp Nothing "9090" 16
  echoing <- listenTcp Nothing "7" 4096
  joining <- listenTcp Nothing "8" 4096
  withSignals [sigTERM, sigINT] $ \signals -> do
    liftIO (says own 7)
    race_ (void (nextSignal signals)) . race_ (serve page listener) $
      race_ (serveOn many echoing (\s _ -> passing s s)) (serveOn many joining (\s _ -> joined system s))
  where
    many = defaultServeSettings {serveMaxConnections = 50_000}

-- | A connection and another to the system. If one fails, both are reset.
joined :: HostName -> Socket -> Thread ()
joined system here = flip onException (resets here) $
  withSocket (connectTcp (seconds 60) system "8") $ \there ->
    concurrently_ (passing here there) (passing there here) `onException` resets there
  where
    resets s = setOption s Linger 0

-- | To the end of the stream, which is passed, too.
passing :: Socket -> Socket -> Thread ()
passing from to = do
  bytes <- receive from 65536
  if B.null bytes
    then shutdown to ShutdownSend
    else sendAll to bytes >> passing from to
