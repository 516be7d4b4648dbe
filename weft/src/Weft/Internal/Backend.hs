{-# OPTIONS_HADDOCK not-home #-}

-- | The interface of event sources: 'Operation's as plain data, and the record 'Backend' of functions that
-- carry them out. The shape is that of io_uring, because a readiness source can imitate completions (try,
-- wait until ready, try again), and completions cannot imitate readiness.
module Weft.Internal.Backend
  ( Operation (..),
    Direction (..),
    streamOf,
    Backend (..),
    Completion (..),
    Post,
    Answer,
    pending,
    isPending,
    answerToken,
    Token (..),
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

-- | A request to a backend. Memory that a pointer points to must stay valid until the completion has
-- run, whose closure keeps it alive. Every operation answers with a number as @io_uring@ does: zero or
-- more for success, the negated @errno@ for failure.
data Operation
  = -- | @recv@ into memory of this size; 0 means end of stream.
    Receive !Descriptor !(Ptr Word8) !Int
  | -- | @send@ (with @MSG_NOSIGNAL@): how many bytes the socket took.
    Send !Descriptor !(Ptr Word8) !Int
  | -- | @recvmsg@ with a prepared @struct msghdr@.
    ReceiveMessage !Descriptor !(Ptr ())
  | -- | @sendmsg@ with a prepared @struct msghdr@: datagrams, and vectored sends.
    SendMessage !Descriptor !(Ptr ())
  | -- | @accept4@ (non-blocking, closed on exec): address, its @socklen_t@ (both may be null); answers
    -- the new number.
    Accept !Descriptor !(Ptr ()) !(Ptr ())
  | -- | @connect@ to an address of this size; answers 0 when established.
    Connect !Descriptor !(Ptr ()) !Int
  | -- | Wait until a read (data, end of stream, or an error), or a write, would not block.
    Await !Direction !Descriptor
  | -- | As 'Await', for a number that other code owns, uses and closes; a file is always ready.
    AwaitFd !Direction !CInt
  | -- | Read a pipe, FIFO, terminal or eventfd (no offset).
    ReadStream !Descriptor !(Ptr Word8) !Int
  | -- | Write to a pipe, FIFO, terminal or eventfd (no offset).
    WriteStream !Descriptor !(Ptr Word8) !Int
  | -- | @sendfile@ from an offset of a file to a socket, at most the given number of bytes. Never waits for a disk
    -- on the worker.
    SendFile !Descriptor !Descriptor !Int64 !Int
  | -- | @pread@ of a file at an offset.
    ReadAt !Descriptor !(Ptr Word8) !Int !Int64
  | -- | @pwrite@ of a file at an offset (-1: at the file's own position, which with @O_APPEND@ is its end).
    WriteAt !Descriptor !(Ptr Word8) !Int !Int64
  | -- | @fsync@, or @fdatasync@ when true.
    Sync !Descriptor !Bool
  | -- | @openat2@: directory number (or @AT_FDCWD@), C string, open flags, mode, resolve flags.
    OpenAt !CInt !(Ptr ()) !Int !Int !Int
  | -- | @statx@: directory number, path, flags, mask, memory for a @struct statx@.
    StatAt !CInt !(Ptr ()) !Int !Int !(Ptr ())
  deriving stock (Show)

-- | Which of a descriptor's two streams of bytes an operation waits for.
data Direction = Reading | Writing
  deriving stock (Eq, Show)

-- | The descriptor that an operation is about, if it is one of a stream, and what it waits for.
streamOf :: Operation -> Maybe (Direction, Descriptor)
streamOf = \case
  Receive d _ _ -> Just (Reading, d)
  Send d _ _ -> Just (Writing, d)
  ReceiveMessage d _ -> Just (Reading, d)
  SendMessage d _ -> Just (Writing, d)
  Accept d _ _ -> Just (Reading, d)
  Connect d _ _ -> Just (Writing, d)
  Await direction d -> Just (direction, d)
  ReadStream d _ _ -> Just (Reading, d)
  WriteStream d _ _ -> Just (Writing, d)
  SendFile d _ _ _ -> Just (Writing, d)
  _ -> Nothing

-- | The owner's note on an operation, and what becomes of the result.
data Completion w = Completion
  { -- | What the owner of the backend wants to be told by 'visit'.
    completionFor :: !w,
    -- | Runs once with the operation's result, on the worker that owns the backend, from inside 'poll' and
    -- never from inside 'submit'. It must not throw, block, or submit: it makes a thread ready. Not strict:
    -- GHC would not see that what a strict field is given is a function already, and make a thunk.
    complete :: Int -> IO ()
  }

-- | How a pool thread hands an action to the worker that owns the backend. From any OS thread.
type Post = IO () -> IO ()

-- | Names a pending operation for 'cancel'. Never reused within 2^24 operations.
newtype Token = Token Int
  deriving newtype (Eq, Show)

-- | The immediate answer of 'submit': a result (at least -4095), or a token of the pending operation.
-- One machine word, because it is made for every system call.
type Answer = Int

-- | The answer that says "pending, under this token" (tokens are not negative).
pending :: Token -> Answer
pending (Token t) = complement t - 4096

-- | Will its completion run? It was answered already otherwise.
isPending :: Answer -> Bool
isPending a = a < -4095

-- | The token of an answer for which 'isPending' holds.
answerToken :: Answer -> Token
answerToken a = Token (complement (a + 4096))

-- | The time that 'poll' may block, in nanoseconds: 'noWait', 'forever' or a bound.
type PollLimit = Int64

-- | Collect what has completed and return at once; block until something completes or 'wake' is called.
noWait, forever :: PollLimit
noWait = 0
forever = -1

-- | An event source, whose owner remembers a @w@ with each operation. All fields but 'wake' are for the
-- OS thread that drives the backend at the time ('adopt'), one call at a time.
data Backend w = Backend
  { -- | @"epoll"@, @"io_uring"@, @"poll"@.
    backendName :: !String,
    -- | Start an operation. Either it is answered at once (it is tried first where that is likely to
    -- succeed) and the completion is dropped, or it is pending and the completion runs once, later.
    submit :: !(Operation -> Completion w -> IO Answer),
    -- | Ask for a pending operation to end early. It still completes once, through its own completion: with
    -- @-ECANCELED@, or with its result if that came first. A token that is not pending is ignored.
    cancel :: !(Token -> IO ()),
    -- | Have an operation that is pending stay with its descriptor when it has completed, so that it
    -- can wait again without being submitted ('waitAgain'): its completion runs once for each
    -- time. 'Nothing' where it cannot, and then it is pending as any other.
    stand :: !(Token -> IO (Maybe Place)),
    -- | Run the completions of what has completed, and answer how many; block for at most the timeout
    -- when nothing has, in one @safe@ foreign call; 'noWait' is an @unsafe@ one.
    poll :: !(PollLimit -> IO Int),
    -- | Make the present or the next blocking 'poll' return. From any OS thread, coalesced.
    wake :: !(IO ()),
    -- | Before a descriptor is closed: drop what is known about it. Pending operations on it complete
    -- with @-ECANCELED@ (or with their result). The action is run, from inside this call or a later
    -- 'poll', when none is left.
    forget :: !(Descriptor -> IO () -> IO ()),
    -- | Fold over the pending operations, each once, in any order: from the answer of 'submit' that
    -- says so until the completion runs, also when cancelled. Not from inside 'poll'; the function must
    -- not call into the backend. It allocates nothing for an operation that waits.
    visit :: !(forall r. (Operation -> w -> r -> IO r) -> r -> IO r),
    -- | The tokens of the pending operations with such notes of their owner. Not from inside 'poll'.
    pendingTokens :: !((w -> Bool) -> IO [Token]),
    -- | The calling OS thread drives the backend from now on. The former one must make no more calls;
    -- what it did before must be visible to the caller. It may end at any time, or live on. Nothing that
    -- is pending is lost by it: Note [Another thread drives the ring] in "Weft.Internal.Backend.Uring".
    -- Does not block, and runs no completion; harmless when the thread is the same.
    adopt :: !(IO ()),
    -- | Cancel everything, wait until the system holds no memory of ours, and free the resources. No
    -- completion runs afterwards.
    shutdown :: !(IO ())
  }
