-- | Settings, and the readers of their values. A setting ('Key') has one description, from which
-- come its key in a file, its option, and its row in the manual. Reading a table finds all errors
-- in it.
module Weft.Cli.Serve.Reader
  ( -- * Settings
    Key (..),
    keyOption,
    readTable,
    faultless,
    wrong,
    nearest,

    -- * Kinds of values
    Kind (..),
    Argument (..),
    text,
    switch,
    integer,
    octets,
    duration,
    choice,
    fileOnly,

    -- * Readers
    Reader,
    stringOf,
    oneOrMore,
    arrayOf,
    subTable,
    tables,
    everyItem,
  )
where

import Data.Char (toLower)
import Data.Either (partitionEithers)
import Data.List (intercalate, isPrefixOf, sortOn)
import Options.Applicative (HasName, Mod, Parser, action, eitherReader, flag', help, long, metavar, option, short)
import Text.EditDistance (defaultEditCosts, restrictedDamerauLevenshteinDistance)
import Weft (Duration)
import Weft.Cli.Options
import Weft.Cli.Serve.Toml

-- | Reads the value of a key, or answers its errors.
type Reader a = Place -> Node -> Either [Problem] a

-- | A kind of values.
data Kind v = Kind
  { -- | For the manual and for messages: @a number from 1 to 256@.
    kindWants :: !String,
    kindReader :: Reader v,
    -- | How it is given on the command line, if it can be.
    kindArgument :: !(Maybe (Argument v))
  }

-- | An option. Names of files are in the encoding of the locale, hence 'IO'.
data Argument v
  = -- | Its presence is this value.
    Flag v
  | -- | Its argument is shown like this in the help page, and read.
    Argument !String (String -> Either String (IO v))
  deriving stock (Functor)

-- | A setting, which changes an @a@ by a value.
data Key a = forall v.
  Key
  { keyName :: !String,
    -- | The names of its option, of which those of one letter are short.
    keyOptions :: [String],
    keyKind :: !(Kind v),
    -- | Its default, for the manual.
    keyDefault :: !String,
    -- | Its meaning, for the manual.
    keyHelp :: !String,
    keySet :: v -> a -> a
  }

-- | The option of a setting, if it has one.
keyOption :: Key a -> Maybe (Parser (IO (a -> a)))
keyOption k@Key {keyKind = kind, keySet = set}
  | null (keyOptions k) = Nothing
  | otherwise = parser . fmap set <$> kindArgument kind
  where
    parser = \case
      Flag change -> flag' (pure change) (named <> explained)
      Argument shown parse -> option (eitherReader parse) (named <> explained <> metavar shown <> (if shown == "FILE" then action "file" else mempty))
    named :: (HasName f) => Mod f x
    named = foldMap (\name -> case name of [letter] -> short letter; _ -> long name) (keyOptions k)
    explained :: Mod f x
    explained = help (keyHelp k <> (if keyDefault k `elem` ["none", "false"] then "" else " (default: " <> filter (/= '"') (keyDefault k) <> ")"))

-- | Read a table, given its name for messages, its keys, and hints for misplaced keys: all errors,
-- and the changes by the rest of it.
readTable :: String -> [Key a] -> (String -> Maybe String) -> Table -> ([Problem], a -> a)
readTable name keys elsewhere table = (concat problems, \a -> foldl (flip ($)) a changes)
  where
    (problems, changes) = partitionEithers (map item (tableItems table))
    item i = case filter ((== itemKey i) . keyName) keys of
      Key {keyKind = kind, keySet = set} : _ -> case kindReader kind (itemPlace i) (itemNode i) of
        Left wrongs -> Left [Problem place (dotted (itemKey i) <> ": " <> said) | Problem place said <- wrongs]
        Right value -> Right (set value)
      [] -> Left [Problem (itemPlace i) (dotted (itemKey i) <> ": there is no such key; " <> hint (itemKey i))]
    dotted k = if null name then k else name <> "." <> k
    hint given = case (elsewhere given, nearest given (map keyName keys)) of
      (Just place', _) -> place'
      (_, Just k) -> "did you mean " <> k <> "?"
      _ -> "there are " <> intercalate ", " (map keyName keys)

-- | The nearest name, if it differs by few added, missing, replaced or swapped letters, or if one
-- of the two is a prefix of the other.
--
-- >>> nearest "prot" ["host", "port"]
-- Just "port"
-- >>> nearest "colour" ["host", "port"]
-- Nothing
nearest :: String -> [String] -> Maybe String
nearest given names = case sortOn fst [(d, name) | name <- names, let d = away name, d <= most] of
  (_, name) : _ -> Just name
  [] -> Nothing
  where
    most = max 1 (length given `div` 3)
    plain = map toPlain given
    away name
      | length given >= 3 && (plain `isPrefixOf` name || name `isPrefixOf` plain) = 1
      | otherwise = restrictedDamerauLevenshteinDistance defaultEditCosts plain name
    -- Names in another style are equal.
    toPlain c = if c == '_' then '-' else toLower c

-- | The result, if there are no errors.
faultless :: ([Problem], a) -> Either [Problem] a
faultless (problems, a) = if null problems then Right a else Left problems

-- | One error.
wrong :: Place -> String -> Either [Problem] a
wrong place said = Left [Problem place said]

mismatch :: String -> Reader a
mismatch wants place node = wrong place ("this has to be " <> wants <> ", and is " <> kindOf node)

-- | A string, converted: how it is called in a file and in the help page.
text :: String -> String -> (String -> Either String v) -> Kind v
text wants shown make = Kind wants (stringOf wants make) (Just (Argument shown (fmap pure . make)))

-- | A string, converted.
stringOf :: String -> (String -> Either String a) -> Reader a
stringOf wants make place = \case
  StringNode s -> either (wrong place) Right (make s)
  node -> mismatch wants place node

-- | @true@ or @false@; the option is for @true@.
switch :: Kind Bool
switch = Kind wants reader (Just (Flag True))
  where
    wants = "true or false"
    reader place = \case
      BooleanNode b -> Right b
      node -> mismatch wants place node

-- | An integer between two bounds, as shown in the help page.
integer :: String -> Int -> Int -> Kind Int
integer shown low high = Kind wants reader (Just (Argument shown (fmap pure . parseNumber low high)))
  where
    wants = "a number from " <> show low <> " to " <> show high
    reader place = \case
      IntegerNode n
        | n >= toInteger low, n <= toInteger high -> Right (fromInteger n)
        | otherwise -> wrong place (show n <> " is not " <> wants)
      node -> mismatch wants place node

-- | A number of bytes: an integer, or a string with a suffix such as @"64Mi"@.
octets :: Kind Int
octets = Kind "a number of bytes" reader (Just (Argument "BYTES" (fmap pure . parseBytes)))
  where
    reader place = \case
      IntegerNode n -> either (wrong place) Right (parseBytes (show n))
      StringNode s -> either (wrong place) Right (parseBytes s)
      node -> mismatch "a number of bytes, or a string such as \"64Mi\"" place node

-- | A number of seconds.
duration :: Kind Duration
duration = Kind wants reader (Just (Argument "SECONDS" (fmap pure . parseSeconds)))
  where
    wants = "a number of seconds"
    reader place = \case
      IntegerNode n -> either (wrong place) Right (parseSeconds (show n))
      FloatNode s -> either (wrong place) Right (parseSeconds (show s))
      node -> mismatch wants place node

-- | One of some names.
choice :: [(String, v)] -> Kind v
choice values = text (listed " or " (map show names)) (intercalate "|" names) (\given -> maybe (Left (show given <> problem)) Right (lookup given values))
  where
    names = map fst values
    problem = if length names == 2 then " is neither " <> intercalate " nor " names else " is not one of " <> listed " and " names
    listed final given = intercalate ", " (init given) <> final <> last given

-- | A kind of values for files only.
fileOnly :: String -> (String -> Reader v) -> Kind v
fileOnly wants reader = Kind wants (reader wants) Nothing

-- | An array.
arrayOf :: Reader a -> String -> Reader [a]
arrayOf one wants place = \case
  ArrayNode nodes -> together (map (one place) nodes)
  node -> mismatch wants place node

-- | An array, or a single element.
oneOrMore :: Reader a -> Reader [a]
oneOrMore one place node = case node of
  ArrayNode _ -> arrayOf one "" place node
  _ -> pure <$> one place node

-- | A table.
subTable :: (Table -> Either [Problem] a) -> Reader a
subTable use place = \case
  SubTable table -> use table
  node -> mismatch "a table" place node

-- | The results of all items of a table, or all their errors.
everyItem :: (Item -> Either [Problem] a) -> Table -> Either [Problem] [a]
everyItem use = together . map use . tableItems

together :: [Either [Problem] a] -> Either [Problem] [a]
together results = case partitionEithers results of
  ([], all') -> Right all'
  (problems, _) -> Left (concat problems)

-- | An array of tables, which may be empty, or one table.
tables :: (Table -> Either [Problem] a) -> Reader [a]
tables use place = \case
  Tables several -> together (map use several)
  SubTable table -> pure <$> use table
  ArrayNode [] -> Right []
  node -> mismatch "an array of tables" place node
