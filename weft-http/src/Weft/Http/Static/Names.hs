{-# OPTIONS_HADDOCK not-home #-}

-- | Few files have a coded form beside them, and to look for one costs a system call for each coding.
-- So the names in a directory that end in a coding's suffix are read, again when it has changed.
--
-- See Note [What the time of a directory says].
module Weft.Http.Static.Names (Names, newNames, whichMayExist, settledIn, attempted) where

import Control.Monad.Primitive (RealWorld)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.HashMap.Strict (HashMap)
import Data.HashMap.Strict qualified as HashMap
import Data.HashSet (HashSet)
import Data.HashSet qualified as HashSet
import Data.IORef
import Data.Int (Int64)
import Data.Primitive.PrimVar
import GHC.IO.Exception (IOException)
import Weft
import Weft.File hiding (OpenMode (Directory))
import Weft.File qualified as File
import Weft.Time

-- Note [What the time of a directory says]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- The modification time of a directory changes with its names, and is compared once a second. But
--
--   * the time may be as coarse as two seconds, so names read shortly after a change are read again
--     in the next second;
--   * a file system may not keep it, so names expire after a minute;
--   * reading many names takes long, so it takes at most a twentieth of the time. Until the next
--     reading nothing is known, and each file is looked for.

data Names = Names
  { namesEndings :: [ByteString],
    namesKnown :: !(IORef (HashMap ByteString Directory))
  }

data Directory = Directory
  { -- | The second in which it was last compared.
    directoryChecked :: {-# UNPACK #-} !(PrimVar RealWorld Int),
    directoryRead :: !(IORef Findings)
  }

data Findings
  = -- | Nothing is known, and it is not read before this second.
    Unknown !Int64
  | -- | Its status before it was read, whether a later change would show there, and the names.
    Known !FileStatus !Bool !(HashSet ByteString) !Extent

-- | The seconds after which it is read again: if it has changed, and in any case.
data Extent = Extent !Int64 !Int64

newNames :: [ByteString] -> IO Names
newNames endings = Names endings <$> newIORef HashMap.empty

-- | Which of these endings may a file of this path have in this second? The file is the open root.
whichMayExist :: Names -> File -> Int64 -> ByteString -> (a -> ByteString) -> [a] -> Thread [a]
whichMayExist names root second path ending wanted = do
  entry <- liftIO (entryOf names directory)
  checked <- liftIO (readPrimVar (directoryChecked entry))
  mine <-
    if checked == fromIntegral second
      then pure False
      else liftIO ((== checked) <$> casInt (directoryChecked entry) checked (fromIntegral second))
  found <- liftIO (readIORef (directoryRead entry))
  -- Others go on with what was right a second ago.
  verdict <$> if mine then renewed entry found else pure found
  where
    (before, name) = B.breakEnd (== 0x2f) path
    directory = B.dropWhileEnd (== 0x2f) before
    place = if B.null directory then "." else directory
    verdict = \case
      Known _ _ there _
        | HashSet.null there -> []
        | otherwise -> filter (\a -> HashSet.member (name <> ending a) there) wanted
      Unknown _ -> wanted
    keep entry found = found <$ liftIO (writeIORef (directoryRead entry) found)

    renewed entry found = case found of
      Unknown again | second < again -> pure found
      Known status settled _ (Extent least most)
        | second < most ->
            attempted (modification <$> pathStatusAt (At root) place) >>= \case
              Just now' | now' == status, settled -> pure found
              Just _ | second >= least -> readAgain entry
              _ -> keep entry (Unknown least)
      _ -> readAgain entry

    readAgain entry = do
      -- Meanwhile, and if we are cancelled, each file is looked for. One reads at a time.
      _ <- keep entry (Unknown (second + 60))
      start <- now
      result <- attempted (bracket (openFileAt (At root) place File.Directory defaultOpenFlags {openBeneath = StayBeneath}) closeFile contents)
      end <- now
      -- In whole seconds, rounded up: twenty times as long as it took.
      let pause = 1 + 20 * (instantNanoseconds end - instantNanoseconds start) `div` 1_000_000_000
      keep entry $ case result of
        Just (status, there)
          | HashSet.size there <= 20_000 -> Known status (settledIn second status) there (Extent (second + pause) (second + max 60 pause))
          | otherwise -> Unknown (second + max 60 pause)
        Nothing -> Unknown (second + pause)

    contents dir = do
      status <- modification <$> fileStatus dir
      there <- listDirectory dir
      let !marked = HashSet.fromList [B.copy n | n <- there, any (`B.isSuffixOf` n) (namesEndings names)]
      pure (status, marked)

-- | The result of an action, unless the system refuses it.
attempted :: Thread a -> Thread (Maybe a)
attempted act = either (\(_ :: IOException) -> Nothing) Just <$> try act

-- | The status without the changes that concern no names, such as of permissions.
modification :: FileStatus -> FileStatus
modification status = status {statusChanged = statusModified status}

-- | Would another change after this second show in the times of a file or directory?
settledIn :: Int64 -> FileStatus -> Bool
settledIn second status = max (statusModified status) (statusChanged status) < (second - 3) * 1_000_000_000

entryOf :: Names -> ByteString -> IO Directory
entryOf names directory =
  readIORef (namesKnown names) >>= maybe add pure . HashMap.lookup directory
  where
    add = do
      new <- Directory <$> newPrimVar 0 <*> newIORef (Unknown 0)
      -- Meanwhile another may have added it.
      atomicModifyIORef' (namesKnown names) $ \known -> case HashMap.lookup directory known of
        Just entry -> (known, entry)
        Nothing -> (HashMap.insert (B.copy directory) new (if HashMap.size known >= 4096 then HashMap.empty else known), new)
