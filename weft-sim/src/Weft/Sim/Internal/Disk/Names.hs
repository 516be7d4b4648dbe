{-# LANGUAGE OverloadedStrings #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Operations on paths and directories of simulated disks, with the system kernel's errors and
-- operation names. Symbolic links, which no thread's call makes, and sockets have names without
-- being files.
module Weft.Sim.Internal.Disk.Names
  ( openFile,
    fileStatus,
    pathStatus,
    listDirectory,
    makeDirectory,
    removePath,
    renamePath,
    createSymlink,
    nameSocket,
    findSocket,
  )
where

import Control.Monad (void)
import Data.Bifunctor (first)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Data.Map.Strict qualified as Map
import Foreign.C.Error
import Weft.Internal.Core.SystemCall
import Weft.Internal.Core.Trace
import Weft.Internal.Os.Descriptor (descriptorNumber)
import Weft.Sim.Internal.Descriptors
import Weft.Sim.Internal.Disk.Device
import Weft.Sim.Internal.Disk.FileSystem
import Weft.Sim.Internal.Ticket
import Weft.Sim.Internal.World

onPath :: Disks -> Where -> String -> Maybe ByteString -> (Disk -> Inode -> IO (Either Errno a)) -> Answering a
onPath disks place what path act ask k = case place of
  CurrentDirectory -> go Nothing
  At file -> withHandle disks ask what file (go . Just)
  where
    go handle = operation disks ask diskDelay what Nothing (\disk -> failing what path (start handle >>= either (pure . Left) (act disk))) k
    start = \case
      Nothing -> pure (Right rootInode)
      Just handle ->
        entryAt (disksHandles disks) (handleDescriptor handle) >>= \case
          Nothing -> pure (Left eBADF)
          Just _ -> onSystem (handleDisk handle) $ \fs ->
            if nodeIsDirectory (nodeOf fs (handleInode handle)) then Right (handleInode handle) else Left eNOTDIR

withoutNul :: String -> ByteString -> IO Trace -> IO Trace
withoutNul what path go
  | ByteString.elem 0 path = pure (Throw (failure what (Just (Char8.unpack path)) eINVAL))
  | otherwise = go

-- | Open a path, and create the file if the mode says so.
openFile :: Disks -> Where -> ByteString -> OpenMode -> OpenFlags -> Answering File
openFile disks place path mode flags ask k = withoutNul "open" path (onPath disks place "open" (Just path) open ask k)
  where
    world = disksWorld disks
    -- Like Linux: take a number first, then resolve the path.
    open disk start =
      takeDescriptor world (diskMachine disk) >>= \case
        Nothing -> Left eMFILE <$ noteDisk disks disk "no descriptor is left for an open"
        Just d -> do
          now <- wallClock disks disk
          fs <- readIORef (diskSystem disk)
          case toOpen fs start now of
            Left e -> Left e <$ giveUp disk d
            Right (n, fs') -> do
              writeIORef (diskSystem disk) $! opened n (truncated now n fs')
              Right <$> openHandle disks disk n mode (openDirect flags) d
    giveUp disk d = giveDescriptor (diskMachine disk) (descriptorNumber d)
    creates = mode `elem` [WriteOnly, ReadWrite, Append]
    toOpen fs start now = do
      found <- leadsTo fs start (openBeneath flags) (if creates && openExclusive flags then LinkItself else Followed) path
      case (foundInode found, found) of
        (Just n, _)
          | creates && openExclusive flags -> Left eEXIST
          | isDirectory (fsTree fs) n -> if creates || openTruncate flags then Left eISDIR else if openDirect flags then Left eINVAL else Right (n, fs)
          | mode == Directory -> Left eNOTDIR
          | Named _ _ _ True <- found -> Left eNOTDIR
          | nodeKind (nodeOf fs n) == SocketName -> Left eNXIO
          | otherwise -> Right (n, fs)
        (Nothing, Named d name _ slash)
          | not creates -> Left eNOENT
          | slash -> Left eISDIR
          | otherwise ->
              let (n, fs') = newNode Regular (fromIntegral (openPermissions flags)) now fs
               in Right (n, change now (Create False d name n) fs')
        (Nothing, Itself {}) -> Left eNOENT
    truncated now n fs
      | openTruncate flags && contentSize (seen (nodeData (nodeOf fs n))) > 0 = changeData now (resize 0) n fs
      | otherwise = fs

fileStatus :: Disks -> File -> Answering FileStatus
fileStatus disks file = onFile disks diskDelay "stat" file $ \handle disk -> Right <$> onSystem disk (statusOf disk (handleInode handle))

pathStatus :: Disks -> Where -> ByteString -> Answering FileStatus
pathStatus disks place path ask k = withoutNul "stat" path (onPath disks place "stat" (if ByteString.null path then Nothing else Just path) look ask k)
  where
    look disk start = onSystem disk $ \fs -> (\n -> statusOf disk n fs) <$> existing fs start Followed path

-- | The file at a path, which must be a directory if the path ends with a slash.
existing :: FileSystem -> Inode -> Final -> ByteString -> Either Errno Inode
existing fs start final path = do
  found <- leadsTo fs start Anywhere final path
  case (foundInode found, found) of
    (Nothing, _) -> Left eNOENT
    (Just n, Named _ _ _ True) | not (isDirectory (fsTree fs) n) -> Left eNOTDIR
    (Just n, _) -> Right n

statusOf :: Disk -> Inode -> FileSystem -> FileStatus
statusOf disk n fs =
  FileStatus
    { statusKind = kind,
      statusSize = size,
      statusModified = nodeModified node,
      -- No call sets the modification time.
      statusChanged = nodeModified node,
      statusInode = fromIntegral n,
      statusDevice = fromIntegral (machineNumber (diskMachine disk)) + 1,
      statusPermissions = nodePermissions node
    }
  where
    node = nodeOf fs n
    (kind, size) = case nodeKind node of
      Regular -> (RegularFile, contentSize (seen (nodeData node)))
      Folder -> (DirectoryFile, fromIntegral pageSize)
      -- No call looks at a link itself.
      Link text -> (SymbolicLink, fromIntegral (ByteString.length text))
      SocketName -> (OtherFile, 0)

-- | Sorted.
listDirectory :: Disks -> File -> Answering [ByteString]
listDirectory disks file = onFile disks diskDelay "list" file $ \handle disk -> onSystem disk (names handle)
  where
    names handle fs
      | nodeIsDirectory (nodeOf fs (handleInode handle)) = Right (Map.keys (namesIn (fsTree fs) (handleInode handle)))
      | otherwise = Left eNOTDIR

changing :: Disks -> String -> Maybe ByteString -> (FileSystem -> Either (String, Errno) (Maybe Change)) -> Answering ()
changing disks what path decision ask = operation disks ask diskDelay what Nothing act
  where
    act disk = do
      fs <- readIORef (diskSystem disk)
      now <- wallClock disks disk
      case decision fs of
        Left (what', e) -> pure (Left (failure what' (Char8.unpack <$> path) e))
        Right Nothing -> pure (Right ())
        Right (Just it) -> Right <$> changeSystem disk (change now it)

-- | With permissions 0777, less the mask.
makeDirectory :: Disks -> ByteString -> Answering ()
makeDirectory disks path ask k = withoutNul "path" path (operation disks ask diskDelay what Nothing make k)
  where
    what = "createDirectory"
    make disk = failing what (Just path) (void <$> makeNamed disks disk Folder eEXIST path)

-- | Like the system kernel: look first, then remove a file or a directory.
removePath :: Disks -> ByteString -> Answering ()
removePath disks path ask k = withoutNul "path" path (changing disks "getSymbolicLinkStatus" (Just path) decision ask k)
  where
    decision fs = do
      (n, found) <- first ("getSymbolicLinkStatus",) $ (,) <$> existing fs rootInode LinkItself path <*> leadsTo fs rootInode Anywhere LinkItself path
      first ("removeDirectory",) $ case found of
        Itself _ "" -> Left eBUSY
        Itself _ final -> Left (if final == "." then eINVAL else eNOTEMPTY)
        Named d name _ _
          | not (Map.null (namesIn (fsTree fs) n)) -> Left eNOTEMPTY
          | otherwise -> Right (Just (Remove d name))

-- | Atomic. Replaces a file, or an empty directory, like Linux.
renamePath :: Disks -> ByteString -> ByteString -> Answering ()
renamePath disks from to ask k = withoutNul "path" (from <> to) (changing disks what Nothing decision ask k)
  where
    what = "rename '" <> Char8.unpack from <> "' to '" <> Char8.unpack to <> "'"
    decision fs = first (what,) $ do
      let tree = fsTree fs
      source <- leadsTo fs rootInode Anywhere LinkItself from
      target <- leadsTo fs rootInode Anywhere LinkItself to
      case (source, target) of
        (Named d name (Just n) slash, Named d' name' there slash')
          | not directory && (slash || slash') -> Left eNOTDIR
          | Just n == there -> Right Nothing
          | directory && isWithin tree d' n -> Left eINVAL
          -- A directory over one of its contents: Linux checks this first.
          | Just m <- there, isWithin tree d m -> Left eNOTEMPTY
          | Just m <- there, isDirectory tree m, not directory -> Left eISDIR
          | Just m <- there, directory, not (isDirectory tree m) -> Left eNOTDIR
          | Just m <- there, not (Map.null (namesIn tree m)) -> Left eNOTEMPTY
          | otherwise -> Right (Just (Rename d name d' name'))
          where
            directory = isDirectory tree n
        (Named _ _ Nothing _, Named {}) -> Left eNOENT
        _ -> Left eBUSY

-- | Make a symbolic link with this text, at once: only tests make links.
createSymlink :: Disks -> Machine -> ByteString -> ByteString -> IO (Either Errno ())
createSymlink disks machine text path
  | ByteString.null text = pure (Left eNOENT)
  | ByteString.length text >= 4096 = pure (Left eNAMETOOLONG)
  | otherwise = diskOf disks machine >>= \disk -> void <$> makeNamed disks disk (Link text) eEXIST path

-- | Make a name for a socket of this machine, and answer its number. @EADDRINUSE@ if the name
-- exists, even if only a closed socket has left it.
nameSocket :: Disks -> Machine -> ByteString -> IO (Either Errno Inode)
nameSocket disks machine path = diskOf disks machine >>= \disk -> makeNamed disks disk SocketName eADDRINUSE path

-- | Make something where there is nothing, or fail with this errno.
makeNamed :: Disks -> Disk -> Kind -> Errno -> ByteString -> IO (Either Errno Inode)
makeNamed disks disk kind taken path = do
  fs <- readIORef (diskSystem disk)
  now <- wallClock disks disk
  case leadsTo fs rootInode Anywhere LinkItself path of
    Left e -> pure (Left e)
    Right (Named d name Nothing slash)
      | slash && kind /= Folder -> pure (Left eNOENT)
      | otherwise -> do
          let (n, fs') = newNode kind 0o777 now fs
          writeIORef (diskSystem disk) $! change now (Create (kind == Folder) d name n) fs'
          pure (Right n)
    Right _ -> pure (Left taken)

-- | The number of the socket of this name, as from 'nameSocket'. @ECONNREFUSED@ for any other file.
findSocket :: Disks -> Machine -> ByteString -> IO (Either Errno Inode)
findSocket disks machine path = do
  disk <- diskOf disks machine
  onSystem disk $ \fs -> do
    n <- existing fs rootInode Followed path
    if nodeKind (nodeOf fs n) == SocketName then Right n else Left eCONNREFUSED
