-- |
-- Description : The program @weft@ and its commands
--
-- Chooses the command. Each command is a module of its own.
module Weft.Cli (main) where

import Control.Monad (join)
import Data.Version (showVersion)
import Options.Applicative
import Paths_weft_cli (version)
import Weft.Cli.Serve (serveCommand)

-- | Parse the command line and run the command.
main :: IO ()
main = join (customExecParser (prefs showHelpOnEmpty) program)

program :: ParserInfo (IO ())
program =
  info
    (hsubparser serveCommand <**> simpleVersioner ("weft " <> showVersion version) <**> helper)
    (fullDesc <> header "weft - massively concurrent network services" <> failureCode 2)
