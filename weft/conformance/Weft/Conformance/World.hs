-- |
-- Description : Where the conformance tests run
--
-- The tests of "Weft.Conformance" are about what threads and their system calls mean,
-- whatever answers them. What they need beside that is a t'World': how to run a thread,
-- a directory, a signal, the lack of descriptors. Nothing else in this library may
-- touch the machine: in a simulated world there is none.
module Weft.Conformance.World
  ( -- * Worlds
    World (..),
    Listener (..),

    -- * Running
    running,
    listening,
    deaf,
    keepingDescriptors,
    conforms,
    inDirectory,
    ordered,
    anyOrder,
    always,
  )
where

import Control.Exception (SomeException)
import Data.ByteString (ByteString)
import Data.IORef
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Signal (SignalNumber)
import Weft.Socket (Socket)

-- | Everything that a test needs from outside of 'Thread'.
data World = World
  { -- | For the names of tests.
    worldName :: String,
    -- | How many workers run threads.
    worldWorkers :: Int,
    -- | Do threads that are ready run one after another, in the order in which they
    -- became ready? So it is with one worker and the default policy; a simulation that
    -- chooses the order says no, and is spared the tests that rely on it.
    worldInOrder :: Bool,
    -- | Are connections accepted in the order in which they came, whatever the worker that accepts?
    worldFirstCome :: Bool,
    -- | Run the main thread, and raise what leaves it.
    worldRun :: forall a. Listener -> Thread a -> IO a,
    -- | A directory that exists, and is empty, when the next run begins. Its path is
    -- absolute and has less than 60 bytes, for sockets have names in it.
    worldDirectory :: forall a. (ByteString -> IO a) -> IO a,
    -- | How many descriptors are open between two runs. Only differences count: a run
    -- that closes what it opens leaves the number as it was.
    worldDescriptors :: IO Int,
    -- | Leave the run that asks without a free descriptor; the answer frees them, and
    -- does nothing the second time.
    worldTakeDescriptors :: Thread (Thread ()),
    -- | The process receives this signal.
    worldRaise :: SignalNumber -> Thread (),
    -- | Make a symbolic link: what it says, and where it is.
    worldSymlink :: ByteString -> ByteString -> Thread (),
    -- | Make a FIFO, where there are any.
    worldFifo :: Maybe (ByteString -> Thread ()),
    -- | A file on a disk without room, where there is one.
    worldFullDisk :: IO (Maybe ByteString),
    -- | Can one bind to @::1@?
    worldIPv6 :: IO Bool,
    -- | Do threads of GHC run beside those of the run? They do where blocking actions
    -- may wait for what a thread does later, and transactions for each other.
    worldBeside :: Bool,
    -- | Does time pass while threads are ready? It does not where it only goes on when
    -- nothing else can.
    worldTimePasses :: Bool,
    -- | Is every thread woken at the time that was asked for, or as soon after it as there is
    -- nothing else to do, and does what is sent one after the other arrive so? A simulation
    -- in which answers are late and ways are of different lengths says no.
    worldPunctual :: Bool,
    -- | May a call send less than there is room for, or receive less than was sent by one
    -- call? Both are allowed to every stream; with sockets of the Unix domain, a real system
    -- does neither.
    worldCuts :: Bool,
    -- | Closing this connection, or one that this listener accepts, shall leave nothing
    -- in use: a machine has few ports, and keeps each for a minute (@SO_LINGER@).
    worldLeaveNoPort :: Socket -> Thread (),
    -- | How many rounds of something random, where a test proposes the given number.
    worldRounds :: Int -> Int
  }

-- | Receives the reports that no thread receives.
data Listener = Listener
  { -- | A line for the operator.
    heardReport :: String -> IO (),
    -- | An exception that left a thread other than the main one.
    heardUncaught :: SomeException -> IO ()
  }

-- | A listener that ignores all reports.
deaf :: Listener
deaf = Listener (\_ -> pure ()) (\_ -> pure ())

-- | Run a thread; fail if an exception left another one.
running :: (HasCallStack) => World -> Thread a -> IO a
running world = listening world (\_ -> pure ())

-- | As 'running', with a function that hears what is reported to the operator.
listening :: (HasCallStack) => World -> (String -> IO ()) -> Thread a -> IO a
listening world hear body = do
  uncaught <- newIORef []
  a <- worldRun world (Listener hear (\e -> atomicModifyIORef' uncaught (\es -> (show e : es, ())))) body
  readIORef uncaught >>= (@?= [])
  pure a

-- | Fail if the runs in this leave a descriptor open, or close one too many.
keepingDescriptors :: (HasCallStack) => World -> IO a -> IO a
keepingDescriptors world body = do
  before <- worldDescriptors world
  a <- body
  now <- worldDescriptors world
  now @?= before
  pure a

-- | A test that is one run, after which no descriptor is open that was not before.
conforms :: World -> TestName -> Thread () -> TestTree
conforms world name body = testCase name (keepingDescriptors world (running world body))

-- | 'conforms' in a directory.
inDirectory :: World -> TestName -> (ByteString -> Thread ()) -> TestTree
inDirectory world name body = testCase name . worldDirectory world $ \dir -> keepingDescriptors world (running world (body dir))

-- | A test that relies on the order of threads, where one can.
ordered :: World -> TestName -> Assertion -> Maybe TestTree
ordered world name body = if worldInOrder world then Just (testCase name body) else Nothing

-- | A test beside such.
always :: TestName -> Assertion -> Maybe TestTree
always name body = Just (testCase name body)

-- | May threads that are ready run in any order? A simulation chooses one, and of several workers one may be held
-- up anywhere.
anyOrder :: World -> Bool
anyOrder = not . worldInOrder
