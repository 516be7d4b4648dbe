-- | From a @Range@ field to the parts that are sent (RFC 9110, section 14). Many small ranges cost a
-- server more than a client: their number is bounded, and those that nearly touch are joined.
module Weft.Http.Range
  ( -- * Resolving a @Range@
    resolveRange,
    Selection (..),
    ByteRange (..),
    rangeLength,

    -- ** Limits
    RangeLimits (..),
    defaultRangeLimits,

    -- * Fields
    contentRange,
    unsatisfiedRange,

    -- * Its parts
    RangeSpec (..),
    parseRanges,
    satisfy,
    coalesce,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Int (Int64)
import Data.List (sortOn)
import Data.Maybe (mapMaybe)
import Weft.Http.Internal.Ascii

-- | One member of a @Range@, as it was asked for.
data RangeSpec
  = -- | Both positions included, the first not above the second.
    FromTo !Int64 !Int64
  | -- | From a position to the end.
    From !Int64
  | -- | This number of octets at the end.
    Suffix !Int64
  deriving stock (Eq, Show)

-- | Octets of a representation, both positions included; never empty.
data ByteRange = ByteRange
  { rangeFirst :: !Int64,
    rangeLast :: !Int64
  }
  deriving stock (Eq, Ord, Show)

-- | The number of octets.
rangeLength :: ByteRange -> Int64
rangeLength (ByteRange first end) = end - first + 1

-- | The parts to send.
data Selection
  = -- | All of it, with 200: the field is malformed, in another unit, or beyond the limit.
    Whole
  | -- | Nothing, with 416 and 'unsatisfiedRange'.
    Unsatisfiable
  | -- | One range, with 206 and 'contentRange'.
    Single !ByteRange
  | -- | Two or more ranges, with 206 and "Weft.Http.Multipart".
    Several ![ByteRange]
  deriving stock (Eq, Show)

-- | The limits of a request.
data RangeLimits = RangeLimits
  { -- | Ranges in one request; default 16. Beyond it the whole is sent.
    limitRanges :: !Int,
    -- | Ranges at most this number of octets apart are sent as one; default 80, as another part costs.
    limitGap :: !Int64
  }
  deriving stock (Eq, Show)

-- | The defaults named at each field.
defaultRangeLimits :: RangeLimits
defaultRangeLimits = RangeLimits {limitRanges = 16, limitGap = 80}

-- | Resolve a @Range@ against a size in octets. Joined ranges take the place of the first.
--
-- >>> resolveRange defaultRangeLimits 1000 "bytes=0-99"
-- Single (ByteRange {rangeFirst = 0, rangeLast = 99})
-- >>> resolveRange defaultRangeLimits 1000 "bytes=1000-"
-- Unsatisfiable
-- >>> resolveRange defaultRangeLimits 1000 "lines=1-2"
-- Whole
resolveRange :: RangeLimits -> Int64 -> ByteString -> Selection
resolveRange limits size field = case parseRanges (limitRanges limits) field of
  Nothing -> Whole
  Just specs -> case coalesce (limitGap limits) (mapMaybe (satisfy size) specs) of
    []
      -- The end of nothing is nothing, and cannot be said in a Content-Range.
      | size == 0 && any isSuffix specs -> Whole
      | otherwise -> Unsatisfiable
    [range] -> Single range
    ranges -> Several ranges
  where
    isSuffix = \case
      Suffix n -> n > 0
      _ -> False

-- | Read @bytes=@ and at most this number of ranges, up to the largest 'Int64'. 'Nothing': ignore it.
parseRanges :: Int -> ByteString -> Maybe [RangeSpec]
parseRanges most field
  | not (eqCaseless "bytes" unit) || B.null set || C.count ',' set > 2 * most = Nothing
  | null members || length members > most = Nothing
  | otherwise = traverse spec members
  where
    (unit, set) = C.break (== '=') field
    -- Empty members of a list are to be tolerated, within reason.
    members = filter (not . B.null) (splitCommas (B.drop 1 set))

spec :: ByteString -> Maybe RangeSpec
spec member
  | B.null dashEnd = Nothing
  | B.null start = Suffix <$> position end
  | B.null end = From <$> position start
  | otherwise = do
      a <- position start
      b <- position end
      if ordered then Just (FromTo a b) else Nothing
  where
    (start, dashEnd) = C.break (== '-') member
    end = B.drop 1 dashEnd
    -- On the digits, because two positions may both be too large for the type.
    ordered = (B.length s, s) <= (B.length e, e)
    (s, e) = (C.dropWhile (== '0') start, C.dropWhile (== '0') end)

position :: ByteString -> Maybe Int64
position digits = case decimal digits of
  Decimal n -> Just n
  TooLarge -> Just maxBound
  NotDecimal -> Nothing

-- | The octets that a range selects of a content of the given length, if any.
satisfy :: Int64 -> RangeSpec -> Maybe ByteRange
satisfy size = \case
  FromTo a b | a < size -> Just (ByteRange a (min b (size - 1)))
  From a | a < size -> Just (ByteRange a (size - 1))
  Suffix n | n > 0, size > 0 -> Just (ByteRange (max 0 (size - n)) (size - 1))
  _ -> Nothing

-- | Join ranges that overlap or are at most the given number of octets apart.
coalesce :: Int64 -> [ByteRange] -> [ByteRange]
coalesce gap ranges = map snd (sortOn fst (joined (sortOn snd (zip [0 :: Int ..] ranges))))
  where
    joined ((i, a) : (j, b) : rest)
      -- Subtracted rather than added, which cannot overflow.
      | rangeFirst b - rangeLast a - 1 <= gap =
          joined ((min i j, ByteRange (rangeFirst a) (max (rangeLast a) (rangeLast b))) : rest)
      | otherwise = (i, a) : joined ((j, b) : rest)
    joined rest = rest

-- | The @Content-Range@ of a part of a content of the given length.
--
-- >>> contentRange 1000 (ByteRange 0 99)
-- "bytes 0-99/1000"
contentRange :: Int64 -> ByteRange -> ByteString
contentRange size (ByteRange first end) =
  B.concat ["bytes ", renderDecimal first, "-", renderDecimal end, "/", renderDecimal size]

-- | The @Content-Range@ of a 416.
--
-- >>> unsatisfiedRange 1000
-- "bytes */1000"
unsatisfiedRange :: Int64 -> ByteString
unsatisfiedRange size = "bytes */" <> renderDecimal size
