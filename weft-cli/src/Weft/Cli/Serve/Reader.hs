-- |
-- Description : Readers of tables in configuration files
--
-- A table of a configuration file is a list of keys ('Key'), each with a reader of its value and
-- its effect. Reading a table finds all errors in it, not only the first. Pure.
module Weft.Cli.Serve.Reader
  ( -- * Keys
    Key (..),
    readTable,
    faultless,
    wrong,

    -- * Values
    Reader,
    text,
    switch,
    integer,
    octets,
    duration,
    arrayOf,
    oneOrMore,
    orElse,
    subTable,
    tables,
    everyItem,
  )
where

import Data.Either (partitionEithers)
import Data.List (intercalate)
import Weft (Duration)
import Weft.Cli.Options
import Weft.Cli.Serve.Suggest
import Weft.Cli.Serve.Toml
import Weft.Cli.Serve.TomlLibrary (Val (..))

-- | Reads the value of a key, or answers its errors.
type Reader a = Place -> Node -> Either [Problem] a

-- | One key of a table that changes an @a@.
data Key a = Key
  { keyName :: !String,
    -- | Its values, for the manual and for messages: @a number from 1 to 256@.
    keyWants :: !String,
    -- | Its default, for the manual.
    keyDefault :: !String,
    -- | Its meaning, for the manual.
    keyHelp :: !String,
    keyReader :: Reader (a -> a)
  }

-- | Read a table, given its name for messages, its keys, and hints for misplaced keys: all errors,
-- and the changes by the rest of it.
readTable :: String -> [Key a] -> (String -> Maybe String) -> Table -> ([Problem], a -> a)
readTable name keys elsewhere table = (concat problems, \a -> foldl (flip ($)) a changes)
  where
    (problems, changes) = partitionEithers (map item (tableItems table))
    item i = case filter ((== itemKey i) . keyName) keys of
      key : _ -> case keyReader key (itemPlace i) (itemNode i) of
        Left wrongs -> Left [Problem place (dotted (itemKey i) <> ": " <> said) | Problem place said <- wrongs]
        Right change -> Right change
      [] -> Left [unknownKey (itemPlace i) (dotted (itemKey i)) (itemKey i) (map keyName keys) (elsewhere (itemKey i))]
    dotted key = if null name then key else name <> "." <> key

-- | The result, if there are no errors.
faultless :: ([Problem], a) -> Either [Problem] a
faultless (problems, a) = if null problems then Right a else Left problems

-- | The error for an unknown key: its whole name, its name, the known names, and its right place.
unknownKey :: Place -> String -> String -> [String] -> Maybe String -> Problem
unknownKey place whole given names elsewhere = Problem place (whole <> ": there is no such key; " <> hint)
  where
    hint = case (elsewhere, nearest given names) of
      (Just place', _) -> place'
      (_, Just name) -> "did you mean " <> name <> "?"
      _ -> "there are " <> intercalate ", " names

-- | One error.
wrong :: Place -> String -> Either [Problem] a
wrong place said = Left [Problem place said]

mismatch :: String -> Reader a
mismatch wants place node = wrong place ("this has to be " <> wants <> ", and is " <> kindOf node)

-- | A string, converted.
text :: String -> (String -> Either String a) -> Reader a
text wants make place = \case
  Value (ValString s) -> either (wrong place) Right (make s)
  node -> mismatch wants place node

-- | @true@ or @false@.
switch :: Reader Bool
switch place = \case
  Value (ValBool b) -> Right b
  node -> mismatch "true or false" place node

-- | An integer between two bounds.
integer :: Int -> Int -> Reader Int
integer low high place = \case
  Value (ValInteger n)
    | n >= toInteger low, n <= toInteger high -> Right (fromInteger n)
    | otherwise -> wrong place (show n <> " is not a number from " <> show low <> " to " <> show high)
  node -> mismatch ("a number from " <> show low <> " to " <> show high) place node

-- | A number of bytes: an integer, or a string with a suffix such as @"64Mi"@.
octets :: Reader Int
octets place = \case
  Value (ValInteger n) -> either (wrong place) Right (parseBytes (show n))
  Value (ValString s) -> either (wrong place) Right (parseBytes s)
  node -> mismatch "a number of bytes, or a string such as \"64Mi\"" place node

-- | A number of seconds.
duration :: Reader Duration
duration place = \case
  Value (ValInteger n) -> either (wrong place) Right (parseSeconds (show n))
  Value (ValFloat s) -> either (wrong place) Right (parseSeconds (show s))
  node -> mismatch "a number of seconds" place node

-- | An array.
arrayOf :: String -> Reader a -> Reader [a]
arrayOf wants one place = \case
  Value (ValArray values) -> together (map (one place . Value) values)
  node -> mismatch wants place node

-- | An array, or a single element.
oneOrMore :: String -> Reader a -> Reader [a]
oneOrMore wants one place node = case node of
  Value (ValArray _) -> arrayOf wants one place node
  _ -> pure <$> one place node

-- | The first reader for values of a kind, else the second.
orElse :: (Node -> Bool) -> Reader a -> Reader a -> Reader a
orElse isFirst first second place node = if isFirst node then first place node else second place node

-- | A table.
subTable :: (Table -> Either [Problem] a) -> Reader a
subTable use place = \case
  SubTable table -> use table
  node -> mismatch "a table" place node

-- | The results of all items of a table, or all their errors.
everyItem :: (Item -> Either [Problem] a) -> Table -> Either [Problem] [a]
everyItem use = together . map use . tableItems

-- | All results, or all errors.
together :: [Either [Problem] a] -> Either [Problem] [a]
together results = case partitionEithers results of
  ([], all') -> Right all'
  (problems, _) -> Left (concat problems)

-- | An array of tables, which may be empty, or one table.
tables :: (Table -> Either [Problem] a) -> Reader [a]
tables use place = \case
  Tables several -> together (map use several)
  SubTable table -> pure <$> use table
  Value (ValArray []) -> Right []
  node -> mismatch "an array of tables" place node
