-- |
-- Files and directories. No operation holds up a worker: io_uring carries it out where the worker has
-- one, a bounded pool of OS threads elsewhere. Paths are bytes, as the system has them, without NUL
-- ('Data.ByteString.Char8.pack' or a better-suited encoder). A refusal of the system is an 'IOError'
-- with the operation, the path and the @errno@.
module Weft.File
  ( -- * Opening
    File,
    withFile,
    openFile,
    openFileAt,
    closeFile,
    OpenMode (..),
    OpenFlags (..),
    defaultOpenFlags,
    Beneath (..),
    Where (..),

    -- * Reading
    readAt,
    readAtInto,
    readWhole,

    -- * Writing
    writeAt,
    writeBufferAt,
    append,
    setFileSize,

    -- * Durability
    sync,
    syncData,

    -- * Status
    fileStatus,
    pathStatus,
    pathStatusAt,
    FileStatus (..),
    FileKind (..),

    -- * Directories and names
    listDirectory,
    makeDirectory,
    removePath,
    renamePath,
  )
where

import Control.Monad.Catch (bracket, throwM)
import Control.Monad.IO.Class (liftIO)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.Int (Int64)
import Weft.Buffer
import Weft.Internal.Core.Buffer (unsafeFreeze)
import Weft.Internal.Core.SystemCall
import Weft.Internal.Core.Trace

-- | No truncation, not exclusive, cached, anywhere, permissions 0666.
defaultOpenFlags :: OpenFlags
defaultOpenFlags = OpenFlags False False False Anywhere 0o666

-- | Open a file while the body runs.
withFile :: ByteString -> OpenMode -> (File -> Thread a) -> Thread a
withFile path mode = bracket (openFile path mode) closeFile

-- | Open a file with the default flags.
openFile :: ByteString -> OpenMode -> Thread File
openFile path mode = openFileAt CurrentDirectory path mode defaultOpenFlags

-- | Open a path relative to a directory.
openFileAt :: Where -> ByteString -> OpenMode -> OpenFlags -> Thread File
openFileAt place path mode flags = call (OpenFile place path mode flags)

-- | Close a file. Threads that wait on it get their result or @ECANCELED@. Closing it again does nothing.
closeFile :: File -> Thread ()
closeFile = call . CloseFile

-- | Read at most the given number of bytes from an offset. Fewer come at the end of the file only.
readAt :: File -> Int64 -> Int -> Thread ByteString
readAt file offset count = do
  buffer <- liftIO (newBuffer count)
  n <- fill buffer 0
  unsafeFreeze buffer n
  where
    fill buffer got
      | got >= bufferSize buffer = pure got
      | otherwise = do
          n <- readAtInto file (offset + fromIntegral got) buffer got (bufferSize buffer - got)
          if n == 0 then pure got else fill buffer (got + n)

-- | One read into a part of a buffer (offset, size): how many bytes came, 0 at the end of the file.
readAtInto :: File -> Int64 -> Buffer -> Int -> Int -> Thread Int
readAtInto file at buffer offset count = call (ReadFile file buffer offset count at)

-- | All bytes of a file. Fails with an 'IOError' beyond the given number of bytes.
readWhole :: Int -> ByteString -> Thread ByteString
readWhole limit path = withFile path ReadOnly $ \file -> do
  status <- fileStatus file
  bytes <- readAt file 0 (min (limit + 1) (fromIntegral (statusSize status) + 1))
  if ByteString.length bytes > limit
    then throwM (userError ("readWhole: " <> show path <> " has more than " <> show limit <> " bytes"))
    else pure bytes

-- | Write all bytes at an offset.
writeAt :: File -> Int64 -> ByteString -> Thread ()
writeAt file at bytes
  | ByteString.null bytes = pure ()
  | otherwise = do
      n <- call (WriteFile file bytes at)
      writeAt file (at + fromIntegral n) (ByteString.drop n bytes)

-- | One write of a part of a buffer: how many bytes. For direct I/O all is in multiples of the block size.
writeBufferAt :: File -> Int64 -> Buffer -> Int -> Int -> Thread Int
writeBufferAt file at buffer offset count = call (WriteBuffer file buffer offset count at)

-- | Write all bytes at the end of a file opened with 'Append', in one system call where the system
-- allows it, so that lines of several threads do not mix.
append :: File -> ByteString -> Thread ()
append file bytes
  | ByteString.null bytes = pure ()
  | otherwise = do
      n <- call (WriteFile file bytes (-1))
      append file (ByteString.drop n bytes)

-- | Cut or extend a file to the given number of bytes.
setFileSize :: File -> Int64 -> Thread ()
setFileSize file size = call (SetFileSize file size)

-- | Wait until data and metadata are on the disk.
sync :: File -> Thread ()
sync file = call (SyncFile file False)

-- | Wait until the data, and what is needed to find it, is on the disk.
syncData :: File -> Thread ()
syncData file = call (SyncFile file True)

-- | The status of an open file.
fileStatus :: File -> Thread FileStatus
fileStatus = call . FileStatusOf

-- | Of a path, after following symbolic links.
pathStatus :: ByteString -> Thread FileStatus
pathStatus = pathStatusAt CurrentDirectory

-- | Of a path relative to a directory.
pathStatusAt :: Where -> ByteString -> Thread FileStatus
pathStatusAt place path = call (PathStatus place path)

-- | The names in a directory opened with 'Directory', without @.@ and @..@, in no particular order.
listDirectory :: File -> Thread [ByteString]
listDirectory = call . ListDirectory

-- | Make a directory with permissions 0777, less the process's mask.
makeDirectory :: ByteString -> Thread ()
makeDirectory = call . MakeDirectory

-- | Remove a file, a symbolic link or an empty directory.
removePath :: ByteString -> Thread ()
removePath = call . RemovePath

-- | Give a file another name, replacing what had it. Atomic.
renamePath :: ByteString -> ByteString -> Thread ()
renamePath from to = call (RenamePath from to)
