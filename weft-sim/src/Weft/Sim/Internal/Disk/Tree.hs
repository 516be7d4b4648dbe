{-# LANGUAGE OverloadedStrings #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Directories and paths of a simulated file system. Pure. Everything with a name that is no
-- directory is just a number; the caller knows what symbolic links say.
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
    PathTarget (..),
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
import Weft.Internal.Core.SystemCall (Beneath (..))

type Inode = Int

-- | The directories by number, each with its parent and its names.
newtype Tree = Tree (IntMap Folder)

data Folder = Folder !Inode !(Map ByteString Inode)

rootInode :: Inode
rootInode = 1

emptyTree :: Tree
emptyTree = Tree (IntMap.singleton rootInode (Folder rootInode Map.empty))

isDirectory :: Tree -> Inode -> Bool
isDirectory (Tree folders) n = IntMap.member n folders

namesIn :: Tree -> Inode -> Map ByteString Inode
namesIn (Tree folders) n = maybe Map.empty (\(Folder _ names) -> names) (IntMap.lookup n folders)

parentOf :: Tree -> Inode -> Inode
parentOf (Tree folders) n = maybe rootInode (\(Folder parent _) -> parent) (IntMap.lookup n folders)

-- | Is the first directory the second one or below it?
isWithin :: Tree -> Inode -> Inode -> Bool
isWithin tree n top = n == top || (n /= rootInode && isWithin tree (parentOf tree n) top)

pathsOf :: Tree -> IntMap ByteString
pathsOf tree = IntMap.insert rootInode "/" (IntMap.fromList (go "" rootInode))
  where
    go path n = concat [(m, there) : go there m | (name, m) <- Map.toList (namesIn tree n), let there = path <> "/" <> name]

data Change
  = -- | Something new; the flag: a directory.
    Create !Bool !Inode !ByteString !Inode
  | -- | A file or empty directory loses its name.
    Remove !Inode !ByteString
  | -- | What has the first name gets the second one, in place of what has that.
    Rename !Inode !ByteString !Inode !ByteString
  deriving stock (Eq, Show)

-- | The files concerned must be present.
applyChange :: Change -> Tree -> Tree
applyChange change tree@(Tree folders) = case change of
  Create folder d name n -> put d name n (if folder then Tree (IntMap.insert n (Folder d Map.empty) folders) else tree)
  Remove d name -> without (replacedBy tree change) (drop' d name tree)
  Rename d name d' name' -> case Map.lookup name (namesIn tree d) of
    Nothing -> tree
    Just n -> moved n d' (put d' name' n (drop' d name (without (replacedBy tree change) tree)))
  where
    on d f (Tree fs) = Tree (IntMap.adjust f d fs)
    put d name n = on d (\(Folder p names) -> Folder p (Map.insert name n names))
    drop' d name = on d (\(Folder p names) -> Folder p (Map.delete name names))
    moved n d = on n (\(Folder _ names) -> Folder d names)
    without gone (Tree fs) = Tree (maybe fs (`IntMap.delete` fs) gone)

-- | The file that loses its last name by the change.
replacedBy :: Tree -> Change -> Maybe Inode
replacedBy tree = \case
  Remove d name -> Map.lookup name (namesIn tree d)
  Rename _ _ d' name' -> Map.lookup name' (namesIn tree d')
  _ -> Nothing

touchedBy :: Change -> [Inode]
touchedBy = \case
  Create _ d _ _ -> [d]
  Remove d _ -> [d]
  Rename d _ d' _ -> [d, d']

data PathTarget
  = -- | To a name in a directory, which may exist; the flag tells of a slash at the end.
    Named !Inode !ByteString !(Maybe Inode) !Bool
  | -- | To a directory, by a path whose last part, which this is, is empty, dot or dot-dot.
    Itself !Inode !ByteString

foundInode :: PathTarget -> Maybe Inode
foundInode = \case
  Named _ _ n _ -> n
  Itself n _ -> Just n

-- | Whether a path leads through a symbolic link at its very end, without a slash after it.
data Final = Followed | LinkItself
  deriving stock (Eq, Show)

-- | Resolve a path from a directory, following symbolic links, whose texts the function knows.
-- More than 40 links are a loop (@ELOOP@).
follow :: (Inode -> Maybe ByteString) -> Tree -> Inode -> Beneath -> Final -> ByteString -> Either Errno PathTarget
follow saying tree start beneath final path
  | ByteString.null path = Left eNOENT
  | ByteString.length path >= 4096 = Left eNAMETOOLONG
  | not (isAbsolute path || isDirectory tree start) = Left eNOENT
  | otherwise = from start 0 0 (slashAtEnd path) path []
  where
    -- Go on with a text (the path or a link's) and the rest after it: the depth below the start,
    -- the number of links so far, and whether the whole ends with a slash.
    from :: Inode -> Int -> Int -> Bool -> ByteString -> [ByteString] -> Either Errno PathTarget
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
