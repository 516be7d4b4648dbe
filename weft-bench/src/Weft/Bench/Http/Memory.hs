-- |
-- Description : The memory of a server, its own and the kernel's for it
--
-- Resident memory of all processes of a server, and the memory of the kernel that
-- grows with connections. What is resident is counted twice: in full, and with pages
-- that several processes share divided among them. The kernel's is that of the whole
-- machine: it contains the client's half of every connection, and whatever else
-- happens, so only differences mean something. The parsers are pure.
module Weft.Bench.Http.Memory
  ( Memory (..),
    serverMemory,

    -- * Differences
    Growth (..),
    growth,

    -- * Parsers
    parseKernel,
    parseSocketPages,
  )
where

import Data.ByteString.Char8 (ByteString)
import Data.ByteString.Char8 qualified as Bytes
import Data.Int (Int64)
import Data.Maybe (fromMaybe, mapMaybe)
import System.Posix.Types (ProcessGroupID)
import Weft.Bench.Proc (groupFiles, lineValue)

-- | In bytes.
data Memory = Memory
  { -- | resident, every page counted in every process that has it
    memoryResident :: !Int64,
    -- | resident, a page that n processes have counted as an nth in each
    memoryProportional :: !Int64,
    -- | slabs, page tables, stacks and socket buffers of the whole machine
    memoryKernel :: !Int64
  }
  deriving stock (Eq, Show)

-- | Now. It takes as long as the kernel needs to walk the page tables.
serverMemory :: ProcessGroupID -> IO Memory
serverMemory group = do
  rollups <- groupFiles "smaps_rollup" group
  kernel <- parseKernel <$> Bytes.readFile "/proc/meminfo"
  pages <- parseSocketPages <$> Bytes.readFile "/proc/net/sockstat"
  let total key = 1024 * sum (mapMaybe (lineValue key) rollups)
  pure (Memory (total "Rss:") (total "Pss:") (kernel + 4096 * pages))

-- | Bytes for each connection.
data Growth = Growth
  { growthResident :: !Double,
    growthProportional :: !Double,
    -- | both ends of the connection
    growthKernel :: !Double
  }
  deriving stock (Eq, Show)

-- | The growth per connection from the first to the second, given the number of connections (not 0).
growth :: Int -> Memory -> Memory -> Growth
growth connections a b = Growth (each memoryResident) (each memoryProportional) (each memoryKernel)
  where
    each part = fromIntegral (part b - part a) / fromIntegral connections

-- | The bytes of @\/proc\/meminfo@ that are the kernel's and grow with connections and threads.
parseKernel :: ByteString -> Int64
parseKernel text = 1024 * sum (mapMaybe (`lineValue` text) ["Slab:", "PageTables:", "KernelStack:"])

-- | Pages in the buffers of TCP sockets, of @\/proc\/net\/sockstat@.
parseSocketPages :: ByteString -> Int64
parseSocketPages text =
  fromMaybe 0 . safeHead $
    [fromIntegral n | "TCP:" : pairs <- map Bytes.words (Bytes.lines text), ("mem", Just (n, "")) <- zip pairs (map Bytes.readInt (drop 1 pairs))]
  where
    safeHead list = case list of
      [] -> Nothing
      x : _ -> Just x
