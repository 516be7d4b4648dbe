{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The simulated disks
--
-- Each machine has one file system in memory, which takes time, fails, fills up, and loses what
-- was not synced. The kernel and the faults call this module.
--
-- See Note [What a crash leaves] in "Weft.Sim.Internal.Disk.Unsynced".
module Weft.Sim.Internal.Disk
  ( module Weft.Sim.Internal.Disk.Device,
    module Weft.Sim.Internal.Disk.Names,
    module Weft.Sim.Internal.Disk.Transfer,
  )
where

import Weft.Sim.Internal.Disk.Device (Disks, closeFile, crashDisk, newDisks, setDiskCapacity, setDiskErrors, setDiskSlowness)
import Weft.Sim.Internal.Disk.Names
import Weft.Sim.Internal.Disk.Transfer
