{-# LANGUAGE MagicHash #-}
{-# LANGUAGE PatternSynonyms #-}
{-# LANGUAGE UnboxedTuples #-}
{-# LANGUAGE UnliftedDatatypes #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : From a log to memory, in one step
--
-- Compares what a transaction has read with what there is, writes what it has written, and
-- exchanges one stack for another in the same step. Called on any OS thread, between safe points
-- of which there is none while the lock is held.
module Weft.Substrate.Internal.Commit
  ( commit,
    commitSwap,
    commitEnd,
    commitParked,
    pattern Failed,
    pattern Done,
    pattern NotThere,
    revalidate,
    takeRest,
  )
where

import GHC.Exts
import GHC.IO (IO (..), unIO)
import Weft.Substrate.Internal.Ground
import Weft.Substrate.Internal.Sequence
import Weft.Substrate.Internal.Types

-- Note [One step]
-- ~~~~~~~~~~~~~~~
-- A switch has to be seen whole: the writes of its transaction, the stack that is left, which can
-- be entered from then on, and the stack that is entered, which cannot. All three are done under
-- the lock. Were what is left of a stack stored before, another HEC that knows the stack could
-- enter it before the transaction is committed, or though it is not. Were the target looked at
-- before, two HECs could both find it there.

-- | The reads do not hold any more; nothing is written.
pattern Failed :: Int#
pattern Failed = 0#

pattern Done :: Int#
pattern Done = 1#

-- | The stack to be entered runs, or has ended; nothing is written.
pattern NotThere :: Int#
pattern NotThere = 2#

-- | The rest of a stack that is running or has ended. It is recognised by its address, tag bits
-- included, and GHC may know the tag of a function only in its own module: so this is used in no
-- other, also not by inlining.
nowhere :: Rest
nowhere _ s = (# s, () #)
{-# OPAQUE nowhere #-}

isNowhere :: Rest -> Int#
isNowhere = reallyUnsafePtrEquality# nowhere

-- | Take the rest of a stack, which is from now on here only. For a stack that no other code knows.
takeRest :: StackId -> IO Rest
takeRest (StackId a) = IO $ \s -> case readSmallArray# a 0# s of
  (# s1, rest #) -> case writeSmallArray# a 0# (unsafeCoerce# nowhere) s1 of
    s2 -> (# s2, unsafeCoerce# rest #)
{-# OPAQUE takeRest #-}

-- | The writes of a log, the oldest first, and how many actions follow its commit. Found before the lock is taken, so
-- that nothing is searched or allocated under it.
effectsOf :: Log -> (# Log, Int# #)
effectsOf = collect Nil 0#
  where
    collect ws a = \case
      Nil -> (# ws, a #)
      Write v b r -> collect (Write v b ws) a r
      Read _ _ r -> collect ws a r
      After _ r -> collect ws (a +# 1#) r
      Mark _ r -> collect ws a r

-- | Write, in this order: of two writes to one variable the last counts. A loop that allocates nothing, neither
-- on the heap nor on the stack.
publish :: Log -> State# RealWorld -> State# RealWorld
publish = from
  where
    from ws s = case ws of
      Write v b r -> case writeMutVar# v b (point s) of s1 -> from r s1
      _ -> s

-- | Commit a transaction with this log, whose reads hold at this snapshot, and do what follows its commit. Answers
-- 'Done' or 'Failed'. An exception from outside waits until all that follows is done: a HEC that is awake by this commit
-- would not be roused else.
commit :: Log -> Int# -> State# RealWorld -> (# State# RealWorld, Int# #)
commit l n0 s0 = case effectsOf l of
  (# ws, 0# #) -> committing l ws 0# n0 s0
  (# ws, a #) -> case maskUninterruptible# (\s -> case committing l ws a n0 s of (# s1, r #) -> (# s1, I# r #)) s0 of
    (# s1, I# r #) -> (# s1, r #)
{-# OPAQUE commit #-}

committing :: Log -> Log -> Int# -> Int# -> State# RealWorld -> (# State# RealWorld, Int# #)
committing l ws a = attempt
  where
    attempt n s = case ws of
      -- The reads held at the snapshot.
      Nil -> done s
      _ -> case lock n s of
        (# s1, 1# #)
          | planted UnlockEarly s1 -> case unlock (n +# 2#) s1 of s2 -> case publish ws s2 of s3 -> done s3
          | otherwise -> case publish ws s1 of
              s2 -> case unlock (n +# 2#) s2 of s3 -> done s3
        (# s1, _ #) -> case again l s1 of
          (# s2, Conflict #) -> (# s2, Failed #)
          (# s2, m #) -> attempt m s2
    done s = case follow a l s of s1 -> (# s1, Done #)

-- | 'commit', and the first stack is left with this rest and the other entered, whose rest comes back.
commitSwap :: Log -> Int# -> Slots -> Rest -> Slots -> State# RealWorld -> (# State# RealWorld, Int#, Rest #)
commitSwap l n0 me rest target s0 = case effectsOf l of
  (# ws, a #)
    | planted StoreBeforeCommit s0 -> case writeSmallArray# me 0# (unsafeCoerce# rest) (point s0) of s1 -> attempt n0 s1
    | planted TargetCheckedEarly s0 -> case readSmallArray# target 0# (point s0) of
        (# s1, k #) -> case isNowhere (unsafeCoerce# k) of
          1# -> (# s1, NotThere, nowhere #)
          _ -> case lock n0 s1 of
            (# s2, 1# #) -> exchange n0 (unsafeCoerce# k) s2
            (# s2, _ #) -> repeated s2
    | otherwise -> attempt n0 s0
    where
      attempt n s = case lock n s of
        (# s1, 1# #) -> case readSmallArray# target 0# (point s1) of
          (# s2, k #) -> case isNowhere (unsafeCoerce# k) of
            1# | not (planted TargetUnchecked s2) -> case unlock n s2 of s3 -> (# s3, NotThere, nowhere #)
            _ -> exchange n (unsafeCoerce# k) s2
        (# s1, _ #) -> repeated s1
      exchange n k s = case writeSmallArray# target 0# (unsafeCoerce# nowhere) (point s) of
        s1 -> case writeSmallArray# me 0# (unsafeCoerce# rest) (point s1) of
          s2 -> case publish ws s2 of
            s3 -> case unlock (n +# 2#) s3 of
              s4 -> case follow a l s4 of s5 -> (# s5, Done, k #)
      repeated s = case again l s of
        (# s1, Conflict #) -> (# s1, Failed, nowhere #)
        (# s1, m #) -> attempt m s1
{-# OPAQUE commitSwap #-}

-- | 'commitSwap' from a stack that has ended.
commitEnd :: Log -> Int# -> Slots -> Slots -> State# RealWorld -> (# State# RealWorld, Int#, Rest #)
commitEnd l n me = commitSwap l n me nowhere
{-# OPAQUE commitEnd #-}

-- | 'commit', and this stack, which ran on no HEC, is suspended with this rest.
commitParked :: Log -> Int# -> Slots -> Rest -> State# RealWorld -> (# State# RealWorld, Int# #)
commitParked l n0 me rest s0
  | planted ReturnBeforeCommit s0 = case writeSmallArray# me 0# (unsafeCoerce# rest) (point s0) of s1 -> commit l n0 s1
  | otherwise = case effectsOf l of (# ws, a #) -> attempt a ws n0 s0
  where
    attempt a ws n s = case lock n s of
      (# s1, 1# #) -> case writeSmallArray# me 0# (unsafeCoerce# rest) (point s1) of
        s2 -> case publish ws s2 of
          s3 -> case unlock (n +# 2#) s3 of
            s4 -> case follow a l s4 of s5 -> (# s5, Done #)
      (# s1, _ #) -> case again l s1 of
        (# s2, Conflict #) -> (# s2, Failed #)
        (# s2, m #) -> attempt a ws m s2
{-# OPAQUE commitParked #-}

-- | Another transaction was committed since: the snapshot at which to try again, or 'Conflict'.
again :: Log -> State# RealWorld -> (# State# RealWorld, Int# #)
again l s
  | planted CommitUnvalidated s = snapshot s
  | otherwise = revalidate l s

-- | A snapshot at which all that was read still holds, or 'Conflict'. A commit while the reads
-- are compared is noticed at the next read, or at the commit: a box that is still there was there
-- at the snapshot, too.
revalidate :: Log -> State# RealWorld -> (# State# RealWorld, Int# #)
revalidate l s = case snapshot s of
  (# s1, n #) -> case holds l s1 of
    (# s2, 0# #) -> (# s2, Conflict #)
    (# s2, _ #) -> (# s2, n #)
{-# OPAQUE revalidate #-}

holds :: Log -> State# RealWorld -> (# State# RealWorld, Int# #)
holds l s = case l of
  Nil -> (# s, 1# #)
  Read v b r -> case readMutVar# v (point s) of
    (# s1, now #) -> case reallyUnsafePtrEquality# b now of
      1# -> holds r s1
      _ -> (# s1, 0# #)
  Write _ _ r -> holds r s
  After _ r -> holds r s
  Mark _ r -> holds r s

-- | Do what follows a commit: this number of actions of the log, and that the quiet is over.
follow :: Int# -> Log -> State# RealWorld -> State# RealWorld
follow a l s = case a of
  0# -> endQuiet s
  _ -> case afterwards l s of (# s1, () #) -> endQuiet s1

-- | The actions of a log, in the order of the transaction.
afterwards :: Log -> State# RealWorld -> (# State# RealWorld, () #)
afterwards l s = case l of
  Nil -> (# s, () #)
  Read _ _ r -> afterwards r s
  Write _ _ r -> afterwards r s
  Mark _ r -> afterwards r s
  After act r -> case afterwards r s of
    (# s1, () #) -> unIO act (point s1)
