{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The command line of @weft load@
--
-- The options, and whether they fit together.
module Weft.Cli.Load.Options (LoadOptions (..), Amount (..), loadOptions) where

import Options.Applicative
import Weft (BackendChoice (Auto), Duration, seconds)
import Weft.Cli.Options
import Weft.Cli.Tcp

data LoadOptions = LoadOptions
  { loadUrls :: ![String],
    loadList :: !(Maybe FilePath),
    loadConnections :: !Int,
    loadWorkers :: !(Maybe Int),
    loadAmount :: !Amount,
    loadWarmup :: !Duration,
    loadRate :: !(Maybe Double),
    loadPipeline :: !Int,
    loadIdle :: !Int,
    loadMethod :: !(Maybe String),
    loadFields :: ![String],
    loadBody :: !(Maybe String),
    loadInsecure :: !Bool,
    loadCa :: !(Maybe FilePath),
    loadTimeout :: !Duration,
    loadSeed :: !Int,
    loadBackend :: !BackendChoice,
    loadTcp :: !(Maybe OwnTcp),
    loadJson :: !Bool,
    loadProgress :: !Bool,
    loadReport :: !(Maybe FilePath)
  }

-- | The end of a load.
data Amount
  = -- | After this time.
    For !Duration
  | -- | After this many requests.
    Count !Int

loadOptions :: Parser LoadOptions
loadOptions =
  LoadOptions
    <$> many (strArgument (metavar "URL..." <> help "What to ask for: http://HOST[:PORT]/PATH, or https, in which {0..99} is a number chosen at random; of several one is chosen at random, all of one server"))
    <*> optional (strOption (long "urls" <> metavar "FILE" <> help "A list of URLs, one on a line, each followed by its weight if wanted; - for standard input" <> action "file"))
    <*> option (number 1 1_000_000) (long "connections" <> short 'c' <> metavar "N" <> value 64 <> help "Connections that carry requests (default: 64)")
    <*> optional (option (number 1 256) (long "workers" <> short 't' <> metavar "N" <> help "Workers, each on an OS thread (default: one for each processor)"))
    <*> amount
    <*> option secondsOf (long "warmup" <> metavar "SECONDS" <> value mempty <> help "Load that comes before and does not count (default: 0)")
    <*> optional (option (real 0.001 100_000_000) (long "rate" <> short 'r' <> metavar "R" <> help "Send R requests a second at their times, whatever the responses (open loop); default: each connection sends when it has its response (closed loop)"))
    <*> option (number 1 1024) (long "pipeline" <> metavar "N" <> value 1 <> help "Requests under way on a connection at a time (default: 1)")
    <*> option (number 0 1_000_000) (long "idle" <> metavar "N" <> value 0 <> help "Connections that are opened besides, and do nothing (default: 0)")
    <*> optional (strOption (long "method" <> short 'X' <> metavar "METHOD" <> help "Request method (default: GET, or POST with a body)"))
    <*> many (strOption (long "header" <> short 'H' <> metavar "NAME: VALUE" <> help "A header field of each request; may be repeated"))
    <*> optional (strOption (long "body" <> short 'b' <> metavar "TEXT" <> help "The body of each request; @FILE takes it from a file"))
    <*> switch (long "insecure" <> help "With https: accept any server; without it its certificate is verified")
    <*> optional (strOption (long "ca" <> metavar "FILE" <> help "With https: trust the authorities in FILE (PEM) instead of the system's" <> action "file"))
    <*> option secondsOf (long "timeout" <> metavar "SECONDS" <> value (seconds 10) <> help "Time for a connection, and for a response to be complete (default: 10)")
    <*> option (number 0 1_000_000_000) (long "seed" <> metavar "N" <> value 1 <> help "What the choices at random begin with (default: 1)")
    <*> option backend (long "backend" <> metavar "NAME" <> value Auto <> help "Event source: auto, epoll, io_uring or poll (default: auto, or what WEFT_BACKEND says)")
    <*> optional (option ownTcp (long "tcp" <> metavar "DEVICE,ADDRESS/PREFIX[,FILE]" <> help "Use a TCP of its own with this address on a TUN device, not the system's"))
    <*> switch (long "json" <> help "Print the report as one JSON object")
    <*> switch (long "progress" <> help "Say on standard error how it goes, also if that is no terminal")
    <*> optional (strOption (long "report" <> metavar "FILE" <> help "Write a report with pictures to FILE.html, or the pictures alone to FILE.svg" <> action "file"))
  where
    amount =
      (Count <$> option (number 1 1_000_000_000_000) (long "requests" <> short 'n' <> metavar "N" <> help "End after N requests"))
        <|> (For <$> option secondsOf (long "duration" <> short 'd' <> metavar "SECONDS" <> value (seconds 10) <> help "End after this time (default: 10)"))
    real :: Double -> Double -> ReadM Double
    real low high = eitherReader $ \text -> case reads text of
      [(x, "")] | x >= low && x <= high -> Right x
      _ -> Left (show text <> " is not a number of requests a second")
