{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : What static files are made of
--
-- The settings of a directory that is served, and what is in memory while it is: the
-- vocabulary between the modules under "Weft.Http.Static".
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
    Held (..),
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
import Weft.Http.Response (Field)
import Weft.Http.Server.Types
import Weft.Http.Static.Cache
import Weft.Http.Static.Names
import Weft.Http.Static.Opened
import Weft.Http.Static.Rules
import Weft.Http.Status
import Weft.Internal.Os.Report (reportToStderr)

-- | What is served and how.
data StaticSettings = StaticSettings
  { -- | The directory.
    staticRoot :: !ByteString,
    -- | Memory for small files; default 100,000,000 bytes. 0 turns the cache off, and
    -- with it 'staticCompress'.
    staticCacheBytes :: !Int,
    -- | Files up to this size may be kept in memory; default 1 MiB. Where 'staticOpenFiles' is not
    -- 0, of those larger than 'staticLargestCopied' only the ones that 'staticCompress' is for.
    staticLargestCached :: !Int,
    -- | Files that are kept open, with what is known of them, to be sent by the system;
    -- default 10,000, and at most a quarter of the descriptors that the process may have.
    -- What they take connections do not have; they are given up where a file could not be
    -- opened for want of one. 0: none.
    staticOpenFiles :: !Int,
    -- | Up to this size, in bytes, a file is sent from memory although files may be kept
    -- open; default 8 KiB. To copy more takes longer than to have the system send it.
    staticLargestCopied :: !Int,
    -- | Up to this size, in bytes, a file that is kept open is read once for its entity tag, so
    -- that downloads of it can be resumed; default 16 MiB. Larger ones have a weak tag.
    staticLargestHashed :: !Int,
    -- | Whether a directory without an index file is listed; default 'False' (404).
    staticListings :: !Bool,
    -- | Names that are tried in this order for a directory; default @index.html@.
    staticIndex :: [ByteString],
    -- | Codings in which files may lie beside the originals (@page.html.br@ beside
    -- @page.html@), best first; default: none. A file that is older than its original
    -- does not count.
    staticPrecompressed :: [Coding],
    -- | What is compressed by the server itself, for clients that accept gzip: files
    -- that go into the cache and are within these bounds, once each. Default: nothing.
    staticCompress :: !(Maybe CompressSettings),
    -- | Fields by pattern of the path, later rules win; default: none. The path is
    -- that of the file (@\/index.html@, where @\/@ was asked for); for a listing, and
    -- for errors and redirects, that of the request.
    staticHeaders :: [HeaderRule],
    -- | Pages for errors, as paths beneath the directory; the first that fits counts.
    -- Default: none, which leaves the server's own.
    staticErrorPages :: [(ErrorSelector, ByteString)],
    -- | What is answered where there is no file; default: 404.
    staticFallback :: !(Maybe Fallback),
    -- | The @Server@ field, as in the server's settings.
    staticServerName :: !ByteString,
    -- | Told what an operator should know where the server cannot: that a file could not be read
    -- and an error page was sent. Default: standard error. It must not block.
    staticReport :: !(String -> IO ())
  }

-- | One file for all paths without a file, as an application needs that makes its own sense of
-- paths in the browser. It is the answer to GET and HEAD by clients that accept @text\/html@.
data Fallback = Fallback
  { -- | Beneath the directory, such as @index.html@.
    fallbackFile :: !ByteString,
    -- | Whether also paths with an extension (@\/app.js@) are answered with it. A
    -- script that is missing is better said to be missing.
    fallbackExtensions :: !Bool
  }
  deriving stock (Eq, Show)

-- | Which errors a page is for.
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
    -- | By path of requests. Keys that begin with or contain NUL, which no request has,
    -- are of what is kept beside: error pages and other codings.
    openCache :: !(Cache Cached),
    -- | Names that end as those of files in other codings.
    openNames :: !Names
  }

-- | A file that is in memory, or open.
data Cached = Cached
  { cachedHeld :: {-# UNPACK #-} !Held,
    -- | Where it was found, beneath the root.
    cachedPath :: !ByteString,
    -- | The file as it was. For another coding: the file that it was made from.
    cachedStatus :: !FileStatus,
    -- | Whether a change of the file after it was read would show in its status.
    cachedSettled :: !Bool,
    -- | The second in which it was last compared with the file.
    cachedChecked :: {-# UNPACK #-} !(PrimVar RealWorld Int),
    cachedOthers :: !Others
  }

-- | What is to be sent.
data Held = Held
  { heldContent :: !Content,
    heldMeta :: !Meta,
    -- | The response to a plain GET, rendered for one second.
    heldRendered :: !(IORef RenderedFor)
  }

-- | Where the bytes are.
data Content
  = InBytes !ByteString
  | -- | The cache holds it once.
    OnDisk !Opened

-- | A response, and the second for which it is rendered.
data RenderedFor = RenderedFor !Int64 !Response

-- | What else there is of a file.
data Others
  = -- | Nothing, so that no request needs to be asked what it accepts.
    Alone
  | -- | These, in the order of preference. There may be none, where the answer only says that it
    -- might have been another. And what was chosen last: clients of one kind all say the same.
    Negotiated [Variant] !(IORef Choice)

-- | What was chosen for these lines of @Accept-Encoding@, if there was just one.
data Choice = Choice !ByteString !(Maybe Variant)

-- | A file in another coding.
data Variant = Variant
  { variantCoding :: !Coding,
    -- | Where it is in the cache, once it was asked for.
    variantKey :: !ByteString,
    variantSource :: !Source,
    -- | 1 while somebody makes it: others are sent the file as it is meanwhile. 2 when
    -- it turned out not to be worth it.
    variantBusy :: {-# UNPACK #-} !(PrimVar RealWorld Int)
  }

-- | Where another coding comes from.
data Source
  = -- | A file beside the original.
    FromFile !Sibling
  | -- | The server packs it: the tag of the result, which names the original too.
    Made !ETag

-- | A file beside another one.
data Sibling = Sibling
  { siblingCoding :: !Coding,
    siblingPath :: !ByteString,
    siblingStatus :: !FileStatus
  }

-- | What the head of a response says of a file.
data Meta = Meta
  { -- | Octets.
    metaSize :: !Int64,
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
