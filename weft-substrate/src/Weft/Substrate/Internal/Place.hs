{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Which HEC and which stack this is
--
-- The HEC that an OS thread carries, and how a stack that was displaced from its HEC gets one again.
-- Called by the code of stacks, on the OS thread that runs them.
module Weft.Substrate.Internal.Place
  ( hecHere,
    stackHere,
    isHere,
    comeBack,
    suspendHere,
    NotOnHEC (..),

    -- * For transactions
    begin,
    failed,
  )
where

import Control.Exception (BlockedIndefinitelyOnMVar, Exception (..), catch, onException, throwIO, uninterruptibleMask_)
import GHC.Exts
import GHC.IO (IO (..), unIO, unsafePerformIO)
import Weft.Substrate.Internal.Commit
import Weft.Substrate.Internal.Ground
import Weft.Substrate.Internal.Raise
import Weft.Substrate.Internal.Sequence
import Weft.Substrate.Internal.Types

-- | An operation that needs a HEC was called where none runs: outside of
-- 'Weft.Substrate.inCall', or on an OS thread that code inside has started.
data NotOnHEC = NotOnHEC
  deriving stock (Eq)

instance Show NotOnHEC where
  show NotOnHEC = "this OS thread runs no HEC: call it inside Weft.Substrate.inCall, on the same OS thread"

instance Exception NotOnHEC

-- | The HEC of this OS thread, or the one from which its stack was displaced.
hecHere :: IO HEC
hecHere =
  placeHere Nothing >>= \case
    Just h -> pure h
    Nothing -> throwIO NotOnHEC

-- | 'hecHere', and the stack that this OS thread runs.
stackHere :: IO (HEC, StackId)
stackHere = do
  h <- hecHere
  t <- IO (readMutVar# (hecStack h))
  pure (h, t)
{-# INLINE stackHere #-}

-- | Does a HEC run this stack, as the variable says that holds what it runs?
isHere :: StackId -> Maybe StackId -> Bool
isHere here = \case
  Just t -> t == here
  Nothing -> False

-- | The stack that runs, according to a variable of a HEC.
whatRuns :: PVar (Maybe StackId) -> IO (Maybe StackId)
whatRuns (PVar v) = IO (\s -> case readMutVar# v (point s) of (# s1, Box now #) -> (# s1, now #))

-- | The snapshot at which a transaction begins.
begin :: State# RealWorld -> (# State# RealWorld, Int# #)
begin = snapshot

-- | A transaction has failed, after the given number of earlier failures.
failed :: Int# -> State# RealWorld -> State# RealWorld
failed k s = case k ># 7# of
  1# -> case unIO (askQuiet (I# k)) s of (# s1, () #) -> s1
  _ -> s

-- Note [To come back]
-- ~~~~~~~~~~~~~~~~~~~
-- A displaced stack runs on without a HEC until it needs one. It is not captured there, because it may be where GHC
-- captures nothing (in a lazy value): it stays on its OS thread, which waits at a gate, and its rest is to give the
-- HEC that enters it to that OS thread. So HECs and OS threads change partners, and the OS thread that has given
-- its HEC away ends.
--
-- The rest is stored in the commit of the transaction that the library calls `returned`: who finds the stack
-- through that transaction can enter it, and no other code could before. Meanwhile the OS thread carries
-- nothing. What waits at a gate that nothing refers to is told by GHC (BlockedIndefinitelyOnMVar): its
-- handlers run, without a HEC.

-- | If the stack that runs here was displaced from its HEC, have it suspended until a HEC enters it. What that HEC
-- brings for it is raised here.
comeBack :: IO ()
comeBack = brought . uninterruptibleMask_ $ do
  (h, here) <- stackHere
  case hecGoverned h of
    Free -> pure (pure ())
    Governed running rules _ ->
      whatRuns running >>= \now ->
        if isHere here now then pure (pure ()) else suspended h here rules (returned (rulesHandlers rules) here)

-- | Have the stack that runs here, which was displaced from its HEC and has not come back, suspended by this
-- transaction in place of the library's 'returned', until a HEC enters it.
suspendHere :: PTM () -> IO ()
suspendHere m = brought . uninterruptibleMask_ $ do
  (h, here) <- stackHere
  case hecGoverned h of
    Free -> throwIO NotOnHEC
    Governed _ rules _ -> suspended h here rules m

-- | Do what a HEC has brought. An exception that came for its OS thread is raised here; a lazy value, which that leaves,
-- goes on after this.
brought :: IO (IO ()) -> IO ()
brought waits = waits >>= (`catch` (`raiseAgain` pure ()))

-- | Wait on this OS thread until a HEC enters the stack; what it brings is answered. Masked.
--
-- A transaction may come back in the middle, in a lazy value, and go on with an older record of a HEC: so all that an
-- OS thread has of HECs have its bed, and its variable for the stack.
suspended :: HEC -> StackId -> Rules -> PTM () -> IO (IO ())
suspended h here rules m = do
  gate <- newGate
  changePlace Nothing
  runsOn h nobody
  park here m (hand gate) `onException` (runsOn h here >> changePlace (Just h))
  (given, answer) <- wait gate
  runsOn h here
  changePlace (Just given {hecStack = hecStack h, hecBed = hecBed h})
  carriedHere (hecCarrier given)
  case hecGoverned given of
    Free -> pure ()
    Governed _ _ w -> userBegins w
  rulesArrives rules here
  pure (IO answer)
  where
    wait gate =
      passGate gate `catch` \e -> do
        woken <- rulesForgotten rules here
        if woken then wait gate else throwIO (e :: BlockedIndefinitelyOnMVar)

-- | The rest of a stack that waits on its OS thread.
hand :: Gate (HEC, Answer) -> Rest
hand gate answer = unIO (hecHere >>= \h -> changePlace Nothing >> runsOn h nobody >> openGate gate (h, answer))

-- | From now on the OS thread of this record of a HEC runs this stack. A record may outlive that: it is named where HECs are
-- queued. So one of an OS thread that waits, or has given its HEC away, refers to no stack, which nothing else may refer to.
runsOn :: HEC -> StackId -> IO ()
runsOn h t = IO (\s -> case writeMutVar# (hecStack h) t s of s1 -> (# s1, () #))

-- | Stands for no stack, where there has to be one. No HEC can enter it.
nobody :: StackId
nobody = unsafePerformIO (IO (\s -> case newSmallArray# 0# (unsafeCoerce# ()) s of (# s1, slots #) -> (# s1, StackId slots #)))
{-# NOINLINE nobody #-}

-- | Commit what the library does about a stack that has returned, and that it is suspended, in one step.
park :: StackId -> PTM () -> Rest -> IO ()
park here@(StackId slots) (PTM m) rest = IO (run 0#)
  where
    run k s = case begin s of
      (# s1, n #) -> case m (Off here) Nil n s1 of
        -- A conflict: on no HEC a transaction cannot sleep.
        (# s2, l, n1, _ #) -> case n1 <# 0# of
          1# -> case failed k s2 of s3 -> run (k +# 1#) s3
          _ -> case commitParked l n1 slots rest s2 of
            (# s3, Done #) -> (# s3, () #)
            (# s3, _ #) -> case failed k s3 of s4 -> run (k +# 1#) s4
