-- | A strict reader of the text format of Prometheus, version 0.0.4, written from its
-- description: it takes nothing that a scraper might not, and less than it might.
module Exposition
  ( Exposed (..),
    readExposition,
    valueOf,
  )
where

import Control.Monad (forM_, unless, when)
import Data.Bifunctor (first)
import Data.Char (isAsciiLower, isAsciiUpper, isDigit)
import Data.List (group, isPrefixOf, isSuffixOf, nub, sort, stripPrefix)
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Maybe (fromMaybe)

-- | A family: help, type, and samples by name and labels, in order.
data Exposed = Exposed {readHelp :: String, readType :: String, readSamples :: [((String, [(String, String)]), Double)]}
  deriving stock (Eq, Show)

-- | By name, or what is wrong.
readExposition :: String -> Either String (Map String Exposed)
readExposition text = do
  unless (null text || "\n" `isSuffixOf` text) (Left "the last line does not end")
  families <- go (lines text)
  let names = map fst families
  unless (names == nub names) (Left ("a family in two places: " <> show (names `without` nub names)))
  mapM_ (uncurry checkFamily) families
  let samples = concatMap (map fst . readSamples . snd) families
  forM_ (filter ((> 1) . length) (group (sort samples))) (\s -> Left ("a sample twice: " <> show (take 1 s)))
  pure (Map.fromList families)
  where
    without as bs = [a | (a, n) <- zip as [0 :: Int ..], n >= length bs]
    go [] = Right []
    go (l : ls)
      | Just rest <- stripPrefix "# HELP " l = do
          (name, help) <- named rest
          help' <- unescape False help
          case ls of
            t : more | Just rest' <- stripPrefix "# TYPE " t -> do
              (name', kind) <- named rest'
              unless (name == name') (Left ("TYPE of another: " <> t))
              unless (kind `elem` ["counter", "gauge", "histogram", "summary", "untyped"]) (Left ("no type: " <> t))
              let (own, others) = break ("#" `isPrefixOf`) more
              samples <- mapM readSample own
              when (null samples) (Left ("no samples: " <> name))
              ((name, Exposed help' kind samples) :) <$> go others
            _ -> Left ("no TYPE after: " <> l)
      | otherwise = Left ("neither HELP nor a sample of a family: " <> l)
    named rest = case break (== ' ') rest of
      (name, ' ' : more) | isName (== ':') name -> Right (name, more)
      _ -> Left ("no name: " <> rest)

isName :: (Char -> Bool) -> String -> Bool
isName also = \case
  [] -> False
  c : cs -> letter c && all (\d -> letter d || isDigit d) cs
  where
    letter c = isAsciiLower c || isAsciiUpper c || c == '_' || also c

readSample :: String -> Either String ((String, [(String, String)]), Double)
readSample l = do
  let (name, rest) = break (`elem` ("{ " :: String)) l
  unless (isName (== ':') name) (Left ("no name: " <> l))
  (labels, rest') <- case rest of
    '{' : inner -> readLabels l inner
    _ -> Right ([], rest)
  unless (map fst labels == nub (map fst labels)) (Left ("a label twice: " <> l))
  case rest' of
    ' ' : value -> (,) (name, labels) <$> readValue l value
    _ -> Left ("no value: " <> l)

readLabels :: String -> String -> Either String ([(String, String)], String)
readLabels l inner = do
  let (name, rest) = break (== '=') inner
  unless (isName (const False) name && not ("__" `isPrefixOf` name)) (Left ("no label: " <> l))
  case rest of
    '=' : '"' : more -> do
      let (raw, after) = quoted more
      value <- unescape True raw
      case after of
        '"' : ',' : next -> first ((name, value) :) <$> readLabels l next
        '"' : '}' : end -> Right ([(name, value)], end)
        _ -> Left ("labels do not end: " <> l)
    _ -> Left ("no value of a label: " <> l)
  where
    quoted = \case
      '\\' : c : cs -> let (a, b) = quoted cs in ('\\' : c : a, b)
      '"' : cs -> ("", '"' : cs)
      c : cs -> let (a, b) = quoted cs in (c : a, b)
      [] -> ("", "")

unescape :: Bool -> String -> Either String String
unescape quotes = \case
  '\\' : '\\' : cs -> ('\\' :) <$> unescape quotes cs
  '\\' : 'n' : cs -> ('\n' :) <$> unescape quotes cs
  '\\' : '"' : cs | quotes -> ('"' :) <$> unescape quotes cs
  '\\' : _ -> Left "a backslash before what needs none"
  c : cs -> (c :) <$> unescape quotes cs
  [] -> Right ""

readValue :: String -> String -> Either String Double
readValue l = \case
  "NaN" -> Right (0 / 0)
  "+Inf" -> Right (1 / 0)
  "-Inf" -> Right (-(1 / 0))
  '-' : digits -> negate <$> number digits
  digits -> number digits
  where
    number text = case reads text of
      [(d, "")] | all (\c -> isDigit c || c `elem` (".e-" :: String)) text, isDigit (head' text), isDigit (head' (reverse text)) -> Right d
      _ -> Left ("no number: " <> l)
    head' = fromMaybe ' ' . foldr (\c _ -> Just c) Nothing

checkFamily :: String -> Exposed -> Either String ()
checkFamily name (Exposed help kind samples) = do
  when (null help) (Left ("no help: " <> name))
  case kind of
    "histogram" -> histogram
    _ -> do
      forM_ samples $ \((n, _), _) -> unless (n == name) (Left ("a sample of another family: " <> n))
      when (kind == "counter") $ do
        unless ("_total" `isSuffixOf` name) (Left ("a counter without _total: " <> name))
        forM_ samples (\(_, v) -> unless (v >= 0) (Left ("a counter below zero: " <> name)))
  where
    histogram = do
      let buckets = [(lookup "le" ls, v) | ((n, ls), v) <- samples, n == name <> "_bucket"]
          sums = [v | ((n, []), v) <- samples, n == name <> "_sum"]
          counts = [v | ((n, []), v) <- samples, n == name <> "_count"]
      bounds <- mapM (maybe (Left ("a bucket without le: " <> name)) (readValue name) . fst) buckets
      unless (length samples == length buckets + 2 && length sums == 1) (Left ("not a histogram: " <> name))
      unless (and (zipWith (<) bounds (drop 1 bounds))) (Left ("buckets out of order: " <> name))
      unless (and (zipWith (<=) (map snd buckets) (drop 1 (map snd buckets)))) (Left ("buckets do not add up: " <> name))
      unless (take 1 (reverse bounds) == [1 / 0] && map snd (take 1 (reverse buckets)) == counts) (Left ("the last bucket is not all: " <> name))

-- | The value of one sample.
valueOf :: String -> [(String, String)] -> Map String Exposed -> Maybe Double
valueOf name labels families = lookup (name, labels) (concatMap readSamples (Map.elems families))
