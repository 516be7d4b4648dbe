{-# OPTIONS_HADDOCK not-home #-}

-- | The disks of all machines, their descriptors, and operations under way. All effects of an
-- operation happen at the event of its completion.
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
    setDisk,

    -- * Descriptors
    Handle (..),
    openHandle,
    withHandle,
    closeFile,

    -- * Operations
    operation,
    onFile,
    failing,

    -- * Crashes
    crashDisk,
  )
where

import Control.Exception (SomeException, toException)
import Control.Monad (forM_, unless, void, when)
import Data.Bifunctor (first)
import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Data.Int (Int64)
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.Maybe (isNothing)
import Foreign.C.Error
import System.IO.Error (ioeSetErrorString)
import Weft.Internal.Core.SystemCall
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Time (Duration)
import Weft.Internal.Os.Descriptor (Descriptor (..))
import Weft.Sim.Internal.Descriptors
import Weft.Sim.Internal.Disk.FileSystem
import Weft.Sim.Internal.Ticket
import Weft.Sim.Internal.World

data Disks = Disks
  { disksWorld :: !World,
    -- | By the number of the machine; a disk is made at its first use.
    disksOf :: !(IORef (IntMap Disk)),
    disksHandles :: !(Table Handle)
  }

data Disk = Disk
  { diskMachine :: !Machine,
    diskSystem :: !(IORef FileSystem),
    -- | Probabilities that reads fail, and that writes and syncs do.
    diskErrors :: !(IORef (Double, Double)),
    -- | How many bytes the files may hold together, in whole pages of 4,096; holes take no room.
    diskRoom :: !(IORef Int),
    -- | Operations that begin from now on take this number of times as long as usual.
    diskSlowness :: !(IORef Double),
    -- | The number of power cuts: an operation from before the last one does nothing.
    diskOutages :: !(IORef Int)
  }

data Handle = Handle
  { handleDescriptor :: !Descriptor,
    handleDisk :: !Disk,
    handleInode :: !Inode,
    handleMode :: !OpenMode,
    handleDirect :: !Bool,
    -- | For operations that name no offset.
    handlePosition :: !(IORef Int64),
    -- | The operations under way, oldest first, each with the function that completes it now or
    -- ends it with @ECANCELED@.
    handleUnderWay :: !(IORef (Int, IntMap (Ending -> IO ())))
  }

data Ending = CompletesNow | IsCanceled

newDisks :: World -> IO Disks
newDisks world = Disks world <$> newIORef IntMap.empty <*> newTable

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

-- | The result is evaluated, so that it does not retain the file system.
onSystem :: Disk -> (FileSystem -> a) -> IO a
onSystem disk f = do
  !a <- f <$> readIORef (diskSystem disk)
  pure a

changeSystem :: Disk -> (FileSystem -> FileSystem) -> IO ()
changeSystem disk = modifyIORef' (diskSystem disk)

wallClock :: Disks -> Disk -> IO Int64
wallClock disks = wallClockOf (disksWorld disks) . diskMachine

noteDisk :: Disks -> Disk -> String -> IO ()
noteDisk disks disk text = note (disksWorld disks) ("disk of " <> show (diskMachine disk) <> ": " <> text)

setDisk :: Disks -> Machine -> (Disk -> IORef a) -> a -> IO ()
setDisk disks machine field a = diskOf disks machine >>= \disk -> writeIORef (field disk) a

-- | Make the handle for a descriptor, which the caller has taken. The caller counts the open file.
openHandle :: Disks -> Disk -> Inode -> OpenMode -> Bool -> Descriptor -> IO File
openHandle disks disk n mode direct d = do
  handle <- Handle d disk n mode direct <$> newIORef 0 <*> newIORef (0, IntMap.empty)
  File d <$ enlist (disksHandles disks) (diskMachine disk) d handle

withHandle :: Disks -> Ask -> String -> File -> (Handle -> IO Trace) -> IO Trace
withHandle disks ask what (File d) = withEntry (disksWorld disks) (disksHandles disks) what d ask

-- | Close a file; closing it again does nothing. Each of its operations under way completes now or
-- fails with @ECANCELED@.
closeFile :: Disks -> File -> Answering ()
closeFile disks file@(File d) ask k = do
  closedBefore <- isNothing <$> entryAt (disksHandles disks) d
  if closedBefore && descriptorNumber d >= firstDescriptor
    then pure (k ())
    else withHandle disks ask "close" file $ \handle -> do
      (_, underWay) <- readIORef (handleUnderWay handle)
      forM_ underWay $ \end -> do
        ends <- chance (worldRandom (disksWorld disks)) 0.5
        end (if ends then IsCanceled else CompletesNow)
      changeSystem (handleDisk handle) (closed (handleInode handle))
      k () <$ strike (disksHandles disks) d

onFile :: Disks -> (Conditions -> (Duration, Duration)) -> String -> File -> (Handle -> Disk -> IO (Either Errno a)) -> Answering a
onFile disks range what file act ask k = withHandle disks ask what file $ \handle ->
  operation disks ask range what (Just handle) (failing what Nothing . act handle) k

-- | An operation of the asking machine's disk, on a file or on none. It takes a time from this
-- range; then the action does everything and decides the result. It never happens if the wait is
-- cancelled or the machine loses its power before.
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
            then settleIt (Left (toException (ioeSetErrorString (errnoToIOError what eIO Nothing Nothing) "the machine has lost its power")))
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
            IsCanceled -> withdraw >> settleIt (Left (failure what Nothing canceled))
       in (number + 1, IntMap.insert number end others)
    pure withdraw

failing :: String -> Maybe ByteString -> IO (Either Errno a) -> IO (Either SomeException a)
failing what path = fmap (first (failure what (Char8.unpack <$> path)))

-- | A power cut: all files are closed, operations under way never happen, and what was not synced
-- is lost or torn.
crashDisk :: Disks -> Machine -> IO ()
crashDisk disks machine = do
  disk <- diskOf disks machine
  modifyIORef' (diskOutages disk) (+ 1)
  _ <- strikeAll (disksHandles disks) machine
  (after', told) <- readIORef (diskSystem disk) >>= crashed (worldRandom (disksWorld disks))
  writeIORef (diskSystem disk) after'
  unless (null told) $ mapM_ (noteDisk disks disk . ("crash: " <>)) told
