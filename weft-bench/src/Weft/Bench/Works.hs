-- |
-- Description : The works' experiments in one run, and the page of them
--
-- Measures what "Weft.Bench.Works.Plan" lists, keeps each sample in a file as soon as there
-- is one so that an interrupted run goes on where it was, and leaves rows, pictures and the
-- page.
module Weft.Bench.Works
  ( WorksSettings (..),
    repeatWorks,
    compareConfigurations,
    leaveConfigurations,
    resultRows,
  )
where

import Chart (renderChart)
import Control.Monad (forM, forM_, unless, when)
import Data.ByteString.Char8 qualified as Bytes
import Data.ByteString.Lazy.Char8 qualified as Lazy
import Data.Function (on)
import Data.List (nub, nubBy, tails)
import Data.Text (Text)
import Data.Text qualified as Text
import Data.Text.IO qualified as Text
import Numeric (showFFloat)
import System.Directory (createDirectoryIfMissing, getFileSize, getModificationTime, makeAbsolute)
import System.Environment (getExecutablePath)
import System.Exit (die)
import System.FilePath (takeDirectory, takeFileName, (</>))
import Weft.Bench.Child
import Weft.Bench.Contest
import Weft.Bench.Contest.Workload
import Weft.Bench.Http.Launch (Paths (..), launchVersion)
import Weft.Bench.Http.Name (serverName)
import Weft.Bench.Machine (machineRow, raiseDescriptors)
import Weft.Bench.Measure (elapsedSince, now, toDouble)
import Weft.Bench.Report
import Weft.Bench.Works.Claim
import Weft.Bench.Works.Configurations
import Weft.Bench.Works.Page
import Weft.Bench.Works.Plan
import Weft.Bench.Works.State
import Weft.Internal.Os.Report (writeStderr)

-- | Settings of the command line.
data WorksSettings = WorksSettings
  { worksExtent :: !Extent,
    -- | measure nothing, and print what would be measured
    worksPlanOnly :: !Bool,
    -- | experiments; all if none are named
    worksOnly :: ![Text],
    -- | where @works.json@ (rows) and the pictures go
    worksOut :: !FilePath,
    worksPage :: !FilePath,
    -- | what the works state
    worksClaims :: !FilePath,
    worksPeers :: !FilePath,
    -- | the program @weft@
    worksWeft :: !FilePath,
    -- | where files and FIFOs are made
    worksWork :: !FilePath,
    -- | where samples are kept until the run is done
    worksState :: !FilePath,
    -- | rows that other commands have printed (@--json@), a section of the page each
    worksRows :: ![FilePath]
  }

-- | Do it, or only say what would be done ('worksPlanOnly').
repeatWorks :: WorksSettings -> IO ()
repeatWorks s = do
  claims <- claimsOf (worksClaims s)
  let all' = plan (worksExtent s)
      chosen = [p | p <- all', null (worksOnly s) || plannedName p `elem` worksOnly s]
  forM_ (worksOnly s) $ \name ->
    unless (name `elem` map plannedName all') $
      die ("weft-bench: no such experiment: " ++ Text.unpack name ++ " (there are " ++ Text.unpack (Text.intercalate ", " (map plannedName all')) ++ ")")
  if worksPlanOnly s then printRows Table (planRows [] chosen) else measureWorks s claims chosen

measureWorks :: WorksSettings -> [Claim] -> [Planned] -> IO ()
measureWorks s claims chosen = do
  _ <- raiseDescriptors
  others <- forM (worksRows s) $ \file ->
    Bytes.readFile file >>= either (die . (("weft-bench: " ++ file ++ ": ") ++)) pure . traverse parseRow . filter (not . Bytes.null) . Bytes.lines
  this <- getExecutablePath
  programs <- Programs this <$> makeAbsolute (worksPeers s) <*> makeAbsolute (worksWeft s)
  machine <- machineRow
  before <- runRow this machine >>= resume (worksState s)
  unless (null before) $ say ("going on after " ++ show (length before) ++ " measurements of an interrupted run")
  say (Text.unpack (renderTable (planRows before chosen)))
  endingOnSignals . withNursery $ \nursery -> do
    about <- (machine :) <$> versions nursery programs chosen
    results <- forM (zip chosen (drop 1 (tails chosen))) $ \(p, later) -> do
      begin <- now
      -- 16,384 FIFOs take a while, so not if all was measured before.
      result <- (if left before p > 0 then withPlaces (worksWork s) (pointsPlanned p) else ($ [])) $ \places -> do
        let contest = Contest (plannedName p) (contendersFor programs places p) (pointsPlanned p) (plannedRounds p) 300
        Result p contest <$> runContest nursery before (keep (worksState s)) contest
      took <- (/ 1e9) . toDouble <$> elapsedSince begin
      say (Text.unpack (plannedName p) ++ " took " ++ minutes took ++ " of " ++ minutes (left before p) ++ "; " ++ minutes (sum (map (left before) later)) ++ " are left")
      pure result
    leave s claims (concat others) about results
  where
    -- A run that goes on must have this in common with the one that was interrupted.
    runRow this machine = do
      size <- getFileSize this
      time <- getModificationTime this
      pure (filter ((`notElem` ["load_before", "date"]) . fst) machine ++ [("extent", Name (extentName (worksExtent s))), ("program", Name (Text.pack (show size ++ " bytes, " ++ show time)))])
    say line = writeStderr ("weft-bench: " ++ line ++ "\n")

-- Seconds that an experiment takes if these have been measured before.
left :: [Sample] -> Planned -> Double
left before p = max 0 (secondsPlanned p - plannedSeconds p * fromIntegral (length [() | x <- before, sampleContest x == plannedName p]))

-- The plan: its experiments, and how long each takes on a machine that does nothing else.
planRows :: [Sample] -> [Planned] -> [Row]
planRows before chosen = map row chosen ++ [[("experiment", Name "all"), ("measurements", Count (sum (map count chosen))), ("time", Name (Text.pack (minutes (sum (map (left before) chosen)))))]]
  where
    count = fromIntegral . measurements
    row p = [("experiment", Name (plannedName p)), ("measurements", Count (count p)), ("time", Name (Text.pack (minutes (left before p)))), ("about", Name (plannedTitle p))]

minutes :: Double -> String
minutes seconds = showFFloat (Just 1) (seconds / 60) " min"

-- | Measure the six configurations of Li 2008 in their experiments, in that order, or in those that are named, and what goals are about.
compareConfigurations :: Extent -> Int -> [Text] -> FilePath -> FilePath -> IO [Result]
compareConfigurations extent rounds only peers work = do
  _ <- raiseDescriptors
  programs <- Programs <$> getExecutablePath <*> makeAbsolute peers <*> pure ""
  endingOnSignals . withNursery $ \nursery ->
    forM [p | p <- substrateExperiments extent, null only || plannedName p `elem` only] $ \p ->
      withPlaces work (pointsPlanned p) $ \places -> do
        let able = contendersFor programs places p
            -- Where the whole takes one round, more would show nothing else.
            often = if extent == Whole && plannedRounds p == 1 then 1 else rounds
            contest = Contest (plannedName p) [c | n <- plannedContenders p, c <- able, contenderName c == n] (pointsPlanned p) often 300
        Result p contest <$> runContest nursery [] (const (pure ())) contest

-- | Leave the page of what 'compareConfigurations' has measured on this machine, judged by the claims of these files.
leaveConfigurations :: Extent -> Int -> Row -> [FilePath] -> FilePath -> [Result] -> IO ()
leaveConfigurations extent rounds machine files page results = do
  claims <- concat <$> mapM claimsOf files
  createDirectoryIfMissing True (takeDirectory page)
  Text.writeFile page (configurationsPage extent rounds machine results claims)

claimsOf :: FilePath -> IO [Claim]
claimsOf file = Bytes.readFile file >>= either (die . (("weft-bench: " ++ file ++ ": ") ++)) pure . parseClaims

contendersFor :: Programs -> [String] -> Planned -> [Contender]
contendersFor programs places p = case workloadNamed (plannedWorkload p) of
  Just w -> [c | c <- contendersOf programs places w, contenderName c `elem` contendersPlanned p]
  Nothing -> [Contender name (yielding name most (Command program arguments)) | (name, most, program, arguments) <- yielders]
  where
    -- The commands that "Weft.Bench.Command.Style" compares, with options of their own, and as many
    -- threads as fit.
    yielders =
      [(name, most, programThis programs, ["yield", "--style", style, "--json", "--repeat", "1"]) | (name, most, style) <- [("weft-epoll", million 10, "monadic"), ("direct-epoll", million 10, "direct"), ("forkIO", million 1, "ghc")]]
        ++ [("Go", million 1, programPeers programs </> "gosched", ["yield"]), ("tokio", million 10, programPeers programs </> "tokio-peer", ["yield"])]
    million = (* 1_000_000)
    yielding :: Text -> Int -> Command -> Point -> Either Text Command
    yielding name most (Command program arguments) point = case number point "threads" of
      Right n | n <= most -> Right (Command program (arguments ++ ["--threads", show n, "--switches", show n]))
      _ -> Left (name <> " is not tried above " <> Text.pack (show most) <> " threads, which take gigabytes")

-- | The versions of the contenders.
versions :: Nursery -> Programs -> [Planned] -> IO [Row]
versions nursery programs chosen = do
  told <- forM asked $ \(name, command) ->
    (,) name <$> runChild nursery 20 command
  servers <- forM (nub [name | p <- chosen, Just w <- [workloadNamed (plannedWorkload p)], ByServers names <- [workloadBy w], name <- names, serverName name `elem` contendersPlanned p]) $ \name ->
    (,) (serverName name) <$> launchVersion (Paths (programWeft programs) (programPeers programs) "" 0) name
  pure ([row name (firstLine outcome) | (name, outcome) <- told] ++ [row name (Just v) | (name, Just v) <- nubBy ((==) `on` snd) servers])
  where
    asked = [("C", Command "cc" ["--version"]), ("libc", Command "getconf" ["GNU_LIBPTHREAD_VERSION"]), ("Go", Command "go" ["version"]), ("Rust", Command "rustc" ["--version"]), ("ab", Command "ab" ["-V"])]
    row name version = [("kind", Name "version"), ("of", Name name), ("version", maybe Absent Name version)]
    firstLine = \case
      Finished text | line : _ <- Text.lines text -> Just line
      _ -> Nothing

leave :: WorksSettings -> [Claim] -> [Row] -> [Row] -> [Result] -> IO ()
leave s claims others about results = do
  createDirectoryIfMissing True (worksOut s)
  let size = worksExtent s
      rows = concatMap resultRows results
  when (null rows) (die "weft-bench: nothing could be measured")
  Lazy.writeFile (worksOut s </> "works.json") (Lazy.unlines (map renderJson ([("kind", Name "run"), ("extent", Name (extentName size))] : about ++ rows ++ others)))
  forM_ (concatMap (picturesOf size about) results) $ \(name, _, chart) -> Text.writeFile (worksOut s </> Text.unpack name <> ".svg") (renderChart chart)
  Text.writeFile (worksPage s) (pageOf size about (Text.pack (takeFileName (worksOut s))) results others claims)
