-- |
-- Description : weft-bench yield, weft-bench timers
--
-- The measurements of threads written in Haskell, in any of the styles that
-- "Weft.Bench.Style" lists.
module Weft.Bench.Command.Style
  ( yieldCommand,
    timersCommand,
  )
where

import Data.Maybe (fromMaybe)
import Data.Text qualified as Text
import Options.Applicative
import Weft.Bench.Command.Options
import Weft.Bench.Harness
import Weft.Bench.Measure (requireStats, runtimeFlags)
import Weft.Bench.Named (named)
import Weft.Bench.Report (Cell (Name), printRows)
import Weft.Bench.Style

-- | @yield@.
yieldCommand :: Mod CommandFields (IO ())
yieldCommand =
  command "yield" (info parser (progDesc "What a switch between threads costs, and what a thread in the run queue occupies"))
  where
    parser = run <$> formatOption <*> styleOption <*> settings
    settings = YieldSettings <$> threadsOption <*> switchesOption <*> repeatOption
    run format chosen s = do
      requireStats
      runs <- measureYield s (styleYield chosen s)
      flags <- runtimeFlags
      printRows format [yieldRow (styleName chosen) s runs ++ [("rts_flags", Name flags)]]

-- | @timers@.
timersCommand :: Mod CommandFields (IO ())
timersCommand =
  command "timers" (info parser (progDesc "What creating, holding and waking sleeping threads costs"))
  where
    parser = run <$> formatOption <*> styleOption <*> threadsOption <*> optional sleepOption <*> repeatOption
    run format chosen threads sleep repeats = do
      requireStats
      let s = TimerSettings threads (fromMaybe (defaultSleepMilliseconds threads) sleep) repeats
      runs <- measureTimers s (styleTimers chosen s)
      flags <- runtimeFlags
      printRows format [timerRow (styleName chosen) s runs ++ [("rts_flags", Name flags)]]
    sleepOption =
      option positive (long "sleep-ms" <> metavar "S" <> help "milliseconds from the start to the common deadline (default: long enough to create all threads)")

styleOption :: Parser Style
styleOption =
  option
    (eitherReader (named "style" styleName styles . Text.pack))
    (long "style" <> metavar "STYLE" <> foldMap value (take 1 styles) <> help ("one of: " ++ Text.unpack (Text.intercalate ", " (map styleName styles))))

repeatOption :: Parser Int
repeatOption =
  option positive (long "repeat" <> metavar "R" <> value 3 <> showDefault <> help "measurements, of which the median is printed")
