-- |
-- Description : Opening and letting go of files
-- Stability   : not home
--
-- All files that are served are opened here, beneath the root; and what the cache lets go
-- of is closed here. Called on the thread of a connection.
module Weft.Http.Static.Open
  ( openBeneathRoot,
    openIndex,
    letGo,
  )
where

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

-- | Open a path that stays beneath the root. Where descriptors are short, some of those
-- that the cache holds are given up for it.
openBeneathRoot :: Static -> ByteString -> Thread File
openBeneathRoot static path =
  try (openFileAt (At (openRoot static)) path ReadOnly defaultOpenFlags {openBeneath = StayBeneath}) >>= \case
    Right file -> pure file
    Left e
      | isShort e ->
          liftIO (reduceFiles (openCache static) (`div` 2)) >>= \case
            [] -> throwM e
            some -> letGo some >> openBeneathRoot static path
      | otherwise -> throwM e
  where
    isShort e = ioe_errno e `elem` [Just code | Errno code <- [eMFILE, eNFILE]]

-- | The file that a directory is answered with: the first of the index files that is there, with
-- its path and its status. Raises what the system says of one that is there and cannot be had.
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

-- | Close what the cache has let go of, unless it is being sent. Masked, because nobody else
-- knows of it any more.
letGo :: [Cached] -> Thread ()
letGo gone = mask_ . for_ gone $ \cached -> case heldContent (cachedHeld cached) of
  InBytes _ -> pure ()
  OnDisk opened -> releaseOpened opened
