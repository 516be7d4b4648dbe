-- | The program @weft@ and its commands, each of which is a module of its own.
module Weft.Cli (main) where

import Control.Monad (join)
import Data.Version (showVersion)
import GHC.IO.Encoding (getFileSystemEncoding)
import Options.Applicative
import Paths_weft_cli (version)
import System.Environment (getArgs)
import System.Exit (ExitCode (..), exitWith)
import System.IO (hSetEncoding, stderr, stdout)
import System.Posix.Signals (Handler (Ignore), installHandler, sigPIPE)
import Weft.Cli.Load (loadCommand)
import Weft.Cli.Serve (serveCommand)
import Weft.Cli.Tcp.Command (tcpCommand)
import Weft.Internal.Os.Report (reportToStderr)

-- | Parse the command line and run the command. A wrong one is one line on standard error, and
-- status 2.
main :: IO ()
main = do
  -- A closed pipe is an error of the write, not the end of the process. The GHC run-time leaves
  -- signals alone, because as it ends it would give SIGINT its default effect.
  _ <- installHandler sigPIPE Ignore Nothing
  -- Arguments are bytes, not necessarily text of this locale, and messages repeat them: the
  -- encoding of file names preserves every byte.
  names <- getFileSystemEncoding
  hSetEncoding stdout names
  hSetEncoding stderr names
  args <- getArgs
  -- Without any arguments: the help page.
  case execParserPure (if null args then prefs showHelpOnEmpty else defaultPrefs) program args of
    Failure failure
      | (text, ExitFailure code) <- renderFailure failure "weft",
        not (null args) -> do
          reportToStderr (complaint text)
          exitWith (ExitFailure code)
    result -> join (handleParseResult result)

-- | The error message without the usage page.
complaint :: String -> String
complaint text = case takeWhile (not . null) (lines text) of
  wrong@(first : _) | take 6 first /= "Usage:" -> unwords wrong <> hint
  _ -> "something is missing" <> hint
  where
    hint = " (see --help)"

program :: ParserInfo (IO ())
program =
  info
    (hsubparser (serveCommand <> loadCommand <> tcpCommand) <**> simpleVersioner ("weft " <> showVersion version) <**> helper)
    (fullDesc <> header "weft - massively concurrent network services" <> failureCode 2)
