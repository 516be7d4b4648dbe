-- |
-- Description : weft-bench peer-yield, weft-bench peer-timers
--
-- The same measurements beside threads of other languages, in interleaved rounds.
-- The styles of this program may be named among the peers; each is then run as a
-- process of its own, as the others are.
module Weft.Bench.Command.Peers
  ( peerYieldCommand,
    peerTimersCommand,
  )
where

import Data.Text (Text)
import Data.Text qualified as Text
import Options.Applicative
import System.Environment (getExecutablePath)
import System.Exit (die)
import Weft.Bench.Child
import Weft.Bench.Command.Options
import Weft.Bench.Harness (defaultSleepMilliseconds)
import Weft.Bench.Named (named)
import Weft.Bench.Peers
import Weft.Bench.Report (Format, printRows)
import Weft.Bench.Style

-- | @peer-yield@.
peerYieldCommand :: Mod CommandFields (IO ())
peerYieldCommand =
  command "peer-yield" (info parser (progDesc "yield, beside goroutines and tokio tasks"))
  where
    parser = run Yield <$> shared <*> threadsOption <*> (arguments <$> switchesOption)
    arguments switches _ = ["--switches", show switches]

-- | @peer-timers@.
peerTimersCommand :: Mod CommandFields (IO ())
peerTimersCommand =
  command "peer-timers" (info parser (progDesc "timers, beside goroutines and tokio tasks"))
  where
    parser = run Timers <$> shared <*> threadsOption <*> pure sleep
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
    names = Text.unpack (Text.intercalate ", " (styleNames ++ map peerName (knownPeers "" Yield)))

run :: Benchmark -> Shared -> Int -> (Int -> [String]) -> IO ()
run benchmark s threads more = do
  this <- getExecutablePath
  let known = map (styleAsPeer this) styles ++ knownPeers (sharedDirectory s) benchmark
  peers <- orDie (traverse (named "peer" peerName known) (sharedPeers s))
  rows <-
    endingOnSignals . withNursery $ \nursery ->
      compareWithPeers
        nursery
        Comparison
          { comparedBenchmark = benchmark,
            comparedPeers = peers,
            comparedArguments = ["--threads", show threads] ++ more threads,
            comparedRounds = sharedRounds s,
            comparedPatience = 600
          }
  case rows of
    [] -> die "weft-bench: no peer could be run; `make -C weft-bench/peers` builds them"
    _ -> printRows (sharedFormat s) rows
  where
    -- One measurement a process: the rounds are the repetition.
    styleAsPeer this threaded =
      Peer (styleName threaded) . Command this $
        [Text.unpack (benchmarkName benchmark), "--style", Text.unpack (styleName threaded), "--json", "--repeat", "1"]
