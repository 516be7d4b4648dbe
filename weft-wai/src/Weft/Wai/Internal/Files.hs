{-# LANGUAGE MagicHash #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The files that applications answer with, as Warp has them. Those that are requested again are kept
-- open; one thread closes files not used lately.
module Weft.Wai.Internal.Files
  ( Files,
    newFiles,
    closeFiles,
    foundFile,
    acquire,
    release,
    sendingFile,
  )
where

import Control.Exception (IOException)
import Control.Exception qualified as E
import Control.Monad (unless, void, when)
import Control.Monad.Primitive (RealWorld)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Foldable (for_)
import Data.IORef
import Data.Int (Int64)
import Data.Maybe (isJust)
import Data.Primitive.PrimVar
import Data.Word (Word32, Word64)
import Foreign.Marshal.Alloc (allocaBytes)
import Foreign.Storable (peekByteOff)
import GHC.Exts (Ptr (..))
import Network.Wai.Internal qualified as Wai
import Weft
import Weft.File
import Weft.Http.Conditional
import Weft.Http.Date
import Weft.Http.ETag (parseETag)
import Weft.Http.Internal.Descriptors
import Weft.Http.Internal.Hash (newSecret)
import Weft.Http.Internal.Types (isOneOf)
import Weft.Http.Range
import Weft.Http.Request
import Weft.Http.Server (Body (..), Response (..))
import Weft.Http.Server qualified as Server
import Weft.Http.Server.Types (knownLength)
import Weft.Http.Static.Cache
import Weft.Http.Status
import Weft.Internal.Core.SystemCall (fileDescriptor)
import Weft.Internal.Os.Descriptor (descriptorNumber)
import Weft.Internal.Os.Sys qualified as Sys
import Weft.Mask (mask_)

-- Note [A file that is kept open]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- Opening a file takes a turn through the pool. So a file requested twice is kept open, and each
-- request verifies by one system call that its time of last change, size and number of names are the
-- same: that detects a write at once, and also a removal or replacement, which takes a name from it. A
-- moved directory or a changed link is not detected, so once a second one request resolves the path.
--
-- A removed file occupies the disk while it is open. So one requested once is not kept, and unused ones
-- are closed.

data Files = Files
  { filesCache :: !(Cache Entry),
    -- | Is there a thread that closes them?
    filesTended :: !(IORef Bool)
  }

data Entry
  = -- | Requested once.
    Seen
  | -- | The cache holds it once.
    Kept !Found

data Found = Found
  { foundOpened :: !Opened,
    foundStatus :: !FileStatus,
    foundModified :: !ByteString,
    -- | A file without one is not kept.
    foundMark :: !(Maybe Mark),
    -- | The second in which its path was last resolved.
    foundChecked :: {-# UNPACK #-} !(PrimVar RealWorld Int64)
  }

-- | The file, for threads that have acquired it.
foundFile :: Found -> File
foundFile = openedFile . foundOpened

-- | Time of last change (seconds and nanoseconds), size, and number of names.
data Mark = Mark !Int64 !Word32 !Word64 !Word32
  deriving stock (Eq)

newFiles :: Thread Files
newFiles = do
  secret <- newSecret
  -- A quarter of the default limit of descriptors; and memory for some thousand paths.
  liftIO $ do
    cache <- mostDescriptors >>= newCache secret 1_000_000 . min 256 . (`div` 4)
    Files cache <$> newIORef False

-- | Close all files that are not in use.
closeFiles :: Files -> Thread ()
closeFiles files = liftIO (reduceFiles (filesCache files) (const 0)) >>= letGo

-- | Open a file, or use the open one, in this second; the function performs waits. Throws an 'IOError',
-- also if it is no regular file. The caller must 'release' it.
acquire :: Files -> (forall a. Thread a -> IO a) -> Int64 -> ByteString -> IO Found
acquire files performing second path =
  atHand files second path >>= \case
    Right found -> pure found
    Left missing -> do
      -- The file that only this thread holds: performing may be interrupted before or after it.
      ours <- newIORef (heldBy missing)
      let obtaining = mask_ $ do
            liftIO (writeIORef ours Nothing)
            found <- obtain files second path missing
            found <$ liftIO (writeIORef ours (Just found))
      performing obtaining `E.onException` (readIORef ours >>= mapM_ (release performing))
  where
    heldBy = \case
      Held _ found -> Just found
      Elsewhere _ -> Nothing

release :: (forall a. Thread a -> IO a) -> Found -> IO ()
release performing found = do
  lastOne <- releasedLast (foundOpened found)
  when lastOne (performing (closeFile (foundFile found)))

obtain :: Files -> Int64 -> ByteString -> Missing -> Thread Found
obtain files second path = \case
  Elsewhere known -> open files second path known
  Held unchanged found -> do
    -- Only here: it is released below, too, and a double release would close another's file.
    same <- (if unchanged then resolvesTo found else pure False) `onException` releaseOpened (foundOpened found)
    if same
      then pure found
      else do
        releaseOpened (foundOpened found)
        liftIO (deleteCache (filesCache files) path) >>= letGo
        open files second path True
  where
    resolvesTo found = either (\(_ :: IOException) -> False) (sameFile (foundStatus found)) <$> try (pathStatus path)
    sameFile a b = statusInode a == statusInode b && statusDevice a == statusDevice b

-- | Why a file is not at hand.
data Missing
  = -- | The caller holds it. Is it unchanged, so that only its path must be resolved?
    Held !Bool !Found
  | -- | It must be opened; was it requested before?
    Elsewhere !Bool

-- | Look a path up without waiting. The caller holds the file that is found.
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
        | mark /= foundMark found -> pure (Left (Held False found))
        | checked == second -> pure (Right found)
        | otherwise -> Left (Held True found) <$ writePrimVar (foundChecked found) second

open :: Files -> Int64 -> ByteString -> Bool -> Thread Found
open files second path known = do
  file <- makingRoom (filesCache files) letGo (openFile path ReadOnly)
  found <- look file `onException` closeFile file
  (`onException` releaseOpened (foundOpened found)) $ do
    (gone, untended) <- liftIO (remember found)
    letGo gone
    when untended . void $ forkWith defaultForkOptions {forkLabel = "open files"} (tend files)
    pure found
  where
    look file = do
      -- Before the status: a later change changes the mark, too.
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
          (gone,) <$> becomeTended files
      | otherwise = (,False) <$> insertCache (filesCache files) path (InMemory 0) Seen

-- | Release what the cache has dropped. Masked: nothing else refers to it.
letGo :: [Entry] -> Thread ()
letGo gone = mask_ . for_ gone $ \case
  Seen -> pure ()
  Kept found -> releaseOpened (foundOpened found)

-- | Close unused files until none is kept.
tend :: Files -> Thread ()
tend files = do
  sleep (seconds 10)
  liftIO (sweepFiles (filesCache files)) >>= letGo
  left <- liftIO (cacheFiles (filesCache files))
  if left > 0
    then tend files
    else do
      -- A thread that keeps one now reads the flag, or its file is seen below.
      liftIO (writeIORef (filesTended files) False)
      more <- liftIO (cacheFiles (filesCache files))
      mine <- if more > 0 then liftIO (becomeTended files) else pure False
      when mine (tend files)

-- | Set the flag that a thread closes files; was it clear?
becomeTended :: Files -> IO Bool
becomeTended files = not <$> atomicModifyIORef' (filesTended files) (True,)

-- | The mark of an open file, without waiting; none if it is not of the system's kernel.
markOf :: File -> IO (Maybe Mark)
markOf file = allocaBytes 256 $ \p@(Ptr address) ->
  Sys.statNow (descriptorNumber (fileDescriptor file)) (Ptr ""#) (nlink + ctime + size) (Ptr address) >>= \case
    0 -> fmap Just $ Mark <$> peekByteOff p 96 <*> peekByteOff p 104 <*> peekByteOff p 40 <*> peekByteOff p 16
    _ -> pure Nothing
  where
    -- STATX_NLINK, STATX_CTIME, STATX_SIZE; the places are those of struct statx.
    nlink = 0x4
    ctime = 0x80
    size = 0x200

-- | Answer a request with a file or a part of it. Holds the file until the last function has returned.
sendingFile :: Files -> (forall a. Thread a -> IO a) -> Int64 -> Request -> Status -> [Field] -> ByteString -> Maybe Wai.FilePart -> (Response -> IO ()) -> IO ()
sendingFile files performing second request status fields path part send =
  E.bracket (E.try (acquire files performing second path)) (either (\(_ :: IOException) -> pure ()) (release performing)) $ \case
    Left _ -> send notThere
    Right found -> send (inHead (answered found))
  where
    notThere =
      inHead (Response notFound404 (Field "Content-Type" "text/plain; charset=utf-8" : filter (not . (`isOneOf` ["content-type"])) fields) (Bytes ["File not found"]) Nothing)

    answered found
      | Just p <- part = ofPart file p
      | status /= ok200 || isUnconditional (requestConditions request) = whole status
      | otherwise = case evaluatePreconditions (requestMethod request) (requestConditions request) validators of
          PreconditionFailed -> Response preconditionFailed412 dated NoContent Nothing
          NotModified -> Response notModified304 dated NoContent Nothing
          PerformWhole -> whole ok200
          Perform
            | Just range <- conditionRange (requestConditions request),
              requestMethod request == Get ->
                case resolveRange defaultRangeLimits size range of
                  Single r
                    | rangeLength r < size ->
                        Response partialContent206 (Field "Content-Range" (contentRange size r) : ranged) (sent file (rangeFirst r) (rangeLength r)) Nothing
                  Unsatisfiable ->
                    Response requestedRangeNotSatisfiable416 (Field "Content-Range" (unsatisfiedRange size) : dated) NoContent Nothing
                  -- Several ranges need not be honoured (RFC 9110, section 14.2).
                  _ -> whole ok200
            | otherwise -> whole ok200
      where
        file = foundFile found
        size = statusSize (foundStatus found)
        modified = HttpTime (statusModified (foundStatus found) `div` 1_000_000_000)
        -- Exact, as warp has it.
        validators = Validators (lookupField "etag" fields >>= parseETag) (Just modified) True (HttpTime second)
        dated = if any (`isOneOf` ["last-modified"]) fields then fields else Field "Last-Modified" (foundModified found) : fields
        ranged = accepting dated
        whole code = Response code ranged (sent file 0 size) Nothing

    ofPart file (Wai.FilePart offset count size) = Response status (partial <> accepting fields) (sent file (fromIntegral offset) (fromIntegral count)) Nothing
      where
        partial = [Field "Content-Range" (contentRange (fromIntegral size) range) | count < size, count > 0]
        range = ByteRange (fromIntegral offset) (fromIntegral (offset + count - 1))

    accepting = (Field "Accept-Ranges" "bytes" :)
    -- The bracket releases it.
    sent file offset count = FileBody file [Server.FilePart B.empty offset count] B.empty (pure ())
    inHead response = case requestMethod request of
      Head -> response {responseBody = maybe NoContent Omitted (knownLength (responseBody response))}
      _ -> response
