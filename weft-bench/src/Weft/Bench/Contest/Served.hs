-- |
-- Description : One server under one load, as a contender
--
-- Starts a server on the first processor, asks it from the second, stops it, and says what came
-- of it: so servers take part in contests as threads do, in rounds, and an interrupted run goes on.
module Weft.Bench.Contest.Served (servedWork) where

import Control.Monad (when)
import Data.Text (Text)
import Data.Text qualified as Text
import System.FilePath ((</>))
import System.IO.Temp (withSystemTempDirectory)
import System.Posix.Files (setFileMode)
import Weft.Bench.Child (endingOnSignals, withNursery)
import Weft.Bench.Contest
import Weft.Bench.Http.Client
import Weft.Bench.Http.Content
import Weft.Bench.Http.Launch (Paths (..))
import Weft.Bench.Http.Load (LoadSample (..), LoadSettings (..), measureLoad, warmUp)
import Weft.Bench.Http.Name (ServerName)
import Weft.Bench.Http.Page (pageBytes)
import Weft.Bench.Http.Server
import Weft.Bench.Machine (raiseDescriptors)
import Weft.Bench.Measure (Nanoseconds (..))
import Weft.Bench.Proc (CpuTime (..))

-- | The point: @clients@, @each@ (requests on a connection, 0 for any number), @backlog@ (of the
-- listen queue), @files@ (0: the page of 305 bytes), @file-bytes@, @cold@ (1: the files leave the
-- page cache first, and a twentieth of them fits the server's own), @seconds@, @ab@ (1: the client is
-- ab; may be left out); and where things are: @weft@, @peers@, and with files @site@.
servedWork :: ServerName -> Point -> Either String (IO Work)
servedWork name point = do
  clients <- number point "clients"
  each <- number point "each"
  backlog <- number point "backlog"
  files <- number point "files"
  fileBytes <- number point "file-bytes"
  cold <- (> 0) <$> number point "cold"
  seconds <- max 1 <$> number point "seconds"
  weft <- place "weft"
  peers <- place "peers"
  site <- if files > 0 then Just <$> place "site" else Right Nothing
  let content = if files > 0 then FileContent files fileBytes else PageContent
      client = if number point "ab" == Right 1 then Ab else Ask
      cache = if cold then max 1_000_000 (files * fileBytes `div` 20) else 100_000_000
  pure . endingOnSignals $ do
    _ <- raiseDescriptors
    withSystemTempDirectory "weft-bench-served" $ \work -> withNursery $ \nursery -> do
      -- Open to all, because Apache changes to another user.
      setFileMode work 0o755
      root <- maybe ((work </> "site") <$ writeContent (work </> "site") content) pure site
      let paths = Paths weft peers work cache
          setting = Setting paths content root 0 clients backlog
          load =
            LoadSettings
              { loadClient = client,
                loadClientCpu = 1,
                loadPaths = paths,
                loadTarget = contentTarget content,
                loadIdlePath = fst (contentSample content),
                loadEach = if each == 0 then Nothing else Just each,
                loadSeconds = seconds
              }
      server <- startServer nursery setting name >>= orFail
      warmUp nursery load server (min 64 clients)
      when cold (evictContent root content)
      sample <- measureLoad nursery load server clients Nothing >>= orFail
      _ <- stopServer nursery server
      pure (workOf (bodyBytes content) sample)
  where
    place key = maybe (Left (Text.unpack key ++ " is missing")) (Right . Text.unpack) (lookup key point)
    bodyBytes = \case
      FileContent _ size -> size
      _ -> pageBytes

orFail :: Either Text a -> IO a
orFail = either (errorWithoutStackTrace . Text.unpack) pure

-- The work as the client saw it, for bodies of this size.
workOf :: Int -> LoadSample -> Work
workOf bytes s =
  Work
    { workOperations = fromIntegral (reportRequests r),
      workTime = Nanoseconds (round (reportSeconds r * 1e9)),
      workCpu = Nanoseconds (cpuScheduled (sampleCpu s)),
      workMore =
        [ ("mean_us", reportMean r / 1_000),
          ("p99_us", reportP99 r / 1_000),
          ("measured_load", measuredLoad r),
          ("mbit_per_second", reportRequestsPerSecond r * fromIntegral bytes * 8 / 1e6),
          ("errors", fromIntegral (reportErrors r))
        ]
          ++ [("client_busy", cpu / reportSeconds r) | Just cpu <- [reportClientCpu r]]
    }
  where
    r = sampleReport s
