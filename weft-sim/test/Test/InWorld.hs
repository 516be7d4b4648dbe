-- |
-- Description : Threads in a world of their own, for tests of disks, signals and names
--
-- Under the production runtime with one worker; the simulated kernel answers. Nothing here
-- is a test.
module Test.InWorld
  ( -- * Worlds
    Told (..),
    inWorld,
    inWorld',
    everywhere,
    manySeeds,

    -- * Steering
    homeSteer,
    crashHome,
    onMachine,
    newMachine,

    -- * Expecting
    (===>),
    failsWith,
    errnoOf,
  )
where

import Control.Monad (forM_)
import Data.IORef
import Data.Maybe (fromMaybe)
import Data.Text qualified as Text
import Foreign.C.Error (Errno (..))
import Foreign.C.Types (CInt)
import GHC.IO.Exception (ioe_errno)
import Test.Tasty (TestName, TestTree)
import Test.Tasty.HUnit
import Weft
import Weft.Conformance.Check ((===>))
import Weft.Internal.Core.Trace (changeContext)
import Weft.Sim.Internal.Disk.Device (crashDisk)
import Weft.Sim.Internal.Kernel
import Weft.Sim.Internal.Ticket
import Weft.Sim.Internal.World

-- | The result of a run, and the notes and warnings of its world.
data Told a = Told {toldResult :: a, toldNotes :: [String], toldWarnings :: [String]}
  deriving stock (Eq, Show)

-- | Run in a new world; an exception that leaves a thread fails the test.
inWorld :: (HasCallStack) => Conditions -> Seed -> Thread a -> IO a
inWorld conditions seed body = toldResult <$> inWorld' conditions seed body

-- | 'inWorld', with what was recorded.
inWorld' :: (HasCallStack) => Conditions -> Seed -> Thread a -> IO (Told a)
inWorld' conditions seed body = do
  notes <- newIORef []
  warnings <- newIORef []
  uncaught <- newIORef []
  let keep ref line = modifyIORef' ref (line :)
  world <- newWorld conditions seed byChance (keep warnings)
  sim <- newSim seed world {worldNote = Just (keep notes)}
  a <-
    runWith
      defaultSettings
        { settingWorkers = Just 1,
          -- A worker that is taken over in the middle of an effect lets virtual time run on.
          settingCarriers = 0,
          settingKernel = simKernel sim,
          settingReport = \_ -> pure (),
          settingUncaught = \_ _ e -> keep uncaught (show e)
        }
      body
  readIORef uncaught >>= (@?= [])
  Told a . reverse <$> readIORef notes <*> (reverse <$> readIORef warnings)

-- | A test that is run in a calm world, and in rough ones of twenty seeds.
everywhere :: TestName -> Thread () -> TestTree
everywhere name body =
  testCase name $ do
    inWorld calm 1 body
    forM_ (manySeeds 20) (\seed -> inWorld rough seed body)

-- | The given number of seeds, from the first on.
manySeeds :: Int -> [Seed]
manySeeds n = map fromIntegral [1 .. n]

-- | Do something to the world, given the machine of this thread.
homeSteer :: (Sim -> Machine -> IO a) -> Thread a
homeSteer act = steer "a test" (\sim ask -> act sim (askMachine ask))

-- | The disk of this thread's machine loses its power. The thread goes on.
crashHome :: Thread ()
crashHome = homeSteer (crashDisk . simDisks)

-- | One more machine.
newMachine :: String -> Thread Machine
newMachine name = homeSteer (\sim _ -> addMachine (simWorld sim) (Text.pack name) [])

-- | Go there, do something, and come back.
onMachine :: Machine -> Thread a -> Thread a
onMachine machine body = go (machineNumber machine) *> body <* go 0
  where
    go n = changeContext (residing (Residence n 0))

-- | The action must fail with this errno.
failsWith :: (HasCallStack) => Errno -> Thread a -> Thread ()
failsWith wanted action =
  errnoOf action >>= \case
    Right _ -> liftIO (assertFailure "it should have failed")
    Left e -> liftIO (e @?= number wanted)
  where
    number (Errno n) = n

-- | The result, or the errno of the failure.
errnoOf :: Thread a -> Thread (Either CInt a)
errnoOf action = either (\(e :: IOError) -> Left (fromMaybe (-1) (ioe_errno e))) Right <$> try action
