-- |
-- Description : weft-bench sync
--
-- The measurements of mutexes, variables, channels and transactions.
module Weft.Bench.Command.Sync
  ( syncCommand,
  )
where

import Control.Monad (forM, when)
import Data.Text qualified as Text
import Options.Applicative
import System.Exit (die)
import Weft.Bench.Command.Options
import Weft.Bench.Measure (requireStats)
import Weft.Bench.Report (Format (..), printRows)
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
