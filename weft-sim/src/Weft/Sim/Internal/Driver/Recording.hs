{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The record of a step, and of the end of a run: its line in the timeline, what the detector of
-- races is told, what an effect did outside of the simulation, and the threads that are left.
module Weft.Sim.Internal.Driver.Recording (record, finishRecord, moment, observe, audited, tookRealTime, stuckThreads) where

import Control.Exception (IOException, try)
import Control.Monad (forM_, unless, when)
import Data.Foldable (for_, toList)
import Data.IORef
import Data.Int (Int64)
import Data.List (intercalate, isSuffixOf, sortOn, (\\))
import Data.Maybe (fromMaybe)
import System.Directory (getSymbolicLinkTarget, listDirectory)
import Weft.Internal.Core.SystemCall (Reason (..), SystemCall (..))
import Weft.Internal.Core.Trace
import Weft.Internal.Os.Sys (monotonicNow)
import Weft.Sim.Internal.Driver.State
import Weft.Sim.Internal.Kernel
import Weft.Sim.Internal.Network (describeWait)
import Weft.Sim.Internal.Race
import Weft.Sim.Internal.Ready
import Weft.Sim.Internal.Timeline
import Weft.Sim.Internal.Words
import Weft.Sim.Internal.World

-- | The step that follows is by this one; its line, if it has one.
record :: Driver -> Who -> Maybe String -> IO ()
record d who line = for_ (driverRecord d) $ \ref -> do
  writeIORef (driverTouches d) []
  for_ line $ \text -> do
    m <- moment d who text
    modifyIORef' ref (m :)
{-# INLINE record #-}

moment :: Driver -> Who -> String -> IO Moment
moment d who text = do
  now <- clock (worldEvents (driverWorld d))
  step <- wordOf (driverWords d) Steps
  pure (Moment step (now - worldStart) who text)

-- | The objects that were touched belong to the line of the step. The flag: its thread waits now.
finishRecord :: Driver -> Bool -> IO ()
finishRecord d waits = for_ (driverRecord d) $ \ref -> do
  touches <- reverse <$> readIORef (driverTouches d)
  step <- wordOf (driverWords d) Steps
  let did text = case [t | Did t <- touches] of
        [] -> [text | not (null text)]
        several -> several
      caused = [t | Caused t <- touches] <> ["waits" | waits]
  modifyIORef' ref (amend step (\text -> intercalate ", " (did text <> caused)))
{-# INLINE finishRecord #-}

-- | The world may have noted something after the line, which is left out if it says nothing. A step
-- without a line is noticed at the line before it.
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
  -- Such a wait is answered by the library, or by state that was there.
  Call _ (Suspend _ _) _ -> touched detector number TheWorld >> touched detector number Library
  Call {} -> touched detector number TheWorld
  _ -> pure ()

-- | Run an effect, and measure its real time and the real descriptors that it leaves open.
audited :: (String -> IO ()) -> IO () -> IO ()
audited tell step = do
  before <- openDescriptors
  begin <- monotonicNow
  step
  end <- monotonicNow
  left <- openDescriptors
  let milliseconds = (end - begin) `div` 1_000_000
  when (milliseconds >= tolerated) (tell tookRealTime)
  let new = left \\ before
  unless (null new) . tell $ "an effect opened descriptors of the operating system: " <> unwords [n <> " (" <> to <> ")" | (n, to) <- new]

-- | In milliseconds.
tolerated :: Int64
tolerated = 20

-- | The warning of an effect that took longer; the same one in each run.
tookRealTime :: String
tookRealTime =
  "an effect took " <> show tolerated <> " ms of real time, or more: it sleeps, waits or computes, which no simulated clock shows"

-- | The open descriptors and what they are, without that of this listing. Empty where the system
-- does not tell.
openDescriptors :: IO [(String, FilePath)]
openDescriptors = either (\(_ :: IOException) -> []) id <$> try listing
  where
    listing = do
      names <- listDirectory "/proc/self/fd"
      known <- mapM (\n -> (n,) <$> try @IOException (getSymbolicLinkTarget ("/proc/self/fd/" <> n))) names
      pure [(n, to) | (n, Right to) <- known, not ("/fd" `isSuffixOf` to)]

stuckThreads :: Driver -> Workers -> IO [Stuck]
stuckThreads d workers = do
  ready <- map (\e -> (entryTcb e, Nothing)) <$> entries (driverReady d)
  waiting <- concat <$> mapM (\home -> reverse <$> homeVisit home collect []) (toList (workerHomes workers))
  sortOn stuckThread . concat <$> mapM describeStuck (ready <> waiting)
  where
    collect seen acc = pure $ case seen of
      SeenWaiting wait -> (waitTcb wait, Just wait) : acc
      _ -> acc
    describeStuck (tcb, wait) = do
      alive <- isAlive (driverWorld d) tcb
      if not alive
        then pure []
        else do
          machine <- machineOf (driverWorld d) tcb
          (text, holder) <- case wait of
            Nothing -> pure (Nothing, 0)
            Just (Wait _ request _) -> do
              peer <- describeWait (simNetwork (driverSim d)) request
              held <- case request of
                Suspend reason _ -> reasonHolder reason
                _ -> pure 0
              pure (Just (describeCall request <> fromMaybe "" peer), held)
          let context = stateContext (tcbState tcb)
          pure
            [ Stuck
                { stuckThread = tcbNumber tcb,
                  stuckLabel = contextLabel context,
                  stuckParent = contextParent context,
                  stuckMachine = if machineNumber machine == 0 then Nothing else Just machine,
                  stuckFor = text,
                  stuckHolder = holder
                }
            ]
