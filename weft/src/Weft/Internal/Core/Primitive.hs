{-# LANGUAGE GADTs #-}
{-# LANGUAGE UnliftedDatatypes #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : What the library does for itself, as nodes of a trace
--
-- An operation on what belongs to the worker or is shared by its threads: what it does,
-- whether it looks for a cancellation, and what those see of it who watch. Each is made in
-- the module of the thing that it belongs to ("Weft.Internal.Sync.Mutex",
-- "Weft.Internal.Core.Self", ...).
--
-- See Note [Primitives].
module Weft.Internal.Core.Primitive
  ( Primitive (..),
    primitive,
    Tried (..),
    Fast (..),
    Slot (..),

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
import Weft.Internal.Core.Parking (Parking, Wish)
import Weft.Internal.Core.Tcb
import {-# SOURCE #-} Weft.Internal.Core.Trace (Trace)

-- Note [Primitives]
-- ~~~~~~~~~~~~~~~~~
-- What the library does for itself (locks, places, masks, identities, ...) is one kind of
-- node. The operation is made once for each object where that is possible, so that
-- `lock m` allocates the node and its continuation only. The scheduler runs its action on
-- the worker, outside user code (Note [User code and the worker] in
-- "Weft.Internal.Core.Scheduler"): it must be short, and must not run code of the user. Most have
-- their answer at once, so the action comes back with a plain result. What waits is given the
-- continuation, and parks its thread with it.
--
-- An operation also says, in words and numbers, what it touches. A simulation reads that from
-- the node before it lets the scheduler carry it out: so the action is the same in production
-- and in simulation.

-- | What the library does for itself, given a @p@, with an @a@ as result.
data Primitive p a = Primitive
  { -- | What is tried first.
    primitiveFast :: !(Fast p a),
    primitiveAct :: !(Here -> p -> (a -> Trace) -> IO (Tried a)),
    -- | Does the thread look for a cancellation first? All do but those that give back.
    primitiveLooks :: !Bool,
    -- | For those who watch. Made of what the library has evaluated; not strict, because
    -- most runs never look.
    primitiveSight :: Sight a
  }

-- | A primitive without a fast case.
primitive :: (Here -> p -> (a -> Trace) -> IO (Tried a)) -> Bool -> Sight a -> Primitive p a
primitive = Primitive NoFast
{-# INLINE primitive #-}

-- | The cases that are worth 30 instructions: the scheduler does them itself, in the same
-- step, where the worker is the only one of its run. In all others it calls the action, which
-- knows them, too.
data Fast :: Type -> Type -> Type where
  -- | There is none.
  NoFast :: Fast p a
  -- | The word is 0: it becomes twice the thread's number.
  Hold :: {-# UNPACK #-} !(PrimVar RealWorld Int) -> Fast () ()
  -- | The word is twice the thread's number: it becomes 0.
  LetGo :: {-# UNPACK #-} !(PrimVar RealWorld Int) -> Fast () ()
  -- | The slot is full: it becomes empty.
  TakeOut :: {-# UNPACK #-} !(MutVar RealWorld (Slot r a)) -> Fast () a
  -- | The slot is empty: it becomes full.
  PutIn :: {-# UNPACK #-} !(MutVar RealWorld (Slot r a)) -> Fast a ()

-- | What is in a place for a value: "Weft.Internal.Sync.MVar".
data Slot r a
  = -- | No value, and nobody waits.
    Empty
  | -- | A value, and nobody waits.
    Full a
  | -- | No value, and one taker waits, the first since it was empty. (It may have been
    -- cancelled.)
    One {-# UNPACK #-} !(Parking () a)
  | -- | Anything else.
    Contended !r

-- | Where an operation runs. Unlifted, so that no action asks whether it is evaluated.
type Here :: UnliftedType
data Here = Here
  { -- | The worker. Not strict: "Weft.Model" has none.
    hereHome :: Home,
    -- | The control block of the thread that runs, or ran last. Written at every dispatch
    -- and whenever it is replaced, so that it names the thread to blame when an
    -- exception arrives out of an effect or out of pure code.
    hereThread :: {-# UNPACK #-} !(MutVar RealWorld Tcb)
  }

-- | The thread that runs.
currentTcb :: Here -> IO Tcb
currentTcb here = readMutVar (hereThread here)
{-# INLINE currentTcb #-}

-- | Replace its control block.
become :: Here -> Tcb -> IO ()
become here !tcb = writeMutVar (hereThread here) tcb
{-# INLINE become #-}

-- | What came of an operation.
data Tried a
  = -- | Its result; the thread goes on with it.
    Got a
  | -- | The thread waits; whoever has what it waits for makes it ready again.
    Later
  | -- | The thread goes on with this node.
    Instead Trace
  | -- | The thread goes on with this node in the same step.
    Run Trace

-- | What others could notice of an operation with an @a@ as result.
data Sight a
  = -- | Nothing: it is about the thread itself. The result that 'Weft.Trace.outline' assumes.
    Unseen a
  | -- | Nothing: the thread enters a mask, which ends with the matching 'Leave'. The result.
    Masks a
  | -- | Only that it happens.
    Bookkeeping
  | -- | It waits for this, if it is not there yet.
    Awaits Wish
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

-- | What is done, in a word, to an object that others wait for so.
data Use = Use String Wish

-- | One object.
using :: String -> Wish -> Sight a
using verb wish = Uses [Use verb wish]

-- | What is done to which variable.
data Access = AccessTo
  { -- | Unique in the run.
    accessVariable :: {-# UNPACK #-} !Int,
    accessName :: !Text,
    accessKind :: !AccessKind
  }

-- | What is done to a variable.
data AccessKind
  = Reads
  | Writes
  | -- | Reads and writes in one step that nothing divides, which also orders what comes
    -- before it and behind it.
    Modifies
  | -- | An effect that has a name and a place, on no variable that is known.
    Affects
  deriving stock (Eq, Show)
