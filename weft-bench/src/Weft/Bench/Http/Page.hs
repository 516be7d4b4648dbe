-- |
-- Description : The page and the greeting that are served
--
-- 305 bytes of HTML: small enough that what is measured is the server and not the
-- copying, and the size for which the project's earlier figures were taken. And a
-- greeting of 13 bytes, for servers that answer from a handler.
module Weft.Bench.Http.Page (pageBytes, pageName, pagePath, page, greetingPath, greeting) where

import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as Bytes

-- | The size of the page.
pageBytes :: Int
pageBytes = 305

-- | The file name of the page.
pageName :: FilePath
pageName = "page.html"

-- | The path of the page in a URL.
pagePath :: String
pagePath = '/' : pageName

-- | The contents of the page.
page :: ByteString
page = beginning <> Bytes.replicate (pageBytes - Bytes.length beginning - Bytes.length end) 'w' <> end
  where
    beginning = "<!DOCTYPE html><html><head><title>A page</title></head><body><p>"
    end = "</p></body></html>\n"

-- | The greeting's path in a URL.
greetingPath :: String
greetingPath = "/hello"

-- | The body of every greeting.
greeting :: ByteString
greeting = "Hello, world!"
