-- |
-- Module      : Weft.Bench.Http.Server
-- Description : The servers that are compared, and how each is started
--
-- What the driver ("Weft.Bench.Http") knows of a server is its name and how to
-- start it: here is the list, and the check that a started one answers rightly.
module Weft.Bench.Http.Server
  ( -- * Which
    ServerName (..),
    Backend (..),
    serverName,
    parseServer,
    standardServers,

    -- * Starting
    Paths (..),
    Server (..),
    startServer,
  )
where

import Control.Concurrent (threadDelay)
import Control.Exception (IOException, try)
import Data.List (find)
import Data.Maybe (fromMaybe)
import Data.Text (Text)
import Data.Text qualified as Text
import System.Directory (createDirectoryIfMissing, findExecutable)
import System.Environment (getExecutablePath)
import System.FilePath ((</>))
import System.Posix.User (getEffectiveUserID)
import Weft.Bench.Child
import Weft.Bench.Http.Config
import Weft.Bench.Http.Page
import Weft.Bench.Http.Probe

-- | A server that this program can start.
data ServerName
  = -- | @weft serve@ on a backend
    Weft !Backend
  | -- | with or without sendfile
    Nginx !Sendfile
  | Lighttpd
  | -- | "Weft.Bench.Warp"
    Warp
  | -- | @peers/rawloop.c@
    Rawloop
  deriving stock (Eq, Ord, Show)

-- | The event sources of @weft serve@.
data Backend = Epoll | IoUring | Poll
  deriving stock (Eq, Ord, Show, Enum, Bounded)

backendName :: Backend -> Text
backendName = \case
  Epoll -> "epoll"
  IoUring -> "io_uring"
  Poll -> "poll"

-- | As the command line and the reports call it.
serverName :: ServerName -> Text
serverName = \case
  Weft b -> "weft-" <> backendName b
  Nginx Sendfile -> "nginx"
  Nginx Copy -> "nginx-copy"
  Lighttpd -> "lighttpd"
  Warp -> "warp"
  Rawloop -> "rawloop"

allServers :: [ServerName]
allServers = [Rawloop] ++ map Weft [minBound ..] ++ [Nginx Sendfile, Nginx Copy, Lighttpd, Warp]

-- | The inverse of 'serverName'.
parseServer :: Text -> Either String ServerName
parseServer t = maybe (Left message) Right (find ((== t) . serverName) allServers)
  where
    message =
      "no such server: " ++ Text.unpack t ++ " (there are " ++ Text.unpack (Text.intercalate ", " (map serverName allServers)) ++ ")"

-- | All but @weft@ on poll, which is for systems without epoll and cannot hold
-- many idle connections well.
standardServers :: [ServerName]
standardServers = filter (/= Weft Poll) allServers

-- | Where things are.
data Paths = Paths
  { -- | the program @weft@
    pathWeft :: !FilePath,
    -- | the directory with the peers that were built
    pathPeers :: !FilePath,
    -- | a directory that is ours for as long as the servers run
    pathWork :: !FilePath
  }

-- | A server that runs and has answered.
data Server = Server
  { serverIs :: !ServerName,
    serverPort :: !Int,
    serverChild :: !Child,
    -- | bytes of its response's status line and headers
    serverHeadBytes :: !Int
  }

-- | Start a server on one processor and ask it for the page until it answers,
-- for at most five seconds. When it does not, or answers wrongly, it is stopped
-- and the result says why, with what it wrote to standard error.
startServer :: Nursery -> Paths -> Int -> ServerName -> IO (Either Text Server)
startServer nursery paths cpu name = do
  port <- freePort
  root <- (== 0) <$> getEffectiveUserID
  let own = pathWork paths </> Text.unpack (serverName name)
      site = pathWork paths </> "site"
  createDirectoryIfMissing True own
  createDirectoryIfMissing True site
  writeSite site
  command <- commandFor paths (Place port site own root) name
  try (startChild nursery (pinned cpu command)) >>= \case
    Left e -> pure (Left (Text.pack (show (e :: IOException))))
    Right child ->
      awaitAnswer child port (500 :: Int) >>= \case
        Right headBytes -> pure (Right (Server name port child headBytes))
        Left why -> do
          stopChild nursery child
          message <- childComplaint child
          pure (Left (Text.strip (why <> "\n" <> message)))

-- The server has a hundredth of a second between two questions.
awaitAnswer :: Child -> Int -> Int -> IO (Either Text Int)
awaitAnswer child port tries =
  childExit child >>= \case
    Just code -> pure (Left ("it ended: " <> Text.pack (show code)))
    Nothing ->
      try (probe port pagePath) >>= \case
        Right (Right answer)
          | answerStatus answer == 200 && answerBody answer == expected -> pure (Right (answerHeadBytes answer))
          | otherwise -> pure (Left ("it answers wrongly: " <> Text.pack (show answer)))
        Right (Left why) -> pure (Left ("it answers wrongly: " <> Text.pack why))
        Left e
          | tries <= 1 -> pure (Left ("it does not answer: " <> Text.pack (show (e :: IOException))))
          | otherwise -> threadDelay 10_000 >> awaitAnswer child port (tries - 1)
  where
    expected = page

commandFor :: Paths -> Place -> ServerName -> IO Command
commandFor paths place = \case
  Weft backend ->
    pure (Command (pathWeft paths) ["serve", placeRoot place, "--port", port, "--workers", "1", "--backend", Text.unpack (backendName backend), "--quiet"])
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
  Warp -> do
    this <- getExecutablePath
    -- GHC's own nursery, not the one that this program has for its measurements.
    pure (Command this ["warp", "--port", port, "--root", placeRoot place, "+RTS", "-A4m", "-RTS"])
  Rawloop -> pure (Command (pathPeers paths </> "rawloop") ["--port", port])
  where
    port = show (placePort place)

-- Servers are often installed where only root's search path leads.
systemProgram :: String -> IO FilePath
systemProgram name = fromMaybe ("/usr/sbin" </> name) <$> findExecutable name
