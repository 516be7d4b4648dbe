-- |
-- Description : The TCP stacks that are compared
--
-- Each is a program with the same three services: of ours, or under @peers\/tcp@.
module Weft.Bench.Tcp.Stacks
  ( Stack (..),
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

-- | The command that starts its program: this one, and the directory of the others.
stackCommand :: FilePath -> FilePath -> Stack -> Command
stackCommand self peers s = case s of
  Linux -> Command (peers </> "tcp-linux") []
  WeftOnLinux -> ours []
  Weft -> onOurs []
  WeftPlain -> onOurs ["--no-offload"]
  Floor -> Command (peers </> "tcp-floor") [stackDevice s]
  Smoltcp -> onTun "tcp-smoltcp"
  Lwip -> onTun "tcp-lwip"
  Gvisor -> onTun "tcp-gvisor"
  where
    onOurs more = ours (["--device", stackDevice s, "--address", stackAddress s <> "/24"] ++ more)
    onTun program = Command (peers </> program) [stackDevice s, stackAddress s]
    -- The nursery of the program weft: 64 MB, as this program has them, are no part of a cache.
    ours more = Command self (["tcp-server"] ++ more ++ ["+RTS", "-A4m", "-n256k", "-RTS"])

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
  Connections -> "connections"
  Into -> "bulk-in"
  OutOf -> "bulk-out"
  Idle n -> "idle@" <> Text.pack (show n)

-- | Does it take part? The floor knows no connections.
offers :: Stack -> TcpExperiment -> Bool
offers Floor = \case
  RoundTrips _ -> True
  Connections -> True
  _ -> False
offers _ = const True
