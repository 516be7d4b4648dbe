-- |
-- Barriers: threads that wait for each other. A barrier for n threads lets them go on when n have arrived,
-- and then starts again (it is cyclic). A barrier belongs to one run.
module Weft.Barrier (Barrier, newBarrier, newBarrierNamed, arrive) where

import Weft.Internal.Sync.Barrier
