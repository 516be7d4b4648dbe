-- |
-- Description : The command line of weft-bench
--
-- The list of its commands. Each lives in a module of its own under
-- @Weft.Bench.Command@, with its options; adding one is adding a module and naming
-- it here.
module Weft.Bench.Command (runCommand) where

import Control.Monad (join)
import Options.Applicative
import Weft.Bench.Command.Contest (contestCommands)
import Weft.Bench.Command.Figure (figureCommand)
import Weft.Bench.Command.GhcIO (ghcIOCommands)
import Weft.Bench.Command.Http (httpCommand, httpFiguresCommand)
import Weft.Bench.Command.Servers (plainCommand, toyServerCommand, waiCommand)
import Weft.Bench.Command.Style (peerTimersCommand, peerYieldCommand, timersCommand, yieldCommand)
import Weft.Bench.Command.Substrate (substrateCommand)
import Weft.Bench.Command.Sync (simCommand, stallCommand, syncCommand)
import Weft.Bench.Command.Tcp (tcpCommand, tcpServerCommand)
import Weft.Bench.Command.Works (worksCommand)

-- | Parse the arguments of the program and do what they say.
runCommand :: IO ()
runCommand = join (customExecParser (prefs showHelpOnEmpty) (info (commands <**> helper) about))
  where
    about =
      fullDesc
        <> header "weft-bench - the figures of Weft, each beside a peer in the same run"
        <> footer "Every command measures on this machine only and asks nothing of any other. weft-bench/README.md says what the figures mean."
    commands =
      hsubparser (mconcat [yieldCommand, timersCommand, syncCommand, peerYieldCommand, peerTimersCommand, httpCommand, httpFiguresCommand, figureCommand, waiCommand, plainCommand, toyServerCommand, stallCommand, contestCommands, ghcIOCommands, worksCommand, substrateCommand, simCommand, tcpCommand, tcpServerCommand])
