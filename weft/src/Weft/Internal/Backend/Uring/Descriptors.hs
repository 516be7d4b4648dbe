{-# OPTIONS_HADDOCK not-home #-}

-- | How many operations are pending on each descriptor of a ring's owner, and what is known of it: by number,
-- in unboxed memory. An entry belongs to one serial; a descriptor with another finds a fresh one.
module Weft.Internal.Backend.Uring.Descriptors
  ( Descriptors,
    new,

    -- * Pending operations
    retain,
    release,
    pendingOn,
    clear,

    -- * Flags
    Flag (..),
    hasFlag,
    setFlag,

    -- * Watches
    watchOf,
    setWatch,
  )
where

import Control.Monad.Primitive (RealWorld)
import Data.Bits (clearBit, setBit, testBit)
import Data.Primitive.ByteArray
import Data.Primitive.MutVar (MutVar, newMutVar, readMutVar, writeMutVar)
import Data.Word (Word32)
import Weft.Internal.Data.Slots (SlotKey (..))
import Weft.Internal.Os.Descriptor (Descriptor (..))

-- | 24 bytes for each number: serial, pending operations and flags, of 32 bits each; and the key of a
-- watch and 1, or 0.
newtype Descriptors = Descriptors (MutVar RealWorld DescriptorTable)

data DescriptorTable = DescriptorTable !Int !(MutableByteArray RealWorld)

entryBytes, oSerial, oPending, oFlags :: Int
entryBytes = 24
oSerial = 0
oPending = 1
oFlags = 2

-- | The 32-bit words of an entry.
entryWords :: Int
entryWords = 6

-- | Something that is known of a descriptor.
data Flag
  = -- | The last read got less than it had room for: the next would likely wait.
    Drained
  | -- | So would a write: the last took less than it was given.
    Filled
  | -- | It is to be closed, and takes no new operations.
    Closing
  | -- | It is or was the file of a send-file operation.
    Source
  | -- | A receive that may stand has waited on it.
    Asked
  | -- | And it gives all that it has.
    Stood
  deriving stock (Enum)

new :: IO Descriptors
new = newTable 64 >>= fmap Descriptors . newMutVar

newTable :: Int -> IO DescriptorTable
newTable n = do
  m <- newByteArray (n * entryBytes)
  setByteArray m 0 (entryWords * n) (0 :: Word32)
  pure (DescriptorTable n m)

-- | The table and the entry's first word, made fresh for another serial.
entry :: Descriptors -> Descriptor -> (MutableByteArray RealWorld -> Int -> IO r) -> IO r
entry (Descriptors v) d act = do
  DescriptorTable n m <- readMutVar v
  let number = fromIntegral (descriptorNumber d) :: Int
  m' <- if number < n then pure m else enlarge v number
  let base = entryWords * number
  serial <- readByteArray m' (base + oSerial)
  if serial == descriptorSerial d
    then act m' base
    else do
      writeByteArray m' (base + oSerial) (descriptorSerial d)
      setByteArray m' (base + oPending) (entryWords - 1) (0 :: Word32)
      act m' base
{-# INLINE entry #-}

-- | The 64-bit word of the watch of an entry.
watchWord :: Int -> Int
watchWord base = (base + 4) `quot` 2

enlarge :: MutVar RealWorld DescriptorTable -> Int -> IO (MutableByteArray RealWorld)
enlarge v number = do
  DescriptorTable n m <- readMutVar v
  t@(DescriptorTable _ m') <- newTable (max (number + 1) (2 * n))
  size <- getSizeofMutableByteArray m
  copyMutableByteArray m' 0 m 0 size
  writeMutVar v t
  pure m'

retain :: Descriptors -> Descriptor -> IO ()
retain ds d = entry ds d $ \m base -> do
  n <- readByteArray m (base + oPending)
  writeByteArray m (base + oPending) (n + 1 :: Word32)

-- | One operation less is pending on it. True when it was the last one of a descriptor that is to be closed.
release :: Descriptors -> Descriptor -> IO Bool
release ds d = entry ds d $ \m base -> do
  n <- readByteArray m (base + oPending)
  let left = if n == 0 then 0 else n - 1 :: Word32
  writeByteArray m (base + oPending) left
  flags <- readByteArray m (base + oFlags)
  pure (left == 0 && testBit (flags :: Word32) (fromEnum Closing))

pendingOn :: Descriptors -> Descriptor -> IO Int
pendingOn ds d = entry ds d $ \m base ->
  fromIntegral <$> (readByteArray m (base + oPending) :: IO Word32)

hasFlag :: Flag -> Descriptors -> Descriptor -> IO Bool
hasFlag f ds d = entry ds d $ \m base -> (\x -> testBit (x :: Word32) (fromEnum f)) <$> readByteArray m (base + oFlags)
{-# INLINE hasFlag #-}

setFlag :: Flag -> Bool -> Descriptors -> Descriptor -> IO ()
setFlag f on ds d = entry ds d $ \m base -> do
  x <- readByteArray m (base + oFlags)
  writeByteArray m (base + oFlags) ((if on then setBit else clearBit) (x :: Word32) (fromEnum f))

-- | The next to have the number finds a fresh entry.
clear :: Descriptors -> Descriptor -> IO ()
clear ds d = entry ds d $ \m base -> writeByteArray m (base + oSerial) (0 :: Word32)

-- | The key of the descriptor's watch.
watchOf :: Descriptors -> Descriptor -> IO (Maybe SlotKey)
watchOf ds d = entry ds d $ \m base -> (\k -> if k == 0 then Nothing else Just (SlotKey (k - 1))) <$> readByteArray m (watchWord base)
{-# INLINE watchOf #-}

setWatch :: Descriptors -> Descriptor -> Maybe SlotKey -> IO ()
setWatch ds d key = entry ds d $ \m base -> writeByteArray m (watchWord base) (maybe 0 ((+ 1) . keyNumber) key)
