-- |
-- Description : weft-bench sync, weft-bench stall, weft-bench sim
--
-- The measurements of mutexes, variables, channels and transactions; of how long threads that compute
-- or block keep the others waiting; and of the simulator.
module Weft.Bench.Command.Sync (syncCommand, stallCommand, simCommand) where

import Control.Monad (forM, when)
import Data.Text qualified as Text
import Options.Applicative
import System.Exit (die)
import Weft.Bench.Command.Options
import Weft.Bench.Measure (requireStats)
import Weft.Bench.Report (Format (..), printRows)
import Weft.Bench.Sim
import Weft.Bench.Stall
import Weft.Bench.Sync
import Weft.Bench.Sync.Scenarios

-- | @sync@.
syncCommand :: Mod CommandFields (IO ())
syncCommand =
  command "sync" (info parser (progDesc "What locking, handing over and transactions cost, beside GHC's MVar, Chan and STM"))
  where
    parser = run <$> formatOption <*> workers <*> operations <*> rounds <*> only
    run format w n r part = do
      requireStats
      let chosen = [s | s <- scenarios, maybe True (`Text.isInfixOf` scenarioName s) part]
      when (null chosen) (die "weft-bench: no scenario has that in its name")
      rows <- forM [(k, s) | k <- w, s <- chosen] $ \(k, s) -> do
        row <- measureSync (SyncSettings k n r) s
        case format of
          Json -> row <$ printRows Json [row]
          Table -> pure row
      case format of
        Json -> pure ()
        Table -> printRows Table rows
    workers =
      option
        (commaSeparated (\t -> case reads (Text.unpack t) of [(k, "")] | k >= 1 -> Right k; _ -> Left "not a number of at least 1"))
        (long "workers" <> metavar "W,.." <> value [1, 2] <> help "workers for Weft and capabilities for GHC (default: 1,2)")
    operations =
      option positive (long "operations" <> metavar "N" <> value 2_000_000 <> showDefault <> help "operations in a round; the slower scenarios do a tenth or a hundredth")
    rounds =
      option positive (long "rounds" <> metavar "R" <> value 5 <> showDefault <> help "rounds, each with Weft and with GHC")
    only =
      optional (option (Text.pack <$> str) (long "only" <> metavar "TEXT" <> help "only the scenarios with this in their name"))

-- | @stall@.
stallCommand :: Mod CommandFields (IO ())
stallCommand =
  command "stall" (info parser (progDesc "How long a ticker thread is held up by threads that compute or block"))
  where
    parser = (\format s -> stallRows s >>= printRows format) <$> formatOption <*> settings
    settings =
      StallSettings
        <$> option positive (long "seconds" <> metavar "S" <> value 3 <> showDefault <> help "length of each case")
        <*> option positive (long "stuck" <> metavar "N" <> value 1 <> showDefault <> help "threads that are stuck at once")

-- | @sim@.
simCommand :: Mod CommandFields (IO ())
simCommand =
  command "sim" (info parser (progDesc "Simulated system calls and explored schedules in a second, beside the same programs for real"))
  where
    parser = run <$> formatOption <*> messages <*> schedules <*> rounds
    run format m s r = measureSim (SimSettings m s r) >>= printRows format . pure
    messages =
      option positive (long "messages" <> metavar "N" <> value 10_000 <> showDefault <> help "calls that each of 100 threads makes, and messages between each of 50 pairs")
    schedules =
      option positive (long "schedules" <> metavar "N" <> value 50_000 <> showDefault <> help "schedules to explore")
    rounds =
      option positive (long "rounds" <> metavar "R" <> value 5 <> showDefault <> help "rounds; the median counts")
