{-# LANGUAGE UnliftedDatatypes #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Thread control blocks and identities. The state of a thread between two nodes of its trace, what it says
-- of itself ('Context'), and the 'Identity' by which it is named and cancelled.
module Weft.Internal.Core.Tcb
  ( -- * Control blocks
    Tcb (..),
    ThreadState (..),
    Frames (..),
    MaskingState (..),
    Resume,
    newTcb,
    leaveFrame,
    handlerMasking,
    tcbNumber,
    tcbLabel,
    tcbPriority,

    -- * Contexts
    Context (..),
    rootContext,
    Label,
    labelText,
    labelSuffix,
    Priority,
    Locals,
    limitScope,

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
import Data.ByteString.Short (ShortByteString)
import Data.ByteString.Short qualified as ShortByteString
import Data.IORef (IORef)
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.Sequence (Seq)
import Data.Text (Text)
import Data.Text qualified as Text
import Data.Text.Encoding qualified as Text
import Data.Text.Encoding.Error qualified as Text
import GHC.Exts (Any, UnliftedType)
import System.IO.Unsafe (unsafePerformIO)
import {-# SOURCE #-} Weft.Internal.Core.Home (Home)
import {-# SOURCE #-} Weft.Internal.Core.Trace (Trace)
import Weft.Internal.Data.Cell (Cell, newCell)
import Weft.Internal.Os.Masked (MaskingState (..))

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
    stateMasking :: !MaskingState,
    stateContext :: !Context
  }

-- | The handler stack, innermost first.
data Frames
  = NoFrames
  | -- | A handler, and the masking state to return to.
    HandlerFrame (SomeException -> Trace) !MaskingState !Frames
  | -- | The masking state to return to.
    MaskFrame !MaskingState !Frames

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

-- | What a thread says of itself. Immutable, and shared with siblings until it changes.
data Context = Context
  { contextLabel :: !Label,
    contextPriority :: !Priority,
    -- | The number of the thread that forked it, 0 for none.
    contextParent :: !Int,
    -- | The number of the scope that owns it, 0 for none; or 'limitScope'.
    contextScope :: !Int,
    -- | Its local state ("Weft.Local"): what its children inherit, and the rest.
    contextInherited :: !Locals,
    contextLocals :: !Locals
  }

-- | Values by the number of their key.
type Locals = IntMap Any

rootContext :: Context
rootContext = Context mempty 0 0 0 IntMap.empty IntMap.empty

-- | In place of a scope's number: the thread is the alarm of its parent's time limit ("Weft.Timeout").
limitScope :: Int
limitScope = -1

-- | A name for people: shown in reports and dumps. UTF-8.
type Label = ShortByteString

-- | As text; what is not UTF-8 is replaced.
labelText :: Label -> Text
labelText = Text.decodeUtf8With Text.lenientDecode . ShortByteString.fromShort

-- | The label in parentheses, to follow the thread's name; empty without a label.
labelSuffix :: Label -> String
labelSuffix label
  | ShortByteString.null label = ""
  | otherwise = " (" <> Text.unpack (labelText label) <> ")"

-- | Smaller runs sooner, under the policies that look at it. Default 0.
type Priority = Int

-- | That of a handler, as GHC has it, given the one in which the exception was raised.
handlerMasking :: MaskingState -> MaskingState
handlerMasking = \case
  Unmasked -> MaskedInterruptible
  masked -> masked

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

-- | Changed by the home of its thread only ("Weft.Internal.Core.Cancel").
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

-- | An exception on its way to a thread, and whether it still applies, for its home to change.
data Cancellation = Cancellation !SomeException !(Maybe (IORef Bool))
