{-# LANGUAGE MagicHash #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Cancellation: from the request, which is a message to the thread's worker, to the wait that ends. Owns
-- the states of a thread's 'Status' and their changes. Schedulers look for one before a system call; kernels
-- say when a wait may be interrupted. See Note [Cancellation].
module Weft.Internal.Core.Cancel
  ( -- * Asking
    condemn,
    condemnOnce,
    condemnFrom,
    cancelFrom,

    -- * For kernels
    interruptible,
    interruptibleAgain,
    takeInterruption,
    interruption,
    orInterrupted,
    orClosing,
    endsWithRun,

    -- * For schedulers
    notCondemned,
    unhindered,
    cancelledNow,
    newIdentity,
    closingIdentity,
    markEnded,
    hasWaited,
    moveTo,

    -- * The exception
    Cancelled (..),
  )
where

import Control.Exception (Exception (..), SomeException, asyncExceptionFromException, asyncExceptionToException)
import Control.Monad (unless)
import Control.Monad.Primitive (RealWorld)
import Data.IORef (readIORef)
import Data.Primitive.PrimVar
import Data.Sequence (Seq (..))
import Data.Sequence qualified as Seq
import GHC.Exts (isTrue#, oneShot, reallyUnsafePtrEquality#)
import System.IO.Unsafe (unsafePerformIO)
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Cell
import Weft.Internal.Data.Conditional

-- Note [Cancellation]
-- ~~~~~~~~~~~~~~~~~~~
-- A thread lives on one worker, its home. Only the home, outside user code, acts on a status or writes
-- it; other threads read which worker is the home, and post a message there. So a status has no races,
-- and these are all its changes (the one that threads without a number share, Unnumbered, has none):
--
--   Going     --condemn-->    Condemned    noticed at the next system call
--   Waiting   --condemn-->    Condemned    and the wait's abort action runs, once
--   Condemned --condemn-->    Condemned    one more, after the others
--   Going, Waiting --wait-->  Waiting      a wait that may be interrupted begins
--   Condemned --wait-->       Condemned    and the wait's abort action runs at once
--   Condemned --throw-->      Going        or Condemned with the rest
--   Going, Waiting --move-->  Going        at another home (Condemned keeps its list)
--   any       --end-->        Ended
--
-- The end of a wait writes nothing: abort actions do nothing when their wait is over, so a Waiting whose
-- wait is over means Going. A wait under an uninterruptible mask never becomes Waiting.
--
-- A message that misses the thread follows it. The old home moves the thread and changes the status
-- first; so at most one message is one step late, and none is lost.
--
-- An abort only asks. The operation retires by its own completion: with success, and the thread goes on
-- and is still Condemned; or with ECANCELED, and the exception is raised there. So no success is ever lost.

-- | Raised in a thread that was cancelled, which it ends silently. An asynchronous exception: code that
-- handles "all synchronous exceptions" lets it pass.
data Cancelled = Cancelled
  deriving stock (Eq)

instance Show Cancelled where
  show _ = "the thread was cancelled"

instance Exception Cancelled where
  toException = asyncExceptionToException
  fromException = asyncExceptionFromException

-- | Have an exception raised in a thread as soon as it may be. From any OS thread; never waits.
condemn :: ThreadId -> SomeException -> IO ()
condemn t e = condemnOnce t (Cancellation e Nothing)

-- | 'condemn' with a reference that says whether the cancellation still applies.
condemnOnce :: ThreadId -> Cancellation -> IO ()
condemnOnce (ThreadId identity) = seek (identityStatus identity)

-- | 'condemn' from a worker, outside user code: a thread that lives there is condemned at once. So one
-- that cancels itself notices at its next system call.
condemnFrom :: Home -> ThreadId -> Cancellation -> IO ()
condemnFrom here (ThreadId identity) = arrive here (identityStatus identity)

-- | 'condemnFrom' with 'Cancelled'.
cancelFrom :: Home -> ThreadId -> IO ()
cancelFrom here t = condemnFrom here t (Cancellation (toException Cancelled) Nothing)

seek :: Cell Status -> Cancellation -> IO ()
seek status cancellation = readCell status $ \found ->
  mapM_ (\home -> homePost home (arrive home status cancellation)) (homeOf found)

-- | A cancellation has come to this worker.
arrive :: Home -> Cell Status -> Cancellation -> IO ()
arrive here status cancellation =
  readCell status $ \case
    Ended -> pure ()
    found | homeOf found /= Just here -> seek status cancellation
    found ->
      whenM (applies cancellation) $ case found of
        Condemned home others -> writeCell status (Condemned home (others :|> cancellation))
        Waiting home abort -> writeCell status (Condemned home (Seq.singleton cancellation)) >> abort
        _ -> writeCell status (Condemned here (Seq.singleton cancellation))

homeOf :: Status -> Maybe Home
homeOf = \case
  Going home -> Just home
  Waiting home _ -> Just home
  Condemned home _ -> Just home
  _ -> Nothing

applies :: Cancellation -> IO Bool
applies (Cancellation _ valid) = maybe (pure True) readIORef valid

-- | From the first that still applies. The others never apply again, and are looked at once.
applying :: Seq Cancellation -> IO (Seq Cancellation)
applying = \case
  Empty -> pure Empty
  several@(oldest :<| rest) -> applies oldest >>= \yes -> if yes then pure several else applying rest

-- | A wait of this thread has begun. The action asks for its end (or does nothing if it has ended); it
-- runs on the thread's home, now or later or never.
interruptible :: Tcb -> IO () -> IO ()
interruptible (Tcb (Identity _ status) state) !abort
  | stateMasking state == MaskedUninterruptible = pure ()
  | otherwise =
      readCell status $ \case
        Going home -> writeCell status (Waiting home abort)
        Waiting home _ -> writeCell status (Waiting home abort)
        Condemned home several ->
          applying several >>= \case
            Empty -> writeCell status (Waiting home abort)
            left -> writeCell status (Condemned home left) >> abort
        _ -> pure ()
{-# INLINE interruptible #-}

-- | A wait begins again, of which this is the status. False where a cancellation is on its way.
interruptibleAgain :: Tcb -> Status -> IO Bool
interruptibleAgain (Tcb (Identity _ status) _) waiting = readCell status $ \found ->
  if isTrue# (reallyUnsafePtrEquality# found waiting)
    then pure True
    else case found of
      Condemned _ _ -> pure False
      Ended -> pure False
      Unnumbered -> pure True
      _ -> True <$ writeCell status waiting

-- | Take the exception that is on its way to this thread, whatever the thread's masking state.
takeInterruption :: Tcb -> IO (Maybe SomeException)
takeInterruption = firstInterruption $ \status home later -> do
  rest <- applying later
  if null rest then goes status home else writeCell status (Condemned home rest)

-- | The exception that 'takeInterruption' would take; it stays pending.
interruption :: Tcb -> IO (Maybe SomeException)
interruption = firstInterruption (\_ _ _ -> pure ())

-- | The first exception that is on its way; what to do then, given those after it.
firstInterruption :: (Cell Status -> Home -> Seq Cancellation -> IO ()) -> Tcb -> IO (Maybe SomeException)
firstInterruption found (Tcb (Identity _ status) _) = readCell status $ \case
  Condemned home several ->
    applying several >>= \case
      Cancellation e _ :<| later -> Just e <$ found status home later
      Empty -> Nothing <$ goes status home
  _ -> pure Nothing

-- | It is Going, at this home.
goes :: Cell Status -> Home -> IO ()
goes status home = case homeGoing home of
  SharedStatus going -> writeCell status going

-- | How a thread goes on whose wait has ended with @ECANCELED@: with the exception that was on its way, or as
-- given when none may be raised: an operation also ends so when another thread closes its descriptor.
orInterrupted :: Tcb -> Resume -> IO Resume
orInterrupted tcb resume
  | stateMasking (tcbState tcb) == MaskedUninterruptible = pure resume
  | otherwise = maybe resume (\e -> oneShot (\_ -> Throw e)) <$> takeInterruption tcb

-- | 'orInterrupted' for a thread that may be anonymous: the end of the run gives it an identity.
orClosing :: Home -> Tcb -> Resume -> IO (Tcb, Resume)
orClosing home tcb resume
  | not (isNobody (tcbIdentity tcb)) = (tcb,) <$> orInterrupted tcb resume
  | otherwise = do
      closing <- readIORef (homeClosing home)
      if closing && endsWithRun tcb
        then do
          own <- closingIdentity home
          pure (tcb {tcbIdentity = own}, oneShot (\_ -> Throw (toException Cancelled)))
        else pure (tcb, resume)

-- | Does the end of a run interrupt what this thread waits for, which no cancellation can reach?
endsWithRun :: Tcb -> Bool
endsWithRun tcb = isNobody (tcbIdentity tcb) && stateMasking (tcbState tcb) /= MaskedUninterruptible

-- | An identity for a thread that was cancelled because its run is closing.
closingIdentity :: Home -> IO Identity
closingIdentity home = fetchAddInt closingNumbers 1 >>= newIdentity home . subtract 1 . negate

closingNumbers :: PrimVar RealWorld Int
closingNumbers = unsafePerformIO (newPrimVar 0)
{-# NOINLINE closingNumbers #-}

-- | Is no cancellation on its way?
notCondemned :: Cell Status -> IO Bool
notCondemned status = readCell status $ \case
  Condemned _ _ -> pure False
  _ -> pure True

-- | Has it a number, and is no cancellation on its way?
unhindered :: Cell Status -> IO Bool
unhindered status = readCell status $ \case
  Condemned _ _ -> pure False
  Ended -> pure False
  Unnumbered -> pure False
  _ -> pure True

cancelledNow :: Tcb -> IO (Maybe SomeException)
cancelledNow tcb
  | Unmasked <- stateMasking (tcbState tcb) = takeInterruption tcb
  | otherwise = pure Nothing
{-# OPAQUE cancelledNow #-}

newIdentity :: Home -> Int -> IO Identity
newIdentity home number = case homeGoing home of
  SharedStatus going -> Identity number <$> newCell going

markEnded :: Identity -> IO ()
markEnded identity = unless (isNobody identity) (writeCell (identityStatus identity) Ended)

-- | Has this ready thread waited at this home interruptibly? (One without a number was never parked.)
hasWaited :: Identity -> IO Bool
hasWaited (Identity _ status) = readCell status $ \case
  Waiting _ _ -> pure True
  _ -> pure False

-- | A ready thread is about to move to another home. On its old one.
moveTo :: Home -> Identity -> IO ()
moveTo home (Identity _ status) = readCell status $ \case
  Condemned _ several -> writeCell status (Condemned home several)
  Ended -> pure ()
  Unnumbered -> pure ()
  _ -> goes status home
