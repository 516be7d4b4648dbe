-- |
-- Description : Carrying out a fault
-- Stability   : not home
--
-- What each fault of a script does to the parts of a simulated world.
module Weft.Sim.Internal.Strike
  ( strike,
  )
where

import Data.Foldable (for_)
import Data.IORef
import Data.Text (Text)
import Weft.Sim.Internal.Faults
import Weft.Sim.Internal.Kernel
import Weft.Sim.Internal.Signals (raiseSignal)
import Weft.Sim.Internal.Steering
import Weft.Sim.Internal.World

-- | Let it happen now.
strike :: Sim -> Fault -> IO ()
strike sim fault = do
  note world ("fault: " <> describeFault fault)
  case fault of
    Crash m -> on m (crashNow sim)
    Restart m -> on m (restartNow sim)
    SkewClock m d -> on m (\machine -> writeIORef (machineSkew machine) d)
    Signal m n -> on m (\machine -> () <$ raiseSignal (simSignals sim) machine (fromIntegral n))
    _ -> pure ()
  where
    world = simWorld sim
    on :: Text -> (Machine -> IO ()) -> IO ()
    on name act = machineNamed world name >>= \found -> for_ found act
