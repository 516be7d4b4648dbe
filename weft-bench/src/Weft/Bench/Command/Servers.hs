-- |
-- Description : weft-bench wai, weft-bench plain, weft-bench toy-server
--
-- Runs the servers that are part of this program. The comparison of servers
-- ("Weft.Bench.Http") starts them itself.
module Weft.Bench.Command.Servers (waiCommand, plainCommand, toyServerCommand) where

import Data.Text qualified as Text
import Data.Text.Encoding qualified as Text
import Data.Text.IO qualified as Text
import Options.Applicative
import Weft (BackendChoice (..))
import Weft.Bench.Application
import Weft.Bench.Child (endingOnSignals)
import Weft.Bench.Command.Options (positive)
import Weft.Bench.Contest.Kind (everyKind, kindName)
import Weft.Bench.Named (named)
import Weft.Bench.Plain (servePlain)
import Weft.Bench.Toy (serveToy)
import Weft.Bench.Web (webKinds)
import Weft.Kernel (parseBackend)

-- | @wai@.
waiCommand :: Mod CommandFields (IO ())
waiCommand =
  command "wai" (info parser (progDesc "Answer from memory with a WAI application on one of its hosts"))
  where
    parser = start <$> host <*> portOption <*> switch (long "host-version" <> help "only say what the host is")
    host =
      option
        (eitherReader (named "host" waiHostName waiHosts . Text.pack))
        (long "host" <> metavar "NAME" <> help ("any of " ++ names))
    start h port asked
      | asked = Text.putStrLn (waiHostVersion h)
      | otherwise = endingOnSignals (waiHostRun h port application)
    names = Text.unpack (Text.intercalate ", " (map waiHostName waiHosts))

-- | @plain@.
plainCommand :: Mod CommandFields (IO ())
plainCommand =
  command "plain" (info parser (progDesc "Answer from memory with a handler on Weft's HTTP server"))
  where
    parser =
      servePlain
        <$> option (eitherReader parseBackend) (long "backend" <> metavar "NAME" <> value Auto <> help "event source: auto, epoll, io_uring or poll (default: auto)")
        <*> portOption

-- | @toy-server@.
toyServerCommand :: Mod CommandFields (IO ())
toyServerCommand =
  command "toy-server" (info parser (progDesc "Answer with the page, or files, by a thread for each connection"))
  where
    parser =
      serveToy
        <$> option (eitherReader (named "kind" kindName everyKind . Text.pack)) (long "kind" <> metavar "NAME" <> help (Text.unpack (Text.intercalate ", " (map kindName everyKind))))
        <*> portOption
        <*> option positive (long "backlog" <> metavar "N" <> value 1024 <> showDefault <> help "length of the listen queue")
        <*> optional (Text.encodeUtf8 <$> strOption (long "root" <> metavar "DIR" <> help ("serve the files under it in place of the page; " ++ Text.unpack (Text.intercalate ", " (map kindName webKinds)))))

portOption :: Parser Int
portOption = option positive (long "port" <> metavar "P" <> value 8080 <> showDefault <> help "on 127.0.0.1")
