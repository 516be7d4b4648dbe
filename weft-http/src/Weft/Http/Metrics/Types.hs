{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The data model of metrics
--
-- The part of Prometheus' data model that we use: families of samples with names, kinds and labels.
module Weft.Http.Metrics.Types
  ( -- * Families
    Description (..),
    MetricKind (..),
    Family (..),

    -- * Samples
    Sample (..),
    Value (..),
    sample,
    Labels,

    -- * Names
    MetricError (..),
    checkDescription,
    reservedNames,
    checkLabelName,
  )
where

import Control.Exception (Exception (..))
import Control.Monad (unless, when)
import Data.Char (isAsciiLower, isAsciiUpper, isDigit)
import Data.Text (Text)
import Data.Text qualified as Text

-- | The name of a family, which ends in the unit, and for a counter in @_total@; a sentence for
-- people; and the kind.
data Description = Description
  { descriptionName :: !Text,
    descriptionHelp :: !Text,
    descriptionKind :: !MetricKind
  }
  deriving stock (Eq, Show)

-- | The kind of a family.
data MetricKind
  = -- | Begins at 0 with the process and only grows.
    CounterKind
  | GaugeKind
  | HistogramKind
  | -- | Of unknown kind.
    UntypedKind
  deriving stock (Eq, Show, Enum, Bounded)

-- | A family and its samples at one time.
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
  | -- | The name of a counter, and only that, ends in @_total@; no name ends in a suffix of
    -- histograms.
    BadSuffix !Text
  | -- | A label may contain letters, digits and underscores, and not begin with a digit or two
    -- underscores; @le@ is for histograms.
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

-- | Is the name valid, and valid for the kind?
checkDescription :: Description -> Either MetricError ()
checkDescription (Description name _ kind) = do
  unless (validName (== ':') name) (Left (BadName name))
  let counter = "_total" `Text.isSuffixOf` name
      histogram = any (`Text.isSuffixOf` name) ["_bucket", "_sum", "_count"]
  when (counter /= (kind == CounterKind) || histogram) (Left (BadSuffix name))

-- | May a registered metric have a label of this name?
checkLabelName :: Text -> Either MetricError ()
checkLabelName name =
  unless (validName (const False) name && not ("__" `Text.isPrefixOf` name) && name /= "le") (Left (BadLabel name))

validName :: (Char -> Bool) -> Text -> Bool
validName also name = case Text.uncons name of
  Nothing -> False
  Just (c, rest) -> first c && Text.all (\d -> first d || isDigit d) rest
  where
    first c = isAsciiLower c || isAsciiUpper c || c == '_' || also c

-- | All names of the samples of a family.
reservedNames :: Description -> [Text]
reservedNames (Description name _ kind) = name : [name <> suffix | kind == HistogramKind, suffix <- ["_bucket", "_sum", "_count"]]
