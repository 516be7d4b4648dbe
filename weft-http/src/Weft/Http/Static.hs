{-# OPTIONS_GHC -fno-full-laziness #-}
{-# LANGUAGE OverloadedStrings #-}

-- |
-- A handler that serves the files of a directory.
--
-- Small files are kept in memory, whole responses rendered; large ones are sent by
-- the system from the page cache. A file that changed is noticed within a second.
-- Nothing outside the directory is ever served: paths are taken apart and put
-- together again ("Weft.Http.Path"), and the operating system is told to resolve
-- them beneath the directory, symbolic links included (@RESOLVE_BENEATH@). Hidden
-- files (a name that begins with a dot, but for @.well-known@) are not served.
module Weft.Http.Static
  ( StaticSettings (..),
    defaultStaticSettings,
    Static,
    openStatic,
    closeStatic,
    staticHandler,
  )
where

import Control.Monad (forM)
import Control.Monad.Primitive (RealWorld)
import Data.Bits (shiftL, (.|.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.IORef
import Data.Int (Int64)
import Data.Maybe (catMaybes, fromMaybe)
import Data.Primitive.PrimVar
import Data.Word (Word64)
import Foreign.C.Error
import Foreign.C.Types (CInt)
import GHC.IO.Exception (IOException (ioe_errno))
import Weft
import Weft.File hiding (OpenMode (Directory))
import Weft.File qualified as File
import Weft.Http.Conditional
import Weft.Http.Date
import Weft.Http.ETag
import Weft.Http.Mime
import Weft.Http.Multipart
import Weft.Http.Page hiding (Entry (..), EntryKind (..))
import Weft.Http.Page qualified as Page
import Weft.Http.Path
import Weft.Http.Range
import Weft.Http.Request
import Weft.Http.Server.Render
import Weft.Http.Server.Types
import Weft.Http.Static.Cache
import Weft.Http.Status

-- | What is served and how.
data StaticSettings = StaticSettings
  { -- | The directory.
    staticRoot :: !ByteString,
    -- | Memory for small files; default 100,000,000 bytes. 0 turns the cache off.
    staticCacheBytes :: !Int,
    -- | Files up to this size go into the cache; default 1 MiB. Larger ones are sent
    -- with @sendfile@.
    staticLargestCached :: !Int,
    -- | Whether a directory without an index file is listed; default 'False' (404).
    staticListings :: !Bool,
    -- | Names that are tried in this order for a directory; default @index.html@.
    staticIndex :: [ByteString],
    -- | The @Server@ field, as in the server's settings.
    staticServerName :: !ByteString
  }

-- | The defaults for a directory.
defaultStaticSettings :: ByteString -> StaticSettings
defaultStaticSettings root =
  StaticSettings
    { staticRoot = root,
      staticCacheBytes = 100_000_000,
      staticLargestCached = 1024 * 1024,
      staticListings = False,
      staticIndex = ["index.html"],
      staticServerName = "weft"
    }

-- | An open directory and what is cached of it.
data Static = Static
  { openSettings :: !StaticSettings,
    openRoot :: !File,
    openCache :: !(Cache Cached)
  }

-- | A small file in memory.
data Cached = Cached
  { cachedBytes :: !ByteString,
    cachedMeta :: !Meta,
    -- | Where it was found, beneath the root.
    cachedPath :: !ByteString,
    -- | The second in which it was last compared with the file.
    cachedChecked :: {-# UNPACK #-} !(PrimVar RealWorld Int),
    -- | The response to a plain GET, rendered for one second.
    cachedRendered :: !(IORef Rendered)
  }

data Rendered = Rendered !Int64 !Response

-- | What the head of a response says of a file.
data Meta = Meta
  { metaStatus :: !FileStatus,
    metaType :: !ByteString,
    metaTag :: !ETag,
    metaModified :: !HttpTime,
    -- | Of a response with status 200, 206 or 304.
    metaFields :: [Field]
  }

-- | Open a directory. Fails with an 'IOError' if it cannot be.
openStatic :: StaticSettings -> Thread Static
openStatic settings =
  Static settings
    <$> openFileAt CurrentDirectory (staticRoot settings) File.Directory defaultOpenFlags
    <*> liftIO (newCache (staticCacheBytes settings))

-- | Close the directory.
closeStatic :: Static -> Thread ()
closeStatic = closeFile . openRoot

-- | Answer GET and HEAD with files.
staticHandler :: Static -> Clock -> Handler
staticHandler static clock request = case requestMethod request of
  Get -> found
  Head -> withoutContent <$> found
  Options -> pure (plain noContent204 [allow] "")
  _ -> pure (withFields [allow] (errorResponse methodNotAllowed405 "Only GET and HEAD are answered here."))
  where
    allow = Field "Allow" "GET, HEAD, OPTIONS"
    found =
      liftIO (atHand static clock request) >>= \case
        Whole' response -> pure response
        Missing -> fromDisk static clock request
        Kept cached -> do
          tick <- liftIO (readClock clock)
          fresh <- stillFresh static tick cached
          if fresh
            then fromMemory static tick request cached
            else do
              liftIO (deleteCache (openCache static) (requestPath request))
              fromDisk static clock request

-- | What the cache has for a request.
data AtHand
  = Missing
  | -- | The response itself.
    Whole' !Response
  | -- | A file, to be compared with the disk, or not to be sent whole.
    Kept !Cached

-- | One look into the cache, in one effect: nearly all requests end here.
atHand :: Static -> Clock -> Request -> IO AtHand
atHand static clock request =
  lookupCache (openCache static) (requestPath request) >>= \case
    Nothing -> pure Missing
    Just cached
      | Get <- requestMethod request,
        isUnconditional (requestConditions request) -> do
          tick <- readClock clock
          Rendered second response <- readIORef (cachedRendered cached)
          checked <- readPrimVar (cachedChecked cached)
          pure $
            if second == tickSecond tick && checked == fromIntegral second
              then Whole' response
              else Kept cached
      | otherwise -> pure (Kept cached)

-- | The same head, and no content.
withoutContent :: Response -> Response
withoutContent response =
  response {responseBody = Omitted (bodyLength (responseBody response)), responseRendered = Nothing}

withFields :: [Field] -> Response -> Response
withFields fields response = response {responseFields = fields <> responseFields response}

-- | Is what is cached still what the file is? Asked of the file once a second; those
-- who come while one asks are served what was right a second ago.
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
            Right status -> pure (status == metaStatus (cachedMeta cached))
            Left (_ :: IOException) -> pure False
  where
    second = fromIntegral (tickSecond tick)

-- | Answer from the cache.
fromMemory :: Static -> Tick -> Request -> Cached -> Thread Response
fromMemory static tick request cached
  | isUnconditional (requestConditions request) && requestMethod request == Get = liftIO $ do
      Rendered second response <- readIORef (cachedRendered cached)
      if second == tickSecond tick
        then pure response
        else do
          let whole = wholeOf cached
              rendered = whole {responseRendered = renderWhole (staticServerName (openSettings static)) (tickDate tick) whole}
          rendered <$ writeIORef (cachedRendered cached) (Rendered (tickSecond tick) rendered)
  | otherwise = conditional tick request (cachedMeta cached) (wholeOf cached) $ \ranges ->
      let slice r = B.take (fromIntegral (rangeLength r)) (B.drop (fromIntegral (rangeFirst r)) (cachedBytes cached))
       in case ranges of
            OneRange r -> Bytes [slice r]
            Ranges parts end -> Bytes (concat [[partPreamble p, slice (partRange p)] | p <- parts] <> [end])

wholeOf :: Cached -> Response
wholeOf cached = Response ok200 (metaFields (cachedMeta cached)) (Bytes [cachedBytes cached]) Nothing

-- | The parts of a file that a response contains.
data Parts = OneRange !ByteRange | Ranges [Part] !ByteString

-- | Apply preconditions and ranges: the response for the whole file, and how to make
-- the body of a part.
conditional :: Tick -> Request -> Meta -> Response -> (Parts -> Body) -> Thread Response
conditional tick request meta whole partial =
  case evaluatePreconditions (requestMethod request) (requestConditions request) validators of
    PreconditionFailed -> pure (errorResponse preconditionFailed412 "")
    NotModified -> pure (Response notModified304 (filter keptIn304 (metaFields meta)) NoContent Nothing)
    PerformWhole -> pure whole
    Perform
      | Just range <- conditionRange (requestConditions request),
        requestMethod request == Get ->
          case resolveRange defaultRangeLimits size range of
            Whole -> pure whole
            Unsatisfiable ->
              pure (withFields [Field "Content-Range" (unsatisfiedRange size)] (errorResponse rangeNotSatisfiable416 ""))
            Single r ->
              pure (Response partialContent206 (Field "Content-Range" (contentRange size r) : metaFields meta) (partial (OneRange r)) Nothing)
            Several rs -> do
              random <- randomBytes 16
              let framed = multipart (boundary (word (B.take 8 random)) (word (B.drop 8 random))) (metaType meta) size rs
                  fields = Field "Content-Type" (multipartType framed) : filter ((/= "Content-Type") . fieldName) (metaFields meta)
              pure (Response partialContent206 fields (partial (Ranges (multipartParts framed) (multipartEnd framed))) Nothing)
      | otherwise -> pure whole
  where
    size = statusSize (metaStatus meta)
    validators = Validators (Just (metaTag meta)) (Just (metaModified meta)) (HttpTime (tickSecond tick))
    keptIn304 field = fieldName field `elem` ["ETag", "Last-Modified", "Vary", "Cache-Control", "Expires"]
    word = B.foldl' (\acc byte -> acc `shiftL` 8 .|. fromIntegral byte) (0 :: Word64)

-- | Answer from the file system.
fromDisk :: Static -> Clock -> Request -> Thread Response
fromDisk static clock request = case safePath (requestPath request) of
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
              | not (pathIsDirectory path) -> answerFile static clock request relative file status
              | otherwise -> notFound <$ closeFile file
            DirectoryFile
              | pathIsDirectory path -> closeFile file >> directory relative
              | otherwise -> closeFile file >> pure (redirect (requestPath request <> "/" <> requestQuery request))
            _ -> notFound <$ closeFile file
  where
    settings = openSettings static
    open relative = openFileAt (At (openRoot static)) relative ReadOnly defaultOpenFlags {openBeneath = StayBeneath}
    hidden path = hasHiddenComponent path && take 1 (pathComponents path) /= [".well-known"]
    redirect target =
      withFields [Field "Location" (oneSlash target)] (errorResponse movedPermanently301 "")
    -- Two slashes at the front would name another host.
    oneSlash target = "/" <> B.dropWhile (== 0x2f) target
    directory relative = tryNames (staticIndex settings)
      where
        inside name = if B.null relative then name else B.dropWhileEnd (== 0x2f) relative <> "/" <> name
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
                  then answerFile static clock request (inside name) file status
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
answerFile :: Static -> Clock -> Request -> ByteString -> File -> FileStatus -> Thread Response
answerFile static clock request path file status
  | size <= fromIntegral (staticLargestCached settings) && staticCacheBytes settings > 0 = do
      bytes <- readAt file 0 (fromIntegral size + 1)
      after' <- fileStatus file
      if fromIntegral (B.length bytes) == size && after' == status
        then do
          closeFile file
          tick <- liftIO (readClock clock)
          cached <- liftIO $ do
            cached <- Cached bytes meta path <$> newPrimVar (fromIntegral (tickSecond tick)) <*> newIORef (Rendered (-1) (wholeOf' bytes))
            cached <$ insertCache (openCache static) (requestPath request) (2 * B.length bytes + 512) cached
          fromMemory static tick request cached
        else large
  | otherwise = large
  where
    settings = openSettings static
    size = statusSize status
    meta = metaOf path status
    wholeOf' bytes = Response ok200 (metaFields meta) (Bytes [bytes]) Nothing
    large = do
      tick <- liftIO (readClock clock)
      let body = \case
            OneRange r -> FileBody file [FilePart B.empty (rangeFirst r) (rangeLength r)] B.empty (closeFile file)
            Ranges parts end ->
              FileBody file [FilePart (partPreamble p) (rangeFirst (partRange p)) (rangeLength (partRange p)) | p <- parts] end (closeFile file)
          whole = Response ok200 (metaFields meta) (FileBody file [FilePart B.empty 0 size] B.empty (closeFile file)) Nothing
      response <- conditional tick request meta whole body
      case responseBody response of
        FileBody {} | requestMethod request == Get -> pure response
        -- HEAD, or a response that does not contain the file.
        _ -> response {responseBody = omit (responseBody response)} <$ closeFile file
    omit = \case
      body@FileBody {} -> Omitted (bodyLength body)
      body -> body

metaOf :: ByteString -> FileStatus -> Meta
metaOf path status =
  Meta
    { metaStatus = status,
      metaType = mime,
      metaTag = tag,
      metaModified = modified,
      metaFields =
        [ Field "Content-Type" mime,
          Field "ETag" (renderETag tag),
          Field "Last-Modified" (formatDate modified),
          Field "Accept-Ranges" "bytes",
          Field "X-Content-Type-Options" "nosniff"
        ]
    }
  where
    mime = contentTypeFor (B.takeWhileEnd (/= 0x2f) path)
    tag = fileETag (FileIdentity (Just (statusInode status)) (statusSize status) (statusModified status))
    modified = HttpTime (statusModified status `div` 1_000_000_000)

-- | The names in a directory, as a page. Hidden names, names of what is neither a
-- file nor a directory, and of what could not be opened (a symbolic link that leads
-- out) are left out.
listing :: Static -> Request -> ByteString -> Thread Response
listing static request relative = do
  names <- bracket (openFileAt (At (openRoot static)) place File.Directory defaultOpenFlags {openBeneath = StayBeneath}) closeFile $ \dir -> do
    names <- filter ((/= Just 0x2e) . fmap fst . B.uncons) <$> listDirectory dir
    catMaybes <$> forM (take mostListed names) (entry dir)
  let shown = fromMaybe "/" (percentDecode (requestPath request))
  pure (plain ok200 [Field "Content-Type" pageType, Field "Content-Security-Policy" pagePolicy, Field "Cache-Control" "no-cache"] (listingPage shown names))
  where
    place = if B.null relative then "." else relative
    mostListed = 10_000
    entry dir name =
      try (pathStatusAt (At dir) name) >>= \case
        Left (_ :: IOException) -> pure Nothing
        Right status -> case statusKind status of
          RegularFile -> served Page.File status
          DirectoryFile -> served Page.Directory status
          _ -> pure Nothing
      where
        -- The status is that of what a link leads to, wherever that is.
        served kind status =
          try (bracket (open (place <> "/" <> name)) closeFile (\_ -> pure ())) >>= \case
            Left (_ :: IOException) -> pure Nothing
            Right () -> pure (Just (of' kind status))
        open path = openFileAt (At (openRoot static)) path ReadOnly defaultOpenFlags {openBeneath = StayBeneath}
        of' kind status = Page.Entry name kind (statusSize status) (HttpTime (statusModified status `div` 1_000_000_000))
