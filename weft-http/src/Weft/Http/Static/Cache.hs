-- |
-- Description : Small files in memory
-- Stability   : not home
--
-- A cache of values by path, bounded by the sum of their sizes. Reading is one look
-- into an immutable map, without a lock, from any worker. What goes first when room
-- is needed is decided by second chance: the oldest entry that was not used since it
-- was last considered.
module Weft.Http.Static.Cache
  ( Cache,
    newCache,
    lookupCache,
    insertCache,
    deleteCache,
    cacheBytes,
    cacheCount,
  )
where

import Control.Concurrent.MVar (MVar, newMVar, withMVar)
import Control.Monad (when)
import Control.Monad.Primitive (RealWorld)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.HashMap.Strict (HashMap)
import Data.HashMap.Strict qualified as HashMap
import Data.IORef
import Data.Primitive.PrimVar
import Data.Sequence (Seq (..), (|>))
import Data.Sequence qualified as Seq

-- | A cache of values by path.
data Cache a = Cache
  { -- | In bytes.
    cacheLimit :: !Int,
    cacheLock :: !(MVar ()),
    cacheState :: !(IORef (Contents a))
  }

-- | Invariant: the queue names each key of the map, in the order in which they are
-- considered, and perhaps keys that are no longer there; 'contentsBytes' is the sum
-- of the sizes in the map.
data Contents a = Contents
  { contentsMap :: !(HashMap ByteString (Kept a)),
    contentsQueue :: !(Seq ByteString),
    contentsBytes :: !Int
  }

data Kept a = Kept
  { keptValue :: !a,
    keptSize :: !Int,
    -- | 1 when it was used since it was last considered.
    keptUsed :: {-# UNPACK #-} !(PrimVar RealWorld Int)
  }

-- | An empty cache for so many bytes.
newCache :: Int -> IO (Cache a)
newCache limit = Cache (max 0 limit) <$> newMVar () <*> newIORef (Contents HashMap.empty Seq.empty 0)

-- | The value of a path, which is then spared once.
lookupCache :: Cache a -> ByteString -> IO (Maybe a)
lookupCache cache key = do
  contents <- readIORef (cacheState cache)
  case HashMap.lookup key (contentsMap contents) of
    Nothing -> pure Nothing
    Just kept -> do
      used <- readPrimVar (keptUsed kept)
      -- Written only when it changes: the line is shared by the workers.
      when (used == 0) (writePrimVar (keptUsed kept) 1)
      pure (Just (keptValue kept))
{-# INLINE lookupCache #-}

-- | Keep a value that takes so many bytes, throwing others out as needed. A value
-- larger than the whole cache is not kept.
insertCache :: Cache a -> ByteString -> Int -> a -> IO ()
insertCache cache key size value
  | cost > cacheLimit cache = deleteCache cache key
  | otherwise = changing cache $ \contents -> do
      used <- newPrimVar 0
      room <- makeRoom (cacheLimit cache - cost) (remove key contents)
      pure
        room
          { contentsMap = HashMap.insert own (Kept value cost used) (contentsMap room),
            contentsQueue = contentsQueue room |> own,
            contentsBytes = contentsBytes room + cost
          }
  where
    -- The key given may share memory with a large buffer.
    own = B.copy key
    -- What the tables take beside the value.
    cost = size + B.length key + 200

-- | Forget a path.
deleteCache :: Cache a -> ByteString -> IO ()
deleteCache cache key = changing cache (pure . remove key)

-- | Writers take turns; they hold the lock for microseconds, never across a system
-- call, so a worker may wait for it.
changing :: Cache a -> (Contents a -> IO (Contents a)) -> IO ()
changing cache change = withMVar (cacheLock cache) $ \() ->
  readIORef (cacheState cache) >>= change >>= \new -> new `seq` atomicWriteIORef (cacheState cache) new

-- | The key stays in the queue, where 'makeRoom' passes over it, unless too many
-- such keys have gathered.
remove :: ByteString -> Contents a -> Contents a
remove key contents = case HashMap.lookup key (contentsMap contents) of
  Nothing -> contents
  Just kept ->
    tidy
      contents
        { contentsMap = HashMap.delete key (contentsMap contents),
          contentsBytes = contentsBytes contents - keptSize kept
        }

-- | A key that was removed and inserted again stands twice in the queue, which only
-- lets it be considered sooner.
tidy :: Contents a -> Contents a
tidy contents
  | Seq.length (contentsQueue contents) > 2 * HashMap.size (contentsMap contents) + 64 =
      contents {contentsQueue = Seq.fromList (HashMap.keys (contentsMap contents))}
  | otherwise = contents

-- | Throw entries out until at most so many bytes are left. Each is spared at most
-- once, so this ends.
makeRoom :: Int -> Contents a -> IO (Contents a)
makeRoom limit contents
  | contentsBytes contents <= limit = pure contents
  | otherwise = case contentsQueue contents of
      Empty -> pure contents
      key :<| rest -> case HashMap.lookup key (contentsMap contents) of
        Nothing -> makeRoom limit contents {contentsQueue = rest}
        Just kept -> do
          used <- readPrimVar (keptUsed kept)
          writePrimVar (keptUsed kept) 0
          makeRoom limit $
            if used == 1
              then contents {contentsQueue = rest |> key}
              else
                contents
                  { contentsMap = HashMap.delete key (contentsMap contents),
                    contentsQueue = rest,
                    contentsBytes = contentsBytes contents - keptSize kept
                  }

-- | The bytes that the entries are counted for.
cacheBytes :: Cache a -> IO Int
cacheBytes cache = contentsBytes <$> readIORef (cacheState cache)

-- | The number of entries.
cacheCount :: Cache a -> IO Int
cacheCount cache = HashMap.size . contentsMap <$> readIORef (cacheState cache)
