{-# OPTIONS_GHC -O2 #-}

-- |
-- Description : Operations on files that are answered from memory
-- Stability   : not home
--
-- What is asked of a file most often is in memory: its name, its status, its bytes. To
-- get it from there is a system call of a microsecond; to have it got is a submission
-- and a completion, or a job for another OS thread. So each of these is tried first on
-- the worker, and handed on when it answers 'Sys.wouldBlock'. Used by
-- "Weft.Internal.Kernel.Files", on the worker that owns the 'Env'.
--
-- See Note [What does not wait].
module Weft.Internal.Kernel.AtOnce
  ( -- * Attempts
    openAtOnce,
    statusAtOnce,
    pathStatusAtOnce,
    readAtOnce,

    -- * What is known of a file
    opened,
    openedAtOnce,
  )
where

import Control.Exception (try)
import Control.Monad (unless, void, when)
import Data.Bits (bit, testBit, (.|.))
import Data.Int (Int64)
import Data.Primitive.PrimVar
import Data.Word (Word8)
import Foreign.Ptr
import Foreign.Storable (peek)
import Weft.Internal.Backend (Descriptor (..), newDescriptor)
import Weft.Internal.Kernel (Host (..))
import Weft.Internal.Kernel.Env
import Weft.Internal.Pool (PoolClosed, submitPool)
import Weft.Internal.Sys qualified as Sys

-- Note [What does not wait]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~
-- Disk I/O never blocks a worker, so an attempt is made only where the kernel promises
-- an answer without it:
--
--   names    RESOLVE_CACHED looks names up in memory only (EAGAIN: not all there).
--   opening  The promise ends with the name: the file system's own part of opening
--            follows, which on a network asks a server, and on a local disk is memory.
--   status   The same: statx asks a server where there is one.
--   reading  RWF_NOWAIT reads what is in the page cache. But not under O_DIRECT, where
--            it only means that submitting does not wait.
--
-- So names, opening and status are tried beneath a directory on a local file system,
-- and RESOLVE_NO_XDEV keeps them there. Which file systems are local is a list of
-- names; one that is not in it is treated as before. To ask where a directory is can
-- take as long as a server likes: a pool thread does, when the directory is first used,
-- and until it has answered nothing is tried.
--
-- The answers are kept in 'descriptorWorkers', above the workers' bits:
--
--   near      on a local file system
--   asked     a pool thread was asked whether it is
--   buffered  opened without O_DIRECT
--
-- With more workers than there are bits below, none is ever set. A late answer of a
-- pool thread about a number that was closed is written to the descriptor that had it,
-- and nobody looks there.

nearBit, askedBit, bufferedBit :: Int
nearBit = 61
askedBit = 60
bufferedBit = 59

-- | A file that was opened the slow way. The flag: without @O_DIRECT@.
opened :: Env -> Bool -> Int -> IO Descriptor
opened env buffered = marked env (if buffered then bit bufferedBit else 0)

-- | A file that 'openAtOnce' opened.
openedAtOnce :: Env -> Int -> IO Descriptor
openedAtOnce env = marked env (bit nearBit .|. bit askedBit .|. bit bufferedBit)

marked :: Env -> Int -> Int -> IO Descriptor
marked env marks number = do
  d <- newDescriptor (fromIntegral number)
  when (hostWorkers (envHost env) <= bufferedBit) $ writePrimVar (descriptorWorkers d) marks
  pure d

-- | May it be used for attempts? If nobody knows, somebody is asked.
isNear :: Env -> Descriptor -> IO Bool
isNear env d = do
  marks <- readPrimVar (descriptorWorkers d)
  unless (testBit marks askedBit || hostWorkers (envHost env) > bufferedBit) $ do
    before <- fetchOrInt (descriptorWorkers d) (bit askedBit)
    unless (testBit before askedBit) . void . try @PoolClosed . submitPool (envPool env) $ do
      local <- Sys.isLocal (descriptorNumber d)
      when (local == 1) $ void (fetchOrInt (descriptorWorkers d) (bit nearBit))
  pure (testBit marks nearBit)

-- | Open for reading a path relative to a directory: flags, resolve flags.
openAtOnce :: Env -> Descriptor -> Ptr Word8 -> Int -> Int -> IO Int
openAtOnce env dir path flags resolve = beneath env dir path (Sys.openNow (descriptorNumber dir) (castPtr path) flags resolve)

-- | The status of a path relative to a directory: mask, @struct statx@.
pathStatusAtOnce :: Env -> Descriptor -> Ptr Word8 -> Int -> Ptr Word8 -> IO Int
pathStatusAtOnce env dir path mask to = beneath env dir path (Sys.statNow (descriptorNumber dir) (castPtr path) mask (castPtr to))

-- | Not with a path that is empty, or starts elsewhere.
beneath :: Env -> Descriptor -> Ptr Word8 -> IO Int -> IO Int
beneath env dir path attempt = do
  first <- peek path
  near <- isNear env dir
  if near && first /= 0 && first /= 0x2f then whileOpen env dir attempt else pure Sys.wouldBlock

-- | The status of an open file: an empty path, mask, @struct statx@.
statusAtOnce :: Env -> Descriptor -> Ptr Word8 -> Int -> Ptr Word8 -> IO Int
statusAtOnce env d path mask to = do
  near <- isNear env d
  if near then whileOpen env d (Sys.statNow (descriptorNumber d) (castPtr path) mask (castPtr to)) else pure Sys.wouldBlock

-- | Bytes of an open file.
readAtOnce :: Env -> Descriptor -> Ptr Word8 -> Int -> Int64 -> IO Int
readAtOnce env d to count at = do
  marks <- readPrimVar (descriptorWorkers d)
  if testBit marks bufferedBit && count <= mostAtOnce && at >= 0
    then whileOpen env d (Sys.readNow (descriptorNumber d) to count at)
    else pure Sys.wouldBlock

-- | In bytes: to copy more takes a worker too long.
mostAtOnce :: Int
mostAtOnce = 256 * 1024
