-- | @weft load URL@. Puts an HTTP server under load and reports how it performs.
module Weft.Cli.Load (loadCommand) where

import Control.Monad (unless, when)
import Data.Aeson (encode)
import Data.ByteString.Char8 qualified as C
import Data.ByteString.Lazy.Char8 qualified as Lazy
import Data.Foldable (for_)
import Data.IORef
import Data.List (isSuffixOf)
import Data.Maybe (fromMaybe)
import GHC.Conc (getNumProcessors)
import GHC.IO.Exception (IOException (..))
import Options.Applicative
import System.Exit (ExitCode (..), exitWith)
import System.IO (hFlush, hIsTerminalDevice, hSetEncoding, stderr, stdout, utf8)
import Weft
import Weft.Cli.Load.Page
import Weft.Cli.Load.Plan
import Weft.Cli.Load.Report
import Weft.Cli.Load.Run
import Weft.Cli.Options
import Weft.Cli.Tcp
import Weft.Http.Client.Types (Scheme (..), Target (..), authority)
import Weft.Http.Internal.Descriptors
import Weft.Internal.Os.Report (reportToStderr, writeStderr)
import Weft.Socket
import Weft.Tls.Client (Authorities (..), clientTls, secureWith)
import Weft.Tls.Server (LoadError (..))

-- | The command, for the program's parser.
loadCommand :: Mod CommandFields (IO ())
loadCommand = command "load" (info (putUnderLoad <$> loadOptions) (progDesc "Put an HTTP server under load, and measure how it takes it" <> failureCode 2))

-- | A wrong command line is one line on standard error and status 2; a load that fails, or in which
-- no request succeeds, is status 1.
putUnderLoad :: LoadOptions -> IO ()
putUnderLoad o = do
  plan <- makePlan o >>= either (failing 2) pure
  for_ (loadReport o) $ \path ->
    unless (any (`isSuffixOf` path) [".html", ".svg"]) (failing 2 (path <> ": the name of a report ends in .html or .svg"))
  -- Fail before the load, not after it.
  for_ (loadReport o) $ \path -> writing path (writeFile path "")
  descriptors <- raiseDescriptors
  let wanted = loadConnections o + loadIdle o + 64
  -- A TCP of its own needs no descriptors for connections.
  when (wanted > descriptors && null (loadTcp o)) (failing 1 (show (loadConnections o + loadIdle o) <> " connections need more open files than the limit, which is " <> show descriptors))
  processors <- getNumProcessors
  outcome <-
    try . runWith defaultSettings {settingWorkers = Just (fromMaybe processors (loadWorkers o)), settingKernel = overOwnTcp (loadTcp o) (systemKernel defaultSystemSettings {systemBackend = loadBackend o})} $ do
      secure <- securing plan
      address <- reach plan secure
      progress <- liftIO (progressOn o)
      runLoad o plan secure address progress
  result <- either (failing 1 . explain) pure outcome
  terminal <- hIsTerminalDevice stderr
  when (terminal || loadProgress o) (writeStderr (if terminal then "\r\ESC[K" else ""))
  hSetEncoding stdout utf8
  if loadJson o then Lazy.putStrLn (encode (jsonReport result)) else mapM_ putStrLn (textReport result)
  hFlush stdout
  for_ (loadReport o) $ \path -> writing path (writePage path result)
  when (succeeded (resultTotals result) == 0) (failing 1 "no request has succeeded")
  where
    failing code text = reportToStderr text >> exitWith (ExitFailure code)
    writing path act = act `catch` \e -> failing 1 (path <> ": " <> ioe_description (e :: IOException))

    securing plan = case targetScheme (planTarget plan) of
      Http -> pure pure
      Https -> do
        let authorities = if loadInsecure o then NoVerification else maybe SystemAuthorities AuthoritiesFrom (loadCa o)
        tls <- clientTls authorities Nothing `catch` \(LoadError path what) -> throwM (userError (path <> ": " <> what))
        pure (secureWith tls (planTarget plan))

    -- A server that is absent, or fails the TLS verification, gets no load.
    reach plan secure = do
      let target = planTarget plan
          failed e = throwM (userError ("cannot connect to " <> C.unpack (authority target) <> ": " <> ioe_description (e :: IOException)))
      socket <- connectTcp (loadTimeout o) (C.unpack (targetHost target)) (show (targetPort target)) `catch` failed
      ((securedWithin (loadTimeout o) secure socket `catch` failed) >> peerAddress socket) `finally` closeSocket socket

-- | Show progress: a line that is rewritten ten times a second on a terminal, else a line a second,
-- or none.
progressOn :: LoadOptions -> IO (Point -> IO ())
progressOn o = do
  terminal <- hIsTerminalDevice stderr
  before <- newIORef Nothing
  pure $ \point ->
    when (terminal || loadProgress o) $ do
      last' <- readIORef before
      when (maybe True (\b -> pointTime point - pointTime b >= 1_000_000_000) last') $ do
        writeIORef before (Just point)
        writeStderr ((if terminal then "\r\ESC[K" else "") <> progressLine last' point <> (if terminal then "" else "\n"))
