-- |
-- Description : Files from the file system
-- Stability   : not home
--
-- From a path to an answer, by way of the file system: what is small goes into the
-- cache, what is large is sent by the system. Called where the cache has nothing, on
-- the thread of a connection.
module Weft.Http.Static.Disk
  ( answerPath,
    represent,
    ready,
    stillFresh,
    pageAt,
    openBeneathRoot,
  )
where

import Control.Monad (forM)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Foldable (find)
import Data.IORef
import Data.Maybe (catMaybes)
import Data.Primitive.PrimVar
import Foreign.C.Error
import Foreign.C.Types (CInt)
import GHC.IO.Exception (IOException (ioe_errno))
import Weft
import Weft.File hiding (OpenMode (Directory))
import Weft.Http.Compress
import Weft.Http.Multipart
import Weft.Http.Negotiation
import Weft.Http.Path
import Weft.Http.Range
import Weft.Http.Server.Render
import Weft.Http.Server.Types
import Weft.Http.Static.Asked
import Weft.Http.Static.Cache
import Weft.Http.Static.Listing
import Weft.Http.Static.Represent
import Weft.Http.Static.Types
import Weft.Http.Status

-- | Answer with what the file system has at a path (as it stands in a request), and
-- keep it under that path.
answerPath :: Static -> Clock -> Request -> ByteString -> Thread Response
answerPath static clock request asked = case safePath asked of
  Left fault -> pure (errorResponse (pathFaultStatus fault) "")
  Right path
    | hidden path -> pure notFound
    | otherwise -> handle failed $ do
        let relative = relativePath path
        file <- open (if B.null relative then "." else relative)
        flip onException (closeFile file) $ do
          status <- fileStatus file
          case statusKind status of
            RegularFile
              | not (pathIsDirectory path) -> answerFile static clock request asked relative file status
              | otherwise -> notFound <$ closeFile file
            DirectoryFile
              | pathIsDirectory path -> closeFile file >> directory relative
              | otherwise -> closeFile file >> pure (redirect (asked <> "/" <> requestQuery request))
            _ -> notFound <$ closeFile file
  where
    settings = openSettings static
    open = openBeneathRoot static
    hidden path = hasHiddenComponent path && take 1 (pathComponents path) /= [".well-known"]
    redirect target =
      withFields [Field "Location" (oneSlash target)] (errorResponse movedPermanently301 "")
    -- Two slashes at the front would name another host.
    oneSlash target = "/" <> B.dropWhile (== 0x2f) target
    directory relative = tryNames (staticIndex settings)
      where
        inside name = if B.null relative then name else relative <> "/" <> name
        tryNames = \case
          [] | staticListings settings -> listing static request relative
          [] -> pure notFound
          name : rest ->
            try (open (inside name)) >>= \case
              Left e
                | ioe_errno e `elem` map errnoOf [eNOENT, eNOTDIR] -> tryNames rest
                | otherwise -> throwM (e :: IOException)
              Right file -> flip onException (closeFile file) $ do
                status <- fileStatus file
                if statusKind status == RegularFile
                  then answerFile static clock request asked (inside name) file status
                  else closeFile file >> tryNames rest

errnoOf :: Errno -> Maybe CInt
errnoOf (Errno e) = Just e

notFound :: Response
notFound = errorResponse notFound404 "There is nothing here."

-- | What the system said, in HTTP.
failed :: IOException -> Thread Response
failed e
  | is [eNOENT, eNOTDIR, eNAMETOOLONG, eLOOP, eXDEV, eINVAL, eNXIO] = pure notFound
  | is [eACCES, ePERM] = pure (errorResponse forbidden403 "")
  | is [eMFILE, eNFILE, eNOMEM] = pure (errorResponse serviceUnavailable503 "The server is short of resources.")
  | otherwise = throwM e
  where
    is = elem (ioe_errno e) . map errnoOf

-- | Answer with an open regular file, which is closed when it is not needed any
-- more.
answerFile :: Static -> Clock -> Request -> ByteString -> ByteString -> File -> FileStatus -> Thread Response
answerFile static clock request asked path file status = do
  siblings <- siblingsOf static path status
  content <- if caches static status then readWith file status else pure Nothing
  tick <- liftIO (readClock clock)
  case content of
    Just bytes -> do
      closeFile file
      others <- liftIO (othersOf static asked path status siblings)
      cached <- liftIO (remember static tick asked path status (metaOf settings path (varies settings path siblings) Identity "" status) others bytes)
      represent static tick request asked cached
    Nothing -> do
      let chosen = chooseCoding (acceptEncoding request) (map siblingCoding siblings)
      packed <- maybe (pure Nothing) (\s -> fmap (s,) <$> openSibling static s) (find ((== chosen) . siblingCoding) siblings)
      case packed of
        Just (sibling, other) -> flip onException (closeFile other) $ do
          closeFile file
          fromFile tick request (metaOf settings path True (siblingCoding sibling) (codingName (siblingCoding sibling)) (siblingStatus sibling)) other
        Nothing -> fromFile tick request (metaOf settings path (varies settings path siblings) Identity "" status) file
  where
    settings = openSettings static

-- | Whether a file is small enough for the cache.
caches :: Static -> FileStatus -> Bool
caches static status =
  statusSize status <= fromIntegral (staticLargestCached settings) && staticCacheBytes settings > 0
  where
    settings = openSettings static

-- | The content of a file that has this status; 'Nothing' if it has another one by
-- now.
readWith :: File -> FileStatus -> Thread (Maybe ByteString)
readWith file status = do
  bytes <- readAt file 0 (fromIntegral (statusSize status) + 1)
  after' <- fileStatus file
  pure (if fromIntegral (B.length bytes) == statusSize status && after' == status then Just bytes else Nothing)

-- | Put a file into the cache.
remember :: Static -> Tick -> ByteString -> ByteString -> FileStatus -> Meta -> Others -> ByteString -> IO Cached
remember static tick key path status meta others bytes = do
  checked <- newPrimVar (fromIntegral (tickSecond tick))
  rendered <- newIORef (Rendered (-1) (wholeOf meta bytes))
  let cached =
        Cached
          { cachedHeld = Held bytes meta rendered,
            cachedPath = path,
            cachedStatus = status,
            cachedChecked = checked,
            cachedOthers = others
          }
  -- Once as it is, and once rendered.
  cached <$ insertCache (openCache static) key (2 * B.length bytes + 512) cached

wholeOf :: Meta -> ByteString -> Response
wholeOf meta bytes = Response ok200 (metaFields meta) (Bytes [bytes]) Nothing

-- | Answer from memory.
fromMemory :: Static -> Tick -> Request -> Held -> Thread Response
fromMemory static tick request held
  | isUnconditional (requestConditions request) && requestMethod request == Get = liftIO $ do
      Rendered second response <- readIORef (heldRendered held)
      if second == tickSecond tick
        then pure response
        else do
          let rendered = whole {responseRendered = renderWhole (staticServerName (openSettings static)) (tickDate tick) whole}
          rendered <$ writeIORef (heldRendered held) (Rendered (tickSecond tick) rendered)
  | otherwise = conditional tick request (heldMeta held) whole $ \ranges ->
      let slice r = B.take (fromIntegral (rangeLength r)) (B.drop (fromIntegral (rangeFirst r)) (heldBytes held))
       in case ranges of
            OneRange r -> Bytes [slice r]
            Ranges parts end -> Bytes (concat [[partPreamble p, slice (partRange p)] | p <- parts] <> [end])
  where
    whole = wholeOf (heldMeta held) (heldBytes held)

-- | Answer with an open file, which is closed when it is not needed any more.
fromFile :: Tick -> Request -> Meta -> File -> Thread Response
fromFile tick request meta file = do
  response <- conditional tick request meta whole body
  case responseBody response of
    FileBody {} | requestMethod request == Get -> pure response
    -- HEAD, or a response that does not contain the file.
    _ -> response {responseBody = omit (responseBody response)} <$ closeFile file
  where
    whole = Response ok200 (metaFields meta) (FileBody file [FilePart B.empty 0 (metaSize meta)] B.empty (closeFile file)) Nothing
    body = \case
      OneRange r -> FileBody file [FilePart B.empty (rangeFirst r) (rangeLength r)] B.empty (closeFile file)
      Ranges parts end ->
        FileBody file [FilePart (partPreamble p) (rangeFirst (partRange p)) (rangeLength (partRange p)) | p <- parts] end (closeFile file)
    omit = \case
      content@FileBody {} -> Omitted (bodyLength content)
      content -> content

-- | The files beside a file that are the same in other codings, in the order of
-- preference: regular ones that are not older than the original.
siblingsOf :: Static -> ByteString -> FileStatus -> Thread [Sibling]
siblingsOf static path status
  | null codings || any ((`B.isSuffixOf` path) . codingSuffix) codings = pure []
  | otherwise = catMaybes <$> forM codings sibling
  where
    codings = filter (/= Identity) (staticPrecompressed (openSettings static))
    sibling coding = do
      let beside = path <> codingSuffix coding
      try (pathStatusAt (At (openRoot static)) beside) >>= \case
        Left (_ :: IOException) -> pure Nothing
        Right other
          | statusKind other == RegularFile, statusModified other >= statusModified status -> pure (Just (Sibling coding beside other))
          | otherwise -> pure Nothing

-- | What else a cached file may be sent as.
othersOf :: Static -> ByteString -> ByteString -> FileStatus -> [Sibling] -> IO Others
othersOf static asked path status siblings
  | not (varies settings path siblings) = pure Alone
  | otherwise = do
      beside <- forM siblings (\s -> variant (siblingCoding s) (FromFile s))
      made <- if worthwhile then (: []) <$> variant Gzip Made else pure []
      Negotiated (beside <> made) <$> newIORef (Choice B.empty Nothing)
  where
    settings = openSettings static
    worthwhile =
      compressible settings path && Gzip `notElem` map siblingCoding siblings && maybe False within (staticCompress settings)
    within how = statusSize status >= fromIntegral (compressLeast how) && statusSize status <= fromIntegral (compressMost how)
    variant coding source = Variant coding (B.concat [asked, "\NUL", codingName coding]) source <$> newPrimVar 0

-- | Open a file in another coding, if it still is what it was.
openSibling :: Static -> Sibling -> Thread (Maybe File)
openSibling static sibling =
  try (openBeneathRoot static (siblingPath sibling)) >>= \case
    Left (_ :: IOException) -> pure Nothing
    Right file -> flip onException (closeFile file) $ do
      status <- fileStatus file
      if status == siblingStatus sibling then pure (Just file) else Nothing <$ closeFile file

-- | The form of a cached file that a client prefers, if it is in memory.
ready :: Static -> [Variant] -> IORef Choice -> Request -> Cached -> IO (Maybe Held)
ready static variants choice request cached =
  preferred variants choice request >>= \case
    Nothing -> pure (Just (cachedHeld cached))
    Just variant -> inCache static cached variant

-- | The form that a client prefers; 'Nothing' is the file as it is.
preferred :: [Variant] -> IORef Choice -> Request -> IO (Maybe Variant)
preferred variants choice request = case acceptEncoding request of
  [] -> pure Nothing
  [value] ->
    readIORef choice >>= \case
      Choice known chosen | known == value -> pure chosen
      _ -> do
        -- The value is a slice of a buffer that is used again. Of two who write at a
        -- time either may win.
        let !chosen = among [value]
            !new = Choice (B.copy value) chosen
        chosen <$ writeIORef choice new
  values -> pure (among values)
  where
    among values = let coding = chooseCoding values (map variantCoding variants) in find ((== coding) . variantCoding) variants

inCache :: Static -> Cached -> Variant -> IO (Maybe Held)
inCache static cached variant =
  lookupCache (openCache static) (variantKey variant) >>= \case
    Just other | cachedStatus other == sourceStatus cached variant -> pure (Just (cachedHeld other))
    _ -> pure Nothing

-- | The file whose bytes another coding is made from.
sourceStatus :: Cached -> Variant -> FileStatus
sourceStatus cached variant = case variantSource variant of
  FromFile sibling -> siblingStatus sibling
  Made -> cachedStatus cached

-- | Answer with a cached file, in the form that the client prefers.
represent :: Static -> Tick -> Request -> ByteString -> Cached -> Thread Response
represent static tick request asked cached = case cachedOthers cached of
  Alone -> asItIs
  Negotiated variants choice ->
    liftIO (preferred variants choice request) >>= \case
      Nothing -> asItIs
      Just variant ->
        liftIO (inCache static cached variant) >>= \case
          Just held -> fromMemory static tick request held
          Nothing -> case variantSource variant of
            FromFile sibling -> beside variant sibling
            Made -> made variant
  where
    settings = openSettings static
    path = cachedPath cached
    asItIs = fromMemory static tick request (cachedHeld cached)
    keep variant meta bytes = liftIO (cachedHeld <$> remember static tick (variantKey variant) path (sourceStatus cached variant) meta Alone bytes)
    beside variant sibling =
      openSibling static sibling >>= \case
        -- It has changed; the next one to ask finds out how.
        Nothing -> liftIO (deleteCache (openCache static) asked) >> asItIs
        Just file -> flip onException (closeFile file) $ do
          let status = siblingStatus sibling
              meta = metaOf settings path True (siblingCoding sibling) (codingName (siblingCoding sibling)) status
          content <- if caches static status then readWith file status else pure Nothing
          case content of
            Just bytes -> closeFile file >> keep variant meta bytes >>= fromMemory static tick request
            Nothing -> fromFile tick request meta file
    -- Whoever comes first makes it; nobody waits.
    made variant = do
      mine <- liftIO ((== 0) <$> casInt (variantBusy variant) 0 1)
      if not mine
        then asItIs
        else flip onException (liftIO (writePrimVar (variantBusy variant) 0)) $ do
          let original = heldBytes (cachedHeld cached)
              level = maybe 6 compressLevel (staticCompress settings)
              mark = codingName (variantCoding variant) <> C.pack (show level)
          bytes <- gzipThread level original
          if B.length bytes >= B.length original
            then liftIO (writePrimVar (variantBusy variant) 2) >> asItIs
            else do
              let meta = (metaOf settings path True (variantCoding variant) mark (cachedStatus cached)) {metaSize = fromIntegral (B.length bytes)}
              held <- keep variant meta bytes
              liftIO (writePrimVar (variantBusy variant) 0)
              fromMemory static tick request held

-- | Is what is cached still what the file is, and are the same files beside it? Asked
-- of the file system once a second; those who come while one asks are served what was
-- right a second ago.
stillFresh :: Static -> Tick -> Cached -> Thread Bool
stillFresh static tick cached = do
  checked <- liftIO (readPrimVar (cachedChecked cached))
  if checked == second
    then pure True
    else do
      mine <- liftIO ((== checked) <$> casInt (cachedChecked cached) checked second)
      if not mine
        then pure True
        else
          try (pathStatusAt (At (openRoot static)) (cachedPath cached)) >>= \case
            Right status
              | status == cachedStatus cached -> (== map known beside) . map known <$> siblingsOf static (cachedPath cached) status
              | otherwise -> pure False
            Left (_ :: IOException) -> pure False
  where
    second = fromIntegral (tickSecond tick)
    known sibling = (siblingCoding sibling, siblingStatus sibling)
    beside = case cachedOthers cached of
      Alone -> []
      Negotiated variants _ -> [sibling | Variant {variantSource = FromFile sibling} <- variants]

-- | A page of the directory that is sent in place of something else, from the cache or
-- the file system. 'Nothing' where it cannot be read, or is larger than what is cached.
pageAt :: Static -> Tick -> ByteString -> Thread (Maybe Held)
pageAt static tick path =
  liftIO (lookupCache (openCache static) key) >>= \case
    Nothing -> load
    Just cached ->
      stillFresh static tick cached >>= \case
        True -> pure (Just (cachedHeld cached))
        False -> load
  where
    settings = openSettings static
    key = "\NUL" <> path
    load =
      try (bracket (openBeneathRoot static path) closeFile content) >>= \case
        Left (_ :: IOException) -> pure Nothing
        Right found -> pure found
    content file = do
      status <- fileStatus file
      bytes <-
        if statusKind status == RegularFile && statusSize status <= fromIntegral (staticLargestCached settings)
          then readWith file status
          else pure Nothing
      -- It is compared with itself alone, without what may lie beside it.
      liftIO (traverse (fmap cachedHeld . remember static tick key path status (metaOf settings path False Identity "" status) Alone) bytes)
