{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The names in a directory
--
-- Reads a directory and makes a page of it. Called on the thread of a connection, for
-- directories without an index file where listings are on.
module Weft.Http.Static.Listing (listing) where

import Control.Monad (forM, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Maybe (catMaybes, fromMaybe)
import GHC.IO.Exception (IOException)
import Weft
import Weft.File hiding (OpenMode (Directory))
import Weft.File qualified as File
import Weft.Http.Date
import Weft.Http.Page hiding (EntryKind (..), ListingEntry (..))
import Weft.Http.Page qualified as Page
import Weft.Http.Path
import Weft.Http.Request
import Weft.Http.Server.Types
import Weft.Http.Static.Open
import Weft.Http.Static.Rules
import Weft.Http.Static.Types
import Weft.Http.Status

-- | The names in a directory, as a page. What would not be served is left out: hidden names,
-- names that no path may contain (with a line end, or a backslash), what is neither a file
-- nor a directory, and what cannot be opened (a symbolic link that leads out).
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
      try (pathStatusAt (At dir) name) >>= \case
        Left (_ :: IOException) -> pure Nothing
        Right status -> case statusKind status of
          RegularFile -> served Page.File status
          DirectoryFile -> served Page.Directory status
          _ -> pure Nothing
      where
        -- The status is that of what a link leads to, wherever that is.
        served kind status
          | Left _ <- safePath (requestPath request <> encodeComponent name) = pure Nothing
          | otherwise =
              try (opens kind) >>= \case
                Left (_ :: IOException) -> pure Nothing
                Right () -> pure (Just (of' kind status))
        path = if B.null relative then name else relative <> "/" <> name
        opens kind = do
          bracket (openBeneathRoot static path) closeFile (\_ -> pure ())
          -- A directory is answered with its index, if that can be had, and is not listed then.
          when (kind == Page.Directory) $
            bracket (openIndex static path) (mapM_ (\(_, file, _) -> closeFile file)) (\_ -> pure ())
        of' kind status = Page.ListingEntry name kind (statusSize status) (HttpTime (statusModified status `div` 1_000_000_000))
