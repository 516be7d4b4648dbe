{-# LANGUAGE UnliftedDatatypes #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Thread control blocks and identities. The state of a thread between two nodes of its trace, and
-- the 'Identity' by which it is named and cancelled.
module Weft.Internal.Core.Tcb
  ( -- * Control blocks
    Tcb (..),
    ThreadState (..),
    Frames (..),
    Masking (..),
    Resume,
    newTcb,
    leaveFrame,
    tcbNumber,
    tcbLabel,
    tcbPriority,

    -- * Identities
    Identity (..),
    identityNumber,
    identityStatus,
    nobody,
    isNobody,
    ThreadId (..),
    threadNumber,
    Status (..),
    SharedStatus (..),
    goingAt,
    Cancellation (..),
  )
where

import Control.Exception (SomeException)
import Data.IORef (IORef)
import Data.Sequence (Seq)
import GHC.Exts (UnliftedType)
import System.IO.Unsafe (unsafePerformIO)
import Weft.Internal.Core.Context
import {-# SOURCE #-} Weft.Internal.Core.Home (Home)
import {-# SOURCE #-} Weft.Internal.Core.Trace (Trace)
import Weft.Internal.Data.Cell (Cell, newCell)
import Weft.Internal.Os.Masked (Masking (..))

-- | The control block of a thread: who it is, and its state.
data Tcb = Tcb
  { tcbIdentity :: !Identity,
    tcbState :: !ThreadState
  }

-- | 0 for an anonymous thread that has not been asked for its number.
tcbNumber :: Tcb -> Int
tcbNumber = identityNumber . tcbIdentity

-- | The part of a thread's state that its control flow changes.
data ThreadState = ThreadState
  { stateFrames :: !Frames,
    stateMasking :: !Masking,
    stateContext :: !Context
  }

-- | The handler stack, innermost first.
data Frames
  = NoFrames
  | -- | A handler, and the masking state to return to.
    HandlerFrame (SomeException -> Trace) !Masking !Frames
  | -- | The masking state to return to.
    MaskFrame !Masking !Frames

-- | How a suspended thread goes on. A function closure is one word smaller than the thunk of a lazy
-- 'Trace', needs no update, and is entered once (Note [One-shot continuations]).
type Resume = () -> Trace

newTcb :: Identity -> Context -> Tcb
newTcb identity context = Tcb identity (ThreadState NoFrames Unmasked context)

-- | The label of a thread.
tcbLabel :: Tcb -> Label
tcbLabel = contextLabel . stateContext . tcbState

-- | The priority of a thread.
tcbPriority :: Tcb -> Priority
tcbPriority = contextPriority . stateContext . tcbState

leaveFrame :: ThreadState -> ThreadState
leaveFrame st = case stateFrames st of
  -- Of a 'Catch' it is the state already; the body of an @await@ has its own.
  HandlerFrame _ masking rest -> st {stateFrames = rest, stateMasking = masking}
  MaskFrame masking rest -> st {stateFrames = rest, stateMasking = masking}
  NoFrames -> st

-- | The identity of a thread: unique in a run, never reused. Its holder can cancel the thread, and
-- keeps nothing of an ended one alive.
newtype ThreadId = ThreadId Identity

instance Eq ThreadId where
  a == b = threadNumber a == threadNumber b

instance Ord ThreadId where
  compare a b = compare (threadNumber a) (threadNumber b)

instance Show ThreadId where
  showsPrec _ t = showString "thread " . shows (threadNumber t)

threadNumber :: ThreadId -> Int
threadNumber (ThreadId identity) = identityNumber identity

-- | The number of a thread, and what is to become of it.
data Identity = Identity {-# UNPACK #-} !Int {-# UNPACK #-} !(Cell Status)

-- | 0 for an anonymous thread that has not been asked for its number.
identityNumber :: Identity -> Int
identityNumber (Identity n _) = if n == noNumber then 0 else n

identityStatus :: Identity -> Cell Status
identityStatus (Identity _ status) = status

-- | What all anonymous threads share that have not been asked for their number; its status is never
-- written. (One kind of identity: a node of a trace tests one thing less.)
nobody :: Identity
nobody = unsafePerformIO (Identity noNumber <$> newCell Unnumbered)
{-# NOINLINE nobody #-}

-- | No thread's number, and twice this is no word of a mutex: Note [The word of a mutex] in
-- "Weft.Internal.Sync.Mutex".
noNumber :: Int
noNumber = 0x4000_0000_0000_0000

isNobody :: Identity -> Bool
isNobody (Identity n _) = n == noNumber

-- | Whether a thread runs, waits, is condemned or has ended. Only its home changes this
-- ("Weft.Internal.Core.Cancel").
type Status :: UnliftedType
data Status
  = -- | Nothing in particular.
    Going !Home
  | -- | It waits, or waited, interruptibly; the action asks for the end of the wait, and does nothing
    -- if that has ended.
    Waiting !Home (IO ())
  | -- | Cancellations that it has not noticed yet, oldest first; at least one.
    Condemned !Home !(Seq Cancellation)
  | -- | It has ended.
    Ended
  | -- | Of threads without a number: nothing can be asked of them.
    Unnumbered

-- | The status of many threads. Lifted, since a home has its own within.
data SharedStatus = SharedStatus Status

-- | For a home that is being made: a function of its own, or GHC would evaluate the home where it is made.
goingAt :: Home -> SharedStatus
goingAt !home = SharedStatus (Going home)
{-# NOINLINE goingAt #-}

-- | An exception on its way to a thread, and whether it still applies, which is changed on the thread's
-- worker.
data Cancellation = Cancellation !SomeException !(Maybe (IORef Bool))
