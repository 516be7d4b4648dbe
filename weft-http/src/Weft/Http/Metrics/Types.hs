-- |
-- Description : What metrics are
-- Stability   : not home
--
-- The data model of Prometheus, as far as we use it: families of samples, each with a name,
-- a kind and labels. Plain data.
module Weft.Http.Metrics.Types
  ( -- * Families
    Description (..),
    Kind (..),
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

-- | What a family is: its name, with the unit at its end and @_total@ behind that of a
-- counter; a sentence for people; its kind.
data Description = Description
  { descriptionName :: !Text,
    descriptionHelp :: !Text,
    descriptionKind :: !Kind
  }
  deriving stock (Eq, Show)

-- | How the samples of a family change.
data Kind
  = -- | They grow only, and begin at 0 with the process.
    CounterKind
  | GaugeKind
  | HistogramKind
  | -- | Nobody knows.
    UntypedKind
  deriving stock (Eq, Show, Enum, Bounded)

-- | A family and its samples at a moment.
data Family = Family !Description [Sample]
  deriving stock (Eq, Show)

-- | One number.
data Sample = Sample
  { -- | Behind the name of the family: @_bucket@, @_sum@ and @_count@ of a histogram, else
    -- empty.
    sampleSuffix :: !Text,
    sampleLabels :: !Labels,
    sampleValue :: !Value
  }
  deriving stock (Eq, Show)

-- | Names and values; no name twice.
type Labels = [(Text, Text)]

-- | Times are counted in nanoseconds and shown in seconds, without a way through floating
-- point.
data Value
  = Whole !Int
  | -- | So many parts of a thousand million.
    Billionths !Int
  | Real !Double
  deriving stock (Eq, Show)

-- | A sample under the name of its family.
sample :: Labels -> Value -> Sample
sample = Sample ""

-- | A mistake of the program, found when it registers a metric.
data MetricError
  = -- | Letters, digits, underscores and colons are allowed, and no digit in front.
    BadName !Text
  | -- | The name of a counter does not end in @_total@, or that of something else does, or
    -- in one of the suffixes of a histogram.
    BadSuffix !Text
  | -- | Letters, digits and underscores are allowed, no digit and no two underscores in
    -- front; @le@ is for histograms.
    BadLabel !Text
  | -- | There is a metric of this name already.
    DuplicateName !Text
  deriving stock (Eq)

instance Show MetricError where
  show = \case
    BadName name -> "no name of a metric: " <> show name
    BadSuffix name -> "the suffix of a metric does not fit its kind: " <> show name
    BadLabel name -> "no name of a label: " <> show name
    DuplicateName name -> "two metrics of the same name: " <> show name

instance Exception MetricError

-- | Is the name right, and right for the kind?
checkDescription :: Description -> Either MetricError ()
checkDescription (Description name _ kind) = do
  unless (validName (== ':') name) (Left (BadName name))
  let counter = "_total" `Text.isSuffixOf` name
      histogram = any (`Text.isSuffixOf` name) ["_bucket", "_sum", "_count"]
  when (counter /= (kind == CounterKind) || histogram) (Left (BadSuffix name))

-- | May a metric of ours have a label of this name?
checkLabelName :: Text -> Either MetricError ()
checkLabelName name =
  unless (validName (const False) name && not ("__" `Text.isPrefixOf` name) && name /= "le") (Left (BadLabel name))

validName :: (Char -> Bool) -> Text -> Bool
validName also name = case Text.uncons name of
  Nothing -> False
  Just (c, rest) -> first c && Text.all (\d -> first d || isDigit d) rest
  where
    first c = isAsciiLower c || isAsciiUpper c || c == '_' || also c

-- | All names under which the samples of a family appear.
reservedNames :: Description -> [Text]
reservedNames (Description name _ kind) = name : [name <> suffix | kind == HistogramKind, suffix <- ["_bucket", "_sum", "_count"]]
