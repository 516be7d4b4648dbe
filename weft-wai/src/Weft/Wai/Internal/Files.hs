{-# LANGUAGE MagicHash #-}
{-# LANGUAGE MultiWayIf #-}
{-# LANGUAGE OverloadedStrings #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Files that applications answer with
--
-- Opens the files of responses, and keeps those open that are asked for again. Called on
-- the threads of connections; one thread closes what nobody has asked for lately.
module Weft.Wai.Internal.Files
  ( Files,
    newFiles,
    closeFiles,

    -- * A file
    Found,
    foundFile,
    foundStatus,
    foundModified,
    acquire,
    release,
  )
where

import Control.Exception qualified as E
import Control.Monad (unless, void, when)
import Control.Monad.Primitive (RealWorld)
import Data.ByteString (ByteString)
import Data.Foldable (for_)
import Data.IORef
import Data.Int (Int64)
import Data.Maybe (isJust)
import Data.Primitive.PrimVar
import Data.Word (Word32, Word64)
import Foreign.C.Error
import Foreign.Marshal.Alloc (allocaBytes)
import Foreign.Storable (peekByteOff)
import GHC.Exts (Ptr (..))
import GHC.IO.Exception (IOException (..))
import Weft
import Weft.File
import Weft.Http.Date
import Weft.Http.Internal.Descriptors
import Weft.Http.Static.Cache
import Weft.Http.Static.Opened
import Weft.Internal.Core.SystemCall (fileDescriptor)
import Weft.Internal.Os.Descriptor (descriptorNumber)
import Weft.Internal.Os.Sys qualified as Sys
import Weft.Mask (mask_)

-- Note [A file that is kept open] ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~ To open a file takes a turn
-- through the pool, because a path may lead to a disk that sleeps. So a file that has been asked
-- for twice is kept open, and each request makes sure, with one system call on the open file, that
-- it is as it was: the time of its last change, its size, and how many names it has. That shows
-- what is written to it at once, and also that it was removed or that another one was moved to its
-- place, which takes a name from it. What it does not show is that a directory above was moved, or
-- a link changed: once a second, one of those who ask looks where the path leads.
--
-- A file that was removed keeps its place on the disk while it is open. One that is asked
-- for once (many applications make a file for each response) is not kept therefore, and
-- every ten seconds those are closed that nobody has asked for since the last time.

-- | The files of an application.
data Files = Files
  { filesCache :: !(Cache Entry),
    -- | Is there a thread that closes them?
    filesTended :: !(IORef Bool)
  }

-- | What is known of a path.
data Entry
  = -- | It was asked for once.
    Seen
  | -- | The cache holds it once.
    Kept !Found

-- | An open file.
data Found = Found
  { foundOpened :: !Opened,
    foundStatus :: !FileStatus,
    -- | When it was modified, as @Last-Modified@ says it.
    foundModified :: !ByteString,
    -- | Where there is none it is not kept.
    foundMark :: !(Maybe Mark),
    -- | The second in which it was last looked where its path leads.
    foundChecked :: {-# UNPACK #-} !(PrimVar RealWorld Int64)
  }

-- | The file, for threads that have acquired it.
foundFile :: Found -> File
foundFile = openedFile . foundOpened

-- | What changes when a file does: the time of its last change (seconds and nanoseconds), its
-- size, the number of its names.
data Mark = Mark !Int64 !Word32 !Word64 !Word32
  deriving stock (Eq)

-- | None is open.
newFiles :: IO Files
newFiles = do
  -- A quarter of the descriptors that a process has where nobody has seen to it, or of fewer;
  -- and memory for the paths of some thousand.
  cache <- mostDescriptors >>= newCache 1_000_000 . min 256 . (`div` 4)
  Files cache <$> newIORef False

-- | Close all that nobody has acquired.
closeFiles :: Files -> Thread ()
closeFiles files = liftIO (reduceFiles (filesCache files) (const 0)) >>= letGo

-- | Open a file in this second, or have one that is open; the function performs what is to
-- be waited for. Raises what the system says, and an exception for what is no regular file. To
-- be released.
acquire :: Files -> (forall a. Thread a -> IO a) -> Int64 -> ByteString -> IO Found
acquire files performing second path =
  atHand files second path >>= \case
    Right found -> pure found
    Left missing -> do
      -- What is held and belongs to nobody else. Who performs may be interrupted when the file has
      -- been found, or before anything was done.
      ours <- newIORef (heldBy missing)
      let obtaining = mask_ $ do
            liftIO (writeIORef ours Nothing)
            found <- obtain files second path missing
            found <$ liftIO (writeIORef ours (Just found))
      performing obtaining `E.onException` (readIORef ours >>= mapM_ (release performing))
  where
    heldBy = \case
      Unsure found -> Just found
      Outdated found -> Just found
      Elsewhere _ -> Nothing

-- | It is not needed any more.
release :: (forall a. Thread a -> IO a) -> Found -> IO ()
release performing found = do
  lastOne <- releasedLast (foundOpened found)
  when lastOne (performing (closeFile (foundFile found)))

-- | Look for a file that is not simply at hand.
obtain :: Files -> Int64 -> ByteString -> Missing -> Thread Found
obtain files second path = \case
  Unsure found -> do
    -- No longer than this: 'again' lets go of it, too, and to do so twice would close the file
    -- under somebody else.
    looked <- try (pathStatus path) `onException` releaseOpened (foundOpened found)
    case looked of
      Right status | sameFile status (foundStatus found) -> pure found
      Right _ -> again found
      Left (_ :: IOException) -> again found
  Outdated found -> again found
  Elsewhere known -> open files second path known
  where
    sameFile a b = statusInode a == statusInode b && statusDevice a == statusDevice b
    again found = do
      releaseOpened (foundOpened found)
      liftIO (deleteCache (filesCache files) path) >>= letGo
      open files second path True

-- | Why a file is not simply at hand. What is found is held, here too.
data Missing
  = -- | Somebody is to look where the path leads.
    Unsure !Found
  | -- | It has changed.
    Outdated !Found
  | -- | It is to be opened; was it asked for before?
    Elsewhere !Bool

-- | What is known of a path, without waiting. What is found is held for the caller.
atHand :: Files -> Int64 -> ByteString -> IO (Either Missing Found)
atHand files second path =
  lookupCache (filesCache files) path >>= \case
    Nothing -> pure (Left (Elsewhere False))
    Just Seen -> pure (Left (Elsewhere True))
    Just (Kept found) -> do
      held <- holdOpened (foundOpened found)
      if held then compared found else pure (Left (Elsewhere True))
  where
    compared found = do
      mark <- markOf (foundFile found)
      checked <- readPrimVar (foundChecked found)
      if
        | mark /= foundMark found -> pure (Left (Outdated found))
        | checked == second -> pure (Right found)
        | otherwise -> Left (Unsure found) <$ writePrimVar (foundChecked found) second

-- | Open a file, and keep it if it was asked for before.
open :: Files -> Int64 -> ByteString -> Bool -> Thread Found
open files second path known = do
  file <- openSomehow files path
  found <- look file `onException` closeFile file
  flip onException (releaseOpened (foundOpened found)) $ do
    (gone, untended) <- liftIO (remember found)
    letGo gone
    when untended . void $ forkWith defaultForkOptions {forkLabel = "open files"} (tend files)
  pure found
  where
    look file = do
      -- Before the status: what changes after it changes the mark, too.
      mark <- liftIO (markOf file)
      status <- fileStatus file
      unless (statusKind status == RegularFile) $ throwM (userError "not a regular file")
      liftIO $ do
        held <- newOpened file
        Found held status (formatDate (HttpTime (statusModified status `div` 1_000_000_000))) mark <$> newPrimVar second
    remember found
      | known && isJust (foundMark found) = do
          void (holdOpened (foundOpened found))
          gone <- insertCache (filesCache files) path OpenFile (Kept found)
          tended <- atomicModifyIORef' (filesTended files) (True,)
          pure (gone, not tended)
      | otherwise = (,False) <$> insertCache (filesCache files) path (InMemory 0) Seen

-- | Where descriptors are short, some of those that are kept are given up for it.
openSomehow :: Files -> ByteString -> Thread File
openSomehow files path =
  try (openFile path ReadOnly) >>= \case
    Right file -> pure file
    Left e
      | ioe_errno e `elem` [Just code | Errno code <- [eMFILE, eNFILE]] ->
          liftIO (reduceFiles (filesCache files) (`div` 2)) >>= \case
            [] -> throwM e
            some -> letGo some >> openSomehow files path
      | otherwise -> throwM e

-- | The cache has let go of these. Masked, because nobody else knows of them any more.
letGo :: [Entry] -> Thread ()
letGo gone = mask_ . for_ gone $ \case
  Seen -> pure ()
  Kept found -> releaseOpened (foundOpened found)

-- | Close what nobody has asked for lately, until nothing is kept.
tend :: Files -> Thread ()
tend files = do
  sleep (seconds 10)
  liftIO (sweepFiles (filesCache files)) >>= letGo
  left <- liftIO (cacheFiles (filesCache files))
  if left > 0
    then tend files
    else do
      -- Who keeps one now either sees that nobody tends them, or is seen.
      liftIO (writeIORef (filesTended files) False)
      more <- liftIO (cacheFiles (filesCache files))
      when (more > 0) $ do
        tended <- liftIO (atomicModifyIORef' (filesTended files) (True,))
        unless tended (tend files)

-- | The mark of an open file, without waiting for a server that may have it; none where
-- another kernel than the system's has opened it.
markOf :: File -> IO (Maybe Mark)
markOf file = allocaBytes 256 $ \p@(Ptr address) -> do
  result <- Sys.statNow (descriptorNumber (fileDescriptor file)) (Ptr ""#) (nlink + ctime + size) (Ptr address)
  if result /= 0
    then pure Nothing
    else fmap Just $ Mark <$> peekByteOff p 96 <*> peekByteOff p 104 <*> peekByteOff p 40 <*> peekByteOff p 16
  where
    -- STATX_NLINK, STATX_CTIME, STATX_SIZE; the places are those of struct statx.
    nlink = 0x4
    ctime = 0x80
    size = 0x200
