-- |
-- Description : Common parts of the tests
--
-- Running threads under a chosen kernel, waiting without sleeping, and measuring
-- what the process holds and uses. Nothing here is a test.
module Test.Support
  ( -- * Running
    Config (..),
    configurations,
    describeConfig,
    settingsFor,
    takenOver,
    running,
    runningWith,
    inOneOf,
    runningQuietly,

    -- * Waiting for each other
    Gate,
    newGate,
    openGate,
    waitGate,
    spawn,
    spawnOn,
    eventually,
    dumpUntil,
    socketPair,
    boundPort,

    -- * What a thread observes
    maskingNow,
    failsWith,

    -- * The process
    openDescriptors,
    descriptorTargets,
    cpuTime,
  )
where

import Control.Exception (IOException)
import Control.Exception qualified as Exception
import Data.IORef
import Data.Int (Int64)
import Data.Text (Text)
import Network.Socket qualified as Network
import System.CPUTime (getCPUTime)
import System.Directory (getSymbolicLinkTarget, listDirectory)
import Test.Tasty.HUnit
import Weft
import Weft.Conformance.Check (failsWith)
import Weft.Conformance.Waiting
import Weft.Dump (dumpThreads)
import Weft.Internal.Core.SystemCall (Socket (..))
import Weft.Internal.Core.Trace (MaskingState, Tcb (..), ThreadState (..), self)
import Weft.Internal.Os.Descriptor (newDescriptor)
import Weft.Socket

-- | Which event source, and how many workers.
data Config = Config
  { configBackend :: !BackendChoice,
    configWorkers :: !Int
  }
  deriving stock (Eq, Show)

-- | Every event source, with one worker and with two.
configurations :: [Config]
configurations = Config <$> [Epoll, Uring, Poll] <*> [1, 2]

-- | For the name of a test.
describeConfig :: Config -> String
describeConfig (Config backend workers) = show backend <> ", " <> show workers <> (if workers == 1 then " worker" else " workers")

-- | Settings that drop all reports. Where there is one worker its threads take turns, whatever happens: it is
-- not taken over, as a busy machine has it happen to a thread that is in the middle of an effect, and which then
-- goes on beside the others.
settingsFor :: Config -> Settings
settingsFor config@(Config _ workers)
  | workers == 1 = (takenOver config) {settingCarriers = 0}
  | otherwise = takenOver config

-- | 'settingsFor', but for a worker that is held up another OS thread goes on, as programs have it.
takenOver :: Config -> Settings
takenOver (Config backend workers) =
  defaultSettings
    { settingWorkers = Just workers,
      settingKernel = systemKernel defaultSystemSettings {systemBackend = backend},
      settingReport = \_ -> pure (),
      settingUncaught = \_ _ _ -> pure ()
    }

-- | Run a thread; fail if an exception left a thread.
running :: (HasCallStack) => Config -> Thread a -> IO a
running = runningWith . settingsFor

-- | 'running' with these settings.
runningWith :: (HasCallStack) => Settings -> Thread a -> IO a
runningWith settings body = do
  uncaught <- newIORef []
  a <- runWith settings {settingUncaught = \_ _ e -> atomicModifyIORef' uncaught (\es -> (show e : es, ()))} body
  readIORef uncaught >>= (@?= [])
  pure a

-- | Succeed with one of these times: the next, longer one is tried where a busy machine has let the last one pass.
inOneOf :: [Duration] -> (Duration -> Assertion) -> Assertion
inOneOf times act = case times of
  time : longer@(_ : _) -> act time `Exception.catch` \(_ :: HUnitFailure) -> inOneOf longer act
  _ -> mapM_ act times

-- | One worker and epoll, uncaught exceptions dropped.
runningQuietly :: Thread a -> IO a
runningQuietly = runWith (settingsFor (Config Epoll 1))

-- | Dump all threads until there is such a dump. It knows who waits, also of threads that have waited before, whose
-- status says nothing.
dumpUntil :: (Text -> Bool) -> Thread Text
dumpUntil isIt = dumpThreads >>= \text -> if isIt text then pure text else yield >> dumpUntil isIt

-- | A connected pair of Unix-domain sockets.
socketPair :: Thread (Socket, Socket)
socketPair = liftIO $ do
  (a, b) <- Network.socketPair AF_UNIX Stream Network.defaultProtocol
  -- They are non-blocking: the package network sees to that.
  let adopt s = Socket <$> (Network.socketToFd s >>= newDescriptor) <*> pure AF_UNIX <*> pure Stream
  (,) <$> adopt a <*> adopt b

-- | The port that a listener was given.
boundPort :: Socket -> Thread Network.PortNumber
boundPort listener =
  localAddress listener >>= \case
    Network.SockAddrInet port _ -> pure port
    Network.SockAddrInet6 port _ _ _ -> pure port
    _ -> pure 0

-- | The masking state of this thread.
maskingNow :: Thread MaskingState
maskingNow = stateMasking . tcbState <$> self

-- | How many descriptors this process has open.
openDescriptors :: IO Int
openDescriptors = length <$> descriptorTargets

-- | The targets of the open descriptors, for a message.
descriptorTargets :: IO [String]
descriptorTargets = do
  names <- listDirectory "/proc/self/fd"
  mapM (\n -> either (\(_ :: IOException) -> n) ((n <> " ") <>) <$> Exception.try (getSymbolicLinkTarget ("/proc/self/fd/" <> n))) names

-- | CPU time of the process so far, in nanoseconds.
cpuTime :: IO Int64
cpuTime = fromInteger . (`div` 1000) <$> getCPUTime
