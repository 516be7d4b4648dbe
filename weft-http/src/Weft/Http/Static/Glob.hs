-- | Patterns such as @*.css@ and @\/assets\/**@. Matching backtracks to the last star only. Pure.
module Weft.Http.Static.Glob (Glob, parseGlob, globText, matchesGlob) where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C

-- | A pattern that was understood.
data Glob = Glob
  { -- | As it was written.
    globText :: !ByteString,
    globAlternatives :: [[Component]]
  }

instance Eq Glob where
  a == b = globText a == globText b

instance Show Glob where
  showsPrec d glob = showsPrec d (globText glob)

-- | A pattern for one component of a path, or several.
data Component
  = -- | @**@: any number of components, none included.
    AnyDepth
  | -- | One component.
    Name [GlobPiece]
  deriving stock (Eq)

data GlobPiece
  = -- | @*@: any number of bytes of a component.
    AnyBytes
  | -- | @?@
    AnyByte
  | Exactly !Char
  deriving stock (Eq)

-- | Read a pattern, or say what is wrong with it.
--
-- * @*@ stands for any number of bytes but slashes, @?@ for one, and a component @**@
--   for any number of components.
-- * @{a,b}@ stands for either.
-- * A backslash takes its meaning from the byte after it.
-- * A pattern without a slash is compared with the last component of a path, one with
--   a slash with the whole path.
--
-- >>> (`matchesGlob` "/a/b.css") <$> parseGlob "*.{css,js}"
-- Right True
-- >>> (`matchesGlob` "/assets/a/b") <$> parseGlob "/assets/**"
-- Right True
-- >>> parseGlob "assets/*"
-- Left "has a slash, so it must begin with one: \"/assets/*\""
parseGlob :: ByteString -> Either String Glob
parseGlob text
  | B.null text = Left "is empty"
  | B.length text > 1024 = Left "is longer than 1024 bytes"
  | B.any (\w -> w < 0x20 || w == 0x7f) text = Left "contains a control character"
  | C.elem '/' text && C.head text /= '/' = Left ("has a slash, so it must begin with one: " <> show ("/" <> text))
  | "/" `B.isSuffixOf` text = Left ("ends in a slash; for all that is inside: " <> show (text <> "**"))
  | otherwise = do
      alternatives <- braces (C.unpack text)
      Glob text <$> traverse parts alternatives
  where
    parts pattern'
      | '/' `elem` pattern' = traverse part (splitSlash (drop 1 pattern'))
      | otherwise = (\p -> [AnyDepth, p]) <$> part pattern'
    part = \case
      "" -> Left "has an empty component"
      name | name `elem` [".", ".."] -> Left "has a component . or .., which no path has"
      "**" -> Right AnyDepth
      name -> Name <$> pieces name
    pieces = \case
      [] -> Right []
      "\\" -> Left "ends in a backslash"
      '\\' : escaped : rest -> (Exactly escaped :) <$> pieces rest
      '*' : '*' : _ -> Left "has ** beside something else: it must be a component of its own"
      '*' : rest -> (AnyBytes :) <$> pieces rest
      '?' : rest -> (AnyByte :) <$> pieces rest
      c : rest
        | c `elem` ("[]" :: String) -> Left "has a bracket, which is reserved: write \\[ or \\]"
        | otherwise -> (Exactly c :) <$> pieces rest

braces :: String -> Either String [String]
braces text = do
  whole <- go text
  if length (take 65 whole) > 64 then Left "has more than 64 alternatives" else Right whole
  where
    go = \case
      [] -> Right [[]]
      '\\' : escaped : rest -> map (['\\', escaped] <>) <$> go rest
      '{' : rest -> do
        (choices, after) <- inside [] [] rest
        others <- go after
        Right [choice <> other | choice <- choices, other <- others]
      '}' : _ -> Left "has a } without {"
      c : rest -> map (c :) <$> go rest
    inside done current = \case
      [] -> Left "has a { without }"
      '\\' : escaped : rest -> inside done (escaped : '\\' : current) rest
      '}' : rest -> Right (reverse (reverse current : done), rest)
      ',' : rest -> inside (reverse current : done) [] rest
      '{' : _ -> Left "has braces within braces"
      c : rest -> inside done (c : current) rest

-- | Does a decoded path that begins with a slash match? A slash at its end is ignored.
matchesGlob :: Glob -> ByteString -> Bool
matchesGlob glob path = any (\parts -> wildcard (== AnyDepth) fits parts components) (globAlternatives glob)
  where
    components = filter (not . B.null) (C.split '/' path)
    fits part component = case part of
      AnyDepth -> True
      Name pieces -> wildcard (== AnyBytes) same pieces (C.unpack component)
    same piece c = case piece of
      Exactly expected -> expected == c
      _ -> True

-- | Match a pattern some members of which stand for any run. On a mismatch the last run takes one more.
wildcard :: (p -> Bool) -> (p -> a -> Bool) -> [p] -> [a] -> Bool
wildcard isRun same = go Nothing
  where
    go _ (p : ps) xs | isRun p = go (Just (ps, xs)) ps xs
    go _ [] [] = True
    go back (p : ps) (x : xs) | same p x = go back ps xs
    go (Just (ps, _ : xs)) _ _ = go (Just (ps, xs)) ps xs
    go _ _ _ = False

splitSlash :: String -> [String]
splitSlash text = case break (== '/') text of
  (before, []) -> [before]
  (before, _ : rest) -> before : splitSlash rest
