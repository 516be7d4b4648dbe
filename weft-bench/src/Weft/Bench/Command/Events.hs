{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : weft-bench events
--
-- Weft's event manager on each source beside GHC's: the contest, and what it runs.
module Weft.Bench.Command.Events
  ( eventsCommands,
    runContender,
  )
where

import Control.Monad (forM, join, when)
import Data.Maybe (fromMaybe)
import Data.Text (Text)
import Data.Text qualified as Text
import Options.Applicative
import System.Directory (doesFileExist)
import System.Environment (getExecutablePath)
import System.Exit (die)
import System.FilePath (joinPath, splitDirectories, takeDirectory, (</>))
import Weft.Bench.Child (Command (..), endingOnSignals, withNursery)
import Weft.Bench.Command.Options
import Weft.Bench.Contest
import Weft.Bench.Contest.Workload (pointsOf)
import Weft.Bench.Events
import Weft.Bench.Events.Manager
import Weft.Bench.Measure (requireStats)
import Weft.Bench.Named (named)
import Weft.Bench.Report (Format, printRows)

-- | @events@, and @events-contender@, which it runs.
eventsCommands :: Mod CommandFields (IO ())
eventsCommands = eventsCommand <> aloneCommand

eventsCommand :: Mod CommandFields (IO ())
eventsCommand =
  command "events" (info parser (progDesc "Weft's event manager on each source beside GHC's, threaded and not: pong, file, delays"))
  where
    parser = compete <$> formatOption <*> only <*> chosen <*> roundsOption 3 <*> traverse values keys
    only = option (commaSeparated Right) (long "only" <> metavar "LIST" <> value names <> help ("some of " ++ listed names))
    chosen =
      option (commaSeparated Right) $
        long "contenders" <> metavar "LIST" <> value contenderNames <> help ("some of " ++ listed contenderNames ++ "; the first is the base of the ratios (default: all)")
    values key =
      (,) key
        <$> optional (option (commaSeparated (numberFrom 0)) (long (Text.unpack key) <> metavar "N,.." <> help (helpOf key)))
    names = map workloadName workloads
    listed = Text.unpack . Text.intercalate ", "
    helpOf key = "of " ++ listed [workloadName w | w <- workloads, key `elem` map fst (workloadKeys w)]

-- | The parameters of all workloads.
keys :: [Text]
keys = ["capabilities", "clients", "idle", "requests", "threads"]

-- | The managers of this program, and GHC's in a program without @-threaded@.
contenderNames :: [Text]
contenderNames = map managerName managers ++ [withoutThreads]

withoutThreads :: Text
withoutThreads = "ghc-select"

compete :: Format -> [Text] -> [Text] -> Int -> [(Text, Maybe [Int])] -> IO ()
compete format only chosen rounds given = do
  this <- getExecutablePath
  other <- besides this
  chosenWorkloads <- orDie (traverse (named "workload" workloadName workloads) only)
  contenders <- orDie (traverse (named "contender" contenderName [contender this other name | name <- contenderNames]) chosen)
  rows <- endingOnSignals . withNursery $ \nursery -> forM chosenWorkloads $ \w -> do
    let points = pointsOf [(k, fromMaybe preset (join (lookup k given))) | (k, preset) <- workloadKeys w]
        contest = Contest ("events-" <> workloadName w) (map ($ workloadName w) contenders') points rounds 600
        contenders' = [\name -> c {contenderCommand = \point -> contenderCommand c (("workload", name) : point)} | c <- contenders]
    rowsOf nursery contest
  when (all null rows) (die "weft-bench: nobody could be measured")
  mapM_ (printRows format) (filter (not . null) rows)

-- | The point has the name of the workload first.
contender :: FilePath -> Maybe FilePath -> Text -> Contender
contender this other name = Contender name $ \case
  (_, workload) : point
    | limited, either (const False) (> 450) (number point "idle") -> Left "not tried: its descriptors are below 1,024"
    | name == withoutThreads -> case other of
        Just program -> Right (Command program (Text.unpack workload : pointArguments point))
        Nothing -> Left "build weft-bench-select, too"
    | otherwise -> Right (Command this (["events-contender", Text.unpack workload, Text.unpack name] ++ pointArguments point))
  [] -> Left "no workload"
  where
    limited = name `elem` [withoutThreads, "weft-select"]

-- | The program without threads: beside this one, or where cabal builds it.
besides :: FilePath -> IO (Maybe FilePath)
besides this = go [takeDirectory this </> program, joinPath (renamed (splitDirectories this))]
  where
    program = "weft-bench-select"
    renamed parts = case break (== "x") parts of
      (before, after) -> before ++ [if p == "weft-bench" then program else p | p <- after]
    go = \case
      [] -> pure Nothing
      path : others -> doesFileExist path >>= \there -> if there && path /= this then pure (Just path) else go others

aloneCommand :: Mod CommandFields (IO ())
aloneCommand =
  command "events-contender" (info parser (progDesc "One manager at one point of a workload; what events runs"))
  where
    parser = alone <$> strArgument (metavar "WORKLOAD") <*> strArgument (metavar "MANAGER") <*> many (strArgument (metavar "KEY=VALUE.."))
    alone workload name arguments = do
      manager <- orDie (named "manager" managerName managers name)
      runContender manager workload arguments

-- | Do a workload with a manager, and print what it took.
runContender :: Manager -> Text -> [String] -> IO ()
runContender manager workload arguments = do
  requireStats
  join . orDie $ do
    w <- named "workload" workloadName workloads workload
    point <- parsePoint arguments
    (>>= printWork) <$> workloadWork w manager point
