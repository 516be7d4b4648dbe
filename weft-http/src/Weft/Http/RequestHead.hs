-- | The strict parser of HTTP/1.1 and HTTP/1.0 request heads (RFC 9112, RFC 9110).
--
-- A connection reads into a buffer and calls 'parseRequest' while it says 'Incomplete':
--
-- >>> parseRequest defaultLimits 0 "GET /a?b HTTP/1.1\r\nHost: c\r\n\r\nnext"
-- Parsed (RequestHead {headMethod = Get, headVersion = Http11, headTarget = "/a?b", headPath = "/a", headQuery = "?b", headHost = Just "c", headFields = [Field {fieldName = "Host", fieldValue = "c"}], headFraming = NoBody, headClose = False, headKeepAlive = False, headExpectation = NoExpectation, headConditions = Conditions {conditionIfMatch = Nothing, conditionIfNoneMatch = Nothing, conditionIfModifiedSince = Nothing, conditionIfUnmodifiedSince = Nothing, conditionIfRange = Nothing, conditionRange = Nothing}}) 30
--
-- It refuses what another implementation might read differently: LF alone, blanks before a colon,
-- folded fields, control characters, two lengths. Its strings are slices of the text, and keep it.
module Weft.Http.RequestHead
  ( -- * Parsing
    parseRequest,
    Parsed (..),

    -- ** Limits
    Limits (..),
    defaultLimits,

    -- ** Faults
    Fault (..),
    faultStatus,
    faultText,

    -- * Requests
    RequestHead (..),
    isPersistent,
    Method (..),
    methodName,
    Version (..),

    -- ** Fields
    Field (..),
    lookupField,
    lookupFields,
    Framing (..),
    Expectation (..),
    Conditions (..),
    noConditions,
    isUnconditional,
  )
where

import Weft.Http.Internal.Head
import Weft.Http.Internal.Types
