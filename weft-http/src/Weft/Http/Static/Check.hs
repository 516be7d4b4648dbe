{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Can this be served?
--
-- Compares settings with the file system before anything is served.
module Weft.Http.Static.Check (checkStatic) where

import Control.Monad (forM)
import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as C
import Data.Foldable (toList)
import Data.Int (Int64)
import Data.Maybe (catMaybes)
import GHC.IO.Exception (IOException (..))
import Weft
import Weft.File hiding (OpenMode (Directory))
import Weft.File qualified as File
import Weft.Http.Static.Types

-- | The faults of settings, a line each: a missing or unreadable directory; error pages and a
-- fallback that are missing, unreadable, outside of it, or too large for the cache.
checkStatic :: StaticSettings -> Thread [ByteString]
checkStatic settings =
  try (bracket (openFileAt CurrentDirectory root File.Directory defaultOpenFlags) closeFile inside) >>= \case
    Left e -> pure [root <> ": " <> said e]
    Right problems -> pure problems
  where
    root = staticRoot settings
    inside dir = do
      readable <-
        try (listDirectory dir) >>= \case
          Left e -> pure [root <> ": " <> said e]
          Right _ -> pure []
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
