{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The state of each open descriptor of a ring's owner
--
-- A table by descriptor number, in unboxed memory: how many operations are
-- pending, whether the last receive emptied the socket, and whether the
-- descriptor is about to be closed. An entry belongs to one serial; a descriptor
-- with another finds a fresh one. Used on the worker that owns the ring only.
module Weft.Internal.Backend.Uring.Descriptors
  ( Descriptors,
    new,

    -- * Pending operations
    retain,
    release,
    pendingOn,

    -- * Hints
    Hint,
    drained,
    filled,
    isHinted,
    setHint,

    -- * Closing
    beginClosing,
    isClosing,
    clear,

    -- * Files being sent
    markSource,
    isSource,
  )
where

import Control.Monad.Primitive (RealWorld)
import Data.Bits (complement, (.&.), (.|.))
import Data.Primitive.ByteArray
import Data.Primitive.MutVar (MutVar, newMutVar, readMutVar, writeMutVar)
import Data.Word (Word32)
import Weft.Internal.Os.Descriptor (Descriptor (..))

-- | Four 32-bit words for each number: serial, pending operations, flags, unused.
newtype Descriptors = Descriptors (MutVar RealWorld DescriptorTable)

data DescriptorTable = DescriptorTable !Int !(MutableByteArray RealWorld)

entryBytes, oSerial, oPending, oFlags :: Int
entryBytes = 16
oSerial = 0
oPending = 1
oFlags = 2

-- | A flag: what the last transfer in a direction tells of the next one.
newtype Hint = Hint Word32

-- | The last read got less than it had room for, the last write took less than it was given: the
-- next would have to wait.
drained, filled :: Hint
drained = Hint 1
filled = Hint 8

-- | 'beginClosing' was called.
closing :: Word32
closing = 2

-- | It is or was the file of a send-file operation.
source :: Word32
source = 4

new :: IO Descriptors
new = do
  t <- newTable 64
  Descriptors <$> newMutVar t

newTable :: Int -> IO DescriptorTable
newTable n = do
  m <- newByteArray (n * entryBytes)
  setByteArray m 0 (4 * n) (0 :: Word32)
  pure (DescriptorTable n m)

-- | The table and the entry's first word, made fresh for another serial.
entry :: Descriptors -> Descriptor -> (MutableByteArray RealWorld -> Int -> IO r) -> IO r
entry (Descriptors v) d act = do
  DescriptorTable n m <- readMutVar v
  let number = fromIntegral (descriptorNumber d) :: Int
  m' <- if number < n then pure m else enlarge v number
  let base = 4 * number
  serial <- readByteArray m' (base + oSerial)
  if serial == descriptorSerial d
    then act m' base
    else do
      writeByteArray m' (base + oSerial) (descriptorSerial d)
      writeByteArray m' (base + oPending) (0 :: Word32)
      writeByteArray m' (base + oFlags) (0 :: Word32)
      act m' base
{-# INLINE entry #-}

enlarge :: MutVar RealWorld DescriptorTable -> Int -> IO (MutableByteArray RealWorld)
enlarge v number = do
  DescriptorTable n m <- readMutVar v
  t@(DescriptorTable _ m') <- newTable (max (number + 1) (2 * n))
  size <- getSizeofMutableByteArray m
  copyMutableByteArray m' 0 m 0 size
  writeMutVar v t
  pure m'
{-# NOINLINE enlarge #-}

retain :: Descriptors -> Descriptor -> IO ()
retain ds d = entry ds d $ \m base -> do
  n <- readByteArray m (base + oPending)
  writeByteArray m (base + oPending) (n + 1 :: Word32)

-- | One operation less is pending on it. True when it was the last one of a
-- descriptor that is to be closed.
release :: Descriptors -> Descriptor -> IO Bool
release ds d = entry ds d $ \m base -> do
  n <- readByteArray m (base + oPending)
  let left = if n == 0 then 0 else n - 1 :: Word32
  writeByteArray m (base + oPending) left
  flags <- readByteArray m (base + oFlags)
  pure (left == 0 && flags .&. closing /= 0)

pendingOn :: Descriptors -> Descriptor -> IO Int
pendingOn ds d = entry ds d $ \m base ->
  fromIntegral <$> (readByteArray m (base + oPending) :: IO Word32)

hasFlag :: Word32 -> Descriptors -> Descriptor -> IO Bool
hasFlag f ds d = entry ds d $ \m base -> (\x -> x .&. f /= 0) <$> readByteArray m (base + oFlags)
{-# INLINE hasFlag #-}

setFlag :: Word32 -> Bool -> Descriptors -> Descriptor -> IO ()
setFlag f on ds d = entry ds d $ \m base -> do
  x <- readByteArray m (base + oFlags)
  writeByteArray m (base + oFlags) (if on then x .|. f else x .&. complement f)
{-# INLINE setFlag #-}

-- | Is it likely that the next transfer would have to wait?
isHinted :: Hint -> Descriptors -> Descriptor -> IO Bool
isHinted (Hint f) = hasFlag f

setHint :: Hint -> Bool -> Descriptors -> Descriptor -> IO ()
setHint (Hint f) = setFlag f

-- | No new operations on it: it will be closed.
beginClosing :: Descriptors -> Descriptor -> IO ()
beginClosing = setFlag closing True

isClosing :: Descriptors -> Descriptor -> IO Bool
isClosing = hasFlag closing

clear :: Descriptors -> Descriptor -> IO ()
clear ds d = entry ds d $ \m base -> do
  writeByteArray m (base + oSerial) (0 :: Word32)
  writeByteArray m (base + oPending) (0 :: Word32)
  writeByteArray m (base + oFlags) (0 :: Word32)

-- | It is the file of a pending send-file operation.
markSource :: Descriptors -> Descriptor -> IO ()
markSource = setFlag source True

-- | Was it ever the file of a pending send-file operation?
isSource :: Descriptors -> Descriptor -> IO Bool
isSource = hasFlag source
