-- |
-- Description : weft-bench stall
--
-- How long threads that compute or block keep the others waiting.
module Weft.Bench.Command.Stall
  ( stallCommand,
  )
where

import Options.Applicative
import Weft.Bench.Command.Options
import Weft.Bench.Report (printRows)
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
