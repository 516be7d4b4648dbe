-- | Named regressions: the ways in which one request has been made to look like
-- two, each as a head that must be refused, and with which fault.
module SmugglingTest (tests) where

import Data.ByteString (ByteString)
import Test.Tasty (TestName, TestTree, testGroup)
import Test.Tasty.HUnit
import Weft.Http.RequestHead
import Weft.Http.Status

tests :: TestTree
tests =
  testGroup
    "smuggling"
    [ testGroup
        "two lengths"
        [ "CL.TE" `refusedAs` AmbiguousLength $ post ["Content-Length: 6", "Transfer-Encoding: chunked"],
          "TE.CL" `refusedAs` AmbiguousLength $ post ["Transfer-Encoding: chunked", "Content-Length: 4"],
          "CL 0 with TE" `refusedAs` AmbiguousLength $ post ["Content-Length: 0", "Transfer-Encoding: chunked"],
          "CL.CL, differing" `refusedAs` BadContentLength $ post ["Content-Length: 8", "Content-Length: 7"],
          "CL.CL, equal" `refusedAs` BadContentLength $ post ["Content-Length: 8", "Content-Length: 8"],
          "CL list, differing" `refusedAs` BadContentLength $ post ["Content-Length: 8, 7"],
          "CL list, equal" `refusedAs` BadContentLength $ post ["Content-Length: 8, 8"]
        ],
      testGroup
        "Content-Length"
        [ "plus sign" `refusedAs` BadContentLength $ post ["Content-Length: +8"],
          "minus sign" `refusedAs` BadContentLength $ post ["Content-Length: -8"],
          "minus zero" `refusedAs` BadContentLength $ post ["Content-Length: -0"],
          "hexadecimal" `refusedAs` BadContentLength $ post ["Content-Length: 0x8"],
          "underscore" `refusedAs` BadContentLength $ post ["Content-Length: 1_0"],
          "exponent" `refusedAs` BadContentLength $ post ["Content-Length: 1e1"],
          "blank inside" `refusedAs` BadContentLength $ post ["Content-Length: 1 0"],
          "empty" `refusedAs` BadContentLength $ post ["Content-Length:"],
          "2^63" `refusedAs` BadContentLength $ post ["Content-Length: 9223372036854775808"],
          "2^64 + 8" `refusedAs` BadContentLength $ post ["Content-Length: 18446744073709551624"],
          "vertical tab before" `refusedAs` ControlCharacter $ post ["Content-Length:\v8"],
          "blank before the colon" `refusedAs` BlankBeforeColon $ post ["Content-Length : 8"],
          "tabulator before the colon" `refusedAs` BlankBeforeColon $ post ["Content-Length\t: 8"],
          "blank before the name" `refusedAs` FoldedField $ post [" Content-Length: 8"],
          "NUL in the name" `refusedAs` BadFieldName $ post ["Content-Length\0: 8"],
          "leading zeros are allowed" `framedBy` FixedBody 8 $ post ["Content-Length: 0008"],
          "2^63 - 1 is allowed" `framedBy` FixedBody maxBound $ post ["Content-Length: 9223372036854775807"]
        ],
      testGroup
        "Transfer-Encoding"
        [ "chunked twice" `refusedAs` BadTransferEncoding $ post ["Transfer-Encoding: chunked, chunked"],
          "chunked on two lines" `refusedAs` BadTransferEncoding $ post ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"],
          "chunked not last" `refusedAs` BadTransferEncoding $ post ["Transfer-Encoding: chunked, gzip"],
          "chunked, then identity" `refusedAs` BadTransferEncoding $ post ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
          "empty" `refusedAs` BadTransferEncoding $ post ["Transfer-Encoding:"],
          "empty member" `refusedAs` BadTransferEncoding $ post ["Transfer-Encoding: ,chunked"],
          "quoted" `refusedAs` BadTransferEncoding $ post ["Transfer-Encoding: \"chunked\""],
          "with a parameter" `refusedAs` BadTransferEncoding $ post ["Transfer-Encoding: chunked;x"],
          "vertical tab" `refusedAs` ControlCharacter $ post ["Transfer-Encoding: \vchunked"],
          "in HTTP/1.0" `refusedAs` TransferEncodingTooOld $ "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
          "unknown" `refusedAs` UnknownTransferCoding $ post ["Transfer-Encoding: xchunked"],
          "identity" `refusedAs` UnknownTransferCoding $ post ["Transfer-Encoding: identity"],
          "gzip, chunked" `refusedAs` UnknownTransferCoding $ post ["Transfer-Encoding: gzip, chunked"],
          "blank before the colon" `refusedAs` BlankBeforeColon $ post ["Transfer-Encoding : chunked"],
          "folded" `refusedAs` FoldedField $ post ["Transfer-Encoding:", " chunked"],
          "any case is allowed" `framedBy` ChunkedBody $ post ["tRANSFER-eNCODING: cHUNKED"]
        ],
      testGroup
        "lines"
        [ "LF alone after the request line" `refusedAs` BareLineFeed $ "GET / HTTP/1.1\nHost: a\r\n\r\n",
          "LF alone after a field" `refusedAs` BareLineFeed $ "GET / HTTP/1.1\r\nHost: a\n\r\n",
          "LF alone everywhere" `refusedAs` BareLineFeed $ "GET / HTTP/1.1\nHost: a\n\n",
          "CR alone in a value" `refusedAs` BareCarriageReturn $ post ["X: a\rTransfer-Encoding: chunked"],
          "CR CR LF" `refusedAs` BareCarriageReturn $ post ["X: a\r"],
          "CR alone as a line" `refusedAs` BareCarriageReturn $ post ["\rX: a"],
          "NUL in a value" `refusedAs` ControlCharacter $ post ["X: a\0b"],
          "folded before any field" `refusedAs` FoldedField $ "GET / HTTP/1.1\r\n Host: a\r\n\r\n",
          "no name" `refusedAs` BadFieldName $ post [": a"],
          "no colon" `refusedAs` BadFieldName $ post ["chunked"],
          "byte above 127 in a name" `refusedAs` BadFieldName $ post ["\xe9: a"]
        ],
      testGroup
        "Host"
        [ "missing" `refusedAs` MissingHost $ "GET / HTTP/1.1\r\n\r\n",
          "missing beside an absolute target" `refusedAs` MissingHost $ "GET http://a/ HTTP/1.1\r\n\r\n",
          "twice" `refusedAs` RepeatedHost $ post ["Host: a"],
          "twice in HTTP/1.0" `refusedAs` RepeatedHost $ "GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n",
          "two in one" `refusedAs` BadHost $ "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
          "path" `refusedAs` BadHost $ "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
          "user" `refusedAs` BadHost $ "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n",
          "port too large" `refusedAs` BadHost $ "GET / HTTP/1.1\r\nHost: a:65536\r\n\r\n",
          testCase "the absolute target wins" $ case parseRequest defaultLimits 0 "GET http://a:1/b?c HTTP/1.1\r\nHost: d\r\n\r\n" of
            Parsed r _ -> (headHost r, headPath r, headQuery r) @?= (Just "a:1", "/b", "?c")
            other -> assertFailure (show other)
        ],
      testGroup
        "request lines"
        [ "two spaces" `refusedAs` BadRequestLine $ "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
          "tabulator" `refusedAs` BadRequestLine $ "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n",
          "space at the end" `refusedAs` BadRequestLine $ "GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
          "space in the target" `refusedAs` BadRequestLine $ "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
          "no version" `refusedAs` BadRequestLine $ "GET /\r\n\r\n",
          "lower-case version" `refusedAs` BadRequestLine $ "GET / http/1.1\r\nHost: a\r\n\r\n",
          "two-digit version" `refusedAs` BadRequestLine $ "GET / HTTP/1.10\r\nHost: a\r\n\r\n",
          "fragment" `refusedAs` BadRequestLine $ "GET /#a HTTP/1.1\r\nHost: a\r\n\r\n",
          "byte above 127" `refusedAs` BadRequestLine $ "GET /\xe9 HTTP/1.1\r\nHost: a\r\n\r\n",
          "relative target" `refusedAs` BadTarget $ "GET a HTTP/1.1\r\nHost: a\r\n\r\n",
          "asterisk for GET" `refusedAs` BadTarget $ "GET * HTTP/1.1\r\nHost: a\r\n\r\n",
          "other scheme" `refusedAs` BadTarget $ "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
          "TLS" `refusedAs` BadRequestLine $ "\x16\x03\x01\x02",
          "HTTP/2 preface" `refusedAs` UnsupportedVersion $ "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
          "HTTP/0.9" `refusedAs` UnsupportedVersion $ "GET / HTTP/0.9\r\n\r\n",
          "CONNECT" `refusedAs` UnknownMethod $ "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n",
          "method in lower case" `refusedAs` UnknownMethod $ "get / HTTP/1.1\r\nHost: a\r\n\r\n"
        ],
      testCase "statuses" $
        map faultStatus [BadContentLength, RequestLineTooLong, HeadTooLarge, TooManyFields, UnknownTransferCoding, UnknownMethod, UnsupportedVersion]
          @?= [badRequest400, requestURITooLong414, requestHeaderFieldsTooLarge431, requestHeaderFieldsTooLarge431, notImplemented501, notImplemented501, httpVersionNotSupported505]
    ]

post :: [ByteString] -> ByteString
post fields = "POST / HTTP/1.1\r\nHost: a\r\n" <> foldMap (<> "\r\n") fields <> "\r\n"

-- | Refused, with this fault.
refusedAs :: TestName -> Fault -> ByteString -> TestTree
refusedAs name fault text = testCase name (parseRequest defaultLimits 0 text @?= Bad fault)

-- | Accepted, with this framing.
framedBy :: TestName -> Framing -> ByteString -> TestTree
framedBy name expected text = testCase name $ case parseRequest defaultLimits 0 text of
  Parsed r _ -> headFraming r @?= expected
  other -> assertFailure (show other)
