{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Stack-local state
--
-- A value for each stack and key. The dictionary of a stack is an array that hangs on it, indexed
-- by the numbers of keys, and is collected with it. A stack's own code reads and writes it.
module Weft.Substrate.Internal.Local (SLSKey, newSLSKey, getSLS, getSLSIO, setSLS, noDictionary) where

import Control.Monad (when)
import Data.IORef (IORef, atomicModifyIORef', newIORef)
import Data.Primitive.SmallArray
import GHC.Exts (Any, Int (..), RealWorld, getSizeofSmallMutableArray#, readSmallArray#, unsafeCoerce#, writeSmallArray#)
import GHC.IO (IO (..))
import System.IO.Unsafe (unsafePerformIO)
import Unsafe.Coerce (unsafeCoerce)
import Weft.Substrate.Internal.Place (stackHere)
import Weft.Substrate.Internal.Transaction
import Weft.Substrate.Internal.Types

-- | Names a value that each stack has of its own. A number for each key that the program makes, and
-- an array of that length in each stack that uses it: keys are for a library's few, made once.
data SLSKey a = SLSKey !Int a

-- | A new key. Every stack holds this value under it until 'setSLS'. (Li 2008, section 4.3.5.)
newSLSKey :: a -> IO (SLSKey a)
newSLSKey a = (`SLSKey` a) <$> atomicModifyIORef' keys (\n -> (n + 1, n))

keys :: IORef Int
keys = unsafePerformIO (newIORef 0)
{-# NOINLINE keys #-}

-- | What the stack that runs this transaction holds under a key.
getSLS :: SLSKey a -> PTM a
getSLS key = getStackId >>= unsafeIOToPTM . entryOf key

-- | What this stack holds under a key: @atomicPTM . getSLS@, and cheaper.
getSLSIO :: SLSKey a -> IO a
getSLSIO key = stackHere >>= entryOf key . snd
{-# INLINE getSLSIO #-}

entryOf :: SLSKey a -> StackId -> IO a
entryOf (SLSKey i initial) t = do
  d <- dictionary t
  n <- sizeOf d
  if i < n
    then do
      x <- readSmallArray d i
      pure (case x of Present a -> unsafeCoerce a; Absent -> initial)
    else pure initial

-- | Have this stack hold a value under a key. At once, and never undone. Not evaluated.
setSLS :: SLSKey a -> a -> IO ()
setSLS (SLSKey i _) a = do
  (_, t) <- stackHere
  d <- dictionary t
  n <- sizeOf d
  d' <-
    if i < n
      then pure d
      else do
        wider <- newSmallArray (i + 1) Absent
        when (n > 0) (copySmallMutableArray wider 0 d 0 n)
        setDictionary t wider
        pure wider
  writeSmallArray d' i (Present (unsafeCoerce a))

data Entry = Absent | Present Any

type Dictionary = SmallMutableArray RealWorld Entry

-- | How many keys it has room for. The library's function of this name came after the first version
-- that this package allows, and the one from before is deprecated.
sizeOf :: Dictionary -> IO Int
sizeOf (SmallMutableArray d) = IO $ \s -> case getSizeofSmallMutableArray# d s of
  (# s', n #) -> (# s', I# n #)

-- | That of a stack that has set nothing. Empty, and so shared.
noDictionary :: Dictionary
noDictionary = unsafePerformIO (newSmallArray 0 Absent)
{-# NOINLINE noDictionary #-}

dictionary :: StackId -> IO Dictionary
dictionary (StackId a) = IO (\s -> case readSmallArray# a 1# s of (# s1, d #) -> (# s1, unsafeCoerce# d #))

setDictionary :: StackId -> Dictionary -> IO ()
setDictionary (StackId a) d = IO (\s -> case writeSmallArray# a 1# (unsafeCoerce# d) s of s1 -> (# s1, () #))
