-- |
-- Files and pipes in direct style: the operations of "Weft.File" and "Weft.Pipe" in plain 'IO', each
-- 'await' before the one of the same name, which describes it. "Weft.IO" exports them again.
module Weft.IO.File
  ( withFile,
    openFile,
    openFileAt,
    closeFile,
    readAt,
    readAtInto,
    readWhole,
    writeAt,
    writeBufferAt,
    append,
    setFileSize,
    sync,
    syncData,
    fileStatus,
    pathStatus,
    pathStatusAt,
    listDirectory,
    makeDirectory,
    removePath,
    renamePath,

    -- * Pipes
    openPipe,
    openFifo,
    readPipe,
    readPipeInto,
    writePipe,
    pipeCapacity,
    setPipeCapacity,
    closePipe,
  )
where

import Data.ByteString (ByteString)
import Data.Int (Int64)
import Weft.Buffer (Buffer)
import Weft.File (File, FileStatus, OpenFlags, OpenMode, Where)
import Weft.File qualified as File
import Weft.Internal.Core.Direct
import Weft.Pipe (Pipe)
import Weft.Pipe qualified as Pipe

-- | See 'Weft.File.withFile'.
withFile :: ByteString -> OpenMode -> (File -> IO a) -> IO a
withFile path mode body = await (File.withFile path mode (direct . body))

-- | See 'Weft.File.openFile'.
openFile :: ByteString -> OpenMode -> IO File
openFile path mode = await (File.openFile path mode)

-- | See 'Weft.File.openFileAt'.
openFileAt :: Where -> ByteString -> OpenMode -> OpenFlags -> IO File
openFileAt place path mode flags = await (File.openFileAt place path mode flags)

-- | See 'Weft.File.closeFile', 'Weft.File.sync' and 'Weft.File.syncData'.
closeFile, sync, syncData :: File -> IO ()
closeFile = await . File.closeFile
sync = await . File.sync
syncData = await . File.syncData

-- | See 'Weft.File.readAt'.
readAt :: File -> Int64 -> Int -> IO ByteString
readAt file offset count = await (File.readAt file offset count)

-- | See 'Weft.File.readAtInto' and 'Weft.File.writeBufferAt'.
readAtInto, writeBufferAt :: File -> Int64 -> Buffer -> Int -> Int -> IO Int
readAtInto file at buffer offset count = await (File.readAtInto file at buffer offset count)
writeBufferAt file at buffer offset count = await (File.writeBufferAt file at buffer offset count)

-- | See 'Weft.File.readWhole'.
readWhole :: Int -> ByteString -> IO ByteString
readWhole limit path = await (File.readWhole limit path)

-- | See 'Weft.File.writeAt'.
writeAt :: File -> Int64 -> ByteString -> IO ()
writeAt file at bytes = await (File.writeAt file at bytes)

-- | See 'Weft.File.append'.
append :: File -> ByteString -> IO ()
append file bytes = await (File.append file bytes)

-- | See 'Weft.File.setFileSize'.
setFileSize :: File -> Int64 -> IO ()
setFileSize file size = await (File.setFileSize file size)

-- | See 'Weft.File.fileStatus'.
fileStatus :: File -> IO FileStatus
fileStatus = await . File.fileStatus

-- | See 'Weft.File.pathStatus'.
pathStatus :: ByteString -> IO FileStatus
pathStatus = await . File.pathStatus

-- | See 'Weft.File.pathStatusAt'.
pathStatusAt :: Where -> ByteString -> IO FileStatus
pathStatusAt place path = await (File.pathStatusAt place path)

-- | See 'Weft.File.listDirectory'.
listDirectory :: File -> IO [ByteString]
listDirectory = await . File.listDirectory

-- | See 'Weft.File.makeDirectory' and 'Weft.File.removePath'.
makeDirectory, removePath :: ByteString -> IO ()
makeDirectory = await . File.makeDirectory
removePath = await . File.removePath

-- | See 'Weft.File.renamePath'.
renamePath :: ByteString -> ByteString -> IO ()
renamePath from to = await (File.renamePath from to)

-- | See 'Weft.Pipe.openPipe'.
openPipe :: IO (Pipe, Pipe)
openPipe = await Pipe.openPipe

-- | See 'Weft.Pipe.openFifo'.
openFifo :: FilePath -> OpenMode -> IO Pipe
openFifo path mode = await (Pipe.openFifo path mode)

-- | See 'Weft.Pipe.readPipe'.
readPipe :: Pipe -> Int -> IO ByteString
readPipe pipe count = await (Pipe.readPipe pipe count)

-- | See 'Weft.Pipe.readPipeInto'.
readPipeInto :: Pipe -> Buffer -> Int -> Int -> IO Int
readPipeInto pipe buffer offset count = await (Pipe.readPipeInto pipe buffer offset count)

-- | See 'Weft.Pipe.writePipe'.
writePipe :: Pipe -> ByteString -> IO ()
writePipe pipe bytes = await (Pipe.writePipe pipe bytes)

-- | See 'Weft.Pipe.pipeCapacity'.
pipeCapacity :: Pipe -> IO Int
pipeCapacity = await . Pipe.pipeCapacity

-- | See 'Weft.Pipe.setPipeCapacity'.
setPipeCapacity :: Pipe -> Int -> IO Int
setPipeCapacity pipe count = await (Pipe.setPipeCapacity pipe count)

-- | See 'Weft.Pipe.closePipe'.
closePipe :: Pipe -> IO ()
closePipe = await . Pipe.closePipe
