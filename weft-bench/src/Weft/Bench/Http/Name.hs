-- |
-- Description : The servers that are compared
--
-- Which there are, what each is called, and what each can serve. How one is started
-- is in "Weft.Bench.Http.Launch".
module Weft.Bench.Http.Name
  ( ServerName (..),
    Backend (..),
    backendName,
    Schedule (..),
    scheduleName,
    Toy (..),
    serverName,
    parseServer,
    allServers,
    serves,
    isHaskell,
  )
where

import Data.Text (Text)
import Weft.Bench.Application (WaiHost (..), waiHosts)
import Weft.Bench.Contest.Kind (Kind, kindName)
import Weft.Bench.Http.Config (Mpm (..), Sendfile (..))
import Weft.Bench.Http.Content (Content (..))
import Weft.Bench.Named (named)

-- | A server that this program can start.
data ServerName
  = -- | @weft serve@ on a backend
    Weft !Backend
  | -- | @weft serve@ with that order of ready threads
    Scheduled !Schedule
  | -- | "Weft.Bench.Plain" on a backend
    Plain !Backend
  | -- | "Weft.Bench.Application" on one of its hosts
    Wai !Text
  | Nginx !Sendfile
  | Lighttpd
  | Apache !Mpm
  | -- | @peers/gohttp@
    GoHttp
  | -- | @peers/hyper@
    Hyper
  | -- | @peers/rawloop.c@
    Rawloop
  | MiniHttpd
  | -- | a server with a thread or process for each connection
    Toy !Toy
  deriving stock (Eq, Ord, Show)

-- | Which ready threads run first (@weft serve --schedule@).
data Schedule = Fifo | Connections | Accept
  deriving stock (Eq, Ord, Show, Enum, Bounded)

-- | Its name on the command line of @weft serve@.
scheduleName :: Schedule -> Text
scheduleName = \case
  Fifo -> "fifo"
  Connections -> "connections"
  Accept -> "accept"

-- | By what a toy does its work.
data Toy
  = -- | @peers\/toy.c@, by the name of the program after @toy-@
    ToyOfC !Text
  | -- | "Weft.Bench.Toy"
    ToyOfHaskell !Kind
  deriving stock (Eq, Ord, Show)

-- | The event sources of Weft.
data Backend = Epoll | IoUring | Poll
  deriving stock (Eq, Ord, Show, Enum, Bounded)

-- | Its name on Weft's own command lines.
backendName :: Backend -> Text
backendName = \case
  Epoll -> "epoll"
  IoUring -> "io_uring"
  Poll -> "poll"

-- | Its name on the command line and in reports.
serverName :: ServerName -> Text
serverName = \case
  Weft b -> "weft-" <> backendName b
  Scheduled s -> "weft-" <> scheduleName s
  Plain b -> "plain-" <> backendName b
  Wai host -> host
  Nginx Sendfile -> "nginx"
  Nginx Copy -> "nginx-copy"
  Nginx Threads -> "nginx-threads"
  Lighttpd -> "lighttpd"
  Apache Worker -> "apache-worker"
  Apache Event -> "apache-event"
  Apache Prefork -> "apache-prefork"
  GoHttp -> "go"
  Hyper -> "hyper"
  Rawloop -> "rawloop"
  MiniHttpd -> "mini-httpd"
  Toy (ToyOfC name) -> "toy-" <> name
  Toy (ToyOfHaskell kind) -> "toy-" <> kindName kind

-- | In the order in which reports list them.
allServers :: [ServerName]
allServers =
  [Rawloop]
    ++ map Weft [minBound ..]
    ++ map Plain [minBound ..]
    ++ map Nginx [minBound ..]
    ++ [Lighttpd]
    ++ map Apache [Worker, Event]
    ++ map (Wai . waiHostName) waiHosts
    ++ [GoHttp, Hyper]

-- | The inverse of 'serverName', for 'allServers'.
parseServer :: Text -> Either String ServerName
parseServer = named "server" serverName allServers

-- | Does a server serve this? Servers of files serve the page and files; servers from memory the
-- page and the greeting. Go's does both.
serves :: ServerName -> Content -> Bool
serves server content = case (content, server) of
  (PageContent, _) -> True
  (_, GoHttp) -> True
  (HelloContent, _) -> fromMemory
  (FileContent _ _, _) -> not fromMemory
  where
    fromMemory = case server of
      Plain _ -> True
      Wai _ -> True
      Hyper -> True
      Rawloop -> True
      Toy _ -> True
      _ -> False

-- | Does GHC's run-time system run it, which can tell what was allocated?
isHaskell :: ServerName -> Bool
isHaskell = \case
  Weft _ -> True
  Scheduled _ -> True
  Toy (ToyOfHaskell _) -> True
  Plain _ -> True
  Wai _ -> True
  _ -> False
