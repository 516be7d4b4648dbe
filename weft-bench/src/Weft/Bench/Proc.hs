-- |
-- Description : Processor time of a process and its children, from /proc
--
-- Processor time of a server: user and system time of every OS thread of every
-- process in its process group (a server is started as the leader of its own, see
-- "Weft.Bench.Child", so that worker processes are counted). The parsers are pure.
module Weft.Bench.Proc
  ( -- * Processor time
    CpuTime (..),
    groupCpuTime,
    cpuTimeSince,
    groupIsAlive,

    -- * Storage
    groupDiskBytes,

    -- * Reading \/proc
    groupFiles,
    lineValue,

    -- * Parsers
    Stat (..),
    parseStat,
  )
where

import Control.Exception (IOException, try)
import Data.ByteString.Char8 (ByteString)
import Data.ByteString.Char8 qualified as Bytes
import Data.Char (isDigit)
import Data.Int (Int64)
import Data.Maybe (catMaybes, listToMaybe, mapMaybe)
import Foreign.C.Types (CInt (..), CLong)
import Foreign.Marshal (alloca, allocaArray)
import Foreign.Ptr (Ptr)
import Foreign.Storable (peek, peekElemOff)
import System.Directory (listDirectory)
import System.FilePath ((</>))
import System.Posix.Types (CPid (..), ProcessGroupID)
import System.Posix.Unistd (SysVar (ClockTick), getSysVar)
import Text.Read (readMaybe)

-- | Processor time by two accounts.
data CpuTime = CpuTime
  { -- | by the scheduler, exact: the clocks of the processes, which count OS threads
    -- that have ended too. (The sum over @\/proc\/PID\/task\/*\/schedstat@ loses
    -- those: a server with a pool of threads was once seen to spend less than nothing.)
    cpuScheduled :: !Int64,
    -- | by @utime@ and @stime@ of @\/proc\/PID\/stat@, in the kernel's clock ticks
    -- (mostly 10 ms). The cross-check.
    cpuTicked :: !Int64
  }
  deriving stock (Eq, Show)

-- | The time spent from the first to the second.
cpuTimeSince :: CpuTime -> CpuTime -> CpuTime
cpuTimeSince (CpuTime a b) (CpuTime a' b') = CpuTime (a' - a) (b' - b)

-- | The time that the processes of a group have spent so far, in nanoseconds. A process
-- or thread that ends while this looks counts as nothing.
groupCpuTime :: ProcessGroupID -> IO CpuTime
groupCpuTime group = do
  tick <- fromIntegral . (1_000_000_000 `div`) <$> getSysVar ClockTick
  members <- groupMembers group
  scheduled <- traverse (maybe (pure 0) processClock . readMaybe . fst) members
  -- A process whose parent has waited for it is in no clock but in the parent's ticks.
  let ended = tick * sum (map (statEnded . snd) members)
  pure (CpuTime (sum scheduled + ended) (tick * sum (map (statTicks . snd) members) + ended))

-- | The time that a process has spent on processors, in nanoseconds; 0 when it has gone.
processClock :: CPid -> IO Int64
processClock pid = alloca $ \clock -> allocaArray 2 $ \time -> do
  known <- clock_getcpuclockid pid clock
  result <- if known == 0 then peek clock >>= \c -> clock_gettime c time else pure (-1)
  if result /= 0
    then pure 0
    else (\s n -> fromIntegral s * 1_000_000_000 + fromIntegral n) <$> peekElemOff time 0 <*> peekElemOff time 1

foreign import ccall unsafe "clock_getcpuclockid"
  clock_getcpuclockid :: CPid -> Ptr CInt -> IO CInt

-- A timespec is two longs.
foreign import ccall unsafe "clock_gettime"
  clock_gettime :: CInt -> Ptr CLong -> IO CInt

-- | Is there a process in the group that has not ended? One that has, and that
-- was not waited for, does not count: how soon orphans are waited for is the
-- business of the machine's first process.
groupIsAlive :: ProcessGroupID -> IO Bool
groupIsAlive group = any ((`notElem` ['Z', 'X']) . statState . snd) <$> groupMembers group

groupMembers :: ProcessGroupID -> IO [(FilePath, Stat)]
groupMembers group = do
  pids <- filter (all isDigit) <$> entries "/proc"
  stats <- traverse (\pid -> (,) pid . (>>= parseStat) <$> contents ("/proc" </> pid </> "stat")) pids
  pure [(pid, stat) | (pid, Just stat) <- stats, statGroup stat == fromIntegral group]

-- | Bytes that the processes of a group have made the disk deliver so far: what they
-- read and the operating system did not have in its cache.
groupDiskBytes :: ProcessGroupID -> IO Int64
groupDiskBytes group = sum . mapMaybe (lineValue "read_bytes:") <$> groupFiles "io" group

-- | The file of that name under @\/proc\/PID@ of every process of a group; the
-- leader's comes as the others do, in no order.
groupFiles :: FilePath -> ProcessGroupID -> IO [ByteString]
groupFiles name group = do
  members <- groupMembers group
  catMaybes <$> traverse (\(pid, _) -> contents ("/proc" </> pid </> name)) members

-- | The number after the first word of a line.
--
-- >>> lineValue "Rss:" "Rss:    1884 kB\nPss:   432 kB\n"
-- Just 1884
lineValue :: ByteString -> ByteString -> Maybe Int64
lineValue key text = listToMaybe [n | name : value : _ <- map Bytes.words (Bytes.lines text), name == key, Just n <- [integer value]]

-- A process that has vanished in the meantime has no entries and no contents.
entries :: FilePath -> IO [FilePath]
entries path = either vanished id <$> try (listDirectory path)
  where
    vanished :: IOException -> [FilePath]
    vanished _ = []

contents :: FilePath -> IO (Maybe ByteString)
contents path = either vanished Just <$> try (Bytes.readFile path)
  where
    vanished :: IOException -> Maybe ByteString
    vanished _ = Nothing

-- | The fields of @\/proc\/PID\/stat@ that are used.
data Stat = Stat
  { -- | @Z@: it has ended and was not waited for
    statState :: !Char,
    statGroup :: !Int64,
    -- | user and system time, in clock ticks
    statTicks :: !Int64,
    -- | that of its children that it has waited for, and theirs
    statEnded :: !Int64
  }
  deriving stock (Eq, Show)

-- | The name of the program stands in parentheses and may itself contain spaces
-- and parentheses: the fields are counted from the last one.
parseStat :: ByteString -> Maybe Stat
parseStat line
  | Bytes.null name = Nothing
  | otherwise = case Bytes.words rest of
      state : _parent : group : fields
        | utime : stime : cutime : cstime : _ <- drop 8 fields ->
            Stat . fst <$> Bytes.uncons state <*> integer group <*> both utime stime <*> both cutime cstime
      _ -> Nothing
  where
    (name, rest) = Bytes.spanEnd (/= ')') line
    both a b = (+) <$> integer a <*> integer b

integer :: ByteString -> Maybe Int64
integer text = case Bytes.readInt text of
  Just (n, "") -> Just (fromIntegral n)
  _ -> Nothing
