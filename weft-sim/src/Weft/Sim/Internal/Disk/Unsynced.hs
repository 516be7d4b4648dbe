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
    Junk (..),
    Fates (..),
    settleTo,
    forgetCached,
  )
where

import Data.Bits (testBit)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.Foldable (toList)
import Data.Int (Int64)
import Data.List (foldl')
import Data.Sequence (Seq, (|>))
import Data.Sequence qualified as Seq
import Data.Word (Word8)
import Weft.Sim.Internal.Disk.Content

-- Note [What a crash leaves]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~
-- Content. Every write is a change of some pages of 4,096 bytes and perhaps of the size. Until
-- a sync that was asked for after the write has succeeded, at a crash each page write by
-- itself survives, is lost, or is torn: some of its sectors of 512 bytes, any of them, are
-- new and the others are old. A page that was written several
-- times may so come back as it was in between. What a write has added behind the size that the
-- file has for certain on the disk may come back in any shape (`Ragged`): up to some byte, or from
-- it on, it is what was written, and the rest is zeroes or stale, bytes that were written to the file
-- before or to another one. No system promises more: the size and the bytes are written at
-- different times, and a block that was just allocated holds what it held. Changes of the size (a write beyond
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
syncTo upTo file = left {onDisk = foldl' (\content -> enact content content Survives) (onDisk file) covered}
  where
    (covered, left) = splitAtMark upTo file

-- | Given what the disk holds for certain, and what it would hold so far.
enact :: Content -> Content -> Fate -> Change -> Content
enact certain content fate = \case
  Resized size -> setSize size content
  PageWritten n new -> case fate of
    Survives -> putPage n new content
    Lost -> content
    Torn sectors -> putPage n (ByteString.concat [sector i (if testBit sectors i then new else old) | i <- [0 .. 7]]) content
    Ragged cut newFirst junk ->
      let (from, to) = appended certain content n new
          (begin, rest) = ByteString.splitAt from new
          (middle, end) = ByteString.splitAt (to - from) rest
          waste = ByteString.take (to - from) (junkFrom junk n)
          (first, second) = if newFirst then (middle, waste) else (waste, middle)
       in putPage n (ByteString.concat [begin, ByteString.take (cut - from) first, ByteString.drop (cut - from) second, end]) content
    where
      old = pageAt content n
      sector i = ByteString.take 512 . ByteString.drop (512 * i)
  where
    junkFrom Zeroes _ = ByteString.replicate pageSize 0
    junkFrom (Stale start) n = ByteString.take pageSize (ByteString.drop (start `mod` pageSize) (twice (before n)))
    twice bytes = bytes <> bytes
    -- What the disk has of the file before that page's new bytes; or what no file has had.
    before n
      | contentSize certain <= 0 = ByteString.pack (take pageSize (iterate (\b -> 109 * b + 89) 17))
      | otherwise =
          let known = ByteString.concat (readContent (max 0 (min (contentSize certain) (fromIntegral (n * pageSize + pageSize)) - fromIntegral pageSize)) pageSize certain)
           in ByteString.take pageSize (ByteString.concat (replicate (1 + pageSize `div` max 1 (ByteString.length known)) known))

-- | Which bytes of a page a write has added behind the size that is certain, from the first that
-- differs up to the last; an empty range if there are none.
appended :: Content -> Content -> Int -> ByteString -> (Int, Int)
appended certain content n new
  | from >= to = (0, 0)
  | otherwise = (from, to)
  where
    differing = [i | (i, (a, b)) <- zip [0 ..] (ByteString.zip (pageAt content n) new), a /= b]
    end = fromIntegral (max 0 (min (fromIntegral pageSize) (contentSize certain - fromIntegral (n * pageSize))))
    from = if null differing then pageSize else max end (head' differing)
    to = if null differing then 0 else last differing + 1
    head' = foldr const 0

-- | What becomes of a page write.
data Fate
  = Survives
  | Lost
  | -- | The sectors whose bits are set are new, the others old.
    Torn !Word8
  | -- | Of what it has added ('appended'), the bytes before this place in the page are new and the
    -- rest is junk; without the flag, the other way round.
    Ragged !Int !Bool !Junk
  deriving stock (Eq, Show)

-- | What is found where something else was to be written.
data Junk
  = Zeroes
  | -- | What the disk has of the file shortly before, from so many bytes on; if it has nothing, what
    -- nobody has written.
    Stale !Int
  deriving stock (Eq, Show)

-- | Who decides: the fate of a page write, given the range of bytes that it has added (empty if
-- both are equal), and of so many changes of the size the number that survives.
data Fates m = Fates
  { fateOfPage :: (Int, Int) -> m Fate,
    fateOfSizes :: Int -> m Int
  }

-- | What was done up to the mark is on the disk as fate has it. Answers what became of the
-- page writes, too, and how many changes of the size were lost.
settleTo :: (Monad m) => Fates m -> Mark -> FileData -> m (FileData, [Fate], Int)
settleTo fates upTo file = do
  let (covered, left) = splitAtMark upTo file
      sizes = length (filter (not . wasPageWrite) (toList covered))
  surviving <- if sizes == 0 then pure 0 else fateOfSizes fates sizes
  let certain = onDisk file
  (content, told) <- go certain surviving (onDisk file) [] (toList covered)
  pure (left {onDisk = content}, told, sizes - surviving)
  where
    go _ _ content told [] = pure (content, reverse told)
    go certain sizes content told (c : rest)
      | PageWritten n new <- c = do
          fate <- fateOfPage fates (appended certain content n new)
          go certain sizes (enact certain content fate c) (fate : told) rest
      | sizes > 0 = go certain (sizes - 1 :: Int) (enact certain content Survives c) told rest
      | otherwise = go certain sizes content told rest

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
