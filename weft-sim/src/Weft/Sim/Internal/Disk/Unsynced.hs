-- |
-- Description : What of a file is on the disk, and what is not yet
-- Stability   : not home
--
-- A file as its readers see it beside what a disk holds of it for certain, and the changes
-- between the two, oldest first. Pure; a crash hands in what becomes of each change.
--
-- See Note [What a crash leaves].
module Weft.Sim.Internal.Disk.Unsynced
  ( FileData,
    emptyFile,
    seen,

    -- * Changing
    writePages,
    resize,

    -- * Syncing
    Mark,
    mark,
    unsyncedChanges,
    syncTo,

    -- * Losing
    Fate (..),
    Fates (..),
    settleTo,
    forgetCached,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.Foldable (toList)
import Data.Int (Int64)
import Data.List (foldl')
import Data.Sequence (Seq, (|>))
import Data.Sequence qualified as Seq
import Weft.Sim.Internal.Disk.Content

-- Note [What a crash leaves]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~
-- Content. Every write is a change of some pages of 4,096 bytes and perhaps of the size. Until
-- a sync that was asked for after the write has succeeded, at a crash each page write by
-- itself survives, is lost, or is torn: some whole sectors of 512 bytes at the beginning or
-- at the end of the page are new and the others are old. A page that was written several
-- times may so come back as it was in between. Changes of the size (a write beyond
-- the end, a cut, an extension) survive in their order: the first few, all, none. Whether the
-- pages of a growing file survive has nothing to do with whether its size does: a file may
-- have its new size and zeroes.
--
-- A sync covers what had been done when it was asked for. When it fails (EIO), the pages that
-- it covered are clean nevertheless, as on Linux: each of them survives, is lost or is torn
-- there and then, what programs read is still the new content, and the next sync succeeds
-- without having anything to do. The loss shows after a crash. Sizes and names are not
-- given up: the next sync that succeeds covers them.
--
-- Names. A file system has one journal of what was made, removed and renamed. At a crash
-- a prefix of it survives, so that an atomic rename is atomic and a file is not removed before it
-- was made. A sync of a directory makes everything durable up to the last change of that
-- directory; a sync of a file everything up to the file's creation (as of ext4), but not a
-- later rename. A name may so survive whose content does not.
--
-- A real system writes back by itself what was not synced for long. So does this one, oldest
-- changes first, when there are too many to keep: 4,096 changes of one file, 1,024 of the
-- journal. The time of the last modification of a file that was not synced with its metadata
-- is the one before or the one after.

-- | A file's content now, what the disk holds for certain, the changes from there, and
-- how many changes came before those.
data FileData = FileData
  { seen :: !Content,
    onDisk :: !Content,
    changes :: !(Seq Change),
    earlier :: !Int
  }

data Change = PageWritten !Int !ByteString | Resized !Int64

-- | An empty file.
emptyFile :: FileData
emptyFile = FileData emptyContent emptyContent Seq.empty 0

-- | Replace some pages and perhaps grow to a size.
writePages :: [(Int, ByteString)] -> Int64 -> FileData -> FileData
writePages pages end file = grown (foldl' write file pages)
  where
    write f (n, page) = record (PageWritten n page) f {seen = putPage n page (seen f)}
    grown f
      | end > contentSize (seen f) = record (Resized end) f {seen = growTo end (seen f)}
      | otherwise = f

-- | Cut or extend.
resize :: Int64 -> FileData -> FileData
resize size file
  | size == contentSize (seen file) = file
  | otherwise = record (Resized size) file {seen = setSize size (seen file)}

record :: Change -> FileData -> FileData
record change file
  | Seq.length more > 4096 = syncTo (Mark (earlier file + 1024)) file {changes = more}
  | otherwise = file {changes = more}
  where
    !more = changes file |> change

-- | Everything that was done to a file up to now.
newtype Mark = Mark Int

-- | Now.
mark :: FileData -> Mark
mark file = Mark (earlier file + Seq.length (changes file))

-- | How many changes are not on the disk.
unsyncedChanges :: FileData -> Int
unsyncedChanges = Seq.length . changes

-- | The changes up to a mark, and the file without them.
splitAtMark :: Mark -> FileData -> (Seq Change, FileData)
splitAtMark (Mark upTo) file = (covered, file {changes = rest, earlier = earlier file + Seq.length covered})
  where
    (covered, rest) = Seq.splitAt (upTo - earlier file) (changes file)

-- | What was done up to the mark is on the disk.
syncTo :: Mark -> FileData -> FileData
syncTo upTo file = left {onDisk = foldl' (enact Survives) (onDisk file) covered}
  where
    (covered, left) = splitAtMark upTo file

enact :: Fate -> Content -> Change -> Content
enact fate content = \case
  Resized size -> setSize size content
  PageWritten n new -> case fate of
    Survives -> putPage n new content
    Lost -> content
    Torn sectors newFirst ->
      let old = pageAt content n
          (first, second) = if newFirst then (new, old) else (old, new)
       in putPage n (ByteString.take (512 * sectors) first <> ByteString.drop (512 * sectors) second) content

-- | What becomes of a page write: where it is torn so many sectors, one to seven,
-- are before the tear, and the flag tells whether those are the new ones.
data Fate = Survives | Lost | Torn !Int !Bool
  deriving stock (Eq, Show)

-- | Who decides: the fate of a page write, and of so many changes of the size the number that
-- survives.
data Fates m = Fates
  { fateOfPage :: m Fate,
    fateOfSizes :: Int -> m Int
  }

-- | What was done up to the mark is on the disk as fate has it. Answers what became of the
-- page writes, too, and how many changes of the size were lost.
settleTo :: (Monad m) => Fates m -> Mark -> FileData -> m (FileData, [Fate], Int)
settleTo fates upTo file = do
  let (covered, left) = splitAtMark upTo file
      sizes = length (filter (not . wasPageWrite) (toList covered))
  surviving <- if sizes == 0 then pure 0 else fateOfSizes fates sizes
  (content, told) <- go surviving (onDisk file) [] (toList covered)
  pure (left {onDisk = content}, told, sizes - surviving)
  where
    go _ content told [] = pure (content, reverse told)
    go sizes content told (c : rest)
      | wasPageWrite c = do
          fate <- fateOfPage fates
          go sizes (enact fate content c) (fate : told) rest
      | sizes > 0 = go (sizes - 1 :: Int) (enact Survives content c) told rest
      | otherwise = go sizes content told rest

-- | Is it a page's, and not of the size?
wasPageWrite :: Change -> Bool
wasPageWrite = \case
  PageWritten {} -> True
  Resized {} -> False

-- | What is read is what the disk holds: the file after a crash.
forgetCached :: FileData -> FileData
forgetCached file = FileData content content Seq.empty 0
  where
    -- Pages that were written beyond a size that did not survive.
    content = setSize (contentSize (onDisk file)) (onDisk file)
