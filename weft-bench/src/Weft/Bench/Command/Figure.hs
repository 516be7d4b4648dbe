-- |
-- Module      : Weft.Bench.Command.Figure
-- Description : weft-bench figure
--
-- One field of any command's rows as bars, the shortest first.
module Weft.Bench.Command.Figure (figureCommand, figureOf) where

import Chart
import Data.ByteString.Char8 qualified as Bytes
import Data.List (sortOn)
import Data.Text (Text)
import Data.Text qualified as Text
import Data.Text.IO qualified as Text
import Numeric (showFFloat)
import Options.Applicative
import System.Exit (die)
import Weft.Bench.Report (Row, nameAt, numberAt, parseRow)

-- | @figure@.
figureCommand :: Mod CommandFields (IO ())
figureCommand =
  command "figure" (info parser (progDesc "Draw one field of the rows on standard input (JSON) as bars, an SVG on standard output"))
  where
    parser = draw <$> strArgument (metavar "FIELD") <*> strArgument (metavar "TITLE")
    draw field title = do
      rows <- traverse parseRow . filter (not . Bytes.null) . Bytes.lines <$> Bytes.getContents
      either (die . ("weft-bench: " ++)) Text.putStr (rows >>= maybe (Left "no row has that field") (Right . renderChart) . figureOf field title)

-- | A bar for each row that has the field and a name, and beside it how many times the
-- shortest it is.
figureOf :: Text -> Text -> [Row] -> Maybe Chart
figureOf field title rows = case sortOn snd [(name, v) | r <- rows, Just name <- [nameOf r], Just v <- [numberAt field r], v > 0] of
  [] -> Nothing
  bars@((_, least) : _) -> Just (Chart title "" [] (Bars field [Bar name (lookOf first) v (if first then "" else times (v / least)) | (first, (name, v)) <- zip (True : repeat False) bars]))
  where
    nameOf r = asum [nameAt key r | key <- ["contender", "server"]]
    lookOf first = if first then Look "orange" Solid True else Look "grey" Solid False
    times ratio = " (" <> Text.pack (showFFloat (Just 1) ratio "") <> " times)"
