-- |
-- Description : Which workloads are measured for the page of the works, and at which points
--
-- A list of experiments in three extents: the whole, from which figures are quoted, a quick one
-- that gives a verdict on each claim, and a tiny one that shows that all of it works. Pure.
module Weft.Bench.Works.Plan
  ( Extent (..),
    extentName,
    Planned (..),
    plan,
    substrateExperiments,
    configurations,
    pointsPlanned,
    contendersPlanned,

    -- * How long it takes
    measurements,
    secondsPlanned,
  )
where

import Data.Text (Text)
import Weft.Bench.Contest (Point)
import Weft.Bench.Contest.Workload (contenderNames, pointsOf, workloadNamed)

-- | How much is measured.
data Extent
  = -- | about two hours
    Whole
  | -- | ten minutes
    Quick
  | -- | one point of each experiment of the quick ones, the smallest
    Tiny
  deriving stock (Eq, Show)

-- | The name of an extent in the rows.
extentName :: Extent -> Text
extentName = \case
  Whole -> "whole"
  Quick -> "quick"
  Tiny -> "tiny"

-- | An experiment.
data Planned = Planned
  { -- | as @works.json@ and the names of pictures call it
    plannedName :: !Text,
    plannedTitle :: !Text,
    -- | what is done, a sentence or two
    plannedAbout :: !Text,
    -- | a workload, or @yield@
    plannedWorkload :: !Text,
    -- | what does it; if empty, all that the workload knows
    plannedContenders :: ![Text],
    plannedKeys :: ![(Text, [Int])],
    plannedRounds :: !Int,
    -- | seconds that one measurement takes, from the start of its process to the end, as they were
    -- seen on two processors
    plannedSeconds :: !Double,
    -- | the parameter along the picture, and what is written there
    plannedX :: !(Text, Text),
    -- | the field of the rows up the picture, its unit, and what is written there
    plannedY :: !(Text, Double, Text)
  }

-- | All points of a plan.
pointsPlanned :: Planned -> [Point]
pointsPlanned = pointsOf . plannedKeys

-- | The contenders that take part.
contendersPlanned :: Planned -> [Text]
contendersPlanned p = case plannedContenders p of
  [] -> maybe [] contenderNames (workloadNamed (plannedWorkload p))
  some -> some

-- | How many there are.
measurements :: Planned -> Int
measurements p = length (contendersPlanned p) * length (pointsPlanned p) * plannedRounds p

-- | How long they take.
secondsPlanned :: Planned -> Double
secondsPlanned p = fromIntegral (measurements p) * plannedSeconds p

-- | All experiments, in the order of the page.
plan :: Extent -> [Planned]
plan = \case
  Whole -> experiments True
  Quick -> experiments False
  Tiny -> [p {plannedKeys = [(k, take 1 (if k == "steps" then [100] else vs)) | (k, vs) <- plannedKeys p]} | p <- experiments False]

-- | The experiments of Li 2008, section 5.4, in its order: those in which it compares six configurations of threads, with
-- these only ('configurations'), and that of GHC's threads with select. After them what goals of @weft-substrate@ are about.
substrateExperiments :: Extent -> [Planned]
substrateExperiments extent = [configured p | name <- ["disk", "select", "pipes-token", "memory"], p <- plan extent, plannedName p == name] ++ goals extent
  where
    configured p = if plannedName p == "select" then p else p {plannedContenders = configurations}

-- | C, GHC's threads, the monad on each, ConcLib_OS and ConcLib_MP, which has two forms here. Beside them direct threads. C
-- is the base of the ratios.
configurations :: [Text]
configurations = ["NPTL", "forkIO", "weft-epoll", "weft-epoll-on-ConcLib_OS", "ConcLib_OS", "ConcLib_MP", "ConcLib_MP-epoll-HEC", "direct-epoll"]

-- What threads do to each other.
goals :: Extent -> [Planned]
goals extent =
  [ goal "yields" "Turns given to 999 other threads" mp [1] 1_000 4_000_000,
    goal "ping-pong" "A value from one thread to another, by an MVar" mp [1] 2 4_000_000,
    goal "os-ping-pong" "A value from one OS thread to another, by an MVar" ["forkOS", "ConcLib_OS"] [1, 2] 2 200_000,
    (goal "switches" "Turns of stacks of the substrate in a queue, and of GHC's threads" bare [1] 1_000 4_000_000) {plannedKeys = [("processors", [1]), ("threads", if extent == Tiny then [1_000] else [1_000, 100_000]), ("total", [if extent == Whole then 4_000_000 else 400_000])]},
    goal "exchanges" "Two variables exchanged by a transaction, by a thread for each processor" bare [1, 2] 1 4_000_000,
    (goal "kept" "Bytes kept alive by a thread that waits for an MVar, or by a stack that waits for its turn" (mp <> ["stacks"]) [1] 100_000 100_000) {plannedRounds = 1, plannedY = ("live_bytes_per_thread", 1, "bytes for each thread")},
    goal "put-take" "A value put into an MVar and taken, where no thread waits" mp [1] 1 4_000_000,
    goal "fork-join" "100,000 threads forked, and waited for" mp [1, 2] 100_000 2_000_000
  ]
  where
    mp = ["forkIO", "ConcLib_MP"]
    bare = ["forkIO", "stacks"]
    goal name title those processors threads total =
      Planned
        name
        title
        "By GHC's threads and by those of the library that is like them; with a nursery of 4 MB, where threads are forked of 64 MB."
        name
        those
        [("processors", if extent == Tiny then [1] else processors), ("threads", [threads]), ("total", [if extent == Whole then total else total `div` 10])]
        3
        1
        ("processors", "processors")
        ("per_second", 1e-6, "million operations in a second")

-- The whole, or quick ones.
experiments :: Bool -> [Planned]
experiments whole =
  [ Planned
      "threads"
      "Memory of a thread that yields in a loop"
      "Threads that yield over and over; what each keeps alive, the run queue included."
      "yield"
      ["weft-epoll", "direct-epoll", "forkIO", "Go", "tokio"]
      [("threads", pick [1_000_000, 10_000_000] [20_000, 100_000])]
      rounds
      (pick 18 0.5)
      ("threads", "threads")
      ("live_bytes_per_thread", 1, "bytes kept alive for each thread"),
    Planned
      "spread"
      "Threads that compute and yield"
      "1,024 threads, all forked on one worker, compute and yield, over and over; with a counter each turn increments one variable that all share."
      "spread"
      []
      [("processors", [1, 2]), ("threads", [1_024]), ("turns", [pick 20 4]), ("steps", [50_000]), ("counter", [0, 1])]
      rounds
      (pick 1.2 0.5)
      ("processors", "processors")
      ("speedup", 1, "times as fast as on one processor"),
    Planned
      "disk"
      "Random reads of 4 KB past the page cache"
      "Each thread reads blocks at random from one file that is opened with O_DIRECT."
      "disk-random"
      []
      [("processors", [1]), ("threads", pick [1, 64, 128, 1_024, 16_384, 65_536] [1, 16, 128, 1_024]), ("reads", [pick 16_384 4_096]), ("file-bytes", [pick 1_073_741_824 134_217_728])]
      rounds
      (pick 1.1 0.6)
      ("threads", "threads")
      ("per_second", 1, "reads in a second"),
    Planned
      "pipes-idle"
      "128 pairs over pipes, beside idle threads"
      "In each pair one thread sends 32 KB over a pipe that holds 4 KB and waits for as many; each idle thread waits at a FIFO of its own."
      "pipes"
      threads
      (pipes [128] 32_768 (pick [0, 256, 4_096, 16_384] [0, 1_024, 8_192]) (pick 536_870_912 134_217_728))
      rounds
      (pick 1.1 0.6)
      ("idle", "idle threads, and one")
      ("per_second", 1e-6, "MB in a second"),
    Planned
      "pipes-active"
      "Pairs over pipes, none idle"
      "As before, by the number of pairs."
      "pipes"
      threads
      (pipes (pick [1, 4, 16, 32, 128, 1_024, 4_096] [1, 4, 16, 128, 1_024]) 32_768 [0] (pick 536_870_912 134_217_728))
      rounds
      (pick 1.25 0.6)
      ("pairs", "pairs of threads")
      ("per_second", 1e-6, "MB in a second"),
    Planned
      "pipes-token"
      "One byte over pipes, beside idle threads"
      "In each pair one byte goes there and back, over and over."
      "pipes"
      configurations
      (pipes [1, 128] 1 (pick [0, 16_384] [0, 8_192]) 100_000)
      rounds
      (pick 1.9 0.8)
      ("idle", "idle threads, and one")
      ("per_second", 1e-3, "thousand bytes in a second"),
    Planned
      "stm"
      "Increments of one variable"
      "One thread for each processor; each increment is a transaction, in C, Go and Rust the variable is under a mutex."
      "stm"
      []
      [("processors", [1, 2]), ("total", [pick 4_000_000 400_000])]
      rounds
      (pick 1 0.4)
      ("processors", "processors")
      ("per_second", 1e-6, "million increments in a second"),
    Planned
      "select"
      "One pair and one byte with GHC's select, beside idle threads"
      "GHC's run-time system without -threaded, which waits with select; beside it the one with epoll."
      "pipes"
      ["forkIO-select", "forkIO", "weft-epoll"]
      [("processors", [1]), ("pairs", [1]), ("bytes", [1]), ("capacity", [4_096]), ("idle", [0, 256, 512, 900, 1_024]), ("total", [pick 100_000 20_000])]
      rounds
      (pick 1 0.5)
      ("idle", "idle threads, and one")
      ("per_second", 1e-3, "thousand bytes in a second"),
    Planned
      "memory"
      "Memory of a thread that holds a buffer of 4 KB"
      "Threads that wait, each with a buffer that it has written: what the process may write to (virtual), and what of it is there (resident)."
      "memory"
      []
      [("threads", pick [16_384, 262_144] [4_096]), ("buffer", [4_096])]
      -- Bytes are the same in each round.
      1
      (pick 3 0.5)
      ("threads", "threads")
      ("resident_bytes_per_thread", 1, "resident bytes for each thread"),
    Planned
      "events-pong"
      "Event managers, all clients busy: a few bytes"
      "A connection for each request, which is answered with four bytes. Clients and server are GHC's threads in one process; what waits for them differs. `ghc-select` is the run-time system without -threaded: GHC's old manager, the work's (old), is in no GHC of today."
      "events-pong"
      []
      [("capabilities", [1]), ("clients", pick [1, 16, 64, 256] [4, 64]), ("idle", [0]), ("requests", [pick 20_000 4_000])]
      rounds
      (pick 2.8 0.7)
      ("clients", "clients")
      ("per_second", 1e-3, "thousand requests in a second"),
    Planned
      "events-file"
      "Event managers, all clients busy: a file"
      "The same with a file of 4,332 bytes, opened for each request."
      "events-file"
      []
      [("capabilities", [1]), ("clients", pick [1, 16, 64, 256] [4, 64]), ("idle", [0]), ("requests", [pick 20_000 4_000])]
      rounds
      (pick 4 0.8)
      ("clients", "clients")
      ("per_second", 1e-3, "thousand requests in a second"),
    Planned
      "events-idle"
      "Event managers, 64 busy clients beside idle connections"
      "Pong as before. Both ends of each connection are descriptors of the one process, which may have 20,000."
      "events-pong"
      []
      [("capabilities", [1]), ("clients", [64]), ("idle", pick [0, 256, 400, 1_024, 4_096, 8_192] [0, 400, 1_024, 4_096]), ("requests", [pick 20_000 4_000])]
      rounds
      (pick 4 1)
      ("idle", "idle connections, and one")
      ("per_second", 1e-3, "thousand requests in a second"),
    Planned
      "events-delays"
      "Event managers: threads that all sleep"
      "Each thread of GHC's sleeps for a millisecond and ends; on two capabilities, as in the work on two OS threads."
      "events-delays"
      []
      [("capabilities", [2]), ("threads", pick [1_000, 10_000, 100_000, 1_000_000] [1_000, 10_000, 100_000])]
      rounds
      (pick 7.5 0.5)
      ("threads", "threads")
      ("per_second", 1e-6, "million sleeps in a second"),
    Planned
      "queue"
      "Measured load by offered load"
      "A connection for each request of 305 bytes. The measured load is n·t/T, of n answers with the mean response time t in the time T. Where the listen queue is full the system drops connections, and clients come again after a while."
      "toy"
      ["toy-weft-epoll", "toy-nptl", "lighttpd", "nginx"]
      (served (pick [64, 128, 256, 512, 1_024] [64, 256, 512]) [128, 1_024] 0)
      rounds
      (pick 4 2.7)
      ("clients", "clients, the offered load")
      ("measured_load", 1, "measured load"),
    Planned
      "toy"
      "Response time, a connection for each request"
      "A page of 305 bytes. The toys accept, and start a thread or process for each connection. (The page experiment of docs/figures/http.md keeps its connections, and is another one.) Where the client is busy all the time (client_busy near 1 in works.json) it is the limit, and the response times are its own; processor time for a request (cpu_ns_per_operation) is the server's."
      "toy"
      -- Without the libraries of the substrate, here and below: the whole already takes two hours.
      ["toy-fork", "toy-nptl", "toy-pth", "toy-st", "toy-weft-epoll", "toy-weft-io_uring", "toy-direct-epoll", "toy-direct-io_uring", "toy-forkIO", "weft-epoll", "weft-io_uring", "nginx", "lighttpd", "apache-worker", "apache-prefork", "mini-httpd"]
      (served (pick [1, 64, 256, 512, 1_024] [64, 256, 512]) [1_024] 0)
      rounds
      (pick 4 2.7)
      ("clients", "clients")
      ("mean_us", 1e-3, "mean response time in milliseconds"),
    Planned
      "toy-ab"
      "Response time, a connection for each request, by ab"
      "The same asked by ApacheBench, the work's own client. Its mean is clients times time by requests. It is slower than ask, so that the servers differ less."
      "toy"
      ["toy-weft-epoll", "toy-forkIO", "toy-fork", "toy-nptl", "toy-pth", "toy-st", "lighttpd", "nginx"]
      (served (pick [64, 256, 512, 1_000] [64, 256, 512]) [1_024] 1)
      rounds
      (pick 4 2.7)
      ("clients", "clients")
      ("mean_us", 1e-3, "mean response time in milliseconds"),
    Planned
      "knot"
      "Which threads run first: favour connections, favour accept"
      "Files of 16 KB that are all cached, five requests on each connection."
      "knot"
      []
      (clients (pick [4, 64, 256, 1_024, 4_096] [64, 512]) [5] [1_024] 128 0)
      rounds
      (pick 4.5 3)
      ("clients", "clients")
      ("mbit_per_second", 1, "Mbit in a second"),
    Planned
      "served-files"
      "Random files of 16 KB, most of them on the disk"
      "By the number of clients; a server's own cache holds a twentieth of the files, and they leave the page cache before each measurement."
      "served-files"
      ["weft-epoll", "weft-io_uring", "nginx", "nginx-threads", "apache-worker", "apache-event"]
      (clients (pick [4, 64, 256, 1_024] [4, 64]) [0] [4_096] (pick 131_072 4_096) 1)
      rounds
      (pick 6 3)
      ("clients", "clients")
      ("mbit_per_second", 0.125, "MB in a second")
  ]
  where
    pick :: a -> a -> a
    pick full quick = if whole then full else quick
    rounds = pick 3 1
    -- Of the workload, but what needs a run-time system of its own.
    threads = ["weft-epoll", "weft-io_uring", "direct-epoll", "direct-io_uring", "forkIO", "NPTL", "Go", "tokio"]
    served n backlog ab = clients n [1] backlog 0 0 ++ [("ab", [ab])]
    clients n each backlog files cold =
      [("clients", n), ("each", each), ("backlog", backlog), ("files", [files]), ("file-bytes", [16_384]), ("cold", [cold]), ("seconds", [pick 2 1])]
    pipes pairs bytes idle total = [("processors", [1, 2]), ("pairs", pairs), ("bytes", [bytes]), ("capacity", [4_096]), ("idle", idle), ("total", [total])]
