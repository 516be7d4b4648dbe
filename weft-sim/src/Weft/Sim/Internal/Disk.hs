-- |
-- Description : The simulated disks
-- Stability   : not home
--
-- One file system in memory for each machine, which takes time, fails, fills up, and loses
-- what was not synced. The parts are below "Weft.Sim.Internal.Disk"; this is what the
-- kernel and faults call.
--
-- See Note [What a crash leaves] in "Weft.Sim.Internal.Disk.Unsynced".
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

    -- * Links and sockets
    createSymlink,
    nameSocket,
    findSocket,

    -- * What befalls them
    crashDisk,
    setDiskErrors,
    setDiskCapacity,
    setDiskSlowness,
  )
where

import Weft.Sim.Internal.Disk.Device
import Weft.Sim.Internal.Disk.Names
import Weft.Sim.Internal.Disk.Transfer
