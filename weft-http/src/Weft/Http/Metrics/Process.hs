-- |
-- Description : What the operating system knows of the process
-- Stability   : not home
--
-- The @process_*@ metrics that all of Prometheus' libraries have. Read from @\/proc@; what
-- a system does not have there is left out.
module Weft.Http.Metrics.Process
  ( registerProcess,
    ProcessStat (..),
    parseStat,
    parseBootTime,
  )
where

import Control.Exception (IOException, try)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Maybe (listToMaybe)
import Foreign.C.Types (CInt (..))
import System.CPUTime (getCPUTime)
import System.Directory (listDirectory)
import System.Posix.Unistd (SysVar (ClockTick), getSysVar)
import Weft.Http.Internal.Descriptors
import Weft.Http.Metrics.Registry
import Weft.Http.Metrics.Types

-- | Show CPU time, memory, descriptors and the start of the process.
registerProcess :: Registry -> IO ()
registerProcess registry =
  register
    registry
    [ Description "process_cpu_seconds_total" "CPU time of the process, user and system." CounterKind,
      gauge "process_open_fds" "Descriptors that are open.",
      gauge "process_max_fds" "Descriptors that may be open.",
      gauge "process_virtual_memory_bytes" "Size of the address space.",
      gauge "process_resident_memory_bytes" "Resident memory.",
      gauge "process_threads" "OS threads.",
      gauge "process_start_time_seconds" "When the process has started, in seconds since 1970-01-01 UTC."
    ]
    $ do
      cpu <- getCPUTime
      -- The directory itself is open while it is read.
      open <- orNone (Just . subtract 1 . length <$> listDirectory "/proc/self/fd")
      most <- mostDescriptors
      stat <- orNone (parseStat <$> B.readFile "/proc/self/stat")
      boot <- orNone (parseBootTime <$> B.readFile "/proc/stat")
      ticks <- fromIntegral <$> getSysVar ClockTick
      page <- fromIntegral <$> c_getpagesize
      let shown get = [sample [] v | Just v <- [get]]
          started s b = Billionths (b * 1_000_000_000 + statStart s * (1_000_000_000 `div` ticks))
      pure
        [ [sample [] (Billionths (fromIntegral (cpu `div` 1000)))],
          shown (Whole <$> open),
          [sample [] (Whole most) | most < maxBound],
          shown (Whole . statVirtual <$> stat),
          shown (Whole . (* page) . statResident <$> stat),
          shown (Whole . statThreads <$> stat),
          shown (started <$> stat <*> boot)
        ]
  where
    gauge name help = Description name help GaugeKind
    orNone act = either (\(_ :: IOException) -> Nothing) id <$> try act

-- | What we need of @\/proc\/self\/stat@.
data ProcessStat = ProcessStat
  { statThreads :: !Int,
    -- | After the start of the system, in clock ticks.
    statStart :: !Int,
    -- | In bytes.
    statVirtual :: !Int,
    -- | In pages.
    statResident :: !Int
  }
  deriving stock (Eq, Show)

-- | The name of the program is in parentheses and may contain anything, so the numbers
-- begin behind the last one.
parseStat :: ByteString -> Maybe ProcessStat
parseStat text = case traverse (fmap fst . C.readInt) (drop 17 fields) of
  Just (threads : _ : start : virtual : resident : _) -> Just (ProcessStat threads start virtual resident)
  _ -> Nothing
  where
    -- The third field of the line and those behind it, up to the resident memory.
    fields = take 22 (C.words (snd (C.breakEnd (== ')') text)))

-- | When the system was started, in seconds since 1970-01-01 UTC.
parseBootTime :: ByteString -> Maybe Int
parseBootTime text = listToMaybe [n | line <- C.lines text, Just rest <- [B.stripPrefix "btime " line], Just (n, "") <- [C.readInt rest]]

foreign import ccall unsafe "getpagesize" c_getpagesize :: IO CInt
