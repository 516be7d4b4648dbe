-- |
-- Description : The content of a register
--
-- Keys, values and versions, with their binary form, which is the same on the wire and
-- in the log. Sizes are bounded where bytes are read, before anything is allocated.
module Replicated.Entry
  ( Key,
    Value,
    Version (..),
    Entry (..),

    -- * Sizes
    longestKey,
    longestValue,
    sizeFault,

    -- * Binary form
    putBytes,
    getBytes,
    decodeAll,
  )
where

import Control.Monad (when)
import Data.Binary (Binary (..))
import Data.Binary.Get (ByteOffset, Get, getByteString, getWord32be, runGetOrFail)
import Data.Binary.Put (Put, putByteString, putWord32be)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Lazy qualified as Lazy
import Data.Text (Text)
import Data.Text qualified as Text
import Data.Word (Word64)

-- | The name of a register.
type Key = ByteString

-- | The content of a register, as the client gives it.
type Value = ByteString

-- | Versions order the values of a register. Two clients may choose the same counter;
-- then the client decides, so that no two values have the same version.
data Version = Version
  { versionCounter :: !Word64,
    -- | The client, by the number that it drew.
    versionWriter :: !Word64
  }
  deriving stock (Eq, Ord, Show)

-- | A value and its version. Ordered by version.
data Entry = Entry
  { entryVersion :: !Version,
    entryValue :: !Value
  }
  deriving stock (Eq, Ord, Show)

-- | In bytes.
longestKey, longestValue :: Int
longestKey = 256
longestValue = 65536

-- | The fault in the size of a key or value, if there is one.
sizeFault :: Key -> Value -> Maybe Text
sizeFault key value
  | ByteString.length key > longestKey = Just (tooLong "a key" longestKey)
  | ByteString.length value > longestValue = Just (tooLong "a value" longestValue)
  | otherwise = Nothing

tooLong :: Text -> Int -> Text
tooLong what limit = what <> " has " <> Text.pack (show limit) <> " bytes at most"

instance Binary Version where
  put (Version counter writer) = put counter <> put writer
  get = Version <$> get <*> get

instance Binary Entry where
  put (Entry version value) = put version <> putBytes value
  get = Entry <$> get <*> getBytes "a value" longestValue

-- | Bytes, their number first.
putBytes :: ByteString -> Put
putBytes bytes = putWord32be (fromIntegral (ByteString.length bytes)) <> putByteString bytes

-- | Bytes of which there are not too many.
getBytes :: Text -> Int -> Get ByteString
getBytes what limit = do
  size <- fromIntegral <$> getWord32be
  when (size > limit) $ fail (Text.unpack (tooLong what limit))
  getByteString size

-- | All of the bytes, and nothing else, or what is wrong with them.
decodeAll :: (Binary a) => ByteString -> Either Text a
decodeAll bytes = case runGetOrFail get (Lazy.fromStrict bytes) of
  Right (rest, _, a)
    | Lazy.null rest -> Right a
    | otherwise -> Left (Text.pack (show (Lazy.length rest)) <> " bytes too many")
  Left (_, at :: ByteOffset, fault) -> Left (Text.pack fault <> " at byte " <> Text.pack (show at))
