-- | A handler that serves the files of a directory.
--
-- Small files are kept in memory as rendered responses; large ones are kept open and sent from the page
-- cache. A change is noticed within a second, and once a request was answered with it, all later ones
-- are. Replace files by renaming: one written in place while it is sent is sent as it is then. Nothing
-- outside the directory is served: the operating system resolves the checked paths ("Weft.Http.Path"),
-- with their symbolic links, beneath it (@RESOLVE_BENEATH@). Of hidden files only @.well-known@ is.
--
-- A file may be sent in another coding: one that lies beside it ('staticPrecompressed'), or that the
-- server makes once ('staticCompress'). Each has its own length, entity tag and ranges.
module Weft.Http.Static
  ( StaticSettings (..),
    defaultStaticSettings,
    Fallback (..),
    ErrorSelector (..),
    Static,
    openStatic,
    closeStatic,
    staticHandler,
    staticAtHand,
    checkStatic,
  )
where

import Control.Exception (displayException)
import Control.Monad (forM)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Foldable (toList)
import Data.IORef
import Data.Int (Int64)
import Data.Maybe (catMaybes, isJust)
import Data.Primitive.PrimVar
import GHC.IO.Exception (IOException (..))
import Weft
import Weft.File hiding (OpenMode (Directory))
import Weft.File qualified as File
import Weft.Http.Internal.Descriptors
import Weft.Http.Internal.Hash (newSecret)
import Weft.Http.Internal.Types (isOneOf)
import Weft.Http.Negotiation
import Weft.Http.Path
import Weft.Http.Server.Render
import Weft.Http.Server.Types
import Weft.Http.Static.Cache
import Weft.Http.Static.Codings
import Weft.Http.Static.Disk
import Weft.Http.Static.Names
import Weft.Http.Static.Represent
import Weft.Http.Static.Rules
import Weft.Http.Static.Send
import Weft.Http.Static.Types

-- | Open a directory. Throws an 'IOError' if that fails; 'checkStatic' finds other faults.
openStatic :: StaticSettings -> Thread Static
openStatic settings = do
  files <- liftIO (min (staticOpenFiles settings) . (`div` 4) <$> mostDescriptors)
  Static settings {staticOpenFiles = files}
    <$> openFileAt CurrentDirectory (staticRoot settings) File.Directory defaultOpenFlags
    <*> (newSecret >>= \secret -> liftIO (newCache secret (staticCacheBytes settings) files))
    <*> liftIO (newNames (map codingSuffix (staticPrecompressed settings)))

-- | Close the directory, and the files in it that are not being sent.
closeStatic :: Static -> Thread ()
closeStatic static = do
  liftIO (reduceFiles (openCache static) (const 0)) >>= letGo
  closeFile (openRoot static)

-- | Answer GET and HEAD with files.
staticHandler :: Static -> Clock -> Handler
staticHandler static clock
  | embellished (openSettings static) = finished static clock answer
  | otherwise = answer
  where
    answer request = case requestMethod request of
      Get -> found request
      Head -> withoutContent <$> found request
      Options -> pure (plain noContent204 [allow] "")
      _ -> pure (withFields [allow] (errorResponse methodNotAllowed405 "Only GET and HEAD are answered here."))
    allow = Field "Allow" "GET, HEAD, OPTIONS"
    found request =
      liftIO (lookAt static clock request (requestPath request)) >>= \case
        Ready response -> pure response
        there -> do
          response <- elsewhere static clock request (requestPath request) there
          case staticFallback (openSettings static) of
            Just fallback | responseStatus response == notFound404 -> fallen static clock request fallback response
            _ -> pure response

-- | The answer of 'staticHandler' to a GET for what the cache compared with the disk this second.
staticAtHand :: Static -> Clock -> AtHand
staticAtHand static clock
  | embellished (openSettings static) = \_ -> pure Nothing
  | otherwise = \request ->
      findCache (openCache static) (requestPath request) >>= \case
        Just entry | isPlain request -> pure (Just (readyIn static clock request entry))
        _ -> pure Nothing

-- | The response to a plain GET, if this entry is in the cache and was compared with the disk this second.
readyIn :: Static -> Clock -> Request -> CacheEntry Cached -> IO (Maybe Response)
readyIn static clock request entry = current static clock request entry Just Nothing (const Nothing)
{-# OPAQUE readyIn #-}

data Known
  = Missing
  | -- | The response itself.
    Ready !Response
  | -- | A file, to be compared with the disk, or not to be sent whole.
    Kept !Cached

-- | Look a path up in the cache: nearly all requests end here. Inlined: the path is not allocated.
lookAt :: Static -> Clock -> Request -> ByteString -> IO Known
lookAt static clock request asked =
  findCache (openCache static) asked >>= \case
    Nothing -> pure Missing
    Just entry
      | isPlain request -> current static clock request entry Ready Missing Kept
      | otherwise -> (\there -> if there then Kept (keptValue entry) else Missing) <$> spare entry
{-# INLINE lookAt #-}

-- | What to make of a cache entry's response to a plain GET, of its absence, of what is to be compared.
current :: Static -> Clock -> Request -> CacheEntry Cached -> (Response -> a) -> a -> (Cached -> a) -> IO a
current static clock request entry answered gone kept = do
  there <- spare entry
  tick <- readClock clock
  if not there
    then pure gone
    else case cachedOthers cached of
      Alone -> whole tick cached
      Negotiated variants choice -> ready static tick variants choice request cached >>= maybe (pure $! kept cached) (whole tick)
  where
    cached = keptValue entry
    whole tick form = do
      RenderedFor second response <- readIORef (cachedRendered form)
      checked <- readPrimVar (cachedChecked cached)
      if second == tickSecond tick && checked == fromIntegral second
        then case cachedContent form of
          InBytes _ -> pure $! answered response
          OnDisk opened -> holdOpened opened >>= \open -> pure $! if open then answered response else gone
        else pure $! kept cached
{-# INLINE current #-}

elsewhere :: Static -> Clock -> Request -> ByteString -> Known -> Thread Response
elsewhere static clock request asked = \case
  Ready response -> pure response
  Missing -> answerPath static clock request asked
  Kept cached -> do
    tick <- liftIO (readClock clock)
    fresh <- stillFresh static tick (isJust (conditionRange (requestConditions request))) cached
    (if fresh then represent static tick request asked cached else pure Nothing) >>= \case
      Just response -> pure response
      Nothing -> do
        forget static asked
        answerPath static clock request asked

-- | The fallback in place of a 404, for eligible requests; cached under its own path.
fallen :: Static -> Clock -> Request -> Fallback -> Response -> Thread Response
fallen static clock request fallback missing
  | not eligible = pure missing
  | not (acceptsType (lookupFields "accept" (requestFields request)) "text/html") = pure (withFields vary missing)
  | otherwise = do
      there <- liftIO (lookAt static clock request place)
      response <- elsewhere static clock request place there
      pure (if responseStatus response == notFound404 then missing else withFields vary response)
  where
    vary = [Field "Vary" "Accept"]
    place = B.concat (map (("/" <>) . encodeComponent) (C.split '/' (fallbackFile fallback)))
    eligible = case safePath (requestPath request) of
      Left _ -> False
      Right path ->
        not (hasHiddenComponent path)
          && (fallbackExtensions fallback || not (any (C.elem '.') (take 1 (reverse (pathComponents path)))))

-- | Do the settings change responses that are not files?
embellished :: StaticSettings -> Bool
embellished settings = not (null (staticErrorPages settings)) || any ruleAlways (staticHeaders settings)

-- | Replace the server's error pages by the operator's, and add the fields of all responses.
finished :: Static -> Clock -> Handler -> Handler
finished static clock answer request = do
  response <- answer request `catch` broken
  withAlways <$> withPage response
  where
    settings = openSettings static
    -- Otherwise the server reports the exception and answers with its own page.
    broken e = case pageForStatus settings internalServerError500 of
      Nothing -> throwM (e :: IOException)
      Just _ -> do
        liftIO (staticReport settings ("cannot answer " <> show (requestPath request) <> ": " <> displayException e))
        pure (errorResponse internalServerError500 "")
    withPage response
      | isError (responseStatus response),
        Just path <- pageForStatus settings (responseStatus response) = do
          tick <- liftIO (readClock clock)
          maybe response (instead response) <$> pageAt static tick path
      | otherwise = pure response
    instead response page =
      sized
        response
          { responseFields = Field "Content-Type" (metaType (cachedMeta page)) : Field "X-Content-Type-Options" "nosniff" : filter (not . ofPage) (responseFields response),
            responseBody = case cachedContent page of
              InBytes bytes | not (B.null bytes) -> Bytes [bytes]
              _ -> NoContent,
            responseRendered = Nothing
          }
    sized response = case requestMethod request of
      Head -> withoutContent response
      _ -> response
    ofPage = (`isOneOf` ["content-type", "content-security-policy"])
    withAlways response
      | responseStatus response `elem` [ok200, partialContent206, notModified304] || null always = response
      | otherwise =
          response {responseFields = overriding always (responseFields response), responseRendered = Nothing}
    always = case percentDecode (requestPath request) of
      Just path -> fieldsFor (filter ruleAlways (staticHeaders settings)) path
      Nothing -> []

-- | The faults of settings, a line each: a directory, error page or fallback that cannot be used.
checkStatic :: StaticSettings -> Thread [ByteString]
checkStatic settings =
  try (bracket (openFileAt CurrentDirectory root File.Directory defaultOpenFlags) closeFile inside) >>= \case
    Left e -> pure [root <> ": " <> said e]
    Right problems -> pure problems
  where
    root = staticRoot settings
    inside dir = do
      readable <- either (\e -> [root <> ": " <> said e]) (const []) <$> try (listDirectory dir)
      pages <- forM (staticErrorPages settings) $ \(selector, path) ->
        page dir ("the page for " <> selected selector) (fromIntegral (staticLargestCached settings)) path
      fallback <- traverse (page dir "the fallback" maxBound . fallbackFile) (staticFallback settings)
      pure (readable <> catMaybes pages <> catMaybes (toList fallback))

    page :: File -> ByteString -> Int64 -> ByteString -> Thread (Maybe ByteString)
    page dir what most path =
      try (bracket (openFileAt (At dir) path ReadOnly defaultOpenFlags {openBeneath = StayBeneath}) closeFile fileStatus) >>= \case
        Left e -> wrong ("cannot be opened: " <> said e)
        Right status
          | statusKind status /= RegularFile -> wrong "is no regular file"
          | statusSize status > most -> wrong ("is larger than " <> C.pack (show most) <> " bytes")
          | otherwise -> pure Nothing
      where
        wrong problem = pure (Just (C.concat [what, ", ", root, "/", path, ", ", problem]))
    selected = \case
      ErrorStatus code -> "status " <> C.pack (show code)
      ErrorClass digit -> "status " <> C.pack (show digit) <> "xx"

said :: IOException -> ByteString
said = C.pack . ioe_description
