{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The system kernel's files and directories. Most requests to a file concern what is in memory, where a
-- system call takes a microsecond: these are tried on the worker (Note [What does not wait]). What answers
-- 'wouldBlock' then goes to the backend (io_uring, or the pool of a readiness backend) or to the pool.
module Weft.Internal.Kernel.Files
  ( openFile,
    readFileAt,
    writeFileAt,
    writeBufferAt,
    syncFile,
    fileStatus,
    pathStatus,
    setFileSize,
    listDirectory,
    makeDirectory,
    removePath,
    renamePath,
  )
where

import Control.Exception (bracket, try)
import Control.Monad (void, when)
import Data.Bits (shiftL, (.&.), (.|.))
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.ByteString.Internal (ByteString (BS))
import Data.ByteString.Unsafe qualified as ByteString
import Data.Int (Int64)
import Data.Word (Word16, Word32, Word64, Word8)
import Foreign.C.Error (Errno (..), eINVAL, eNOTDIR, errnoToIOError)
import Foreign.C.Types (CInt (..))
import Foreign.ForeignPtr
import Foreign.ForeignPtr.Unsafe (unsafeForeignPtrToPtr)
import Foreign.Marshal.Utils (copyBytes)
import Foreign.Ptr
import Foreign.Storable
import System.Posix.ByteString qualified as Posix
import System.Posix.Directory.Fd qualified as Posix
import System.Posix.Types (Fd (..))
import Weft.Internal.Backend qualified as Operation
import Weft.Internal.Core.SystemCall (Beneath (..), Buffer (..), File (..), FileKind (..), FileStatus (..), OpenFlags (..), OpenMode (..), Where (..))
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Conditional
import Weft.Internal.Kernel.Attempts (mostAtOnce)
import Weft.Internal.Kernel.Env
import Weft.Internal.Os.Descriptor
import Weft.Internal.Os.Net
import Weft.Internal.Os.Pool (PoolClosed, submitPool)
import Weft.Internal.Os.Sys (close, failureCode, isLocal, openNow, readNow, statNow, wouldBlock)

-- | Fails if the directory to start from was closed.
startingAt :: Env -> String -> Where -> IO Trace -> IO Trace
startingAt env what = \case
  CurrentDirectory -> id
  At (File d) -> unlessClosed env what d

-- | The path as a C string, or the error if it has none.
withPath :: String -> ByteString -> (ForeignPtr Word8 -> IO Trace) -> IO Trace
withPath what path use
  | ByteString.elem 0 path = pure (failing what (Just (Char8.unpack path)) (const Done) (failureCode eINVAL))
  | otherwise = do
      memory <- mallocForeignPtrBytes (ByteString.length path + 1)
      withForeignPtr memory $ \p -> ByteString.unsafeUseAsCStringLen path $ \(from, n) -> do
        copyBytes p (castPtr from) n
        pokeByteOff p n (0 :: Word8)
      use memory

-- | Carry out an operation that starts from here. No backend knows of its directory, which may
-- be closed meanwhile, and its number another's: so it has a number of its own.
fromPlace :: Env -> Where -> (CInt -> Operation.Operation) -> Wait -> (Int -> IO Trace) -> IO Trace
fromPlace env place operation wait next = case place of
  CurrentDirectory -> go (-100) (pure ()) -- AT_FDCWD
  At (File d) -> do
    own <- c_dup (descriptorNumber d)
    if own < 0 then next (fromIntegral own) else go own (void (close own))
  where
    go start release = do
      -- It is about a path, and so carried out under the name of no descriptor.
      none <- newDescriptor (-1)
      operate env Completed none (operation start) release wait (\r -> internally (\_ _ -> next r))

openFile :: Env -> Where -> ByteString -> OpenMode -> OpenFlags -> Answering File
openFile env place path mode flags wait k = startingAt env what place . withPath what path $ \memory -> do
  let creates = mode `elem` [WriteOnly, ReadWrite, Append]
      system = fromIntegral (c_open_flags (fromIntegral (fromEnum mode)) (flag openTruncate) (flag openExclusive) (flag openDirect))
      resolve = case openBeneath flags of StayBeneath -> resolveBeneath .|. resolveNoMagicLinks; Anywhere -> 0
      pathAt = unsafeForeignPtrToPtr memory
      operation start =
        Operation.OpenAt
          start
          (castPtr pathAt)
          system
          (if creates then fromIntegral (openPermissions flags) else 0)
          resolve
      done facts r
        | r < 0 = pure (failing what (Just (Char8.unpack path)) (const Done) r)
        | otherwise = k . File <$> newDescriptorWith facts (fromIntegral r)
  tried <- case place of
    At (File dir) | not (creates || openTruncate flags || openDirect flags) -> openAtOnce env dir pathAt system resolve
    _ -> pure wouldBlock
  if tried /= wouldBlock
    then touchForeignPtr memory >> done [Buffered, LocalAsked, Local] tried
    else fromPlace env place operation wait $ \r -> do
      touchForeignPtr memory
      done [Buffered | not (openDirect flags)] r
  where
    what = "open"
    flag f = if f flags then 1 else 0
    resolveBeneath = 0x08
    resolveNoMagicLinks = 0x02

readFileAt :: Env -> File -> Buffer -> Int -> Int -> Int64 -> Answering Int
readFileAt env (File d) buffer offset count at wait k = do
  tried <- readAtOnce env d to most at
  if tried /= wouldBlock
    then next tried <$ touchForeignPtr memory
    else operate env Completed d (Operation.ReadAt d to most at) (touchForeignPtr memory) wait next
  where
    memory = bufferMemory buffer
    (to, most) = partOf buffer offset count
    next = failing "read" Nothing k

writeFileAt :: Env -> File -> ByteString -> Int64 -> Answering Int
writeFileAt env file (BS memory n) = writeBufferAt env file (Buffer memory n) 0 n

writeBufferAt :: Env -> File -> Buffer -> Int -> Int -> Int64 -> Answering Int
writeBufferAt env (File d) buffer offset count at wait k =
  operate env Completed d (Operation.WriteAt d from size at) (touchForeignPtr (bufferMemory buffer)) wait (failing "write" Nothing k)
  where
    (from, size) = partOf buffer offset count

syncFile :: Env -> File -> Bool -> Answering ()
syncFile env (File d) dataOnly wait k =
  operate env Completed d (Operation.Sync d dataOnly) (pure ()) wait (failing "sync" Nothing (\_ -> k ()))

fileStatus :: Env -> File -> Answering FileStatus
fileStatus env (File d) = status here (statusAtOnce env d) ByteString.empty atEmptyPath
  where
    here operation = operateIO env Completed d (operation (descriptorNumber d))
    atEmptyPath = 0x1000

pathStatus :: Env -> Where -> ByteString -> Answering FileStatus
pathStatus env place path wait k = startingAt env "stat" place (status (fromPlace env place) attempt path 0 wait k)
  where
    attempt = case place of
      At (File dir) -> pathStatusAtOnce env dir
      CurrentDirectory -> \_ _ _ -> pure wouldBlock

status :: ((CInt -> Operation.Operation) -> Wait -> (Int -> IO Trace) -> IO Trace) -> (Ptr Word8 -> Int -> Ptr Word8 -> IO Int) -> ByteString -> Int -> Answering FileStatus
status carryOut attempt path flags wait k = withPath "stat" path $ \memory -> do
  result <- mallocForeignPtrBytes statxSize
  let pathAt = unsafeForeignPtrToPtr memory
      resultAt = unsafeForeignPtrToPtr result
      done r = do
        touchForeignPtr memory
        if r < 0
          then pure (failing "stat" (if ByteString.null path then Nothing else Just (Char8.unpack path)) (const Done) r)
          else k <$> withForeignPtr result peekStatus
  tried <- attempt pathAt basicStats resultAt
  if tried /= wouldBlock
    then done tried
    else carryOut (\start -> Operation.StatAt start (castPtr pathAt) flags basicStats (castPtr resultAt)) wait done
  where
    statxSize = 256
    basicStats = 0x7ff

-- | Read a @struct statx@; its layout is the same on every architecture.
peekStatus :: Ptr Word8 -> IO FileStatus
peekStatus p = do
  mode <- peekByteOff p 28 :: IO Word16
  inode <- peekByteOff p 32 :: IO Word64
  size <- peekByteOff p 40 :: IO Word64
  changed <- timeAt 96
  modified <- timeAt 112
  major <- peekByteOff p 136 :: IO Word32
  minor <- peekByteOff p 140 :: IO Word32
  pure
    FileStatus
      { statusKind = case mode .&. 0o170000 of
          0o100000 -> RegularFile
          0o040000 -> DirectoryFile
          0o120000 -> SymbolicLink
          _ -> OtherFile,
        statusSize = fromIntegral size,
        statusModified = modified,
        statusChanged = changed,
        statusInode = inode,
        statusDevice = fromIntegral major `shiftL` 32 .|. fromIntegral minor,
        statusPermissions = fromIntegral (mode .&. 0o7777)
      }
  where
    timeAt offset = do
      seconds <- peekByteOff p offset :: IO Int64
      nanoseconds <- peekByteOff p (offset + 8) :: IO Word32
      pure (seconds * 1_000_000_000 + fromIntegral nanoseconds)

setFileSize :: Env -> File -> Int64 -> Answering ()
setFileSize env (File d) size wait k =
  unlessClosed env "truncate" d $ inPool env (whileHeld d (fromIntegral <$> c_set_size (descriptorNumber d) size)) wait (failing "truncate" Nothing (\_ -> k ()))

-- | The names in an open directory, without dot and dot-dot, in the order of the file system.
listDirectory :: Env -> File -> Answering [ByteString]
listDirectory env (File d) wait k = unlessClosed env "list" d (inPool env names wait k)
  where
    names = filter (`notElem` map Char8.pack [".", ".."]) <$> bracket open Posix.closeDirStream (\stream -> Posix.rewindDirStream stream >> readAll stream)
    -- The stream takes the number it is given for its own, so it gets a duplicate. It closes
    -- that also when it is not opened after all.
    open = do
      r <- whileHeld d $ do
        status' <- Posix.getFdStatus (Fd (descriptorNumber d))
        if Posix.isDirectory status'
          then fromIntegral <$> c_dup (descriptorNumber d)
          else pure (failureCode eNOTDIR)
      when (r < 0) $ ioError (errnoToIOError "list" (Errno (fromIntegral (negate r))) Nothing Nothing)
      Posix.unsafeOpenDirStreamFd (Fd (fromIntegral r))
    readAll stream = Posix.readDirStream stream >>= \name -> if ByteString.null name then pure [] else (name :) <$> readAll stream

-- | A duplicate that is close-on-exec; or a negated error.
foreign import ccall unsafe "weft_dup" c_dup :: CInt -> IO CInt

makeDirectory :: Env -> ByteString -> Answering ()
makeDirectory env path = onPath env path (Posix.createDirectory path 0o777)

-- | A file, or an empty directory.
removePath :: Env -> ByteString -> Answering ()
removePath env path = onPath env path $ do
  s <- Posix.getSymbolicLinkStatus path
  if Posix.isDirectory s then Posix.removeDirectory path else Posix.removeLink path

renamePath :: Env -> ByteString -> ByteString -> Answering ()
renamePath env from to = onPath env (from <> to) (Posix.rename from to)

onPath :: Env -> ByteString -> IO () -> Answering ()
onPath env path action wait k
  | ByteString.elem 0 path = pure (failing "path" (Just (Char8.unpack path)) (const Done) (failureCode eINVAL))
  | otherwise = inPool env action wait k

-- Note [What does not wait]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~
-- An attempt is made only where the kernel promises an answer without the disk:
--
--   names    RESOLVE_CACHED looks names up in memory only (EAGAIN: not all there).
--   opening  The promise ends with the name: the file system's own part of opening
--            follows, which on a network asks a server, and on a local disk is memory.
--   status   As opening: statx asks a server where there is one.
--   reading  RWF_NOWAIT reads what is in the page cache. But not under O_DIRECT, where
--            it only means that submitting does not wait.
--
-- So names, opening and status are tried beneath a directory on a file system of a list of local ones, and
-- RESOLVE_NO_XDEV keeps them there. To ask where a directory is can take as long as a server likes: a pool
-- thread asks when the directory is first used, and nothing is tried before its answer, a 'Fact'.

-- | May attempts use it? If that is unknown, a pool thread finds out.
isNear :: Env -> Descriptor -> IO Bool
isNear env d = do
  unlessM (d `knows` LocalAsked) $
    whenM (learn d LocalAsked) . void . try @PoolClosed . submitPool (envPool env) $ do
      answer <- isLocal (descriptorNumber d)
      when (answer == 1) $ void (learn d Local)
  d `knows` Local

-- | Open for reading a path relative to a directory: flags, resolve flags.
openAtOnce :: Env -> Descriptor -> Ptr Word8 -> Int -> Int -> IO Int
openAtOnce env dir path flags resolve = beneath env dir path (openNow (descriptorNumber dir) (castPtr path) flags resolve)

-- | The status of a path relative to a directory: mask, @struct statx@.
pathStatusAtOnce :: Env -> Descriptor -> Ptr Word8 -> Int -> Ptr Word8 -> IO Int
pathStatusAtOnce env dir path mask to = beneath env dir path (statNow (descriptorNumber dir) (castPtr path) mask (castPtr to))

-- | Not for a path that is empty or absolute.
beneath :: Env -> Descriptor -> Ptr Word8 -> IO Int -> IO Int
beneath env dir path attempt = do
  first <- peek path
  near <- isNear env dir
  if near && first /= 0 && first /= 0x2f then whileOpen env dir attempt else pure wouldBlock

-- | The status of an open file: an empty path, mask, @struct statx@.
statusAtOnce :: Env -> Descriptor -> Ptr Word8 -> Int -> Ptr Word8 -> IO Int
statusAtOnce env d path mask to = do
  near <- isNear env d
  if near then whileOpen env d (statNow (descriptorNumber d) (castPtr path) mask (castPtr to)) else pure wouldBlock

-- | Bytes of an open file.
readAtOnce :: Env -> Descriptor -> Ptr Word8 -> Int -> Int64 -> IO Int
readAtOnce env d to count at = do
  inCache <- d `knows` Buffered
  if inCache && count <= mostAtOnce && at >= 0
    then whileOpen env d (readNow (descriptorNumber d) to count at)
    else pure wouldBlock
