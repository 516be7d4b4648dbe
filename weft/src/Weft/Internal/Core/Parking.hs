{-# LANGUAGE UnliftedDatatypes #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The place of a thread that waits for others. The types only; "Weft.Internal.Core.Park" has the
-- operations.
module Weft.Internal.Core.Parking (ParkedThread (..), Parked (..), BlockedOn (..)) where

import Data.Kind (Type)
import GHC.Exts (UnliftedType)
import {-# SOURCE #-} Weft.Internal.Core.Home (Home)
import Weft.Internal.Core.SystemCall (SystemCall)
import Weft.Internal.Core.Tcb (Resume, Tcb)
import {-# SOURCE #-} Weft.Internal.Core.Trace (Trace)
import Weft.Internal.Data.Cell (Cell)

-- | The object that a thread waits for, made once for each: its number in the run, and a
-- system call that says it.
data BlockedOn = forall r. BlockedOn !Int (SystemCall r)

-- | The right to answer one parked thread, once: it offers an @o@ and waits for an @a@. It is also the
-- thread's entry in a queue, and in the list of all that are parked on its home; when the wait is over
-- it holds nothing of the thread.
newtype ParkedThread o a = ParkedThread (Cell (Parked o a))
  deriving newtype (Eq)

type Parked :: Type -> Type -> UnliftedType
data Parked o a
  = -- | A thread that waits: where it lives, its control block, what it waits for (evaluated only
    -- where someone looks) and since when, what it offers, how it goes on.
    Occupied !Home !Tcb BlockedOn {-# UNPACK #-} !Int o (a -> Trace)
  | -- | It was answered or has withdrawn.
    Vacant
  | -- | It was answered from outside, and the message is on its way to the thread's home.
    Answering !Tcb BlockedOn {-# UNPACK #-} !Int
  | -- | One of several places of a thread that waits for the first of several things
    -- ("Weft.Internal.Sync.Choice"): what it offers here, the place of the thread, which decides
    -- whether it still waits, and how it goes on from here.
    OneOf o {-# UNPACK #-} !(ParkedThread () Resume) (a -> Trace)
