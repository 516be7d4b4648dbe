{-# LANGUAGE MagicHash #-}
{-# LANGUAGE UnboxedTuples #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Stack-local state
--
-- A value for each stack and key. The dictionary of a stack is an array that hangs on it, indexed
-- by the numbers of keys, and is collected with it. A stack's own code reads and writes it. What the library keeps in a
-- stack that has made it is beside the dictionary.
module Weft.Substrate.Internal.Local (SLSKey, newSLSKey, getSLS, getSLSIO, setSLS, newSlots, ownerOf, isMarked, mark) where

import Data.IORef (IORef, atomicModifyIORef', newIORef)
import Data.Primitive.SmallArray
import GHC.Exts (Any, RealWorld, SmallArray#, SmallMutableArray#, getSizeofSmallMutableArray#, newSmallArray#, readSmallArray#, unsafeCoerce#, writeSmallArray#)
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

-- | The value under a key of the stack that runs this transaction.
getSLS :: SLSKey a -> PTM a
getSLS key = getStackId >>= unsafeIOToPTM . entryOf key

-- | The value under a key of this stack: @atomicPTM . getSLS@, and cheaper.
getSLSIO :: SLSKey a -> IO a
getSLSIO key = stackHere >>= entryOf key . snd

-- | The value under a key of a stack, for the code of that stack.
entryOf :: SLSKey a -> StackId -> IO a
entryOf (SLSKey i initial) t =
  dictionary t >>= \case
    d | i < sizeofSmallArray d, Present a <- indexSmallArray d i -> pure (unsafeCoerce a)
    _ -> pure initial

-- | Have this stack hold a value under a key. At once, and never undone. Not evaluated.
setSLS :: SLSKey a -> a -> IO ()
setSLS (SLSKey i _) a = do
  (_, t) <- stackHere
  d <- dictionary t
  new <- newSmallArray (max (i + 1) (sizeofSmallArray d)) Absent
  copySmallArray new 0 d 0 (sizeofSmallArray d)
  writeSmallArray new i (Present (unsafeCoerce a))
  unsafeFreezeSmallArray new >>= setDictionary t

data Binding = Absent | Present Any

-- | Made anew when an entry is set: GHC's collector looks again and again at an array that can be written.
type Dictionary = SmallArray Binding

-- | That of a stack that has set nothing.
noDictionary :: Dictionary
noDictionary = mempty
{-# NOINLINE noDictionary #-}

dictionary :: StackId -> IO Dictionary
dictionary t = IO (\s -> case readSmallArray# (dictionaries t) 1# s of (# s1, d #) -> (# s1, SmallArray d #))

setDictionary :: StackId -> Dictionary -> IO ()
setDictionary t (SmallArray d) = IO (\s -> case writeSmallArray# (dictionaries t) 1# d s of s1 -> (# s1, () #))

-- | The slots of a stack, of which the second has the array itself, without a box.
dictionaries :: StackId -> SmallMutableArray# RealWorld (SmallArray# Binding)
dictionaries (StackId a) = unsafeCoerce# a

-- | A new stack, which has set nothing, of which this is to be run, and in which a library keeps something. Only
-- then it has the last two slots: that, and a mark.
newSlots :: Maybe owner -> Rest -> IO StackId
newSlots owner rest = IO $ \s -> case noDictionary of
  SmallArray none -> case owner of
    Nothing -> case newSmallArray# 2# none s of
      (# s1, a #) -> case unsafeCoerce# a of
        (slots :: Slots) -> case writeSmallArray# slots 0# (unsafeCoerce# rest) s1 of s2 -> (# s2, StackId slots #)
    Just o -> case newSmallArray# 4# none s of
      (# s1, a #) -> case unsafeCoerce# a of
        (slots :: Slots) -> case writeSmallArray# slots 0# (unsafeCoerce# rest) s1 of
          s2 -> case writeSmallArray# slots 2# (unsafeCoerce# o) s2 of
            s3 -> case writeSmallArray# slots 3# (unsafeCoerce# False) s3 of s4 -> (# s4, StackId slots #)

-- | The value that the library that made a stack keeps in it. Its type is not checked: for one library only.
ownerOf :: StackId -> IO (Maybe owner)
ownerOf (StackId slots) = IO $ \s -> case getSizeofSmallMutableArray# slots s of
  (# s1, 4# #) -> case readSmallArray# slots 2# s1 of (# s2, o #) -> (# s2, Just (unsafeCoerce# o) #)
  (# s1, _ #) -> (# s1, Nothing #)

-- | Is a stack marked, in which a library keeps something? For the code of that stack.
isMarked :: StackId -> IO Bool
isMarked (StackId slots) = IO $ \s -> case readSmallArray# slots 3# s of (# s1, was #) -> (# s1, unsafeCoerce# was #)

-- | Mark it, for good.
mark :: StackId -> IO ()
mark (StackId slots) = IO $ \s -> case writeSmallArray# slots 3# (unsafeCoerce# True) s of s1 -> (# s1, () #)
