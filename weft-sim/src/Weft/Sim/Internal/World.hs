{-# OPTIONS_HADDOCK not-home #-}

-- | The state that all parts of a simulated kernel share: the machines, their clocks, which thread
-- is on which, and what the program does not determine, the world's random numbers and the
-- decisions that an exploration may take over. Used by the OS thread that runs the simulation.
module Weft.Sim.Internal.World
  ( -- * Worlds
    World (..),
    newWorld,
    note,

    -- * Decisions
    Decision (..),
    byChance,

    -- * Machines
    Machine (..),
    addMachine,
    machineNamed,
    machinesOf,
    wallClockOf,

    -- * Where threads are
    Residence (..),
    residenceOf,
    residing,
    machineOf,
    isAlive,

    -- * What a world is made of
    module Weft.Sim.Internal.Conditions,
    module Weft.Sim.Internal.Events,
    module Weft.Sim.Internal.Random,
  )
where

import Control.Monad.Primitive (RealWorld)
import Data.Bits (shiftL, shiftR, (.&.))
import Data.IORef
import Data.Int (Int64)
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.IntSet (IntSet)
import Data.IntSet qualified as IntSet
import Data.List (find)
import Data.Primitive.PrimVar
import Data.Text (Text)
import Data.Text qualified as Text
import Data.Word (Word32)
import GHC.Exts (Any)
import Network.Socket (HostAddress)
import Unsafe.Coerce (unsafeCoerce)
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Shortage
import Weft.Sim.Internal.Conditions
import Weft.Sim.Internal.Events
import Weft.Sim.Internal.Random

data World = World
  { worldConditions :: !Conditions,
    worldEvents :: !Events,
    -- | For what the world does by itself.
    worldRandom :: !Random,
    -- | For what an exploration may decide.
    decide :: !(Decision -> IO Int),
    -- | By number; 0 is the home machine.
    worldMachines :: !(IORef (IntMap Machine)),
    -- | The machine of each address; the first keeps one that is given twice.
    worldOwners :: !(IORef (IntMap Machine)),
    worldHome :: !Machine,
    -- | How many machines have crashed so far: while it is 0 every machine is alive.
    worldDeaths :: !(PrimVar RealWorld Int),
    -- | Told what happens in the world, a line each, while the run is recorded.
    worldNote :: !(Maybe (String -> IO ())),
    -- | Told what the program does that a simulation cannot know, a line each.
    worldWarn :: !(String -> IO ())
  }

-- | A decision with several ways in one and the same world, and how likely each way is where
-- chance decides.
data Decision
  = -- | Does it go on as usual (0) or, with this probability, not (1)? Of a result that is known and a
    -- cancellation: they take effect later. Of an attempt that could succeed: it would have to wait.
    Unusual !Double
  | -- | Which of the events of one instant comes first? A number below 64 for each.
    Ordering
  deriving stock (Eq, Show)

byChance :: Random -> Decision -> IO Int
byChance random = \case
  Unusual p -> fromEnum <$> chance random p
  Ordering -> below random 64

-- | A world with a home machine and no other, which is not recorded. It is
-- 2020-09-13 12:26:40 UTC there.
newWorld :: Conditions -> Seed -> (Random -> Decision -> IO Int) -> (String -> IO ()) -> IO World
newWorld conditions seed decision warning = do
  random <- newRandom seed 1
  forDecisions <- newRandom seed 2
  let choose = decision forDecisions
  events <- newEvents (decision forDecisions Ordering >>= \n -> pure $! n)
  machines <- newIORef IntMap.empty
  owners <- newIORef IntMap.empty
  deaths <- newPrimVar 0
  -- 127.0.0.1 is every machine; this is what others know it by.
  home <- added machines owners (Text.pack "home") [addressOfMachine 0]
  pure (World conditions events random choose machines owners home deaths Nothing warning)

-- | Record something that has happened, if the run is recorded. The text is only made then.
note :: World -> String -> IO ()
note world text = mapM_ ($ text) (worldNote world)

-- | A computer.
data Machine = Machine
  { machineNumber :: !Int,
    -- | The name that it was given; @home@ for the one on which a run begins.
    machineName :: !Text,
    -- | Its addresses beside 127.0.0.1, in network byte order.
    machineAddresses :: [HostAddress],
    -- | How often it was started: threads of an earlier life are dead.
    machineLife :: !(IORef Int),
    machineUp :: !(IORef Bool),
    -- | By how much its wall clock is ahead, in nanoseconds.
    machineSkew :: !(IORef Int64),
    -- | Descriptor numbers in use.
    machineDescriptors :: !(IORef IntSet),
    -- | What waits for a descriptor to be free, latest first.
    machineStarved :: !(IORef [IO ()]),
    -- | The reports of these being short.
    machineShortage :: !Shortage,
    -- | For its start.
    machineProgram :: !(IORef (Maybe (Thread ())))
  }

instance Eq Machine where
  a == b = machineNumber a == machineNumber b

instance Show Machine where
  showsPrec _ m = showString (Text.unpack (machineName m))

-- | 10.0.0.1 for the home machine, 10.0.0.2 for the next, and so on, in network byte order
-- on a little-endian machine.
addressOfMachine :: Int -> HostAddress
addressOfMachine n = 10 + shiftL (byte 16) 8 + shiftL (byte 8) 16 + shiftL (byte 0) 24
  where
    byte :: Int -> Word32
    byte at' = fromIntegral (shiftR (n + 1) at' .&. 255)

-- | One more machine, up and running; with no addresses given it gets the next of 10.0.0.0.
addMachine :: World -> Text -> [HostAddress] -> IO Machine
addMachine world = added (worldMachines world) (worldOwners world)

added :: IORef (IntMap Machine) -> IORef (IntMap Machine) -> Text -> [HostAddress] -> IO Machine
added machines owners name addresses = do
  known <- readIORef machines
  let number = maybe 0 ((+ 1) . fst) (IntMap.lookupMax known)
  machine <-
    Machine number name (if null addresses then [addressOfMachine number] else addresses)
      <$> newIORef 0
      <*> newIORef True
      <*> newIORef 0
      <*> newIORef IntSet.empty
      <*> newIORef []
      <*> newShortage
      <*> newIORef Nothing
  writeIORef machines (IntMap.insert number machine known)
  machine <$ modifyIORef' owners (`IntMap.union` IntMap.fromList [(fromIntegral a, machine) | a <- machineAddresses machine])

machinesOf :: World -> IO [Machine]
machinesOf world = IntMap.elems <$> readIORef (worldMachines world)

machineNamed :: World -> Text -> IO (Maybe Machine)
machineNamed world name = find ((== name) . machineName) <$> machinesOf world

-- | The time of a machine's clock: nanoseconds since 1970-01-01 UTC.
wallClockOf :: World -> Machine -> IO Int64
wallClockOf world machine = do
  now <- clock (worldEvents world)
  skew <- readIORef (machineSkew machine)
  pure (1_600_000_000_000_000_000 + now + skew)

-- | The machine of a thread, and the machine's life.
data Residence = Residence !Int !Int
  deriving stock (Eq, Show)

-- A local state that children inherit, under a key that "Weft.Local" does not give.
residenceKey :: Int
residenceKey = -1

residenceOf :: Tcb -> Residence
residenceOf tcb = case IntMap.lookup residenceKey (contextLocals (stateContext (tcbState tcb))) of
  Nothing -> Residence 0 0
  Just r -> unsafeCoerce (r :: Any)

residing :: Residence -> Context -> Context
residing !r context =
  context
    { contextLocals = IntMap.insert residenceKey here (contextLocals context),
      contextInherited = IntMap.insert residenceKey here (contextInherited context)
    }
  where
    here = unsafeCoerce r :: Any

machineOf :: World -> Tcb -> IO Machine
machineOf world tcb
  | IntMap.null (contextLocals (stateContext (tcbState tcb))) = pure (worldHome world)
  | otherwise = do
      machines <- readIORef (worldMachines world)
      case residenceOf tcb of
        Residence number _ -> pure $! machines IntMap.! number

-- | Is the thread's machine up, in the life in which the thread was started?
isAlive :: World -> Tcb -> IO Bool
isAlive world !tcb = do
  deaths <- readPrimVar (worldDeaths world)
  if deaths == 0 then pure True else livesOn world (residenceOf tcb)
{-# INLINE isAlive #-}

livesOn :: World -> Residence -> IO Bool
livesOn world = \case
  Residence 0 0 -> pure True
  Residence number life -> do
    machines <- readIORef (worldMachines world)
    case IntMap.lookup number machines of
      Nothing -> pure False
      Just m -> do
        up <- readIORef (machineUp m)
        now <- readIORef (machineLife m)
        pure (up && now == life)
