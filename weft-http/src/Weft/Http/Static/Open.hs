{-# OPTIONS_HADDOCK not-home #-}

-- | Opens all served files beneath the root, and closes what the cache drops.
module Weft.Http.Static.Open (openBeneathRoot, openIndex, letGo, forget) where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Foldable (for_)
import Foreign.C.Error
import GHC.IO.Exception (IOException (ioe_errno))
import Weft
import Weft.File
import Weft.Http.Static.Cache
import Weft.Http.Static.Opened
import Weft.Http.Static.Types
import Weft.Mask (mask_)

-- | Open a path beneath the root. Short of descriptors, it closes some that the cache holds.
openBeneathRoot :: Static -> ByteString -> Thread File
openBeneathRoot static path =
  makingRoom (openCache static) letGo $
    openFileAt (At (openRoot static)) path ReadOnly defaultOpenFlags {openBeneath = StayBeneath}

-- | The first existing index file of a directory. Throws if one exists and cannot be opened.
openIndex :: Static -> ByteString -> Thread (Maybe (ByteString, File, FileStatus))
openIndex static directory = tryNames (staticIndex (openSettings static))
  where
    inside name = if B.null directory then name else directory <> "/" <> name
    tryNames = \case
      [] -> pure Nothing
      name : rest ->
        try (openBeneathRoot static (inside name)) >>= \case
          Left e
            | ioe_errno e `elem` [Just code | Errno code <- [eNOENT, eNOTDIR]] -> tryNames rest
            | otherwise -> throwM (e :: IOException)
          Right file -> do
            status <- fileStatus file `onException` closeFile file
            if statusKind status == RegularFile
              then pure (Just (inside name, file, status))
              else closeFile file >> tryNames rest

-- | Close what the cache has dropped, unless it is being sent. Masked: nothing else refers to it.
letGo :: [Cached] -> Thread ()
letGo gone = mask_ . for_ gone $ \cached -> case heldContent (cachedHeld cached) of
  InBytes _ -> pure ()
  OnDisk opened -> releaseOpened opened

-- | Drop what the cache has for this path, which something else answers: Note [Answers in order] in
-- "Weft.Http.Static.Cache".
forget :: Static -> ByteString -> Thread ()
forget static key = liftIO (deleteCache (openCache static) key) >>= letGo
