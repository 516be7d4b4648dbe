{-# OPTIONS_HADDOCK not-home #-}

-- | From paths beneath the root to open files and their content, and from that to responses: small files
-- are cached and sent from memory, large ones are kept open and sent by the system.
module Weft.Http.Static.Send
  ( isPlain,
    caches,
    readWith,
    known,
    remember,
    throughCache,
    sizeAndTime,
    fromCached,
    fromFile,
    openBeneathRoot,
    openIndex,
    letGo,
    forget,
  )
where

import Control.Monad (void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Foldable (for_)
import Data.IORef
import Data.Int (Int64)
import Data.Primitive.PrimVar
import Foreign.C.Error
import Weft
import Weft.File
import Weft.Http.ETag
import Weft.Http.Multipart
import Weft.Http.Range
import Weft.Http.Server.Render
import Weft.Http.Server.Types
import Weft.Http.Static.Cache
import Weft.Http.Static.Names (settledIn)
import Weft.Http.Static.Represent
import Weft.Http.Static.Types
import Weft.Mask (mask_)

-- | Open a path beneath the root. Short of descriptors, it closes some that the cache holds.
openBeneathRoot :: Static -> ByteString -> Thread File
openBeneathRoot static path =
  makingRoom (openCache static) letGo $
    openFileAt (At (openRoot static)) path ReadOnly defaultOpenFlags {openBeneath = StayBeneath}

-- | The first existing index file of a directory. Throws if one exists and cannot be opened.
openIndex :: Static -> ByteString -> Thread (Maybe (ByteString, File, FileStatus))
openIndex static directory = tryNames (staticIndex (openSettings static))
  where
    inside name = if B.null directory then name else directory <> "/" <> name
    tryNames = \case
      [] -> pure Nothing
      name : rest ->
        try (openBeneathRoot static (inside name)) >>= \case
          Left e
            | hasErrno [eNOENT, eNOTDIR] e -> tryNames rest
            | otherwise -> throwM e
          Right file -> do
            status <- fileStatus file `onException` closeFile file
            if statusKind status == RegularFile
              then pure (Just (inside name, file, status))
              else closeFile file >> tryNames rest

-- | Close what the cache has dropped, unless it is being sent. Masked: nothing else refers to it.
letGo :: [Cached] -> Thread ()
letGo gone = mask_ . for_ gone $ \cached -> case cachedContent cached of
  InBytes _ -> pure ()
  OnDisk opened -> releaseOpened opened

-- | Drop what the cache has for this path: Note [Answers in order] in "Weft.Http.Static.Cache".
forget :: Static -> ByteString -> Thread ()
forget static key = liftIO (deleteCache (openCache static) key) >>= letGo

-- | Is a file kept in memory? The flag: the server may compress it.
caches :: Static -> Bool -> FileStatus -> Bool
caches static packs status
  | staticCacheBytes settings <= 0 || beyond (staticLargestCached settings) = False
  | otherwise = packs || staticOpenFiles settings <= 0 || not (beyond (staticLargestCopied settings))
  where
    settings = openSettings static
    beyond size = statusSize status > fromIntegral size

-- | The content of a file; 'Nothing' if its status is not this one any more.
readWith :: File -> FileStatus -> Thread (Maybe ByteString)
readWith file status = do
  bytes <- readAt file 0 (fromIntegral (statusSize status))
  after' <- fileStatus file
  pure (if fromIntegral (B.length bytes) == statusSize status && after' == status then Just bytes else Nothing)

known :: Tick -> ByteString -> FileStatus -> Meta -> Others -> Content -> IO Cached
known tick path status meta others content = do
  checked <- newPrimVar uncompared
  rendered <- newIORef (RenderedFor unasked (wholeOf meta content (pure ())))
  pure
    Cached
      { cachedContent = content,
        cachedMeta = meta,
        cachedRendered = rendered,
        cachedPath = path,
        cachedStatus = status,
        cachedSettled = settledIn (tickSecond tick) status,
        cachedChecked = checked,
        cachedOthers = others
      }

-- | Put a file into the cache, which holds it from then on.
remember :: Static -> ByteString -> Cached -> Thread ()
remember static key cached = do
  gone <- liftIO $ do
    case content of
      InBytes _ -> pure ()
      OnDisk opened -> void (holdOpened opened)
    insertCache (openCache static) key (shareOf content) cached
  letGo gone
  where
    content = cachedContent cached

-- | Answer with a file that was just opened, through the cache: from its bytes, if the flag is set, or
-- else from the file, kept open. The last action answers with one not worth keeping, and must close it;
-- otherwise it is closed unless the cache or the response holds it.
throughCache :: Static -> Tick -> ByteString -> Bool -> File -> FileStatus -> (ETag -> Content -> IO Cached) -> (Cached -> Thread a) -> (ETag -> Thread a) -> Thread a
throughCache static tick key copied file status about answer uncached = do
  content <- (if copied then readWith file status else pure Nothing) `onException` closeFile file
  case content of
    Just bytes -> do
      closeFile file
      cached <- liftIO (about (contentETag bytes) (InBytes bytes))
      worth <- worthIt (shareOf (InBytes bytes))
      if worth then remember static key cached else forget static key
      answer cached
    Nothing ->
      worthIt OpenFile >>= \case
        True -> do
          opened <- liftIO (newOpened file)
          -- While we hold it, it is open.
          flip finally (releaseOpened opened) $ do
            hashed <- hashOf static file status
            let tag = maybe (sizeAndTime status) (if settledIn (tickSecond tick) status then id else weakened) hashed
            cached <- liftIO (about tag (OnDisk opened))
            remember static key cached
            answer cached
        False -> do
          forget static key `onException` closeFile file
          uncached (sizeAndTime status)
  where
    worthIt share = liftIO (worthKeeping (openCache static) share key)

sizeAndTime :: FileStatus -> ETag
sizeAndTime status = fileETag (FileIdentity (statusSize status) (statusModified status))

-- | The tag of an open file's content, unless it is too large or changes meanwhile.
hashOf :: Static -> File -> FileStatus -> Thread (Maybe ETag)
hashOf static file status
  | size > fromIntegral (staticLargestHashed (openSettings static)) = pure Nothing
  | otherwise = go 0 hashStart
  where
    size = statusSize status
    go at !hash
      | at >= size = (\now' -> if now' == status then Just (hashETag (fromIntegral size) hash) else Nothing) <$> fileStatus file
      | otherwise = do
          bytes <- readAt file at (fromIntegral (min 65_536 (size - at)))
          if B.null bytes then pure Nothing else go (at + fromIntegral (B.length bytes)) (hashMore bytes hash)

shareOf :: Content -> Share
shareOf = \case
  -- The content, and the rendered response.
  InBytes bytes -> InMemory (2 * B.length bytes + 512)
  OnDisk _ -> OpenFile

-- | In place of the second: not yet rendered, because no client, or only one, has asked.
unasked, askedOnce :: Int64
unasked = -1
askedOnce = -2

-- | The response with the whole file; the action is run when it was sent, or will not be.
wholeOf :: Meta -> Content -> Thread () -> Response
wholeOf meta content release = Response ok200 (metaFields meta) body Nothing
  where
    body = case content of
      InBytes bytes -> Bytes [bytes]
      OnDisk opened -> FileBody (openedFile opened) [FilePart B.empty 0 (metaSize meta)] B.empty release

-- | Answer with what is cached. 'Nothing' where that has been closed.
fromCached :: Static -> Tick -> Request -> Cached -> Thread (Maybe Response)
fromCached static tick request cached = case cachedContent cached of
  InBytes bytes -> Just <$> plainly (pure ()) (fromMemory tick request meta bytes)
  OnDisk opened -> do
    holding <- liftIO (holdOpened opened)
    -- The response releases it.
    if holding then Just <$> plainly (releaseOpened opened) (fromFile tick request meta (openedFile opened)) else pure Nothing
  where
    meta = cachedMeta cached
    plainly release otherwise'
      | isPlain request = liftIO (renderedFor static tick cached (wholeOf meta (cachedContent cached) release))
      | otherwise = otherwise' release

-- | Is it a GET of the whole file, whatever the client has?
isPlain :: Request -> Bool
isPlain request = case requestMethod request of
  Get -> isUnconditional (requestConditions request)
  _ -> False

fromMemory :: Tick -> Request -> Meta -> ByteString -> Thread () -> Thread Response
fromMemory tick request meta bytes release = conditional tick request meta (wholeOf meta (InBytes bytes) release) $ \case
  OneRange r -> Bytes [slice r]
  Ranges parts end -> Bytes (concat [[partPreamble p, slice (partRange p)] | p <- parts] <> [end])
  where
    slice r = B.take (fromIntegral (rangeLength r)) (B.drop (fromIntegral (rangeFirst r)) bytes)

-- | The response with the whole file, rendered for this second and kept for others.
renderedFor :: Static -> Tick -> Cached -> Response -> IO Response
renderedFor static tick cached whole = do
  RenderedFor second response <- readIORef (cachedRendered cached)
  if
    | second == tickSecond tick -> pure response
    -- Many files are asked for only once; copying them after a head would not pay.
    | second == unasked, inMemory (responseBody whole) -> keep askedOnce whole
    | otherwise -> keep (tickSecond tick) whole {responseRendered = renderWhole (staticServerName (openSettings static)) (tickDate tick) whole}
  where
    keep second response = response <$ writeIORef (cachedRendered cached) (RenderedFor second response)

-- | Answer with an open file. The action is run when it is not needed any more.
fromFile :: Tick -> Request -> Meta -> File -> Thread () -> Thread Response
fromFile tick request meta file release = do
  response <- conditional tick request meta whole body
  case responseBody response of
    FileBody {} | requestMethod request == Get -> pure response
    -- HEAD, or a response that does not contain the file.
    _ -> response {responseBody = omit (responseBody response)} <$ release
  where
    whole = Response ok200 (metaFields meta) (parts [FilePart B.empty 0 (metaSize meta)] B.empty) Nothing
    parts pieces end = FileBody file pieces end release
    body = \case
      OneRange r -> parts [FilePart B.empty (rangeFirst r) (rangeLength r)] B.empty
      Ranges rs end -> parts [FilePart (partPreamble p) (rangeFirst (partRange p)) (rangeLength (partRange p)) | p <- rs] end
    omit = \case
      content@FileBody {} -> Omitted (bodyLength content)
      content -> content
