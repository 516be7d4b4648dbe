{-# LANGUAGE NoOverloadedStrings #-}

-- | A second reading of RFC 9112, to hold the fast parser against: on lists of
-- characters, one rule after the other, without a thought for cost. It shares no
-- code with the parser, only the types of limits and of the answer's parts.
module Reference
  ( Answer (..),
    Head (..),
    reference,
    referenceChunks,
    ChunksAnswer (..),
  )
where

import Control.Applicative ((<|>))
import Data.Char (chr, digitToInt, isDigit, isHexDigit, toLower)
import Data.List (inits, isPrefixOf, isSuffixOf)
import Weft.Http.RequestHead (Limits (..))

data Answer
  = Wait
  | -- | The status.
    Refuse Int
  | -- | The request and the length of its head.
    Accept Head Int
  deriving stock (Eq, Show)

data Head = Head
  { headMethod :: String,
    headMinor :: Int,
    headTarget :: String,
    headPath :: String,
    headQuery :: String,
    headHost :: Maybe String,
    headFields :: [(String, String)],
    -- | 'Nothing' for chunks.
    headLength :: Maybe Integer,
    headOptions :: (Bool, Bool),
    -- | Whether a 100 is waited for, or something unknown.
    headExpect :: (Bool, Bool),
    -- | In the order of 'conditionNames'.
    headConditions :: [Maybe String]
  }
  deriving stock (Eq, Show)

type Result = Either Int

reference :: Limits -> String -> Answer
reference limits = leading (limitEmptyLines limits) 0
  where
    leading room skipped text = case text of
      "" -> Wait
      c : _ | isTchar c -> complete limits skipped text
      "\r" | room > 0 -> Wait
      '\r' : '\n' : rest | room > 0 -> leading (room - 1) (skipped + 2) rest
      _ -> Refuse 400

complete :: Limits -> Int -> String -> Answer
complete limits skipped text
  | length available > longest && '\n' `notElem` take longest available = Refuse 414
  | otherwise = case ends of
      []
        | length text >= limitHead limits -> Refuse 431
        | otherwise -> Wait
      whole : _
        | length whole > limitHead limits -> Refuse 431
        | otherwise -> case readHead limits whole of
            Left status -> Refuse status
            Right result -> Accept result (skipped + length whole)
  where
    ends = [p | p <- inits text, "\n\n" `isSuffixOf` p || "\n\r\n" `isSuffixOf` p]
    available = case ends of
      [] -> text
      whole : _ -> whole
    longest = min (limitRequestLine limits) (limitHead limits - 1)

readHead :: Limits -> String -> Result Head
readHead limits whole = do
  let (firstLine, rest) = cutLine whole
  line <- ended firstLine
  (method, target, version) <- case splitOn ' ' line of
    [m, t, v] -> Right (m, t, v)
    _ -> Left 400
  require 400 (not (null method) && all isTchar method)
  require 400 (not (null target) && all isTargetChar target)
  (major, minor) <- case version of
    ['H', 'T', 'T', 'P', '/', a, '.', b] | isDigit a && isDigit b -> Right (digitToInt a, digitToInt b)
    _ -> Left 400
  require 505 (major == 1)
  (path, query, authority) <- readTarget method target
  fields <- readFields (limitFields limits) rest
  let values name = [v | (n, v) <- fields, map toLower n == name]
      new = minor >= 1
  host <- case values "host" of
    [h] | isHost h -> Right (Just h)
    [] | not new -> Right Nothing
    _ -> Left 400
  len <- readFraming new (values "content-length") (values "transfer-encoding")
  require 400 (all ((<= 1) . length . values) singles)
  require 501 (if method == "CONNECT" then limitConnect limits else method `elem` known || limitExtensionMethods limits)
  let options = map (map toLower) (concatMap members (values "connection"))
      expects = map (map toLower) (values "expect")
      known100 = not (null expects) && all (== "100-continue") expects
      condition name = case values name of
        [] -> Nothing
        vs -> Just (foldr1 (\a b -> a ++ ", " ++ b) vs)
  Right
    Head
      { headMethod = method,
        headMinor = min 1 minor,
        headTarget = target,
        headPath = path,
        headQuery = query,
        headHost = authority <|> host,
        headFields = fields,
        headLength = len,
        headOptions = ("close" `elem` options, "keep-alive" `elem` options),
        headExpect = (known100 && new, not (null expects) && not known100),
        headConditions = map condition conditionNames
      }
  where
    known = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"]
    singles = ["if-modified-since", "if-unmodified-since", "if-range", "range"]

conditionNames :: [String]
conditionNames = ["if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range", "range"]

readTarget :: String -> String -> Result (String, String, Maybe String)
readTarget "CONNECT" target = do
  require 400 (isHost target && ':' `elem` target)
  Right ("", "", Just target)
readTarget method target = case target of
  '/' : _ -> Right (beforeQuery, query, Nothing)
  "*" -> if method == "OPTIONS" then Right ("*", "", Nothing) else Left 400
  _ -> do
    let (scheme, more) = break (== ':') beforeQuery
    require 400 (map toLower scheme `elem` ["http", "https"] && "://" `isPrefixOf` more)
    let (authority, path) = break (== '/') (drop 3 more)
    require 400 (isHost authority && take 1 authority `notElem` ["", ":"])
    Right (if null path then "/" else path, query, Just authority)
  where
    (beforeQuery, query) = break (== '?') target

readFields :: Int -> String -> Result [(String, String)]
readFields room text
  | line == "\r" = Right []
  | take 1 line == "\r" = Left 400
  | room == 0 = Left 431
  | otherwise = do
      content <- ended line
      let (name, more) = break (== ':') content
      require 400 (not (null name) && all isTchar name && not (null more))
      let value = stripped (drop 1 more)
      require 400 (all isFieldChar value)
      ((name, value) :) <$> readFields (room - 1) rest
  where
    (line, rest) = cutLine text

readFraming :: Bool -> [String] -> [String] -> Result (Maybe Integer)
readFraming new lengths codings = case (lengths, codings) of
  ([], []) -> Right (Just 0)
  ([n], [])
    | not (null n) && all isDigit n && read n < (2 ^ (63 :: Int) :: Integer) -> Right (Just (read n))
  (_, []) -> Left 400
  (_ : _, _) -> Left 400
  ([], _)
    | not new -> Left 400
    | otherwise -> case break (== "chunked") (map coding (concatMap members codings)) of
        ([], ["chunked"]) -> Right Nothing
        (others, end)
          | end `elem` [[], ["chunked"]] && all wellFormed others -> Left 501
        _ -> Left 400
  where
    -- The name of a coding; parameters are dropped, but "chunked" has none.
    coding member = case break (== ';') (map toLower member) of
      (name, "") -> name
      (name, _) -> if stripped name == "chunked" then "" else stripped name
    wellFormed name = not (null name) && all isTchar name

isHost :: String -> Bool
isHost "" = True
isHost ('[' : rest) = case break (== ']') rest of
  (address, ']' : port) ->
    length address >= 2 && ':' `elem` address && all (\c -> isHexDigit c || c `elem` ":.") address && isPort port
  _ -> False
isHost text = not (null name) && nameOk name && isPort port
  where
    (name, port) = break (== ':') text
    nameOk "" = True
    nameOk ('%' : a : b : more) = isHexDigit a && isHexDigit b && nameOk more
    nameOk (c : more) = c `elem` (alphanumeric ++ "-._~!$&'()*+,;=") && nameOk more

isPort :: String -> Bool
isPort "" = True
isPort ":" = True
isPort (':' : digits) = all isDigit digits && (read digits :: Integer) <= 65535
isPort _ = False

isTchar, isTargetChar, isFieldChar :: Char -> Bool
isTchar c = c `elem` (alphanumeric ++ "!#$%&'*+-.^_`|~")
isTargetChar c = c `elem` [chr 0x21 .. chr 0x7e] && c /= '#'
isFieldChar c = c == '\t' || (c >= ' ' && c /= chr 0x7f)

alphanumeric :: String
alphanumeric = ['a' .. 'z'] ++ ['A' .. 'Z'] ++ ['0' .. '9']

require :: Int -> Bool -> Result ()
require status ok = if ok then Right () else Left status

-- | A line without its LF, and the text after it.
cutLine :: String -> (String, String)
cutLine text = drop 1 <$> break (== '\n') text

-- | A line without its CR, which must be there.
ended :: String -> Result String
ended line = case reverse line of
  '\r' : content -> Right (reverse content)
  _ -> Left 400

stripped :: String -> String
stripped = dropBlanks . reverse . dropBlanks . reverse
  where
    dropBlanks = dropWhile (`elem` " \t")

members :: String -> [String]
members = map stripped . splitOn ','

splitOn :: Char -> String -> [String]
splitOn c text = case break (== c) text of
  (a, _ : rest) -> a : splitOn c rest
  (a, "") -> [a]

data ChunksAnswer
  = ChunksWait String
  | ChunksRefuse
  | -- | The data, and what follows the body.
    ChunksEnd String String
  deriving stock (Eq, Show)

-- | A chunked body, without a limit to its overhead. Decides as early as it can.
referenceChunks :: String -> ChunksAnswer
referenceChunks = chunk ""
  where
    chunk done text
      | all isHexDigit text = if tooLarge text then ChunksRefuse else ChunksWait done
      | null digits || tooLarge digits = ChunksRefuse
      | otherwise = extension done size (dropWhile (`elem` " \t") afterDigits) (afterDigits /= dropWhile (`elem` " \t") afterDigits)
      where
        (digits, afterDigits) = span isHexDigit text
        size = foldl (\n c -> n * 16 + toInteger (digitToInt c)) 0 digits
    tooLarge digits = foldl (\n c -> n * 16 + toInteger (digitToInt c)) 0 digits >= (2 ^ (63 :: Int) :: Integer)
    extension done size text blanks = case text of
      "" -> ChunksWait done
      ';' : more -> lineEnd done (dropWhile isFieldChar more) (afterSize size)
      '\r' : _ | not blanks -> lineEnd done text (afterSize size)
      _ -> ChunksRefuse
    afterSize 0 = trailer
    afterSize size = octets size
    lineEnd done text next = case text of
      "" -> ChunksWait done
      "\r" -> ChunksWait done
      '\r' : '\n' : more -> next done more
      _ -> ChunksRefuse
    octets size done text
      | toInteger (length here) < size = ChunksWait (done ++ here)
      | otherwise = lineEnd (done ++ here) rest chunk
      where
        (here, rest) = splitAt (fromInteger (min size 1000000)) text
    trailer done text = case text of
      "" -> ChunksWait done
      "\r" -> ChunksWait done
      '\r' : '\n' : rest -> ChunksEnd done rest
      '\r' : _ -> ChunksRefuse
      _ -> case span isTchar text of
        ("", _) -> ChunksRefuse
        (_, "") -> ChunksWait done
        (_, ':' : more) -> lineEnd done (dropWhile isFieldChar more) trailer
        _ -> ChunksRefuse
