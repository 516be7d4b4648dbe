-- |
-- Description : From TOML to configuration: the parts that tables are made of
--
-- A table of a configuration file is a list of keys ('Key'), each with how its value is
-- read and what it changes. Reading a table finds all that is wrong with it, not only
-- the first thing. Pure.
module Weft.Cli.Serve.Reader
  ( -- * Keys
    Key (..),
    readTable,
    faultless,
    unknownKey,
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
    checked,
    orElse,
    subTable,
    tables,
    everyItem,
  )
where

import Data.Either (partitionEithers)
import Data.List (intercalate)
import Toml.Parser.Types (Val (..))
import Weft (Duration)
import Weft.Cli.Options
import Weft.Cli.Serve.Suggest
import Weft.Cli.Serve.Toml

-- | Reads the value of a key, or says what is wrong with it.
type Reader a = Place -> Node -> Either [Problem] a

-- | One key of a table that changes an @a@.
data Key a = Key
  { keyName :: !String,
    -- | What its value is, for the manual and for messages: @a number from 1 to 256@.
    keyWants :: !String,
    -- | What holds without it, for the manual.
    keyDefault :: !String,
    -- | What it means, for the manual.
    keyHelp :: !String,
    keyReader :: Reader (a -> a)
  }

-- | What a table changes, given its name (for messages), its keys, and what is said of keys
-- that belong elsewhere: all that is wrong with it, and what the rest of it changes.
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

-- | What was read, if nothing is wrong with it.
faultless :: ([Problem], a) -> Either [Problem] a
faultless (problems, a) = if null problems then Right a else Left problems

-- | What is said of a key that there is not: its whole name, its name, the names there
-- are, and where it belongs.
unknownKey :: Place -> String -> String -> [String] -> Maybe String -> Problem
unknownKey place whole given names elsewhere = Problem place (whole <> ": there is no such key; " <> hint)
  where
    hint = case (elsewhere, nearest given names) of
      (Just place', _) -> place'
      (_, Just name) -> "did you mean " <> name <> "?"
      _ -> "there are " <> intercalate ", " names

-- | One thing is wrong.
wrong :: Place -> String -> Either [Problem] a
wrong place said = Left [Problem place said]

mismatch :: String -> Reader a
mismatch wants place node = wrong place ("this has to be " <> wants <> ", and is " <> kindOf node)

-- | A string, of which something is made.
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
  Value (ValArray values) -> case partitionEithers (map (one place . Value) values) of
    ([], all') -> Right all'
    (problems, _) -> Left (concat problems)
  node -> mismatch wants place node

-- | An array, or one of what is in it.
oneOrMore :: String -> Reader a -> Reader [a]
oneOrMore wants one place node = case node of
  Value (ValArray _) -> arrayOf wants one place node
  _ -> pure <$> one place node

-- | What the first reader takes, made by a function that may find fault with it.
checked :: (a -> Either String b) -> Reader a -> Reader b
checked check reader place node = reader place node >>= either (wrong place) Right . check

-- | What the first reader reads, and the second where the value is of another kind.
orElse :: (Node -> Bool) -> Reader a -> Reader a -> Reader a
orElse isFirst first second place node = if isFirst node then first place node else second place node

-- | A table.
subTable :: (Table -> Either [Problem] a) -> Reader a
subTable use place = \case
  SubTable table -> use table
  node -> mismatch "a table" place node

-- | What is read from each item of a table, or all that is wrong with them.
everyItem :: (Item -> Either [Problem] a) -> Table -> Either [Problem] [a]
everyItem use table = case partitionEithers (map use (tableItems table)) of
  ([], all') -> Right all'
  (problems, _) -> Left (concat problems)

-- | An array of tables; an empty array will do, and one table.
tables :: (Table -> Either [Problem] a) -> Reader [a]
tables use place = \case
  Tables several -> case partitionEithers (map use several) of
    ([], all') -> Right all'
    (problems, _) -> Left (concat problems)
  SubTable table -> pure <$> use table
  Value (ValArray []) -> Right []
  node -> mismatch "an array of tables" place node
