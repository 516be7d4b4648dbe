{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The system kernel on one worker: carries an operation from a system call to the backend and its result back.
module Weft.Internal.Kernel.Env
  ( Env (..),
    Answering,
    Alarm (..),
    Starved (..),
    retryStarved,

    -- * Carrying out operations
    operate,
    operateIO,
    operateBefore,
    operateAgain,
    abort,
    completed,
    countPending,
    inPool,
    onItsWorker,
    whileOpen,

    -- * Closing descriptors
    closeDescriptor,
    unlessClosed,

    -- * Results
    failing,
    partOf,
  )
where

import Control.Exception (toException)
import Control.Monad (join, unless, void, when)
import Control.Monad.Primitive (RealWorld)
import Data.Foldable (for_)
import Data.IORef
import Data.Int (Int64)
import Data.Maybe (fromMaybe)
import Data.Primitive.Array (MutableArray, readArray)
import Data.Primitive.PrimVar
import Foreign.C.Error (eTIMEDOUT, errnoToIOError)
import Foreign.ForeignPtr.Unsafe (unsafeForeignPtrToPtr)
import Foreign.Ptr (Ptr, plusPtr)
import GHC.Exts (oneShot)
import GHC.IO (IO (..))
import Weft.Internal.Backend
import Weft.Internal.Core.Cancel
import Weft.Internal.Core.Interrupt
import Weft.Internal.Core.Park qualified as Park
import Weft.Internal.Core.SystemCall (Buffer (..))
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Conditional
import Weft.Internal.Data.Shortage (Shortage)
import Weft.Internal.Data.Slots (SlotKey, Slots)
import Weft.Internal.Data.Slots qualified as Slots
import Weft.Internal.Data.Timers qualified as Timers
import Weft.Internal.Kernel (Host (..), hostPost, hostPostTo, hostReady, hostWorker)
import Weft.Internal.Os.Descriptor
import Weft.Internal.Os.Pool
import Weft.Internal.Os.Sys qualified as Sys

-- | How a part of the kernel answers a system call of a thread that waits: the next node of its trace.
type Answering a = Wait -> (a -> Trace) -> IO Trace

data Env = Env
  { envHost :: !Host,
    envBackend :: !(Backend Wait),
    envTimers :: !(Timers.Timers Alarm),
    envPool :: !Pool,
    -- | The other workers' parts, by index, once they have started; each is touched on its own worker.
    envPeers :: !(MutableArray RealWorld (Maybe Env)),
    -- | Operations that the backend has not completed: while it is 0, a look has nothing to find.
    envPending :: !(PrimVar RealWorld Int),
    -- | Operations completed by polls, and timers fired, since the start.
    envCompleted :: !(PrimVar RealWorld Int),
    envFired :: !(PrimVar RealWorld Int),
    envStarved :: !(Slots Starved),
    -- | The reports of it to the operator.
    envShortage :: !Shortage
  }

-- | The action of a timer. The common case is data, because a million of them may exist.
data Alarm
  = -- | Make a sleeping thread ready.
    WakeThread !Tcb !Resume
  | -- | Anything else that does not block.
    Alarm !(IO ())

-- | Carry out an operation; the result decides the next node. The action keeps its memory alive.
operate :: Env -> Why -> Descriptor -> Operation -> IO () -> Wait -> (Int -> Trace) -> IO Trace
operate env why d operation keep !wait next = do
  answer <- start env d operation wait (oneShot (\r -> keep >> completed env why wait r (oneShot (\_ -> next r))))
  if isPending answer
    then do
      interruptible (waitTcb wait) (abort env answer)
      pure Parked
    else keep >> pure (next answer)
{-# INLINE operate #-}

-- | As 'operate', where the completion may run again (Note [Standing receives] in "Weft.Internal.Core.Standing"):
-- how the thread goes on after a result, and what is to be done when the operation is pending.
operateAgain :: Env -> Descriptor -> Operation -> IO () -> Wait -> (Int -> IO Resume) -> (Answer -> IO ()) -> IO Trace
operateAgain env d operation keep !wait came kept = do
  answer <- start env d operation wait (\r -> keep >> came r >>= completed env Completed wait r)
  if isPending answer
    then do
      -- First: a cancellation that is on its way ends the wait here.
      interruptible (waitTcb wait) (abort env answer)
      kept answer
      pure Parked
    else keep >> (\resume -> resume ()) <$> came answer
{-# INLINE operateAgain #-}

-- | Ask for the end of a pending operation. A function of the state, too, so that a waiting thread keeps two
-- arguments of it, and the answer unboxed.
abort :: Env -> Answer -> IO ()
abort env !answer = IO $ \s -> case cancel (envBackend env) (answerToken answer) of IO act -> act s

-- | A thread whose operation has ended goes on: as given, or with the cancellation that ended it.
retire :: Env -> Why -> Wait -> Int -> Resume -> IO ()
retire env why (Wait tcb _ _) r resume
  | r < 0, r == Sys.canceled = orClosing (hostHome (envHost env)) tcb resume >>= uncurry (hostReady (envHost env) why)
  | otherwise = hostReady (envHost env) why tcb resume

-- | As 'operate', where the next node takes reading some memory. The action does not block, and uses
-- nothing of this worker's (Note [A thread that moves]); its exceptions are the thread's.
operateIO :: Env -> Why -> Descriptor -> Operation -> Wait -> (Int -> IO Trace) -> IO Trace
operateIO env why d operation wait next = operate env why d operation (pure ()) wait (\r -> internally (\_ _ -> next r))
{-# INLINE operateIO #-}

-- Note [A thread that moves]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~
-- A thread whose operation has ended is ready, and may be given to another worker before it runs. So its
-- next node must not touch the worker that carried out the operation: a thread put into a queue from
-- elsewhere may be lost. A node that needs a worker takes the one it runs on.

-- | A node that goes on with the part of the worker that the thread is on by then.
onItsWorker :: Env -> (Env -> IO Trace) -> Trace
onItsWorker env act = internally (\home _ -> readArray (envPeers env) (homeWorker home) >>= act . fromMaybe env)

-- | As 'operate', but at the instant it is cancelled, and fails with @ETIMEDOUT@ if it has not succeeded.
operateBefore :: Env -> Maybe Int64 -> Why -> Descriptor -> Operation -> IO () -> Wait -> (Int -> Trace) -> IO Trace
operateBefore env Nothing why d operation keep wait next = operate env why d operation keep wait next
operateBefore env (Just limit) why d operation keep wait next = do
  alarm <- newIORef Nothing
  expired <- newIORef False
  answer <- start env d operation wait $ \r -> do
    keep
    readIORef alarm >>= mapM_ (Timers.cancel (envTimers env))
    late <- readIORef expired
    completed env why wait r (oneShot (\_ -> next (if late && r < 0 then Sys.failureCode eTIMEDOUT else r)))
  if not (isPending answer)
    then keep >> pure (next answer)
    else do
      key <- Timers.insert (envTimers env) limit . Alarm $ do
        writeIORef expired True
        cancel (envBackend env) (answerToken answer)
      writeIORef alarm (Just key)
      interruptible (waitTcb wait) (abort env answer)
      pure Parked

-- | Submit an operation, and count it while it is pending. What 'submit', an unknown function, is given
-- is evaluated, or it would be two thunks for each operation.
start :: Env -> Descriptor -> Operation -> Wait -> (Int -> IO ()) -> IO Answer
start env d operation !wait completion = whileOpen env d $ do
  let !asked = operation
      !whole = Completion wait completion
  answer <- submit (envBackend env) asked whole
  when (isPending answer) (countPending env 1)
  pure answer
{-# INLINE start #-}

countPending :: Env -> Int -> IO ()
countPending env by = readPrimVar (envPending env) >>= writePrimVar (envPending env) . (+ by)

-- | The end of an operation that was pending. Not inlined, so that a waiting thread's completion holds the
-- environment and not the parts that it needs.
completed :: Env -> Why -> Wait -> Int -> Resume -> IO ()
completed env why wait r resume = countPending env (-1) >> retire env why wait r resume
{-# NOINLINE completed #-}

-- | Use the number of a descriptor, which is not closed meanwhile; 'Sys.badDescriptor' if it was before.
whileOpen :: Env -> Descriptor -> IO Int -> IO Int
whileOpen env d action = ifM (enterWorker d (hostWorker (envHost env))) action (pure Sys.badDescriptor)
{-# INLINE whileOpen #-}

-- | 'whileOpen' for what the backend has no part in. A job of the pool looks again itself.
unlessClosed :: Env -> String -> Descriptor -> IO Trace -> IO Trace
unlessClosed env what d answer = do
  open <- enterWorker d (hostWorker (envHost env))
  if open then answer else pure (failing what Nothing (const Done) Sys.badDescriptor)
{-# INLINE unlessClosed #-}

-- | Run an action that may block in the pool. When the wait is cancelled before a pool thread has begun,
-- nothing is done; afterwards the action is interrupted with 'JobInterrupted', and its own end decides: Note
-- [Actions elsewhere] in "Weft.Internal.Core.Interrupt".
inPool :: Env -> IO a -> Wait -> (a -> Trace) -> IO Trace
inPool env action (Wait anyone request _) k = do
  let home = hostHome (envHost env)
  tcb <- Park.identified home anyone
  control <- newJobControl
  (Parked <$) . Park.waitDecided home tcb (BlockedOn 0 request) () Park.resumed $ \place -> do
    let goOn = Park.answerHere Completed place
    job <- submitPool (envPool env) $ do
      result <- runInterruptible control (stateMasking (tcbState tcb)) action
      homePost home $ case result of
        ByItself (Right a) -> goOn (oneShot (\_ -> k a))
        ByItself (Left e) -> goOn (oneShot (\_ -> Throw e))
        Interrupted e -> orInterrupted tcb (\_ -> Throw e) >>= goOn
    pure $ do
      withdrawn <- cancelPool job
      withdrawn <$ unless withdrawn (interruptJob control (toException JobInterrupted))

-- | Close a descriptor once no event source knows it and no thread holds it (Note [Use of the number] in
-- "Weft.Internal.Os.Descriptor"), once. Threads that wait on it get @ECANCELED@.
closeDescriptor :: Env -> Descriptor -> Wait -> (() -> Trace) -> IO Trace
closeDescriptor env d wait k = do
  markClosed d >>= \case
    Nothing -> pure (k ())
    Just knowing -> do
      let host = envHost env
      left <- newIORef (length knowing)
      closed <- newIORef False
      awaited <- newIORef False
      let finish = ifM (isHeld d) finishLater finishNow
          -- Another thread holds it for one call that does not wait, nearly always for less than this.
          finishLater = do
            moment <- Sys.monotonicNow
            void (Timers.insert (envTimers env) (moment + 100_000) (Alarm finish))
          finishNow = do
            _ <- Sys.close (descriptorNumber d)
            starved <- Slots.foldM (\found key _ -> pure (key : found)) [] (envStarved env)
            for_ starved $ \key -> retryStarved env key (const pure)
            writeIORef closed True
            whenM (readIORef awaited) $ hostReady host Completed (waitTcb wait) k
          -- Runs on this worker, so the count needs no atomic step.
          retired = do
            n <- readIORef left
            writeIORef left (n - 1)
            when (n == 1) finish
      when (null knowing) finish
      for_ knowing $ \w ->
        if w == hostWorker host
          then forget (envBackend env) d retired
          else hostPostTo host w $ do
            there <- readArray (envPeers env) w
            for_ there $ \peer -> forget (envBackend peer) d (hostPost host retired)
      ifM (readIORef closed) (pure (k ())) (Parked <$ writeIORef awaited True)

-- | An accept that waits for a free descriptor: its thread, how it goes on, and what stops its alarm.
data Starved = Starved !Tcb !Resume !(IORef (IO ()))

-- | Have a starved accept go on, as the function says, if it has not yet.
retryStarved :: Env -> SlotKey -> (Tcb -> Resume -> IO Resume) -> IO ()
retryStarved env key how =
  Slots.take (envStarved env) key >>= mapM_ \(Starved tcb again stop) -> do
    join (readIORef stop)
    how tcb again >>= hostReady (envHost env) Accepted tcb

-- | The next node for a result: the continuation, or the error that it encodes.
failing :: String -> Maybe FilePath -> (Int -> Trace) -> Int -> Trace
failing what path next r
  | r >= 0 = next r
  | otherwise = Throw (toException (errnoToIOError what (Sys.resultErrno r) Nothing path))
{-# INLINE failing #-}

-- | A part of a buffer, from an offset: its address, and its size, which is never outside.
partOf :: Buffer -> Int -> Int -> (Ptr a, Int)
partOf (Buffer memory room) offset count = (unsafeForeignPtrToPtr memory `plusPtr` from, max 0 (min (room - from) count))
  where
    from = max 0 (min room offset)
{-# INLINE partOf #-}
