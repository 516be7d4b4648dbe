{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | A line of an access log, rendered on the worker for each request. Pure.
--
-- == Note [Measured pieces]
--
-- Log lines wait in a queue and should take no more memory than their text, so a piece, unlike a
-- builder of @bytestring@, knows its length before it is written.
module Weft.Http.AccessLog.Line
  ( LogFormat (..),
    render,
    Stamp (..),
    stampOf,
  )
where

import Control.Monad (foldM, void, (>=>))
import Data.Bits (unsafeShiftR, (.&.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Internal qualified as I
import Data.ByteString.Unsafe qualified as U
import Data.Int (Int64)
import Data.Word (Word8)
import Foreign.Marshal.Utils (copyBytes)
import Foreign.Ptr (Ptr, castPtr, plusPtr)
import Foreign.Storable (poke)
import Weft.Http.Date (HttpTime (..), formatDate, formatMinute)
import Weft.Http.Internal.Address (Address (..), addressOf, renderAddress, unmapped)
import Weft.Http.Internal.Ascii (decimalWidth, pokeDecimal)
import Weft.Http.Server.Types

-- | The format of a line.
data LogFormat
  = -- | The common log format: client, two dashes, time, request or a dash, status, octets; then the
    -- duration in microseconds.
    Common
  | -- | 'Common' with referrer and user agent, in quotes, before the duration.
    Combined
  | -- | A JSON object, without unknown members. @docs\/operating.md@ lists the members.
    Json
  deriving stock (Eq, Show, Enum, Bounded)

-- | A second in the notations of the formats.
data Stamp = Stamp
  { stampSecond :: !Int64,
    -- | @21/Nov/2026:08:53:34 +0000@.
    stampClock :: !ByteString,
    -- | @2026-11-21T08:53:34Z@ (RFC 3339).
    stampIso :: !ByteString
  }

-- | Assembled from @Sat, 21 Nov 2026 08:53:34 GMT@ and @2026-11-21 08:53@.
stampOf :: Int64 -> Stamp
stampOf second =
  Stamp
    { stampSecond = second,
      stampClock = B.concat [part 5 2, "/", part 8 3, "/", part 12 4, ":", part 17 8, " +0000"],
      stampIso = B.concat [B.take 10 (formatMinute time), "T", part 17 8, "Z"]
    }
  where
    time = HttpTime second
    date = formatDate time
    part from count = B.take count (B.drop from date)

-- | Render one line, with its line end. The client's strings are escaped: no line end or quote in them.
render :: LogFormat -> Stamp -> Entry -> ByteString
render format stamp entry = case format of
  Common -> assemble (common stamp entry <> duration entry <> bytes "\n")
  Combined ->
    assemble $
      common stamp entry
        <> bytes "\""
        <> field "referer"
        <> bytes "\" \""
        <> field "user-agent"
        <> bytes "\" "
        <> duration entry
        <> bytes "\n"
  Json -> assemble (json stamp entry)
  where
    field name = maybe (bytes "-") quotable (entryRequest entry >>= requestField name)

-- | The part that 'Common' and 'Combined' share, with a final space.
common :: Stamp -> Entry -> Piece
common stamp entry =
  client entry
    <> bytes " - - ["
    <> bytes (stampClock stamp)
    <> bytes "] \""
    <> maybe (bytes "-") request (entryRequest entry)
    <> bytes "\" "
    <> number (fromIntegral (statusCode (entryStatus entry)))
    <> bytes " "
    <> number (entryBytes entry)
    <> bytes " "
  where
    request r = quotable (methodName (requestMethod r)) <> bytes " " <> quotable (requestTarget r) <> bytes " " <> bytes (versionName r)

json :: Stamp -> Entry -> Piece
json stamp entry =
  bytes "{\"time\":\""
    <> bytes (stampIso stamp)
    <> bytes "\",\"client\":\""
    <> client entry
    <> bytes "\""
    <> maybe mempty request (entryRequest entry)
    <> bytes ",\"status\":"
    <> number (fromIntegral (statusCode (entryStatus entry)))
    <> bytes ",\"bytes\":"
    <> number (entryBytes entry)
    <> bytes ",\"duration_us\":"
    <> duration entry
    <> text ",\"tls\":\"" (securityVersion <$> (entryRequest entry >>= clientSecurity . requestClient))
    <> bytes "}\n"
  where
    request r =
      text ",\"method\":\"" (Just (methodName (requestMethod r)))
        <> text ",\"target\":\"" (Just (requestTarget r))
        <> text ",\"version\":\"" (Just (versionName r))
        <> text ",\"host\":\"" (requestHost r)
        <> text ",\"referer\":\"" (requestField "referer" r)
        <> text ",\"user_agent\":\"" (requestField "user-agent" r)
    text name = maybe mempty (\value -> bytes name <> jsonText value <> bytes "\"")

versionName :: Request -> ByteString
versionName r = case requestVersion r of Http10 -> "HTTP/1.0"; Http11 -> "HTTP/1.1"

-- | The address without its port; mapped IPv4 as IPv4. Unix-domain sockets have none.
client :: Entry -> Piece
client entry = case unmapped <$> addressOf (entryPeer entry) of
  Nothing -> bytes "unix:"
  Just (IPv4 n) -> part 24 n <> bytes "." <> part 16 n <> bytes "." <> part 8 n <> bytes "." <> part 0 n
  Just address -> bytes (renderAddress address)
  where
    part by n = number (fromIntegral (n `unsafeShiftR` by .&. 0xff))

-- | In microseconds.
duration :: Entry -> Piece
duration entry = number (entryDuration entry `quot` 1000)

-- | A length, and a writer of that many bytes that returns the position after them.
data Piece = Piece !Int (Ptr Word8 -> IO (Ptr Word8))

instance Semigroup Piece where
  Piece m f <> Piece n g = Piece (m + n) (f >=> g)

instance Monoid Piece where
  mempty = Piece 0 pure

assemble :: Piece -> ByteString
assemble (Piece size write) = I.unsafeCreate size (void . write)

bytes :: ByteString -> Piece
bytes text = Piece (B.length text) $ \p -> U.unsafeUseAsCStringLen text $ \(from, n) -> (p `plusPtr` n) <$ copyBytes p (castPtr from) n

-- | A number in decimal; negative numbers as 0.
number :: Int64 -> Piece
number n = Piece (decimalWidth n) (\p -> (p `plusPtr` decimalWidth n) <$ pokeDecimal p n)

-- | Text for a quoted part: a backslash before quotes and backslashes, @\\xhh@ outside visible ASCII.
quotable :: ByteString -> Piece
quotable text = if isPlain text then bytes text else escaping (\b -> b < 0x20 || b >= 0x7f) [0x5c, 0x78] text

-- | Text for a JSON string: @\\u00hh@ for control characters, and a backslash before quotes and
-- backslashes. UTF-8 is kept; in other text, or with C1 controls, bytes from 128 on are ISO 8859-1.
jsonText :: ByteString -> Piece
jsonText text
  | isPlain text = bytes text
  | otherwise = escaping (\b -> b < 0x20 || b == 0x7f || (b >= 0x80 && not whole)) [0x5c, 0x75, 0x30, 0x30] text
  where
    whole = B.isValidUtf8 text && not (secondControls text)

-- | Does this UTF-8 text contain a character from 128 to 159?
secondControls :: ByteString -> Bool
secondControls text = or (zipWith (\a b -> a == 0xc2 && b < 0xa0) (B.unpack text) (drop 1 (B.unpack text)))

-- | Is the text visible ASCII and spaces without quotes or backslashes?
isPlain :: ByteString -> Bool
isPlain = B.all (\b -> b >= 0x20 && b < 0x7f && b /= 0x22 && b /= 0x5c)

-- | A backslash before quotes and backslashes, and a prefix and two digits for the bytes of the test.
escaping :: (Word8 -> Bool) -> [Word8] -> ByteString -> Piece
escaping isSpecial prefix text =
  Piece (B.foldl' (\n b -> n + length (escaped b)) 0 text) (\p -> B.foldl' (\go b -> go >>= put (escaped b)) (pure p) text)
  where
    escaped b
      | b == 0x22 || b == 0x5c = [0x5c, b]
      | isSpecial b = prefix <> map hexDigit [b `quot` 16, b `rem` 16]
      | otherwise = [b]
    put written p = foldM (\q b -> (q `plusPtr` 1) <$ poke q b) p written
    hexDigit n = if n < 10 then 0x30 + n else 0x57 + n
