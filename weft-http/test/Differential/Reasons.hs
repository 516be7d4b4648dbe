-- |
-- Where parsers may part: every reason is here with why it is right, so that a new one is
-- noticed. The tests also see to it that each of them still occurs.
module Differential.Reasons
  ( -- * What only others accept
    Refusal (..),
    weftRefuses,

    -- * What only Weft accepts
    Acceptance (..),
    weftAccepts,

    -- * Mistakes of others
    Misreading (..),
    misreadings,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as C
import Data.Char (isHexDigit, toLower)
import Data.List (isInfixOf, isPrefixOf, stripPrefix)
import Differential.Reading
import Weft.Http.RequestHead (Fault (..))

-- | A fault for which Weft refuses, which parsers may accept it, and why it is refused all the same.
data Refusal = Refusal Fault [String] String

-- | All of these.
weftRefuses :: [Refusal]
weftRefuses =
  [ Refusal AmbiguousLength ["h11", "llhttp", "warp"] "RFC 9112, section 6.3, lets a server refuse a request with two lengths, and that is the safe choice; llhttp takes only an empty Transfer-Encoding beside a Content-Length",
    Refusal BadChunk ["h11", "warp"] "LF alone as a line end, and fields of a trailer section that are none",
    Refusal BadContentLength ["h11", "warp"] "a length that is there twice, though equal; warp takes what is no number, too",
    Refusal BadFieldName ["warp"] "a name that is no token, or a line without a colon",
    Refusal BadHost ["h11", "llhttp", "warp"] "RFC 9112, section 3.2, demands 400; the others leave the value to the application",
    Refusal BadRequestLine ["h11", "llhttp", "warp"] "a fragment or other bytes in the target that RFC 3986 does not allow; llhttp takes a request line without a version for HTTP/0.9; warp splits at any blanks",
    Refusal BadTarget ["h11", "llhttp", "warp"] "a target of none of the forms that its method allows; the others leave it to the application",
    Refusal BadTransferEncoding ["llhttp", "warp"] "llhttp takes an empty Transfer-Encoding for none; warp looks only for the one word",
    Refusal BareCarriageReturn ["warp"] "a CR within a line",
    Refusal BareLineFeed ["h11", "warp"] "RFC 9112, section 2.2, allows to take LF alone for a line end, and proxies differ in whether they do",
    Refusal BlankBeforeColon ["warp"] "RFC 9112, section 5.1, demands 400",
    Refusal ControlCharacter ["h11", "warp"] "RFC 9110, section 5.5, allows to refuse them; h11 lets DEL and all but CR, LF and NUL pass",
    Refusal FoldedField ["h11", "warp"] "RFC 9112, section 5.2, lets a server refuse folded lines",
    Refusal FramingInTrailer ["h11", "llhttp", "warp"] "a trailer field cannot say where the message ends (RFC 9110, section 6.5.1): a client that sends one has another server in mind; h11 and llhttp take some for fields of the message, and refuse others; warp does not look at them",
    Refusal HeadTooLarge ["h11", "llhttp", "warp"] "a limit; those of the others are set to 64 KiB here",
    Refusal RequestLineTooLong ["h11", "llhttp", "warp"] "as above",
    Refusal TooManyFields ["h11", "llhttp", "warp"] "as above",
    Refusal ChunkOverhead ["h11", "llhttp", "warp"] "as above",
    Refusal MissingHost ["h11", "llhttp", "warp"] "RFC 9112, section 3.2, demands 400; node's server sees to it, not its parser, and h11 only where the version is 1.1 and not above",
    Refusal RepeatedField ["h11", "llhttp", "warp"] "a Range or a condition that may be there once: which of them counts is not defined",
    Refusal RepeatedHost ["llhttp", "warp"] "RFC 9112, section 3.2, demands 400",
    Refusal TransferEncodingTooOld ["h11", "llhttp", "warp"] "RFC 9112, section 6.1: in HTTP/1.0 its framing is to be treated as faulty",
    Refusal UnknownMethod ["h11", "llhttp", "warp"] "501 for methods that no handler was asked to know",
    Refusal UnknownTransferCoding ["llhttp", "warp"] "501 for what cannot be decoded; llhttp looks at the last coding only",
    Refusal UnsupportedVersion ["h11", "llhttp", "warp"] "505; for the others any digits are a version, or 2.0 is"
  ]

-- | The parser that refuses what Weft accepts, with which words, why it is right to accept it, and an
-- example. Only what both h11 and llhttp refuse must be explained.
data Acceptance = Acceptance String (String -> Bool) String ByteString

-- | All of these.
weftAccepts :: [Acceptance]
weftAccepts =
  [ Acceptance "h11" oddExtension blanks (chunked "5 ;a\r\nhello\r\n0\r\n\r\n"),
    Acceptance "llhttp" (== "HPE_INVALID_CHUNK_SIZE") blanks (chunked "5\t;a\r\nhello\r\n0\r\n\r\n"),
    Acceptance "llhttp" (== "HPE_STRICT") "extensions are not looked at, as long as there is no control character in them: they may lack a name" (chunked "5;\r\nhello\r\n0\r\n\r\n"),
    Acceptance "h11" ("no_request_line_received" `isPrefixOf`) "RFC 9112, section 2.2: empty lines before a request line are to be ignored" "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    Acceptance "llhttp" (== "HPE_INVALID_TRANSFER_ENCODING") "a tabulator after the last coding is a blank at the end of the value" "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\t\r\n\r\n0\r\n\r\n",
    Acceptance "llhttp" (== "HPE_INVALID_VERSION") "RFC 9110, section 2.5: HTTP/1.2 is to be taken for 1.1" "GET / HTTP/1.2\r\nHost: a\r\n\r\n"
  ]
  where
    blanks = "RFC 9112, section 7.1.1, allows blanks before the semicolon of a chunk extension; bytes above 127 in it are no control characters; a size may have any number of leading zeros, and for h11 it has at most twenty digits"
    chunked = ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" <>)
    -- The header as h11 shows it, in which a blank is an underscore.
    oddExtension said = case span isHexDigit <$> stripPrefix "illegal_chunk_header:_bytearray(b'" said of
      Just (digits, rest) -> length digits > 20 || ";" `isPrefixOf` dropBlanks rest && (not (";" `isPrefixOf` rest) || "\\x" `isInfixOf` rest)
      Nothing -> False
    dropBlanks = \case
      '_' : rest -> dropBlanks rest
      '\\' : 't' : rest -> dropBlanks rest
      rest -> rest

-- | In which parser, in which conversations (with our reading of them), and what.
data Misreading = Misreading String (ByteString -> Reading Fault -> Bool) String

-- | Known misreadings of others. Where one may come into play, that parser is not asked.
misreadings :: [Misreading]
misreadings =
  [ Misreading "warp" (\text _ -> blankAfterChunked (C.map toLower text)) "warp leaves blanks at the end of a value: `chunked` followed by one is not chunked for it, and the body is the next request",
    Misreading "warp" (\_ ours -> not (all (null . messageTrailers) (readingMessages ours))) "warp does not know of trailer fields: for it they are the request line of the next request"
  ]
  where
    blankAfterChunked text = any (`C.isInfixOf` text) ["chunked ", "chunked\t"]
