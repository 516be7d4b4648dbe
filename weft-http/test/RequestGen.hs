{-# LANGUAGE NoOverloadedStrings #-}

-- | Requests to try a parser on: valid ones, valid ones with damage, and heaps of
-- fragments that were chosen to be misread.
module RequestGen
  ( genText,
    genValid,
    tight,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as C
import Test.QuickCheck
import Weft.Http.RequestHead

-- | Limits small enough for generated requests to run into them.
tight :: Limits
tight = defaultLimits {limitRequestLine = 70, limitHead = 330, limitFields = 7, limitEmptyLines = 1}

-- | Anything, with about equal weight on each of the three kinds.
genText :: Gen ByteString
genText =
  C.pack
    <$> frequency
      [ (3, genValid),
        (4, genValid >>= damage),
        (3, genFragments)
      ]

-- | A request that the RFC allows, though not one that is always implemented, or
-- within 'tight' limits. Sometimes another follows.
genValid :: Gen String
genValid = do
  method <- frequency [(8, elements ["GET", "HEAD"]), (3, elements ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"]), (1, elements ["PROPFIND", "get", "CONNECT", "PRI"])]
  target <- case method of
    "CONNECT" -> pure "example.org:443"
    "OPTIONS" -> oneof [pure "*", genTarget]
    _ -> genTarget
  version <- frequency [(12, pure "HTTP/1.1"), (4, pure "HTTP/1.0"), (1, pure "HTTP/1.2"), (1, pure "HTTP/2.0")]
  others <- frequency [(9, resize 4 (listOf genField)), (1, vectorOf 8 genField), (1, pure ["x: " ++ replicate 300 'y'])]
  host <- frequency [(9, (: []) <$> genHostField), (if version == "HTTP/1.0" then 9 else 0, pure [])]
  body <- frequency [(6, pure []), (2, pure ["Content-Length: 5"]), (if version == "HTTP/1.0" then 0 else 2, elements [["Transfer-Encoding: chunked"], ["transfer-encoding: gzip, chunked"]])]
  fields <- shuffle (host ++ body ++ others)
  before <- frequency [(8, pure ""), (1, pure "\r\n")]
  after <- frequency [(3, pure ""), (1, pure "hello"), (1, pure "GET / HTTP/1.1\r\n\r\n")]
  pure (before ++ concatMap (++ "\r\n") (unwords [method, target, version] : fields) ++ "\r\n" ++ after)

genTarget :: Gen String
genTarget =
  frequency
    [ (5, ('/' :) <$> path),
      (3, (\p q -> '/' : p ++ "?" ++ q) <$> path <*> path),
      (1, (\h p -> "http://" ++ h ++ p) <$> genHost <*> elements ["", "/", "/a?b", "?q"]),
      (1, pure ('/' : replicate 60 'x'))
    ]
  where
    path = resize 12 (listOf (elements "ab/%2e.~|?"))

genHost :: Gen String
genHost = elements ["localhost", "a.example:8080", "127.0.0.1:80", "[::1]:8080", "%41b", "x:"]

genHostField :: Gen String
genHostField = (\name blank host -> name ++ blank ++ host) <$> elements ["Host:", "host:", "HOST:"] <*> elements [" ", "", "\t "] <*> genHost

genField :: Gen String
genField =
  frequency
    [ (2, elements ["Connection: close", "Connection: keep-alive", "connection: Upgrade, Close", "Connection: ,keep-alive ,x"]),
      (1, elements ["Expect: 100-continue", "expect: 100-Continue", "Expect: pizza"]),
      (2, elements ["If-None-Match: \"a\"", "If-None-Match: *", "If-Match: \"b\", W/\"c\"", "If-Range: \"a\"", "Range: bytes=0-1", "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT", "If-Unmodified-Since: x"]),
      (3, (\n v -> n ++ ": " ++ v) <$> resize 8 (listOf1 (elements "abXY-9_!|~")) <*> resize 12 (listOf (elements "ab ,;=\t\"\xe9\xff")))
    ]

-- | One to three small changes.
damage :: String -> Gen String
damage text = choose (1, 3 :: Int) >>= go text
  where
    go t 0 = pure t
    go t n = do
      i <- choose (0, length t)
      let (a, b) = splitAt i t
      byte <- elements "\r\n\0 \t:,;/?#\x7f\x80\x01aGH1-\""
      line <- elements evilLines
      changed <-
        elements
          [ a ++ drop 1 b,
            a ++ [byte] ++ b,
            a ++ [byte] ++ drop 1 b,
            -- after the line in which we are
            let (c, d) = break (== '\n') b in a ++ c ++ take 1 d ++ line ++ "\r\n" ++ drop 1 d,
            let (c, d) = break (== '\r') b in a ++ c ++ drop 1 d,
            a
          ]
      go changed (n - 1)

-- | Fragments, one after the other.
genFragments :: Gen String
genFragments = do
  start <- elements ["GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: a\r\n", "POST /x HTTP/1.1\r\nhost:b\r\n", "GET / HTTP/1.0\r\n"]
  pieces <- resize 6 (listOf (elements (map (++ "\r\n") evilLines ++ evilLines)))
  end <- elements ["\r\n", "\r\n\r\n", "\n", "\n\n", ""]
  pure (start ++ concat pieces ++ end)

evilLines :: [String]
evilLines =
  [ "Content-Length: 5",
    "Content-Length: 5, 5",
    "Content-Length: +5",
    "Content-Length: 0x5",
    "Content-Length: -0",
    "Content-Length:",
    "Content-Length: 9223372036854775807",
    "Content-Length: 9223372036854775808",
    "Content-Length : 5",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: Chunked",
    "Transfer-Encoding: chunked, chunked",
    "Transfer-Encoding: identity",
    "Transfer-Encoding: chunked, identity",
    "Transfer-Encoding: gzip;q=1",
    "Transfer-Encoding: chunked;a=b",
    "Transfer-Encoding: \vchunked",
    "Transfer-Encoding: \"chunked\"",
    "Transfer-Encoding: ,chunked",
    "Transfer-Encoding:",
    " folded",
    "\tfolded",
    "Host: a",
    "Host: a b",
    "Host: a/b",
    "Host: user@a",
    "Host: [::1",
    "Host: a:65536",
    "Host: a:99999999999999999999",
    "Host:",
    ": no name",
    "no colon",
    "Range: bytes=0-0",
    "If-None-Match: \"x\"",
    "x:\r",
    "a:b"
  ]
