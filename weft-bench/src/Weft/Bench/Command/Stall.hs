-- |
-- Description : weft-bench stall, weft-bench spread
--
-- What threads that compute or block do to the others, and how they share workers.
module Weft.Bench.Command.Stall
  ( stallCommand,
    spreadCommand,
  )
where

import Options.Applicative
import Weft.Bench.Command.Options
import Weft.Bench.Report (printRows)
import Weft.Bench.Spread
import Weft.Bench.Stall

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

-- | @spread@.
spreadCommand :: Mod CommandFields (IO ())
spreadCommand =
  command "spread" (info parser (progDesc "How much faster two workers are than one with threads that compute"))
  where
    parser = (\format s -> spreadRows s >>= printRows format) <$> formatOption <*> settings
    settings =
      SpreadSettings
        <$> option positive (long "threads" <> metavar "N" <> value 1024 <> showDefault <> help "threads of equal work")
        <*> option positive (long "work" <> metavar "N" <> value 500_000 <> showDefault <> help "additions in each thread")
        <*> option positive (long "rounds" <> metavar "R" <> value 5 <> showDefault <> help "rounds, of which the median is printed")
