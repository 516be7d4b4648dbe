-- |
-- Description : weft-bench yield, timers, peer-yield and peer-timers
--
-- The measurements of threads written in Haskell, in any of the styles that "Weft.Bench.Style" lists;
-- and beside threads of other languages, in interleaved rounds, where each style is a process of its own,
-- as the others are.
module Weft.Bench.Command.Style (yieldCommand, timersCommand, peerYieldCommand, peerTimersCommand) where

import Data.Maybe (fromMaybe)
import Data.Text (Text)
import Data.Text qualified as Text
import Options.Applicative
import System.Environment (getExecutablePath)
import System.Exit (die)
import System.FilePath ((</>))
import Weft.Bench.Child
import Weft.Bench.Command.Options
import Weft.Bench.Contest
import Weft.Bench.Harness
import Weft.Bench.Measure (requireStats, runtimeFlags)
import Weft.Bench.Named (named)
import Weft.Bench.Peers (summaries)
import Weft.Bench.Report (Cell (Name), Format, printRows)
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

-- | @peer-yield@.
peerYieldCommand :: Mod CommandFields (IO ())
peerYieldCommand =
  command "peer-yield" (info parser (progDesc "yield, beside goroutines and tokio tasks"))
  where
    parser = beside "yield" <$> shared <*> threadsOption <*> (arguments <$> switchesOption)
    arguments switches _ = ["--switches", show switches]

-- | @peer-timers@.
peerTimersCommand :: Mod CommandFields (IO ())
peerTimersCommand =
  command "peer-timers" (info parser (progDesc "timers, beside goroutines and tokio tasks"))
  where
    parser = beside "timers" <$> shared <*> threadsOption <*> pure sleep
    sleep threads = ["--sleep-ms", show (defaultSleepMilliseconds threads)]

data Shared = Shared
  { sharedFormat :: !Format,
    sharedPeers :: ![Text],
    sharedRounds :: !Int,
    sharedDirectory :: !FilePath
  }

shared :: Parser Shared
shared =
  Shared
    <$> formatOption
    <*> option
      (commaSeparated Right)
      (long "peers" <> metavar "LIST" <> value (styleNames ++ ["go", "tokio"]) <> help ("any of " ++ names ++ "; the first is the base of the ratios (default: the styles, go, tokio)"))
    <*> roundsOption 5
    <*> peersOption "weft-bench/peers/bin"
  where
    styleNames = map styleName styles
    names = Text.unpack (Text.intercalate ", " (styleNames ++ map contenderName (programs "" "" [])))

-- | The measurement of this name, with further arguments, by programs and styles.
beside :: Text -> Shared -> Int -> (Int -> [String]) -> IO ()
beside benchmark s threads more = do
  this <- getExecutablePath
  let arguments = ["--threads", show threads] ++ more threads
      known = map (styleAsPeer this arguments) styles ++ programs (sharedDirectory s) benchmark arguments
  peers <- orDie (traverse (named "peer" contenderName known) (sharedPeers s))
  samples <- endingOnSignals . withNursery $ \nursery -> runContest nursery [] (const (pure ())) (Contest benchmark peers [[]] (sharedRounds s) 600)
  case summaries benchmark (map contenderName peers) [(sampleContender x, sampleRound x, samplePrinted x) | x <- samples] of
    [] -> die "weft-bench: no peer could be run; `make -C weft-bench/peers` builds them"
    rows -> printRows (sharedFormat s) rows
  where
    -- One measurement a process: the rounds are the repetition.
    styleAsPeer this arguments threaded =
      contender (styleName threaded) this ([Text.unpack benchmark, "--style", Text.unpack (styleName threaded), "--json", "--repeat", "1"] ++ arguments)

-- | The programs under @peers/@, given the directory in which they were built.
programs :: FilePath -> Text -> [String] -> [Contender]
programs directory benchmark arguments =
  [program "go" "gosched" [], program "tokio" "tokio-peer" [], program "tokio-multi" "tokio-peer" ["--multi", "2"]]
  where
    program name file options = contender name (directory </> file) (Text.unpack benchmark : options ++ arguments)

contender :: Text -> FilePath -> [String] -> Contender
contender name program arguments = Contender name (\_ -> Right (Command program arguments))
