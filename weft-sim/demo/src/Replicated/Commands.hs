{-# LANGUAGE ApplicativeDo #-}

-- |
-- Description : weft-kv simulate, weft-kv replay
--
-- Looks for a seed with which the simulated store goes wrong, makes the failure smaller, writes
-- it to a file, and shows it again from there.
module Replicated.Commands (simulateCommand, replayCommand) where

import Control.Exception (IOException, try)
import Control.Monad (unless, when)
import Data.List (intercalate)
import Data.Text qualified as Text
import Options.Applicative
import Replicated.Program
import Replicated.Simulated
import System.Exit (ExitCode (..))
import System.IO (BufferMode (..), hIsTerminalDevice, hSetBuffering, readFile', stderr, stdout)
import Text.Read (readMaybe)
import Weft.Internal.Os.Report (writeStderr)
import Weft.Sim
import Weft.Time (durationNanoseconds)

-- | A run that went wrong: all that it takes to see it again.
data Recording = Recording
  { recordingSeed :: !Seed,
    recordingCluster :: !Cluster,
    recordingFaults :: !FaultScript
  }
  deriving stock (Show, Read)

-- | @simulate@: seed after seed. What it says goes to the function, line by line.
simulateCommand :: (String -> IO ()) -> Command
simulateCommand tell = command "simulate" (info options (progDesc "Run the store in simulated worlds, with trouble, and check what the clients saw"))
  where
    options = do
      seeds <- option range (long "seeds" <> metavar "FROM-TO" <> value (0, 199) <> help "One world for each seed (default: 0-199)")
      what <- clusterOptions
      kinds <- option kindsOf (long "faults" <> metavar "KIND,.." <> value [Crashes, Blackouts, Partitions, SlowNetwork, Resets, ClockSkews] <> help ("What goes wrong (default: crashes,blackouts,partitions,slow-network,resets,clock-skews; none, or also " <> intercalate ", " (map nameOfKind [DiskFailures ..]) <> ")"))
      count <- option (positive 1000) (long "trouble" <> metavar "N" <> value 8 <> showDefault <> help "How many faults in a run, at most")
      file <- strOption (long "out" <> metavar "FILE" <> value "weft-kv.failure" <> showDefault <> help "Where a failure is written to")
      pure (search tell (map fromIntegral [fst seeds .. snd seeds]) what kinds count file)

search :: (String -> IO ()) -> [Seed] -> Cluster -> [FaultKind] -> Int -> FilePath -> IO ExitCode
search tell seeds what kinds count file = do
  terminal <- hIsTerminalDevice stderr
  hSetBuffering stdout LineBuffering
  found <- findFailureWith (configure what) (progress terminal) seeds (cluster what) verdictOn
  when terminal $ writeStderr "\r\ESC[K"
  case found of
    Nothing -> ExitSuccess <$ tell (counted (length seeds) "world" <> ", and nothing went wrong.")
    Just failure -> do
      tell ("Seed " <> show (failureSeed failure) <> " goes wrong, with " <> counted (length (failureFaults failure)) "fault" <> ". Looking for a smaller failure.")
      smaller <- shrinkFaults 500 (cluster what) verdictOn failure
      let recording = Recording (failureSeed smaller) what (failureFaults smaller)
      written <- try (writeFile file (show recording <> "\n"))
      let where' = case written of
            Right () -> "Written to " <> file <> "; see it again with: weft-kv replay " <> file
            -- The finding is not lost: this line can be put into a file by hand.
            Left e -> "Not written: " <> show (e :: IOException) <> ". It would have been:\n" <> show recording
      tell ("Left: " <> counted (length (recordingFaults recording)) "fault" <> ". " <> where' <> "\n")
      showRecording tell False recording
  where
    configure c seed = do
      faults <- drawFaults (trouble c kinds count) seed
      pure (conditions c) {configFaults = faults}
    progress terminal seed result =
      when terminal . writeStderr $
        "\rseed " <> show seed <> ": " <> show (resultSteps result) <> " steps, " <> show (resultTime result `div` 1_000_000_000) <> " s of virtual time\ESC[K"

-- | @replay@: the same run again. What it says goes to the function, line by line.
replayCommand :: (String -> IO ()) -> Command
replayCommand tell = command "replay" (info options (progDesc "Show a failure that simulate has written to a file"))
  where
    options = do
      timeline <- switch (long "timeline" <> help "Show every step of every thread, too")
      file <- strArgument (metavar "FILE")
      pure $
        try (readFile' file) >>= \case
          Left e -> ExitFailure 2 <$ complain (show (e :: IOException))
          Right text -> case readMaybe text of
            Nothing -> ExitFailure 2 <$ complain (file <> " is not a failure that weft-kv simulate has written")
            Just recording -> showRecording tell timeline recording
    complain text = writeStderr ("weft-kv: " <> text <> "\n")

-- | Run it, and show the faults, what happened, and what is wrong.
showRecording :: (String -> IO ()) -> Bool -> Recording -> IO ExitCode
showRecording tell timeline (Recording seed what faults) = do
  let config = (conditions what) {configFaults = faults}
  result <- (if timeline then simulateRecorded else simulate) seed config (cluster what)
  when timeline $ mapM_ tell (renderTimeline (resultTimeline result)) >> tell ""
  unless (null faults) $ do
    tell "What went wrong in the world:"
    mapM_ (tell . indented) (renderScript faults)
    tell ""
  case verdictOn result of
    Nothing -> ExitSuccess <$ tell "And nothing went wrong with the store."
    Just problem -> do
      tell "And with the store:"
      mapM_ (tell . indented) (lines (problemText problem))
      pure (ExitFailure 1)
  where
    indented line = if null line then "" else "  " <> line

counted :: Int -> String -> String
counted n what = show n <> " " <> what <> (if n == 1 then "" else "s")

clusterOptions :: Parser Cluster
clusterOptions = do
  replicas <- option (positive 100) (long "replicas" <> metavar "N" <> value (clusterReplicas defaultCluster) <> showDefault <> help "How many replicas")
  clients <- option (positive 1000) (long "clients" <> metavar "N" <> value (clusterClients defaultCluster) <> showDefault <> help "How many clients")
  time <- optional (option secondsOf (long "seconds" <> metavar "S" <> help "How long the clients work, in virtual time (default: 5)"))
  pause <- optional (option secondsOf (long "pause" <> metavar "S" <> help "The longest pause between two operations of a client (default: 0.05)"))
  mistakes <- mistakeOptions
  pure
    Cluster
      { clusterReplicas = replicas,
        clusterClients = clients,
        clusterTime = maybe (clusterTime defaultCluster) (fromIntegral . durationNanoseconds) time,
        clusterPause = maybe (clusterPause defaultCluster) (fromIntegral . durationNanoseconds) pause,
        clusterMistakes = mistakes
      }

range :: ReadM (Integer, Integer)
range = eitherReader $ \text -> case break (== '-') text of
  (a, '-' : b) | Just from <- readMaybe a, Just to <- readMaybe b, from >= 0, from <= to, to < 2 ^ (64 :: Int) -> Right (from, to)
  (a, "") | Just from <- readMaybe a, from >= (0 :: Integer), from < 2 ^ (64 :: Int) -> Right (from, from)
  _ -> Left (show text <> " is not of the form FROM-TO")

kindsOf :: ReadM [FaultKind]
kindsOf = eitherReader $ \text -> if text == "none" then Right [] else mapM (one . Text.unpack) (Text.splitOn "," (Text.pack text))
  where
    one t = maybe (Left ("there is no kind of fault " <> show t <> "; there are none, " <> intercalate ", " (map nameOfKind [minBound ..]))) Right (lookup t [(nameOfKind k, k) | k <- [minBound ..]])

-- | Its form on the command line.
nameOfKind :: FaultKind -> String
nameOfKind = \case
  Crashes -> "crashes"
  Blackouts -> "blackouts"
  Partitions -> "partitions"
  SlowNetwork -> "slow-network"
  Resets -> "resets"
  ClockSkews -> "clock-skews"
  DiskFailures -> "disk-failures"
  DiskSlowness -> "disk-slowness"
  FullDisks -> "full-disks"
