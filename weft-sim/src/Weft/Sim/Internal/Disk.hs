-- |
-- Description : The simulated disks
-- Stability   : not home
module Weft.Sim.Internal.Disk
  ( Disks,
    newDisks,

    -- * Files
    openFile,
    readFileAt,
    writeFileAt,
    writeBufferAt,
    syncFile,
    fileStatus,
    pathStatus,
    setFileSize,
    closeFile,
    contentsFrom,

    -- * Directories
    listDirectory,
    makeDirectory,
    removePath,
    renamePath,

    -- * What befalls them
    crashDisk,
  )
where

import Data.ByteString (ByteString)
import Data.Int (Int64)
import Foreign.C.Error (Errno)
import Weft.Internal.SystemCall
import Weft.Sim.Internal.Ticket
import Weft.Sim.Internal.World

data Disks = Disks

newDisks :: World -> IO Disks
newDisks _ = pure Disks

openFile :: Disks -> Where -> ByteString -> OpenMode -> OpenFlags -> Answering File
openFile = undefined

readFileAt :: Disks -> File -> Buffer -> Int -> Int -> Int64 -> Answering Int
readFileAt = undefined

writeFileAt :: Disks -> File -> ByteString -> Int64 -> Answering Int
writeFileAt = undefined

writeBufferAt :: Disks -> File -> Buffer -> Int -> Int -> Int64 -> Answering Int
writeBufferAt = undefined

syncFile :: Disks -> File -> Bool -> Answering ()
syncFile = undefined

fileStatus :: Disks -> File -> Answering FileStatus
fileStatus = undefined

pathStatus :: Disks -> Where -> ByteString -> Answering FileStatus
pathStatus = undefined

setFileSize :: Disks -> File -> Int64 -> Answering ()
setFileSize = undefined

closeFile :: Disks -> File -> Answering ()
closeFile = undefined

-- | For a socket that sends a file: at most so many bytes from an offset.
contentsFrom :: Disks -> File -> Int64 -> Int -> IO (Either Errno ByteString)
contentsFrom = undefined

listDirectory :: Disks -> File -> Answering [ByteString]
listDirectory = undefined

makeDirectory, removePath :: Disks -> ByteString -> Answering ()
makeDirectory = undefined
removePath = undefined

renamePath :: Disks -> ByteString -> ByteString -> Answering ()
renamePath = undefined

-- | A machine has lost its power: what was not synced is lost, or torn.
crashDisk :: Disks -> Machine -> IO ()
crashDisk = undefined
