-- | Complete HTML documents that load nothing, with all bytes of requests and file names escaped.
module Weft.Http.Page
  ( -- * Directory listings
    listingPage,
    ListingEntry (..),
    EntryKind (..),
    humanSize,

    -- ** Order
    Order (..),
    Column (..),
    defaultOrder,
    orderFromQuery,

    -- * Error pages
    errorPage,

    -- * Fields
    pageType,
    pagePolicy,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString.Builder (Builder)
import Data.ByteString.Builder qualified as Builder
import Data.ByteString.Char8 qualified as C
import Data.ByteString.Lazy qualified as L
import Data.Int (Int64)
import Data.List (sortBy)
import Data.Ord (comparing)
import Data.Text qualified as T
import Data.Text.Encoding qualified as T
import Data.Text.Encoding.Error qualified as T
import Weft.Http.Date
import Weft.Http.Path (encodeComponent)
import Weft.Http.Status

-- | An entry of a directory.
data ListingEntry = ListingEntry
  { -- | The raw bytes of the name.
    entryName :: !ByteString,
    entryKind :: !EntryKind,
    -- | In octets; not shown for directories.
    entrySize :: !Int64,
    entryModified :: !HttpTime
  }
  deriving stock (Eq, Show)

-- | Directories are listed first.
data EntryKind
  = Directory
  | File
  deriving stock (Eq, Ord, Show)

-- | The @Content-Type@ of the pages.
pageType :: ByteString
pageType = "text/html; charset=utf-8"

-- | A @Content-Security-Policy@ that allows what the pages do and nothing else.
pagePolicy :: ByteString
pagePolicy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

-- | The column and direction that a listing is sorted by.
data Order = Order
  { orderColumn :: !Column,
    orderDescending :: !Bool
  }
  deriving stock (Eq, Show)

-- | The columns of a listing.
data Column
  = ByName
  | BySize
  | ByDate
  deriving stock (Eq, Show, Enum, Bounded)

-- | By name, from A to Z.
defaultOrder :: Order
defaultOrder = Order ByName False

-- | The order in a query, as a listing's links set it; 'defaultOrder' for what is missing or invalid.
--
-- >>> orderFromQuery "?sort=size&order=desc"
-- Order {orderColumn = BySize, orderDescending = True}
orderFromQuery :: ByteString -> Order
orderFromQuery query =
  Order
    { orderColumn = case lookup "sort=" parameters of
        Just "size" -> BySize
        Just "date" -> ByDate
        _ -> ByName,
      orderDescending = lookup "order=" parameters == Just "desc"
    }
  where
    parameters = map (C.breakEnd (== '=')) (C.split '&' (C.drop 1 query))

-- | The listing of a directory, whose decoded path has a slash at either end; the links are relative.
listingPage :: Order -> ByteString -> [ListingEntry] -> ByteString
listingPage order path entries =
  page ("Index of " <> escapeText path) $
    "<h1>Index of "
      <> escapeText path
      <> "</h1>\n<table>\n<thead><tr>"
      <> foldMap heading [(ByName, "name", "Name"), (BySize, "size", "Size"), (ByDate, "date", "Modified (UTC)")]
      <> "</tr></thead>\n<tbody>\n"
      <> (if path == "/" then mempty else "<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n")
      <> foldMap row (sortBy ordered entries)
      <> "</tbody>\n</table>\n"
  where
    -- Ties are broken by name, which is unique.
    ordered a b = comparing entryKind a b <> directed (column a b) <> comparing entryName a b
    directed = if orderDescending order then compare EQ else id
    column a b = case orderColumn order of
      ByName -> comparing entryName a b
      -- The size of a directory is meaningless and not shown.
      BySize -> if entryKind a == Directory then EQ else comparing entrySize a b
      ByDate -> comparing entryModified a b
    -- A second click reverses the order.
    heading :: (Column, Builder, Builder) -> Builder
    heading (c, parameter, label)
      | c /= orderColumn order = headed "none" mempty
      | orderDescending order = headed "descending" mempty
      | otherwise = headed "ascending" "&amp;order=desc"
      where
        headed sorted next = "<th aria-sort=\"" <> sorted <> "\"><a href=\"?sort=" <> parameter <> next <> "\">" <> label <> "</a></th>"
    row entry =
      "<tr><td><a href=\""
        <> Builder.byteString (encodeComponent (entryName entry))
        <> slash entry
        <> "\">"
        <> escapeText (entryName entry)
        <> slash entry
        <> "</a></td>"
        <> size entry
        <> "<td>"
        <> Builder.byteString (formatMinute (entryModified entry))
        <> "</td></tr>\n"
    slash entry = if entryKind entry == Directory then "/" else mempty
    size entry
      | entryKind entry == Directory = "<td></td>"
      | otherwise =
          "<td title=\""
            <> Builder.int64Dec (entrySize entry)
            <> " bytes\">"
            <> Builder.byteString (humanSize (entrySize entry))
            <> "</td>"

-- | A size in binary units, with one decimal below ten.
--
-- >>> map humanSize [305, 1536, 104857600]
-- ["305 B","1.5 KiB","100 MiB"]
humanSize :: Int64 -> ByteString
humanSize = L.toStrict . Builder.toLazyByteString . go ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] 0
  where
    -- The second number is the rest, in 1024ths of the unit.
    go :: [Builder] -> Int64 -> Int64 -> Builder
    go (unit : larger) part n
      | n >= 1024, _ : _ <- larger = go larger (n `rem` 1024) (n `quot` 1024)
      | n < 10, part > 0 = Builder.int64Dec n <> "." <> Builder.int64Dec (part * 10 `quot` 1024) <> " " <> unit
      | otherwise = Builder.int64Dec n <> " " <> unit
    go [] _ n = Builder.int64Dec n

-- | An error page. The sentence is escaped.
errorPage :: Status -> ByteString -> ByteString
errorPage status sentence =
  page title ("<h1>" <> title <> "</h1>\n<p>" <> escapeText sentence <> "</p>\n")
  where
    title = Builder.intDec (statusCode status) <> " " <> escapeText (statusReason status)

page :: Builder -> Builder -> ByteString
page title body =
  L.toStrict . Builder.toLazyByteString $
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
    \<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
    \<meta name=\"color-scheme\" content=\"light dark\">\n<title>"
      <> title
      <> "</title>\n<style>\n"
      <> style
      <> "</style>\n</head>\n<body>\n<main>\n"
      <> body
      <> "</main>\n</body>\n</html>\n"

style :: Builder
style =
  ":root { color-scheme: light dark; --line: #8883; --link: #06c }\n\
  \@media (prefers-color-scheme: dark) { :root { --link: #6bf } }\n\
  \body { font: 1rem/1.5 system-ui, sans-serif; margin: 0 }\n\
  \main { max-width: 54rem; margin: 2rem auto; padding: 0 1rem }\n\
  \h1 { font-size: 1.4rem; font-weight: 600; overflow-wrap: anywhere }\n\
  \table { border-collapse: collapse; width: 100% }\n\
  \th, td { text-align: left; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--line) }\n\
  \td:first-child { overflow-wrap: anywhere }\n\
  \th:not(:first-child), td:not(:first-child) { text-align: right; white-space: nowrap;\n\
  \  font-variant-numeric: tabular-nums }\n\
  \a { color: var(--link); text-decoration: none }\n\
  \a:hover { text-decoration: underline }\n"

-- | Bytes as UTF-8 text. Invalid UTF-8 and control characters become U+FFFD.
escapeText :: ByteString -> Builder
escapeText = T.foldr (\c rest -> escaped c <> rest) mempty . T.decodeUtf8With T.lenientDecode
  where
    escaped = \case
      '&' -> "&amp;"
      '<' -> "&lt;"
      '>' -> "&gt;"
      '"' -> "&quot;"
      '\'' -> "&#39;"
      c
        | c < ' ' || (c >= '\x7f' && c < '\xa0') || isOverride c -> Builder.charUtf8 '\xfffd'
        | otherwise -> Builder.charUtf8 c
    -- Characters that override the text direction can disguise a file name.
    isOverride c = (c >= '\x202a' && c <= '\x202e') || (c >= '\x2066' && c <= '\x2069')
