{-# LANGUAGE MagicHash #-}
{-# LANGUAGE PatternSynonyms #-}
{-# LANGUAGE UnboxedTuples #-}
{-# LANGUAGE UnliftedDatatypes #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Types that the parts of the substrate share
--
-- Variables, the log of a transaction, the transaction itself, HECs and stacks: the types only,
-- because each needs the others.
module Weft.Substrate.Internal.Types
  ( -- * Variables and transactions
    Box (..),
    PVar (..),
    Variable,
    variable,
    Log (..),
    Env (..),
    PTM (..),
    runPTM,
    noResult,
    pattern Conflict,
    pattern Asleep,
    pattern Away,

    -- * HECs and stacks
    HEC (..),
    Successor (..),
    Governed (..),
    Rules (..),
    Handlers (..),
    Reason (..),
    StackId (..),
    Slots,
    Rest,
    Answer,
  )
where

import Control.Exception (SomeException)
import Data.Kind (Type)
import GHC.Exts
import Weft.Substrate.Internal.Ground (Bed, Carried, Gate, Watch)

-- Note [Boxes]
-- ~~~~~~~~~~~~
-- A variable holds a box, and every write makes a new one. So the address of a box is the version
-- of its variable: two reads that found the same box found the same value, and no other write was
-- in between that could still be told (a box that a transaction has read is kept alive by
-- its log, and its address is not given to another). An unlifted box is never a thunk, an
-- indirection or a copy that GHC has made by boxing again, so comparing addresses is exact. No
-- 'Eq' is asked of the contents.

-- | The content of a variable. See Note [Boxes].
type Box :: Type -> UnliftedType
data Box a = Box a

-- | A variable of transactions.
data PVar a = PVar (MutVar# RealWorld (Box a))

instance Eq (PVar a) where
  PVar a == PVar b = isTrue# (reallyUnsafePtrEquality# a b)

-- | A variable of which the log forgets the type.
type Variable = MutVar# RealWorld (Box Any)

variable :: PVar a -> (# Variable #)
variable (PVar v) = (# unsafeCoerce# v #)

-- | The log of a transaction, newest first. Immutable: the holder of an older one holds
-- an earlier moment of the transaction.
type Log :: UnliftedType
data Log
  = Nil
  | -- | A variable that was read, and what it held.
    Read Variable (Box Any) Log
  | Write Variable (Box Any) Log
  | -- | What is done once the transaction is committed: a HEC is woken.
    After (IO ()) Log
  | -- | A 'Weft.Substrate.catchPTM' began here, inside this number of others.
    Mark Int# Log

-- | The place where a transaction runs. Unlifted, so that a read need not evaluate it.
type Env :: UnliftedType
data Env
  = -- | Nothing: the OS thread has to be asked.
    Anywhere
  | -- | On this HEC, in this stack.
    On !HEC !StackId
  | -- | In this stack, on no HEC: it was displaced, and is about to return.
    Off !StackId
  | -- | Inside this number of 'Weft.Substrate.catchPTM', of which the innermost keeps the log there.
    Catching Int# (MutVar# RealWorld Log) Env

-- | A transaction: a part of what 'Weft.Substrate.atomicPTM' and 'Weft.Substrate.switch' do in one
-- step. (Li 2008, figure 4.2: primitive transactional memory.)
newtype PTM a = PTM (Env -> Log -> Int# -> State# RealWorld -> (# State# RealWorld, Log, Int#, a #))

-- The number is the state of the sequence lock for which all that was read is consistent: an even
-- number, or one of the three below.

-- | The transaction has met a conflict and has to begin again; its result is none.
pattern Conflict :: Int#
pattern Conflict = -1#

-- | The transaction has called 'Weft.Substrate.sleepHEC'; its result is none.
pattern Asleep :: Int#
pattern Asleep = -2#

-- | The transaction has asked for the HEC, and this stack was displaced from it; its result is none.
pattern Away :: Int#
pattern Away = -3#

runPTM :: PTM a -> Env -> Log -> Int# -> State# RealWorld -> (# State# RealWorld, Log, Int#, a #)
runPTM (PTM m) = m

instance Functor PTM where
  fmap f m = m >>= \a -> pure (f a)

instance Applicative PTM where
  pure a = PTM (\_ l n s -> (# s, l, n, a #))
  f <*> m = f >>= \g -> m >>= \a -> pure (g a)

instance Monad PTM where
  PTM m >>= f = PTM $ oneShot $ \e l n s -> case m e l n s of
    (# s1, l1, n1, a #) -> case n1 <# 0# of
      1# -> (# s1, l1, n1, noResult #)
      _ -> runPTM (f a) e l1 n1 s1

-- | Stands for the result of a transaction that has none.
noResult :: a
noResult = errorWithoutStackTrace "weft-substrate: a transaction without a result was used"
{-# NOINLINE noResult #-}

-- | A Haskell execution context: it runs one stack at a time. (Li 2008, section 4.3.2.) Each OS thread that
-- carries it has a record of its own, with the same number.
data HEC = HEC
  { hecNumber :: !Int,
    -- | The bed in which it sleeps, if it does. Changed by transactions only, so a wake-up is for one sleep
    -- exactly. Of all its records.
    hecAsleep :: !(PVar (Maybe Bed)),
    -- | Where the OS thread waits that carries it, while it sleeps.
    hecBed :: !Bed,
    -- | The stack that this OS thread runs. Read and written by it only.
    hecStack :: MutVar# RealWorld StackId,
    -- | How its stack has ended. Of all its records.
    hecEnd :: !(Gate (Either SomeException ())),
    -- | What follows this stack when it has ended, if not the end of the HEC. Of all its records.
    hecEnding :: !(StackId -> IO (Maybe Successor)),
    -- | Its OS thread, where that is not the in-caller's. Of all its records.
    hecCarrier :: !Carried,
    -- | Of all its records.
    hecGoverned :: !Governed,
    -- | The one prompt tag, here so that a switch need not look whether it is evaluated.
    hecTag :: PromptTag# ()
  }

instance Eq HEC where a == b = hecNumber a == hecNumber b

instance Ord HEC where compare a b = compare (hecNumber a) (hecNumber b)

instance Show HEC where showsPrec p h = showParen (p > 10) (showString "HEC " . shows (hecNumber h))

-- | What follows a stack that has ended: masked, what is done with the exception that has ended it, if one has, and the
-- choice of the next stack.
data Successor = Successor {successorThrow :: !(SomeException -> IO ()), successorNext :: !(PTM StackId)}

-- | Can its stack be displaced?
data Governed
  = -- | No: it runs each until that leaves it.
    Free
  | -- | Yes. The variable holds the stack that it runs, and nothing after its end. See Note [Takeover by transaction] in
    -- "Weft.Substrate.Internal.Takeover".
    Governed !(PVar (Maybe StackId)) !Rules !Watch

-- | The handlers, and what a library does besides that has something of its own in its stacks.
data Rules = Rules
  { rulesHandlers :: !Handlers,
    -- | A part of the transaction that displaces this stack: may it be displaced now? The action, performed after that was
    -- found, answers how to raise an exception in the stack for as long as it is displaced, which waits until it is raised.
    rulesLeaves :: !(IO (SomeException -> IO ()) -> StackId -> PTM Bool),
    -- | The stack that waited on its OS thread for a HEC has one, and runs.
    rulesArrives :: !(StackId -> IO ()),
    -- | Nothing refers to this stack any more, which waits on its OS thread. Was it woken?
    rulesForgotten :: !(StackId -> IO Bool)
  }

-- | The handlers of a concurrency library for stacks that do not come back to their HEC by themselves.
data Handlers = Handlers
  { -- | The stack was displaced from the HEC that this transaction runs on: it chooses the stack with which the HEC goes
    -- on, or sleeps. The displaced stack is not suspended, and cannot be switched to. What this throws ends the HEC.
    displaced :: Reason -> StackId -> PTM StackId,
    -- | The displaced stack has come to an operation that needs a HEC. From this transaction on, which runs on no HEC,
    -- it is suspended there: it may be put into a queue. What this throws is raised in the stack.
    returned :: StackId -> PTM ()
  }

-- | Why a stack was displaced.
data Reason
  = -- | It computes.
    Computes
  | -- | It waits for a lazy value that another thread of GHC's evaluates.
    EntersBlackHole
  | -- | It waits for something else of GHC's, or in a foreign call.
    Blocks
  | -- | It has called 'Weft.Substrate.outCall'.
    CallsOut
  deriving stock (Eq, Ord, Show)

-- | A stack in memory: what is left to run of it ('Rest', or
-- 'Weft.Substrate.Internal.Commit.nowhere' while it runs and after its end), its dictionary
-- of stack-local state, and what the library keeps there that has made it.
type Slots = SmallMutableArray# RealWorld Any

-- | A stack: a computation that a HEC can switch to, once. (Li 2008, section 4.3.4.)
data StackId = StackId Slots

instance Eq StackId where
  StackId a == StackId b = isTrue# (sameSmallMutableArray# a b)

-- | The answer that a stack gets when it goes on: an action that it performs at once.
type Answer = State# RealWorld -> (# State# RealWorld, () #)

-- | What is left to run of a stack. It returns when the OS thread ceases to carry the HEC: the stack that it ran has
-- ended, or the HEC was given to the OS thread on which the entered stack waits.
type Rest = Answer -> State# RealWorld -> (# State# RealWorld, () #)
