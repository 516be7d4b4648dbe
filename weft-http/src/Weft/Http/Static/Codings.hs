{-# OPTIONS_HADDOCK not-home #-}

-- | Finds the codings of a file (files beside it, or gzip by the server, once), and chooses one for a
-- client. The cache keeps each under its own key, as long as the original is unchanged.
module Weft.Http.Static.Codings
  ( siblingsOf,
    packs,
    othersOf,
    openSibling,
    ready,
    represent,
    stillFresh,
  )
where

import Control.Monad (forM, mfilter, void, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Foldable (find)
import Data.IORef
import Data.Maybe (catMaybes, fromMaybe)
import Data.Primitive.PrimVar
import Weft
import Weft.File
import Weft.Http.Compress
import Weft.Http.ETag
import Weft.Http.Negotiation
import Weft.Http.Server.Types
import Weft.Http.Static.Cache
import Weft.Http.Static.Names
import Weft.Http.Static.Represent
import Weft.Http.Static.Send
import Weft.Http.Static.Types

-- | The coded files beside a file, preferred first: regular ones not older than the original.
siblingsOf :: Static -> Tick -> ByteString -> FileStatus -> Thread [Sibling]
siblingsOf static tick path status
  | null codings || any ((`B.isSuffixOf` path) . codingSuffix) codings = pure []
  | otherwise =
      whichMayExist (openNames static) (openRoot static) (tickSecond tick) path codingSuffix codings >>= \case
        [] -> pure []
        some -> catMaybes <$> forM some sibling
  where
    codings = filter (/= Identity) (staticPrecompressed (openSettings static))
    sibling coding = do
      let beside = path <> codingSuffix coding
      attempted (pathStatusAt (At (openRoot static)) beside) >>= \case
        Just other | statusKind other == RegularFile, other `notOlder` status -> pure (Just (Sibling coding beside other))
        _ -> pure Nothing

-- | Not older, in the precision of the first? Tools often round the time that they copy.
notOlder :: FileStatus -> FileStatus -> Bool
notOlder made original = statusModified made >= time - time `mod` unit
  where
    time = statusModified original
    unit = fromMaybe 1 (find ((== 0) . (statusModified made `mod`)) [1_000_000_000, 1_000_000, 1_000])

othersOf :: Static -> ByteString -> ByteString -> FileStatus -> ETag -> [Sibling] -> IO Others
othersOf static asked path status tag siblings
  | not (varies settings path siblings) = pure Alone
  | otherwise = do
      beside <- forM siblings (\s -> variant (siblingCoding s) (FromFile s))
      made <- if worthwhile then (: []) <$> variant Gzip (Made (markETag mark tag)) else pure []
      Negotiated (beside <> made) <$> newIORef (Choice B.empty Nothing)
  where
    settings = openSettings static
    -- Bytes of another level are others.
    mark = codingName Gzip <> C.pack (show (levelOf settings))
    worthwhile = Gzip `notElem` map siblingCoding siblings && packs settings path status
    variant coding source = Variant coding (B.concat [asked, "\NUL", codingName coding]) source <$> newPrimVar 0

-- | Is a file of a type and a size that the server compresses?
packs :: StaticSettings -> ByteString -> FileStatus -> Bool
packs settings path status = maybe False within (staticCompress settings) && compressible settings path
  where
    within how = statusSize status >= fromIntegral (compressLeast how) && statusSize status <= fromIntegral (compressMost how)

-- | Open a file in another coding, if it still is what it was.
openSibling :: Static -> Sibling -> Thread (Maybe File)
openSibling static sibling =
  attempted (openBeneathRoot static (siblingPath sibling)) >>= \case
    Nothing -> pure Nothing
    Just file -> flip onException (closeFile file) $ do
      status <- fileStatus file
      if status == siblingStatus sibling then pure (Just file) else Nothing <$ closeFile file

-- | The form of a cached file that a client prefers, if it is in memory.
ready :: Static -> Tick -> [Variant] -> IORef Choice -> Request -> Cached -> IO (Maybe Cached)
ready static tick variants choice request cached =
  preferred variants choice request >>= maybe (pure (Just cached)) (inCache static tick)

-- | The form that a client prefers; 'Nothing' is the file as it is.
preferred :: [Variant] -> IORef Choice -> Request -> IO (Maybe Variant)
preferred variants choice request = case lookupFields "accept-encoding" (requestFields request) of
  [] -> pure Nothing
  [value] ->
    readIORef choice >>= \case
      Choice before chosen | before == value -> pure chosen
      _ -> do
        -- A slice would keep all that came with the request. Of two that write either may win.
        let !chosen = among [value]
            !new = Choice (B.copy value) chosen
        chosen <$ writeIORef choice new
  values -> pure (among values)
  where
    among values = let coding = chooseCoding values (map variantCoding variants) in find ((== coding) . variantCoding) variants

-- | A variant from the cache, if it is of what there is now: this sibling, or these bytes.
inCache :: Static -> Tick -> Variant -> IO (Maybe Cached)
inCache static tick variant = mfilter fits <$> lookupCache (openCache static) (variantKey variant)
  where
    fits other = case variantSource variant of
      FromFile sibling -> cachedStatus other == siblingStatus sibling && believed tick other
      Made tag -> metaTag (cachedMeta other) == tag

-- | Is the content read that of the status? Not, if a change right after would not have shown.
believed :: Tick -> Cached -> Bool
believed tick cached = cachedSettled cached || not (settledIn (tickSecond tick) (cachedStatus cached))

levelOf :: StaticSettings -> Int
levelOf = maybe 6 compressLevel . staticCompress

-- | Answer with a cached file, in the form that the client prefers. 'Nothing': it was closed.
represent :: Static -> Tick -> Request -> ByteString -> Cached -> Thread (Maybe Response)
represent static tick request asked cached = case cachedOthers cached of
  Alone -> asItIs
  Negotiated variants choice ->
    liftIO (preferred variants choice request) >>= \case
      Nothing -> asItIs
      Just variant ->
        liftIO (inCache static tick variant) >>= \case
          Just other -> fromCached static tick request other
          Nothing -> case variantSource variant of
            FromFile sibling -> beside variant sibling
            Made tag -> made variant tag
  where
    settings = openSettings static
    path = cachedPath cached
    asItIs = fromCached static tick request cached
    beside variant sibling =
      openSibling static sibling >>= \case
        -- It has changed; the next one to ask finds out how.
        Nothing -> asItIs <* forget static asked
        Just file -> do
          let status = siblingStatus sibling
              about tag = known tick path status (metaOfSibling settings path sibling tag) Alone
          throughCache static tick (variantKey variant) (caches static False status) file status about (fromCached static tick request) $ \tag ->
            Just <$> fromFile tick request (metaOfSibling settings path sibling tag) file (closeFile file) `onException` closeFile file
    -- The first request makes it; the others do not wait.
    made variant tag = do
      mine <- liftIO ((== 0) <$> casInt (variantBusy variant) 0 1)
      case cachedContent cached of
        InBytes original | mine -> packed variant tag original
        _ -> asItIs
    packed variant tag original =
      flip onException (liftIO (writePrimVar (variantBusy variant) 0)) $ do
        bytes <- gzipThread (levelOf settings) original
        if B.length bytes >= B.length original
          then liftIO (writePrimVar (variantBusy variant) 2) >> asItIs
          else do
            let meta = (metaOf settings path True (variantCoding variant) tag (cachedStatus cached)) {metaSize = fromIntegral (B.length bytes)}
            other <- liftIO (known tick path (cachedStatus cached) meta Alone (InBytes bytes))
            remember static (variantKey variant) other
            liftIO (writePrimVar (variantBusy variant) 0)
            fromCached static tick request other

-- | Is what is cached still what the file is, with the same files beside it? The file system is asked
-- once a second, by one thread; each time for a part of a file, which the client joins to others; and
-- for a new entry until it has said yes: Note [Answers in order] in "Weft.Http.Static.Cache".
stillFresh :: Static -> Tick -> Bool -> Cached -> Thread Bool
stillFresh static tick forPart cached = do
  before <- liftIO (readPrimVar (cachedChecked cached))
  if
    | before == uncompared -> do
        fresh <- compared
        fresh <$ when fresh (void (liftIO (casInt (cachedChecked cached) uncompared second)))
    | forPart || before /= second -> do
        mine <- liftIO ((== before) <$> casInt (cachedChecked cached) before second)
        if mine || forPart then compared else pure True
    | otherwise -> pure True
  where
    second = fromIntegral (tickSecond tick)
    compared =
      attempted (pathStatusAt (At (openRoot static)) (cachedPath cached)) >>= \case
        Just status
          | status == cachedStatus cached, believed tick cached -> (== map identity beside) . map identity <$> siblingsOf static tick (cachedPath cached) status
        _ -> pure False
    identity sibling = (siblingCoding sibling, siblingStatus sibling)
    beside = case cachedOthers cached of
      Alone -> []
      Negotiated variants _ -> [sibling | Variant {variantSource = FromFile sibling} <- variants]
