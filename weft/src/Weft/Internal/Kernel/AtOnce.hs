{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Operations on files that are answered from memory. Most requests to a file concern what is in
-- memory, where a system call takes a microsecond; anything else is a submission and a completion, or
-- a job for another OS thread. So these are tried first on the worker, and handed on when they answer
-- 'Sys.wouldBlock': Note [What does not wait].
module Weft.Internal.Kernel.AtOnce
  ( openAtOnce,
    statusAtOnce,
    pathStatusAtOnce,
    readAtOnce,
    opened,
    openedAtOnce,
  )
where

import Control.Exception (try)
import Control.Monad (void, when)
import Data.Int (Int64)
import Data.Word (Word8)
import Foreign.Ptr
import Foreign.Storable (peek)
import Weft.Internal.Data.Conditional
import Weft.Internal.Kernel.Env
import Weft.Internal.Os.Descriptor
import Weft.Internal.Os.Pool (PoolClosed, submitPool)
import Weft.Internal.Os.Sys qualified as Sys

-- Note [What does not wait]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~
-- Disk I/O never blocks a worker, so an attempt is made only where the kernel promises
-- an answer without it:
--
--   names    RESOLVE_CACHED looks names up in memory only (EAGAIN: not all there).
--   opening  The promise ends with the name: the file system's own part of opening
--            follows, which on a network asks a server, and on a local disk is memory.
--   status   As opening: statx asks a server where there is one.
--   reading  RWF_NOWAIT reads what is in the page cache. But not under O_DIRECT, where
--            it only means that submitting does not wait.
--
-- So names, opening and status are tried beneath a directory on a local file system, and
-- RESOLVE_NO_XDEV keeps them there. Local file systems are a list of names; others are not tried.
-- To ask where a directory is can take as long as a server likes: a pool thread asks when the
-- directory is first used, and nothing is tried before its answer. The answers are 'Facts' of the
-- descriptor.

-- | A file that was opened the slow way. The flag: without @O_DIRECT@.
opened :: Bool -> Int -> IO Descriptor
opened isBuffered = newDescriptorWith (if isBuffered then buffered else mempty) . fromIntegral

-- | A file that 'openAtOnce' opened.
openedAtOnce :: Int -> IO Descriptor
openedAtOnce = newDescriptorWith (local <> localAsked <> buffered) . fromIntegral

-- | May attempts use it? If that is unknown, a pool thread finds out.
isNear :: Env -> Descriptor -> IO Bool
isNear env d = do
  unlessM (d `knows` localAsked) $
    whenM (learn d localAsked) . void . try @PoolClosed . submitPool (envPool env) $ do
      answer <- Sys.isLocal (descriptorNumber d)
      when (answer == 1) $ void (learn d local)
  d `knows` local

-- | Open for reading a path relative to a directory: flags, resolve flags.
openAtOnce :: Env -> Descriptor -> Ptr Word8 -> Int -> Int -> IO Int
openAtOnce env dir path flags resolve = beneath env dir path (Sys.openNow (descriptorNumber dir) (castPtr path) flags resolve)

-- | The status of a path relative to a directory: mask, @struct statx@.
pathStatusAtOnce :: Env -> Descriptor -> Ptr Word8 -> Int -> Ptr Word8 -> IO Int
pathStatusAtOnce env dir path mask to = beneath env dir path (Sys.statNow (descriptorNumber dir) (castPtr path) mask (castPtr to))

-- | Not for a path that is empty or absolute.
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
  inCache <- d `knows` buffered
  if inCache && count <= mostAtOnce && at >= 0
    then whileOpen env d (Sys.readNow (descriptorNumber d) to count at)
    else pure Sys.wouldBlock

-- | In bytes. A larger copy would hold up the worker.
mostAtOnce :: Int
mostAtOnce = 256 * 1024
