-- | The weighted lists of @Accept-Encoding@ and @Accept@ (RFC 9110, sections 12.4.2, 12.5.1 and
-- 12.5.3), and the choice among what is available. Pure. Not http-media: it takes @gzip;Q=0@ as gzip.
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
import Control.Monad (guard)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Foldable (find)
import Data.Maybe (fromMaybe)
import Weft.Http.Internal.Ascii

-- | A content coding.
data Coding
  = -- | Unencoded.
    Identity
  | Gzip
  | Brotli
  | Zstandard
  deriving stock (Eq, Ord, Show, Enum, Bounded)

-- | The name for @Content-Encoding@.
--
-- >>> map codingName [Identity, Gzip, Brotli, Zstandard]
-- ["identity","gzip","br","zstd"]
codingName :: Coding -> ByteString
codingName = \case
  Identity -> "identity"
  Gzip -> "gzip"
  Brotli -> "br"
  Zstandard -> "zstd"

-- | The suffix of a precompressed file's name.
--
-- >>> map codingSuffix [Identity, Gzip, Brotli, Zstandard]
-- ["",".gz",".br",".zst"]
codingSuffix :: Coding -> ByteString
codingSuffix = \case
  Identity -> ""
  Gzip -> ".gz"
  Brotli -> ".br"
  Zstandard -> ".zst"

-- | The coding of a name, without case. @x-gzip@ is an old name of gzip.
codingNamed :: ByteString -> Maybe Coding
codingNamed name
  | eqCaseless "x-gzip" name = Just Gzip
  | otherwise = find (\coding -> eqCaseless (codingName coding) name) [minBound .. maxBound]

-- | A member of a list: a name, and its weight in thousandths.
data Weighted = Weighted
  { weightedName :: !ByteString,
    weight :: !Int
  }
  deriving stock (Eq, Show)

-- | The members of all lines of a field, without other parameters and without malformed weights.
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

-- | The weight among @;name=value@ parameters; 1 by default.
weightIn :: ByteString -> Maybe Int
weightIn parameters = case [B.drop 2 p | p <- map trim (C.split ';' parameters), eqCaseless "q=" (B.take 2 p)] of
  [] -> Just 1000
  q : _ -> qvalue q

-- | @0@ or @1@ with up to three decimals, at most 1.
qvalue :: ByteString -> Maybe Int
qvalue q = do
  (whole, rest) <- C.uncons q
  decimals <- if B.null rest then Just "" else B.stripPrefix "." rest
  guard (whole `elem` ("01" :: String) && B.length decimals <= 3 && B.all isDigit decimals)
  (thousandths, _) <- C.readInt (C.cons whole (B.take 3 (decimals <> "000")))
  thousandths <$ guard (thousandths <= 1000)

-- | The coding to send, given the lines of @Accept-Encoding@ and the codings in the server's order of
-- preference: the first of the highest weight, if that is no less than that of 'Identity'.
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
    -- Unmentioned, identity is acceptable, but anything mentioned is better.
    unpacked = fromMaybe 0 (quality Identity)

-- | Does a client with these lines of @Accept@ take a type in lower case? The most specific member
-- decides; without any line it takes everything.
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
