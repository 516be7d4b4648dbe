-- |
-- Description : Libraries of threads for plain IO, as records
--
-- So that one program runs on GHC's threads and on the concurrency libraries of @weft-substrate@.
module Weft.Bench.Contest.Calls (Calls (..), callsOf, ghcCalls, concLibCalls) where

import Control.Concurrent (forkIO, threadDelay, threadWaitRead, threadWaitWrite)
import Control.Monad (void, (>=>))
import Data.Word (Word8)
import Foreign.C.Error (throwErrnoIfMinus1Retry, throwErrnoIfMinus1RetryMayBlock)
import Foreign.C.Types (CInt (..), CSize (..))
import Foreign.Ptr (Ptr)
import GHC.Conc (closeFdWith)
import Network.Socket qualified as Net
import System.Posix.IO (FdOption (..), closeFd, setFdOption)
import System.Posix.Types (COff (..), CSsize (..), Fd (..))
import Weft.Bench.Contest.Kind
import Weft.ConcLib.IO qualified as ConcLib
import Weft.ConcLib.MP qualified as MP (threadDelay)

-- | A library of threads for plain 'IO': how it runs a main thread and forks, and its calls that wait.
data Calls = Calls
  { callsRun :: !(IO () -> IO ()),
    callsFork :: !(IO () -> IO ()),
    -- | lets threads begin to wait: 50 ms
    callsSettle :: !(IO ()),
    -- | makes a descriptor ready for its threads
    callsAdopt :: !(Fd -> IO ()),
    callsAccept :: !(Net.Socket -> IO Fd),
    callsRead :: !(Fd -> Ptr Word8 -> Int -> IO Int),
    callsWrite :: !(Fd -> Ptr Word8 -> Int -> IO Int),
    -- | reads at a position of a file
    callsReadAt :: !(Fd -> Ptr Word8 -> Int -> Int -> IO Int),
    -- | closes a connection
    callsClose :: !(Fd -> IO ())
  }

-- | The calls of a kind of threads; 'Nothing' for Weft's, which have their own. 'callsRun' takes one processor.
callsOf :: Kind -> Maybe Calls
callsOf = \case
  Ghc -> Just ghcCalls
  kind -> concLibCalls <$> concLibOf kind

-- | GHC's threads.
ghcCalls :: Calls
ghcCalls =
  Calls
    { callsRun = id,
      callsFork = void . forkIO,
      callsSettle = threadDelay 50_000,
      callsAdopt = \fd -> setFdOption fd NonBlockingRead True,
      callsAccept = Net.accept >=> fmap Fd . Net.socketToFd . fst,
      -- A call first, then the wait, as "GHC.Event" is meant to be used.
      callsRead = \fd p n -> untilDone "read" (c_read fd p (fromIntegral n)) (threadWaitRead fd),
      callsWrite = \fd p n -> untilDone "write" (c_write fd p (fromIntegral n)) (threadWaitWrite fd),
      callsReadAt = \fd p n at ->
        fromIntegral <$> throwErrnoIfMinus1Retry "pread" (c_pread fd p (fromIntegral n) (fromIntegral at)),
      callsClose = closeFdWith closeFd
    }
  where
    untilDone name call wait = fromIntegral <$> throwErrnoIfMinus1RetryMayBlock name call wait

-- | A library on the substrate.
concLibCalls :: ConcLib -> Calls
concLibCalls library =
  Calls
    { callsRun = runConcLib library 1,
      callsFork = forkConcLib library,
      callsSettle = MP.threadDelay 50_000,
      callsAdopt = void . ConcLib.adopt,
      callsAccept = \s -> Net.withFdSocket s (ConcLib.accept . Fd),
      callsRead = ConcLib.readFd,
      callsWrite = ConcLib.writeFd,
      callsReadAt = ConcLib.readAt,
      callsClose = ConcLib.closeFd
    }

foreign import ccall unsafe "read" c_read :: Fd -> Ptr Word8 -> CSize -> IO CSsize

foreign import ccall unsafe "write" c_write :: Fd -> Ptr Word8 -> CSize -> IO CSsize

foreign import ccall safe "pread" c_pread :: Fd -> Ptr Word8 -> CSize -> COff -> IO CSsize
