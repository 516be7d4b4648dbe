-- |
-- Description : A concurrency library, as tests are given one
module Library (Library (..), onLibraries, limited, limitedAgain) where

import Control.Concurrent qualified as GHC
import Control.Exception (Exception, SomeException, throwIO, try)
import System.IO (hPutStrLn, stderr)
import System.Timeout (timeout)
import Test.Tasty
import Test.Tasty.HUnit
import Weft.ConcLib.MP qualified as MP
import Weft.ConcLib.OS qualified as OS

-- | The operations in which the libraries differ.
data Library t = Library
  { with :: forall a. IO a -> IO a,
    -- | Is a thread a stack, and not a HEC?
    isStack :: Bool,
    -- | Does a thread that computes or blocks leave the others their turns?
    preempts :: Bool,
    forkIO :: IO () -> IO t,
    forkIOWithUnmask :: ((forall a. IO a -> IO a) -> IO ()) -> IO t,
    forkFinally :: forall a. IO a -> (Either SomeException a -> IO ()) -> IO t,
    myThreadId :: IO t,
    yield :: IO (),
    throwTo :: forall e. (Exception e) => t -> e -> IO (),
    outside :: forall a. IO a -> IO a
  }

-- | Tests on every library in each of its configurations.
onLibraries :: (forall t. (Ord t, Show t) => Library t -> [TestTree]) -> [TestTree]
onLibraries tests =
  [ testGroup
      ("ConcLib_MP, " <> show n <> " HECs, " <> show collecting <> (if preempting then ", preempting" else ""))
      (tests (mp (MP.Settings {MP.settingHECs = n, MP.settingCollecting = collecting, MP.settingPreempts = preempting})))
    | preempting <- [False, True],
      collecting <- [MP.ByScheduler, MP.ByOwnHEC],
      n <- [1, 2]
  ]
    <> [testGroup "ConcLib_OS" (tests os)]

mp :: MP.Settings -> Library MP.ThreadId
mp settings =
  Library
    { with = MP.withConcLibSettings settings,
      isStack = True,
      preempts = MP.settingPreempts settings,
      forkIO = MP.forkIO,
      forkIOWithUnmask = MP.forkIOWithUnmask,
      forkFinally = MP.forkFinally,
      myThreadId = MP.myThreadId,
      yield = MP.yield,
      throwTo = MP.throwTo,
      outside = MP.outside
    }

os :: Library OS.ThreadId
os =
  Library
    { with = OS.withConcLib,
      isStack = False,
      preempts = True,
      forkIO = OS.forkIO,
      forkIOWithUnmask = OS.forkIOWithUnmask,
      forkFinally = OS.forkFinally,
      myThreadId = OS.myThreadId,
      yield = OS.yield,
      throwTo = OS.throwTo,
      outside = OS.outside
    }

-- | Within two minutes, or it fails.
limited :: IO () -> Assertion
limited act = within act >>= maybe (assertFailure "it does not end") pure

-- | 'limited', for a test that is known to hang now and then. It is tried once more then, and says so on standard error.
limitedAgain :: String -> IO () -> Assertion
limitedAgain what act =
  within act >>= \case
    Just () -> pure ()
    Nothing -> hPutStrLn stderr (what ++ ": it did not end, which is a known fault, and is tried again") >> limited act

-- | In two minutes, if it ends.
within :: IO () -> IO (Maybe ())
within act = do
  end <- GHC.newEmptyMVar
  _ <- GHC.forkOS (try act >>= GHC.putMVar end)
  timeout 120_000_000 (GHC.takeMVar end) >>= \case
    Just r -> either (throwIO :: SomeException -> IO (Maybe ())) (pure . Just) r
    Nothing -> pure Nothing
