-- |
-- Description : One measurement of one server
--
-- Runs a client against a server and reads the server's processor time before
-- and after; holds idle connections beside it. Called by the driver
-- ("Weft.Bench.Http"), one measurement at a time.
module Weft.Bench.Http.Load
  ( -- * Asking
    LoadSettings (..),
    LoadSample (..),
    cpuPerRequest,
    ticksPerRequest,
    diskPerRequest,
    measureLoad,
    warmUp,

    -- * Idle connections
    Held (..),
    withIdle,
    parseHeld,
    settle,
  )
where

import Control.Concurrent (threadDelay)
import Control.Exception (IOException, bracket, finally, try)
import Control.Monad (void)
import Data.Either (fromRight)
import Data.IORef (modifyIORef')
import Data.Int (Int64)
import Data.Text (Text)
import Data.Text qualified as Text
import Data.Text.IO qualified as Text
import Data.Text.Read qualified as Text
import System.FilePath ((</>))
import System.Posix.Signals (sigTERM, signalProcessGroup)
import System.Timeout (timeout)
import Weft.Bench.Child
import Weft.Bench.Http.Client
import Weft.Bench.Http.Launch (Paths (..))
import Weft.Bench.Http.Server (Server (..))
import Weft.Bench.Proc
import Weft.Bench.Statistics (per)

-- | How it is asked.
data LoadSettings = LoadSettings
  { loadClient :: !Client,
    -- | the processor of the client, and of the idle connections
    loadClientCpu :: !Int,
    loadPaths :: !Paths,
    -- | a path, as 'askingTarget'
    loadTarget :: !String,
    -- | the path that idle connections ask for once
    loadIdlePath :: !String,
    -- | as 'askingEach'
    loadEach :: !(Maybe Int),
    -- | of one measurement; at least 1
    loadSeconds :: !Int
  }

-- | One measurement.
data LoadSample = LoadSample
  { sampleReport :: !LoadReport,
    -- | what the server spent meanwhile
    sampleCpu :: !CpuTime,
    -- | bytes that it made the disk deliver
    sampleDisk :: !Int64
  }
  deriving stock (Eq, Show)

-- | Nanoseconds of processor time for one request, by the scheduler's account.
cpuPerRequest :: LoadSample -> Maybe Double
cpuPerRequest = perRequest (cpuScheduled . sampleCpu)

-- | Nanoseconds of processor time for one request, by the clock ticks: a cross-check.
ticksPerRequest :: LoadSample -> Maybe Double
ticksPerRequest = perRequest (cpuTicked . sampleCpu)

-- | Bytes from the disk for one request.
diskPerRequest :: LoadSample -> Maybe Double
diskPerRequest = perRequest sampleDisk

perRequest :: (LoadSample -> Int64) -> LoadSample -> Maybe Double
perRequest spent s = fromIntegral (spent s) `per` fromIntegral (reportRequests (sampleReport s))

-- | Ask with that many connections, at that rate or as fast as is answered. 'Left'
-- says why there is no figure.
measureLoad :: Nursery -> LoadSettings -> Server -> Int -> Maybe Double -> IO (Either Text LoadSample)
measureLoad nursery settings server connections rate = do
  before <- groupCpuTime group
  diskBefore <- groupDiskBytes group
  outcome <- runClient nursery settings (loadSeconds settings) server connections rate
  after <- groupCpuTime group
  diskAfter <- groupDiskBytes group
  ended <- childExit (serverChild server)
  case (ended, outcome) of
    (Just code, _) -> do
      message <- childComplaint (serverChild server)
      pure (Left ("the server ended: " <> Text.pack (show code) <> "\n" <> message))
    (_, Left why) -> pure (Left why)
    (_, Right report)
      | reportRequests report == 0 -> pure (Left "not one request was answered")
      | otherwise -> pure (Right (LoadSample report (cpuTimeSince before after) (diskAfter - diskBefore)))
  where
    group = childGroup (serverChild server)

-- | One second that is not counted: caches fill, connections were accepted once.
warmUp :: Nursery -> LoadSettings -> Server -> Int -> IO ()
warmUp nursery settings server connections =
  void (runClient nursery settings 1 server connections Nothing)

runClient :: Nursery -> LoadSettings -> Int -> Server -> Int -> Maybe Double -> IO (Either Text LoadReport)
runClient nursery settings seconds server connections rate =
  runChild nursery (seconds + 30) (pinned (loadClientCpu settings) (clientCommand (pathWeft paths) (pathPeers paths) client asking)) >>= \case
    Failed why -> pure (Left why)
    Finished output -> case readReport client output of
      Left why -> pure (Left (Text.pack why))
      Right report -> Right report <$ modifyIORef' (serverAsked server) (+ reportRequests report)
  where
    paths = loadPaths settings
    client = chooseClient (loadClient settings) asking
    asking = Asking (serverPort server) (loadTarget settings) connections seconds rate (loadEach settings)

-- | The idle connections at the end.
data Held = Held
  { -- | still open at the end
    heldOpen :: !Int,
    -- | closed by the server meanwhile
    heldLost :: !Int
  }
  deriving stock (Eq, Show)

-- | Hold idle connections, each of which has asked once, while the action runs.
-- The action begins, and this returns, when the server has come to rest.
withIdle :: Nursery -> LoadSettings -> Server -> Int -> IO a -> IO (Either Text (a, Held))
withIdle nursery settings server connections action =
  (`finally` settle server) $
    bracket start (mapM_ (stopChild nursery)) $ \case
      Left e -> pure (Left (Text.pack (show e)))
      Right child -> do
        opened <- line child 60
        if opened /= Just ("ready " <> Text.pack (show connections))
          then do
            message <- childComplaint child
            pure (Left ("the idle connections could not be opened: " <> message))
          else do
            settle server
            result <- action
            modifyIORef' (serverAsked server) (+ fromIntegral connections)
            signalProcessGroup sigTERM (childGroup child)
            said <- line child 10
            pure $ case said >>= parseHeld of
              Nothing -> Left "the idle connections went away"
              Just held -> Right (result, held)
  where
    start :: IO (Either IOException Child)
    start =
      try . startChild nursery . pinned (loadClientCpu settings) $
        Command
          (pathPeers (loadPaths settings) </> "idle")
          ["--port", show (serverPort server), "--connections", show connections, "--request", loadIdlePath settings]
    line child seconds =
      fromRight Nothing
        <$> try @IOException (timeout (seconds * 1_000_000) (Text.hGetLine (childOutput child)))

-- | The line that @idle@ prints at its end: @held H lost L@.
parseHeld :: Text -> Maybe Held
parseHeld t = case Text.words t of
  ["held", h, "lost", l] | Right (held, "") <- Text.decimal h, Right (lost, "") <- Text.decimal l -> Just (Held held lost)
  _ -> Nothing

-- | Opening or closing thousands of connections is work that must not fall into a
-- measurement: wait until the server has spent less than 1 % of a processor for a
-- tenth of a second, for at most five seconds.
settle :: Server -> IO ()
settle server = groupCpuTime group >>= go (50 :: Int)
  where
    group = childGroup (serverChild server)
    go 0 _ = pure ()
    go n before = do
      threadDelay 100_000
      after <- groupCpuTime group
      if cpuScheduled (cpuTimeSince before after) < 1_000_000 then pure () else go (n - 1) after
