{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_GHC -O2 #-}

-- |
-- Description : Replacing an immutable state in one atomic step
-- Stability   : not home
--
-- What the synchronization of threads is built on: a variable that holds an
-- immutable value and is changed by compare-and-swap. Called on workers, in
-- 'Weft.Internal.Trace.internal' actions.
module Weft.Internal.Atomic
  ( newShared,
    Seen,
    look,
    swapFor,
    change,
    publish,
    freshNumber,
  )
where

import Control.Monad (unless)
import Control.Monad.Primitive (RealWorld)
import Data.Primitive.MutVar
import Data.Primitive.PrimVar
import GHC.Exts (Any, casMutVar#)
import GHC.IO (IO (..), unsafePerformIO)
import Unsafe.Coerce (unsafeCoerce)

-- Note [What was seen]
-- ~~~~~~~~~~~~~~~~~~~~
-- Compare-and-swap compares pointers. GHC may take a value apart and put it
-- together again elsewhere, equal and not the same, and then the swap would fail
-- for ever. So the pointer that was read is kept beside the value, under a type
-- that GHC knows no constructor of.
--
-- GHC may still use the pointer that evaluating the value gave. It is the same one
-- if what the variable holds is always evaluated: hence `newShared`, and the bangs.

-- | A variable for this module's functions.
newShared :: a -> IO (MutVar RealWorld a)
newShared !a = newMutVar a

-- | The very pointer that was read.
newtype Seen a = Seen Any

-- | Read a variable: its value, and what to say to 'swapFor'.
look :: MutVar RealWorld a -> (Seen a -> a -> IO r) -> IO r
look ref use = do
  a <- readMutVar (unsafeCoerce ref)
  use (Seen a) (unsafeCoerce a)
{-# INLINE look #-}

-- | Replace what was seen, if it is still there. The new value is evaluated first.
-- A full memory barrier.
swapFor :: MutVar RealWorld a -> Seen a -> a -> IO Bool
swapFor (MutVar ref) (Seen old) !new = IO $ \s ->
  case casMutVar# ref (unsafeCoerce old) new s of
    (# s', 0#, _ #) -> (# s', True #)
    (# s', _, _ #) -> (# s', False #)
{-# INLINE swapFor #-}

-- | Apply a cheap function, again if somebody else was faster.
change :: MutVar RealWorld a -> (a -> IO a) -> IO ()
change ref f = again
  where
    again = look ref $ \seen a -> do
      b <- f a
      done <- swapFor ref seen b
      unless done again
{-# INLINE change #-}

-- | Replace what nobody else may replace now. Evaluated first; what was written before
-- is visible to who sees it.
publish :: MutVar RealWorld a -> a -> IO ()
publish ref !a = writeMutVar ref a
{-# INLINE publish #-}

-- | A number for a new object that a dump may name: unique in the process, from 1.
freshNumber :: IO Int
freshNumber = (+ 1) <$> fetchAddInt numbers 1

numbers :: PrimVar RealWorld Int
numbers = unsafePerformIO (newPrimVar 0)
{-# NOINLINE numbers #-}
