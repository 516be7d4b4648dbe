{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Directories and paths of a simulated file system
-- Stability   : not home
--
-- Which names are in which directory, what changes them, and where a path leads. Pure.
-- Files are numbers here: whatever has a name and is no directory. What a symbolic link says
-- is asked of the caller.
module Weft.Sim.Internal.Disk.Tree
  ( -- * Directories
    Tree,
    Inode,
    rootInode,
    emptyTree,
    isDirectory,
    namesIn,
    isWithin,
    pathsOf,

    -- * Changes
    Change (..),
    applyChange,
    replacedBy,
    touchedBy,

    -- * Paths
    Found (..),
    foundInode,
    Final (..),
    follow,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Foreign.C.Error
import Weft.Internal.SystemCall (Beneath (..))

-- | A file or directory by number.
type Inode = Int

-- | The directories by number, each with the one it is in and the names in it.
newtype Tree = Tree (IntMap Folder)

data Folder = Folder !Inode !(Map ByteString Inode)

-- | The directory in which absolute paths begin.
rootInode :: Inode
rootInode = 1

-- | The root, empty.
emptyTree :: Tree
emptyTree = Tree (IntMap.singleton rootInode (Folder rootInode Map.empty))

-- | Is it a directory that has not been removed?
isDirectory :: Tree -> Inode -> Bool
isDirectory (Tree folders) n = IntMap.member n folders

-- | The names in a directory, in their order; none if it is not one.
namesIn :: Tree -> Inode -> Map ByteString Inode
namesIn (Tree folders) n = maybe Map.empty (\(Folder _ names) -> names) (IntMap.lookup n folders)

parentOf :: Tree -> Inode -> Inode
parentOf (Tree folders) n = maybe rootInode (\(Folder parent _) -> parent) (IntMap.lookup n folders)

-- | Is the first directory the second one, or somewhere beneath it?
isWithin :: Tree -> Inode -> Inode -> Bool
isWithin tree n top = n == top || (n /= rootInode && isWithin tree (parentOf tree n) top)

-- | Everything that has a name, with its path from the root, and the root.
pathsOf :: Tree -> IntMap ByteString
pathsOf tree = IntMap.insert rootInode "/" (IntMap.fromList (go "" rootInode))
  where
    go path n = concat [(m, there) : go there m | (name, m) <- Map.toList (namesIn tree n), let there = path <> "/" <> name]

-- | What is done to the names of a directory.
data Change
  = -- | A new file.
    CreateFile !Inode !ByteString !Inode
  | -- | A new directory.
    CreateFolder !Inode !ByteString !Inode
  | -- | A file or empty directory loses its name.
    Remove !Inode !ByteString
  | -- | What has the first name gets the second one, in place of what has that.
    Rename !Inode !ByteString !Inode !ByteString
  deriving stock (Eq, Show)

-- | Do it. What it is about must be there.
applyChange :: Change -> Tree -> Tree
applyChange change tree@(Tree folders) = case change of
  CreateFile d name n -> put d name n tree
  CreateFolder d name n -> put d name n (Tree (IntMap.insert n (Folder d Map.empty) folders))
  Remove d name -> without (Map.lookup name (namesIn tree d)) (drop' d name tree)
  Rename d name d' name' -> case Map.lookup name (namesIn tree d) of
    Nothing -> tree
    Just n -> moved n d' (put d' name' n (drop' d name (without (replacedBy tree change) tree)))
  where
    put d name n (Tree fs) = Tree (IntMap.adjust (\(Folder p names) -> Folder p (Map.insert name n names)) d fs)
    drop' d name (Tree fs) = Tree (IntMap.adjust (\(Folder p names) -> Folder p (Map.delete name names)) d fs)
    without gone (Tree fs) = Tree (maybe fs (`IntMap.delete` fs) gone)
    moved n d (Tree fs) = Tree (IntMap.adjust (\(Folder _ names) -> Folder d names) n fs)

-- | What loses its last name by the change.
replacedBy :: Tree -> Change -> Maybe Inode
replacedBy tree = \case
  Remove d name -> Map.lookup name (namesIn tree d)
  Rename _ _ d' name' -> Map.lookup name' (namesIn tree d')
  _ -> Nothing

-- | The directories in which it changes names.
touchedBy :: Change -> [Inode]
touchedBy = \case
  CreateFile d _ _ -> [d]
  CreateFolder d _ _ -> [d]
  Remove d _ -> [d]
  Rename d _ d' _ -> [d, d']

-- | Where a path leads.
data Found
  = -- | To a name in a directory, which may be there; the flag tells whether the path ends
    -- with a slash.
    Named !Inode !ByteString !(Maybe Inode) !Bool
  | -- | To a directory that is not named by the path's last part, which is this: empty, dot or
    -- dot-dot.
    Itself !Inode !ByteString

-- | What is there.
foundInode :: Found -> Maybe Inode
foundInode = \case
  Named _ _ n _ -> n
  Itself n _ -> Just n

-- | What becomes of a symbolic link at the very end of a path. A slash behind it makes that
-- no end.
data Final
  = -- | It is followed.
    Followed
  | -- | The path leads to the link itself.
    LinkItself
  deriving stock (Eq, Show)

-- | Follow a path from a directory, and the symbolic links on the way: the function knows what
-- those say. More than 40 of them are a loop (@ELOOP@).
follow :: (Inode -> Maybe ByteString) -> Tree -> Inode -> Beneath -> Final -> ByteString -> Either Errno Found
follow saying tree start beneath final path
  | ByteString.null path = Left eNOENT
  | ByteString.length path >= 4096 = Left eNAMETOOLONG
  | not (isAbsolute path || isDirectory tree start) = Left eNOENT
  | otherwise = from start 0 0 (slashAtEnd path) path []
  where
    -- Go on with a path that was given, or with what a link says and the rest behind it: how
    -- deep beneath the start, after how many links, and whether all of it ends with a slash.
    from :: Inode -> Int -> Int -> Bool -> ByteString -> [ByteString] -> Either Errno Found
    from here depth links slash text rest
      | not (isAbsolute text) = go here depth links slash "" parts
      | beneath == StayBeneath = Left eXDEV
      | otherwise = go rootInode 0 links slash "" parts
      where
        parts = filter (not . ByteString.null) (Char8.split '/' text) <> rest
    go here _ _ _ end [] = Right (Itself here end)
    go here depth links slash _ (part : rest)
      | part == "." = go here depth links slash "." rest
      | part == ".." =
          if beneath == StayBeneath && depth == 0
            then Left eXDEV
            else go (parentOf tree here) (max 0 (depth - 1)) links slash ".." rest
      | ByteString.length part > 255 = Left eNAMETOOLONG
      | Just text <- there >>= saying,
        not (null rest) || slash || final == Followed =
          if links >= 40
            then Left eLOOP
            else from here depth (links + 1) (slash || (null rest && slashAtEnd text)) text rest
      | null rest = Right (Named here part there slash)
      | otherwise = case there of
          Nothing -> Left eNOENT
          Just n | isDirectory tree n -> go n (depth + 1) links slash "" rest
          Just _ -> Left eNOTDIR
      where
        there = Map.lookup part (namesIn tree here)
    isAbsolute = ByteString.isPrefixOf "/"
    slashAtEnd = ByteString.isSuffixOf "/"
