{-# LANGUAGE MultiWayIf #-}

-- |
-- Description : From the content of files to responses
-- Stability   : not home
--
-- What is small is read and put into the cache, and sent from memory; what is large is
-- sent by the system. Called by the modules that found the file, on the thread of a
-- connection.
module Weft.Http.Static.Send
  ( -- * In memory
    caches,
    readWith,
    remember,
    fromMemory,

    -- * From the disk
    fromFile,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.IORef
import Data.Int (Int64)
import Data.Primitive.PrimVar
import Weft
import Weft.File
import Weft.Http.Multipart
import Weft.Http.Range
import Weft.Http.Server.Render
import Weft.Http.Server.Types
import Weft.Http.Static.Asked
import Weft.Http.Static.Cache
import Weft.Http.Static.Represent
import Weft.Http.Static.Types
import Weft.Http.Status

-- | Whether a file is small enough for the cache.
caches :: Static -> FileStatus -> Bool
caches static status =
  statusSize status <= fromIntegral (staticLargestCached settings) && staticCacheBytes settings > 0
  where
    settings = openSettings static

-- | The content of a file that has this status; 'Nothing' if it has another one by
-- now. That it has not become longer is for its status to say: to read what is behind
-- the end would be a system call more.
readWith :: File -> FileStatus -> Thread (Maybe ByteString)
readWith file status = do
  bytes <- readAt file 0 (fromIntegral (statusSize status))
  after' <- fileStatus file
  pure (if fromIntegral (B.length bytes) == statusSize status && after' == status then Just bytes else Nothing)

-- | Put a file into the cache.
remember :: Static -> Tick -> ByteString -> ByteString -> FileStatus -> Meta -> Others -> ByteString -> IO Cached
remember static tick key path status meta others bytes = do
  checked <- newPrimVar (fromIntegral (tickSecond tick))
  rendered <- newIORef (Rendered unasked (wholeOf meta bytes))
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

-- | In place of the second: not rendered so far, because nobody has had the response, or
-- one client.
unasked, askedOnce :: Int64
unasked = -1
askedOnce = -2

wholeOf :: Meta -> ByteString -> Response
wholeOf meta bytes = Response ok200 (metaFields meta) (Bytes [bytes]) Nothing

-- | Answer from memory.
fromMemory :: Static -> Tick -> Request -> Held -> Thread Response
fromMemory static tick request held
  | isUnconditional (requestConditions request) && requestMethod request == Get = liftIO $ do
      Rendered second response <- readIORef (heldRendered held)
      if
        | second == tickSecond tick -> pure response
        -- Many files are asked for once and thrown out again: for that one answer
        -- the bytes need not be copied behind a head.
        | second == unasked -> whole <$ writeIORef (heldRendered held) (Rendered askedOnce whole)
        | otherwise -> do
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
