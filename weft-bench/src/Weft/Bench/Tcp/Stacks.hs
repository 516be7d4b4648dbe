-- |
-- Description : The TCP stacks that are compared
--
-- Each is a program with the same three services: of ours, or under @peers\/tcp@. For pages it is the program @weft@.
module Weft.Bench.Tcp.Stacks
  ( Stack (..),
    StackPrograms (..),
    stacks,
    stackCommand,
    stackDevice,
    stackAddress,
    TcpExperiment (..),
    experimentName,
    offers,
  )
where

import Data.List (elemIndex)
import Data.Maybe (fromMaybe)
import Data.Text (Text)
import Data.Text qualified as Text
import System.FilePath ((</>))
import Weft.Bench.Child (Command (..))

-- | A stack.
data Stack = Floor | Linux | WeftOnLinux | Weft | WeftPlain | Smoltcp | Lwip | Gvisor
  deriving stock (Eq, Ord, Show, Enum, Bounded)

-- | All, by the names that the command line and the reports have. The first that offers an
-- experiment is the base of its ratios.
stacks :: [(Text, Stack)]
stacks =
  [ ("floor", Floor),
    ("linux", Linux),
    ("weft-linux", WeftOnLinux),
    ("weft", Weft),
    ("weft-plain", WeftPlain),
    ("smoltcp", Smoltcp),
    ("lwip", Lwip),
    ("gvisor", Gvisor)
  ]

-- | Where the programs are.
data StackPrograms = StackPrograms
  { -- | this one
    programSelf :: !FilePath,
    -- | the program @weft@
    programWeft :: !FilePath,
    -- | the directory of the peers
    programPeers :: !FilePath,
    -- | the directory whose page is asked for
    programRoot :: !FilePath
  }

-- | The command that starts the program of an experiment on a stack.
stackCommand :: StackPrograms -> TcpExperiment -> Stack -> Command
stackCommand programs e s = case s of
  Linux -> Command (peers </> "tcp-linux") []
  WeftOnLinux | Pages _ <- e -> serving ["--host", stackAddress s]
  WeftOnLinux -> ours []
  Weft | Pages _ <- e -> serving ["--tcp", stackDevice s <> "," <> stackAddress s <> "/24"]
  Weft -> onOurs []
  WeftPlain -> onOurs ["--no-offload"]
  Floor -> Command (peers </> "tcp-floor") [stackDevice s]
  Smoltcp -> onTun "tcp-smoltcp"
  Lwip -> onTun "tcp-lwip"
  Gvisor -> onTun "tcp-gvisor"
  where
    peers = programPeers programs
    serving more = Command (programWeft programs) (["serve", programRoot programs, "--port", "80", "--workers", "1", "--quiet"] ++ more)
    onOurs more = ours (["--device", stackDevice s, "--address", stackAddress s <> "/24"] ++ more)
    onTun program = Command (peers </> program) [stackDevice s, stackAddress s]
    -- The nursery of the program weft: 64 MB, as this program has them, are no part of a cache.
    ours more = Command (programSelf programs) (["tcp-server"] ++ more ++ ["+RTS", "-A4m", "-n256k", "-RTS"])

-- | The TUN device of a stack.
stackDevice :: Stack -> String
stackDevice s = "wt" <> show (fromEnum s)

-- | The address of a stack's server.
stackAddress :: Stack -> String
stackAddress s
  | s `elem` [Linux, WeftOnLinux] = "127.0.0.1"
  | otherwise = "10.77." <> show (fromMaybe 0 (elemIndex s (map snd stacks))) <> ".2"

-- | An experiment.
data TcpExperiment
  = -- | 64 bytes there and back, on this number of connections at once.
    RoundTrips !Int
  | -- | Requests of HTTP for a page of 1,024 bytes, on this number of connections at once.
    Pages !Int
  | -- | A connection for each 64 bytes, 16 at a time.
    Connections
  | -- | Bytes into the stack.
    Into
  | -- | Bytes out of the stack.
    OutOf
  | -- | Memory of this number of connections that wait.
    Idle !Int
  deriving stock (Eq, Ord, Show)

-- | The name of an experiment in reports.
experimentName :: TcpExperiment -> Text
experimentName = \case
  RoundTrips n -> "round-trips@" <> Text.pack (show n)
  Pages n -> "pages@" <> Text.pack (show n)
  Connections -> "connections"
  Into -> "bulk-in"
  OutOf -> "bulk-out"
  Idle n -> "idle@" <> Text.pack (show n)

-- | Does it take part? The floor knows no connections, and only the program @weft@ serves pages.
offers :: Stack -> TcpExperiment -> Bool
offers s = \case
  RoundTrips _ -> True
  Connections -> True
  Pages _ -> s `elem` [WeftOnLinux, Weft]
  _ -> s /= Floor
