{-# OPTIONS_HADDOCK not-home #-}

-- | Machines that start, crash and start again, for programs that know they are simulated: the
-- test, not what is tested. Each is a system call that no real kernel answers.
module Weft.Sim.Internal.Steering
  ( newMachine,
    newMachineWith,
    thisMachine,
    onMachine,
    boot,
    crash,
    crashNow,
    restart,
    restartNow,
    isUp,
    setClockSkew,
    remark,
  )
where

import Control.Monad (forM_, unless, when)
import Control.Monad.Catch (bracket_)
import Data.IORef
import Data.IntSet qualified as IntSet
import Data.Primitive.Array
import Data.Primitive.PrimVar
import Data.Text (Text)
import Network.Socket (HostAddress)
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Time (Duration (..))
import Weft.Internal.Kernel (Host (..), hostWorkers)
import Weft.Sim.Internal.Disk.Device (crashDisk)
import Weft.Sim.Internal.Kernel
import Weft.Sim.Internal.Network (crashMachine)
import Weft.Sim.Internal.Signals (crashSignals)
import Weft.Sim.Internal.Ticket
import Weft.Sim.Internal.World

-- | One more machine, which runs nothing. It gets the next address of 10.0.0.0.
newMachine :: Text -> Thread Machine
newMachine name = newMachineWith name []

-- | As 'newMachine', with these addresses, in network byte order.
newMachineWith :: Text -> [HostAddress] -> Thread Machine
newMachineWith name addresses = steer "make a machine" (\sim _ -> addMachine (simWorld sim) name addresses)

-- | The machine this thread is on.
thisMachine :: Thread Machine
thisMachine = steer "ask for the machine" (\_ ask -> pure (askMachine ask))

-- | Run a part of this thread on another machine, with the threads that it forks. Those live until
-- that machine crashes; so does this thread, until the part is over, and if the machine is down it
-- ends here. No thread is told of their end: a scope elsewhere that owns one of them waits for
-- ever, and if the main thread is among them the run has no result.
onMachine :: Machine -> Thread a -> Thread a
onMachine machine body = do
  there <- steer "ask for the life of a machine" (\_ _ -> Residence (machineNumber machine) <$> readIORef (machineLife machine))
  here <- residenceOf <$> self
  bracket_ (changeContext (residing there)) (changeContext (residing here)) body

-- | Give a machine its program, and start it there: now, if the machine is up, and at every
-- 'restart'. An exception that leaves it is a failure of the run ('Weft.Sim.resultUncaught').
-- Does not wait for it. A second program takes the place of the first at the next restart, and
-- runs beside it until then.
boot :: Machine -> Thread () -> Thread ()
boot machine program = steer ("boot " <> show machine) $ \sim _ -> do
  writeIORef (machineProgram machine) (Just program)
  launch sim machine

launch :: Sim -> Machine -> IO ()
launch sim machine = do
  hosts <- readIORef (simHost sim)
  forM_ hosts $ \host -> do
    up <- readIORef (machineUp machine)
    -- A thread that starts when the run closes would never be ended.
    closing <- readIORef (homeClosing (hostHome host))
    when (up && not closing) $ do
      program <- readIORef (machineProgram machine)
      life <- readIORef (machineLife machine)
      note (simWorld sim) (show machine <> " starts")
      let context = residing (Residence (machineNumber machine) life) rootContext
          there = indexArray (homePeers (hostHome host)) (machineNumber machine `mod` hostWorkers host)
      mapM_ (homeStart there (newTcb nobody context) . const . toTrace) program

-- | A machine loses its power: its threads are gone without their finalizers, its
-- connections without a word, and of its disk what was not synced. If it is down already
-- nothing happens; nor if it is the home machine, on which the main thread began.
crash :: Machine -> Thread ()
crash machine = steer ("crash " <> show machine) (\sim _ -> crashNow sim machine)

crashNow :: Sim -> Machine -> IO ()
crashNow sim machine = do
  up <- readIORef (machineUp machine)
  when (up && machineNumber machine /= 0) $ do
    let world = simWorld sim
    note world (show machine <> " crashes")
    readPrimVar (worldDeaths world) >>= writePrimVar (worldDeaths world) . (+ 1)
    writeIORef (machineUp machine) False
    modifyIORef' (machineLife machine) (+ 1)
    crashMachine (simNetwork sim) machine
    crashDisk (simDisks sim) machine
    crashSignals (simSignals sim) machine
    writeIORef (machineDescriptors machine) IntSet.empty

-- | A machine that has crashed starts its program again. If it is up nothing happens. When the
-- main thread has ended no program is started any more.
restart :: Machine -> Thread ()
restart machine = steer ("restart " <> show machine) (\sim _ -> restartNow sim machine)

restartNow :: Sim -> Machine -> IO ()
restartNow sim machine = do
  up <- readIORef (machineUp machine)
  unless up $ writeIORef (machineUp machine) True >> launch sim machine

-- | Is it running?
isUp :: Machine -> Thread Bool
isUp machine = steer ("is " <> show machine <> " up?") (\_ _ -> readIORef (machineUp machine))

-- | Its wall clock is ahead of the world's by this much. The monotonic clock is not affected.
setClockSkew :: Machine -> Duration -> Thread ()
setClockSkew machine (Duration skew) = steer ("skew the clock of " <> show machine) $ \sim _ -> do
  note (simWorld sim) ("the clock of " <> show machine <> " is ahead by " <> show skew <> " ns")
  writeIORef (machineSkew machine) skew

-- | A line in the timeline.
remark :: String -> Thread ()
remark text = steer text (\sim _ -> note (simWorld sim) text)
