{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : A queue of bytes
--
-- The bytes that have arrived on a stream and were not read: pieces of memory in order, and how many bytes
-- they are together. Bytes are copied into it and out of it, once each: the caller may use its
-- memory again as soon as its call is answered.
module Weft.Sim.Internal.Network.Bytes
  ( Bytes,
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
import Weft.Sim.Internal.Network.Fifo (Fifo, First (..))
import Weft.Sim.Internal.Network.Fifo qualified as Fifo

newtype Bytes = Bytes (IORef Pieces)

data Pieces = Pieces !Int !(Fifo ByteString)

newBytes :: IO Bytes
newBytes = Bytes <$> newIORef (Pieces 0 Fifo.empty)

sizeOf :: Bytes -> IO Int
sizeOf (Bytes ref) = readIORef ref >>= \(Pieces n _) -> pure n

-- | Put a piece at the end. It is kept as it is: its memory must not change.
append :: Bytes -> ByteString -> IO ()
append (Bytes ref) bytes
  | ByteString.null bytes = pure ()
  | otherwise = modifyIORef' ref (\(Pieces n pieces) -> Pieces (n + ByteString.length bytes) (Fifo.snoc pieces bytes))

clear :: Bytes -> IO ()
clear (Bytes ref) = writeIORef ref (Pieces 0 Fifo.empty)

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
      | otherwise = case Fifo.first pieces of
          First piece rest
            | n >= ByteString.length piece -> do
                copyTo to piece
                let !next = to `plusPtr` ByteString.length piece
                move next (n - ByteString.length piece) rest
            | otherwise -> copyTo to (ByteString.take n piece) >> pure (Fifo.cons (ByteString.drop n piece) rest)
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
