{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | A line of an access log, measured first and then written into memory of exactly its size (Note
-- [Measured pieces]), on the worker for each request. Pure.
module Weft.Http.AccessLog.Line
  ( Line (..),
    LineRequest (..),
    LogFormat (..),
    render,
    Stamp (..),
    stampOf,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Int (Int64)
import Weft.Http.Date (HttpTime (..), formatDate, formatMinute)
import Weft.Http.Internal.Address (addressOf, addressPiece, unmapped)
import Weft.Http.Internal.Piece
import Weft.Socket (SockAddr)

-- | The facts of a log line.
data Line = Line
  { lineClient :: !SockAddr,
    -- | Seconds since 1970-01-01 UTC.
    lineTime :: !Int64,
    -- | 'Nothing' if the request could not be parsed.
    lineRequest :: !(Maybe LineRequest),
    lineStatus :: !Int,
    -- | Octets of content sent.
    lineBytes :: !Int64,
    -- | Nanoseconds from the request to the end of its response, if measured.
    lineDuration :: !(Maybe Int64),
    -- | The version of TLS, such as @TLSv1.3@, if the connection has it.
    lineTls :: !(Maybe ByteString)
  }

-- | The request of a log line. A format evaluates only the fields that it shows.
data LineRequest = LineRequest
  { lineMethod :: ByteString,
    lineTarget :: ByteString,
    -- | Such as @HTTP\/1.1@.
    lineVersion :: ByteString,
    lineHost :: Maybe ByteString,
    lineReferer :: Maybe ByteString,
    lineUserAgent :: Maybe ByteString
  }

-- | The format of a line.
data LogFormat
  = -- | The common log format: client, two dashes, time, request, status, octets; then the duration in
    -- microseconds or a dash.
    Common
  | -- | 'Common' with referrer and user agent, in quotes, before the duration.
    Combined
  | -- | A JSON object, without unknown members. @docs\/operating.md@ lists the members.
    Json
  deriving stock (Eq, Show, Enum, Bounded)

-- | A second in the notations of the formats.
data Stamp = Stamp
  { stampSecond :: !Int64,
    -- | @21/Nov/2026:08:53:34 +0000@.
    stampClock :: !ByteString,
    -- | @2026-11-21T08:53:34Z@ (RFC 3339).
    stampIso :: !ByteString
  }

-- | Assembled from @Sat, 21 Nov 2026 08:53:34 GMT@ and @2026-11-21 08:53@.
stampOf :: Int64 -> Stamp
stampOf second =
  Stamp
    { stampSecond = second,
      stampClock = B.concat [part 5 2, "/", part 8 3, "/", part 12 4, ":", part 17 8, " +0000"],
      stampIso = B.concat [B.take 10 (formatMinute time), "T", part 17 8, "Z"]
    }
  where
    time = HttpTime second
    date = formatDate time
    part from count = B.take count (B.drop from date)

-- | Render one line, with its line end. The client's strings are escaped: no line end or quote in them.
render :: LogFormat -> Stamp -> Line -> ByteString
render format stamp line = assemble $ case format of
  Common -> common stamp line <> duration <> "\n"
  Combined -> common stamp line <> "\"" <> field lineReferer <> "\" \"" <> field lineUserAgent <> "\" " <> duration <> "\n"
  Json -> json stamp line
  where
    field get = maybe "-" quotable (lineRequest line >>= get)
    duration = maybe "-" microseconds (lineDuration line)

-- | The part that 'Common' and 'Combined' share, with a final space.
common :: Stamp -> Line -> Piece
common stamp line =
  client line
    <> " - - ["
    <> bytes (stampClock stamp)
    <> "] \""
    <> maybe "-" request (lineRequest line)
    <> "\" "
    <> number (fromIntegral (lineStatus line))
    <> " "
    <> number (lineBytes line)
    <> " "
  where
    request r = quotable (lineMethod r) <> " " <> quotable (lineTarget r) <> " " <> quotable (lineVersion r)

json :: Stamp -> Line -> Piece
json stamp line =
  "{\"time\":\""
    <> bytes (stampIso stamp)
    <> "\",\"client\":\""
    <> client line
    <> "\""
    <> foldMap request (lineRequest line)
    <> ",\"status\":"
    <> number (fromIntegral (lineStatus line))
    <> ",\"bytes\":"
    <> number (lineBytes line)
    <> foldMap (\d -> ",\"duration_us\":" <> microseconds d) (lineDuration line)
    <> text ",\"tls\":\"" (lineTls line)
    <> "}\n"
  where
    request r =
      text ",\"method\":\"" (Just (lineMethod r))
        <> text ",\"target\":\"" (Just (lineTarget r))
        <> text ",\"version\":\"" (Just (lineVersion r))
        <> text ",\"host\":\"" (lineHost r)
        <> text ",\"referer\":\"" (lineReferer r)
        <> text ",\"user_agent\":\"" (lineUserAgent r)
    text name = foldMap (\value -> name <> jsonText value <> "\"")

-- | The address without its port; mapped IPv4 as IPv4. Unix-domain sockets have none.
client :: Line -> Piece
client line = maybe "unix:" (addressPiece . unmapped) (addressOf (lineClient line))

microseconds :: Int64 -> Piece
microseconds = number . (`quot` 1000)
