{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Pipes
--
-- A pipe holds 65,536 bytes unless it is told otherwise; the bytes of one write of at most 4,096
-- (@PIPE_BUF@) stay together. Both ends are on one machine.
module Weft.Sim.Internal.Network.Pipes (newPipe, readFrom, writeTo, capacityOf, closePipeEnd) where

import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.IORef
import Foreign.C.Error
import Weft.Internal.Core.SystemCall (Buffer)
import Weft.Sim.Internal.Network.Bytes
import Weft.Sim.Internal.Network.Line
import Weft.Sim.Internal.Network.Types
import Weft.Sim.Internal.Ticket (canceled)

newPipe :: IO PipeBuffer
newPipe = PipeBuffer <$> newBytes <*> newIORef 65_536 <*> newIORef True <*> newIORef True <*> newLine <*> newLine

-- | Take bytes; 0 when there are none and no writer is left.
readFrom :: PipeBuffer -> Buffer -> Int -> Int -> Attempt Int
readFrom pipe buffer offset count
  | room == 0 = success 0
  | otherwise = do
      there <- sizeOf (pipeBytes pipe)
      open <- readIORef (pipeHasWriter pipe)
      if
        | there > 0 -> do
            n <- takeInto (pipeBytes pipe) buffer from room
            serve (pipeWriters pipe)
            success n
        | open -> blocked
        | otherwise -> success 0
  where
    (from, room) = roomOf buffer offset count

-- | Put as many of the bytes as there is room for; a small piece as a whole.
writeTo :: Network -> PipeBuffer -> ByteString -> Attempt Int
writeTo net pipe bytes = do
  open <- readIORef (pipeHasReader pipe)
  there <- sizeOf (pipeBytes pipe)
  capacity <- readIORef (pipeRoom pipe)
  let room = capacity - there
  if
    | not open -> refusal "write" ePIPE
    | size == 0 -> success 0
    | size <= atomic -> if size <= room then put size else blocked
    | room <= 0 -> blocked
    | otherwise -> shortened net (min room size) >>= put
  where
    size = ByteString.length bytes
    atomic = 4_096
    put n = do
      -- A copy: the caller may write to this memory as soon as it is answered.
      append (pipeBytes pipe) (ByteString.copy (ByteString.take n bytes))
      serve (pipeReaders pipe)
      success n

-- | How many bytes it holds, after it was told to hold others. As Linux has it: whole pages,
-- a power of two of them, and at most 1 MiB for processes that are not privileged.
capacityOf :: PipeBuffer -> Maybe Int -> IO (Either Errno Int)
capacityOf pipe = \case
  Nothing -> Right <$> readIORef (pipeRoom pipe)
  Just n
    | n < 1 || n > 2_147_483_647 -> pure (Left eINVAL)
    | n > 1_048_576 -> pure (Left ePERM)
    | otherwise -> do
        there <- sizeOf (pipeBytes pipe)
        let size = until (>= n) (* 2) 4_096
        if there > size
          then pure (Left eBUSY)
          else do
            writeIORef (pipeRoom pipe) size
            serve (pipeWriters pipe)
            pure (Right size)

-- | One end is closed: those that wait there are told so, and those at the other end
-- learn of it.
closePipeEnd :: PipeEnd -> IO ()
closePipeEnd = \case
  ReadEnd pipe -> do
    writeIORef (pipeHasReader pipe) False
    clear (pipeBytes pipe)
    dismiss (pipeReaders pipe) canceled
    serve (pipeWriters pipe)
  WriteEnd pipe -> do
    writeIORef (pipeHasWriter pipe) False
    dismiss (pipeWriters pipe) canceled
    serve (pipeReaders pipe)
