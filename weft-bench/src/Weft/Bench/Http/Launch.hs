-- |
-- Description : The command that starts a server, and its version
--
-- Writes configurations where a server needs one. "Weft.Bench.Http.Server" runs the
-- commands and watches over what they start.
module Weft.Bench.Http.Launch (Paths (..), launchCommand, launchVersion) where

import Control.Exception (IOException, try)
import Data.List (find)
import Data.Maybe (fromMaybe)
import Data.Text (Text)
import Data.Text qualified as Text
import System.Directory (doesDirectoryExist, findExecutable)
import System.Environment (getExecutablePath)
import System.FilePath ((</>))
import System.Process (readProcessWithExitCode)
import Weft.Bench.Application (WaiHost (..), waiHosts)
import Weft.Bench.Child (Command (..))
import Weft.Bench.Contest.Kind (kindName)
import Weft.Bench.Http.Config
import Weft.Bench.Http.Content (Content (..))
import Weft.Bench.Http.Name
import Weft.Bench.Plain (plainFlags)
import Weft.Bench.Toy (toyFlags)

-- | Where things are.
data Paths = Paths
  { -- | the program @weft@
    pathWeft :: !FilePath,
    -- | the directory with the peers that were built
    pathPeers :: !FilePath,
    -- | a directory that is ours for as long as the servers run
    pathWork :: !FilePath,
    -- | what @weft serve@ may keep of small files in memory, in bytes
    pathCacheBytes :: !Int
  }

-- | The command, for the place and the content. A Haskell program is told to leave the
-- run-time system's counters in the given file when it ends.
launchCommand :: Paths -> Place -> Content -> FilePath -> ServerName -> IO Command
launchCommand paths place content counters = \case
  Weft backend ->
    pure . Command (pathWeft paths) $
      serving ++ ["--backend", Text.unpack (backendName backend)] ++ runtime []
  Scheduled schedule ->
    pure . Command (pathWeft paths) $
      serving ++ ["--backend", "epoll", "--schedule", Text.unpack (scheduleName schedule)] ++ runtime []
  Plain backend -> do
    this <- getExecutablePath
    pure (Command this (["plain", "--port", port, "--backend", Text.unpack (backendName backend)] ++ runtime plainFlags))
  Wai host -> do
    this <- getExecutablePath
    let flags = maybe [] waiHostFlags (find ((== host) . waiHostName) waiHosts)
    pure (Command this (["wai", "--host", Text.unpack host, "--port", port] ++ runtime flags))
  Nginx how -> do
    let config = placeOwn place </> "nginx.conf"
    writeFile config (nginxConfig how place)
    program <- systemProgram "nginx"
    -- -e: before it has read its configuration nginx would write to its log of
    -- the system, which may not be ours to write.
    pure (Command program ["-p", placeOwn place, "-e", "stderr", "-c", config])
  Lighttpd -> do
    let config = placeOwn place </> "lighttpd.conf"
    writeFile config (lighttpdConfig place)
    program <- systemProgram "lighttpd"
    pure (Command program ["-D", "-f", config])
  Apache mpm -> do
    let config = placeOwn place </> "apache.conf"
    modules <- apacheModules
    writeFile config (apacheConfig mpm modules place)
    program <- apacheProgram
    pure (Command program ["-DFOREGROUND", "-f", config])
  GoHttp -> pure (Command "env" ["GOMAXPROCS=1", pathPeers paths </> "gohttp", "--port", port, "--root", placeRoot place])
  Hyper -> pure (Command (pathPeers paths </> "hyper-peer") ["--port", port, "--root", placeRoot place])
  Rawloop -> pure (Command (pathPeers paths </> "rawloop") (["--port", port] ++ concat [["--answer", "hello"] | content == HelloContent]))
  MiniHttpd -> do
    program <- systemProgram "mini_httpd"
    -- In the foreground. Its listen queue is what it was compiled with.
    pure (Command program (["-D", "-h", "127.0.0.1", "-p", port, "-d", placeRoot place] ++ concat [["-u", "root"] | placeRunsAsRoot place]))
  Toy (ToyOfC name) -> pure (Command (pathPeers paths </> ("toy-" ++ Text.unpack name)) ["--port", port, "--backlog", show (placeBacklog place)])
  Toy (ToyOfHaskell kind) -> do
    this <- getExecutablePath
    pure (Command this (["toy-server", "--kind", Text.unpack (kindName kind), "--port", port, "--backlog", show (placeBacklog place)] ++ concat [["--root", placeRoot place] | FileContent _ _ <- [content]] ++ runtime toyFlags))
  where
    port = show (placePort place)
    serving = ["serve", placeRoot place, "--port", port, "--workers", "1", "--cache-bytes", show (pathCacheBytes paths), "--idle-timeout", "3600", "--quiet"]
    runtime flags = ["+RTS"] ++ flags ++ ["-t" ++ counters, "--machine-readable", "-RTS"]

-- | The server's name and version as it says them, on one line; 'Nothing' where it does not say or is not there.
launchVersion :: Paths -> ServerName -> IO (Maybe Text)
launchVersion paths = \case
  Weft _ -> ask (pathWeft paths) ["--version"]
  Scheduled _ -> ask (pathWeft paths) ["--version"]
  Plain _ -> ask (pathWeft paths) ["--version"]
  Wai host -> do
    this <- getExecutablePath
    ask this ["wai", "--host", Text.unpack host, "--host-version"]
  Nginx _ -> fmap (Text.replace "nginx version: " "") <$> (systemProgram "nginx" >>= (`ask` ["-v"]))
  Lighttpd -> fmap (Text.takeWhile (/= ' ')) <$> (systemProgram "lighttpd" >>= (`ask` ["-v"]))
  Apache _ -> fmap (Text.replace "Server version: " "") <$> (apacheProgram >>= (`ask` ["-v"]))
  GoHttp -> ask (pathPeers paths </> "gohttp") ["--version"]
  Hyper -> ask (pathPeers paths </> "hyper-peer") ["--version"]
  Rawloop -> pure Nothing
  MiniHttpd -> systemProgram "mini_httpd" >>= (`ask` ["-V"])
  Toy _ -> pure Nothing
  where
    ask program arguments = do
      told <- try (readProcessWithExitCode program arguments "")
      pure $ case told of
        Left (_ :: IOException) -> Nothing
        Right (_, out, err) -> find (not . Text.null) (map Text.strip (Text.lines (Text.pack (out ++ err))))

-- Servers are often installed where only root's search path leads.
systemProgram :: String -> IO FilePath
systemProgram name = fromMaybe ("/usr/sbin" </> name) <$> findExecutable name

-- Debian's name, and that of other systems.
apacheProgram :: IO FilePath
apacheProgram = do
  others <- findExecutable "httpd"
  maybe (systemProgram "apache2") pure others

apacheModules :: IO FilePath
apacheModules = go ["/usr/lib/apache2/modules", "/usr/lib64/httpd/modules", "/usr/lib/httpd/modules"]
  where
    go [] = pure "modules"
    go (d : more) = doesDirectoryExist d >>= \there -> if there then pure d else go more
