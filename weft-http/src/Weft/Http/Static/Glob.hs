-- |
-- Description : Patterns of paths
--
-- Patterns such as @*.css@ and @\/assets\/**@, compiled once and matched against
-- paths. Matching goes back to the last star only, so it takes at most the product of
-- the two lengths, however many stars there are. Pure.
module Weft.Http.Static.Glob
  ( Glob,
    parseGlob,
    globText,
    matchesGlob,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Word (Word8)

-- | A pattern that was understood.
data Glob = Glob
  { -- | As it was written.
    globText :: !ByteString,
    globAlternatives :: [[Part]]
  }

instance Eq Glob where
  a == b = globText a == globText b

instance Show Glob where
  showsPrec d glob = showsPrec d (globText glob)

-- | What one component of a path is compared with.
data Part
  = -- | @**@: any number of components, none included.
    AnyDepth
  | -- | One component.
    Name [Piece]

data Piece
  = -- | @*@: any number of bytes of a component.
    AnyBytes
  | -- | @?@
    AnyByte
  | Exactly !Word8

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
      alternatives <- braces (B.unpack text)
      Glob text <$> traverse parts alternatives
  where
    parts bytes
      | slash `elem` bytes = traverse part (splitSlash (drop 1 bytes))
      | otherwise = (\p -> [AnyDepth, p]) <$> part bytes
    part bytes
      | null bytes = Left "has an empty component"
      | bytes `elem` [[dot], [dot, dot]] = Left "has a component . or .., which no path has"
      | bytes == [star, star] = Right AnyDepth
      | otherwise = Name <$> pieces bytes
    pieces = \case
      [] -> Right []
      w : rest
        | w == backslash, escaped : after <- rest -> (Exactly escaped :) <$> pieces after
        | w == backslash -> Left "ends in a backslash"
        | w == star, next : _ <- rest, next == star -> Left "has ** beside something else: it must be a component of its own"
        | w == star -> (AnyBytes :) <$> pieces rest
        | w == question -> (AnyByte :) <$> pieces rest
        | w `elem` [0x5b, 0x5d] -> Left "has a bracket, which is reserved: write \\[ or \\]"
        | otherwise -> (Exactly w :) <$> pieces rest

-- | Write out the alternatives in braces.
braces :: [Word8] -> Either String [[Word8]]
braces bytes = do
  whole <- go bytes
  if length (take 65 whole) > 64 then Left "has more than 64 alternatives" else Right whole
  where
    go = \case
      [] -> Right [[]]
      w : rest
        | w == backslash, escaped : after <- rest -> map ([w, escaped] <>) <$> go after
        | w == open -> do
            (choices, after) <- inside [] [] rest
            others <- go after
            Right [choice <> other | choice <- choices, other <- others]
        | w == close -> Left "has a } without {"
        | otherwise -> map (w :) <$> go rest
    inside done current = \case
      [] -> Left "has a { without }"
      w : rest
        | w == backslash, escaped : after <- rest -> inside done (escaped : w : current) after
        | w == close -> Right (reverse (reverse current : done), rest)
        | w == comma -> inside (reverse current : done) [] rest
        | w == open -> Left "has braces within braces"
        | otherwise -> inside done (w : current) rest

-- | Whether a path, which begins with a slash and is not encoded, fits a pattern. A
-- slash at its end is ignored.
matchesGlob :: Glob -> ByteString -> Bool
matchesGlob glob path = any (\parts -> wildcard isDepth fits parts components) (globAlternatives glob)
  where
    components = filter (not . B.null) (C.split '/' path)
    isDepth = \case
      AnyDepth -> True
      Name _ -> False
    fits part component = case part of
      AnyDepth -> True
      Name pieces -> wildcard isRun same pieces (B.unpack component)
    isRun = \case
      AnyBytes -> True
      _ -> False
    same piece w = case piece of
      Exactly expected -> expected == w
      _ -> True

-- | Compare a pattern, some of whose members stand for any run, with a list. Where it
-- does not go on, the last run takes one more: an earlier one never has to, because
-- whatever it could take, the last one can take as well.
wildcard :: (p -> Bool) -> (p -> a -> Bool) -> [p] -> [a] -> Bool
wildcard isRun same = go Nothing
  where
    go _ (p : ps) xs | isRun p = go (Just (ps, xs)) ps xs
    go _ [] [] = True
    go back (p : ps) (x : xs) | same p x = go back ps xs
    go (Just (ps, _ : xs)) _ _ = go (Just (ps, xs)) ps xs
    go _ _ _ = False

splitSlash :: [Word8] -> [[Word8]]
splitSlash bytes = case break (== slash) bytes of
  (before, []) -> [before]
  (before, _ : rest) -> before : splitSlash rest

slash, star, question, backslash, open, close, comma, dot :: Word8
slash = 0x2f
star = 0x2a
question = 0x3f
backslash = 0x5c
open = 0x7b
close = 0x7d
comma = 0x2c
dot = 0x2e
