{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# LANGUAGE UnliftedNewtypes #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Variables that hold evaluated values. The content's type is unlifted, so it is evaluated: a reader need
-- not check, nor save all that it has at hand on the stack before the check. From any OS thread.
module Weft.Internal.Data.Cell (Cell (..), newCell, readCell, writeCell, SeenIn, lookCell, casCell) where

import Control.Monad.Primitive (RealWorld)
import Data.Kind (Type)
import GHC.Exts (Any, MutVar#, UnliftedType, casMutVar#, isTrue#, newMutVar#, readMutVar#, sameMutVar#, unsafeCoerce#, writeMutVar#)
import GHC.IO (IO (..))

type Cell :: UnliftedType -> Type
data Cell a = Cell (MutVar# RealWorld a)

instance Eq (Cell a) where
  Cell a == Cell b = isTrue# (sameMutVar# (unsafeCoerce# a) (unsafeCoerce# b :: MutVar# RealWorld Any))

newCell :: forall (a :: UnliftedType). a -> IO (Cell a)
newCell a = IO $ \s -> case newMutVar# a s of (# s1, var #) -> (# s1, Cell var #)

-- | Read, and go on with the content.
readCell :: forall (a :: UnliftedType) r. Cell a -> (a -> IO r) -> IO r
readCell (Cell var) use = IO $ \s -> case readMutVar# var s of (# s1, a #) -> case use a of IO act -> act s1

writeCell :: forall (a :: UnliftedType). Cell a -> a -> IO ()
writeCell (Cell var) a = IO $ \s -> case writeMutVar# var a s of s1 -> (# s1, () #)

-- | The very pointer that was read from a cell. Unlifted like the content: GHC would pass a
-- coercion to a lifted type as a thunk where it does not optimise, and in interpreted code.
type SeenIn :: UnliftedType -> UnliftedType
newtype SeenIn a = SeenIn (Any :: UnliftedType)

-- | Read, and go on with the witness for 'casCell' and the content.
lookCell :: forall (a :: UnliftedType) r. Cell a -> (SeenIn a -> a -> IO r) -> IO r
lookCell cell use = readCell cell (\a -> use (SeenIn (unsafeCoerce# a)) a)

-- | Replace the content if it is still what was seen. A full memory barrier.
casCell :: forall (a :: UnliftedType). Cell a -> SeenIn a -> a -> IO Bool
casCell (Cell var) seen new = IO $ \s -> case casMutVar# (unsafeCoerce# var :: MutVar# RealWorld (SeenIn a)) seen (SeenIn (unsafeCoerce# new)) s of
  (# s1, 0#, _ #) -> (# s1, True #)
  (# s1, _, _ #) -> (# s1, False #)
