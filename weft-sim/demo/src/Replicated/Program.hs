{-# LANGUAGE ApplicativeDo #-}

-- |
-- Description : The program weft-kv
--
-- Here is what happens for real. The simulation adds commands of its own ('mainWith').
module Replicated.Program
  ( main,
    mainWith,
    Command,

    -- * For more commands
    verdict,
    mistakeOptions,
    secondsOf,
    positive,
  )
where

import Control.Exception (IOException, displayException)
import Control.Exception qualified as Exception
import Data.ByteString.Char8 qualified as Char8
import Data.Char (isDigit)
import Data.List (intercalate)
import Data.Text qualified as Text
import Data.Text.IO qualified as Text
import Options.Applicative
import Replicated.Client
import Replicated.History
import Replicated.Linearizability
import Replicated.Loopback
import Replicated.Mistake
import Replicated.Replica
import Replicated.Workload
import System.Environment (getArgs)
import System.Exit (ExitCode (..), exitWith)
import System.IO (hClose, hFlush, hSetEncoding, stderr, stdout, utf8)
import System.IO.Temp (withSystemTempDirectory)
import System.Posix.Signals (sigINT, sigTERM)
import Weft
import Weft.Concurrently
import Weft.Internal.Os.Report (writeStderr)
import Weft.Signal
import Weft.Socket
import Weft.Time (nanoseconds)

-- | One of the things that the program can do.
type Command = Mod CommandFields (IO ExitCode)

-- | The program, with what happens for real.
main :: IO ()
main = mainWith []

-- | The program with more commands. What the system refuses is one line, and status 2.
mainWith :: [Command] -> IO ()
mainWith more = do
  hSetEncoding stdout utf8
  hSetEncoding stderr utf8
  act <- getArgs >>= understood . execParserPure defaultPrefs program
  -- Output may be refused only now.
  ended <- Exception.try (act <* hFlush stdout)
  case ended of
    Right code -> exitWith code
    Left e -> do
      -- The rest of the output is refused again when the program ends.
      _ <- Exception.try (hClose stdout) :: IO (Either IOException ())
      mistaken (displayException (e :: IOException))
  where
    program = info (hsubparser (mconcat (commands <> more)) <**> helper) (fullDesc <> progDesc "A replicated key-value store" <> failureCode 2)
    commands =
      [ command "run" (info runOptions (progDesc "Run replicas and clients on loopback, with trouble, and check what they did")),
        command "replica" (info replicaOptions (progDesc "Run one replica until it is told to stop")),
        command "get" (info getOptions (progDesc "Print the value of a key")),
        command "put" (info putOptions (progDesc "Give a key a value"))
      ]

-- | The command of the command line; an error in it is one line, and status 2.
understood :: ParserResult a -> IO a
understood = \case
  Options.Applicative.Failure failure
    | (text, ExitFailure _) <- renderFailure failure "weft-kv" -> mistaken (unwords (takeWhile (not . null) (lines text)) <> " (see --help)")
  result -> handleParseResult result

mistaken :: String -> IO a
mistaken text = writeStderr ("weft-kv: " <> text <> "\n") >> exitWith (ExitFailure 2)

-- ---------------------------------------------------------------------------
-- run

runOptions :: Parser (IO ExitCode)
runOptions = do
  replicas <- option (positive 100) (long "replicas" <> metavar "N" <> value 3 <> showDefault <> help "How many replicas")
  clients <- option (positive 1000) (long "clients" <> metavar "N" <> value 4 <> showDefault <> help "How many clients")
  time <- option secondsOf (long "seconds" <> metavar "S" <> value (seconds 3) <> help "How long the clients work (default: 3)")
  directory <- optional (strOption (long "directory" <> metavar "DIR" <> help "For the logs, which stay there (default: a temporary one)"))
  port <- optional (option (fromIntegral <$> positive 65000) (long "port" <> metavar "P" <> help "Of the first replica, which the others follow (default: any free ones)"))
  mistakes <- mistakeOptions
  pure $ maybe (withSystemTempDirectory "weft-kv") (flip ($)) directory $ \place -> do
    history <-
      run . loopback $
        (defaultLoopbackSettings (Char8.pack place))
          { loopbackReplicas = replicas,
            loopbackClients = clients,
            loopbackWorkload = defaultWorkloadSettings {workloadTime = time},
            loopbackPort = port,
            loopbackTell = liftIO . Text.putStrLn,
            loopbackMistakes = mistakes
          }
    verdict history

-- | Say what a history is like; a failure if it is not linearizable.
verdict :: History -> IO ExitCode
verdict history = do
  putStrLn (summary history)
  case check history of
    Right () -> ExitSuccess <$ putStrLn "The history is linearizable."
    Left violation -> ExitFailure 1 <$ putStr ("The history is not linearizable.\n\n" <> explain violation)

-- ---------------------------------------------------------------------------
-- replica, get, put

replicaOptions :: Parser (IO ExitCode)
replicaOptions = do
  name <- strOption (long "id" <> metavar "NAME" <> help "Its name, for reports")
  place <- option address (long "listen" <> metavar "HOST:PORT" <> help "Where it listens")
  directory <- strOption (long "directory" <> metavar "DIR" <> help "Where its log is")
  mistakes <- mistakeOptions
  pure $ run . withSignals [sigINT, sigTERM] $ \signals -> do
    at <- resolved place
    race_ (nextSignal signals) (replica (defaultReplicaSettings name at directory) {replicaMistakes = mistakes})
    pure ExitSuccess

getOptions :: Parser (IO ExitCode)
getOptions = do
  replicas <- replicasOption
  mistakes <- mistakeOptions
  key <- strArgument (metavar "KEY")
  pure $ asClient replicas mistakes $ \client -> get client key >>= conclude (liftIO . maybe (writeStderr "nothing\n") Char8.putStrLn)

putOptions :: Parser (IO ExitCode)
putOptions = do
  replicas <- replicasOption
  mistakes <- mistakeOptions
  key <- strArgument (metavar "KEY")
  new <- strArgument (metavar "VALUE")
  pure $ asClient replicas mistakes $ \client -> put client key new >>= conclude pure

asClient :: [(HostName, ServiceName)] -> [Mistake] -> (Client -> Thread ExitCode) -> IO ExitCode
asClient replicas mistakes body = run $ do
  addresses <- mapM resolved replicas
  withClient (defaultClientSettings "client" addresses) {clientMistakes = mistakes} body

-- | 1: it was not done. 3: it is not known. (2 is a mistake on the command line.)
conclude :: (a -> Thread ()) -> Outcome a -> Thread ExitCode
conclude use = \case
  Done a -> ExitSuccess <$ use a
  Failed why -> ExitFailure 1 <$ complain ("failed: " <> Text.unpack why)
  Unknown why -> ExitFailure 3 <$ complain ("outcome unknown: " <> Text.unpack why)
  where
    complain text = liftIO (writeStderr (text <> "\n"))

-- ---------------------------------------------------------------------------
-- Options

mistakeOptions :: Parser [Mistake]
mistakeOptions =
  many . option (eitherReader parseMistake) $
    long "mistake" <> metavar "M" <> help ("Do something wrong: " <> intercalate ", " (map nameOf [minBound ..]))

replicasOption :: Parser [(HostName, ServiceName)]
replicasOption = some (option address (long "replica" <> metavar "HOST:PORT" <> help "Where a replica is; once for each of them"))

address :: ReadM (HostName, ServiceName)
address = eitherReader $ \text -> case break (== ':') (reverse text) of
  (port@(_ : _), ':' : host@(_ : _))
    | all isDigit port, (read (reverse port) :: Integer) > 65535 -> Left (show text <> " has a port beyond 65535")
    | otherwise -> Right (reverse (filter (`notElem` ("[]" :: String)) host), reverse port)
  _ -> Left (show text <> " is not of the form HOST:PORT")

resolved :: (HostName, ServiceName) -> Thread SockAddr
resolved (host, port) =
  resolve Nothing (Just host) (Just port) >>= \case
    found : _ -> pure (addrAddress found)
    [] -> throwM (userError ("no address for " <> host))

-- | A number from 1 to this one.
positive :: Int -> ReadM Int
positive limit = auto >>= \n -> if n >= 1 && n <= limit then pure n else readerError ("a number from 1 to " <> show limit <> ", please")

-- | A number of seconds, a fraction allowed.
secondsOf :: ReadM Duration
secondsOf = auto >>= \s -> if s > 0 && s < 1e6 then pure (nanoseconds (round (s * 1e9 :: Double))) else readerError "a number of seconds, please"
