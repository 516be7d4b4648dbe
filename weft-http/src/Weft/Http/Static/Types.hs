{-# OPTIONS_HADDOCK not-home #-}

-- | The settings of a served directory, and the types that the modules of "Weft.Http.Static" share.
module Weft.Http.Static.Types
  ( -- * Settings
    StaticSettings (..),
    defaultStaticSettings,
    Fallback (..),
    ErrorSelector (..),
    pageForStatus,

    -- * An open directory
    Static (..),

    -- * What is cached
    Cached (..),
    uncompared,
    Content (..),
    RenderedFor (..),
    Others (..),
    Choice (..),
    Variant (..),
    Source (..),

    -- * What is known of a file
    Meta (..),
    Sibling (..),
  )
where

import Control.Applicative ((<|>))
import Control.Monad.Primitive (RealWorld)
import Data.ByteString (ByteString)
import Data.Foldable (find)
import Data.IORef
import Data.Int (Int64)
import Data.Primitive.PrimVar
import Weft.File (File, FileStatus)
import Weft.Http.Compress
import Weft.Http.Date
import Weft.Http.ETag
import Weft.Http.Negotiation
import Weft.Http.Server.Types
import Weft.Http.Static.Cache
import Weft.Http.Static.Names
import Weft.Http.Static.Rules
import Weft.Internal.Os.Report (reportToStderr)

-- | The directory to serve, and how.
data StaticSettings = StaticSettings
  { -- | The directory.
    staticRoot :: !ByteString,
    -- | Memory for small files; default 100,000,000 bytes. 0: neither cache nor 'staticCompress'.
    staticCacheBytes :: !Int,
    -- | Files up to this size may be kept in memory; default 1 MiB. With 'staticOpenFiles', larger ones
    -- than 'staticLargestCopied' only if 'staticCompress' is for them.
    staticLargestCached :: !Int,
    -- | Files to keep open; default 10,000, and at most a quarter of the process's descriptors. Some
    -- are closed when a file cannot be opened for lack of one. 0: none.
    staticOpenFiles :: !Int,
    -- | Files up to this size are sent from memory although files may be kept open; default 8 KiB.
    staticLargestCopied :: !Int,
    -- | Up to this size an open file is read for a strong tag, to resume downloads; default 16 MiB.
    staticLargestHashed :: !Int,
    -- | Whether a directory without an index file is listed; default 'False' (404).
    staticListings :: !Bool,
    -- | Names that are tried in this order for a directory; default @index.html@.
    staticIndex :: [ByteString],
    -- | Codings of files beside the originals (@page.html.br@) and no older, preferred first; default: none.
    staticPrecompressed :: [Coding],
    -- | Which cached files the server compresses, once each. Default: none.
    staticCompress :: !(Maybe CompressSettings),
    -- | Fields by pattern of the path of the file (@\/index.html@ for @\/@), or of the request for
    -- listings, errors and redirects; later rules win; default: none.
    staticHeaders :: [HeaderRule],
    -- | Error pages, as paths beneath the directory; the first match counts. Default: the server's.
    staticErrorPages :: [(ErrorSelector, ByteString)],
    -- | The response where there is no file; default: 404.
    staticFallback :: !(Maybe Fallback),
    -- | The @Server@ field, as in the server's settings.
    staticServerName :: !ByteString,
    -- | Reports that a file could not be read. Default: standard error. It must not block.
    staticReport :: !(String -> IO ())
  }

-- | One file for all paths without a file, for applications that interpret paths in the browser: for
-- GET and HEAD of clients that accept @text\/html@.
data Fallback = Fallback
  { -- | Beneath the directory, such as @index.html@.
    fallbackFile :: !ByteString,
    -- | Also for paths with an extension (@\/app.js@)? For a missing script a 404 is better.
    fallbackExtensions :: !Bool
  }
  deriving stock (Eq, Show)

-- | The errors that a page is for.
data ErrorSelector
  = -- | This status.
    ErrorStatus !Int
  | -- | 4 or 5: all of these hundred.
    ErrorClass !Int
  deriving stock (Eq, Ord, Show)

-- | The page for a status: one for this very status rather than one for its class.
pageForStatus :: StaticSettings -> Status -> Maybe ByteString
pageForStatus settings status = snd <$> (named (ErrorStatus code) <|> named (ErrorClass (code `div` 100)))
  where
    code = statusCode status
    named selector = find ((== selector) . fst) (staticErrorPages settings)

-- | The defaults for a directory.
defaultStaticSettings :: ByteString -> StaticSettings
defaultStaticSettings root =
  StaticSettings
    { staticRoot = root,
      staticCacheBytes = 100_000_000,
      staticLargestCached = 1024 * 1024,
      staticOpenFiles = 10_000,
      staticLargestCopied = 8192,
      staticLargestHashed = 16 * 1024 * 1024,
      staticListings = False,
      staticIndex = ["index.html"],
      staticPrecompressed = [],
      staticCompress = Nothing,
      staticHeaders = [],
      staticErrorPages = [],
      staticFallback = Nothing,
      staticServerName = "weft",
      staticReport = reportToStderr
    }

-- | An open directory and what is cached of it.
data Static = Static
  { openSettings :: !StaticSettings,
    openRoot :: !File,
    -- | By path. Keys with a NUL, which no request has, are of error pages and other codings.
    openCache :: !(Cache Cached),
    openNames :: !Names
  }

-- | A file that is in memory, or open.
data Cached = Cached
  { cachedContent :: !Content,
    cachedMeta :: !Meta,
    -- | The response to a plain GET, rendered for one second.
    cachedRendered :: {-# UNPACK #-} !(IORef RenderedFor),
    -- | Where it was found, beneath the root.
    cachedPath :: !ByteString,
    -- | The file as it was. For another coding: the file that it was made from.
    cachedStatus :: !FileStatus,
    -- | Whether a change of the file after it was read would show in its status.
    cachedSettled :: !Bool,
    -- | The second in which it was last compared with the file, or 'uncompared'.
    cachedChecked :: {-# UNPACK #-} !(PrimVar RealWorld Int),
    cachedOthers :: !Others
  }

-- | In place of the second: not since it is in the cache.
uncompared :: Int
uncompared = -1

data Content
  = InBytes !ByteString
  | -- | The cache holds it once.
    OnDisk !Opened

data RenderedFor = RenderedFor !Int64 !Response

data Others
  = -- | Nothing, so that no request needs to be asked what it accepts.
    Alone
  | -- | These, preferred first, perhaps none; and the last choice: clients of one kind send the same
    -- field.
    Negotiated [Variant] !(IORef Choice)

-- | The variant chosen for these lines of @Accept-Encoding@, if there was just one.
data Choice = Choice !ByteString !(Maybe Variant)

data Variant = Variant
  { variantCoding :: !Coding,
    -- | Where it is in the cache, once it was asked for.
    variantKey :: !ByteString,
    variantSource :: !Source,
    -- | 1 while a thread makes it (others get the original meanwhile), 2 if it did not pay.
    variantBusy :: {-# UNPACK #-} !(PrimVar RealWorld Int)
  }

data Source
  = -- | A file beside the original.
    FromFile !Sibling
  | -- | The server packs it: the tag of the result, which names the original too.
    Made !ETag

data Sibling = Sibling
  { siblingCoding :: !Coding,
    siblingPath :: !ByteString,
    siblingStatus :: !FileStatus
  }

data Meta = Meta
  { metaSize :: !Int64,
    metaType :: !ByteString,
    metaTag :: !ETag,
    metaModified :: !HttpTime,
    -- | Whether that tells versions and codings apart: see Note [Tags of files].
    metaExact :: !Bool,
    -- | Of a response with status 200 or 206.
    metaFields :: [Field],
    -- | Of a response with status 304.
    metaFields304 :: [Field]
  }
