{-# LANGUAGE CPP #-}

-- | TOML with positions. A TOML document as a tree in which everything has its position, by
-- toml-parser 1.3 or 2. Pure.
module Weft.Cli.Serve.Toml
  ( Table (..),
    Item (..),
    Node (..),
    kindOf,
    parseToml,
    Problem (..),
    Place (..),
    renderProblem,
  )
where

import Data.Bifunctor (first)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Foldable (toList)
import Data.Maybe (fromMaybe, listToMaybe)
import Data.Text qualified as T
import Data.Text.Encoding qualified as T
import Toml.Semantics (SemanticError (..), SemanticErrorKind (..), semantics)
#if MIN_VERSION_toml_parser(2,0,0)
import Toml.Syntax (Located (..), Position (..), parseRawToml)
import Toml.Syntax qualified as Toml
#else
import Toml.Located (Located (..))
import Toml.Parser (parseRawToml)
import Toml.Parser.Types qualified as Toml
import Toml.Position (Position (..))
#endif

-- | A line and a column, both from 1.
data Place = Place !Int !Int
  deriving stock (Eq, Ord, Show)

-- | An error, and its position.
data Problem = Problem !Place !String
  deriving stock (Eq, Ord, Show)

-- | The position in the form of compilers: file, line, column.
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
  = IntegerNode !Integer
  | FloatNode !Double
  | BooleanNode !Bool
  | StringNode !String
  | ArrayNode [Node]
  | SubTable !Table
  | -- | An array of tables, of at least one.
    Tables [Table]
  | -- | A value of this kind, which no setting has.
    OtherNode !String
  deriving stock (Show)

-- | The kind of a value, for messages.
kindOf :: Node -> String
kindOf = \case
  IntegerNode _ -> "an integer"
  FloatNode _ -> "a float"
  BooleanNode _ -> "a boolean"
  StringNode _ -> "a string"
  ArrayNode _ -> "an array"
  SubTable _ -> "a table"
  Tables _ -> "an array of tables"
  OtherNode kind -> kind

-- | The parts of a dotted key.
type KeyPath = [(Place, String)]

-- | Read a document.
parseToml :: ByteString -> Either Problem Table
parseToml bytes = do
  text <- first (\_ -> Problem (notUtf8 bytes) "this is not UTF-8, as TOML has to be") (T.decodeUtf8' (fromMaybe bytes (B.stripPrefix "\xef\xbb\xbf" bytes)))
  lines' <- first (\(Located p e) -> Problem (place p) e) (rawLines text)
  -- Detects what is assigned twice, and the like.
  _ <- first semanticProblem (semantics lines')
  pure (snd (foldl step ([], Table (Place 1 1) []) lines'))

-- | The first line that is not UTF-8.
notUtf8 :: ByteString -> Place
notUtf8 bytes = Place (length (takeWhile fine (B.split 0x0a bytes)) + 1) 1
  where
    fine = either (const False) (const True) . T.decodeUtf8'

place :: Position -> Place
place p = Place (posLine p) (posColumn p)

explained :: SemanticErrorKind -> String
explained = \case
  AlreadyAssigned -> "this is set already"
  ClosedTable -> "this table is complete already and cannot be added to"
  ImplicitlyTable -> "this is a table already"

-- | Add one line of a document, given the path of its table and the tree so far. The document has
-- been validated.
step :: (KeyPath, Table) -> Line -> (KeyPath, Table)
step (current, root) = \case
  Toml.KeyValExpr k value -> let path = key k in (current, alter (current <> path) (\_ -> node (at path) value) root)
  Toml.TableExpr k -> let path = key k in (path, alter path (fromMaybe (SubTable (Table (at path) []))) root)
  Toml.ArrayTableExpr k ->
    let path = key k
        append = \case
          Just (Tables tables) -> Tables (tables <> [Table (at path) []])
          _ -> Tables [Table (at path) []]
     in (path, alter path append root)
  where
    at = maybe (Place 1 1) fst . listToMaybe

-- | Tables within values are like any others.
inline :: Place -> [(KeyPath, Val)] -> Table
inline here items = foldl (\table (path, value) -> alter path (\_ -> node (at path) value) table) (Table (maybe here (at . fst) (listToMaybe items)) []) items
  where
    at = maybe here fst . listToMaybe

-- | An array of tables, or of other values.
array :: [Node] -> Node
array nodes = case [table | SubTable table <- nodes] of
  tables | not (null nodes), length tables == length nodes -> Tables tables
  _ -> ArrayNode nodes

-- | Change what is at a path, making the tables on the way.
alter :: KeyPath -> (Maybe Node -> Node) -> Table -> Table
alter path change table = case path of
  [] -> table
  [part] -> change' part change
  part : rest -> change' part (inside (fst part) rest)
  where
    change' (p, name) f
      | any ((== name) . itemKey) (tableItems table) =
          table {tableItems = [if itemKey i == name then i {itemNode = f (Just (itemNode i))} else i | i <- tableItems table]}
      | otherwise = table {tableItems = tableItems table <> [Item name p (f Nothing)]}
    inside here rest = \case
      Just (SubTable sub) -> SubTable (alter rest change sub)
      -- Later lines belong to the last table.
      Just (Tables tables) | not (null tables) -> Tables (init tables <> [alter rest change (last tables)])
      _ -> SubTable (alter rest change (Table here []))

-- The types of the two versions of toml-parser.

rawLines :: T.Text -> Either (Located String) [Line]
key :: TomlKey -> KeyPath
node :: Place -> Val -> Node

#if MIN_VERSION_toml_parser(2,0,0)
type Line = Toml.Expr Position
type Val = Toml.Val Position
type TomlKey = Toml.Key Position

rawLines = parseRawToml

semanticProblem :: SemanticError Position -> Problem
semanticProblem e = Problem (place (errorAnn e)) (T.unpack (errorKey e) <> ": " <> explained (errorKind e))

key = map (\(position, name) -> (place position, T.unpack name)) . toList

node here = \case
  Toml.ValInteger _ n -> IntegerNode n
  Toml.ValFloat _ n -> FloatNode n
  Toml.ValArray _ vs -> array (map (node here) vs)
  Toml.ValTable _ items -> SubTable (inline here [(key k, v) | (k, v) <- items])
  Toml.ValBool _ b -> BooleanNode b
  Toml.ValString _ s -> StringNode (T.unpack s)
  Toml.ValTimeOfDay _ _ -> OtherNode "a time"
  Toml.ValDay _ _ -> OtherNode "a date"
  _ -> OtherNode "a date and time"
#else
type Line = Toml.Expr
type Val = Toml.Val
type TomlKey = Toml.Key

rawLines = parseRawToml . T.unpack

semanticProblem :: Located SemanticError -> Problem
semanticProblem (Located p e) = Problem (place p) (errorKey e <> ": " <> explained (errorKind e))

key = map (\(Located position name) -> (place position, name)) . toList

node here = \case
  Toml.ValInteger n -> IntegerNode n
  Toml.ValFloat n -> FloatNode n
  Toml.ValArray vs -> array (map (node here) vs)
  Toml.ValTable items -> SubTable (inline here [(key k, v) | (k, v) <- items])
  Toml.ValBool b -> BooleanNode b
  Toml.ValString s -> StringNode s
  Toml.ValTimeOfDay _ -> OtherNode "a time"
  Toml.ValDay _ -> OtherNode "a date"
  _ -> OtherNode "a date and time"
#endif
