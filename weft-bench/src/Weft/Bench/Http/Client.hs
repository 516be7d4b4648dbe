-- |
-- Description : The programs that ask, behind one interface
--
-- A client is a command line and a way to read what it prints. There is @ask@, one of
-- our peers (@peers\/ask.c@); @weft load@, which takes the same command line and says
-- more; and wrk,
-- which knows neither a fixed rate nor URLs chosen at random, and whose latencies are not
-- what was seen: in a closed loop it adds made-up ones for requests that a stall would
-- have held up, so that the measured load comes out larger than the number of clients.
-- ab is what Kerneis & Chroboczek 2009 asked with; it opens a connection for each request. Pure.
module Weft.Bench.Http.Client
  ( -- * Asking
    Asking (..),
    Client (..),
    clientName,
    parseClient,
    chooseClient,
    clientCommand,

    -- * What came of it
    readReport,
    module Weft.Bench.Http.Client.Report,
  )
where

import Data.Maybe (isJust, isNothing)
import Data.Text (Text)
import Numeric (showFFloat)
import System.FilePath ((</>))
import Weft.Bench.Child (Command (..))
import Weft.Bench.Http.Client.Report
import Weft.Bench.Named (named)

-- | The task of a client.
data Asking = Asking
  { askingPort :: !Int,
    -- | a path; @{A..B}@ is a number chosen at random for each request
    askingTarget :: !String,
    askingConnections :: !Int,
    -- | at least 1
    askingSeconds :: !Int,
    -- | requests per second; 'Nothing': as fast as they are answered
    askingRate :: !(Maybe Double),
    -- | requests on each connection, which the server then closes; 'Nothing': any number
    askingEach :: !(Maybe Int)
  }
  deriving stock (Eq, Show)

-- | A program that asks.
data Client
  = Wrk
  | -- | @peers\/ask.c@
    Ask
  | -- | @weft load@
    WeftLoad
  | -- | ApacheBench
    Ab
  deriving stock (Eq, Show, Enum, Bounded)

-- | Its name on the command line and in reports.
clientName :: Client -> Text
clientName = \case
  Wrk -> "wrk"
  Ask -> "ask"
  WeftLoad -> "weft-load"
  Ab -> "ab"

-- | The inverse of 'clientName'.
parseClient :: Text -> Either String Client
parseClient = named "client" clientName [minBound ..]

-- | The preferred client where it can do what is asked; else 'Ask', which can do all.
chooseClient :: Client -> Asking -> Client
chooseClient preferred asking = case preferred of
  Wrk | isJust (askingRate asking) || '{' `elem` askingTarget asking -> Ask
  Ab | askingEach asking == Just 1, isNothing (askingRate asking), '{' `notElem` askingTarget asking -> Ab
  Ab -> Ask
  _ | isJust (askingEach asking) -> Ask
  _ -> preferred

-- | The command, given the program @weft@ and the directory with the peers.
clientCommand :: FilePath -> FilePath -> Client -> Asking -> Command
clientCommand weft peers client a = case client of
  Wrk -> Command "wrk" ["-t1", "-c" ++ connections, "-d" ++ seconds ++ "s", "--latency", url]
  -- As many samples are left out at either end as the work left out.
  Ask -> Command (peers </> "ask") (shared ++ maybe [] (\n -> ["--requests", show n, "--skip", "1000"]) (askingEach a))
  WeftLoad -> Command weft (["load", "--workers", "1"] ++ shared)
  -- For a time, however many requests that are (-n after -t); a broken connection is counted (-r).
  Ab -> Command "ab" ["-q", "-r", "-c", connections, "-t", seconds, "-n", "5000000", url]
  where
    url = "http://127.0.0.1:" ++ show (askingPort a) ++ askingTarget a
    connections = show (askingConnections a)
    seconds = show (askingSeconds a)
    shared =
      [url, "-c", connections, "-d", seconds]
        ++ maybe [] (\r -> ["--rate", showFFloat (Just 0) r ""]) (askingRate a)
        ++ ["--json"]

-- | Read a client's report of its run.
readReport :: Client -> Text -> Either String LoadReport
readReport = \case
  Wrk -> parseWrk
  Ask -> parseAsk
  WeftLoad -> parseWeftLoad
  Ab -> parseAb
