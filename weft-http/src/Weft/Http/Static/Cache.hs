{-# OPTIONS_HADDOCK not-home #-}

-- | A cache of values by path, bounded in memory and descriptors. Reading is one look-up in an
-- immutable map, without a lock, from any worker. The oldest entry not used since it was last
-- considered is evicted first. When full, 'worthKeeping' keeps out what was not asked for lately.
--
-- == Note [Answers in order]
--
-- After a request was answered with what the file system had at its path, no later request for this
-- path is answered with what was there before:
--
--   * A request answered by the file system has replaced or removed the entry that was there, after it
--     looked and before it answers.
--   * An entry is marked before it leaves the map, and a marked one is not used, wherever it is known.
--   * A new entry is used only by a request that has compared it with the file itself, until such a
--     comparison has succeeded ('Weft.Http.Static.Codings.stillFresh'): what was read for it may be
--     older than an answer given before it was in the map.
--
-- So an entry used without a comparison was the state of the file while it was in the map, and all
-- answers with a later state have removed it.
module Weft.Http.Static.Cache
  ( Cache,
    Share (..),
    newCache,
    lookupCache,
    findCache,
    CacheEntry,
    keptValue,
    spare,
    worthKeeping,
    insertCache,
    deleteCache,
    reduceFiles,
    sweepFiles,
    cacheBytes,
    cacheFiles,
    cacheCount,
    Opened,
    openedFile,
    newOpened,
    holdOpened,
    releaseOpened,
    releasedLast,
    makingRoom,
    hasErrno,
  )
where

import Control.Concurrent.MVar (MVar, newMVar, withMVar)
import Control.Monad (filterM, foldM, guard, join, when)
import Control.Monad.Primitive (RealWorld)
import Data.Bits (shiftR, (.&.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.HashMap.Strict (HashMap)
import Data.HashMap.Strict qualified as HashMap
import Data.IORef
import Data.Primitive.PrimArray
import Data.Primitive.PrimVar
import Data.Sequence (Seq (..), (|>))
import Data.Sequence qualified as Seq
import Data.Word (Word16)
import Foreign.C.Error
import GHC.IO.Exception (IOException (ioe_errno))
import Weft
import Weft.File
import Weft.Http.Internal.Hash
import Weft.Mask (mask_)

data Cache a = Cache
  { cacheSecret :: {-# UNPACK #-} !Secret,
    -- | In bytes.
    cacheLimit :: !Int,
    -- | In descriptors.
    cacheMostFiles :: !Int,
    cacheLock :: !(MVar ()),
    cacheState :: !(IORef (Contents a)),
    -- | By a hash of the path, a mark of the last path not found.
    cacheSeen :: !(MutablePrimArray RealWorld Word16)
  }

data Share
  = -- | This number of bytes of memory.
    InMemory !Int
  | -- | One descriptor; its kilobyte or two of memory is not counted.
    OpenFile
  deriving stock (Eq, Show)

-- | The entries of one kind, in the order of consideration. Invariant: the queue has each key of the
-- kind in the map, perhaps others.
data ClockQueue = ClockQueue
  { lineQueue :: !(Seq Hashed),
    lineUsed :: !Int,
    lineCount :: !Int
  }

data Contents a = Contents
  { contentsMap :: !(HashMap Hashed (CacheEntry a)),
    contentsMemory :: !ClockQueue,
    contentsFiles :: !ClockQueue
  }

data CacheEntry a = CacheEntry
  { keptValue :: !a,
    keptKind :: !Kind,
    keptCost :: !Int,
    -- | 'unused', 'used', or for good 'removed'.
    keptUse :: {-# UNPACK #-} !(PrimVar RealWorld Int)
  }

-- | The use of an entry: was it used since it was last considered, or has it left the cache?
unused, used, removed :: Int
unused = 0
used = 1
removed = 2

data Kind = Memory | Files
  deriving stock (Eq)

line :: Kind -> Contents a -> ClockQueue
line = \case
  Memory -> contentsMemory
  Files -> contentsFiles

setLine :: Kind -> ClockQueue -> Contents a -> Contents a
setLine kind new contents = case kind of
  Memory -> contents {contentsMemory = new}
  Files -> contents {contentsFiles = new}

limitOf :: Cache a -> Kind -> Int
limitOf cache = \case
  Memory -> cacheLimit cache
  Files -> cacheMostFiles cache

newCache :: Secret -> Int -> Int -> IO (Cache a)
newCache secret limit files = do
  seen <- newPrimArray sightings
  setPrimArray seen 0 sightings 0
  lock <- newMVar ()
  let none = ClockQueue Seq.empty 0 0
  state <- newIORef (Contents HashMap.empty none none)
  pure (Cache secret (max 0 limit) (max 0 files) lock state seen)

-- | Entries of 'cacheSeen', a power of two.
sightings :: Int
sightings = 32_768

-- | The value of a path, which is then spared once.
lookupCache :: Cache a -> ByteString -> IO (Maybe a)
lookupCache cache key = findCache cache key >>= fmap join . traverse (\kept -> (keptValue kept <$) . guard <$> spare kept)

-- | The entry of a path. To find it is no use of it.
findCache :: Cache a -> ByteString -> IO (Maybe (CacheEntry a))
findCache cache key = do
  contents <- readIORef (cacheState cache)
  pure $! HashMap.lookup (hashed (cacheSecret cache) key) (contentsMap contents)

-- | An entry is used: it is spared once. 'False': it has left the cache, and must not be used.
spare :: CacheEntry a -> IO Bool
spare kept = do
  before <- readPrimVar (keptUse kept)
  -- Written only when it changes: the line is shared by the workers.
  if before == unused then (/= removed) <$> casInt (keptUse kept) unused used else pure (before == used)

-- | Should a value that was not found be kept? If there is room, or if it was asked for lately: many
-- files asked for once must not evict the few asked for often. May err, harmlessly.
worthKeeping :: Cache a -> Share -> ByteString -> IO Bool
worthKeeping cache share key
  | cost > limitOf cache kind = pure False
  | otherwise = do
      contents <- readIORef (cacheState cache)
      if lineUsed (line kind contents) + cost <= limitOf cache kind
        then pure True
        else do
          before <- readPrimArray (cacheSeen cache) place
          (before == mark) <$ writePrimArray (cacheSeen cache) place mark
  where
    (kind, cost) = costOf share key
    hash = hashOf (cacheSecret cache) key
    place = fromIntegral (hash `shiftR` 16) .&. (sightings - 1)
    mark = fromIntegral (hash `shiftR` 48) :: Word16

costOf :: Share -> ByteString -> (Kind, Int)
costOf share key = case share of
  -- With what the tables take beside the value.
  InMemory size -> (Memory, size + B.length key + 200)
  OpenFile -> (Files, 1)

-- | Keep a value. Returns what the cache does not hold: evicted and replaced values, or a too large one.
insertCache :: Cache a -> ByteString -> Share -> a -> IO [a]
insertCache cache key share value
  | cost > limitOf cache kind = (<> [value]) <$> deleteCache cache key
  | otherwise = changing cache $ \contents -> do
      use <- newPrimVar unused
      (others, replaced) <- remove own contents
      (room, gone) <- makeRoom kind (limitOf cache kind - cost) others
      let ClockQueue queue sum' count = line kind room
      pure
        ( (setLine kind (ClockQueue (queue |> own) (sum' + cost) (count + 1)) room)
            { contentsMap = HashMap.insert own (CacheEntry value kind cost use) (contentsMap room)
            },
          replaced <> gone
        )
  where
    -- The key given may share memory with a large buffer.
    !own = hashed (cacheSecret cache) (B.copy key)
    (kind, cost) = costOf share key

-- | Forget a path. Returns what was kept for it.
deleteCache :: Cache a -> ByteString -> IO [a]
deleteCache cache key = do
  there <- HashMap.member own . contentsMap <$> readIORef (cacheState cache)
  -- Nearly always there is none, and nothing to wait for.
  if there then changing cache (remove own) else pure []
  where
    !own = hashed (cacheSecret cache) key

-- | Evict entries with descriptors; the function maps their number to the number to keep.
reduceFiles :: Cache a -> (Int -> Int) -> IO [a]
reduceFiles cache left = changing cache $ \contents -> makeRoom Files (left (lineCount (contentsFiles contents))) contents

-- | Evict entries with descriptors that were not used since they were last considered.
sweepFiles :: Cache a -> IO [a]
sweepFiles cache = changing cache $ \contents -> do
  gone <- filterM (isUnused . snd) [(key, kept) | (key, kept) <- HashMap.toList (contentsMap contents), keptKind kept == Files]
  left <- foldM (\left (key, kept) -> tidy Files <$> without key kept left) contents gone
  pure (left, map (keptValue . snd) gone)

-- | Writers hold the lock for microseconds, never across a system call, so a worker may wait for it.
changing :: Cache a -> (Contents a -> IO (Contents a, [b])) -> IO [b]
changing cache change = withMVar (cacheLock cache) $ \() -> do
  (!new, gone) <- readIORef (cacheState cache) >>= change
  gone <$ atomicWriteIORef (cacheState cache) new

-- | The key stays in the queue, where 'makeRoom' skips it, unless too many such keys have gathered.
remove :: Hashed -> Contents a -> IO (Contents a, [a])
remove key contents = case HashMap.lookup key (contentsMap contents) of
  Nothing -> pure (contents, [])
  Just kept -> (\left -> (tidy (keptKind kept) left, [keptValue kept])) <$> without key kept contents

-- | Was an entry of the map not used since it was last considered? It is considered now.
isUnused :: CacheEntry a -> IO Bool
isUnused kept = (== unused) <$> readPrimVar (keptUse kept) <* writePrimVar (keptUse kept) unused

-- | The contents without this entry, which is marked.
without :: Hashed -> CacheEntry a -> Contents a -> IO (Contents a)
without key kept contents = do
  writePrimVar (keptUse kept) removed
  pure
    (setLine (keptKind kept) (old {lineUsed = lineUsed old - keptCost kept, lineCount = lineCount old - 1}) contents)
      { contentsMap = HashMap.delete key (contentsMap contents)
      }
  where
    old = line (keptKind kept) contents

-- | A key removed and inserted again is in the queue twice, and is only considered sooner.
tidy :: Kind -> Contents a -> Contents a
tidy kind contents
  | Seq.length (lineQueue old) > 2 * lineCount old + 64 =
      setLine kind old {lineQueue = Seq.fromList [key | (key, kept) <- HashMap.toList (contentsMap contents), keptKind kept == kind]} contents
  | otherwise = contents
  where
    old = line kind contents

-- | Evict entries of a kind until they use at most this much. It ends: each is spared at most once.
makeRoom :: Kind -> Int -> Contents a -> IO (Contents a, [a])
makeRoom kind limit = go []
  where
    go gone contents
      | lineUsed old <= limit = pure (contents, gone)
      | otherwise = case lineQueue old of
          Empty -> pure (contents, gone)
          key :<| rest -> case HashMap.lookup key (contentsMap contents) of
            Just kept | keptKind kept == kind -> do
              evicted <- isUnused kept
              if evicted
                then without key kept (setLine kind old {lineQueue = rest} contents) >>= go (keptValue kept : gone)
                else go gone (setLine kind old {lineQueue = rest |> key} contents)
            _ -> go gone (setLine kind old {lineQueue = rest} contents)
      where
        old = line kind contents

cacheBytes :: Cache a -> IO Int
cacheBytes cache = lineUsed . contentsMemory <$> readIORef (cacheState cache)

cacheFiles :: Cache a -> IO Int
cacheFiles cache = lineCount . contentsFiles <$> readIORef (cacheState cache)

cacheCount :: Cache a -> IO Int
cacheCount cache = HashMap.size . contentsMap <$> readIORef (cacheState cache)

-- | An open file and the number of its holders.
data Opened = Opened
  { -- | For holders only.
    openedFile :: !File,
    -- | Once 0 it stays 0: the file is being closed.
    openedHolders :: {-# UNPACK #-} !(PrimVar RealWorld Int)
  }

newOpened :: File -> IO Opened
newOpened file = Opened file <$> newPrimVar 1

-- | Hold the file once more; false if it was closed before.
holdOpened :: Opened -> IO Bool
holdOpened opened = readPrimVar (openedHolders opened) >>= go
  where
    go n
      | n <= 0 = pure False
      | otherwise = do
          found <- casInt (openedHolders opened) n (n + 1)
          if found == n then pure True else go found

-- | Release a hold. The last one closes the file, even when cancelled.
releaseOpened :: Opened -> Thread ()
releaseOpened opened = mask_ $ do
  lastOne <- liftIO (releasedLast opened)
  when lastOne (closeFile (openedFile opened))

-- | Open a file. Short of descriptors, the function closes half of a cache's files, and it tries again.
makingRoom :: Cache a -> ([a] -> Thread ()) -> Thread File -> Thread File
makingRoom cache close opening =
  opening `catch` \e ->
    (if hasErrno [eMFILE, eNFILE] e then liftIO (reduceFiles cache (`div` 2)) else pure []) >>= \case
      [] -> throwM e
      some -> close some >> makingRoom cache close opening

hasErrno :: [Errno] -> IOException -> Bool
hasErrno reasons e = ioe_errno e `elem` [Just code | Errno code <- reasons]

-- | Release a hold in 'IO'. True: the caller must close the file.
releasedLast :: Opened -> IO Bool
releasedLast opened = (== 1) <$> fetchSubInt (openedHolders opened) 1
