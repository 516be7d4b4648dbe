{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Small files in memory, large ones open
--
-- A cache of values by path, bounded in memory and descriptors. Reading is one look-up in an
-- immutable map, without a lock, from any worker. Second chance decides what to evict: the oldest
-- entry not used since it was last considered. When full, 'worthKeeping' keeps out what was not
-- asked for lately.
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
  )
where

import Control.Concurrent.MVar (MVar, newMVar, withMVar)
import Control.Monad (filterM, when)
import Control.Monad.Primitive (RealWorld)
import Data.Bits (shiftR, (.&.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Foldable qualified as Foldable
import Data.HashMap.Strict (HashMap)
import Data.HashMap.Strict qualified as HashMap
import Data.IORef
import Data.Primitive.PrimArray
import Data.Primitive.PrimVar
import Data.Sequence (Seq (..), (|>))
import Data.Sequence qualified as Seq
import Data.Word (Word16)
import Weft.Http.Internal.Hash

-- | A cache of values by path.
data Cache a = Cache
  { -- | In bytes.
    cacheLimit :: !Int,
    -- | In descriptors.
    cacheMostFiles :: !Int,
    cacheLock :: !(MVar ()),
    cacheState :: !(IORef (Contents a)),
    -- | By a hash of the path, a mark of the last path not found.
    cacheSeen :: !(MutablePrimArray RealWorld Word16)
  }

-- | The resource that a value uses up.
data Share
  = -- | This number of bytes of memory.
    InMemory !Int
  | -- | One descriptor; its kilobyte or two of memory is not counted.
    OpenFile
  deriving stock (Eq, Show)

-- | The entries of one kind. Invariant: the queue contains each key of this kind in the map, in the
-- order of consideration, and perhaps others; then the sum of the costs and the number of those.
data ClockQueue = ClockQueue
  { lineQueue :: !(Seq ByteString),
    lineUsed :: !Int,
    lineCount :: !Int
  }

data Contents a = Contents
  { contentsMap :: !(HashMap Hashed (CacheEntry a)),
    contentsMemory :: !ClockQueue,
    contentsFiles :: !ClockQueue
  }

-- | A value in a cache.
data CacheEntry a = CacheEntry
  { keptValue :: !a,
    keptKind :: !Kind,
    keptCost :: !Int,
    -- | 1 when it was used since it was last considered.
    keptUsed :: {-# UNPACK #-} !(PrimVar RealWorld Int)
  }

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

empty :: Contents a
empty = Contents HashMap.empty none none
  where
    none = ClockQueue Seq.empty 0 0

-- | An empty cache for the given numbers of bytes and of descriptors.
newCache :: Int -> Int -> IO (Cache a)
newCache limit files = do
  seen <- newPrimArray sightings
  setPrimArray seen 0 sightings 0
  lock <- newMVar ()
  state <- newIORef empty
  pure (Cache (max 0 limit) (max 0 files) lock state seen)

-- | Entries of 'cacheSeen', a power of two.
sightings :: Int
sightings = 32_768

-- | The value of a path, which is then spared once.
lookupCache :: Cache a -> ByteString -> IO (Maybe a)
lookupCache cache key = findCache cache key >>= traverse (\kept -> keptValue kept <$ spare kept)
{-# INLINE lookupCache #-}

-- | The entry of a path. To find it is no use of it.
findCache :: Cache a -> ByteString -> IO (Maybe (CacheEntry a))
findCache cache key = do
  contents <- readIORef (cacheState cache)
  pure $! HashMap.lookup (Hashed key) (contentsMap contents)
{-# INLINE findCache #-}

-- | An entry is used: it is spared once. One that was evicted meanwhile is not there any more.
spare :: CacheEntry a -> IO ()
spare kept = do
  used <- readPrimVar (keptUsed kept)
  -- Written only when it changes: the line is shared by the workers.
  when (used == 0) (writePrimVar (keptUsed kept) 1)

-- | Should a value that was not found be kept? If there is room, or if it was asked for lately:
-- otherwise many files asked for once would evict the few asked for often. May err by a collision
-- of hashes or a race, which does no harm.
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
    hashed = hashOf maxBound key
    place = fromIntegral (hashed `shiftR` 16) .&. (sightings - 1)
    mark = fromIntegral (hashed `shiftR` 48) :: Word16

costOf :: Share -> ByteString -> (Kind, Int)
costOf share key = case share of
  -- With what the tables take beside the value.
  InMemory size -> (Memory, size + B.length key + 200)
  OpenFile -> (Files, 1)

-- | Keep a value, evicting others as needed. Returns what the cache does not hold any more: the
-- evicted and replaced values, or this one if it is larger than the whole cache.
insertCache :: Cache a -> ByteString -> Share -> a -> IO [a]
insertCache cache key share value
  | cost > limitOf cache kind = (<> [value]) <$> deleteCache cache key
  | otherwise = changing cache $ \contents -> do
      used <- newPrimVar 0
      let (others, replaced) = remove key contents
      (room, gone) <- makeRoom kind (limitOf cache kind - cost) others
      let ClockQueue queue sum' count = line kind room
      pure
        ( (setLine kind (ClockQueue (queue |> own) (sum' + cost) (count + 1)) room)
            { contentsMap = HashMap.insert (Hashed own) (CacheEntry value kind cost used) (contentsMap room)
            },
          replaced <> gone
        )
  where
    -- The key given may share memory with a large buffer.
    own = B.copy key
    (kind, cost) = costOf share key

-- | Forget a path. Returns what was kept for it.
deleteCache :: Cache a -> ByteString -> IO [a]
deleteCache cache key = changing cache (pure . remove key)

-- | Evict entries with descriptors; the function maps their number to the number to keep.
reduceFiles :: Cache a -> (Int -> Int) -> IO [a]
reduceFiles cache left = changing cache $ \contents -> makeRoom Files (left (lineCount (contentsFiles contents))) contents

-- | Evict entries with descriptors that were not used since they were last considered.
sweepFiles :: Cache a -> IO [a]
sweepFiles cache = changing cache $ \contents -> do
  unused <- filterM (isUnused . snd) [(key, kept) | (Hashed key, kept) <- HashMap.toList (contentsMap contents), keptKind kept == Files]
  pure (Foldable.foldl' (\left (key, kept) -> tidy Files (without key kept left)) contents unused, map (keptValue . snd) unused)
  where
    isUnused kept = (== 0) <$> readPrimVar (keptUsed kept) <* writePrimVar (keptUsed kept) 0

-- | Writers hold the lock for microseconds, never across a system call, so a worker may wait for it.
changing :: Cache a -> (Contents a -> IO (Contents a, [b])) -> IO [b]
changing cache change = withMVar (cacheLock cache) $ \() -> do
  (!new, gone) <- readIORef (cacheState cache) >>= change
  gone <$ atomicWriteIORef (cacheState cache) new

-- | The key stays in the queue, where 'makeRoom' skips it, unless too many such keys have gathered.
remove :: ByteString -> Contents a -> (Contents a, [a])
remove key contents = case HashMap.lookup (Hashed key) (contentsMap contents) of
  Nothing -> (contents, [])
  Just kept -> (tidy (keptKind kept) (without key kept contents), [keptValue kept])

without :: ByteString -> CacheEntry a -> Contents a -> Contents a
without key kept contents =
  (setLine (keptKind kept) (old {lineUsed = lineUsed old - keptCost kept, lineCount = lineCount old - 1}) contents)
    { contentsMap = HashMap.delete (Hashed key) (contentsMap contents)
    }
  where
    old = line (keptKind kept) contents

-- | A key removed and inserted again is in the queue twice, and is only considered sooner.
tidy :: Kind -> Contents a -> Contents a
tidy kind contents
  | Seq.length (lineQueue old) > 2 * lineCount old + 64 =
      setLine kind old {lineQueue = Seq.fromList [key | (Hashed key, kept) <- HashMap.toList (contentsMap contents), keptKind kept == kind]} contents
  | otherwise = contents
  where
    old = line kind contents

-- | Evict entries of a kind until they use at most this much, and return them. Each is spared at
-- most once, so this ends.
makeRoom :: Kind -> Int -> Contents a -> IO (Contents a, [a])
makeRoom kind limit = go []
  where
    go gone contents
      | lineUsed old <= limit = pure (contents, gone)
      | otherwise = case lineQueue old of
          Empty -> pure (contents, gone)
          key :<| rest -> case HashMap.lookup (Hashed key) (contentsMap contents) of
            Just kept | keptKind kept == kind -> do
              used <- readPrimVar (keptUsed kept)
              writePrimVar (keptUsed kept) 0
              if used == 1
                then go gone (setLine kind old {lineQueue = rest |> key} contents)
                else go (keptValue kept : gone) (without key kept (setLine kind old {lineQueue = rest} contents))
            _ -> go gone (setLine kind old {lineQueue = rest} contents)
      where
        old = line kind contents

-- | The bytes that the entries in memory are counted for.
cacheBytes :: Cache a -> IO Int
cacheBytes cache = lineUsed . contentsMemory <$> readIORef (cacheState cache)

-- | The number of entries with a descriptor.
cacheFiles :: Cache a -> IO Int
cacheFiles cache = lineCount . contentsFiles <$> readIORef (cacheState cache)

-- | The number of entries.
cacheCount :: Cache a -> IO Int
cacheCount cache = HashMap.size . contentsMap <$> readIORef (cacheState cache)
