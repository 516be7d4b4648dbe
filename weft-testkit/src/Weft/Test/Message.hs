-- |
-- HTTP/1.1 as bytes: requests that a test sends, and a reader of responses that shares
-- nothing with the code under test.
module Weft.Test.Message
  ( -- * Requests
    request,
    get,
    getLast,
    post,

    -- * Responses
    Reply (..),
    header,
    headerNames,
    replies,
    replyTo,
    readHead,
    statuses,
    contentOf,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Char (toLower)
import Data.Maybe (fromMaybe)
import Numeric (readHex)

-- | A request with these fields, without a body. It has a field @Host@ in any case.
request :: ByteString -> ByteString -> [ByteString] -> ByteString
request method target fields =
  B.concat ([method, " ", target, " HTTP/1.1\r\n"] <> map (<> "\r\n") (["Host: t" | not (any ("Host:" `B.isPrefixOf`) fields)] <> fields) <> ["\r\n"])

-- | A GET that leaves the connection open.
get :: ByteString -> ByteString
get target = request "GET" target []

-- | A GET that is the last request of its connection.
getLast :: ByteString -> ByteString
getLast target = request "GET" target ["Connection: close"]

-- | A POST with these fields, and what follows its head.
post :: ByteString -> [ByteString] -> ByteString -> ByteString
post target fields content = request "POST" target fields <> content

-- | A response.
data Reply = Reply
  { replyStatus :: Int,
    -- | The names are in lower case.
    replyHeaders :: [(ByteString, ByteString)],
    replyBody :: ByteString,
    -- | The end was where the response said, or could not be known.
    replyComplete :: Bool
  }
  deriving stock (Eq, Show)

-- | All values of a field, which is named in lower case, joined.
header :: ByteString -> Reply -> Maybe ByteString
header name reply = case [v | (n, v) <- replyHeaders reply, n == name] of
  [] -> Nothing
  values -> Just (B.intercalate ", " values)

-- | The names of the fields, in order.
headerNames :: Reply -> [ByteString]
headerNames = map fst . replyHeaders

-- | The one response to a request with this method.
replyTo :: ByteString -> ByteString -> Reply
replyTo method bytes = case replies [method] bytes of
  [reply] -> reply
  other -> error ("not one response: " <> show other <> " in " <> show bytes)

-- | The responses to requests with these methods. Interim ones count.
replies :: [ByteString] -> ByteString -> [Reply]
replies methods bytes
  | B.null bytes = []
  | B.null rest = error ("not a head: " <> show bytes)
  | otherwise = reply {replyBody = body, replyComplete = complete} : replies methods' after
  where
    (top, rest) = B.breakSubstring "\r\n\r\n" bytes
    content = B.drop 4 rest
    reply = fromMaybe (error ("not a head: " <> show top)) (readHead top)
    status = replyStatus reply
    interim = status < 200
    methods' = if interim then methods else drop 1 methods
    (body, after, complete)
      | interim || status `elem` [204, 304] || take 1 methods == ["HEAD"] = (B.empty, content, True)
      | header "transfer-encoding" reply == Just "chunked" = dechunk [] content
      | Just n <- header "content-length" reply >>= fmap fst . C.readInt =
          (B.take n content, B.drop n content, B.length content >= n)
      | otherwise = (content, B.empty, True)

-- | A head, without the empty line that ends it: a response without a body.
readHead :: ByteString -> Maybe Reply
readHead top = case C.lines (C.filter (/= '\r') top) of
  line : fields
    | "HTTP/1." `B.isPrefixOf` line, Just (status, _) <- C.readInt (B.drop 9 line) -> Just (Reply status (map field fields) B.empty True)
  _ -> Nothing
  where
    field line = let (name, value) = C.break (== ':') line in (C.map toLower name, C.dropWhile (== ' ') (B.drop 1 value))

dechunk :: [ByteString] -> ByteString -> (ByteString, ByteString, Bool)
dechunk got bytes = case B.breakSubstring "\r\n" bytes of
  (size, more)
    | B.null more -> (B.concat (reverse got), B.empty, False)
    | [(n, "")] <- readHex (C.unpack size) ->
        if n == 0
          then (B.concat (reverse got), B.drop 4 more, "\r\n\r\n" `B.isPrefixOf` more)
          else
            if B.length more < n + 4
              then (B.concat (reverse (B.drop 2 more : got)), B.empty, False)
              else dechunk (B.take n (B.drop 2 more) : got) (B.drop (n + 4) more)
    | otherwise -> error ("not a chunk: " <> show size)

-- | The codes of the status lines, wherever they stand.
statuses :: ByteString -> [ByteString]
statuses bytes = case B.breakSubstring "HTTP/1.1 " bytes of
  (_, rest)
    | B.null rest -> []
    | otherwise -> B.take 3 (B.drop 9 rest) : statuses (B.drop 9 rest)

-- | The bytes after the first head.
contentOf :: ByteString -> ByteString
contentOf = B.drop 4 . snd . B.breakSubstring "\r\n\r\n"
