{-# LANGUAGE NoOverloadedStrings #-}

-- |
-- Conversations to try parsers on: what one client sends on one connection. Requests
-- follow each other with their bodies; now and then a part of one is as attackers write
-- it (the strange choices of each part), some bytes are damaged, or the end is cut off. A
-- last plain request shows where each parser thinks that the one before it has ended.
module Differential.Conversation
  ( conversation,
    conversationOf,
    mutated,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as C
import Data.List (intercalate)
import Numeric (showHex)
import Test.QuickCheck
import Test.QuickCheck.Gen (unGen)
import Test.QuickCheck.Random (mkQCGen)

-- | The conversation that belongs to a number.
conversationOf :: Int -> ByteString
conversationOf seed = unGen conversation (mkQCGen seed) 30

-- | Some requests, perhaps damaged.
conversation :: Gen ByteString
conversation = do
  count <- frequency [(6, pure 1), (3, pure 2), (1, pure 3)]
  odd' <- frequency [(3, pure 0), (6, pure 1), (1, pure 3)]
  texts <- vectorOf count (request odd')
  let whole = concat texts ++ marker
  C.pack <$> frequency [(7, pure whole), (2, damaged whole), (1, (`take` whole) <$> choose (0, length whole))]

-- | The plain request at the end.
marker :: String
marker = "GET /marker HTTP/1.1\r\nHost: m\r\nX-Marker: 1\r\n\r\n"

-- | One of the usual ones, or one of the strange with the given chance in twenty-five.
orOdd :: Int -> [a] -> [a] -> Gen a
orOdd chance usual strange = frequency ((25 - chance, elements usual) : [(chance, elements strange) | not (null strange)])

request :: Int -> Gen String
request chance = do
  before <- orOdd chance [""] ["\r\n", "\r\n\r\n", "\n", " ", "\r"]
  method <- orOdd chance ["GET", "HEAD", "POST", "POST", "PUT", "DELETE", "OPTIONS"] ["get", "TRACE", "PATCH", "CONNECT", "PRI", "PROPFIND", "G@T", "GE\0T", "GET\t", "QUERY"]
  target <-
    orOdd
      chance
      ["/", "/a", "/a?b=c", "/%2e%2E/x", "/a;b,c~d", "/long/" ++ replicate 40 'x']
      ["*", "a", "http://a/b?c", "https://a:1", "http://a?b", "//a/b", "/a#b", "/\xe9", "/a|b{}", "a:443", "http://u@a/", "http://:1/", "ftp://a/", "/a b", "/\0", "/\x7f", "HTTP/1.1", "/?", "http://a/#", "?a", "", '/' : replicate 9000 't']
  version <-
    orOdd
      chance
      ["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0"]
      ["HTTP/1.2", "HTTP/2.0", "HTTP/0.9", "http/1.1", "HTTP/1.10", "HTTP/01.1", "HTTP/1,1", "HTTP/1", "HTTP/11", "", "HTTPS/1.1", "HTTP/1.1 x"]
  separator <- orOdd chance [" "] ["  ", "\t", "", " \t", "\v", "\xa0", "\r"]
  host <- orOdd chance [["Host: a"], ["host:b:80"], ["HOST:\t[::1] "]] [[], ["Host: a", "Host: a"], ["Host: a", "Host: b"], ["Host: a b"], ["Host: a/b"], ["Host: u@a"], ["Host:"], ["Host: a:99999"], ["Host : a"], ["Host: a,b"], ["Host: a\0"], ["Host: a\tb"]]
  (lengths, body) <- framed chance
  others <- do
    n <- frequency [(4, pure 0), (3, pure 1), (2, pure 2), (1, pure 5)]
    vectorOf n (field chance)
  fields <- shuffle (host ++ lengths ++ others)
  lineEnds <- vectorOf (length fields + 1) (lineEnd chance)
  empty <- lineEnd chance
  pure $
    before
      ++ method
      ++ separator
      ++ target
      ++ separator
      ++ version
      ++ concat (zipWith (++) ("" : fields) lineEnds)
      ++ empty
      ++ body

-- | Mostly CR LF: a request has many of them.
lineEnd :: Int -> Gen String
lineEnd chance = frequency [(120, pure "\r\n"), (chance, elements ["\n", "\r", "\r\r\n", "\n\r", " \r\n", "\t\r\n", "\0\r\n", "\r\n ", "\r\n\t", "\r\n\r\n", ""])]

-- | Fields that say where the body ends, and a body that mostly ends there.
framed :: Int -> Gen ([String], String)
framed chance = frequency [(4, pure ([], "")), (5, counted), (6, chunked), (if chance > 0 then 2 else 0, confused)]
  where
    counted = do
      body <- content
      let n = show (length body)
      value <- orOdd chance [n] ["0" ++ n, "+" ++ n, "-" ++ n, n ++ ", " ++ n, n ++ "," ++ n, n ++ " " ++ n, "0x" ++ showHex (length body) "", n ++ ".0", n ++ "e0", "", "18446744073709551616", "9223372036854775807", "9223372036854775808", "4294967296", n ++ ";", "\"" ++ n ++ "\"", show (length body + 1), "\v" ++ n, n ++ "\0", n ++ "_0", "00000000000000000000" ++ n, n ++ "\xb2"]
      name <- orOdd chance ["Content-Length: ", "content-length:", "Content-Length:\t "] ["Content-Length : ", "Content_Length: ", " Content-Length: ", "Content-Length\t: ", "Content-Length", "Content-Length\0: ", "\xef\xbb\xbf\&Content-Length: ", "Content-Length:\r\n ", "Content-Length: \r\n\t"]
      doubled <- orOdd chance [False] [True]
      pure (replicate (if doubled then 2 else 1) (name ++ value), body)
    chunked = do
      body <- chunks chance
      value <- orOdd chance ["chunked", "Chunked", "CHUNKED"] ["chunked, chunked", "gzip, chunked", "chunked, gzip", "identity", "chunked, identity", ",chunked", "chunked,", "\"chunked\"", "chunked;a=b", "\vchunked", "xchunked", "chunk", "", "chunked\0", "chunke\xad", "chunked ", "identity, chunked", "chunked\t", "cow"]
      name <- orOdd chance ["Transfer-Encoding: ", "transfer-encoding:"] ["Transfer-Encoding : ", "Transfer_Encoding: ", " Transfer-Encoding: ", "Transfer-Encoding\t:", "Transfer-Encoding", "Transfer-Encoding:\r\n ", "Transfer-Encoding\0: ", "Transfer-\nEncoding: "]
      doubled <- orOdd chance [False] [True]
      pure (replicate (if doubled then 2 else 1) (name ++ value), body)
    confused = do
      text <- chunks chance
      n <- elements [0, 1, 4, length text]
      pure (["Content-Length: " ++ show n, "Transfer-Encoding: chunked"], text)

content :: Gen String
content = frequency [(1, pure ""), (4, resize 20 (listOf (elements "ab\r\n0:\0\xff "))), (1, pure marker), (1, pure "0\r\n\r\n"), (1, pure (replicate 3000 'z'))]

-- | Chunks with their end.
chunks :: Int -> Gen String
chunks chance = do
  n <- frequency [(1, pure 0), (3, pure 1), (2, pure 2)]
  pieces <- vectorOf n chunk
  zero <- orOdd chance ["0", "0", "0", "000"] ["", "-0", "0x0", "+0", "00000000000000000000", " 0", "0 ", "0;a"]
  end <- chunkEnd
  trailers <- orOdd chance ["", "", "", "X: y\r\n", "A:\r\nB: c d \r\n"] ["Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n", "X : y\r\n", " X: y\r\n", "X\r\n", "X: y\n", "X: a\rb\r\n", "X: \0\r\n", ": x\r\n", "X: a\r\n b\r\n", "Host: b\r\n"]
  final <- orOdd chance ["\r\n"] ["", "\n", "\r", "x\r\n", " \r\n", "\r\r\n"]
  pure (concat pieces ++ zero ++ end ++ trailers ++ final)
  where
    chunk = do
      body <- content `suchThat` (not . null)
      let size = showHex (length body) ""
      written <- orOdd chance [size, "0" ++ size, map upper size] ["+" ++ size, "-" ++ size, "0x" ++ size, " " ++ size, size ++ " ", size ++ "\t", "\t" ++ size, "10000000000000000" ++ size, "ffffffffffffffff", "7fffffffffffffff", "8000000000000000", "", "g", size ++ "h", size ++ "\0", size ++ ".", showHex (length body + 1) "", showHex (length body - 1) "", "0000000000000000000000" ++ size]
      extension <- orOdd chance ["", "", "", ";a", ";a=b", ";a=\"b c\""] [" ;a", ";", ";a=\"\n\"", ";\0", ";a\rb", "; a = b", ";a=\"\r\n\"", ";\x7f", ";\xff", ",a", ";a;b;c", ";a=b;", ';' : replicate 9000 'e']
      end <- chunkEnd
      after <- orOdd chance ["\r\n"] ["", "\n", "\r", "\r\r\n", " \r\n", "x\r\n", "\r\n\r\n"]
      pure (written ++ extension ++ end ++ body ++ after)
    chunkEnd = orOdd chance ["\r\n"] ["\n", "\r", "\r\r\n", " \r\n", "\r\n\r\n", "\t\r\n"]
    upper c = if c >= 'a' && c <= 'f' then toEnum (fromEnum c - 32) else c

field :: Int -> Gen String
field chance =
  orOdd
    chance
    [ "Connection: close",
      "Connection: keep-alive",
      "Connection: keep-alive, x",
      "Accept: */*",
      "X-Empty:",
      "X-Blank: a  b\t",
      "X-Latin: \xe9\xff",
      "Expect: 100-continue",
      "If-None-Match: \"a\"",
      "Range: bytes=0-1",
      "Cookie: a=b; c=d",
      "X-Long: " ++ replicate 200 'v'
    ]
    [ " folded",
      "X: a\r\n b",
      "X: a\r\n\tb: c",
      "X : y",
      "X\t: y",
      ": no name",
      "no colon",
      "",
      "X: a\0b",
      "X: a\x01",
      "X: a\x7f",
      "X: a\vb",
      "X: a\fb",
      "X\0: y",
      "X(: y",
      "X\xe9: y",
      "X: a\rb",
      "X: a\nb: c",
      "X: a\nTransfer-Encoding: chunked",
      "X: a\rTransfer-Encoding: chunked",
      "Connection: close, keep-alive",
      "Connection: ,close",
      "Connection: Content-Length",
      "Connection: Transfer-Encoding, close",
      "Expect: pizza",
      "Range: bytes=0-1\r\nRange: bytes=2-3",
      "X-Huge: " ++ replicate 17000 'h',
      intercalate "\r\n" (replicate 101 "N: n"),
      "Upgrade: websocket\r\nConnection: Upgrade",
      "Content-Length:",
      "Transfer-Encoding:",
      "Content-Length: 0",
      "X:: y",
      "\"X\": y",
      "X: y\r"
    ]

-- | A few bytes of it changed.
damaged :: String -> Gen String
damaged text = choose (1, 3 :: Int) >>= go text
  where
    go t 0 = pure t
    go t n = change t >>= \t' -> go t' (n - 1)
    change t = do
      i <- choose (0, length t)
      byte <- frequency [(3, elements "\r\n\0 \t:,;/?#\x7f\x80\x01\&aGH01-\"+"), (1, chooseEnum ('\0', '\xff'))]
      m <- choose (1, 12)
      let (a, b) = splitAt i t
      elements
        [ a ++ drop 1 b,
          a ++ byte : b,
          a ++ byte : drop 1 b,
          a ++ drop m b,
          a ++ take m b ++ b
        ]

-- | A conversation, changed by some bytes, or joined with a part of another.
mutated :: ByteString -> ByteString -> Gen ByteString
mutated one other = do
  let texts = (C.unpack one, C.unpack other)
  C.pack <$> frequency [(3, damaged (fst texts)), (1, spliced texts), (1, spliced texts >>= damaged)]
  where
    spliced (a, b) = do
      i <- choose (0, length a)
      j <- choose (0, length b)
      pure (take i a ++ drop j b)
