{-# OPTIONS_HADDOCK not-home #-}

-- | A simulated file system: files by number, directories, and the journal between these as
-- programs see them and as the disk holds them. Pure but for the dice of a crash. A file number is
-- kept as long as the file is reachable: by a name, a descriptor, or a crash that restores a
-- removed name.
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
    commitTo,
    crashed,

    -- * What it is made of
    module Weft.Sim.Internal.Disk.Content,
    module Weft.Sim.Internal.Disk.Tree,
    module Weft.Sim.Internal.Disk.Unsynced,
  )
where

import Control.Monad (foldM)
import Data.Bits (complement, (.&.))
import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as Char8
import Data.Foldable (toList)
import Data.Int (Int64)
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.List qualified as List
import Data.Sequence (Seq, (|>))
import Data.Sequence qualified as Seq
import Foreign.C.Error (Errno)
import Weft.Internal.Core.SystemCall (Beneath)
import Weft.Sim.Internal.Disk.Content
import Weft.Sim.Internal.Disk.Tree
import Weft.Sim.Internal.Disk.Unsynced
import Weft.Sim.Internal.Random

data FileSystem = FileSystem
  { fsNodes :: !(IntMap Node),
    -- | As programs see it.
    fsTree :: !Tree,
    -- | As the disk certainly holds it, and the changes since, oldest first.
    fsTreeOnDisk :: !Tree,
    fsJournal :: !(Seq Change),
    -- | How many changes have left the journal.
    fsJournalStart :: !Int,
    fsNextInode :: !Inode,
    -- | Pages of all files that have a name or are open.
    fsPages :: !Int
  }

data Node = Node
  { nodeKind :: !Kind,
    -- | Empty if it is no regular file.
    nodeData :: !FileData,
    -- | Nanoseconds since 1970, as read and as it is on the disk.
    nodeModified, nodeModifiedOnDisk :: !Int64,
    nodePermissions :: !Int,
    nodeNamed :: !Bool,
    -- | Could a crash restore a name that it lost?
    nodeMayReturn :: !Bool,
    nodeOpens :: !Int,
    -- | A sync of it commits the journal up to here.
    nodeJournal :: !Int
  }

data Kind
  = Regular
  | Folder
  | -- | A symbolic link, and what it says.
    Link !ByteString
  | -- | The name of a Unix-domain socket. The network knows which socket is bound to it.
    SocketName
  deriving stock (Eq, Show)

nodeIsDirectory :: Node -> Bool
nodeIsDirectory = (== Folder) . nodeKind

-- | An empty file system with a durable directory @\/tmp@.
newFileSystem :: Int64 -> FileSystem
newFileSystem now = FileSystem nodes tree tree Seq.empty 0 (tmp + 1) 0
  where
    tmp = rootInode + 1
    nodes = IntMap.fromList [(rootInode, folder 0o755), (tmp, folder 0o1777)]
    folder permissions = (freshNode Folder permissions now) {nodeNamed = True}
    tree = applyChange (Create True rootInode (Char8.pack "tmp") tmp) emptyTree

freshNode :: Kind -> Int -> Int64 -> Node
freshNode kind permissions now = Node kind emptyFile now now permissions False True 0 0

-- | The file of this number, which must be present: the caller has a name or descriptor of it.
nodeOf :: FileSystem -> Inode -> Node
nodeOf fs n = fsNodes fs IntMap.! n

adjustNode :: (Node -> Node) -> Inode -> FileSystem -> FileSystem
adjustNode f n fs = fs {fsNodes = IntMap.adjust f n (fsNodes fs)}

opened :: Inode -> FileSystem -> FileSystem
opened = reweigh (\node -> node {nodeOpens = nodeOpens node + 1})

closed :: Inode -> FileSystem -> FileSystem
closed n = sweep n . reweigh (\node -> node {nodeOpens = nodeOpens node - 1}) n

-- | Change a file, which must be present, and adjust the pages in use.
reweigh :: (Node -> Node) -> Inode -> FileSystem -> FileSystem
reweigh f n fs = fs {fsNodes = IntMap.insert n after (fsNodes fs), fsPages = fsPages fs + weight after - weight before}
  where
    before = nodeOf fs n
    after = f before

sweep :: Inode -> FileSystem -> FileSystem
sweep n fs = case IntMap.lookup n (fsNodes fs) of
  Just node
    | not (nodeNamed node),
      nodeOpens node == 0,
      not (nodeMayReturn node) ->
        fs {fsNodes = IntMap.delete n (fsNodes fs)}
  _ -> fs

-- | The pages that a file takes from the capacity.
weight :: Node -> Int
weight node
  | nodeNamed node || nodeOpens node > 0 = IntMap.size (contentPages (seen (nodeData node)))
  | otherwise = 0

roomFor :: Int -> FileSystem -> Int
roomFor capacity fs = capacity `div` pageSize - fsPages fs

changeData :: Int64 -> (FileData -> FileData) -> Inode -> FileSystem -> FileSystem
changeData now f = reweigh (\node -> node {nodeData = f (nodeData node), nodeModified = now})

-- | Make a nameless file with these permissions, less the usual mask 022. Numbers are never reused.
newNode :: Kind -> Int -> Int64 -> FileSystem -> (Inode, FileSystem)
newNode kind permissions now fs =
  (n, fs {fsNodes = IntMap.insert n (freshNode kind (permissions .&. 0o7777 .&. complement 0o022) now) (fsNodes fs), fsNextInode = n + 1})
  where
    n = fsNextInode fs

-- | Change names at this time. The files concerned must be present.
change :: Int64 -> Change -> FileSystem -> FileSystem
change now it fs = limited (named (foldr touch (unnamed journalled) (touchedBy it)))
  where
    journalled = fs {fsTree = applyChange it (fsTree fs), fsJournal = fsJournal fs |> it}
    position = journalEnd journalled
    touch = adjustNode (\node -> node {nodeModified = now, nodeJournal = position})
    named = case it of
      Create _ _ _ n -> adjustNode (\node -> node {nodeNamed = True, nodeJournal = position}) n
      _ -> id
    unnamed f = maybe f (\n -> reweigh (\node -> node {nodeNamed = False}) n f) (replacedBy (fsTree fs) it)
    limited f
      | Seq.length (fsJournal f) > 1024 = commitTo (fsJournalStart f + 256) f
      | otherwise = f

journalEnd :: FileSystem -> Int
journalEnd fs = fsJournalStart fs + Seq.length (fsJournal fs)

commitTo :: Int -> FileSystem -> FileSystem
commitTo upTo fs = List.foldl' commit left (toList covered)
  where
    (covered, rest) = Seq.splitAt (upTo - fsJournalStart fs) (fsJournal fs)
    left = fs {fsJournal = rest, fsJournalStart = fsJournalStart fs + Seq.length covered}
    commit f it = case replacedBy (fsTreeOnDisk f) it of
      Nothing -> applied
      Just n -> sweep n (adjustNode (\node -> node {nodeMayReturn = False}) n applied)
      where
        applied = f {fsTreeOnDisk = applyChange it (fsTreeOnDisk f)}

leadsTo :: FileSystem -> Inode -> Beneath -> Final -> ByteString -> Either Errno PathTarget
leadsTo fs = follow saying (fsTree fs)
  where
    saying n = case nodeKind <$> IntMap.lookup n (fsNodes fs) of
      Just (Link text) -> Just text
      _ -> Nothing

-- | A path from the root, for messages.
pathOf :: FileSystem -> Inode -> ByteString
pathOf fs n = IntMap.findWithDefault (Char8.pack ("removed file " <> show n)) n (pathsOf (fsTree fs))

-- | A power cut: all files are closed, and the dice decide what of the rest survives.
crashed :: Random -> FileSystem -> IO (FileSystem, [String])
crashed random fs = do
  surviving <- below random (Seq.length (fsJournal fs) + 1)
  let tree = List.foldl' (flip applyChange) (fsTreeOnDisk fs) (toList (Seq.take surviving (fsJournal fs)))
      paths = pathsOf tree
      lost = Seq.length (fsJournal fs) - surviving
      journalLine = ["of " <> counted (Seq.length (fsJournal fs)) "change of names" "changes of names" <> " " <> show lost <> " lost" | not (Seq.null (fsJournal fs))]
  (nodes, told) <- foldM (settled paths) (IntMap.empty, []) (IntMap.toList (IntMap.intersection (fsNodes fs) paths))
  pure
    ( fs
        { fsNodes = nodes,
          fsTree = tree,
          fsTreeOnDisk = tree,
          fsJournal = Seq.empty,
          fsJournalStart = journalEnd fs,
          fsPages = sum (IntMap.size . contentPages . seen . nodeData <$> nodes)
        },
      journalLine <> reverse told
    )
  where
    settled paths (nodes, told) (n, node) = do
      (file, told') <- settleTo random True (mark (nodeData node)) (nodeData node)
      late <- if nodeModified node == nodeModifiedOnDisk node then pure True else chance random 0.5
      let after = forgetCached file
          modified = if late then nodeModified node else nodeModifiedOnDisk node
          line = [Char8.unpack (paths IntMap.! n) <> ": " <> told' <> sizeNow node after | unsyncedChanges (nodeData node) > 0]
          node' =
            node
              { nodeData = after,
                nodeModified = modified,
                nodeModifiedOnDisk = modified,
                nodeNamed = True,
                nodeMayReturn = True,
                nodeOpens = 0
              }
      pure (IntMap.insert n node' nodes, line <> told)
    sizeNow node after
      | before == now = ""
      | otherwise = "; " <> show now <> " bytes instead of " <> show before
      where
        before = contentSize (seen (nodeData node))
        now = contentSize (seen after)
