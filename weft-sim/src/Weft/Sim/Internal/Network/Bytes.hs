{-# OPTIONS_HADDOCK not-home #-}

-- | A queue for what mostly holds one thing, such as segments on their way; and the bytes that have
-- arrived on a stream and were not read. They are copied into it and out of it, once each: the
-- caller may use its memory again as soon as its call is answered.
module Weft.Sim.Internal.Network.Bytes
  ( Fifo,
    emptyFifo,
    snoc,
    First (..),
    first,
    Bytes,
    newBytes,
    sizeOf,
    append,
    takeInto,
    clear,
    roomOf,
    copyInto,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Internal (ByteString (BS))
import Data.IORef
import Data.Word (Word8)
import Foreign.Marshal.Utils (copyBytes)
import Foreign.Ptr (Ptr, plusPtr)
import GHC.ForeignPtr (unsafeWithForeignPtr)
import Weft.Internal.Core.SystemCall (Buffer (..))

-- | Two lists, of which the second is in reverse order (Okasaki): a 'Data.Sequence.Seq' takes four times
-- the instructions for one element. Only an empty queue has no first ones.
data Fifo a = Fifo ![a] ![a]

emptyFifo :: Fifo a
emptyFifo = Fifo [] []

-- | One more at the end.
snoc :: Fifo a -> a -> Fifo a
snoc (Fifo front back) !a = case front of
  [] -> Fifo [a] []
  _ -> Fifo front (a : back)

-- | One more at the beginning.
cons :: a -> Fifo a -> Fifo a
cons !a (Fifo front back) = Fifo (a : front) back

data First a
  = NoFirst
  | -- | The first, and the others.
    First !a !(Fifo a)

first :: Fifo a -> First a
first (Fifo front back) = case front of
  [] -> NoFirst
  a : rest@(_ : _) -> First a (Fifo rest back)
  [a] -> First a (case back of [] -> emptyFifo; _ -> Fifo (reverse back) [])

newtype Bytes = Bytes (IORef Pieces)

data Pieces = Pieces !Int !(Fifo ByteString)

newBytes :: IO Bytes
newBytes = Bytes <$> newIORef (Pieces 0 emptyFifo)

sizeOf :: Bytes -> IO Int
sizeOf (Bytes ref) = readIORef ref >>= \(Pieces n _) -> pure n

-- | Put a piece at the end. It is kept as it is: its memory must not change.
append :: Bytes -> ByteString -> IO ()
append (Bytes ref) bytes
  | ByteString.null bytes = pure ()
  | otherwise = modifyIORef' ref (\(Pieces n pieces) -> Pieces (n + ByteString.length bytes) (snoc pieces bytes))

clear :: Bytes -> IO ()
clear (Bytes ref) = writeIORef ref (Pieces 0 emptyFifo)

-- | Move at most the given number of bytes from the beginning into a buffer, from an offset: how many
-- they were.
takeInto :: Bytes -> Buffer -> Int -> Int -> IO Int
takeInto (Bytes ref) (Buffer memory _) offset wanted = do
  Pieces size pieces <- readIORef ref
  let !count = min wanted size
  unsafeWithForeignPtr memory $ \base -> do
    let !start = base `plusPtr` offset
    !left <- move start count pieces
    writeIORef ref $! Pieces (size - count) left
  pure count
  where
    move :: Ptr Word8 -> Int -> Fifo ByteString -> IO (Fifo ByteString)
    move !to !n pieces
      | n <= 0 = pure pieces
      | otherwise = case first pieces of
          First piece rest
            | n >= ByteString.length piece -> do
                copyTo to piece
                let !next = to `plusPtr` ByteString.length piece
                move next (n - ByteString.length piece) rest
            | otherwise -> copyTo to (ByteString.take n piece) >> pure (cons (ByteString.drop n piece) rest)
          NoFirst -> pure pieces

copyTo :: Ptr Word8 -> ByteString -> IO ()
copyTo to (BS from n) = unsafeWithForeignPtr from (\p -> copyBytes to p n)

-- | Which part of a buffer a call may use, which asks for the given number of bytes from an offset: the
-- offset and the size.
roomOf :: Buffer -> Int -> Int -> (Int, Int)
roomOf buffer offset count = (from, room)
  where
    !from = max 0 (min (bufferSize buffer) offset)
    !room = max 0 (min (bufferSize buffer - from) count)
{-# INLINE roomOf #-}

copyInto :: Buffer -> Int -> ByteString -> IO ()
copyInto (Buffer memory _) offset bytes = unsafeWithForeignPtr memory (\base -> copyTo (base `plusPtr` offset) bytes)
