-- |
-- Description : The servers and loads of an experiment, and its length
--
-- The experiments by name: for each the content, the servers, the loads, and the
-- server that the ratios are to. In two sizes: the whole, from which figures are
-- quoted, and a quick look. Pure.
module Weft.Bench.Http.Experiment
  ( ExperimentName (..),
    experimentName,
    experimentTitle,
    parseExperiment,
    Size (..),
    Experiment (..),
    experiment,
    totalBytes,
  )
where

import Data.Text (Text)
import Weft.Bench.Application (WaiHost (..), waiHosts)
import Weft.Bench.Http.Config (Mpm (..), Sendfile (..))
import Weft.Bench.Http.Content
import Weft.Bench.Http.Name
import Weft.Bench.Http.Scenario
import Weft.Bench.Named (named)

-- | Which.
data ExperimentName
  = -- | a page of 305 bytes by the number of clients: the size and the loads of Kerneis &
    -- Chroboczek 2009, figure 2, on kept connections (theirs serve one request each)
    PageLoad
  | -- | a greeting from a handler
    HelloLoad
  | -- | random files of a set that fits the caches
    CachedFiles
  | -- | random files of a set that does not (Li & Zdancewic 2007, figure 23)
    ColdFiles
  | -- | latencies at half of the capacity, many connections
    TailLatency
  | -- | what an idle connection holds
    IdleMemory
  | -- | active connections beside idle ones
    IdleBeside
  deriving stock (Eq, Ord, Show, Enum, Bounded)

-- | Its name on the command line and in reports.
experimentName :: ExperimentName -> Text
experimentName = \case
  PageLoad -> "page"
  HelloLoad -> "hello"
  CachedFiles -> "cached"
  ColdFiles -> "disk"
  TailLatency -> "tail"
  IdleMemory -> "memory"
  IdleBeside -> "idle"

-- | A heading for its table.
experimentTitle :: ExperimentName -> Text
experimentTitle = \case
  PageLoad -> "A page of 305 bytes, connections kept alive"
  HelloLoad -> "A greeting of 13 bytes from a handler"
  CachedFiles -> "Files chosen at random, all of them cached"
  ColdFiles -> "Files chosen at random, most of them on the disk"
  TailLatency -> "Latency at half of the capacity, requests at a fixed rate"
  IdleMemory -> "Memory of an idle connection"
  IdleBeside -> "Active connections beside idle ones"

-- | The inverse of 'experimentName'.
parseExperiment :: Text -> Either String ExperimentName
parseExperiment = named "experiment" experimentName [minBound ..]

-- | How thoroughly.
data Size
  = -- | one round of one second, few loads: to see that it works
    Quick
  | -- | five rounds, all loads
    Whole
  deriving stock (Eq, Show)

-- | One experiment, ready to be done.
data Experiment = Experiment
  { experimentIs :: !ExperimentName,
    experimentContent :: !Content,
    -- | The files leave the operating system's cache before each measurement.
    experimentCold :: !Bool,
    experimentServers :: ![ServerName],
    -- | the server that ratios are to
    experimentBase :: !ServerName,
    experimentScenarios :: ![Scenario],
    -- | interleaved rounds; at least 1
    experimentRounds :: !Int,
    -- | of each measurement; at least 1
    experimentSeconds :: !Int
  }

-- | As planned; the command line may change the servers, loads, rounds and seconds, and
-- the number and size of the files of 'ColdFiles'.
experiment :: Size -> ExperimentName -> Experiment
experiment size name =
  Experiment
    { experimentIs = name,
      experimentContent = case name of
        HelloLoad -> HelloContent
        -- Weft's cache of 100 MB counts a file twice: as it is, and as the response.
        CachedFiles -> FileContent 2048 16_384
        ColdFiles -> FileContent (quick 8192 131_072) 16_384
        _ -> PageContent,
      experimentCold = name == ColdFiles,
      experimentServers = case (size, name) of
        -- Thousands of connections are opened and closed for each: the longest of all.
        (Quick, IdleBeside) -> few
        (Quick, IdleMemory) -> few
        _ -> serversOf name,
      experimentBase = if name `elem` [CachedFiles, ColdFiles, TailLatency] then Nginx Sendfile else Rawloop,
      experimentScenarios = case name of
        PageLoad -> map closedLoop (quick [64] clients)
        HelloLoad -> map closedLoop (quick [64] [64, 1000])
        CachedFiles -> map closedLoop (quick [64] clients)
        ColdFiles -> map closedLoop (quick [64] clients)
        TailLatency -> [Scenario (quick 2000 10_000) 0 pace | pace <- quick [HalfOfOwn] [HalfOfOwn, HalfOfLeast]]
        IdleMemory -> [Scenario 1 (quick 2000 10_000) AsAnswered]
        IdleBeside -> [Scenario 64 idle AsAnswered | idle <- quick [5000] [5000, 10_000, 15_000]],
      experimentRounds = quick 1 5,
      experimentSeconds = case name of
        TailLatency -> quick 2 10
        -- Long enough to go through an allocation area several times, whatever its size.
        IdleMemory -> quick 2 3
        _ -> quick 1 2
    }
  where
    few = [Rawloop, Weft Epoll, Weft IoUring, Nginx Sendfile]
    quick :: a -> a -> a
    quick short whole = if size == Quick then short else whole
    clients = [1, 4, 16, 64, 256, 1000]

serversOf :: ExperimentName -> [ServerName]
serversOf = \case
  PageLoad -> [Rawloop, Weft Epoll, Weft IoUring, Plain Epoll, Nginx Sendfile, Nginx Copy] ++ others
  HelloLoad -> [Rawloop, Plain Epoll, Plain IoUring] ++ handlers
  CachedFiles -> [Weft Epoll, Weft IoUring, Nginx Sendfile, Lighttpd, Apache Worker, Apache Event, GoHttp]
  ColdFiles -> [Weft Epoll, Weft IoUring, Nginx Sendfile, Nginx Threads, Lighttpd, Apache Worker, Apache Event, GoHttp]
  TailLatency -> [Weft Epoll, Weft IoUring, Nginx Sendfile]
  IdleMemory -> [Rawloop, Weft Epoll, Weft IoUring, Plain Epoll, Nginx Sendfile] ++ others
  IdleBeside -> [Rawloop, Weft Epoll, Weft IoUring, Nginx Sendfile, Lighttpd, Apache Event] ++ handlers
  where
    others = [Lighttpd, Apache Worker, Apache Event] ++ handlers
    handlers = map (Wai . waiHostName) waiHosts ++ [GoHttp, Hyper]

-- | The bytes of all files together.
totalBytes :: Content -> Int
totalBytes = \case
  FileContent number size -> number * size
  _ -> 0
