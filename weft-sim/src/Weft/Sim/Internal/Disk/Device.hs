-- |
-- Description : The disks of all machines, their descriptors, and operations under way
-- Stability   : not home
--
-- Who has which file open, and how an operation takes time: it does everything at the
-- event of its completion, and before that nothing. Used by one OS thread at a time.
module Weft.Sim.Internal.Disk.Device
  ( -- * Disks
    Disks (..),
    Disk (..),
    newDisks,
    diskOf,
    onSystem,
    changeSystem,
    wallClock,
    noteDisk,

    -- * What is wrong with them
    setDiskErrors,
    setDiskCapacity,
    setDiskSlowness,

    -- * Descriptors
    Handle (..),
    openHandle,
    withHandle,
    refuseReal,
    isOpenHandle,
    lookupHandle,
    closeFile,

    -- * Operations
    operation,
    refuse,

    -- * Crashes
    crashDisk,
  )
where

import Control.Exception (SomeException, toException)
import Control.Monad (forM_, unless, void, when)
import Data.IORef
import Data.Int (Int64)
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.Maybe (isJust)
import Foreign.C.Error
import System.IO.Error (ioeSetErrorString)
import Weft.Internal.Backend (Descriptor (..))
import Weft.Internal.SystemCall
import Weft.Internal.Time (Duration)
import Weft.Internal.Trace
import Weft.Sim.Internal.Conditions
import Weft.Sim.Internal.Disk.Crash
import Weft.Sim.Internal.Disk.FileSystem
import Weft.Sim.Internal.Disk.Tree
import Weft.Sim.Internal.Events
import Weft.Sim.Internal.Random
import Weft.Sim.Internal.Ticket
import Weft.Sim.Internal.World

-- | The disks of a world.
data Disks = Disks
  { disksWorld :: !World,
    -- | By the number of the machine; made when they are first used.
    disksOf :: !(IORef (IntMap Disk)),
    -- | What is open, by the number of the descriptor, which says on which machine.
    disksHandles :: !(IORef (IntMap Handle))
  }

-- | One machine's disk.
data Disk = Disk
  { diskMachine :: !Machine,
    diskSystem :: !(IORef FileSystem),
    -- | How likely reads fail, and writes.
    diskErrors :: !(IORef (Double, Double)),
    -- | In bytes.
    diskRoom :: !(IORef Int),
    -- | How many times as long everything takes.
    diskSlowness :: !(IORef Double),
    -- | How often the power was lost: an operation from before that does nothing.
    diskOutages :: !(IORef Int)
  }

-- | An open file or directory.
data Handle = Handle
  { handleDescriptor :: !Descriptor,
    handleDisk :: !Disk,
    handleInode :: !Inode,
    handleMode :: !OpenMode,
    handleDirect :: !Bool,
    -- | For operations that name no offset.
    handlePosition :: !(IORef Int64),
    -- | The operations on it that are under way, oldest first: what completes one now, or
    -- ends it with @ECANCELED@.
    handleUnderWay :: !(IORef (Int, IntMap (Ending -> IO ())))
  }

-- | How an operation ends when its descriptor is closed.
data Ending = CompletesNow | IsCanceled

-- | All disks are empty.
newDisks :: World -> IO Disks
newDisks world = Disks world <$> newIORef IntMap.empty <*> newIORef IntMap.empty

-- | The disk of a machine.
diskOf :: Disks -> Machine -> IO Disk
diskOf disks machine = do
  known <- readIORef (disksOf disks)
  case IntMap.lookup (machineNumber machine) known of
    Just disk -> pure disk
    Nothing -> do
      now <- wallClockOf (disksWorld disks) machine
      disk <-
        Disk machine
          <$> newIORef (newFileSystem now)
          <*> newIORef (readErrors conditions, writeErrors conditions)
          <*> newIORef (diskCapacity conditions)
          <*> newIORef 1
          <*> newIORef 0
      disk <$ writeIORef (disksOf disks) (IntMap.insert (machineNumber machine) disk known)
  where
    conditions = worldConditions (disksWorld disks)

-- | Look at a file system. What is seen is evaluated, so that it does not keep all of it.
onSystem :: Disk -> (FileSystem -> a) -> IO a
onSystem disk f = do
  !a <- f <$> readIORef (diskSystem disk)
  pure a

-- | Change a file system.
changeSystem :: Disk -> (FileSystem -> FileSystem) -> IO ()
changeSystem disk = modifyIORef' (diskSystem disk)

-- | What time the machine believes it is.
wallClock :: Disks -> Disk -> IO Int64
wallClock disks = wallClockOf (disksWorld disks) . diskMachine

-- | Record what a disk does.
noteDisk :: Disks -> Disk -> String -> IO ()
noteDisk disks disk text = note (disksWorld disks) ("disk of " <> show (diskMachine disk) <> ": " <> text)

-- | From now on reads, and writes and syncs, fail with these probabilities.
setDiskErrors :: Disks -> Machine -> (Double, Double) -> IO ()
setDiskErrors disks machine rates = diskOf disks machine >>= \disk -> writeIORef (diskErrors disk) rates

-- | From now on the files of a machine may hold so many bytes together, in whole pages of
-- 4,096; holes take no room. What they hold stays.
setDiskCapacity :: Disks -> Machine -> Int -> IO ()
setDiskCapacity disks machine room = diskOf disks machine >>= \disk -> writeIORef (diskRoom disk) room

-- | From now on every operation that begins takes so many times as long as usual.
setDiskSlowness :: Disks -> Machine -> Double -> IO ()
setDiskSlowness disks machine factor = diskOf disks machine >>= \disk -> writeIORef (diskSlowness disk) (max 0 factor)

-- | The handle of a descriptor that was taken for it. The caller counts it as open.
openHandle :: Disks -> Disk -> Inode -> OpenMode -> Bool -> Descriptor -> IO File
openHandle disks disk n mode direct d = do
  handle <- Handle d disk n mode direct <$> newIORef 0 <*> newIORef (0, IntMap.empty)
  File d <$ modifyIORef' (disksHandles disks) (IntMap.insert (fromIntegral (descriptorNumber d)) handle)

-- | Do something with an open file of the machine that asks, or refuse: @EBADF@ if it was closed,
-- and in clear words if it is not one of this world or this machine.
withHandle :: Disks -> Ask -> String -> File -> (Handle -> IO Trace) -> IO Trace
withHandle disks ask what (File d) use
  | descriptorNumber d < firstDescriptor = Throw . toException <$> refuseReal disks what d
  | otherwise =
      lookupHandle disks d >>= \case
        Nothing -> pure (refuse what Nothing eBADF)
        Just handle
          | diskMachine (handleDisk handle) == askMachine ask -> use handle
          | otherwise -> foreigner ("a file of the machine " <> show (diskMachine (handleDisk handle)) <> ", used on " <> show (askMachine ask))
  where
    foreigner why = do
      Throw . toException <$> refuseForeign disks what d why

-- | The refusal of a descriptor of the real world, about which there is a warning.
refuseReal :: Disks -> String -> Descriptor -> IO IOError
refuseReal disks what d = refuseForeign disks what d "a real file, which a simulated kernel does not know"

refuseForeign :: Disks -> String -> Descriptor -> String -> IO IOError
refuseForeign disks what d why = do
  let text = show d <> " is " <> why
  warn (disksWorld disks) (what <> ": " <> text)
  pure (ioeSetErrorString (errnoToIOError what eBADF Nothing Nothing) text)

-- | The open file of this descriptor.
lookupHandle :: Disks -> Descriptor -> IO (Maybe Handle)
lookupHandle disks d = do
  handles <- readIORef (disksHandles disks)
  pure $ case IntMap.lookup (fromIntegral (descriptorNumber d)) handles of
    Just handle | handleDescriptor handle == d -> Just handle
    _ -> Nothing

-- | Was it not closed?
isOpenHandle :: Disks -> Handle -> IO Bool
isOpenHandle disks handle = isJust <$> lookupHandle disks (handleDescriptor handle)

-- | Close a file; closing it again does nothing. Of the operations under way on it each
-- completes now or fails with @ECANCELED@.
closeFile :: Disks -> File -> Answering ()
closeFile disks file@(File d) ask k
  | descriptorNumber d < firstDescriptor = withHandle disks ask "close" file (\_ -> pure (k ()))
  | otherwise =
      lookupHandle disks d >>= \case
        Nothing -> pure (k ())
        Just _ -> withHandle disks ask "close" file $ \handle -> do
          (_, underWay) <- readIORef (handleUnderWay handle)
          forM_ underWay $ \end -> do
            canceled <- chance (worldRandom (disksWorld disks)) 0.5
            end (if canceled then IsCanceled else CompletesNow)
          changeSystem (handleDisk handle) (closed (handleInode handle))
          forgetHandle disks handle
          pure (k ())

forgetHandle :: Disks -> Handle -> IO ()
forgetHandle disks handle = do
  let number = descriptorNumber (handleDescriptor handle)
  modifyIORef' (disksHandles disks) (IntMap.delete (fromIntegral number))
  giveDescriptor (diskMachine (handleDisk handle)) number

-- | An operation of the disk of the machine that asks, on a file or on none. It takes a
-- time from this range; the action does everything, and decides the result. It does not
-- happen at all when the wait is cancelled before, or the machine loses its power.
operation :: Disks -> Ask -> (Conditions -> (Duration, Duration)) -> String -> Maybe Handle -> (Disk -> IO (Either SomeException a)) -> (a -> Trace) -> IO Trace
operation disks ask range what handle act k = do
  let world = disksWorld disks
  disk <- diskOf disks (askMachine ask)
  outage <- readIORef (diskOutages disk)
  slowness <- readIORef (diskSlowness disk)
  usual <- lasting (worldRandom world) (range (worldConditions world))
  let delay = if slowness == 1 then usual else round (slowness * fromIntegral usual)
  park ask k $ \ticket -> do
    let settleIt result = void (settle ticket Completed result)
        complete = do
          outage' <- readIORef (diskOutages disk)
          if outage' /= outage
            then settleIt (Left (ioeSetString "the machine has lost its power" (errnoToIOError what eIO Nothing Nothing)))
            else do
              waiting <- isOpen ticket
              when waiting (act disk >>= settleIt)
    number <- maybe (pure 0) (fmap fst . readIORef . handleUnderWay) handle
    let leave = forM_ handle $ \h -> modifyIORef' (handleUnderWay h) (fmap (IntMap.delete number))
    key <- after (worldEvents world) delay (leave >> complete)
    let withdraw = void (revoke (worldEvents world) key) >> leave
    forM_ handle $ \h -> modifyIORef' (handleUnderWay h) $ \(_, others) ->
      let end = \case
            CompletesNow -> withdraw >> complete
            IsCanceled -> withdraw >> settleIt (Left (failure what Nothing eCanceled))
       in (number + 1, IntMap.insert number end others)
    pure withdraw
  where
    ioeSetString text e = toException (ioeSetErrorString e text)

-- | As Linux has it.
eCanceled :: Errno
eCanceled = Errno 125

-- | A failure that is known at once.
refuse :: String -> Maybe FilePath -> Errno -> Trace
refuse what path e = Throw (failure what path e)

-- | A machine has lost its power: nothing is open, what was under way has not happened, and
-- what was not synced is lost, or torn.
crashDisk :: Disks -> Machine -> IO ()
crashDisk disks machine = do
  disk <- diskOf disks machine
  modifyIORef' (diskOutages disk) (+ 1)
  handles <- readIORef (disksHandles disks)
  forM_ handles $ \handle -> when (diskMachine (handleDisk handle) == machine) (forgetHandle disks handle)
  (after', told) <- readIORef (diskSystem disk) >>= crashed (worldRandom (disksWorld disks))
  writeIORef (diskSystem disk) after'
  unless (null told) $ mapM_ (noteDisk disks disk . ("crash: " <>)) told
