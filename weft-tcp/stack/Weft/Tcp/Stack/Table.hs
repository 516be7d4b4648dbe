{-# LANGUAGE MagicHash #-}
{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : A table of records by a part of them
--
-- The connections and sockets of a stack, millions perhaps. A record has its key in itself, so that an entry takes
-- some 18 bytes. Changed by one OS thread at a time, and read by any meanwhile.
module Weft.Tcp.Stack.Table
  ( Table,
    newTable,
    size,
    lookup,
    lookupBy,
    insert,
    delete,
    toList,
  )
where

import Control.Monad (void, when)
import Control.Monad.Primitive (RealWorld)
import Data.Bits (shiftL, (.&.))
import Data.Foldable qualified as Foldable
import Data.Primitive.Array
import Data.Primitive.MutVar
import Data.Primitive.SmallArray
import GHC.Exts (unsafeCoerce#)
import Prelude hiding (lookup)

-- Note [Linear hashing]
-- ~~~~~~~~~~~~~~~~~~~~~
-- Litwin 1980. There are n buckets, 2^k <= n < 2^(k+1). A record is in bucket (hash mod 2^(k+1)) if there is one of
-- that number, and else in bucket (hash mod 2^k). When there are more than 'load' records to a bucket, bucket
-- (n - 2^k) is divided: part of it becomes bucket n. So the table grows by one bucket at a time, without a pause; it
-- does not shrink.
--
-- A bucket is an immutable array, and a change writes another: a reader on another OS thread sees each bucket whole. Of a
-- division it may see any part: 'divide' fills the new bucket, then publishes n + 1, and then takes from the old bucket.
-- Three things follow for a record that is in the table all the while:
--
--   1. It is in one of the buckets that the number says, at every moment: in both, between the last two steps.
--   2. A reader that does not find it has a number from before a division, and looked after the third step, or in an array
--      that was replaced since. Either way a greater number was published before it looked. So 'lookup' believes
--      a miss only if it then reads the same number; it never falls, and the array is replaced only with it.
--   3. What 'toList' has missed is in buckets that were added since it read the number. So it goes on with those until
--      there are no more, and may see a record twice.
--
-- A shard of a stack relies on the second: to miss a record of another would be a false EBADF or a false reset
-- (Note [Shards] in "Weft.Tcp.Stack.Shards").
--
-- The outer array is frozen but for the instant of a write, although the type says mutable, so that minor collections
-- do not look at it (Note [Why chunks, and why frozen ones] in "Weft.Internal.Data.Slots"). Thawing is what tells the
-- collector of the write, and freezing comes after it.

-- | Records with keys.
data Table k v = Table
  { -- | The hash of a key, which stays the same while the table has a record. Not negative.
    tableHash :: !(k -> IO Int),
    tableKey :: !(v -> k),
    tableBuckets :: {-# UNPACK #-} !(MutVar RealWorld (Buckets v))
  }

-- | How many records there are, how many buckets, the power of two that is not more, and the buckets.
data Buckets v = Buckets !Int !Int !Int !(MutableArray RealWorld (SmallArray v))

-- | Records to a bucket, on average.
load :: Int
load = 6

-- | An empty one, by how to hash a key, and the key of a record.
newTable :: (k -> IO Int) -> (v -> k) -> IO (Table k v)
newTable hash key = Table hash key <$> (newFrozen 1 >>= newMutVar . Buckets 0 1 1)

-- | How many records there are.
size :: Table k v -> IO Int
size t = (\(Buckets records _ _ _) -> records) <$> readMutVar (tableBuckets t)

bucketOf :: Int -> Int -> Int -> Int
bucketOf n half hash
  | i < n = i
  | otherwise = hash .&. (half - 1)
  where
    i = hash .&. (2 * half - 1)

-- | The record with this key. From any OS thread.
lookup :: (Eq k) => Table k v -> k -> IO (Maybe v)
lookup t k = lookupBy (\v -> tableKey t v == k) t k

-- | 'lookup' by whether a record has the key. Inlined, so that GHC knows what that asks: some 300 instructions of a round
-- trip.
lookupBy :: (v -> Bool) -> Table k v -> k -> IO (Maybe v)
lookupBy has t k = search
  where
    search = do
      Buckets _ n half array <- readMutVar (tableBuckets t)
      hash <- tableHash t k
      bucket <- readArray array (bucketOf n half hash)
      let go i
            | i == sizeofSmallArray bucket = do
                -- Note [Linear hashing].
                Buckets _ now _ _ <- readMutVar (tableBuckets t)
                if now == n then pure Nothing else search
            | otherwise = do
                v <- indexSmallArrayM bucket i
                if has v then pure (Just v) else go (i + 1)
      go 0
{-# INLINE lookupBy #-}

-- | Enter a record. It replaces one with the same key.
insert :: (Eq k) => Table k v -> v -> IO ()
insert t !v = do
  hash <- tableHash t (tableKey t v)
  Buckets records n half array <- readMutVar (tableBuckets t)
  let i = bucketOf n half hash
  bucket <- readArray array i
  let others = without (tableKey t) (tableKey t v) bucket
      added = sizeofSmallArray others + 1 - sizeofSmallArray bucket
  writeFrozen array i (smallArrayFromListN (sizeofSmallArray others + 1) (v : Foldable.toList others))
  writeMutVar (tableBuckets t) (Buckets (records + added) n half array)
  when (records + added > load * n) (divide t)

-- | Remove the record with this key, if there is one.
delete :: (Eq k) => Table k v -> k -> IO ()
delete t k = do
  hash <- tableHash t k
  Buckets records n half array <- readMutVar (tableBuckets t)
  let i = bucketOf n half hash
  bucket <- readArray array i
  let others = without (tableKey t) k bucket
  writeFrozen array i others
  writeMutVar (tableBuckets t) (Buckets (records + sizeofSmallArray others - sizeofSmallArray bucket) n half array)

-- | All records. From another OS thread: those that were not changed meanwhile, and perhaps some of them twice.
toList :: Table k v -> IO [v]
toList t = concat <$> from 0
  where
    from first = do
      Buckets _ n _ array <- readMutVar (tableBuckets t)
      buckets <- mapM (fmap Foldable.toList . readArray array) [first .. n - 1]
      if null buckets then pure [] else (buckets <>) <$> from n

without :: (Eq k) => (v -> k) -> k -> SmallArray v -> SmallArray v
without key k bucket
  | null bucket = bucket
  | otherwise = smallArrayFromList (filter ((/= k) . key) (Foldable.toList bucket))

-- One bucket more.
divide :: Table k v -> IO ()
divide t = do
  Buckets records n half array <- readMutVar (tableBuckets t)
  bucket <- readArray array (n - half)
  hashed <- mapM (\v -> (,v) <$> tableHash t (tableKey t v)) (Foldable.toList bucket)
  let going hash = bucketOf (n + 1) half' hash == n
      half' = if n + 1 == 2 * half then 2 * half else half
  array' <- if n < sizeofMutableArray array then pure array else grown array
  writeFrozen array' n (smallArrayFromList [v | (hash, v) <- hashed, going hash])
  writeMutVar (tableBuckets t) (Buckets records (n + 1) half' array')
  writeFrozen array' (n - half) (smallArrayFromList [v | (hash, v) <- hashed, not (going hash)])
  where
    grown array = do
      new <- newArray (sizeofMutableArray array `shiftL` 1) emptySmallArray
      copyMutableArray new 0 array 0 (sizeofMutableArray array)
      new <$ unsafeFreezeArray new

newFrozen :: Int -> IO (MutableArray RealWorld (SmallArray v))
newFrozen n = do
  array <- newArray n emptySmallArray
  array <$ unsafeFreezeArray array

writeFrozen :: MutableArray RealWorld (SmallArray v) -> Int -> SmallArray v -> IO ()
writeFrozen (MutableArray array) i !bucket = do
  thawed <- unsafeThawArray (Array (unsafeCoerce# array))
  writeArray thawed i bucket
  void (unsafeFreezeArray thawed)
