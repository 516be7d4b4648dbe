-- |
-- Description : The bytes of a log
--
-- A header, and batches of records. A batch is a mark, the size of its records, a checksum,
-- and the records.
module Replicated.LogFormat (Record, header, encodeBatch, scan, LogDamaged (..)) where

import Control.Exception (Exception (..))
import Control.Monad (replicateM)
import Data.Binary (Binary (..), encode)
import Data.Binary.Get (getWord32be, getWord64be, runGet)
import Data.Binary.Put (putWord32be, putWord64be, runPut)
import Data.Bits (xor)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Lazy qualified as Lazy
import Data.Maybe (isJust)
import Data.Word (Word64)
import Replicated.Entry

-- | A register and what it holds.
type Record = (Key, Entry)

-- | A log that was spoilt other than by a crash.
newtype LogDamaged = LogDamaged String
  deriving stock (Eq)

instance Show LogDamaged where
  show (LogDamaged how) = "the log is damaged: " <> how

instance Exception LogDamaged

-- | The first bytes of a log.
header :: ByteString
header = "weft-kv log, format 1\n"

mark :: ByteString
mark = "\xF0log"

newtype Batch = Batch [Record]

instance Binary Batch where
  put (Batch records) = putWord32be (fromIntegral (length records)) <> foldMap putRecord records
    where
      putRecord (key, entry) = putBytes key <> put entry
  get = do
    count <- fromIntegral <$> getWord32be
    Batch <$> replicateM count ((,) <$> getBytes "a key" longestKey <*> get)

-- | The bytes of a batch that begins at an offset of the log.
encodeBatch :: Int -> [Record] -> ByteString
encodeBatch at records = mark <> Lazy.toStrict (runPut sizeAndSum) <> body
  where
    body = Lazy.toStrict (encode (Batch records))
    sizeAndSum = putWord32be (fromIntegral (ByteString.length body)) <> putWord64be (checksum at body)

-- | The records in the bytes of a log, and how many of the bytes these are.
scan :: ByteString -> Either LogDamaged ([Record], Int)
scan bytes
  | not (header `ByteString.isPrefixOf` bytes) = Left (LogDamaged "it does not begin as a log does")
  | otherwise = go (ByteString.length header) []
  where
    go at found = case batchAt at bytes of
      Just (records, next) -> go next (records : found)
      Nothing
        | any (isJust . (`batchAt` bytes)) (marksAfter at) ->
            Left (LogDamaged ("a batch at byte " <> show at <> " is spoilt, and whole ones follow"))
        | otherwise -> Right (concat (reverse found), at)
    marksAfter at = case ByteString.breakSubstring mark (ByteString.drop (at + 1) bytes) of
      (before, rest)
        | ByteString.null rest -> []
        | otherwise -> let here = at + 1 + ByteString.length before in here : marksAfter here

-- | The whole batch at an offset, and where it ends.
batchAt :: Int -> ByteString -> Maybe ([Record], Int)
batchAt at bytes
  | mark `ByteString.isPrefixOf` rest,
    ByteString.length rest >= 16,
    ByteString.length body == size,
    checksum at body == expected,
    Right (Batch records) <- decodeAll body =
      Just (records, at + 16 + size)
  | otherwise = Nothing
  where
    rest = ByteString.drop at bytes
    (size, expected) = runGet ((,) . fromIntegral <$> getWord32be <*> getWord64be) (Lazy.fromStrict (ByteString.drop 4 rest))
    body = ByteString.take size (ByteString.drop 16 rest)

-- | Fowler, Noll and Vo's hash, begun with the offset and the size, so that a batch is
-- whole only where it was written. No change of one byte goes unnoticed: each step is a
-- bijection.
checksum :: Int -> ByteString -> Word64
checksum at body = ByteString.foldl' step (step (step 0xcbf29ce484222325 at) (ByteString.length body)) body
  where
    step :: (Integral a) => Word64 -> a -> Word64
    step hash n = (hash `xor` fromIntegral n) * 0x100000001b3
