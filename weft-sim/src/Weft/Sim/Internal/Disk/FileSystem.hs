-- |
-- Description : A simulated file system
-- Stability   : not home
--
-- Files by number, directories, and the journal between the directories as programs see
-- them and as the disk holds them. Pure: time, errors and chance are the callers'. A number is
-- kept for as long as somebody could get at the file: by a name, by a descriptor, or by a
-- crash that brings a removed name back.
--
-- See Note [What a crash leaves] in "Weft.Sim.Internal.Disk.Unsynced".
module Weft.Sim.Internal.Disk.FileSystem
  ( FileSystem (..),
    newFileSystem,

    -- * Files
    Node (..),
    Kind (..),
    nodeIsDirectory,
    nodeOf,
    adjustNode,
    opened,
    closed,

    -- * Content
    roomFor,
    changeData,

    -- * Names
    newNode,
    change,
    leadsTo,
    pathOf,

    -- * The journal
    journalEnd,
    commitTo,
  )
where

import Data.Bits (complement, (.&.))
import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as Char8
import Data.Foldable (toList)
import Data.Int (Int64)
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.List (foldl')
import Data.Sequence (Seq, (|>))
import Data.Sequence qualified as Seq
import Foreign.C.Error (Errno)
import Weft.Internal.SystemCall (Beneath)
import Weft.Sim.Internal.Disk.Content
import Weft.Sim.Internal.Disk.Tree
import Weft.Sim.Internal.Disk.Unsynced

-- | A file system.
data FileSystem = FileSystem
  { fsNodes :: !(IntMap Node),
    -- | As programs see it.
    fsTree :: !Tree,
    -- | As the disk holds it for certain, and the changes from there, oldest first.
    fsTreeOnDisk :: !Tree,
    fsJournal :: !(Seq Change),
    -- | How many changes came before those.
    fsJournalStart :: !Int,
    -- | The next number.
    fsNextInode :: !Inode,
    -- | Pages of all files that have a name or are open.
    fsPages :: !Int
  }

-- | What has a name.
data Node = Node
  { nodeKind :: !Kind,
    -- | Empty if it is no regular file.
    nodeData :: !FileData,
    -- | Nanoseconds since 1970, as read and as it is on the disk.
    nodeModified, nodeModifiedOnDisk :: !Int64,
    nodePermissions :: !Int,
    -- | Has it a name?
    nodeNamed :: !Bool,
    -- | Could a crash give it back a name that it lost?
    nodeMayReturn :: !Bool,
    -- | Descriptors.
    nodeOpens :: !Int,
    -- | What a sync of it commits of the journal: everything before this.
    nodeJournal :: !Int
  }

-- | What it is.
data Kind
  = Regular
  | Folder
  | -- | A symbolic link, and what it says.
    Link !ByteString
  | -- | The name of a Unix-domain socket. Who is bound to it is known to the network.
    SocketName
  deriving stock (Eq, Show)

-- | Is it a directory?
nodeIsDirectory :: Node -> Bool
nodeIsDirectory = (== Folder) . nodeKind

-- | With an empty directory @\/tmp@, durable.
newFileSystem :: Int64 -> FileSystem
newFileSystem now = FileSystem nodes tree tree Seq.empty 0 (tmp + 1) 0
  where
    tmp = rootInode + 1
    nodes = IntMap.fromList [(rootInode, folder 0o755), (tmp, folder 0o1777)]
    folder permissions = (freshNode Folder permissions now) {nodeNamed = True}
    tree = applyChange (CreateFolder rootInode (Char8.pack "tmp") tmp) emptyTree

freshNode :: Kind -> Int -> Int64 -> Node
freshNode kind permissions now = Node kind emptyFile now now permissions False True 0 0

-- | The file of this number. It must be there: somebody holds a name or descriptor of it.
nodeOf :: FileSystem -> Inode -> Node
nodeOf fs n = fsNodes fs IntMap.! n

-- | Change what is known of a file, but not its content.
adjustNode :: (Node -> Node) -> Inode -> FileSystem -> FileSystem
adjustNode f n fs = fs {fsNodes = IntMap.adjust f n (fsNodes fs)}

-- | One more descriptor.
opened :: Inode -> FileSystem -> FileSystem
opened = reweigh (\node -> node {nodeOpens = nodeOpens node + 1})

-- | One less.
closed :: Inode -> FileSystem -> FileSystem
closed n = sweep n . reweigh (\node -> node {nodeOpens = nodeOpens node - 1}) n

-- | Change a file, and what all of them take from the capacity. It must be there.
reweigh :: (Node -> Node) -> Inode -> FileSystem -> FileSystem
reweigh f n fs = fs {fsNodes = IntMap.insert n after (fsNodes fs), fsPages = fsPages fs + weight after - weight before}
  where
    before = nodeOf fs n
    after = f before

-- | Free the space, and then the number, if nobody can get at it any more.
sweep :: Inode -> FileSystem -> FileSystem
sweep n fs = case IntMap.lookup n (fsNodes fs) of
  Just node
    | not (nodeNamed node),
      nodeOpens node == 0,
      not (nodeMayReturn node) ->
        fs {fsNodes = IntMap.delete n (fsNodes fs)}
  _ -> fs

-- | How many pages a file takes from the capacity.
weight :: Node -> Int
weight node
  | nodeNamed node || nodeOpens node > 0 = IntMap.size (contentPages (seen (nodeData node)))
  | otherwise = 0

-- | How many pages more all files together may have, of so many bytes.
roomFor :: Int -> FileSystem -> Int
roomFor capacity fs = capacity `div` pageSize - fsPages fs

-- | Change a file's content, at this time. It is open.
changeData :: Int64 -> (FileData -> FileData) -> Inode -> FileSystem -> FileSystem
changeData now f = reweigh (\node -> node {nodeData = f (nodeData node), nodeModified = now})

-- | Something new, with these permissions less those of the usual mask, 022. It has no name
-- yet. A number is never given twice.
newNode :: Kind -> Int -> Int64 -> FileSystem -> (Inode, FileSystem)
newNode kind permissions now fs =
  (n, fs {fsNodes = IntMap.insert n (freshNode kind (permissions .&. 0o7777 .&. complement 0o022) now) (fsNodes fs), fsNextInode = n + 1})
  where
    n = fsNextInode fs

-- | Change names, at this time. What the change is about must be there.
change :: Int64 -> Change -> FileSystem -> FileSystem
change now it fs = limited (named (foldr touch (unnamed journalled) (touchedBy it)))
  where
    journalled = fs {fsTree = applyChange it (fsTree fs), fsJournal = fsJournal fs |> it}
    position = journalEnd journalled
    touch = adjustNode (\node -> node {nodeModified = now, nodeJournal = position})
    named = case it of
      CreateFile _ _ n -> adjustNode (\node -> node {nodeNamed = True, nodeJournal = position}) n
      CreateFolder _ _ n -> adjustNode (\node -> node {nodeNamed = True, nodeJournal = position}) n
      _ -> id
    unnamed f = maybe f (\n -> reweigh (\node -> node {nodeNamed = False}) n f) (replacedBy (fsTree fs) it)
    limited f
      | Seq.length (fsJournal f) > 1024 = commitTo (fsJournalStart f + 256) f
      | otherwise = f

-- | Where the journal ends.
journalEnd :: FileSystem -> Int
journalEnd fs = fsJournalStart fs + Seq.length (fsJournal fs)

-- | The names that were changed before this place of the journal are durable.
commitTo :: Int -> FileSystem -> FileSystem
commitTo upTo fs = foldl' commit left (toList covered)
  where
    (covered, rest) = Seq.splitAt (upTo - fsJournalStart fs) (fsJournal fs)
    left = fs {fsJournal = rest, fsJournalStart = fsJournalStart fs + Seq.length covered}
    commit f it = case replacedBy (fsTreeOnDisk f) it of
      Nothing -> applied
      Just n -> sweep n (adjustNode (\node -> node {nodeMayReturn = False}) n applied)
      where
        applied = f {fsTreeOnDisk = applyChange it (fsTreeOnDisk f)}

-- | Where a path leads, from a directory.
leadsTo :: FileSystem -> Inode -> Beneath -> Final -> ByteString -> Either Errno Found
leadsTo fs = follow saying (fsTree fs)
  where
    saying n = case nodeKind <$> IntMap.lookup n (fsNodes fs) of
      Just (Link text) -> Just text
      _ -> Nothing

-- | A path of it from the root, for people.
pathOf :: FileSystem -> Inode -> ByteString
pathOf fs n = IntMap.findWithDefault (Char8.pack ("removed file " <> show n)) n (pathsOf (fsTree fs))
