-- |
-- Description : Rows of named figures, as JSON lines or as a table
--
-- The one way in which every command of @weft-bench@ prints what it measured:
-- a row is a list of named cells, and prints as one JSON object on one line or
-- as a line of an aligned table. Rendering is pure.
module Weft.Bench.Report
  ( -- * Rows
    Row,
    Cell (..),
    figure,

    -- * Printing
    Format (..),
    printRows,

    -- ** Rendering
    renderJson,
    renderTable,
    renderMarkdown,
    renderFigure,

    -- ** Reading back
    parseRow,
    cellNumber,
    cellName,
    numberAt,
    nameAt,
  )
where

import Data.Aeson (Value (..), eitherDecodeStrict, toJSON)
import Data.Aeson.Encoding (encodingToLazyByteString, pairs)
import Data.Aeson.Encoding qualified as Encoding
import Data.Aeson.Key qualified as Key
import Data.Aeson.KeyMap qualified as KeyMap
import Data.ByteString qualified as Strict (ByteString)
import Data.ByteString.Lazy (ByteString)
import Data.ByteString.Lazy.Char8 qualified as Bytes
import Data.List (nub, transpose)
import Data.Text (Text)
import Data.Text qualified as Text
import Data.Text.IO qualified as Text
import Numeric (showFFloat)
import System.IO (hFlush, stdout)

-- | Named cells, in the order in which a reader wants them.
type Row = [(Text, Cell)]

-- | One thing that a row says.
data Cell
  = -- | a name
    Name Text
  | -- | something counted
    Count Integer
  | -- | something measured, or computed from that
    Figure Double
  | -- | what this row has no value for: @null@, or a dash
    Absent
  deriving stock (Eq, Ord, Show)

-- | A figure that may be missing.
figure :: Maybe Double -> Cell
figure = maybe Absent Figure

-- | For programs or for people.
data Format
  = -- | one JSON object a line
    Json
  | -- | columns under headings
    Table
  deriving stock (Eq, Show)

-- | Print rows to standard output and flush it, so that a reader at the other
-- end of a pipe sees a row as soon as there is one. Rows printed together as a
-- table share its columns.
printRows :: Format -> [Row] -> IO ()
printRows format rows = do
  case format of
    Json -> mapM_ (Bytes.putStrLn . renderJson) rows
    Table -> Text.putStr (renderTable rows)
  hFlush stdout

-- | One JSON object, its fields in the order of the row.
renderJson :: Row -> ByteString
renderJson row =
  encodingToLazyByteString (pairs (foldMap field row))
  where
    field (name, cell) = Encoding.pair (Key.fromText name) (Encoding.value (value cell))
    value = \case
      Name t -> String t
      Count n -> toJSON n
      -- JSON has no infinities; a figure that is none is no figure.
      Figure x
        | isNaN x || isInfinite x -> Null
        | otherwise -> toJSON x
      Absent -> Null

-- | Columns under headings, numbers to the right. The columns are those of all
-- rows, in the order of their first appearance.
renderTable :: [Row] -> Text
renderTable [] = ""
renderTable rows = Text.unlines (map line (transpose (map column (columnNames rows))))
  where
    column name =
      let cells = map (lookup name) rows
          texts = name : map (maybe "" cellText) cells
          width = maximum (map Text.length texts)
          pad = if all isWord cells then Text.justifyLeft else Text.justifyRight
       in map (pad width ' ') texts
    line = Text.stripEnd . Text.intercalate "  "

-- | 'renderTable' as a table of Markdown.
renderMarkdown :: [Row] -> Text
renderMarkdown [] = ""
renderMarkdown rows = Text.unlines (line names : line (map rule names) : map (\r -> line (map (cell r) names)) rows)
  where
    names = columnNames rows
    cell row name = maybe "" cellText (lookup name row)
    rule name = if all (isWord . lookup name) rows then "---" else "---:"
    line cells = "| " <> Text.intercalate " | " cells <> " |"

columnNames :: [Row] -> [Text]
columnNames = nub . map fst . concat

isWord :: Maybe Cell -> Bool
isWord = \case
  Just (Name _) -> True
  Just Absent -> True
  Nothing -> True
  _ -> False

cellText :: Cell -> Text
cellText = \case
  Name t -> t
  Count n -> Text.pack (show n)
  Figure x -> renderFigure x
  Absent -> "-"

-- | A row that 'renderJson' has made; its cells come in no order. A figure that is a whole
-- number comes back as a count, which 'cellNumber' does not mind.
parseRow :: Strict.ByteString -> Either String Row
parseRow line =
  eitherDecodeStrict line >>= \case
    Object o -> traverse (\(k, v) -> (,) (Key.toText k) <$> cell k v) (KeyMap.toList o)
    _ -> Left "not a JSON object"
  where
    cell k = \case
      String t -> Right (Name t)
      Number n
        | fromInteger (round n) == n -> Right (Count (round n))
        | otherwise -> Right (Figure (realToFrac n))
      Null -> Right Absent
      _ -> Left ("not a cell: " ++ Key.toString k)

-- | Counted or measured.
cellNumber :: Cell -> Maybe Double
cellNumber = \case
  Count n -> Just (fromInteger n)
  Figure x -> Just x
  _ -> Nothing

-- | A name.
cellName :: Cell -> Maybe Text
cellName = \case
  Name t -> Just t
  _ -> Nothing

-- | The number in a column, if it is there and counted or measured.
numberAt :: Text -> Row -> Maybe Double
numberAt key row = lookup key row >>= cellNumber

-- | The name in a column, if there is one.
nameAt :: Text -> Row -> Maybe Text
nameAt key row = lookup key row >>= cellName

-- | About four significant digits, never an exponent.
--
-- >>> map renderFigure [0.98765, 12.3456, 229.9, 126380.79]
-- ["0.988","12.35","229.9","126381"]
renderFigure :: Double -> Text
renderFigure x
  | isNaN x || isInfinite x = "-"
  | otherwise = Text.pack (showFFloat (Just digits) x "")
  where
    digits
      | abs x < 10 = 3
      | abs x < 100 = 2
      | abs x < 1000 = 1
      | otherwise = 0 :: Int
