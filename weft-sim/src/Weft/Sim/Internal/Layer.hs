{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : What lies between the programs of a world and its kernel
--
-- A layer answers some system calls itself, by those of the simulated kernel beneath, as a
-- network stack of one's own does. It is part of a configuration, so that it is there whenever a
-- run is repeated or made smaller.
module Weft.Sim.Internal.Layer (Layer (..), noLayer) where

import Weft.Internal.Kernel (Kernel)
import Weft.Sim.Internal.Kernel (Sim)

-- | A kernel over the simulated one. Two layers with one name are taken for the same.
data Layer = Layer
  { -- | For reports.
    layerName :: !String,
    -- | Make it for one run, over this kernel, with how many descriptors of its own are open on
    -- machines that are up. It must do nothing that the world does not decide.
    layerOver :: Sim -> Kernel -> IO (Kernel, IO Int)
  }

instance Eq Layer where
  a == b = layerName a == layerName b

instance Show Layer where
  showsPrec _ = showString . layerName

-- | The simulated kernel answers everything.
noLayer :: Layer
noLayer = Layer "noLayer" (\_ kernel -> pure (kernel, pure 0))
