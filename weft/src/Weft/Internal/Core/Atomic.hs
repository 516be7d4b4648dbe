{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Replacing an immutable state in one atomic step. All functions but 'look' and 'swapAtomically' are for
-- workers, outside user code: Note [The only worker]. "Weft.Internal.Data.Cell" has those for any OS thread.
module Weft.Internal.Core.Atomic
  ( newShared,
    Seen,
    look,
    swapFor,
    swapAtomically,
    swapCell,
    swapWord,
    change,
    changing,
    publish,
    freshNumber,
  )
where

import Control.Monad.Primitive (RealWorld)
import Data.Primitive.MutVar
import Data.Primitive.PrimVar
import GHC.Exts (Any, UnliftedType, casMutVar#)
import GHC.IO (IO (..))
import Unsafe.Coerce (unsafeCoerce)
import Weft.Internal.Core.Trace (Home (..))
import Weft.Internal.Data.Cell
import Weft.Internal.Data.Conditional

-- Note [What was seen]
-- ~~~~~~~~~~~~~~~~~~~~
-- Compare-and-swap compares pointers. GHC may rebuild an equal value elsewhere, and then the swap would
-- fail for ever. So the pointer that was read is kept beside the value, at a type without constructors.
-- GHC may still use the pointer that evaluating the value gave: it is the same if the variable always
-- holds evaluated values, hence `newShared` and the bangs.
--
-- Without optimisation, an application (of a coercion, of a newtype's constructor) makes a new thunk,
-- which the variable never holds. So the pointer is read as a `Seen`, and passed as the variable that
-- it was read into; and one that is read from a cell stays unlifted ('SeenIn').

newShared :: a -> IO (MutVar RealWorld a)
newShared !a = newMutVar a

-- | The very pointer that was read.
newtype Seen a = Seen Any

-- | Read a variable: its value, and the witness for 'swapFor'.
look :: forall a r. MutVar RealWorld a -> (Seen a -> a -> IO r) -> IO r
look ref use = do
  seen <- readMutVar (unsafeCoerce ref :: MutVar RealWorld (Seen a))
  use seen (unsafeCoerce seen)

-- Note [The only worker]
-- ~~~~~~~~~~~~~~~~~~~~~~
-- Shared objects change by primitives ("Weft.Internal.Core.Primitive") and by messages: on a worker, outside
-- user code, where it cannot be taken over. With one worker these exclude each other, so a plain read and a
-- plain write suffice; a locked instruction costs six nanoseconds. Hence every change needs its worker: other
-- OS threads send it a message, or share a variable that all threads change by 'swapAtomically' only.

-- | Replace what was seen, if it is still there. The new value is evaluated first.
-- A full memory barrier, unless the worker is the only one.
swapFor :: Home -> MutVar RealWorld a -> Seen a -> a -> IO Bool
swapFor home ref seen !new
  | homeAlone home = True <$ writeMutVar ref new
  | otherwise = swapAtomically ref seen new

-- | 'swapFor' of a cell, after 'lookCell'.
swapCell :: forall (a :: UnliftedType). Home -> Cell a -> SeenIn a -> a -> IO Bool
swapCell home cell seen new
  | homeAlone home = True <$ writeCell cell new
  | otherwise = casCell cell seen new

-- | 'swapFor' from any OS thread, and also in user code.
swapAtomically :: MutVar RealWorld a -> Seen a -> a -> IO Bool
swapAtomically ref (Seen seen) !new = case unsafeCoerce ref of
  MutVar var -> do
    let !next = unsafeCoerce new
    IO $ \s -> case casMutVar# var seen next s of
      (# s', 0#, _ #) -> (# s', True #)
      (# s', _, _ #) -> (# s', False #)

-- | Replace a word that has this value; answers the old one. A barrier like 'swapFor'.
swapWord :: Home -> PrimVar RealWorld Int -> Int -> Int -> IO Int
swapWord home word old new
  | homeAlone home = do
      found <- readPrimVar word
      if found == old then found <$ writePrimVar word new else pure found
  | otherwise = casInt word old new

-- | Apply a cheap function; retry if another worker was faster.
change :: Home -> MutVar RealWorld a -> (a -> IO a) -> IO ()
change home ref f = again
  where
    again = look ref $ \seen a -> do
      b <- f a
      unlessM (swapFor home ref seen b) again
{-# INLINE change #-}

changing :: Home -> MutVar RealWorld a -> (a -> (a, r)) -> IO r
changing home ref f = again
  where
    again = look ref $ \seen a -> do
      let (b, r) = f a
      ifM (swapFor home ref seen b) (pure r) again

-- | Replace what no other thread may replace now; one that sees it sees what was written before.
publish :: MutVar RealWorld a -> a -> IO ()
publish ref !a = writeMutVar ref a

-- | A number for a new object, for dumps: unique in the run, from 1.
freshNumber :: Home -> IO Int
freshNumber home = (+ 1) <$> fetchAddInt (homeNumbers home) 1
