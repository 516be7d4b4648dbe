{-# LANGUAGE GADTs #-}
{-# LANGUAGE UnliftedDatatypes #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The library's own operations, as nodes of a trace. What an operation on the worker's state, or on
-- what its threads share, does, and what a simulation sees of it. Each is made in the module of its
-- object. See Note [Primitives].
module Weft.Internal.Core.Primitive
  ( Primitive (..),
    Behaviour (..),
    primitive,
    onlyAlone,
    behaviourOf,
    primitiveLooks,
    primitiveSight,
    Tried (..),
    VariableState (..),

    -- * Where it runs
    Here (..),
    currentTcb,
    become,

    -- * What is seen of it
    Sight (..),
    Use (..),
    using,
    Access (..),
    AccessKind (..),
  )
where

import Control.Monad.Primitive (RealWorld)
import Data.Kind (Type)
import Data.Primitive.MutVar
import Data.Primitive.PrimVar (PrimVar)
import Data.Text (Text)
import GHC.Exts (UnliftedType)
import GHC.Stack (CallStack)
import Weft.Internal.Core.Home
import Weft.Internal.Core.Tcb
import {-# SOURCE #-} Weft.Internal.Core.Trace (Trace)
import Weft.Internal.Data.Cell (Cell)

-- Note [Primitives]
-- ~~~~~~~~~~~~~~~~~
-- The library's own operations (locks, places, masks, identities, ...) are one kind of node, made once for
-- each object where possible, so that `lock m` allocates only the node and its continuation. The scheduler
-- runs its action on the worker, outside user code: it must be short and run none. Most answer at once, so
-- the action returns a plain result; one that waits is given the continuation, and parks its thread with it.
--
-- The cases that are worth 30 instructions are data: the scheduler does them itself. In all others it
-- calls the action, which knows them, too. They are for objects of a run with one worker ('onlyAlone'):
-- a plain write suffices there.
--
-- An operation also says, in words and numbers, what it touches. A simulation reads that before the
-- scheduler runs the node: so the action is the same in production and in simulation.

-- | An operation of the library itself, from a @p@ to an @a@.
data Primitive p a where
  -- | No fast case.
  Plain :: {-# UNPACK #-} !(Behaviour p a) -> Primitive p a
  -- | The slot is full: it becomes empty.
  TakeOut :: {-# UNPACK #-} !(Cell (VariableState r a)) -> !(Behaviour () a) -> Primitive () a
  -- | The word is 0: it becomes twice the thread's number.
  Hold :: {-# UNPACK #-} !(PrimVar RealWorld Int) -> !(Behaviour () ()) -> Primitive () ()
  -- | The word is twice the thread's number: it becomes 0.
  LetGo :: {-# UNPACK #-} !(PrimVar RealWorld Int) -> !(Behaviour () ()) -> Primitive () ()
  -- | The slot is empty: it becomes full.
  PutIn :: {-# UNPACK #-} !(Cell (VariableState r a)) -> !(Behaviour a ()) -> Primitive a ()

-- | What an operation does where it has no fast case, or that does not apply.
data Behaviour p a = Behaviour
  { behaviourAct :: !(Here -> p -> (a -> Trace) -> IO (Tried a)),
    -- | Does the thread look for a cancellation first? All do but those that give back.
    behaviourLooks :: !Bool,
    -- | For the probe. Not strict, because most runs never look; made of what the library has evaluated.
    behaviourSight :: Sight a
  }

-- | One without a fast case.
primitive :: (Here -> p -> (a -> Trace) -> IO (Tried a)) -> Bool -> Sight a -> Primitive p a
primitive act looks sight = Plain (Behaviour act looks sight)

-- | With this fast case, if the run has one worker: Note [The only worker] in
-- "Weft.Internal.Core.Atomic".
onlyAlone :: Home -> (Behaviour p a -> Primitive p a) -> Behaviour p a -> Primitive p a
onlyAlone home fast = if homeAlone home then fast else Plain

behaviourOf :: Primitive p a -> Behaviour p a
behaviourOf = \case
  Plain operation -> operation
  Hold _ operation -> operation
  LetGo _ operation -> operation
  TakeOut _ operation -> operation
  PutIn _ operation -> operation

primitiveLooks :: Primitive p a -> Bool
primitiveLooks = behaviourLooks . behaviourOf

primitiveSight :: Primitive p a -> Sight a
primitiveSight = behaviourSight . behaviourOf

-- | The content of a place for a value: "Weft.Internal.Sync.MVar".
type VariableState :: Type -> Type -> UnliftedType
data VariableState r a
  = -- | No value, and no waiter.
    Empty
  | -- | A value, and no waiter.
    Full a
  | -- | No value, and one taker waits, the first since it was empty. (It may have been
    -- cancelled.)
    One {-# UNPACK #-} !(ParkedThread () a)
  | -- | Anything else.
    Contended !r

-- | Where an operation runs. Unlifted, so that code need not check whether it is evaluated.
type Here :: UnliftedType
data Here = Here
  { -- | The worker.
    hereHome :: !Home,
    -- | The control block of the thread that runs, or ran last: the one to blame for an exception out
    -- of an effect or of pure code. Written whenever it is replaced.
    hereThread :: {-# UNPACK #-} !(MutVar RealWorld Tcb)
  }

currentTcb :: Here -> IO Tcb
currentTcb here = readMutVar (hereThread here)

become :: Here -> Tcb -> IO ()
become here !tcb = writeMutVar (hereThread here) tcb

data Tried a
  = -- | Its result; the thread goes on with it.
    Got a
  | -- | The thread waits; the provider of what it waits for makes it ready again.
    Later
  | -- | The thread goes on with this node.
    Instead Trace
  | -- | The thread goes on with this node in the same step.
    Run Trace

-- | The effects of an operation, with result @a@, that other threads could notice.
data Sight a
  = -- | Nothing: it is about the thread itself. The result that 'Weft.Trace.outline' assumes.
    Unseen a
  | -- | Nothing: the thread enters a mask, which ends with the matching 'Leave'. The result.
    Masks a
  | -- | Only that it happens.
    Bookkeeping
  | -- | It waits for this, if it is not there yet.
    Awaits BlockedOn
  | -- | It uses these objects.
    Uses [Use]
  | -- | It does this to a variable, here in the program.
    Accesses Access CallStack
  | -- | It begins a direct part of the thread: code of the user.
    Begins
  | -- | It goes on with one, and must not be kept from it.
    Resumes
  | -- | It lets other threads run, and looks for a cancellation by itself.
    Yields

-- | A verb, and the object that threads block on to which a thread does this.
data Use = Use String BlockedOn

using :: String -> BlockedOn -> Sight a
using verb blockedOn = Uses [Use verb blockedOn]

data Access = AccessTo
  { -- | Unique in the run.
    accessVariable :: {-# UNPACK #-} !Int,
    accessName :: !Text,
    accessKind :: !AccessKind
  }

data AccessKind
  = Reads
  | Writes
  | -- | Reads and writes in one step that nothing divides, which also orders what comes
    -- before it and after it.
    Modifies
  | -- | An effect that has a name and a place, on no variable that is known.
    Affects
  deriving stock (Eq, Show)
