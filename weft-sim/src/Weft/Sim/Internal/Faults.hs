{-# OPTIONS_HADDOCK not-home #-}

-- | Faults, their times and places, as a script. A fault script is a list of events with their
-- times. It is data: printed with a failure, read again, shrunk, and drawn at random from a
-- 'FaultPlan'. The driver's world executes it.
module Weft.Sim.Internal.Faults
  ( FaultScript,
    Fault (..),
    TimedFault (..),
    renderScript,
    describeFault,
    withMendings,
    FaultPlan (..),
    FaultKind (..),
    drawScript,
  )
where

import Control.Monad (replicateM)
import Data.Int (Int64)
import Data.List (partition, sortOn)
import Data.Text (Text)
import Data.Text qualified as Text
import Weft.Internal.Data.Time (Duration (..))
import Weft.Sim.Internal.Random
import Weft.Sim.Internal.Timeline (showTime)

-- | Faults and their times. Faults of one instant happen in the order of the list.
type FaultScript = [TimedFault]

-- | A fault, and its time in nanoseconds since the start.
data TimedFault = At {faultTime :: !Int64, faultWhat :: !Fault}
  deriving stock (Eq, Show, Read)

-- | A fault, or its mending. Machines are given by name; a fault of an unknown machine
-- does nothing.
data Fault
  = -- | It loses its power ('Weft.Sim.crash'); the home machine never does.
    Crash !Text
  | -- | It starts again, if it is down.
    Restart !Text
  | -- | These lose their power in one moment.
    Blackout [Text]
  | -- | These start again, those that are down.
    PowerReturns [Text]
  | -- | Nothing passes between the first and the second, in either direction.
    Cut [Text] [Text]
  | -- | Nothing passes from the first to the second; the other way is open.
    CutOneWay [Text] [Text]
  | -- | All links are as they were.
    Heal
  | -- | All links take this number of nanoseconds longer.
    SlowLinks !Int64
  | -- | All connections of a machine are reset.
    ResetConnections !Text
  | -- | Its wall clock is ahead by this number of nanoseconds.
    SkewClock !Text !Int64
  | -- | Of its disk operations this part fails with @EIO@.
    FailDisk !Text !Double
  | -- | Its disk operations take this number of times as long.
    SlowDisk !Text !Double
  | -- | Its files may grow by no more than this number of bytes.
    FillDisk !Text !Int
  | -- | Its disk is as it was.
    MendDisk !Text
  | -- | Its process gets a signal.
    Signal !Text !Int
  deriving stock (Eq, Show, Read)

-- | A line of text for each fault.
renderScript :: FaultScript -> [String]
renderScript = map (\(At t f) -> showTime t <> "  " <> describeFault f)

describeFault :: Fault -> String
describeFault = \case
  Crash m -> name m <> " crashes"
  Restart m -> name m <> " starts again"
  Blackout ms -> names ms <> " crash"
  PowerReturns ms -> names ms <> " start again"
  Cut a b -> "nothing passes between " <> names a <> " and " <> names b
  CutOneWay a b -> "nothing passes from " <> names a <> " to " <> names b
  Heal -> "the network is whole again"
  SlowLinks d -> "links take " <> showTime d <> " longer"
  ResetConnections m -> "the connections of " <> name m <> " are reset"
  SkewClock m 0 -> "the clock of " <> name m <> " is right again"
  SkewClock m d -> "the clock of " <> name m <> " is " <> (if d < 0 then "behind by " else "ahead by ") <> showTime (abs d)
  FailDisk m p -> "the disk of " <> name m <> " fails, with probability " <> show p
  SlowDisk m x -> "the disk of " <> name m <> " is " <> show x <> " times slower"
  FillDisk m n -> "the disk of " <> name m <> " has room for " <> show n <> " bytes"
  MendDisk m -> "the disk of " <> name m <> " works again"
  Signal m n -> name m <> " gets signal " <> show n
  where
    name = Text.unpack
    names = unwords . map name

-- | Each fault with the one that mends it, if the script has it: what to leave out together.
withMendings :: FaultScript -> [FaultScript]
withMendings = \case
  [] -> []
  fault : rest -> case break (mends (faultWhat fault) . faultWhat) rest of
    (before, mending : after) -> [fault, mending] : withMendings (before <> after)
    _ -> [fault] : withMendings rest

-- | Does the second fault end the first?
mends :: Fault -> Fault -> Bool
mends = \cases
  (Crash m) (Restart m') -> m == m'
  (Blackout ms) (PowerReturns ms') -> ms == ms'
  (Cut _ _) Heal -> True
  (CutOneWay _ _) Heal -> True
  (SlowLinks _) Heal -> True
  (SkewClock m d) (SkewClock m' 0) -> m == m' && d /= 0
  (FailDisk m _) (MendDisk m') -> m == m'
  (SlowDisk m _) (MendDisk m') -> m == m'
  (FillDisk m _) (MendDisk m') -> m == m'
  _ _ -> False

-- | The parts of random scripts.
data FaultPlan = FaultPlan
  { -- | Machines that any fault may hit.
    planMachines :: [Text],
    -- | Machines whose clocks may jump and which may be cut off, but which neither crash nor have
    -- disk trouble: those that the test itself needs.
    planBystanders :: [Text],
    -- | Kinds of faults.
    planKinds :: [FaultKind],
    -- | The first and the last time of a fault, since the start.
    planFrom, planUntil :: !Duration,
    -- | The largest number of faults; a number from 0 on is drawn. Each is mended again, except a
    -- reset, which is over at once.
    planCount :: !Int,
    -- | How long each fault lasts, at most.
    planLength :: !Duration
  }
  deriving stock (Eq, Show)

-- | Kinds of faults.
data FaultKind
  = -- | A machine crashes and starts again.
    Crashes
  | -- | All machines lose their power in one moment, and start again together.
    Blackouts
  | -- | Some machines are cut off from the others, in one direction or both.
    Partitions
  | -- | All links take between 1 and 500 milliseconds longer.
    SlowNetwork
  | -- | The connections of a machine are reset.
    Resets
  | -- | A wall clock jumps, by up to an hour in either direction.
    ClockSkews
  | -- | One in five of a machine's disk operations fails with @EIO@.
    DiskFailures
  | -- | A machine's disk operations take 50 times as long.
    DiskSlowness
  | -- | A machine's files cannot grow: @ENOSPC@.
    FullDisks
  deriving stock (Eq, Show, Enum, Bounded)

drawScript :: FaultPlan -> Random -> IO FaultScript
drawScript plan random
  | null (planMachines plan) || null (planKinds plan) = pure []
  | otherwise = do
      n <- below random (planCount plan + 1)
      sortOn faultTime . concat <$> replicateM n one
  where
    one = do
      kind <- pick (planKinds plan)
      begin <- within random (durationNanoseconds (planFrom plan), durationNanoseconds (planUntil plan))
      len <- within random (0, durationNanoseconds (planLength plan))
      machine <- pick (if kind == ClockSkews then everybody else planMachines plan)
      let for' fault mended = pure [At begin fault, At (begin + len) mended]
      case kind of
        Crashes -> for' (Crash machine) (Restart machine)
        Blackouts -> for' (Blackout (planMachines plan)) (PowerReturns (planMachines plan))
        Partitions -> do
          sides <- mapM (\m -> (m,) <$> chance random 0.5) everybody
          oneWay <- chance random 0.3
          let (a, b) = partition snd sides
          for' ((if oneWay then CutOneWay else Cut) (map fst a) (map fst b)) Heal
        SlowNetwork -> within random (1_000_000, 500_000_000) >>= \d -> for' (SlowLinks d) Heal
        Resets -> pure [At begin (ResetConnections machine)]
        ClockSkews -> within random (-3_600_000_000_000, 3_600_000_000_000) >>= \d -> for' (SkewClock machine d) (SkewClock machine 0)
        DiskFailures -> for' (FailDisk machine 0.2) (MendDisk machine)
        DiskSlowness -> for' (SlowDisk machine 50) (MendDisk machine)
        FullDisks -> for' (FillDisk machine 0) (MendDisk machine)
    everybody = planMachines plan <> planBystanders plan
    pick options = (options !!) <$> below random (length options)
