{-# OPTIONS_HADDOCK not-home #-}

-- | The part of Prometheus' data model that we use, and version 0.0.4 of its text format. Pure.
module Weft.Http.Metrics.Types
  ( Description (..),
    counter,
    gauge,
    MetricKind (..),
    Family (..),
    Sample (..),
    Value (..),
    sample,
    Labels,
    MetricError (..),
    checkDescription,
    reservedNames,
    checkLabelName,
    exposition,
    expositionType,
    renderValue,
  )
where

import Control.Exception (Exception (..))
import Control.Monad (unless, when)
import Data.ByteString (ByteString)
import Data.ByteString.Builder (Builder)
import Data.ByteString.Builder qualified as Builder
import Data.ByteString.Lazy qualified as L
import Data.Char (isAsciiLower, isAsciiUpper, isDigit)
import Data.List (intersperse)
import Data.Text (Text)
import Data.Text qualified as Text
import Data.Text.Encoding (encodeUtf8Builder)

-- | The name of a family, which ends in the unit, and of a counter in @_total@; a sentence; the kind.
data Description = Description
  { descriptionName :: !Text,
    descriptionHelp :: !Text,
    descriptionKind :: !MetricKind
  }
  deriving stock (Eq, Show)

-- | Of this name, with this sentence.
counter, gauge :: Text -> Text -> Description
counter name help = Description name help CounterKind
gauge name help = Description name help GaugeKind

-- | The kind of a family.
data MetricKind
  = -- | Begins at 0 with the process and only grows.
    CounterKind
  | GaugeKind
  | HistogramKind
  | UntypedKind
  deriving stock (Eq, Show, Enum, Bounded)

data Family = Family !Description [Sample]
  deriving stock (Eq, Show)

-- | One number.
data Sample = Sample
  { -- | Suffix of the family's name: @_bucket@, @_sum@ or @_count@ of a histogram, else empty.
    sampleSuffix :: !Text,
    sampleLabels :: !Labels,
    sampleValue :: !Value
  }
  deriving stock (Eq, Show)

-- | Names and values; no name twice.
type Labels = [(Text, Text)]

-- | Nanoseconds are exposed as seconds without floating point.
data Value
  = Whole !Int
  | -- | In billionths.
    Billionths !Int
  | Real !Double
  deriving stock (Eq, Show)

-- | A sample under the name of its family.
sample :: Labels -> Value -> Sample
sample = Sample ""

-- | A programming error, found when a metric is registered.
data MetricError
  = -- | A name may contain letters, digits, underscores and colons, and not begin with a digit.
    BadName !Text
  | -- | Only the name of a counter ends in @_total@; none ends in a suffix of histograms.
    BadSuffix !Text
  | -- | Letters, digits and underscores, not first a digit or two underscores; @le@ is for histograms.
    BadLabel !Text
  | -- | The name is already registered.
    DuplicateName !Text
  deriving stock (Eq)

instance Show MetricError where
  show = \case
    BadName name -> "no name of a metric: " <> show name
    BadSuffix name -> "the suffix of a metric does not fit its kind: " <> show name
    BadLabel name -> "no name of a label: " <> show name
    DuplicateName name -> "two metrics of the same name: " <> show name

instance Exception MetricError

checkDescription :: Description -> Either MetricError ()
checkDescription (Description name _ kind) = do
  unless (validName (== ':') name) (Left (BadName name))
  when (named ["_total"] /= (kind == CounterKind) || named histogramSuffixes) (Left (BadSuffix name))
  where
    named = any (`Text.isSuffixOf` name)

histogramSuffixes :: [Text]
histogramSuffixes = ["_bucket", "_sum", "_count"]

checkLabelName :: Text -> Either MetricError ()
checkLabelName name =
  unless (validName (const False) name && not ("__" `Text.isPrefixOf` name) && name /= "le") (Left (BadLabel name))

validName :: (Char -> Bool) -> Text -> Bool
validName also name = case Text.uncons name of
  Nothing -> False
  Just (c, rest) -> first c && Text.all (\d -> first d || isDigit d) rest
  where
    first c = isAsciiLower c || isAsciiUpper c || c == '_' || also c

reservedNames :: Description -> [Text]
reservedNames (Description name _ kind) = name : [name <> suffix | kind == HistogramKind, suffix <- histogramSuffixes]

expositionType :: ByteString
expositionType = "text/plain; version=0.0.4; charset=utf-8"

-- | Render all families with their help and type. Omits families without samples.
exposition :: [Family] -> ByteString
exposition = L.toStrict . Builder.toLazyByteString . foldMap family

family :: Family -> Builder
family (Family (Description name help kind) samples)
  | null samples = mempty
  | otherwise =
      "# HELP " <> encodeUtf8Builder name <> " " <> escaped False help <> "\n# TYPE " <> encodeUtf8Builder name <> " " <> kindName kind <> "\n" <> foldMap one samples
  where
    one (Sample suffix labels value) = encodeUtf8Builder name <> encodeUtf8Builder suffix <> braces labels <> " " <> renderValue value <> "\n"

kindName :: MetricKind -> Builder
kindName = \case
  CounterKind -> "counter"
  GaugeKind -> "gauge"
  HistogramKind -> "histogram"
  UntypedKind -> "untyped"

braces :: Labels -> Builder
braces [] = mempty
braces labels = "{" <> mconcat (intersperse "," [encodeUtf8Builder name <> "=\"" <> escaped True value <> "\"" | (name, value) <- labels]) <> "}"

-- | Escape backslashes and line ends, and quotes if the flag is set.
escaped :: Bool -> Text -> Builder
escaped quotes = encodeUtf8Builder . Text.concatMap one
  where
    one = \case
      '\\' -> "\\\\"
      '\n' -> "\\n"
      '"' | quotes -> "\\\""
      c -> Text.singleton c

-- | Render a number for Go's @ParseFloat@.
--
-- >>> map (Builder.toLazyByteString . renderValue) [Whole 7, Billionths 2500000, Billionths (-1), Real (1/0)]
-- ["7","0.0025","-0.000000001","+Inf"]
renderValue :: Value -> Builder
renderValue = \case
  Whole n -> Builder.intDec n
  Billionths n
    | n < 0 -> "-" <> billionths (negate n)
    | otherwise -> billionths n
  Real d
    | isNaN d -> "NaN"
    | isInfinite d -> if d > 0 then "+Inf" else "-Inf"
    | otherwise -> Builder.doubleDec d
  where
    billionths n = case n `quotRem` 1_000_000_000 of
      (whole, 0) -> Builder.intDec whole
      (whole, part) -> Builder.intDec whole <> "." <> encodeUtf8Builder (Text.dropWhileEnd (== '0') (Text.justifyRight 9 '0' (Text.pack (show part))))
