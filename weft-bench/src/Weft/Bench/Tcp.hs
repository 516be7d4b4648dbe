-- |
-- Description : TCP stacks beside each other
--
-- Each stack's program is started on the first processor, asked by @peers\/tcp\/ask.c@ over
-- Linux's sockets from the second, and ended, for each experiment anew, in interleaved rounds. All
-- of it is in a network namespace of its own.
--
-- A stack on a TUN device pays for what Linux does with the packets that it writes, as a sender over
-- the loopback device does.
module Weft.Bench.Tcp
  ( TcpSettings (..),
    compareStacks,
    experiments,

    -- * Namespace
    inNamespace,

    -- * Pure parts
    Measurement (..),
    sampleRows,
  )
where

import Control.Concurrent (threadDelay)
import Control.Exception (IOException, finally, try)
import Control.Monad (filterM, forM, join, unless)
import Data.ByteString.Char8 qualified as Bytes
import Data.List (nub)
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Maybe (catMaybes, isNothing, listToMaybe, mapMaybe)
import Data.Text (Text)
import Data.Text qualified as Text
import Data.Text.Encoding qualified as Text
import System.Directory (doesFileExist)
import System.Environment (getExecutablePath)
import System.Exit (ExitCode (..), die, exitWith)
import System.FilePath ((</>))
import System.IO.Temp (withSystemTempDirectory)
import System.Process (proc, readCreateProcessWithExitCode, waitForProcess, withCreateProcess)
import System.Timeout (timeout)
import Weft.Bench.Child
import Weft.Bench.Http.Memory (Memory (..), serverMemory)
import Weft.Bench.Peers (parsePrinted, rotate)
import Weft.Bench.Proc
import Weft.Bench.Report
import Weft.Bench.Statistics
import Weft.Bench.Tcp.Stacks
import Weft.Internal.Os.Report (writeStderr)

-- | The stacks to compare, and how.
data TcpSettings = TcpSettings
  { tcpStacks :: ![(Text, Stack)],
    tcpExperiments :: ![TcpExperiment],
    -- | at least 1
    tcpRounds :: !Int,
    -- | of each measurement
    tcpSeconds :: !Double,
    -- | where the peers are
    tcpPeers :: !FilePath,
    -- | the program @weft@
    tcpWeft :: !FilePath
  }

-- | The experiments of a run, quick or not.
experiments :: Bool -> [TcpExperiment]
experiments quick = map RoundTrips [1, 100, many] ++ map Pages [64, 1_000] ++ [Connections, Into, OutOf, Idle many]
  where
    many = if quick then 1_000 else 10_000

-- | Figures of one measurement.
data Measurement = Measurement
  { -- | round trips, connections, or bytes
    measuredCount :: !Double,
    measuredSeconds :: !Double,
    -- | nanoseconds of the stack's process
    measuredCpu :: !Double,
    -- | growth of its resident memory, bytes
    measuredGrowth :: !Double
  }
  deriving stock (Eq, Show)

-- | Run all, round by round, and make a row for each stack and experiment. What fails is reported
-- on standard error and has no part in the row.
compareStacks :: TcpSettings -> IO [Row]
compareStacks t = endingOnSignals . withNursery $ \nursery -> withSystemTempDirectory "weft-bench-tcp" $ \root -> do
  prepare
  self <- getExecutablePath
  Bytes.writeFile (root </> "index.html") (Bytes.replicate 1_024 'x')
  let command = stackCommand (StackPrograms self (tcpWeft t) (tcpPeers t) root)
  parts <- filterM (\(e, (_, s)) -> doesFileExist (commandProgram (command e s))) offered
  asks <- doesFileExist (tcpPeers t </> "tcp-ask")
  unless asks (die "weft-bench: the client is not built (make -C weft-bench/peers)")
  let absent = nub [name | p@(_, (name, _)) <- offered, p `notElem` parts]
  unless (null absent) (writeStderr ("weft-bench: not built, left out: " <> Text.unpack (Text.intercalate ", " absent) <> "\n"))
  samples <- forM [(r, e) | r <- [1 .. tcpRounds t], e <- tcpExperiments t] $ \(r, e) ->
    forM (rotate (r - 1) [s | (e', s) <- parts, e' == e]) $ \(name, stack) -> do
      measure nursery t (command e stack) (stackAddress stack) e >>= \case
        Right sample -> pure (Just (e, name, r, sample))
        Left why -> Nothing <$ writeStderr ("weft-bench: " <> Text.unpack name <> ", " <> Text.unpack (experimentName e) <> ": " <> Text.unpack why <> "\n")
  pure (sampleRows (map fst (tcpStacks t)) (tcpExperiments t) (catMaybes (concat samples)))
  where
    offered = [(e, s) | e <- tcpExperiments t, s <- tcpStacks t, offers (snd s) e]
    -- Ended connections leave no port in use in the client, which else would run out of ports.
    prepare = mapM_ run (loopback : settings : concatMap (device . snd) (tcpStacks t))
    loopback = "ip link set lo up mtu 1500"
    settings = "sysctl -qw net.ipv4.tcp_max_tw_buckets=0 net.ipv4.ip_local_port_range='1024 65535'"
    device s
      | stackAddress s == "127.0.0.1" = []
      | otherwise =
          [ "ip tuntap add " <> stackDevice s <> " mode tun",
            "ip addr add " <> init (stackAddress s) <> "1/24 dev " <> stackDevice s,
            "ip link set " <> stackDevice s <> " up"
          ]
    run line = do
      (status, _, err) <- readCreateProcessWithExitCode (proc "sh" ["-c", line]) ""
      unless (status == ExitSuccess) (die ("weft-bench: " <> line <> ": " <> err))

-- | One measurement: the server lives for it only.
measure :: Nursery -> TcpSettings -> Command -> String -> TcpExperiment -> IO (Either Text Measurement)
measure nursery t server address e =
  try (startChild nursery (pinned 0 server)) >>= \case
    Left (failure :: IOException) -> pure (Left (Text.pack (show failure)))
    Right child -> flip finally (stopChild nursery child) $ do
      -- Nurseries and caches fill; what that takes is no growth.
      warm <- withClient (if mode == "page" then mode else "ask") 100 0.3 (\_ -> pure ())
      before <- if isIdle then threadDelay 500_000 >> resident child else pure 0
      case warm of
        Left why -> do
          said <- childComplaint child
          pure (Left (why <> said))
        Right () -> fmap join . withClient mode connections (if isIdle then 0.1 else tcpSeconds t) $ \next -> do
          cpu <- groupCpuTime (childGroup child)
          line <- next
          spent <- cpuTimeSince cpu <$> groupCpuTime (childGroup child)
          after <- if isIdle then threadDelay 500_000 >> resident child else pure 0
          pure $ do
            printed <- parsePrinted line `orSay` "it did not print a result"
            maybe (Left "a figure is missing") Right $
              (\n s -> Measurement n s (fromIntegral (cpuScheduled spent)) (after - before)) <$> Map.lookup "count" printed <*> Map.lookup "seconds" printed
  where
    orSay r why = either (const (Left why)) Right r
    resident child = fromIntegral . memoryResident <$> serverMemory (childGroup child)
    isIdle = case e of
      Idle _ -> True
      _ -> False
    (mode, connections) = case e of
      RoundTrips n -> ("ask", n)
      Pages n -> ("page", n)
      Connections -> ("connect", 16)
      Into -> ("send", 1)
      OutOf -> ("receive", 1)
      Idle n -> ("ask", n)
    -- The client says when it is ready; the argument of the action is its next line.
    withClient m n seconds act = do
      client <- startChild nursery (pinned 1 (Command (tcpPeers t </> "tcp-ask") [m, address, show (n :: Int), show (seconds :: Double)]))
      flip finally (stopChild nursery client) $ do
        first <- lineOf client
        if isNothing first
          then Left . ("the client was not ready: " <>) <$> childComplaint client
          else Right <$> act (maybe "" Text.decodeUtf8Lenient <$> lineOf client)
    lineOf client = do
      got <- timeout 90_000_000 (try (Bytes.hGetLine (childOutput client)))
      pure $ case got of
        Just (Right line) -> Just line
        Just (Left (_ :: IOException)) -> Nothing
        Nothing -> Nothing

-- | A row for each experiment and stack, in these orders: medians, and the median ratio of
-- processor time (of memory, for idle connections) to the first stack that has the experiment.
sampleRows :: [Text] -> [TcpExperiment] -> [(TcpExperiment, Text, Int, Measurement)] -> [Row]
sampleRows names wanted samples =
  [ [ ("benchmark", Name "tcp"),
      ("experiment", Name (experimentName e)),
      ("stack", Name name),
      ("rounds", Count (fromIntegral (Map.size mine)))
    ]
      ++ [(field, figure (median (Map.elems (Map.mapMaybe f mine)))) | (field, f) <- fields e]
      ++ [("ratio", figure (medianOfRatios (Map.mapMaybe (cost e) mine) (Map.mapMaybe (cost e) base))) | base <- maybe [] pure (listToMaybe bases)]
    | e <- wanted,
      let bases = mapMaybe (nonEmpty . of' e) names,
      name <- names,
      let mine = of' e name,
      not (Map.null mine)
  ]
  where
    of' :: TcpExperiment -> Text -> Map Int Measurement
    of' e name = Map.fromList [(r, s) | (e', name', r, s) <- samples, e' == e, name' == name]
    nonEmpty m = if Map.null m then Nothing else Just m
    fields e = case e of
      Idle _ -> [("bytes_per_connection", cost e)]
      Into -> bulk
      OutOf -> bulk
      _ -> [("per_second", rate), ("cpu_us", cost e)]
      where
        bulk = [("mb_per_second", fmap (/ 1e6) . rate), ("cpu_s_per_gb", cost e)]
    rate s = measuredCount s `per` measuredSeconds s
    cost e s = case e of
      Idle n -> measuredGrowth s `per` fromIntegral n
      Into -> measuredCpu s `per` measuredCount s
      OutOf -> measuredCpu s `per` measuredCount s
      _ -> (/ 1000) <$> (measuredCpu s `per` measuredCount s)

-- | Run this program again with these arguments, in a network namespace of its own, and end as it
-- does. That needs the right to make one.
inNamespace :: [String] -> IO a
inNamespace arguments = do
  self <- getExecutablePath
  withCreateProcess (proc "unshare" (["--net", self] ++ arguments)) (\_ _ _ p -> waitForProcess p) >>= exitWith
