-- |
-- Description : The messages between clients and replicas
--
-- A message is a length of four bytes, and a body of that length.
module Replicated.Message
  ( Request (..),
    Reply (..),

    -- * As bytes
    encodeMessage,
    decodeMessage,
    longestMessage,
  )
where

import Data.Binary (Binary (..), encode, getWord8, putWord8)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Lazy qualified as Lazy
import Data.Text (Text)
import Data.Text.Encoding (decodeUtf8Lenient, encodeUtf8)
import Data.Word (Word32)
import Replicated.Entry

-- | A request of a client to a replica.
data Request
  = -- | What do you hold for this key?
    Read !Key
  | -- | Hold this, unless you hold something newer. Doing it twice is doing it once.
    Store !Key !Entry
  deriving stock (Eq, Show)

-- | The answer of a replica.
data Reply
  = -- | What it holds.
    Found !(Maybe Entry)
  | -- | It is on the disk: this, or something newer.
    Stored
  | -- | It could not do it, and why.
    Refused !Text
  deriving stock (Eq, Show)

instance Binary Request where
  put = \case
    Read key -> putWord8 1 <> putBytes key
    Store key entry -> putWord8 2 <> putBytes key <> put entry
  get =
    getWord8 >>= \case
      1 -> Read <$> getBytes "a key" longestKey
      2 -> Store <$> getBytes "a key" longestKey <*> get
      tag -> fail ("there is no request " <> show tag)

instance Binary Reply where
  put = \case
    Found Nothing -> putWord8 1
    Found (Just entry) -> putWord8 2 <> put entry
    Stored -> putWord8 3
    Refused why -> putWord8 4 <> putBytes (ByteString.take longestReason (encodeUtf8 why))
  get =
    getWord8 >>= \case
      1 -> pure (Found Nothing)
      2 -> Found . Just <$> get
      3 -> pure Stored
      4 -> Refused . decodeUtf8Lenient <$> getBytes "a reason" longestReason
      tag -> fail ("there is no reply " <> show tag)

longestReason :: Int
longestReason = 1000

-- | The greatest size of a body, in bytes.
longestMessage :: Int
longestMessage = longestKey + longestValue + 64

-- | With the length in front.
encodeMessage :: (Binary a) => a -> ByteString
encodeMessage message = Lazy.toStrict (encode (fromIntegral (Lazy.length body) :: Word32) <> body)
  where
    body = encode message

-- | A body, without the length.
decodeMessage :: (Binary a) => ByteString -> Either Text a
decodeMessage = decodeAll
