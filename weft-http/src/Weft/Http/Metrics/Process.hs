{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The metrics of the process
--
-- The standard @process_*@ metrics of Prometheus, read from @\/proc@ as far as the system has them.
module Weft.Http.Metrics.Process (registerProcess, ProcessStat (..), parseStat, parseBootTime) where

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

-- | Register CPU time, memory, descriptors and the start of the process.
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
      -- Less the directory's own descriptor.
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

-- | Parse the fields after the last parenthesis: the program's name, in parentheses, may contain
-- anything.
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
