{-# OPTIONS_HADDOCK not-home #-}

-- | The counters of a run ("Weft.Counters"), those of GHC's garbage collector (@+RTS -T@), and the
-- standard @process_*@ metrics, from @\/proc@. All exist anyway and are only read at a scrape.
module Weft.Http.Metrics.Runtime
  ( registerRuntime,
    registerGhc,
    registerProcess,
    ProcessStat (..),
    parseStat,
    parseBootTime,
  )
where

import Control.Exception (IOException)
import Control.Monad (when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Map.Strict qualified as Map
import Data.Maybe (listToMaybe)
import Data.Text (Text)
import Data.Text qualified as Text
import Foreign.C.Types (CInt (..))
import GHC.Stats
import System.CPUTime (getCPUTime)
import System.Directory (listDirectory)
import System.Posix.Unistd (SysVar (ClockTick), getSysVar)
import Weft
import Weft.Counters
import Weft.Http.Internal.Descriptors
import Weft.Http.Metrics.Registry
import Weft.Http.Metrics.Types

-- | Register the counters of this thread's run.
registerRuntime :: Registry -> Thread ()
registerRuntime registry = counterReader >>= liftIO . registerFamilies registry runtimeFamilies (Counters [] 0 Map.empty)

runtimeFamilies :: Counters -> [(Description, [Sample])]
runtimeFamilies c =
  [ (gauge "weft_workers" "Workers of the run.", one (length (countersWorkers c))),
    (gauge "weft_carriers" "OS threads beside the workers' own that carry a worker or a thread that lost one.", one (countersCarriers c)),
    (gauge "weft_threads" "Threads that have started and not ended.", one (threadsAlive (total c))),
    (counter "weft_threads_started_total" "Threads started.", each countedStarted),
    (counter "weft_threads_failed_total" "Threads that an exception has ended.", each countedUncaught),
    (gauge "weft_threads_ready" "Threads in the ready queue.", each countedReady),
    (gauge "weft_threads_away" "Threads that have lost their worker because they did not come back.", each countedAway),
    (counter "weft_threads_shared_total" "Ready threads given to a worker that slept.", each countedShared),
    (counter "weft_dispatches_total" "Threads taken from the ready queue.", each countedDispatches),
    (counter "weft_slices_total" "Runs of dispatches between two polls.", each countedSlices),
    (counter "weft_polls_total" "Questions to the kernel what has happened.", each countedPolls),
    (counter "weft_poll_batches_total" "Those of them that found something.", each countedFruitful),
    (counter "weft_sleeps_total" "Those of them that could block.", each countedSleeps),
    (counter "weft_wakeups_total" "Sleeps ended by another OS thread.", each countedWakeUps),
    (counter "weft_takeovers_total" "How often a worker was given to another carrier.", each countedTakeovers),
    (counter "weft_stray_exceptions_total" "Exceptions thrown at a worker while no thread ran there, and dropped.", each countedStrays)
  ]
    <> [(family, [sample labels (Whole n) | (labels, key', n) <- ofKernel, key' == key]) | (key, family) <- kernelFamilies]
    <> [(Description "weft_kernel" "What a kernel says that is not the system's, by name." UntypedKind, others)]
  where
    one n = [sample [] (Whole n)]
    workers = [([("worker", Text.pack (show i))], w) | (i, w) <- zip [0 :: Int ..] (countersWorkers c)]
    each get = [sample labels (Whole (get w)) | (labels, w) <- workers]
    -- What the kernel counts for each worker, and for all together.
    ofKernel = [(labels, key, n) | (labels, counts) <- map (countedKernel <$>) workers <> [([], countersKernel c)], (key, n) <- Map.toList counts]
    others = [sample (("name", key) : labels) (Whole n) | (labels, key, n) <- ofKernel, key `notElem` map fst kernelFamilies]

-- | The system's kernel's values, by their names there: four for each worker, and three of the run.
kernelFamilies :: [(Text, Description)]
kernelFamilies =
  [ ("operations pending", gauge "weft_operations_pending" "Operations that the event source has not completed."),
    ("timers pending", gauge "weft_timers_pending" "Timers that are set."),
    ("completions", counter "weft_completions_total" "Operations completed by the event source."),
    ("timers fired", counter "weft_timers_fired_total" "Timers whose time has come."),
    ("pool threads", gauge "weft_pool_threads" "OS threads that carry out what blocks."),
    ("pool idle", gauge "weft_pool_idle_threads" "Those of them that have nothing to do."),
    ("pool waiting", gauge "weft_pool_waiting_jobs" "Jobs that none of them has taken.")
  ]

-- | Register the counters of GHC's runtime system if it keeps them (@+RTS -T@, @-with-rtsopts=-T@).
registerGhc :: Registry -> IO ()
registerGhc registry = do
  enabled <- getRTSStatsEnabled
  when enabled (registerFamilies registry families Nothing (Just <$> getRTSStats))
  where
    families stats =
      [ (counter "ghc_gc_collections_total" "Garbage collections.", value (Whole . fromIntegral . gcs)),
        (counter "ghc_gc_major_collections_total" "Those of the oldest generation.", value (Whole . fromIntegral . major_gcs)),
        (counter "ghc_allocated_bytes_total" "Bytes allocated on the heap.", value (Whole . fromIntegral . allocated_bytes)),
        (counter "ghc_gc_copied_bytes_total" "Bytes copied by garbage collections.", value (Whole . fromIntegral . copied_bytes)),
        (gauge "ghc_live_bytes" "Live data at the last garbage collection.", value (Whole . fromIntegral . gcdetails_live_bytes . gc)),
        (gauge "ghc_max_live_bytes" "The most live data at a major garbage collection.", value (Whole . fromIntegral . max_live_bytes)),
        (gauge "ghc_heap_bytes" "Memory that the runtime system has from the operating system.", value (Whole . fromIntegral . gcdetails_mem_in_use_bytes . gc)),
        (counter "ghc_mutator_cpu_seconds_total" "CPU time of the program itself.", value (Billionths . fromIntegral . mutator_cpu_ns)),
        (counter "ghc_gc_cpu_seconds_total" "CPU time of garbage collections.", value (Billionths . fromIntegral . gc_cpu_ns)),
        (counter "ghc_gc_elapsed_seconds_total" "Time for which garbage collections have stopped the program.", value (Billionths . fromIntegral . gc_elapsed_ns))
      ]
      where
        value get = [sample [] (get s) | Just s <- [stats]]

-- | Register CPU time, memory, descriptors and the start of the process.
registerProcess :: Registry -> IO ()
registerProcess registry = do
  ticks <- fromIntegral <$> getSysVar ClockTick
  page <- fromIntegral <$> c_getpagesize
  let families (cpu, open, most, stat, boot) =
        [ (counter "process_cpu_seconds_total" "CPU time of the process, user and system.", shown (Just (Billionths (fromIntegral (cpu `div` 1000))))),
          (gauge "process_open_fds" "Descriptors that are open.", shown (Whole <$> open)),
          (gauge "process_max_fds" "Descriptors that may be open.", [sample [] (Whole most) | most < maxBound]),
          (gauge "process_virtual_memory_bytes" "Size of the address space.", shown (Whole . statVirtual <$> stat)),
          (gauge "process_resident_memory_bytes" "Resident memory.", shown (Whole . (* page) . statResident <$> stat)),
          (gauge "process_threads" "OS threads.", shown (Whole . statThreads <$> stat)),
          (gauge "process_start_time_seconds" "When the process has started, in seconds since 1970-01-01 UTC.", shown (started <$> stat <*> boot))
        ]
      started s b = Billionths (b * 1_000_000_000 + statStart s * (1_000_000_000 `div` ticks))
  registerFamilies registry families (0, Nothing, 0, Nothing, Nothing) $
    (,,,,)
      <$> getCPUTime
      -- Less the directory's own descriptor.
      <*> orNone (Just . subtract 1 . length <$> listDirectory "/proc/self/fd")
      <*> mostDescriptors
      <*> orNone (parseStat <$> B.readFile "/proc/self/stat")
      <*> orNone (parseBootTime <$> B.readFile "/proc/stat")
  where
    shown value = [sample [] v | Just v <- [value]]
    orNone act = either (\(_ :: IOException) -> Nothing) id <$> try act

-- | The used fields of @\/proc\/self\/stat@.
data ProcessStat = ProcessStat
  { statThreads :: !Int,
    -- | Since the start of the system, in clock ticks.
    statStart :: !Int,
    -- | In bytes.
    statVirtual :: !Int,
    -- | In pages.
    statResident :: !Int
  }
  deriving stock (Eq, Show)

-- | Parse the fields after the last parenthesis: a program's name may contain anything.
parseStat :: ByteString -> Maybe ProcessStat
parseStat text = case traverse (fmap fst . C.readInt) (drop 17 fields) of
  Just (threads : _ : start : virtual : resident : _) -> Just (ProcessStat threads start virtual resident)
  _ -> Nothing
  where
    -- From the third field of the line to the resident memory.
    fields = take 22 (C.words (snd (C.breakEnd (== ')') text)))

-- | The start of the system, in seconds since 1970-01-01 UTC.
parseBootTime :: ByteString -> Maybe Int
parseBootTime text = listToMaybe [n | line <- C.lines text, Just rest <- [B.stripPrefix "btime " line], Just (n, "") <- [C.readInt rest]]

foreign import ccall unsafe "getpagesize" c_getpagesize :: IO CInt
