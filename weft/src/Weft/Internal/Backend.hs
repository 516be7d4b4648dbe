{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The interface of event sources, in the shape of completions
--
-- An event source ("backend") is what one worker polls. This module owns the
-- words that the kernel of "Weft.Internal.Kernel" and the backends share: the
-- 'Operation's as plain data, and the record 'Backend' of functions that carry
-- them out. It is called on the worker that owns the backend and from no other
-- place, except for 'wake'.
--
-- The shape is that of io_uring, because a readiness source can imitate
-- completions (try, wait until ready, try again), and completions cannot imitate readiness.
module Weft.Internal.Backend
  ( -- * Operations
    Operation (..),
    streamOf,

    -- * Backends
    Backend (..),
    Completion (..),
    Post,

    -- * Answers of 'submit'
    Answer,
    pending,
    isPending,
    answerToken,
    Token (..),

    -- * Time limits of 'poll'
    PollLimit,
    noWait,
    forever,
  )
where

import Data.Bits (complement)
import Data.Int (Int64)
import Data.Word (Word8)
import Foreign.C.Types (CInt)
import Foreign.Ptr (Ptr)
import Weft.Internal.Core.Standing (Place)
import Weft.Internal.Os.Descriptor (Descriptor)

-- | A request to a backend. Memory that a pointer points to must stay valid
-- until the completion has run: the completion's closure keeps it alive.
--
-- Every operation answers with a number as @io_uring@ does: zero or more for
-- success, the negated @errno@ for failure.
data Operation
  = -- | @recv@ into memory of this size; 0 means end of stream.
    Receive !Descriptor !(Ptr Word8) !Int
  | -- | @send@ (with @MSG_NOSIGNAL@): how many bytes the socket took.
    Send !Descriptor !(Ptr Word8) !Int
  | -- | @recvmsg@ with a prepared @struct msghdr@.
    ReceiveMessage !Descriptor !(Ptr ())
  | -- | @sendmsg@ with a prepared @struct msghdr@: datagrams, and vectored sends.
    SendMessage !Descriptor !(Ptr ())
  | -- | @accept4@ with @SOCK_NONBLOCK|SOCK_CLOEXEC@: address, address length
    -- (a @socklen_t@, both may be null); answers the new number.
    Accept !Descriptor !(Ptr ()) !(Ptr ())
  | -- | @connect@ to an address of this size; answers 0 when established.
    Connect !Descriptor !(Ptr ()) !Int
  | -- | Wait until a read would not block (data, end of stream, or an error).
    AwaitReadable !Descriptor
  | -- | Wait until a write would not block.
    AwaitWritable !Descriptor
  | -- | As 'AwaitReadable', for the number of a descriptor that other code owns, uses
    -- and closes; a file, which is always ready, is. It may be answered a moment after it was so.
    AwaitReadableFd !CInt
  | -- | As 'AwaitReadableFd', until a write would not block.
    AwaitWritableFd !CInt
  | -- | Read a pipe, FIFO, terminal or eventfd (no offset).
    ReadStream !Descriptor !(Ptr Word8) !Int
  | -- | Write to a pipe, FIFO, terminal or eventfd (no offset).
    WriteStream !Descriptor !(Ptr Word8) !Int
  | -- | @sendfile@ from an offset of a file to a socket, at most the given number of bytes.
    -- Never waits for a disk on the worker.
    SendFile !Descriptor !Descriptor !Int64 !Int
  | -- | @pread@ of a file at an offset.
    ReadAt !Descriptor !(Ptr Word8) !Int !Int64
  | -- | @pwrite@ of a file at an offset (-1: at the file's own position, which
    -- with @O_APPEND@ is its end).
    WriteAt !Descriptor !(Ptr Word8) !Int !Int64
  | -- | @fsync@, or @fdatasync@ when true.
    Sync !Descriptor !Bool
  | -- | @openat2@: directory descriptor number (or @AT_FDCWD@), path as a C
    -- string, open flags, mode, resolve flags (@RESOLVE_BENEATH@ and others).
    OpenAt !CInt !(Ptr ()) !Int !Int !Int
  | -- | @statx@: directory descriptor number, path, flags, mask, buffer of
    -- @sizeof (struct statx)@ bytes.
    StatAt !CInt !(Ptr ()) !Int !Int !(Ptr ())
  deriving stock (Show)

-- | The descriptor that an operation is about, if it is one of a stream.
streamOf :: Operation -> Maybe Descriptor
streamOf = \case
  Receive d _ _ -> Just d
  Send d _ _ -> Just d
  ReceiveMessage d _ -> Just d
  SendMessage d _ -> Just d
  Accept d _ _ -> Just d
  Connect d _ _ -> Just d
  AwaitReadable d -> Just d
  AwaitWritable d -> Just d
  ReadStream d _ _ -> Just d
  WriteStream d _ _ -> Just d
  SendFile d _ _ _ -> Just d
  _ -> Nothing

-- | The owner's note on an operation, and what becomes of the result.
data Completion w = Completion
  { -- | Whatever the owner of the backend wants to be told by 'visit'. The backend
    -- keeps it while the operation is pending and looks at nothing in it.
    completionFor :: !w,
    -- | Runs once with the operation's result, on the worker that owns the
    -- backend, from inside 'poll' and never from inside 'submit'. It must not
    -- throw, block, or submit: it puts a thread on the ready queue. Not strict: of what is
    -- given a strict field GHC does not see that it is a function already, and makes a thunk.
    complete :: Int -> IO ()
  }

-- | How a pool thread hands an action to the worker that owns the backend;
-- callable from any OS thread. The worker runs the action between slices.
type Post = IO () -> IO ()

-- | Names a pending operation for 'cancel'. Never reused within 2^24 operations.
newtype Token = Token Int
  deriving newtype (Eq, Show)

-- | The immediate answer of 'submit': a result (at least -4095), or that the
-- operation is pending, and under which token. One machine word, because it is
-- made for every system call.
type Answer = Int

-- | The answer that says "pending, under this token" (tokens are not negative).
pending :: Token -> Answer
pending (Token t) = complement t - 4096

-- | Is the operation under way (its completion will run), or answered already
-- (its completion will not)?
isPending :: Answer -> Bool
isPending a = a < -4095

-- | The token of an answer for which 'isPending' holds.
answerToken :: Answer -> Token
answerToken a = Token (complement (a + 4096))

-- | The time that 'poll' may block, in nanoseconds: 'noWait', 'forever' or a bound.
type PollLimit = Int64

-- | Collect what has completed and return at once.
noWait :: PollLimit
noWait = 0

-- | Block until something completes or 'wake' is called.
forever :: PollLimit
forever = -1

-- | An event source, whose owner remembers a @w@ with each operation. All fields
-- but 'wake' are for the OS thread that currently drives the backend, one call at a
-- time. Which thread that is may change: see 'adopt'.
data Backend w = Backend
  { -- | @"epoll"@, @"io_uring"@, @"poll"@.
    backendName :: !String,
    -- | Start an operation. Either it is answered at once (optimistically: the
    -- operation is tried first where that is likely to succeed) and the
    -- completion is dropped, or it is pending and the completion runs once,
    -- later.
    submit :: !(Operation -> Completion w -> IO Answer),
    -- | Ask for a pending operation to end early. The operation still completes
    -- exactly once, through its own completion: with @-ECANCELED@, or with its
    -- result if that came first. A token that is not pending is ignored.
    cancel :: !(Token -> IO ()),
    -- | Have an operation that is pending stay with its descriptor when it has completed, so that it
    -- can wait again without being submitted ('waitAgain'): its completion runs once for each
    -- time. 'Nothing' where it cannot, and then it is pending as any other.
    stand :: !(Token -> IO (Maybe Place)),
    -- | Run the completions of what has completed; block for at most the
    -- timeout when nothing has. Answers how many completions ran. A blocking
    -- poll is one @safe@ foreign call; 'noWait' is an @unsafe@ one.
    poll :: !(PollLimit -> IO Int),
    -- | Make the present or the next blocking 'poll' return. Callable from any
    -- OS thread, coalesced: many calls between two polls cost one system call.
    wake :: !(IO ()),
    -- | Before a descriptor is closed: drop what is known about it. Pending
    -- operations on it complete with @-ECANCELED@ (or with their result). The
    -- action is run, from inside this call or a later 'poll', when none is left,
    -- and only then may the descriptor be closed.
    forget :: !(Descriptor -> IO () -> IO ()),
    -- | Fold over the operations that are pending, each once, in no particular
    -- order: an operation is pending from the answer of 'submit' that says so until
    -- its completion runs, also when it was cancelled. Not from inside 'poll'; the
    -- function must not call into the backend. Nothing is allocated for an
    -- operation that waits, and a few words for one that is in the pool.
    visit :: !(forall r. (Operation -> w -> r -> IO r) -> r -> IO r),
    -- | The tokens of the pending operations for whose owner's note the function is
    -- true. Not from inside 'poll'.
    pendingTokens :: !((w -> Bool) -> IO [Token]),
    -- | Say that the calling OS thread drives the backend from now on, before it
    -- makes any other call. The former one must make no more; what it did before
    -- must be visible to the caller (it happened before, through a lock or the
    -- like). It may end at any time, or live on for as long as it likes, computing
    -- or in a foreign call. Nothing that is pending is lost by it. Does not block,
    -- and runs no completion; harmless when the thread is the same. On io_uring
    -- what the former thread had submitted completes only afterwards while that thread is in a wait that no signal
    -- interrupts: Note [Another thread drives the ring] in
    -- "Weft.Internal.Backend.Uring".
    adopt :: !(IO ()),
    -- | Cancel everything, wait until the operating system holds no memory of
    -- ours, and free the resources. No completion runs afterwards.
    shutdown :: !(IO ())
  }
