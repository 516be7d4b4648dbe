-- |
-- Module      : Weft.Bench.Warp
-- Description : warp, answering files from memory
--
-- The peer that a Haskell programmer would use otherwise. It reads the
-- files of a directory once and answers from memory, which is warp at its
-- best: no file is opened, no metadata looked up.
module Weft.Bench.Warp
  ( serveWithWarp,
    fromMemory,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as Bytes
import Data.ByteString.Builder (byteString)
import Data.ByteString.Char8 qualified as Char8
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Text qualified as Text
import Network.HTTP.Types (hContentLength, hContentType, methodGet, methodHead, status200, status404, status405)
import Network.Mime (defaultMimeLookup)
import Network.Wai (Application, Response, rawPathInfo, requestMethod, responseBuilder)
import Network.Wai.Handler.Warp qualified as Warp
import System.Directory (doesFileExist, listDirectory)
import System.FilePath ((</>))

-- | Serve the files that are directly in a directory, on 127.0.0.1, until killed.
-- Idle connections are kept for an hour, as the other servers here are told to.
serveWithWarp :: Int -> FilePath -> IO ()
serveWithWarp port root = do
  names <- listDirectory root
  files <- Map.fromList . concat <$> traverse load names
  Warp.runSettings settings (fromMemory files)
  where
    settings = Warp.setHost "127.0.0.1" (Warp.setPort port (Warp.setTimeout 3600 Warp.defaultSettings))
    load name = do
      isFile <- doesFileExist (root </> name)
      if isFile
        then do
          contents <- Bytes.readFile (root </> name)
          pure [(Char8.pack ('/' : name), found (defaultMimeLookup (Text.pack name)) contents)]
        else pure []

-- Built once for each file.
found :: ByteString -> ByteString -> Response
found mime contents =
  responseBuilder
    status200
    [(hContentType, mime), (hContentLength, Char8.pack (show (Bytes.length contents)))]
    (byteString contents)

-- | The application: a response for each path.
fromMemory :: Map ByteString Response -> Application
fromMemory files request respond
  | requestMethod request `notElem` [methodGet, methodHead] = respond (plain status405)
  | otherwise = respond (Map.findWithDefault (plain status404) (rawPathInfo request) files)
  where
    plain status = responseBuilder status [(hContentLength, "0")] mempty
