{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The text format of Prometheus
--
-- Renders metrics in version 0.0.4 of the format. Pure.
module Weft.Http.Metrics.Exposition (exposition, expositionType, renderValue) where

import Data.ByteString (ByteString)
import Data.ByteString.Builder (Builder)
import Data.ByteString.Builder qualified as Builder
import Data.ByteString.Lazy qualified as L
import Data.List (intersperse)
import Data.Text (Text)
import Data.Text qualified as Text
import Data.Text.Encoding (encodeUtf8Builder)
import Weft.Http.Metrics.Types

-- | The media type of the format.
expositionType :: ByteString
expositionType = "text/plain; version=0.0.4; charset=utf-8"

-- | Render all families with their help and type. Omits families without samples.
exposition :: [Family] -> ByteString
exposition = L.toStrict . Builder.toLazyByteString . foldMap family

family :: Family -> Builder
family (Family (Description name help kind) samples)
  | null samples = mempty
  | otherwise =
      "# HELP " <> text name <> " " <> escaped False help <> "\n# TYPE " <> text name <> " " <> kindName kind <> "\n" <> foldMap one samples
  where
    one (Sample suffix labels value) = text name <> text suffix <> braces labels <> " " <> renderValue value <> "\n"

kindName :: MetricKind -> Builder
kindName = \case
  CounterKind -> "counter"
  GaugeKind -> "gauge"
  HistogramKind -> "histogram"
  UntypedKind -> "untyped"

braces :: Labels -> Builder
braces [] = mempty
braces labels = "{" <> mconcat (intersperse "," [text name <> "=\"" <> escaped True value <> "\"" | (name, value) <- labels]) <> "}"

text :: Text -> Builder
text = encodeUtf8Builder

-- | Escape backslashes and line ends, and quotes if the flag is set.
escaped :: Bool -> Text -> Builder
escaped quotes = text . Text.concatMap one
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
      (whole, part) -> Builder.intDec whole <> "." <> text (Text.dropWhileEnd (== '0') (Text.justifyRight 9 '0' (Text.pack (show part))))
