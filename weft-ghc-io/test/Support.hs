-- |
-- Description : Common parts of the tests
module Support
  ( onWorkers,
    osThreads,
    socketPairs,
    untilWaiting,
    untilWaitingFor,
    untilBlocked,
    isBlocked,
    waitsNow,
  )
where

import Control.Concurrent (ThreadId, yield)
import Control.Monad (unless)
import GHC.Conc (ThreadStatus (..), threadStatus)
import Network.Socket
import System.Directory (listDirectory)
import System.Posix.Types (Fd (..))
import Weft qualified
import Weft.IO qualified as IO
import Weft.Internal.Os.Foreign (waiting)

-- | Run on this number of workers.
onWorkers :: Int -> IO a -> IO a
onWorkers n = IO.runWith Weft.defaultSettings {Weft.settingWorkers = Just n}

-- | How many OS threads this process has.
osThreads :: IO Int
osThreads = length <$> listDirectory "/proc/self/task"

-- | Connected sockets.
socketPairs :: IO (Socket, Socket)
socketPairs = socketPair AF_UNIX Stream defaultProtocol

-- | In a direct thread: let others run until a Weft thread waits for this socket.
untilWaiting :: Socket -> IO ()
untilWaiting s = withFdSocket s (untilWaitingFor . Fd)

-- | As 'untilWaiting', for any descriptor.
untilWaitingFor :: Fd -> IO ()
untilWaitingFor fd@(Fd number) = waiting number >>= \n -> unless (n > 0) (IO.yield >> untilWaitingFor fd)

-- | Occupies its OS thread until this thread of GHC's is blocked.
untilBlocked :: ThreadId -> IO ()
untilBlocked thread = isBlocked thread >>= \blocked -> unless blocked (yield >> untilBlocked thread)

-- | Is this thread of GHC's blocked?
isBlocked :: ThreadId -> IO Bool
isBlocked thread =
  threadStatus thread >>= \case
    ThreadBlocked _ -> pure True
    _ -> pure False

-- | How many Weft threads wait for this socket.
waitsNow :: Socket -> IO Int
waitsNow s = withFdSocket s waiting
