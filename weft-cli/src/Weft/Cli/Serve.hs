-- | @weft serve@. Serves the files of directories until a signal stops it, then drains.
module Weft.Cli.Serve (serveCommand, settingsOf) where

import Control.Exception (fromException)
import Control.Monad (unless, when, (>=>))
import Data.ByteString qualified as B
import Data.Maybe (fromMaybe, isJust)
import GHC.Conc (getNumProcessors)
import GHC.IO.Exception (IOException (..))
import Options.Applicative
import System.Exit (ExitCode (..), exitFailure, exitWith)
import Weft
import Weft.Cli.Options
import Weft.Cli.Serve.Check
import Weft.Cli.Serve.Config
import Weft.Cli.Serve.File
import Weft.Cli.Serve.Keys
import Weft.Cli.Serve.Secure
import Weft.Cli.Serve.Service
import Weft.Cli.Serve.Toml
import Weft.Cli.Succession
import Weft.Cli.Tcp
import Weft.Internal.Os.Report (reportToStderr, writeStderr)
import Weft.Kernel (Kernel)
import Weft.Timeline (timelineTo)

-- | The command, for the program's parser.
serveCommand :: Mod CommandFields (IO ())
serveCommand = command "serve" (info (start <$> commandLine) (progDesc "Serve the files of a directory over HTTP/1.1" <> failureCode 2))

data CommandLine = CommandLine
  { lineConfig :: !(Maybe FilePath),
    -- | Check the configuration instead of serving.
    lineCheck :: !Bool,
    -- | The changes to a configuration, by the options that are there.
    lineChanges :: [IO (Config -> Config)]
  }

-- | DIR is optional here: a configuration file can name it.
commandLine :: Parser CommandLine
commandLine =
  (\directory file check changes -> CommandLine file check (maybe id ((:) . root) directory changes))
    <$> optional (strArgument (metavar "DIR" <> help "The directory to serve; may be left out where a configuration file names one" <> action "directory"))
    <*> optional (strOption (long "config" <> short 'c' <> metavar "FILE" <> help "A configuration file in TOML; options take precedence over it" <> action "file"))
    <*> switch (long "check" <> help "Check the configuration and what it names, say what is wrong with it, and do not serve")
    <*> options
  where
    root directory = (\path c -> c {configSite = (configSite c) {siteRoot = Just (NamedFile path "")}}) <$> argumentBytes directory

-- | Combine the file and the options into a configuration, check it, and serve. Errors at the
-- start are a line each on standard error, and status 1.
start :: CommandLine -> IO ()
start line = do
  (inFile, fromFile) <- maybe (pure ([], defaultConfig)) configFrom (lineConfig line)
  config <- foldl (flip ($)) fromFile <$> sequence (lineChanges line)
  when (null (fst (reachable config)) && null (lineConfig line)) $ do
    reportToStderr "Missing: DIR or --config FILE (see --help)"
    exitWith (ExitFailure 2)
  unless (null inFile) (writeStderr (unlines inFile))
  -- Even where the file as a whole is wrong, the files that it names can be checked.
  problems <- try (runWith (quietly config) ((if null inFile then checkConfig else checkFiles) told config))
  case problems of
    Left e -> failWith e
    Right wrongs -> do
      mapM_ (shownPath >=> reportToStderr) wrongs
      -- A process that is to be replaced has the device.
      device <- maybe (pure Nothing) (checkOwnTcp (lineCheck line || isJust (confHandover (configServer config)))) (confTcp (configServer config))
      mapM_ reportToStderr device
      unless (null inFile && null wrongs && null device) exitFailure
  if lineCheck line then putStrLn "configuration ok" else serveWith config
  where
    -- Say a warning once: the service repeats it.
    told = if lineCheck line then reportToStderr else const (pure ())
    quietly config = defaultSettings {settingWorkers = Just 1, settingKernel = systemOf config}

-- | The errors of a file, a line each, and the configuration from the rest of it.
configFrom :: FilePath -> IO ([String], Config)
configFrom file = do
  path <- argumentBytes file
  try (B.readFile file) >>= \case
    Left e -> pure (["weft: " <> file <> ": " <> ioe_description e], defaultConfig)
    Right content ->
      let (problems, config) = readConfig path content defaultConfig
       in pure (map (renderProblem file) problems, config)

-- | Serve until SIGTERM or SIGINT; then drain and end with status 0. An error at the start is one
-- line on standard error and status 1.
serveWith :: Config -> IO ()
serveWith config = do
  processors <- getNumProcessors
  timeline <- traverse shownPath (confTrace server)
  outcome <- try $ do
    succession <- traverse (shownPath >=> beginSuccession) (confHandover server)
    runWith (settingsOf processors config succession) {settingTrace = timelineTo <$> timeline} $
      serving config succession
  case outcome of
    Right ended -> unless ended (exitWith (ExitFailure 1))
    Left e
      | Just (CannotLoad why) <- fromException e -> shownPath why >>= reportToStderr >> exitFailure
      | Just failure <- fromException e -> failWith failure
      | otherwise -> throwM e
  where
    server = configServer config
    -- In a run before, because a stack begins with its device.
    beginSuccession path =
      let place = foldMap sharedPart (confTcp server)
       in runWith defaultSettings {settingWorkers = Just 1, settingKernel = systemOf config} (askPredecessor place path) >>= newSuccession place path

-- | The run's settings, given the number of processors.
settingsOf :: Int -> Config -> Maybe Succession -> Settings
settingsOf processors config succession =
  defaultSettings
    { settingWorkers = Just (fromMaybe processors (confWorkers server)),
      settingKernel = kernelOf config succession,
      settingPolicy = confSchedule server
    }
  where
    server = configServer config

kernelOf :: Config -> Maybe Succession -> Kernel
kernelOf config succession = case (succession, confTcp (configServer config)) of
  (Just one, Just own) -> overOwnTcpAfter one own (systemOf config)
  (_, own) -> overOwnTcp own (systemOf config)

systemOf :: Config -> Kernel
systemOf config = systemKernel defaultSystemSettings {systemBackend = confBackend (configServer config)}

failWith :: IOException -> IO ()
failWith e = reportToStderr (explain e) >> exitFailure
