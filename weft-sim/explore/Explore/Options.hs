-- |
-- Description : The command line of a program that explores
module Explore.Options
  ( Options (..),
    Range (..),
    Replay (..),
    parseOptions,
    part,
    matches,
  )
where

import Data.Char (isDigit)
import Data.Word (Word64)
import Options.Applicative
import Weft.Sim (Schedule)

-- | Seeds, first and last.
data Range = Range !Word64 !Word64
  deriving stock (Eq)

instance Show Range where
  show (Range from to) = show from <> "-" <> show to

-- | A run that is to be seen again: the scenario, the seed and, if it was found systematically,
-- the number of workers and the schedule.
data Replay = Replay String Word64 (Maybe (Int, Schedule))

data Options = Options
  { optSeeds :: Range,
    optIndex :: Maybe Int,
    optOf :: Maybe Int,
    optScenario :: String,
    optJobs :: Int,
    optMinutes :: Maybe Double,
    optSystematic :: Maybe Int,
    optSchedules :: Int,
    optOut :: FilePath,
    optReplay :: Maybe Replay,
    optList :: Bool
  }

-- | The parser of the arguments. Mistakes end the program with status 2.
parseOptions :: ParserInfo Options
parseOptions =
  info
    (options <**> helper)
    ( fullDesc
        <> header "Run the threads of Weft in simulated worlds and look for what goes wrong"
        <> footer "Exit status: 0 all went right; 1 something went wrong; 2 a mistake in the arguments; 130 or 143 interrupted."
        <> failureCode 2
    )

options :: Parser Options
options =
  Options
    <$> option range (long "seeds" <> metavar "FROM-TO" <> value (Range 0 999) <> showDefault <> help "the seeds to run, both included")
    <*> optional (option (natural 0) (long "index" <> metavar "I" <> help "run only the I-th part of the range, counted from 0 (default: $JOB_COMPLETION_INDEX)"))
    <*> optional (option (natural 1) (long "of" <> metavar "N" <> help "of this many parts"))
    <*> strOption (long "scenario" <> metavar "GLOB" <> value "*" <> showDefault <> help "only the scenarios with such names; * stands for anything")
    <*> option jobs (long "jobs" <> metavar "N" <> value 1 <> showDefault <> help "run this many seeds at a time")
    <*> optional (option positive (long "minutes" <> metavar "M" <> help "stop after this many minutes"))
    <*> optional (option (natural 0) (long "systematic" <> metavar "BOUND" <> help "explore all schedules with at most this many preemptions, instead of one for each seed"))
    <*> option (natural 1) (long "schedules" <> metavar "N" <> value 20_000 <> showDefault <> help "with --systematic: this many for each program at most")
    <*> strOption (long "out" <> metavar "DIR" <> value "explore-failures" <> showDefault <> help "where to write reports")
    <*> optional (option replayed (long "replay" <> metavar "SCENARIO:SEED" <> help "run one seed again and print what happens"))
    <*> switch (long "list" <> help "list the scenarios")

natural :: Int -> ReadM Int
natural low = eitherReader $ \text ->
  if isNumber text && read text >= low then Right (read text) else Left (show text <> " is not a number from " <> show low)

-- More capabilities than this are not available, and would not help.
jobs :: ReadM Int
jobs = natural 1 >>= \n -> if n <= 256 then pure n else readerError (show n <> " is more than 256 jobs")

-- The limit is what fits into a delay in microseconds.
positive :: ReadM Double
positive = eitherReader $ \text -> case reads text of
  [(x, "")] | x > 0, x <= 1e9 -> Right x
  _ -> Left (show text <> " is not a number of minutes")

isNumber :: String -> Bool
isNumber text = not (null text) && all isDigit text && length text < 19

range :: ReadM Range
range = eitherReader $ \text -> case break (== '-') text of
  (from, '-' : to)
    | isNumber from, isNumber to -> if read from <= (read to :: Word64) then Right (Range (read from) (read to)) else Left ("the range " <> text <> " is empty")
  _ -> Left (show text <> " is not a range of seeds (such as 0-9999)")

replayed :: ReadM Replay
replayed = eitherReader $ \text -> case break (== ':') text of
  (name, ':' : rest) -> case span isDigit rest of
    (seed, "") | isNumber seed -> Right (Replay name (read seed) Nothing)
    (seed, '@' : more)
      | isNumber seed, [(workers, more')] <- reads more, workers `elem` [1, 2], [(schedule, "")] <- reads more' -> Right (Replay name (read seed) (Just (workers, schedule)))
    _ -> wrong text
  _ -> wrong text
  where
    wrong text = Left (show text <> " is not a run (such as mutex/fair:17, or mutex/fair:0@2[12:1])")

-- | The part with this index, of the given number of nearly equal ones; none if there are fewer seeds.
part :: Int -> Int -> Range -> Maybe Range
part index count (Range from to)
  | first > last' = Nothing
  | otherwise = Just (Range (fromInteger first) (fromInteger last'))
  where
    total = toInteger to - toInteger from + 1
    cut i = toInteger from + total * toInteger i `div` toInteger count
    first = cut index
    last' = cut (index + 1) - 1

-- | Does a name match a pattern in which * stands for anything?
matches :: String -> String -> Bool
matches ('*' : rest) name = any (matches rest) (suffixes name)
matches (c : rest) (d : name) = c == d && matches rest name
matches [] [] = True
matches _ _ = False

suffixes :: String -> [String]
suffixes text =
  text : case text of
    [] -> []
    _ : rest -> suffixes rest
