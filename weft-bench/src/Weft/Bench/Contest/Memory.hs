-- |
-- Description : Virtual and resident memory of threads that each hold a buffer
--
-- Threads that wait, each with a buffer that it has written: by how much the process has grown
-- (Li 2008, table 5.1: 4 KB). The buffers come from @malloc@, for all contenders alike.
module Weft.Bench.Contest.Memory (memoryWork, memoryFlags) where

import Control.Concurrent (forkIO)
import Control.Concurrent.MVar
import Control.Monad (replicateM_)
import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as Bytes
import Foreign.Marshal.Alloc (mallocBytes)
import Foreign.Marshal.Utils (fillBytes)
import Foreign.Ptr (Ptr)
import System.Mem (performMajorGC)
import Weft (Settings (..), SystemSettings (..), blocking, defaultSettings, defaultSystemSettings, fork_, liftIO, runWith, systemKernel)
import Weft.Bench.Contest
import Weft.Bench.Contest.Kind
import Weft.Bench.Measure
import Weft.Bench.Plain (plainFlags)
import Weft.Bench.Proc (lineValue)
import Weft.ConcLib.MP qualified as MP
import Weft.Event qualified as Event
import Weft.IO qualified as IO

-- | Options of the run-time system: those of the program @weft@, not a nursery of 64 MB, which
-- would be the most of what there is to see.
memoryFlags :: [String]
memoryFlags = plainFlags

-- | By threads of a kind. The point: @threads@, and @buffer@ (bytes of each).
memoryWork :: Kind -> Point -> Either String (IO Work)
memoryWork kind point = do
  threads <- number point "threads"
  size <- number point "buffer"
  let hold = do
        p <- mallocBytes (max 1 size) :: IO (Ptr ())
        fillBytes p 1 size
      settingsOf source = defaultSettings {settingWorkers = Just 1, settingKernel = systemKernel defaultSystemSettings {systemBackend = source}}
      weft settings body =
        runWith settings $ do
          (arrive, arrived) <- liftIO (countdown threads)
          gate <- Event.newEvent
          begin <- liftIO snapshot
          replicateM_ threads (fork_ (body (hold >> arrive) gate))
          blocking arrived
          work <- liftIO (since threads begin)
          work <$ Event.set gate
      monadic ready gate = liftIO ready >> Event.wait gate
  pure $ case kind of
    Monadic source -> weft (settingsOf source) monadic
    MonadicOnHecs source -> weft (onHecs (settingsOf source)) monadic
    Direct source -> weft (settingsOf source) (\ready gate -> IO.direct (ready >> IO.await (Event.wait gate)))
    _ | Just library <- concLibOf kind -> runConcLib library 1 $ do
      (arrive, arrived) <- countdown threads
      gate <- MP.newEmptyMVar
      begin <- snapshot
      replicateM_ threads (forkConcLib library (hold >> arrive >> MP.readMVar gate))
      MP.outside arrived
      -- The threads are dropped with the run. Until here the gate lives, or they would learn that they wait for ever.
      since threads begin <* MP.isEmptyMVar gate
    _ -> do
      (arrive, arrived) <- countdown threads
      gate <- newEmptyMVar
      begin <- snapshot
      replicateM_ threads (forkIO (hold >> arrive >> readMVar gate))
      arrived
      since threads begin <* putMVar gate ()

data Before = Before !Nanoseconds !Nanoseconds !(Double, Double)

snapshot :: IO Before
snapshot = do
  before <- memory
  Before <$> now <*> processCpu <*> pure before

since :: Int -> Before -> IO Work
since threads (Before start cpu (virtual, resident)) = do
  time <- elapsedSince start
  used <- subtract cpu <$> processCpu
  (virtual', resident') <- memory
  let each a b = (b - a) / fromIntegral threads
  pure (Work threads time used [("virtual_bytes_per_thread", each virtual virtual'), ("resident_bytes_per_thread", each resident resident')])

-- After collections, so that what is dead does not count; the second one gives back what the
-- first one has copied from.
memory :: IO (Double, Double)
memory = do
  performMajorGC
  performMajorGC
  text <- Bytes.readFile "/proc/self/status"
  maybe (errorWithoutStackTrace "no memory in /proc/self/status") pure (parseMemory text)

-- | The bytes that a process may write to, and those of them that are there, of @\/proc\/PID\/status@. (Not
-- all of its addresses: GHC's run-time system reserves a terabyte of them.)
--
-- >>> parseMemory "VmSize:\t 9 kB\nVmRSS:\t 3 kB\nVmData:\t 2 kB\n"
-- Just (2048.0,3072.0)
parseMemory :: ByteString -> Maybe (Double, Double)
parseMemory text = (,) <$> value "VmData:" <*> value "VmRSS:"
  where
    value key = (* 1_024) . fromIntegral <$> lineValue key text
