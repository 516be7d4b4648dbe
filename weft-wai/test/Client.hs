-- | A client that sends the bytes it is told to, and takes apart what comes.
module Client
  ( -- * Talking
    exchange,
    withClient,
    Connected,
    say,
    hear,
    hearUntil,
    hearAll,
    finish,
    reset,

    -- * Requests
    get,
    getWith,

    -- * Responses
    Reply (..),
    replies,
    replyTo,
    header,
    headerNames,
  )
where

import Control.Exception (bracket)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Char (toLower)
import Network.Socket
import Network.Socket.ByteString (recv, sendAll)
import Numeric (readHex)

-- | A connection to a server on the loopback address.
newtype Connected = Connected Socket

-- | While this runs.
withClient :: Int -> (Connected -> IO a) -> IO a
withClient port act = bracket (socket AF_INET Stream defaultProtocol) close $ \s -> do
  connect s (SockAddrInet (fromIntegral port) (tupleToHostAddress (127, 0, 0, 1)))
  act (Connected s)

-- | Send bytes.
say :: Connected -> ByteString -> IO ()
say (Connected s) = sendAll s

-- | Some bytes; none at the end.
hear :: Connected -> IO ByteString
hear (Connected s) = recv s 65_536

-- | What comes, until it contains this, or ends.
hearUntil :: Connected -> ByteString -> IO ByteString
hearUntil c what = go B.empty
  where
    go got
      | what `B.isInfixOf` got = pure got
      | otherwise = hear c >>= \more -> if B.null more then pure got else go (got <> more)

-- | All that comes.
hearAll :: Connected -> IO ByteString
hearAll c = go []
  where
    go pieces = hear c >>= \more -> if B.null more then pure (B.concat (reverse pieces)) else go (more : pieces)

-- | Say that no more is going to be sent.
finish :: Connected -> IO ()
finish (Connected s) = shutdown s ShutdownSend

-- | Close with a reset.
reset :: Connected -> IO ()
reset (Connected s) = setSockOpt s Linger (StructLinger 1 0) >> close s

-- | Send all of this at once, and take what comes until the server closes.
exchange :: Int -> ByteString -> IO ByteString
exchange port bytes = withClient port $ \c -> say c bytes >> hearAll c

-- | The last request of a connection.
get :: ByteString -> ByteString
get target = getWith target []

-- | The same with more fields.
getWith :: ByteString -> [ByteString] -> ByteString
getWith target fields = B.concat (["GET ", target, " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"] <> map (<> "\r\n") fields <> ["\r\n"])

-- | A response.
data Reply = Reply
  { replyStatus :: Int,
    replyHeaders :: [(ByteString, ByteString)],
    replyBody :: ByteString,
    -- | The end was where the response said, or could not be known.
    replyComplete :: Bool
  }
  deriving stock (Eq, Show)

-- | The first value; the name in lower case.
header :: ByteString -> Reply -> Maybe ByteString
header name = lookup name . replyHeaders

headerNames :: Reply -> [ByteString]
headerNames = map fst . replyHeaders

-- | The one response to a request with this method.
replyTo :: ByteString -> ByteString -> Reply
replyTo method bytes = case replies [method] bytes of
  [reply] -> reply
  other -> error ("not one response: " <> show other <> " in " <> show bytes)

-- | The responses in what came, to requests with these methods. Interim ones count.
replies :: [ByteString] -> ByteString -> [Reply]
replies methods bytes
  | B.null bytes = []
  | B.null rest = error ("not a head: " <> show bytes)
  | otherwise = Reply status fields body complete : replies methods' after
  where
    (top, rest) = B.breakSubstring "\r\n\r\n" bytes
    content = B.drop 4 rest
    (line, fieldLines) = case splitLines top of
      l : ls -> (l, ls)
      [] -> error "empty head"
    status = maybe (error (show line)) fst (C.readInt (B.drop 9 line))
    fields = [(C.map toLower n, C.dropWhile (== ' ') (B.drop 1 v)) | l <- fieldLines, let (n, v) = C.break (== ':') l]
    interim = status < 200
    method = take 1 methods
    methods' = if interim then methods else drop 1 methods
    (body, after, complete)
      | interim || status `elem` [204, 304] || method == ["HEAD"] = (B.empty, content, True)
      | lookup "transfer-encoding" fields == Just "chunked" = dechunk [] content
      | Just n <- lookup "content-length" fields >>= fmap fst . C.readInt =
          (B.take n content, B.drop n content, B.length content >= n)
      | otherwise = (content, B.empty, True)

splitLines :: ByteString -> [ByteString]
splitLines b = case B.breakSubstring "\r\n" b of
  (l, more)
    | B.null more -> [l]
    | otherwise -> l : splitLines (B.drop 2 more)

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
