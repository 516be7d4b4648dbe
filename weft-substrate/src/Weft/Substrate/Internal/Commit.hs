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
  ( Exchange (..),
    commit,
    pattern Failed,
    pattern Done,
    pattern NotThere,
    revalidate,
    afterwards,
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

-- | What happens to stacks when a transaction is committed.
type Exchange :: UnliftedType
data Exchange
  = Stays
  | -- | The first is left with this rest, and the other entered.
    Swap Slots Rest Slots
  | -- | This stack, which ran on no HEC, is suspended with this rest.
    Parks Slots Rest

-- | The reads do not hold any more; nothing is written.
pattern Failed :: Int#
pattern Failed = 0#

pattern Done :: Int#
pattern Done = 1#

-- | The target of the exchange runs, or has ended; nothing is written.
pattern NotThere :: Int#
pattern NotThere = 2#

-- | The rest of a stack that is running or has ended. It is recognised by its address, tag bits
-- included, and GHC may know the tag of a function only in its own module: so this is used in no
-- other, also not by inlining.
nowhere :: Rest
nowhere _ s = (# s, Ended #)
{-# OPAQUE nowhere #-}

isNowhere :: Rest -> Int#
isNowhere = reallyUnsafePtrEquality# nowhere
{-# INLINE isNowhere #-}

-- | Take the rest of a stack, which is from now on here only. For a stack that no other code knows.
takeRest :: StackId -> IO Rest
takeRest (StackId a) = IO $ \s -> case readSmallArray# a 0# s of
  (# s1, rest #) -> case writeSmallArray# a 0# (unsafeCoerce# nowhere) s1 of
    s2 -> (# s2, unsafeCoerce# rest #)
{-# OPAQUE takeRest #-}

-- | The writes of a transaction, the oldest first and on top of these: found before the lock is taken, so that
-- nothing is searched or allocated under it.
writesOf :: Log -> Log -> Log
writesOf l ws = case l of
  Nil -> ws
  Write v b r -> writesOf r (Write v b ws)
  Read _ _ r -> writesOf r ws
  After _ r -> writesOf r ws
  Mark _ r -> writesOf r ws

-- | Write, the oldest first: of two writes to one variable the last counts. A loop that allocates nothing, neither
-- on the heap nor on the stack.
publish :: Log -> State# RealWorld -> State# RealWorld
publish = from
  where
    from ws s = case ws of
      Write v b r -> case writeMutVar# v b (point s) of s1 -> from r s1
      _ -> s
{-# INLINE publish #-}

-- | Commit a transaction with this log, whose reads hold at this snapshot. Back come the outcome
-- and, if stacks were exchanged, what is left of the target.
commit :: Log -> Int# -> Exchange -> State# RealWorld -> (# State# RealWorld, Int#, Rest #)
commit l n x s = case writesOf l Nil of ws -> attempt l ws n x s
{-# OPAQUE commit #-}

attempt :: Log -> Log -> Int# -> Exchange -> State# RealWorld -> (# State# RealWorld, Int#, Rest #)
attempt l ws n x s = case x of
  Stays -> case ws of
    -- The reads held at the snapshot.
    Nil -> (# s, Done, nowhere #)
    _ -> case lock n s of
      (# s1, 1# #)
        | planted UnlockEarly s1 -> case unlock (n +# 2#) s1 of s2 -> case publish ws s2 of s3 -> (# s3, Done, nowhere #)
        | otherwise -> case publish ws s1 of
            s2 -> case unlock (n +# 2#) s2 of s3 -> (# s3, Done, nowhere #)
      (# s1, _ #) -> again s1
  Swap me rest target
    | planted StoreBeforeCommit s -> case writeSmallArray# me 0# (unsafeCoerce# rest) (point s) of
        s1 -> swapping me rest target s1
    | planted TargetCheckedEarly s -> case readSmallArray# target 0# (point s) of
        (# s1, k #) -> case isNowhere (unsafeCoerce# k) of
          1# -> (# s1, NotThere, nowhere #)
          _ -> case lock n s1 of
            (# s2, 1# #) -> exchange me rest target (unsafeCoerce# k) s2
            (# s2, _ #) -> again s2
    | otherwise -> swapping me rest target s
  Parks me rest
    | planted ReturnBeforeCommit s -> case writeSmallArray# me 0# (unsafeCoerce# rest) (point s) of
        s1 -> attempt l ws n Stays s1
    | otherwise -> case lock n s of
        (# s1, 1# #) -> case writeSmallArray# me 0# (unsafeCoerce# rest) (point s1) of
          s2 -> case publish ws s2 of
            s3 -> case unlock (n +# 2#) s3 of s4 -> (# s4, Done, nowhere #)
        (# s1, _ #) -> again s1
  where
    swapping me rest target s0 = case lock n s0 of
      (# s1, 1# #) -> case readSmallArray# target 0# (point s1) of
        (# s2, k #) -> case isNowhere (unsafeCoerce# k) of
          1# | not (planted TargetUnchecked s2) -> case unlock n s2 of s3 -> (# s3, NotThere, nowhere #)
          _ -> exchange me rest target (unsafeCoerce# k) s2
      (# s1, _ #) -> again s1
    {-# INLINE swapping #-}
    exchange me rest target k s0 = case writeSmallArray# target 0# (unsafeCoerce# nowhere) (point s0) of
      s1 -> case writeSmallArray# me 0# (unsafeCoerce# rest) (point s1) of
        s2 -> case publish ws s2 of
          s3 -> case unlock (n +# 2#) s3 of s4 -> (# s4, Done, k #)
    {-# INLINE exchange #-}
    again s0
      | planted CommitUnvalidated s0 = case snapshot s0 of (# s1, m #) -> attempt l ws m x s1
      | otherwise = case revalidate l s0 of
          (# s1, Conflict #) -> (# s1, Failed, nowhere #)
          (# s1, m #) -> attempt l ws m x s1

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

-- | What follows a commit, in the order of the transaction.
afterwards :: Log -> State# RealWorld -> (# State# RealWorld, () #)
afterwards l s = case l of
  Nil -> (# s, () #)
  Read _ _ r -> afterwards r s
  Write _ _ r -> afterwards r s
  Mark _ r -> afterwards r s
  After act r -> case afterwards r s of
    (# s1, () #) -> unIO act (point s1)
