-- |
-- Description : The workloads that are compared, and who does them
--
-- Each has the parameters that make its points, the work itself by Haskell's kinds of
-- threads, and the peers that do the same. A new one is an entry of the list.
module Weft.Bench.Contest.Workload
  ( Workload (..),
    Key (..),
    workloads,
    workloadNamed,
    pointsOf,
    contendersOf,
    withPlaces,
  )
where

import Control.Monad (forM_)
import Data.Maybe (mapMaybe)
import Data.Text (Text)
import Data.Text qualified as Text
import System.FilePath ((</>))
import System.IO.Temp (withTempDirectory)
import System.Posix.Files (createNamedPipe, namedPipeMode, ownerReadMode, ownerWriteMode, unionFileModes)
import Weft.Bench.Child (Command (..))
import Weft.Bench.Contest
import Weft.Bench.Contest.Disk
import Weft.Bench.Contest.Kind
import Weft.Bench.Contest.Pipes
import Weft.Bench.Contest.Spread
import Weft.Bench.Contest.Stm

-- | One.
data Workload = Workload
  { -- | as the command line calls it
    workloadName :: !Text,
    workloadAbout :: !String,
    workloadKeys :: ![Key],
    workloadWork :: Kind -> Point -> Either String (IO Work),
    -- | the programs under @peers/@ that do it, and what they are called in the reports
    workloadPeers :: ![(FilePath, Text)]
  }

-- | A parameter.
data Key = Key
  { keyName :: !Text,
    keyDefault :: ![Int],
    keyHelp :: !String
  }

-- | All.
workloads :: [Workload]
workloads =
  [ Workload
      "pipes"
      "Pairs of threads that send each other bytes over pipes, beside threads that wait at FIFOs"
      [ processors,
        Key "pairs" [128] "pairs of threads",
        Key "bytes" [32_768] "bytes that one sends before the other answers with as many",
        Key "capacity" [4_096] "bytes that a pipe holds",
        Key "idle" [0] "threads that each wait at a FIFO, which takes a descriptor",
        Key "total" [1_073_741_824] "bytes that are sent in all"
      ]
      pipesWork
      [nptl],
    Workload
      "stm"
      "One thread for each processor, all increment one variable in transactions; in C under a mutex"
      [processors, Key "total" [4_000_000] "increments in all"]
      stmWork
      [nptl],
    Workload
      "disk-random"
      "Random reads of 4 KB from one file, past the page cache"
      [ processors,
        Key "threads" [1, 8, 64, 512, 4_096] "threads that read",
        Key "reads" [131_072] "reads in all",
        Key "file-bytes" [1_073_741_824] "size of the file, which is made under --work"
      ]
      diskWork
      [nptl, go],
    Workload
      "spread"
      "Threads that compute and yield, on one processor and on two"
      [ processors,
        Key "threads" [1_024] "threads",
        Key "turns" [20] "how often each computes and yields",
        Key "steps" [50_000] "steps of a generator in each turn",
        Key "counter" [0, 1] "1: after each turn a thread increments a variable that all share, in a transaction"
      ]
      spreadWork
      [nptl, go]
  ]
  where
    processors = Key "processors" [1, 2] "processors that a contender may use, and workers or capabilities that it has"
    nptl = ("nptl", "NPTL")
    go = ("gofigures", "Go")

-- | By its name.
workloadNamed :: Text -> Maybe Workload
workloadNamed name = lookup name [(workloadName w, w) | w <- workloads]

-- | All combinations of the values.
--
-- >>> pointsOf [("a", [1, 2]), ("b", [3])]
-- [[("a","1"),("b","3")],[("a","2"),("b","3")]]
pointsOf :: [(Text, [Int])] -> [Point]
pointsOf = traverse (\(k, vs) -> [(k, Text.pack (show v)) | v <- vs])

-- | Who does it: this program again with each kind of thread, and the peers. The arguments:
-- where this program is, where the peers are, and what 'withPlaces' adds.
contendersOf :: FilePath -> FilePath -> [String] -> Workload -> [Contender]
contendersOf this peers places w =
  [ Contender (kindName kind) $ \point ->
      if kind == Ghc && over point "threads" 4_096 && workloadName w == "disk-random"
        then Left "not tried: each read would hold an OS thread"
        else Right (Command this (["contender", Text.unpack (workloadName w), Text.unpack (kindName kind)] ++ places ++ pointArguments point))
    | kind <- kinds
  ]
    ++ [ Contender name $ \point ->
           if program == "nptl" && over point "threads" 16_384
             then Left "not tried above 16,384 OS threads"
             else Right (Command (peers </> program) (Text.unpack (workloadName w) : places ++ pointArguments point))
         | (program, name) <- workloadPeers w
       ]
  where
    over point key most = either (const False) (> most) (number point key)

-- | Make what the points need under a directory, for as long as the action runs: FIFOs, or a
-- file. The action is given the arguments that say where.
withPlaces :: FilePath -> [Point] -> ([String] -> IO a) -> IO a
withPlaces directory points action
  | idle == 0 && size == 0 = action []
  | otherwise = withTempDirectory directory "weft-bench-contest" $ \place -> do
      forM_ [0 .. idle - 1] $ \i ->
        createNamedPipe (place </> show i) (foldr unionFileModes namedPipeMode [ownerReadMode, ownerWriteMode])
      if size == 0
        then action ["fifos=" ++ place]
        else makeFile (place </> "file") size >> action ["fifos=" ++ place, "file=" ++ place </> "file"]
  where
    idle = largest "idle"
    size = largest "file-bytes"
    largest key = maximum (0 : mapMaybe (\p -> either (const Nothing) Just (number p key)) points)
