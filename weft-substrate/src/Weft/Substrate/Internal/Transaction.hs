{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Transactions: variables, exceptions, sleep
--
-- The parts of a transaction, and the loop that runs one until it is committed. In any thread
-- of GHC's, but for what asks for a HEC.
module Weft.Substrate.Internal.Transaction
  ( newPVar,
    newPVarIO,
    readPVar,
    readPVarIO,
    writePVar,
    throwPTM,
    catchPTM,
    unsafeIOToPTM,
    conflicting,
    unsafeWritePVarIO,
    afterCommit,
    getHEC,
    getStackId,
    sleepHEC,
    wakeupHEC,
    atomicPTM,
    waitCond,

    -- * For switches
    goToSleep,
  )
where

import Control.Exception (Exception (..), SomeException, catch, mask_, onException, throwIO, uninterruptibleMask_)
import Control.Monad (unless, when)
import Data.IORef (newIORef, readIORef, writeIORef)
import GHC.Exts
import GHC.IO (IO (..), unIO)
import Weft.Substrate.Internal.Commit
import Weft.Substrate.Internal.Ground
import Weft.Substrate.Internal.Place
import Weft.Substrate.Internal.Raise
import Weft.Substrate.Internal.Sequence
import Weft.Substrate.Internal.Types

-- Variables ----------------------------------------------------------------------------------

-- | A new variable. It exists from now on, whatever becomes of the transaction.
newPVar :: a -> PTM (PVar a)
newPVar a = PTM (\_ l n s -> case newMutVar# (Box a) s of (# s1, v #) -> (# s1, l, n, PVar v #))

-- | A new variable, outside of a transaction.
newPVarIO :: a -> IO (PVar a)
newPVarIO a = IO (\s -> case newMutVar# (Box a) s of (# s1, v #) -> (# s1, PVar v #))

-- | The value of a variable: @atomicPTM . readPVar@, and cheaper.
readPVarIO :: PVar a -> IO a
readPVarIO (PVar v) = IO (\s -> case readMutVar# v (point s) of (# s1, Box a #) -> (# s1, a #))

-- | The value of a variable. All reads of a transaction are of one moment: also one that will have to
-- begin again never sees two values that did not exist together.
readPVar :: PVar a -> PTM a
readPVar p = case variable p of
  (# v #) -> PTM $ \e l n s -> case l of
    -- The first read needs no search, and notes nothing for a handler: in a catchPTM there is
    -- a Mark.
    Nil -> case readMutVar# v (point s) of
      (# s1, b@(Box a) #) -> case sequenceNow s1 of
        (# s2, m #) -> case m ==# n of
          1# -> (# s2, Read v b Nil, n, unsafeCoerce# a #)
          _ -> slow v e l n s2
    _ -> slow v e l n s
  where
    slow v e l n s = case readLogged v e l n s of
      (# s1, l1, n1, Box a #) -> (# s1, l1, n1, unsafeCoerce# a #)
{-# INLINE readPVar #-}

-- | Slow path, kept out of line: what the transaction itself knows of the variable, or else what it holds.
readLogged :: Variable -> Env -> Log -> Int# -> State# RealWorld -> (# State# RealWorld, Log, Int#, Box Any #)
readLogged v e l n s = find l
  where
    find = \case
      Nil -> fresh s
      Read w b r -> case reallyUnsafePtrEquality# v w of 1# -> (# s, l, n, b #); _ -> find r
      Write w b r -> case reallyUnsafePtrEquality# v w of 1# -> (# s, l, n, b #); _ -> find r
      After _ r -> find r
      Mark _ r -> find r
    fresh s0 = case readMutVar# v (point s0) of
      (# s1, b #) -> case sequenceNow s1 of
        (# s2, m #) -> case m ==# n of
          1# -> logged b s2
          _
            | planted ReadUnvalidated s2 -> logged b s2
            | otherwise -> case revalidate l s2 of
                (# s3, Conflict #) -> (# s3, l, Conflict, b #)
                (# s3, n1 #) -> readLogged v e l n1 s3
    logged b s1 = let !l1 = Read v b l in case noted e l1 s1 of s2 -> (# s2, l1, n, b #)

-- | The variable will hold this when the transaction is committed. Not evaluated.
writePVar :: PVar a -> a -> PTM ()
writePVar p a = case variable p of
  (# v #) -> PTM (\_ l n s -> (# s, Write v (Box (unsafeCoerce# a)) l, n, () #))

-- | For what has no visible effect if it is repeated or given up.
unsafeIOToPTM :: IO a -> PTM a
unsafeIOToPTM (IO m) = PTM (\_ l n s -> case m s of (# s1, a #) -> (# s1, l, n, a #))

-- | The transaction has met a conflict, and begins again.
conflicting :: PTM a
conflicting = PTM (\_ l _ s -> (# s, l, Conflict, noResult #))

-- | Write without a transaction: for a variable whose readers do not tell the old value from the new one.
unsafeWritePVarIO :: PVar a -> a -> IO ()
unsafeWritePVarIO (PVar v) a = IO (\s -> case writeMutVar# v (Box a) (point s) of s1 -> (# s1, () #))

-- | Perform an action when this transaction is committed, on the OS thread that commits it: how a
-- library tells the world outside of the substrate. Nothing is done for an attempt that fails. The
-- action must neither block nor throw. It is masked, and so is what it forks. Where the transaction is that of a 'Weft.Substrate.switch', it
-- runs between two stacks.
afterCommit :: IO () -> PTM ()
afterCommit act = PTM (\_ l n s -> (# s, After act l, n, () #))

-- Exceptions ---------------------------------------------------------------------------------

-- | Give the transaction up with an exception: nothing is written, no HEC woken.
throwPTM :: (Exception e) => e -> PTM a
throwPTM e = unsafeIOToPTM (throwIO e)

-- Note [What a failure has read]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- The handler of a catchPTM runs because of what the failed part has read, so those reads are a
-- condition of the commit like all others; its writes are dropped. An exception brings no
-- log with it, so inside a catchPTM every read that is new leaves the log in a variable (`noted`),
-- and so do the end and the handler of an inner one. In that log the failed part is what is above
-- the Mark of this depth: a Mark of an earlier catchPTM of the same depth is below it, those of
-- inner ones have a greater depth.

-- | Run a transaction; if it throws, nothing of it is written, and the handler goes on. What it has
-- allocated and what it has read remain: the transaction as a whole is only committed if these reads
-- still hold. 'sleepHEC' inside passes through it, with what was written. (Li 2008, figure 4.5.)
--
-- The handler sees exceptions of the code that is evaluated, too, such as @ErrorCall@.
catchPTM :: (Exception e) => PTM a -> (e -> PTM a) -> PTM a
catchPTM (PTM m) handler = PTM $ \e l n s -> case newMutVar# l s of
  (# s1, kept #) ->
    let !depth = depthOf e +# 1#
        !inside = Mark depth l
        body s0 = case m (Catching depth kept e) inside n s0 of (# s2, l1, n1, a #) -> (# s2, Returned l1 n1 a #)
        failure x = case fromException x of
          Nothing | not (fromWithin x) -> unIO (raiseAgain x (pure Again))
          taken -> unIO (pure (Threw x taken))
     in case writeMutVar# kept inside s1 of
          s2 -> case catch# body failure s2 of
            (# s3, Returned l1 n1 a #) -> case noted e l1 s3 of s4 -> (# s4, l1, n1, a #)
            (# s3, Again #) -> runPTM (catchPTM (PTM m) handler) e l n s3
            (# s3, Threw x taken #) -> case readMutVar# kept s3 of
              (# s4, reached #)
                | planted CatchForgetsReads s4 -> continue e l n x taken s4
                | planted CatchKeepsWrites s4 -> continue e reached n x taken s4
                | otherwise ->
                    let !l1 = readsSince depth l reached
                     in case revalidate l1 s4 of
                          (# s5, Conflict #) -> runPTM (unless (fromWithin x) (unsafeIOToPTM (raiseAsync x)) >> conflicting) e l1 n s5
                          (# s5, n1 #) -> case noted e l1 s5 of s6 -> continue e l1 n1 x taken s6
  where
    continue e l n x taken = runPTM (maybe (throwPTM x) handler taken) e l n

-- | How a part has ended. With an exception: also as the one that is handled, if it is one.
data Returned e a = Returned Log Int# a | Threw SomeException (Maybe e) | Again

-- | The older log and, above it, what was read since the Mark.
readsSince :: Int# -> Log -> Log -> Log
readsSince depth old l = case l of
  Nil -> old
  Mark d r -> case d ==# depth of
    1# -> old
    _ -> readsSince depth old r
  Read v b r -> Read v b (readsSince depth old r)
  Write _ _ r -> readsSince depth old r
  After _ r -> readsSince depth old r

depthOf :: Env -> Int#
depthOf = \case
  Catching d _ _ -> d
  _ -> 0#

-- | Leave the log where the innermost catchPTM finds it.
noted :: Env -> Log -> State# RealWorld -> State# RealWorld
noted e l s = case e of
  Catching _ kept _ -> writeMutVar# kept l s
  _ -> s

-- HECs ---------------------------------------------------------------------------------------

-- | The HEC that this runs on. A stack that was displaced from its HEC comes back first, and the transaction begins
-- again.
getHEC :: PTM HEC
getHEC = PTM $ \e l n s -> case hecIn e s of
  (# s1, h #) -> case hecGoverned h of
    Free -> (# s1, l, n, h #)
    Governed running _ _ -> runPTM (runsHere h running) e l n s1

-- | That the HEC runs this stack is read, so it is a condition of the commit.
runsHere :: HEC -> PVar (Maybe StackId) -> PTM HEC
runsHere h running = do
  here <- unsafeIOToPTM (IO (readMutVar# (hecStack h)))
  now <- readPVar running
  PTM $ \_ l n s ->
    if isHere here now || planted DisplacementUnseen s then (# s, l, n, h #) else (# s, l, Away, noResult #)

hecIn :: Env -> State# RealWorld -> (# State# RealWorld, HEC #)
hecIn e s = case e of
  On h _ -> (# s, h #)
  Off _ -> unIO (throwIO NotOnHEC) s
  Catching _ _ r -> hecIn r s
  Anywhere -> unIO hecHere s

-- | The stack that this runs in.
getStackId :: PTM StackId
getStackId = PTM $ \e l n s -> case stackIn e s of (# s1, t #) -> (# s1, l, n, t #)

stackIn :: Env -> State# RealWorld -> (# State# RealWorld, StackId #)
stackIn e s = case e of
  On _ t -> (# s, t #)
  Off t -> (# s, t #)
  Catching _ _ r -> stackIn r s
  Anywhere -> case unIO stackHere s of (# s1, (_, t) #) -> (# s1, t #)

-- Note [Sleep]
-- ~~~~~~~~~~~~
-- That a HEC sleeps is a variable, which the transaction that calls sleepHEC writes: it sleeps from
-- the very step in which its other writes are seen. A wake-up is a transaction that finds the
-- variable set and clears it; once it is committed, and only then, its HEC rouses the other. So
-- each sleep is ended by one wake-up, which comes after it, and the bed never holds a wake-up
-- that was meant for an earlier sleep.
--
-- From before that commit the OS thread is masked: an exception of GHC's is raised while it lies there, or not before it
-- has got up. And it carries nothing while it sleeps: only those that can wake the HEC refer to it, so GHC tells it when
-- there are none (BlockedIndefinitelyOnMVar).

-- | Commit what this transaction has written so far, and put its HEC to sleep in the same step. When
-- the HEC is woken the whole transaction runs again from its beginning. It does not compose:
-- a caller of a transaction that sleeps has its own writes committed half-way. (Li 2008, section
-- 4.3.3.) Nothing else runs on the HEC meanwhile. In a transaction that is run inside a lazy value, while
-- another is evaluated, it commits the writes of the inner one only: the outer one waits. A HEC that nothing can wake any
-- more, because nothing refers to it, gets 'Control.Exception.BlockedIndefinitelyOnMVar' in its stack.
sleepHEC :: PTM a
sleepHEC = do
  h <- getHEC
  PTM $ \_ l _ s -> case variable (hecAsleep h) of
    (# v #)
      | planted AsleepAfterCommit s -> (# s, l, Asleep, noResult #)
      | otherwise -> (# s, Write v (Box (unsafeCoerce# (Just (hecBed h)))) l, Asleep, noResult #)

-- | Wake a HEC, when this transaction is committed. Without effect if it does not sleep; to wake
-- oneself is without effect, too. (Figure 4.2 of Li 2008 has it in @IO@, figure 5.3 uses it
-- in a transaction.)
wakeupHEC :: HEC -> PTM ()
wakeupHEC h = PTM (\e l n s -> runPTM (waking s) e l n s)
  where
    waking s0 = do
      asleep <- if planted WakeUnlogged s0 then unsafeIOToPTM (readPVarIO (hecAsleep h)) else readPVar (hecAsleep h)
      case asleep of
        Nothing -> pure ()
        Just bed -> do
          writePVar (hecAsleep h) Nothing
          PTM $ \_ l n s ->
            if planted WakeBeforeCommit s
              then case unIO (rouse bed) s of (# s1, () #) -> (# s1, l, n, () #)
              else (# s, After (rouse bed) l, n, () #)

-- Running ------------------------------------------------------------------------------------

-- | Run a transaction: all that it does happens in one step, or, if it throws, nothing but its
-- allocations. It may run several times before that. Blocks only in 'sleepHEC'.
atomicPTM :: PTM a -> IO a
atomicPTM (PTM m) = IO (run 0#)
  where
    run k s = case begin s of
      (# s1, n #) -> case m Anywhere Nil n s1 of
        (# s2, l, n1, a #) -> case n1 of
          Conflict -> case failed k s2 of s3 -> run (k +# 1#) s3
          Asleep -> case goToSleep l s2 of s3 -> run 0# s3
          Away -> case unIO comeBack s2 of (# s3, () #) -> run 0# s3
          _ -> case commit l n1 s2 of
            (# s3, Done #) -> (# s3, a #)
            (# s3, _ #) -> case failed k s3 of s4 -> run (k +# 1#) s4
{-# INLINE atomicPTM #-}

-- | Commit the log of a transaction that has called 'sleepHEC', and sleep until woken. If it cannot
-- be committed, return at once. The transaction runs again in both cases. So it does where it has begun on another HEC, in a lazy
-- value that was left: that one may run by now, and this one would lie in a bed from which nobody rouses it.
goToSleep :: Log -> State# RealWorld -> State# RealWorld
goToSleep l0 s0 = case unIO (mask_ (IO attempt) `catch` (`raiseAgain` pure ())) s0 of (# s1, () #) -> s1
  where
    attempt s = case unIO hecHere s of
      (# s1, h #)
        | putsToSleep h -> case revalidate l s1 of
            (# s2, Conflict #) -> (# s2, () #)
            (# s2, n #) -> case commit l n s2 of
              (# s3, Done #) -> unIO (late h >>= sleeping) s3
              (# s3, _ #) -> (# s3, () #)
        | otherwise -> (# s1, () #)
    putsToSleep h = case l0 of
      Write v _ _ | (# own #) <- variable (hecAsleep h) -> planted AsleepAfterCommit s0 || isTrue# (reallyUnsafePtrEquality# v own)
      _ -> True
    !l = case l0 of
      Write v b r | planted SleepDropsWrites s0 -> Write v b (readsSince 0# Nil r)
      _ -> l0
    late h
      | planted AsleepAfterCommit s0 = h <$ atomicPTM (writePVar (hecAsleep h) (Just (hecBed h)))
      | otherwise = pure h

-- | Lie down. A HEC that is interrupted there (by an exception of GHC's) is awake again, and if it was
-- woken in that moment has used the wake-up. Masked.
sleeping :: HEC -> IO ()
sleeping h = do
  whenGoverned liesDown
  changePlace Nothing
  lieDown (hecBed h) `onException` (risen >> rise)
  risen
  where
    risen = changePlace (Just h) >> whenGoverned risesUp
    whenGoverned f = case hecGoverned h of
      Free -> pure ()
      Governed _ _ w -> f w
    rise = do
      still <- newIORef False
      atomicPTM $ do
        asleep <- (== Just (hecBed h)) <$> readPVar (hecAsleep h)
        unsafeIOToPTM (writeIORef still asleep)
        when asleep (writePVar (hecAsleep h) Nothing)
      asleep <- readIORef still
      unless asleep (uninterruptibleMask_ (lieDown (hecBed h)))

-- | Wait until a transaction has a result: while it answers 'Nothing' the HEC sleeps, and a HEC
-- that changes what it has read must wake it. (The 2007 workshop version of the substrate.)
waitCond :: PTM (Maybe a) -> IO a
waitCond m = atomicPTM (m >>= maybe sleepHEC pure)
