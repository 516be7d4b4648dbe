-- |
-- Description : Status codes and their reason phrases
--
-- The status codes this package sends, by name, and the status line of each.
-- Pure data; used by the parser's faults and by whoever builds a response.
module Weft.Http.Status
  ( -- * Codes
    Status (..),
    statusReason,
    statusLine,

    -- ** Classes
    isError,
    hasNoBody,

    -- * The codes by name

    -- ** Interim
    continue100,
    switchingProtocols101,

    -- ** Success
    ok200,
    created201,
    noContent204,
    partialContent206,

    -- ** Redirection
    movedPermanently301,
    found302,
    seeOther303,
    notModified304,
    temporaryRedirect307,
    permanentRedirect308,

    -- ** Faults of the client
    badRequest400,
    unauthorized401,
    forbidden403,
    notFound404,
    methodNotAllowed405,
    requestTimeout408,
    preconditionFailed412,
    contentTooLarge413,
    uriTooLong414,
    rangeNotSatisfiable416,
    expectationFailed417,
    upgradeRequired426,
    tooManyRequests429,
    headerFieldsTooLarge431,

    -- ** Faults of the server
    internalServerError500,
    notImplemented501,
    badGateway502,
    serviceUnavailable503,
    gatewayTimeout504,
    versionNotSupported505,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as C

-- | A three-digit status code.
newtype Status = Status {statusCode :: Int}
  deriving newtype (Eq, Ord, Show)

-- | The reason phrase of RFC 9110, section 15; for a code not known here, that
-- of its class.
--
-- >>> statusReason notFound404
-- "Not Found"
statusReason :: Status -> ByteString
statusReason (Status code) = case code of
  100 -> "Continue"
  101 -> "Switching Protocols"
  200 -> "OK"
  201 -> "Created"
  202 -> "Accepted"
  204 -> "No Content"
  205 -> "Reset Content"
  206 -> "Partial Content"
  300 -> "Multiple Choices"
  301 -> "Moved Permanently"
  302 -> "Found"
  303 -> "See Other"
  304 -> "Not Modified"
  307 -> "Temporary Redirect"
  308 -> "Permanent Redirect"
  400 -> "Bad Request"
  401 -> "Unauthorized"
  403 -> "Forbidden"
  404 -> "Not Found"
  405 -> "Method Not Allowed"
  406 -> "Not Acceptable"
  408 -> "Request Timeout"
  409 -> "Conflict"
  410 -> "Gone"
  411 -> "Length Required"
  412 -> "Precondition Failed"
  413 -> "Content Too Large"
  414 -> "URI Too Long"
  415 -> "Unsupported Media Type"
  416 -> "Range Not Satisfiable"
  417 -> "Expectation Failed"
  421 -> "Misdirected Request"
  422 -> "Unprocessable Content"
  426 -> "Upgrade Required"
  428 -> "Precondition Required"
  429 -> "Too Many Requests"
  431 -> "Request Header Fields Too Large"
  500 -> "Internal Server Error"
  501 -> "Not Implemented"
  502 -> "Bad Gateway"
  503 -> "Service Unavailable"
  504 -> "Gateway Timeout"
  505 -> "HTTP Version Not Supported"
  _
    | code < 200 -> "Informational"
    | code < 300 -> "Success"
    | code < 400 -> "Redirection"
    | code < 500 -> "Client Error"
    | otherwise -> "Server Error"

-- | The status line with its line end. A server says @HTTP/1.1@ whatever the
-- client said (RFC 9110, section 2.5).
--
-- >>> statusLine ok200
-- "HTTP/1.1 200 OK\r\n"
statusLine :: Status -> ByteString
statusLine status
  | status == ok200 = "HTTP/1.1 200 OK\r\n"
  | status == partialContent206 = "HTTP/1.1 206 Partial Content\r\n"
  | status == notModified304 = "HTTP/1.1 304 Not Modified\r\n"
  | otherwise = C.concat ["HTTP/1.1 ", threeDigits, " ", statusReason status, "\r\n"]
  where
    -- A code outside 100–999 would break the line's grammar; it is a fault of
    -- the program, and 500 says so.
    threeDigits
      | statusCode status >= 100 && statusCode status <= 999 = C.pack (show status)
      | otherwise = "500"

-- | A code from 400 up.
isError :: Status -> Bool
isError status = status >= badRequest400

-- | Whether a response with this code never has a body, nor the framing of one
-- (RFC 9112, section 6.3). 304 may still carry the length of what was not sent.
hasNoBody :: Status -> Bool
hasNoBody status@(Status code) = code < 200 || status == noContent204 || status == notModified304

-- | 100
continue100 :: Status
continue100 = Status 100

-- | 101
switchingProtocols101 :: Status
switchingProtocols101 = Status 101

-- | 200
ok200 :: Status
ok200 = Status 200

-- | 201
created201 :: Status
created201 = Status 201

-- | 204
noContent204 :: Status
noContent204 = Status 204

-- | 206
partialContent206 :: Status
partialContent206 = Status 206

-- | 301
movedPermanently301 :: Status
movedPermanently301 = Status 301

-- | 302
found302 :: Status
found302 = Status 302

-- | 303
seeOther303 :: Status
seeOther303 = Status 303

-- | 304
notModified304 :: Status
notModified304 = Status 304

-- | 307
temporaryRedirect307 :: Status
temporaryRedirect307 = Status 307

-- | 308
permanentRedirect308 :: Status
permanentRedirect308 = Status 308

-- | 400
badRequest400 :: Status
badRequest400 = Status 400

-- | 401
unauthorized401 :: Status
unauthorized401 = Status 401

-- | 403
forbidden403 :: Status
forbidden403 = Status 403

-- | 404
notFound404 :: Status
notFound404 = Status 404

-- | 405
methodNotAllowed405 :: Status
methodNotAllowed405 = Status 405

-- | 408
requestTimeout408 :: Status
requestTimeout408 = Status 408

-- | 412
preconditionFailed412 :: Status
preconditionFailed412 = Status 412

-- | 413
contentTooLarge413 :: Status
contentTooLarge413 = Status 413

-- | 414
uriTooLong414 :: Status
uriTooLong414 = Status 414

-- | 416
rangeNotSatisfiable416 :: Status
rangeNotSatisfiable416 = Status 416

-- | 417
expectationFailed417 :: Status
expectationFailed417 = Status 417

-- | 426
upgradeRequired426 :: Status
upgradeRequired426 = Status 426

-- | 429
tooManyRequests429 :: Status
tooManyRequests429 = Status 429

-- | 431
headerFieldsTooLarge431 :: Status
headerFieldsTooLarge431 = Status 431

-- | 500
internalServerError500 :: Status
internalServerError500 = Status 500

-- | 501
notImplemented501 :: Status
notImplemented501 = Status 501

-- | 502
badGateway502 :: Status
badGateway502 = Status 502

-- | 503
serviceUnavailable503 :: Status
serviceUnavailable503 = Status 503

-- | 504
gatewayTimeout504 :: Status
gatewayTimeout504 = Status 504

-- | 505
versionNotSupported505 :: Status
versionNotSupported505 = Status 505
