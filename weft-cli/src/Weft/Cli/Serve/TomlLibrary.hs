{-# LANGUAGE CPP #-}

-- |
-- Description : What is used of toml-parser, for its versions 1.3 and 2
--
-- The lines of a TOML document. Pure.
module Weft.Cli.Serve.TomlLibrary
  ( Line (..),
    Key,
    Val (..),
    Located (..),
    Position (..),
    readLines,
  )
where

import Data.Bifunctor (first)
import Data.Foldable (toList)
import Data.Text (Text)
import Data.Text qualified as T
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

-- | A line of a document.
data Line
  = -- | A key and its value.
    KeyValue Key Val
  | -- | The head of a table.
    TableHead Key
  | -- | The head of the next table of an array.
    ArrayTableHead Key

-- | The parts of a dotted key.
type Key = [Located String]

-- | A value. No setting is a time or a date.
data Val
  = ValInteger Integer
  | ValFloat Double
  | ValArray [Val]
  | ValTable [(Key, Val)]
  | ValBool Bool
  | ValString String
  | ValTime
  | ValDateTime
  | ValDay
  deriving stock (Show)

-- | Read a document, or tell where which error is.
readLines :: Text -> Either (Position, String) [Line]

#if MIN_VERSION_toml_parser(2,0,0)
readLines text = do
  expressions <- first located (parseRawToml text)
  -- Detects what is assigned twice, and the like.
  _ <- first (\e -> (errorAnn e, T.unpack (errorKey e) <> ": " <> explained (errorKind e))) (semantics expressions)
  pure (map line expressions)

line :: Toml.Expr Position -> Line
line = \case
  Toml.KeyValExpr k v -> KeyValue (key k) (val v)
  Toml.TableExpr k -> TableHead (key k)
  Toml.ArrayTableExpr k -> ArrayTableHead (key k)

key :: Toml.Key Position -> Key
key = map (\(position, name) -> Located position (T.unpack name)) . toList

val :: Toml.Val Position -> Val
val = \case
  Toml.ValInteger _ n -> ValInteger n
  Toml.ValFloat _ n -> ValFloat n
  Toml.ValArray _ vs -> ValArray (map val vs)
  Toml.ValTable _ items -> ValTable [(key k, val v) | (k, v) <- items]
  Toml.ValBool _ b -> ValBool b
  Toml.ValString _ s -> ValString (T.unpack s)
  Toml.ValTimeOfDay _ _ -> ValTime
  Toml.ValZonedTime _ _ -> ValDateTime
  Toml.ValLocalTime _ _ -> ValDateTime
  Toml.ValDay _ _ -> ValDay
#else
readLines text = do
  expressions <- first located (parseRawToml (T.unpack text))
  -- Detects what is assigned twice, and the like.
  _ <- first (\(Located p e) -> (p, errorKey e <> ": " <> explained (errorKind e))) (semantics expressions)
  pure (map line expressions)

line :: Toml.Expr -> Line
line = \case
  Toml.KeyValExpr k v -> KeyValue (toList k) (val v)
  Toml.TableExpr k -> TableHead (toList k)
  Toml.ArrayTableExpr k -> ArrayTableHead (toList k)

val :: Toml.Val -> Val
val = \case
  Toml.ValInteger n -> ValInteger n
  Toml.ValFloat n -> ValFloat n
  Toml.ValArray vs -> ValArray (map val vs)
  Toml.ValTable items -> ValTable [(toList k, val v) | (k, v) <- items]
  Toml.ValBool b -> ValBool b
  Toml.ValString s -> ValString s
  Toml.ValTimeOfDay _ -> ValTime
  Toml.ValZonedTime _ -> ValDateTime
  Toml.ValLocalTime _ -> ValDateTime
  Toml.ValDay _ -> ValDay
#endif

located :: Located String -> (Position, String)
located (Located position what) = (position, what)

explained :: SemanticErrorKind -> String
explained = \case
  AlreadyAssigned -> "this is set already"
  ClosedTable -> "this table is complete already and cannot be added to"
  ImplicitlyTable -> "this is a table already"
