{-# OPTIONS_HADDOCK not-home #-}

-- | The part of a file that is not on the disk yet: what readers see, what the disk certainly
-- holds, and the changes between the two, oldest first; and what a crash makes of them, by the
-- dice.
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
    settleTo,
    forgetCached,
    counted,
  )
where

import Data.Bits (testBit)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.Foldable (toList)
import Data.Int (Int64)
import Data.List (intercalate)
import Data.List qualified as List
import Data.Sequence (Seq, (|>))
import Data.Sequence qualified as Seq
import Data.Word (Word8)
import Weft.Sim.Internal.Disk.Content
import Weft.Sim.Internal.Random

-- Note [What a crash leaves]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~
-- Content. Every write changes some pages of 4,096 bytes and perhaps the size. Until a sync that
-- was requested after it has succeeded, each page write by itself survives a crash, is lost, or is
-- torn: any of its sectors of 512 bytes are new and the others old. A page that was written several
-- times may so return in an intermediate state. The bytes beyond the file's durable size may return
-- in any shape (`Ragged`): up to some byte, or from it on, as written, and the rest is zeroes or
-- stale bytes of this or another file. No system promises more: it writes the size and the bytes at
-- different times, and a new block keeps its old bytes. Changes of the size survive in their order:
-- the first few, all, or none; the pages survive independently of it, so a file may have its new
-- size and zeroes.
--
-- A sync covers what was done before it was requested. When it fails (EIO), the pages that it
-- covered are clean nevertheless, as on Linux: each survives, is lost or is torn at that moment,
-- programs still read the new content, and the next sync succeeds with nothing to do. The loss
-- shows after a crash. Sizes and names are not given up: the next successful sync covers them.
--
-- Names. A file system has one journal of creations, removals and renames. A prefix of it survives
-- a crash, so that a rename is atomic and no file is removed before it was made. A sync of a
-- directory makes everything durable up to the last change of that directory; a sync of a file
-- everything up to the file's creation (as on ext4), but not a later rename. So a name may
-- survive whose content does not.
--
-- A real system writes back old changes by itself. This one does so when there are too many, oldest
-- first: 4,096 changes of one file, 1,024 of the journal. The modification time of a file that was
-- not synced with its metadata is the one before or the one after.

-- | The content now, the durable content, the changes since, and the number of earlier changes.
data FileData = FileData
  { seen :: !Content,
    onDisk :: !Content,
    changes :: !(Seq DataChange),
    earlier :: !Int
  }

data DataChange = PageWritten !Int !ByteString | Resized !Int64

emptyFile :: FileData
emptyFile = FileData emptyContent emptyContent Seq.empty 0

writePages :: [(Int, ByteString)] -> Int64 -> FileData -> FileData
writePages pages end file = grown (List.foldl' write file pages)
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

record :: DataChange -> FileData -> FileData
record change file
  | Seq.length more > 4096 = syncTo (Mark (earlier file + 1024)) file {changes = more}
  | otherwise = file {changes = more}
  where
    !more = changes file |> change

-- | Everything that was done to a file up to a moment.
newtype Mark = Mark Int

mark :: FileData -> Mark
mark file = Mark (earlier file + Seq.length (changes file))

unsyncedChanges :: FileData -> Int
unsyncedChanges = Seq.length . changes

splitAtMark :: Mark -> FileData -> (Seq DataChange, FileData)
splitAtMark (Mark upTo) file = (covered, file {changes = rest, earlier = earlier file + Seq.length covered})
  where
    (covered, rest) = Seq.splitAt (upTo - earlier file) (changes file)

syncTo :: Mark -> FileData -> FileData
syncTo upTo file = left {onDisk = List.foldl' (\content -> enact content content Survives) (onDisk file) covered}
  where
    (covered, left) = splitAtMark upTo file

enact :: Content -> Content -> PageOutcome -> DataChange -> Content
enact certain content outcome = \case
  Resized size -> setSize size content
  PageWritten n new -> case outcome of
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
    -- The durable bytes before that page's new ones, or bytes that no file has had.
    before n
      | contentSize certain <= 0 = ByteString.pack (take pageSize (iterate (\b -> 109 * b + 89) 17))
      | otherwise =
          let known = ByteString.concat (readContent (max 0 (min (contentSize certain) (fromIntegral (n * pageSize + pageSize)) - fromIntegral pageSize)) pageSize certain)
           in ByteString.take pageSize (ByteString.concat (replicate (1 + pageSize `div` max 1 (ByteString.length known)) known))

-- | The bytes of a page that a write added beyond the durable size, from the first to the last that
-- differs; an empty range if there are none.
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

-- | The outcome of a page write that was not durable at a crash.
data PageOutcome
  = Survives
  | Lost
  | -- | The sectors whose bits are set are new, the others old.
    Torn !Word8
  | -- | Of the added bytes ('appended'), those before this place in the page are new and the
    -- rest is junk; without the flag, the new bytes come after the junk.
    Ragged !Int !Bool !Junk
  deriving stock (Eq, Show)

-- | The bytes that a crash leaves in place of the written ones.
data Junk
  = Zeroes
  | -- | The durable bytes of the file shortly before, from this byte on; if there are none, bytes
    -- that no file has had.
    Stale !Int
  deriving stock (Eq, Show)

-- | What becomes of a page write, given the range of bytes that it added (empty if both are equal).
-- Of eight pages three survive, two are lost and three are torn; one that has grown in one of two
-- ways.
pageOutcome :: Random -> (Int, Int) -> IO PageOutcome
pageOutcome random (from, to) = below random 16 >>= outcome
  where
    outcome n
      | n < 6 = pure Survives
      | n < 10 = pure Lost
      | n < 13 || from >= to = below random 4 >>= torn
      | otherwise = Ragged . (from +) <$> below random (to - from) <*> chance random 0.7 <*> junk
    torn n
      | n == 0 = Torn . fromIntegral . (1 +) <$> below random 254
      | otherwise = (\i new -> Torn (if new then 2 ^ i - 1 else 255 - (2 ^ i - 1))) . (1 +) <$> below random 7 <*> chance random 0.5
    junk = chance random 0.4 >>= \zeroes -> if zeroes then pure Zeroes else Stale <$> below random 4096

-- | Settle everything up to the mark by the dice: a crash (the flag), where changes of the size may
-- be lost, or a failed sync, which programs do not see yet. Answers an account of it in words.
settleTo :: Random -> Bool -> Mark -> FileData -> IO (FileData, String)
settleTo random isCrash upTo file = do
  let (covered, left) = splitAtMark upTo file
      sizes = length (filter (not . wasPageWrite) (toList covered))
  surviving <- if isCrash && sizes > 0 then below random (sizes + 1) else pure sizes
  (content, told) <- go surviving certain [] (toList covered)
  pure (left {onDisk = content}, account told (sizes - surviving))
  where
    certain = onDisk file
    go _ content told [] = pure (content, reverse told)
    go sizes content told (c : rest)
      | PageWritten n new <- c = do
          outcome <- pageOutcome random (appended certain content n new)
          go sizes (enact certain content outcome c) (outcome : told) rest
      | sizes > 0 = go (sizes - 1 :: Int) (enact certain content Survives c) told rest
      | otherwise = go sizes content told rest

account :: [PageOutcome] -> Int -> String
account outcomes sizes =
  "of " <> counted (length outcomes) "unsynced page write" "unsynced page writes" <> " " <> intercalate ", " (pages <> [counted sizes "change" "changes" <> " of the size lost" | sizes > 0])
  where
    pages = [show (count (== Lost)) <> " lost", show (count torn) <> " torn"]
    count p = length (filter p outcomes)
    torn = \case
      Torn {} -> True
      Ragged {} -> True
      _ -> False

counted :: Int -> String -> String -> String
counted 1 one _ = "1 " <> one
counted n _ several = show n <> " " <> several

wasPageWrite :: DataChange -> Bool
wasPageWrite = \case
  PageWritten {} -> True
  Resized {} -> False

-- | The file after a crash: readers see what the disk holds.
forgetCached :: FileData -> FileData
forgetCached file = FileData content content Seq.empty 0
  where
    -- Drops pages that were written beyond a size that did not survive.
    content = setSize (contentSize (onDisk file)) (onDisk file)
