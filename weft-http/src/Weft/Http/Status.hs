-- | The statuses of http-types, and what a server has to know of them. Pure.
module Weft.Http.Status
  ( -- * Statuses
    module Network.HTTP.Types.Status,
    statusReason,
    statusLine,

    -- ** Classes
    isError,
    hasNoBody,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as C
import Network.HTTP.Types.Status

-- | The reason phrase to send: that of the code, or empty. A 'statusMessage' may contain a line end.
--
-- >>> statusReason notFound404
-- "Not Found"
statusReason :: Status -> ByteString
statusReason status = statusMessage (toEnum (statusCode status) :: Status)

-- | The status line with its line end, always of @HTTP/1.1@ (RFC 9110, section 2.5).
--
-- >>> statusLine ok200
-- "HTTP/1.1 200 OK\r\n"
statusLine :: Status -> ByteString
statusLine status = case statusCode status of
  -- Nearly all responses begin with one of these, which are not made each time.
  200 -> "HTTP/1.1 200 OK\r\n"
  206 -> "HTTP/1.1 206 Partial Content\r\n"
  304 -> "HTTP/1.1 304 Not Modified\r\n"
  code
    | code >= 100 && code <= 999 -> C.concat ["HTTP/1.1 ", C.pack (show code), " ", statusReason status, "\r\n"]
    -- It would break the line's grammar; it is a fault of the program, and 500 says so.
    | otherwise -> statusLine internalServerError500

-- | A code from 400 up.
isError :: Status -> Bool
isError status = statusCode status >= 400

-- | Has a response with this code never a body, nor the framing of one (RFC 9112, section 6.3)?
hasNoBody :: Status -> Bool
hasNoBody status = code < 200 || code == 204 || code == 304
  where
    code = statusCode status
