{-# OPTIONS_HADDOCK not-home #-}

-- | From a path to an answer, by way of the file system, where the cache has nothing.
module Weft.Http.Static.Disk (answerPath, pageAt) where

import Control.Monad (forM, join, when, (>=>))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Foldable (find)
import Data.Maybe (catMaybes, fromMaybe)
import Foreign.C.Error
import GHC.IO.Exception (IOException)
import Weft
import Weft.File hiding (OpenMode (Directory))
import Weft.File qualified as File
import Weft.Http.Date
import Weft.Http.ETag
import Weft.Http.Negotiation
import Weft.Http.Page hiding (EntryKind (..), ListingEntry (..))
import Weft.Http.Page qualified as Page
import Weft.Http.Path
import Weft.Http.Server.Render
import Weft.Http.Server.Types
import Weft.Http.Static.Cache
import Weft.Http.Static.Codings
import Weft.Http.Static.Names (attempted)
import Weft.Http.Static.Represent
import Weft.Http.Static.Rules
import Weft.Http.Static.Send
import Weft.Http.Static.Types

-- | Answer with what the file system has at a path, and keep it under that path if it is a file.
answerPath :: Static -> Clock -> Request -> ByteString -> Thread Response
answerPath static clock request asked = case safePath asked of
  Left fault -> pure (errorResponse (pathFaultStatus fault) "")
  Right path
    | hidden path -> pure notFound
    | otherwise -> handle (failed >=> noFile) $ do
        -- It is kept, and a slice would keep all that was received with the request.
        let relative = B.copy (relativePath path)
        file <- open (if B.null relative then "." else relative)
        status <- fileStatus file `onException` closeFile file
        case statusKind status of
          RegularFile
            | not (pathIsDirectory path) -> answerFile static clock request asked relative file status
            | otherwise -> closeFile file >> noFile notFound
          DirectoryFile
            | pathIsDirectory path -> closeFile file >> directory relative
            | otherwise -> closeFile file >> noFile (redirect (asked <> "/" <> requestQuery request))
          _ -> closeFile file >> noFile notFound
  where
    settings = openSettings static
    open = openBeneathRoot static
    hidden path = hasHiddenComponent path && take 1 (pathComponents path) /= [".well-known"]
    redirect target =
      withFields [Field "Location" (oneSlash target)] (errorResponse movedPermanently301 "")
    -- Two slashes at the front would name another host.
    oneSlash target = "/" <> B.dropWhile (== 0x2f) target
    directory relative =
      openIndex static relative >>= \case
        Just (path, file, status) -> answerFile static clock request asked path file status
        Nothing
          | staticListings settings -> listing static request relative >>= noFile
          | otherwise -> noFile notFound
    noFile response = response <$ forget static asked

notFound :: Response
notFound = errorResponse notFound404 "There is nothing here."

failed :: IOException -> Thread Response
failed e
  | hasErrno [eNOENT, eNOTDIR, eNAMETOOLONG, eLOOP, eXDEV, eINVAL, eNXIO] e = pure notFound
  | hasErrno [eACCES, ePERM] e = pure (errorResponse forbidden403 "")
  | hasErrno [eMFILE, eNFILE, eNOMEM] e = pure (errorResponse serviceUnavailable503 "The server is short of resources.")
  | otherwise = throwM e

-- | Answer with an open regular file, which is closed here unless the cache or the response gets it.
answerFile :: Static -> Clock -> Request -> ByteString -> ByteString -> File -> FileStatus -> Thread Response
answerFile static clock request asked path file status = do
  tick <- liftIO (readClock clock)
  siblings <- siblingsOf static tick path status `onException` closeFile file
  let metaWith tag = metaOf settings path (varies settings path siblings) Identity tag status
      about tag content = othersOf static asked path status tag siblings >>= \others -> known tick path status (metaWith tag) others content
      answer cached = represent static tick request asked cached >>= maybe (pure notFound) pure
  throughCache static tick asked (caches static (packs settings path status) status) file status about answer $ \tag ->
    flip onException (closeFile file) $ do
      let chosen = chooseCoding (lookupFields "accept-encoding" (requestFields request)) (map siblingCoding siblings)
      packed <- maybe (pure Nothing) (\s -> fmap (s,) <$> openSibling static s) (find ((== chosen) . siblingCoding) siblings)
      case packed of
        Just (sibling, other) -> flip onException (closeFile other) $ do
          closeFile file
          fromFile tick request (metaOfSibling settings path sibling (sizeAndTime (siblingStatus sibling))) other (closeFile other)
        Nothing -> fromFile tick request (metaWith tag) file (closeFile file)
  where
    settings = openSettings static

-- | A page in place of something else; 'Nothing' if it cannot be read or is larger than what is cached.
pageAt :: Static -> Tick -> ByteString -> Thread (Maybe Cached)
pageAt static tick path =
  liftIO (lookupCache (openCache static) key) >>= \case
    Nothing -> load
    Just cached -> stillFresh static tick False cached >>= \fresh -> if fresh then pure (Just cached) else forget static key >> load
  where
    settings = openSettings static
    key = "\NUL" <> path
    load = join <$> attempted (bracket (openBeneathRoot static path) closeFile content)
    content file = do
      status <- fileStatus file
      bytes <-
        if statusKind status == RegularFile && statusSize status <= fromIntegral (staticLargestCached settings)
          then readWith file status
          else pure Nothing
      -- It is compared with itself alone, without what may lie beside it.
      forM bytes $ \b -> do
        cached <- liftIO (known tick path status (metaOf settings path False Identity (contentETag b) status) Alone (InBytes b))
        cached <$ remember static key cached

-- | The names in a directory, as a page, without what would not be served: hidden names, names that no
-- path may contain, other kinds, and what cannot be opened (a link that leads out).
listing :: Static -> Request -> ByteString -> Thread Response
listing static request relative = do
  names <- bracket (openFileAt (At (openRoot static)) place File.Directory defaultOpenFlags {openBeneath = StayBeneath}) closeFile $ \dir -> do
    names <- filter ((/= Just 0x2e) . fmap fst . B.uncons) <$> listDirectory dir
    catMaybes <$> forM (take mostListed names) (entry dir)
  let shown = fromMaybe "/" (percentDecode (requestPath request))
  pure (plain ok200 (fields shown) (listingPage (orderFromQuery (requestQuery request)) shown names))
  where
    fields shown =
      overriding
        (fieldsFor (staticHeaders (openSettings static)) shown)
        [Field "Content-Type" pageType, Field "Content-Security-Policy" pagePolicy, Field "Cache-Control" "no-cache"]
    place = if B.null relative then "." else relative
    mostListed = 10_000
    entry dir name =
      attempted (pathStatusAt (At dir) name) >>= \case
        Just status
          | statusKind status == RegularFile -> served Page.File status
          | statusKind status == DirectoryFile -> served Page.Directory status
        _ -> pure Nothing
      where
        -- The status is that of what a link leads to, wherever that is.
        served kind status
          | Left _ <- safePath (requestPath request <> encodeComponent name) = pure Nothing
          | otherwise = (of' kind status <$) <$> attempted (opens kind)
        path = if B.null relative then name else relative <> "/" <> name
        opens kind = do
          bracket (openBeneathRoot static path) closeFile (\_ -> pure ())
          -- A directory is answered with its index, if there is one, and is not listed then.
          when (kind == Page.Directory) $
            bracket (openIndex static path) (mapM_ (\(_, file, _) -> closeFile file)) (\_ -> pure ())
        of' kind status = Page.ListingEntry name kind (statusSize status) (HttpTime (statusModified status `div` 1_000_000_000))
