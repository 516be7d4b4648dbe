-- |
-- Description : weft-bench sim
--
-- The measurements of the simulator.
module Weft.Bench.Command.Sim
  ( simCommand,
  )
where

import Options.Applicative
import Weft.Bench.Command.Options
import Weft.Bench.Report (printRows)
import Weft.Bench.Sim

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
