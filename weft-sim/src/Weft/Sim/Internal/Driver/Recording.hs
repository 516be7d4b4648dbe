{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : What is kept of a step
--
-- The line of a step in the timeline, if the run is recorded, and what the detector of races is
-- told of the step. Called by the driver, before a step and after it.
module Weft.Sim.Internal.Driver.Recording (record, finishRecord, moment, observe) where

import Control.Monad (forM_)
import Data.Foldable (for_)
import Data.IORef
import Data.List (intercalate)
import Data.Maybe (fromMaybe)
import Data.Primitive.PrimVar
import Weft.Internal.Core.SystemCall (SystemCall (..))
import Weft.Internal.Core.Trace
import Weft.Sim.Internal.Driver.State
import Weft.Sim.Internal.Events
import Weft.Sim.Internal.Kernel
import Weft.Sim.Internal.Race
import Weft.Sim.Internal.Timeline
import Weft.Sim.Internal.World

-- | The step that follows is by this one; its line, if it has one.
record :: Driver -> Who -> Maybe String -> IO ()
record d who line = for_ (planRecord (driverPlan d)) $ \ref -> do
  writeIORef (driverTouches d) []
  for_ line $ \text -> do
    m <- moment d who text
    modifyIORef' ref (m :)
{-# INLINE record #-}

moment :: Driver -> Who -> String -> IO Moment
moment d who text = do
  now <- clock (worldEvents (simWorld (planSim (driverPlan d))))
  step <- readPrimVar (driverSteps d)
  pure (Moment step (now - driverStart d) who text)

-- | What was touched belongs to the line of the step. The flag: its thread waits now.
finishRecord :: Driver -> Bool -> IO ()
finishRecord d waits = for_ (planRecord (driverPlan d)) $ \ref -> do
  touches <- reverse <$> readIORef (driverTouches d)
  step <- readPrimVar (driverSteps d)
  let did text = case [t | Did t <- touches] of
        [] -> [text | not (null text)]
        several -> several
      caused = [t | Caused t <- touches] <> ["waits" | waits]
  modifyIORef' ref (amend step (\text -> intercalate ", " (did text <> caused)))
{-# INLINE finishRecord #-}

-- | The world may have noted something after the line, which is left out if it says nothing.
-- A step without a line is noticed at the line before it: not at the end of all lines.
amend :: Int -> (String -> String) -> [Moment] -> [Moment]
amend step change moments = case span ((== ByWorld) . momentWho) moments of
  (after', m : before) | momentStep m == step -> after' <> [m {momentText = text} | text <- [change (momentText m)], not (null text)] <> before
  _ -> moments

-- | Tell the detector what a thread's next node touches.
observe :: Detector -> Int -> Int -> Trace -> IO ()
observe detector number step = \case
  Perform op _ _ -> case primitiveSight op of
    Bookkeeping -> touched detector number Library
    Awaits _ -> touched detector number Library
    Uses uses -> forM_ uses $ \(Use _ (BlockedOn object _)) -> touched detector number (Numbered object)
    Accesses access stack | accessKind access /= Affects -> accessed detector number access step (fromMaybe "" (placeOf stack))
    _ -> pure ()
  -- What waits so is answered by the library, or by what already was there.
  Call _ (Suspend _ _) _ -> touched detector number TheWorld >> touched detector number Library
  Call {} -> touched detector number TheWorld
  _ -> pure ()
