-- |
-- Description : The works' experiments in one run, and the page of them
--
-- Measures what "Weft.Bench.Works.Plan" lists, keeps each sample in a file as soon as there
-- is one so that an interrupted run goes on where it was, and leaves rows, pictures and the
-- page.
module Weft.Bench.Works
  ( WorksSettings (..),
    repeatWorks,
  )
where

import Chart (renderChart)
import Control.Monad (forM, forM_, unless, when)
import Data.ByteString.Char8 qualified as Bytes
import Data.ByteString.Lazy.Char8 qualified as Lazy
import Data.Either (rights)
import Data.Text (Text)
import Data.Text qualified as Text
import Data.Text.IO qualified as Text
import System.Directory (createDirectoryIfMissing, doesFileExist, getFileSize, getModificationTime, makeAbsolute)
import System.Environment (getExecutablePath)
import System.Exit (die)
import System.FilePath (takeDirectory, takeFileName, (</>))
import Weft.Bench.Child
import Weft.Bench.Contest
import Weft.Bench.Contest.Workload
import Weft.Bench.Machine (machineRow, raiseDescriptors)
import Weft.Bench.Report
import Weft.Bench.Works.Claim
import Weft.Bench.Works.Page
import Weft.Bench.Works.Plan

-- | What the command line says.
data WorksSettings = WorksSettings
  { worksSize :: !Size,
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

-- | Do it.
repeatWorks :: WorksSettings -> IO ()
repeatWorks s = do
  claims <- Bytes.readFile (worksClaims s) >>= either (die . ("weft-bench: " ++) . ((worksClaims s ++ ": ") ++)) pure . parseClaims
  let all' = plan (worksSize s)
      chosen = [p | p <- all', null (worksOnly s) || plannedName p `elem` worksOnly s]
  forM_ (worksOnly s) $ \name ->
    unless (name `elem` map plannedName all') $
      die ("weft-bench: no such experiment: " ++ Text.unpack name ++ " (there are " ++ Text.unpack (Text.intercalate ", " (map plannedName all')) ++ ")")
  _ <- raiseDescriptors
  others <- forM (worksRows s) $ \file ->
    Bytes.readFile file >>= either (die . (("weft-bench: " ++ file ++ ": ") ++)) pure . traverse parseRow . filter (not . Bytes.null) . Bytes.lines
  this <- getExecutablePath
  programs <- Programs this <$> makeAbsolute (worksPeers s) <*> makeAbsolute (worksWeft s)
  machine <- machineRow
  before <- resume s this machine
  results <- endingOnSignals . withNursery $ \nursery -> do
    about <- (machine :) <$> versions nursery
    results <- forM chosen $ \p -> withPlaces (worksWork s) (pointsPlanned p) $ \places -> do
      let contest = Contest (plannedName p) (contendersFor programs places p) (pointsPlanned p) (plannedRounds p) 1800
      Result p contest <$> runContest nursery before (keep s) contest
    pure (about, results)
  uncurry (leave s claims (concat others)) results

contendersFor :: Programs -> [String] -> Planned -> [Contender]
contendersFor programs places p = case workloadNamed (plannedWorkload p) of
  Just w -> [c | c <- contendersOf programs places w, null (plannedContenders p) || contenderName c `elem` plannedContenders p]
  Nothing -> [Contender name (\point -> Right (Command program (arguments ++ asked point))) | (name, program, arguments) <- yielding]
  where
    -- The commands that "Weft.Bench.Command.Peers" compares, with options of their own.
    yielding =
      [(name, programThis programs, ["yield", "--style", style, "--json", "--repeat", "1"]) | (name, style) <- [("weft-epoll", "monadic"), ("direct-epoll", "direct"), ("forkIO", "ghc")]]
        ++ [("Go", programPeers programs </> "gosched", ["yield"]), ("tokio", programPeers programs </> "tokio-peer", ["yield"])]
    asked point = concat [["--threads", Text.unpack n, "--switches", Text.unpack n] | Just n <- [lookup "threads" point]]

-- The samples of an interrupted run, if it was of this program, on this machine, of this size.
resume :: WorksSettings -> FilePath -> Row -> IO [Sample]
resume s this machine = do
  size <- getFileSize this
  time <- getModificationTime this
  let header = Lazy.toStrict (renderJson (filter ((/= "load_before") . fst) machine ++ [("size", Name (sizeName (worksSize s))), ("program", Name (Text.pack (show size ++ " bytes, " ++ show time)))]))
  there <- doesFileExist (worksState s)
  old <- if there then Bytes.lines <$> Bytes.readFile (worksState s) else pure []
  case old of
    first : samples | first == header -> do
      -- A line that was cut short by the end of the program is measured again.
      let known = rights (map parseSample samples)
      known <$ unless (null known) (Text.putStrLn ("going on after " <> Text.pack (show (length known)) <> " measurements of an interrupted run"))
    _ -> [] <$ (createDirectoryIfMissing True (takeDirectory (worksState s)) >> Bytes.writeFile (worksState s) (header <> "\n"))

keep :: WorksSettings -> Sample -> IO ()
keep s sample = Lazy.appendFile (worksState s) (renderJson (sampleRow sample) <> "\n")

-- | What else can be told of the contenders.
versions :: Nursery -> IO [Row]
versions nursery = do
  let asked = [("C", Command "cc" ["--version"]), ("libc", Command "getconf" ["GNU_LIBPTHREAD_VERSION"]), ("Go", Command "go" ["version"]), ("Rust", Command "rustc" ["--version"])]
  forM asked $ \(name, command) -> do
    told <- runChild nursery 20 command
    pure
      [ ("kind", Name "version"),
        ("of", Name name),
        ( "version",
          case told of
            Finished text | line : _ <- Text.lines text -> Name line
            _ -> Absent
        )
      ]

leave :: WorksSettings -> [Claim] -> [Row] -> [Row] -> [Result] -> IO ()
leave s claims others about results = do
  createDirectoryIfMissing True (worksOut s)
  let size = worksSize s
      rows = concat [map (("experiment", Name (plannedName (resultPlanned r))) :) (contestRows (resultContest r) (resultSamples r)) | r <- results]
  when (null rows) (die "weft-bench: nothing could be measured")
  Lazy.writeFile (worksOut s </> "works.json") (Lazy.unlines (map renderJson ([("kind", Name "run"), ("size", Name (sizeName size))] : about ++ rows ++ others)))
  forM_ (concatMap (picturesOf size about) results) $ \(name, _, chart) -> Text.writeFile (worksOut s </> Text.unpack name <> ".svg") (renderChart chart)
  Text.writeFile (worksPage s) (pageOf size about (Text.pack (takeFileName (worksOut s))) results others claims)
