-- |
-- Description : TOML with positions
--
-- A TOML document as a tree in which everything has its position. Pure.
module Weft.Cli.Serve.Toml
  ( -- * Trees
    Table (..),
    Item (..),
    Node (..),
    parseToml,

    -- * What is wrong with them
    Problem (..),
    Place (..),
    renderProblem,

    -- * Kinds of values
    kindOf,
  )
where

import Data.Bifunctor (bimap)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Maybe (fromMaybe, listToMaybe)
import Data.Text.Encoding qualified as T
import Weft.Cli.Serve.TomlLibrary

-- | A line and a column, both from 1.
data Place = Place !Int !Int
  deriving stock (Eq, Ord, Show)

-- | An error, and its position.
data Problem = Problem !Place !String
  deriving stock (Eq, Ord, Show)

-- | As compilers print it: file, line, column.
--
-- >>> renderProblem "weft.toml" (Problem (Place 3 1) "what is this?")
-- "weft.toml:3:1: what is this?"
renderProblem :: FilePath -> Problem -> String
renderProblem file (Problem (Place line column) text) = file <> ":" <> show line <> ":" <> show column <> ": " <> text

-- | A table: its beginning, and its items in the order of the file.
data Table = Table
  { tablePlace :: !Place,
    tableItems :: [Item]
  }
  deriving stock (Show)

-- | A key, its position, and its value.
data Item = Item
  { itemKey :: !String,
    itemPlace :: !Place,
    itemNode :: !Node
  }
  deriving stock (Show)

-- | The value of a key.
data Node
  = Value !Val
  | SubTable !Table
  | -- | An array of tables, of at least one.
    Tables [Table]
  deriving stock (Show)

-- | Read a document.
parseToml :: ByteString -> Either Problem Table
parseToml bytes = do
  text <- case T.decodeUtf8' (fromMaybe bytes (B.stripPrefix "\xef\xbb\xbf" bytes)) of
    Right text -> Right text
    Left _ -> Left (Problem (notUtf8 bytes) "this is not UTF-8, as TOML has to be")
  bimap (\(p, e) -> Problem (place p) e) (snd . foldl step ([], Table (Place 1 1) [])) (readLines text)

-- | The first line that is not UTF-8.
notUtf8 :: ByteString -> Place
notUtf8 bytes = Place (length (takeWhile fine (B.split 0x0a bytes)) + 1) 1
  where
    fine = either (const False) (const True) . T.decodeUtf8'

place :: Position -> Place
place p = Place (posLine p) (posColumn p)

-- | Add one line of a document, given the path of its table and the tree so far. The document has
-- been validated.
step :: (Key, Table) -> Line -> (Key, Table)
step (current, root) = \case
  KeyValue key value -> (current, alter (current <> key) (\_ -> node (at key) value) root)
  TableHead key -> (key, alter key (fromMaybe (SubTable (Table (at key) []))) root)
  ArrayTableHead key ->
    let new = Table (at key) []
        append = \case
          Just (Tables tables) -> Tables (tables <> [new])
          _ -> Tables [new]
     in (key, alter key append root)
  where
    at = maybe (Place 1 1) (place . locPosition) . listToMaybe

-- | Tables within values are like any others.
node :: Place -> Val -> Node
node here = \case
  ValTable items -> SubTable (inline items)
  ValArray values
    | Just tables <- traverse asTable values, not (null tables) -> Tables tables
  value -> Value value
  where
    asTable = \case
      ValTable items -> Just (inline items)
      _ -> Nothing
    inline items = foldl (\table (key, value) -> alter key (\_ -> node (keyPlace key) value) table) (Table (maybe here (keyPlace . fst) (listToMaybe items)) []) items
    keyPlace = maybe here (place . locPosition) . listToMaybe

-- | Change what is at a path, making the tables on the way.
alter :: Key -> (Maybe Node -> Node) -> Table -> Table
alter path change table = case path of
  [] -> table
  [key] -> change' key change
  key : rest -> change' key (inside (place (locPosition key)) rest)
  where
    change' (Located p name) f
      | any ((== name) . itemKey) (tableItems table) =
          table {tableItems = [if itemKey i == name then i {itemNode = f (Just (itemNode i))} else i | i <- tableItems table]}
      | otherwise = table {tableItems = tableItems table <> [Item name (place p) (f Nothing)]}
    inside here rest = \case
      Just (SubTable sub) -> SubTable (alter rest change sub)
      -- What follows belongs to the last table.
      Just (Tables tables) | not (null tables) -> Tables (init tables <> [alter rest change (last tables)])
      _ -> SubTable (alter rest change (Table here []))

-- | The kind of a value, for messages.
kindOf :: Node -> String
kindOf = \case
  SubTable _ -> "a table"
  Tables _ -> "an array of tables"
  Value value -> case value of
    ValInteger _ -> "an integer"
    ValFloat _ -> "a float"
    ValArray _ -> "an array"
    ValTable _ -> "a table"
    ValBool _ -> "a boolean"
    ValString _ -> "a string"
    ValTime -> "a time"
    ValDateTime -> "a date and time"
    ValDay -> "a date"
