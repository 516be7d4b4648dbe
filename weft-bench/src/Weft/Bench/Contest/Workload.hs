-- |
-- Description : The workloads that are compared, and their contenders
--
-- Each has the parameters that make its points, and its contenders: Haskell's kinds of threads and
-- peers that do the same, or servers. A new one is an entry of the list.
module Weft.Bench.Contest.Workload
  ( Workload (..),
    Key (..),
    workloads,
    workloadNamed,
    pointsOf,
    Contenders (..),
    Where (..),
    Programs (..),
    contendersOf,
    contenderNames,
    workBy,
    workByGhc,
    withPlaces,
  )
where

import Control.Monad (forM_, when)
import Data.Maybe (isJust, mapMaybe)
import Data.Text (Text)
import Data.Text qualified as Text
import System.FilePath (takeDirectory, (</>))
import System.IO.Temp (withTempDirectory)
import System.Posix.Files (createNamedPipe, namedPipeMode, ownerReadMode, ownerWriteMode, setFileMode, unionFileModes)
import Weft.Bench.Child (Command (..))
import Weft.Bench.Contest
import Weft.Bench.Contest.Disk
import Weft.Bench.Contest.Kind
import Weft.Bench.Contest.Memory
import Weft.Bench.Contest.Pipes
import Weft.Bench.Contest.Served
import Weft.Bench.Contest.Spread (spreadWork, stmWork)
import Weft.Bench.Contest.Turns
import Weft.Bench.Events
import Weft.Bench.Events.Manager
import Weft.Bench.Http.Config (Mpm (..), Sendfile (..))
import Weft.Bench.Http.Content
import Weft.Bench.Http.Name
import Weft.Bench.Named (named)
import Weft.Bench.Web (webKinds)

-- | A workload.
data Workload = Workload
  { -- | as the command line calls it
    workloadName :: !Text,
    workloadAbout :: !String,
    workloadKeys :: ![Key],
    workloadBy :: !Contenders
  }

-- | The contenders of a workload.
data Contenders
  = -- | Haskell's kinds of threads, with further options of the run-time system, and programs
    -- with what they are called in the reports
    ByThreads !(Kind -> Point -> Either String (IO Work)) ![Kind] ![String] ![(Where, FilePath, Text)]
  | -- | servers ("Weft.Bench.Contest.Served")
    ByServers ![ServerName]
  | -- | GHC's threads with each event manager, and in the program without @-threaded@
    ByManagers !(Manager -> Point -> Either String (IO Work))

-- | Where a program is: under @peers/@, or beside this one.
data Where = Peers | Beside

-- | Where things are.
data Programs = Programs
  { -- | this program
    programThis :: !FilePath,
    -- | the directory of the peers
    programPeers :: !FilePath,
    -- | the program @weft@
    programWeft :: !FilePath
  }

-- | A parameter.
data Key = Key
  { keyName :: !Text,
    keyDefault :: ![Int],
    keyHelp :: !String
  }

-- | All workloads.
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
      (ByThreads pipesWork everyKind [] [nptl, go, tokio, select]),
    Workload
      "stm"
      "One thread for each processor, all increment one variable in transactions; in C, Go and Rust under a mutex"
      [processors, Key "total" [4_000_000] "increments in all"]
      (ByThreads stmWork kinds [] [nptl, go, tokio]),
    Workload
      "disk-random"
      "Random reads of 4 KB from one file, past the page cache"
      [ processors,
        Key "threads" [1, 8, 64, 512, 4_096] "threads that read",
        Key "reads" [131_072] "reads in all",
        Key "file-bytes" [1_073_741_824] "size of the file, which is made under --work"
      ]
      (ByThreads diskWork everyKind [] [nptl, go, tokio]),
    Workload
      "spread"
      "Threads that compute and yield, on one processor and on two"
      [ processors,
        Key "threads" [1_024] "threads",
        Key "turns" [20] "how often each computes and yields",
        Key "steps" [50_000] "steps of a generator in each turn",
        Key "counter" [0, 1] "1: after each turn a thread increments a variable that all share, in a transaction"
      ]
      (ByThreads spreadWork kinds [] [nptl, go, tokio]),
    Workload
      "memory"
      "Virtual and resident memory of threads that wait and each hold a buffer"
      [Key "threads" [16_384] "threads", Key "buffer" [4_096] "bytes that each holds"]
      (ByThreads memoryWork everyKind memoryFlags [nptl, go, tokio]),
    turns "yields" "Threads that give their turns to each other" Yields turnKinds 1_000 small,
    turns "ping-pong" "A value from one thread to another and back, by an MVar each" PingPong turnKinds 2 small,
    turns "os-ping-pong" "The same, where each thread is an OS thread" PingPong boundKinds 2 small,
    turns "switches" "Turns of stacks of the substrate in a queue, and of GHC's threads" Yields bareKinds 1_000 small,
    turns "exchanges" "Two variables exchanged by a transaction, by a thread for each processor" Exchange bareKinds 1 small,
    turns "kept" "Bytes kept alive by a thread that waits, or a stack" Keep keptKinds 100_000 [],
    turns "put-take" "A value put into an MVar and taken, where no other thread is" PutTake turnKinds 1 small,
    turns "fork-join" "Threads that are forked, and that end, each with an MVar" ForkJoin turnKinds 100_000 [],
    Workload
      "toy"
      "Servers that open a thread for each connection, and others; a connection for each request of a page of 305 bytes"
      (served [1, 64, 1_000] [1] [1_024] [0] [0] ++ [Key "ab" [0] "1: asked by ab instead of ask"])
      (ByServers ([Toy (ToyOfC t) | t <- ["fork", "nptl", "pth", "st"]] ++ map (Toy . ToyOfHaskell) everyKind ++ production)),
    Workload
      "knot"
      "Weft's server with each order of ready threads, and nginx: bandwidth by the number of clients, five requests on a connection"
      (served [1, 16, 256, 1_024, 4_096] [5] [1_024] [128] [0])
      (ByServers (map Scheduled [minBound ..] ++ [Nginx Sendfile])),
    Workload
      "served-files"
      "Random files of 16 KB, most of them on the disk, by the number of clients"
      (served [1, 16, 256, 1_024] [0] [4_096] [131_072] [1])
      (ByServers ([Weft Epoll, Weft IoUring, Nginx Sendfile, Nginx Threads, Apache Worker, Apache Event] ++ map (Toy . ToyOfHaskell) webKinds)),
    Workload
      "events-pong"
      "Weft's event manager on each source beside GHC's, threaded and not: a connection for each request, which is answered with a few bytes"
      eventKeys
      (ByManagers pongWork),
    Workload
      "events-file"
      "The same with a file of 4,332 bytes as the answer"
      eventKeys
      (ByManagers fileWork),
    Workload
      "events-pairs"
      "The same managers: pairs of threads that answer each other through event counters"
      [capabilities, Key "descriptors" [1_000] "event counters, on each of which a thread waits", Key "requests" [400_000] "waits in all"]
      (ByManagers pairsWork),
    Workload
      "events-delays"
      "The same managers: threads that all sleep for a millisecond"
      [capabilities, Key "threads" [10_000, 100_000] "threads that sleep"]
      (ByManagers delaysWork)
  ]
  where
    -- The goals were set with a nursery that stays in the processor's cache. That of threads that all live is another matter.
    small = ["-A4m"]
    turns name about exercise those threads flags =
      Workload name about [processors, Key "threads" [threads] "threads", Key "total" [1_000_000] "operations in all"] (ByThreads (turnsWork exercise) those flags [])
    processors = Key "processors" [1, 2] "processors that a contender may use, and workers or capabilities that it has"
    nptl = (Peers, "nptl", "NPTL")
    go = (Peers, "gofigures", "Go")
    tokio = (Peers, "tokio-peer", "tokio")
    select = (Beside, "weft-bench-select", "forkIO-select")
    capabilities = Key "capabilities" [1] "capabilities of the program"
    eventKeys =
      [ capabilities,
        Key "clients" [64] "connections under way",
        Key "idle" [0, 400] "connections on which somebody waits and nothing comes",
        Key "requests" [20_000] "requests in all"
      ]
    production = [Weft Epoll, Weft IoUring, Nginx Sendfile, Lighttpd, Apache Worker, Apache Prefork, MiniHttpd]
    served clients each backlog files cold =
      [ Key "clients" clients "connections under way, the offered load",
        Key "each" each "requests on a connection; 0 for any number",
        Key "backlog" backlog "length of the listen queue, where a server can be told",
        Key "files" files "files of the site; 0: the page",
        Key "file-bytes" [16_384] "size of a file",
        Key "cold" cold "1: the files leave the page cache before each measurement",
        Key "seconds" [2] "of each measurement"
      ]

-- | By its name.
workloadNamed :: Text -> Maybe Workload
workloadNamed name = lookup name [(workloadName w, w) | w <- workloads]

-- | All combinations of the values.
--
-- >>> pointsOf [("a", [1, 2]), ("b", [3])]
-- [[("a","1"),("b","3")],[("a","2"),("b","3")]]
pointsOf :: [(Text, [Int])] -> [Point]
pointsOf = traverse (\(k, vs) -> [(k, Text.pack (show v)) | v <- vs])

-- | The contenders of a workload, with the arguments that 'withPlaces' adds.
contendersOf :: Programs -> [String] -> Workload -> [Contender]
contendersOf programs places w = case workloadBy w of
  ByThreads _ kinds' flags peers ->
    [ Contender (kindName kind) $ \point ->
        case kind of
          Ghc | over point "threads" 4_096, workloadName w == "disk-random" -> Left "not tried: each read would hold an OS thread"
          ConcOs | over point "threads" 16_384 -> Left "not tried above 16,384 OS threads"
          _ -> Right (alone (kindName kind) point (concat [["+RTS"] ++ flags ++ ["-RTS"] | not (null flags)]))
      | kind <- kinds'
    ]
      ++ [ Contender name $ \point ->
             if program == "nptl" && over point "threads" 16_384
               then Left "not tried above 16,384 OS threads"
               else Right (Command (directory place </> program) (Text.unpack (workloadName w) : places ++ pointArguments point))
           | (place, program, name) <- peers
         ]
  ByManagers _ ->
    [Contender (managerName m) (\point -> Right (alone (managerName m) point [])) | m <- managers]
      ++ [Contender "ghc-select" (Right . Command (directory Beside </> "weft-bench-select") . ([Text.unpack (workloadName w)] ++) . pointArguments)]
  ByServers names -> [Contender (serverName name) (\point -> Right (alone (serverName name) point ["weft=" ++ programWeft programs, "peers=" ++ programPeers programs])) | name <- names]
  where
    alone name point more =
      Command (programThis programs) (["contender", Text.unpack (workloadName w), Text.unpack name] ++ places ++ pointArguments point ++ more)
    directory = \case
      Peers -> programPeers programs
      Beside -> takeDirectory (programThis programs)
    over point key most = either (const False) (> most) (number point key)

-- | Their names.
contenderNames :: Workload -> [Text]
contenderNames = map contenderName . contendersOf (Programs "" "" "") []

-- | The work of a contender by its name, or which there are.
workBy :: Workload -> Text -> Point -> Either String (IO Work)
workBy w name point = case workloadBy w of
  ByThreads work kinds' _ _ -> named "kind" kindName kinds' name >>= (`work` point)
  ByServers names -> named "server" serverName names name >>= (`servedWork` point)
  ByManagers work -> named "event manager" managerName managers name >>= (`work` point)

-- | The work of a program that has GHC's threads and nothing else.
workByGhc :: Workload -> Point -> Either String (IO Work)
workByGhc w = case workloadBy w of
  ByThreads work _ _ _ -> work Ghc
  ByManagers work -> work OfGhc
  ByServers _ -> const (Left "a workload of servers")

-- | Make what the points need under a directory, for as long as the action runs: FIFOs, a
-- file, or a site of files. The action is given the arguments that say where.
withPlaces :: FilePath -> [Point] -> ([String] -> IO a) -> IO a
withPlaces directory points action
  | all (== 0) [idle, size, files] = action []
  | otherwise = withTempDirectory directory "weft-bench-contest" $ \place -> do
      -- Open to all: servers may change to another user.
      setFileMode place 0o755
      forM_ [0 .. idle - 1] $ \i ->
        createNamedPipe (place </> show i) (foldr unionFileModes namedPipeMode [ownerReadMode, ownerWriteMode])
      if files > 0
        then writeContent (place </> "site") (FileContent files size)
        else when (size > 0) (makeFile (place </> "file") size)
      action (["fifos=" ++ place | idle > 0] ++ if files > 0 then ["site=" ++ place </> "site"] else ["file=" ++ place </> "file" | size > 0])
  where
    idle = largest "idle"
    files = largest "files"
    size = if any (isJust . lookup "files") points && files == 0 then 0 else largest "file-bytes"
    largest key = maximum (0 : mapMaybe (\p -> either (const Nothing) Just (number p key)) points)
