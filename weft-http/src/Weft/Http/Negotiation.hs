-- |
-- Description : What a client accepts: content codings and media types
--
-- The weighted lists of @Accept-Encoding@ and @Accept@ (RFC 9110, sections 12.4.2,
-- 12.5.1 and 12.5.3), and the choice among what there is. Pure; called for a request
-- whose answer depends on them, and for no other.
module Weft.Http.Negotiation
  ( -- * Content codings
    Coding (..),
    codingName,
    codingSuffix,
    codingNamed,
    chooseCoding,

    -- * Media types
    acceptsType,

    -- * Their syntax
    Weighted (..),
    parseWeighted,
  )
where

import Control.Applicative ((<|>))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Foldable (find)
import Data.Maybe (fromMaybe)
import Weft.Http.Internal.Ascii

-- | How the bytes of a representation are packed.
data Coding
  = -- | Not at all.
    Identity
  | Gzip
  | Brotli
  | Zstandard
  deriving stock (Eq, Ord, Show, Enum, Bounded)

-- | As it stands in @Content-Encoding@.
--
-- >>> map codingName [Identity, Gzip, Brotli, Zstandard]
-- ["identity","gzip","br","zstd"]
codingName :: Coding -> ByteString
codingName = \case
  Identity -> "identity"
  Gzip -> "gzip"
  Brotli -> "br"
  Zstandard -> "zstd"

-- | What is appended to the name of a file for the same in this coding.
--
-- >>> map codingSuffix [Identity, Gzip, Brotli, Zstandard]
-- ["",".gz",".br",".zst"]
codingSuffix :: Coding -> ByteString
codingSuffix = \case
  Identity -> ""
  Gzip -> ".gz"
  Brotli -> ".br"
  Zstandard -> ".zst"

-- | The coding of a name, whose case is ignored. @x-gzip@ is an old name of gzip.
codingNamed :: ByteString -> Maybe Coding
codingNamed name
  | eqCaseless "x-gzip" name = Just Gzip
  | otherwise = find (\coding -> eqCaseless (codingName coding) name) [minBound .. maxBound]

-- | One member of a list: a name, and its weight in thousandths.
data Weighted = Weighted
  { weightedName :: !ByteString,
    weight :: !Int
  }
  deriving stock (Eq, Show)

-- | The members of all lines of a field. Parameters other than the weight are left
-- out, and so is a member whose weight is malformed: what a client may not have asked
-- for is not forced on it.
--
-- >>> parseWeighted ["gzip;q=0.8, br", "*;q=0"]
-- [Weighted {weightedName = "gzip", weight = 800},Weighted {weightedName = "br", weight = 1000},Weighted {weightedName = "*", weight = 0}]
parseWeighted :: [ByteString] -> [Weighted]
parseWeighted values =
  [ Weighted name w
    | value <- values,
      member <- splitCommas value,
      let (raw, parameters) = C.break (== ';') member,
      let name = trim raw,
      not (B.null name),
      Just w <- [weightIn parameters]
  ]

-- | The weight among @;name=value@ parameters; without one it is 1.
weightIn :: ByteString -> Maybe Int
weightIn parameters = case [B.drop 2 p | p <- map trim (C.split ';' parameters), eqCaseless "q=" (B.take 2 p)] of
  [] -> Just 1000
  q : _ -> qvalue q

-- | @0@, @1@, and up to three decimals of which those after @1.@ are zeros.
qvalue :: ByteString -> Maybe Int
qvalue q = case C.uncons q of
  Just (whole, rest)
    | whole `elem` ("01" :: String),
      Just decimals <- fraction rest,
      let thousandths = (if whole == '1' then 1000 else 0) + decimals,
      thousandths <= 1000 ->
        Just thousandths
  _ -> Nothing
  where
    fraction rest
      | B.null rest = Just 0
      | Just ('.', digits) <- C.uncons rest,
        B.length digits <= 3,
        B.all isDigit digits =
          Just (B.foldl' (\n d -> n * 10 + fromIntegral d - 0x30) 0 digits * 10 ^ (3 - B.length digits))
      | otherwise = Nothing

-- | The coding to send: of those there are, in the server's order of preference, the
-- first of the highest weight, if it weighs at least as much as sending the bytes as
-- they are. The lines are those of @Accept-Encoding@. A client that accepts nothing of
-- what there is, not even 'Identity', is sent that all the same: there is nothing
-- better to be had.
--
-- >>> chooseCoding ["gzip, deflate, br"] [Brotli, Gzip]
-- Brotli
-- >>> chooseCoding ["gzip;q=0.5, identity"] [Gzip]
-- Identity
-- >>> chooseCoding [] [Gzip]
-- Identity
chooseCoding :: [ByteString] -> [Coding] -> Coding
chooseCoding values available = case [(q, c) | c <- available, c /= Identity, Just q <- [quality c], q > 0] of
  [] -> Identity
  candidates
    | best >= unpacked -> chosen
    | otherwise -> Identity
    where
      (best, chosen) = foldr1 (\a b -> if fst a >= fst b then a else b) candidates
  where
    members = parseWeighted values
    named coding = weight <$> find (\m -> codingNamed (weightedName m) == Just coding) members
    others = weight <$> find ((== "*") . weightedName) members
    quality coding = named coding <|> others
    -- Not mentioned, it is acceptable, and anything that is mentioned is better.
    unpacked = fromMaybe 0 (quality Identity)

-- | Whether a client with these lines of @Accept@ takes a type (in lower case, without
-- parameters). The most specific member decides. Without any line everything is taken.
--
-- >>> acceptsType ["text/html, */*;q=0.1"] "text/html"
-- True
-- >>> acceptsType ["application/json"] "text/html"
-- False
acceptsType :: [ByteString] -> ByteString -> Bool
acceptsType [] _ = True
acceptsType values kind = case concatMap matching [kind, C.takeWhile (/= '/') kind <> "/*", "*/*"] of
  [] -> False
  w : _ -> w > 0
  where
    members = parseWeighted values
    matching range = [weight m | m <- members, eqCaseless range (weightedName m)]
