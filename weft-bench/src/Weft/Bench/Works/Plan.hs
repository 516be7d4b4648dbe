-- |
-- Description : Which workloads are measured for the page of the works, and at which points
--
-- A list of experiments in two sizes: the whole, from which figures are quoted, and a quick
-- one that shows that all of it works. Pure.
module Weft.Bench.Works.Plan
  ( Size (..),
    sizeName,
    Planned (..),
    plan,
    pointsPlanned,
  )
where

import Data.Text (Text)
import Weft.Bench.Contest (Point)
import Weft.Bench.Contest.Workload (pointsOf)

-- | How much is measured.
data Size = Whole | Quick
  deriving stock (Eq, Show)

-- | As the rows call it.
sizeName :: Size -> Text
sizeName = \case
  Whole -> "whole"
  Quick -> "quick"

-- | An experiment.
data Planned = Planned
  { -- | as @works.json@ and the names of pictures call it
    plannedName :: !Text,
    plannedTitle :: !Text,
    -- | what is done, a sentence or two
    plannedAbout :: !Text,
    -- | a workload, or @yield@
    plannedWorkload :: !Text,
    -- | who does it; nobody named: all that the workload knows
    plannedContenders :: ![Text],
    plannedKeys :: ![(Text, [Int])],
    plannedRounds :: !Int,
    -- | the parameter along the picture, and what is written there
    plannedX :: !(Text, Text),
    -- | the field of the rows up the picture, its unit, and what is written there
    plannedY :: !(Text, Double, Text)
  }

-- | All points.
pointsPlanned :: Planned -> [Point]
pointsPlanned = pointsOf . plannedKeys

-- | All experiments, in the order of the page.
plan :: Size -> [Planned]
plan size =
  [ Planned
      "threads"
      "Memory of a thread that yields in a loop"
      "Threads that yield over and over; what each keeps alive, the run queue included."
      "yield"
      []
      [("threads", pick [1_000_000] [20_000])]
      (pick 3 1)
      ("threads", "threads")
      ("live_bytes_per_thread", 1, "bytes kept alive for each thread"),
    Planned
      "spread"
      "Threads that compute and yield"
      "1,024 threads, all forked on one worker, compute and yield, over and over; with a counter each turn increments one variable that all share."
      "spread"
      []
      [("processors", [1, 2]), ("threads", [1_024]), ("turns", [pick 100 4]), ("steps", [50_000]), ("counter", [0, 1])]
      rounds
      ("processors", "processors")
      ("speedup", 1, "times as fast as on one processor"),
    Planned
      "disk"
      "Random reads of 4 KB past the page cache"
      "Each thread reads blocks at random from one file that is opened with O_DIRECT."
      "disk-random"
      []
      [("processors", [1]), ("threads", pick [1, 4, 16, 64, 256, 1_024, 4_096, 16_384, 65_536] [1, 16, 128, 1_024]), ("reads", [pick 131_072 4_096]), ("file-bytes", [pick 1_073_741_824 134_217_728])]
      rounds
      ("threads", "threads")
      ("per_second", 1, "reads in a second"),
    Planned
      "pipes-idle"
      "128 pairs over pipes, beside idle threads"
      "In each pair one thread sends 32 KB over a pipe that holds 4 KB and waits for as many; each idle thread waits at a FIFO of its own."
      "pipes"
      threads
      (pipes [128] 32_768 (pick [0, 256, 1_024, 4_096, 16_384] [0, 1_024, 8_192]) (pick 4_294_967_296 67_108_864))
      rounds
      ("idle", "idle threads, and one")
      ("per_second", 1e-6, "MB in a second"),
    Planned
      "pipes-active"
      "Pairs over pipes, none idle"
      "As before, by the number of pairs."
      "pipes"
      threads
      (pipes (pick [1, 2, 4, 8, 16, 32, 64, 128, 256, 1_024, 4_096] [1, 4, 16, 128, 1_024]) 32_768 [0] (pick 4_294_967_296 67_108_864))
      rounds
      ("pairs", "pairs of threads")
      ("per_second", 1e-6, "MB in a second"),
    Planned
      "pipes-token"
      "One byte over pipes, beside idle threads"
      "In each pair one byte goes there and back, over and over."
      "pipes"
      threads
      (pipes [1, 128] 1 (pick [0, 256, 1_024, 4_096, 16_384] [0, 8_192]) (pick 4_000_000 100_000))
      rounds
      ("idle", "idle threads, and one")
      ("per_second", 1e-3, "thousand bytes in a second"),
    Planned
      "stm"
      "Increments of one variable"
      "One thread for each processor; each increment is a transaction, in C the variable is under a mutex."
      "stm"
      []
      [("processors", [1, 2]), ("total", [pick 10_000_000 400_000])]
      rounds
      ("processors", "processors")
      ("per_second", 1e-6, "million increments in a second"),
    Planned
      "select"
      "One pair and one byte with GHC's select, beside idle threads"
      "GHC's run-time system without -threaded, which waits with select; beside it the one with epoll."
      "pipes"
      ["forkIO-select", "forkIO", "weft-epoll"]
      [("processors", [1]), ("pairs", [1]), ("bytes", [1]), ("capacity", [4_096]), ("idle", [0, 256, 512, 900, 1_024]), ("total", [pick 400_000 20_000])]
      rounds
      ("idle", "idle threads, and one")
      ("per_second", 1e-3, "thousand bytes in a second"),
    Planned
      "memory"
      "Memory of a thread that holds a buffer of 4 KB"
      "Threads that wait, each with a buffer that it has written: what the process may write to (virtual), and what of it is there (resident)."
      "memory"
      []
      [("threads", pick [16_384, 262_144] [4_096]), ("buffer", [4_096])]
      (pick 3 1)
      ("threads", "threads")
      ("resident_bytes_per_thread", 1, "resident bytes for each thread"),
    Planned
      "queue"
      "Measured load by offered load"
      "A connection for each request of 305 bytes. The measured load is n·t/T, of n answers with the mean response time t in the time T. Where the listen queue is full the system drops connections, and clients come again after a while."
      "toy"
      ["toy-weft-epoll", "toy-nptl", "lighttpd", "nginx"]
      (served [1] [128, 1_024] 0 0)
      rounds
      ("clients", "clients, the offered load")
      ("measured_load", 1, "measured load"),
    Planned
      "toy"
      "Response time, a connection for each request"
      "A page of 305 bytes. The toys accept, and start a thread or process for each connection. (The page experiment of docs/figures/http.md keeps its connections, and is another one.) Where the client is busy all the time (client_busy near 1 in works.json) it is the limit, and the response times are its own; processor time for a request (cpu_ns_per_operation) is the server's."
      "toy"
      []
      (served [1] [1_024] 0 0)
      rounds
      ("clients", "clients")
      ("mean_us", 1e-3, "mean response time in milliseconds"),
    Planned
      "knot"
      "Which threads run first: favour connections, favour accept"
      "Files of 16 KB that are all cached, five requests on each connection."
      "knot"
      []
      (clients (pick [1, 4, 16, 64, 256, 1_024, 4_096] [4, 64, 512]) [5] [1_024] 128 0)
      rounds
      ("clients", "clients")
      ("mbit_per_second", 1, "Mbit in a second"),
    Planned
      "served-files"
      "Random files of 16 KB, most of them on the disk"
      "By the number of clients; a server's own cache holds a twentieth of the files, and they leave the page cache before each measurement."
      "served-files"
      []
      (clients (pick [1, 4, 16, 64, 256, 1_024] [4, 64]) [0] [4_096] (pick 131_072 4_096) 1)
      (pick 3 1)
      ("clients", "clients")
      ("mbit_per_second", 0.125, "MB in a second")
  ]
  where
    pick whole quick = if size == Whole then whole else quick
    rounds = pick 5 1
    -- Of the workload, but what needs a run-time system of its own.
    threads = ["weft-epoll", "weft-io_uring", "direct-epoll", "direct-io_uring", "forkIO", "NPTL", "Go"]
    served = clients (pick [1, 16, 64, 128, 192, 256, 384, 512, 768, 1_024] [1, 64, 192, 512])
    clients n each backlog files cold =
      [("clients", n), ("each", each), ("backlog", backlog), ("files", [files]), ("file-bytes", [16_384]), ("cold", [cold]), ("seconds", [pick 4 1])]
    pipes pairs bytes idle total = [("processors", [1, 2]), ("pairs", pairs), ("bytes", [bytes]), ("capacity", [4_096]), ("idle", idle), ("total", [total])]
