{-# LANGUAGE MagicHash #-}
{-# OPTIONS_GHC -O2 #-}

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

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Unsafe qualified as U
import Data.Maybe (fromMaybe)
import GHC.Exts (indexWord64OffAddr#)
import GHC.Word (Word64 (..))
import Weft.Http.Internal.Address
import Weft.Http.Internal.Ascii
import Weft.Http.Internal.Fields
import Weft.Http.Internal.Framing
import Weft.Http.Internal.Types

-- Note [The head is its own sentinel]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- The pass runs over bytes @h@ that begin with a head and end in @LF LF@ or @LF CR LF@, and ends at the
-- first of either. Three facts make bounds checks superfluous:
--
-- 1. No loop's class of bytes contains CR or LF, so every loop stops at the latest at the LF that
--    ends @h@.
-- 2. The pass advances past an LF only when it ends a line; an empty line is still ahead then, or
--    the pass would have ended. So the start of a line is always inside @h@.
-- 3. CR is never the last byte of @h@, so the byte after a CR can be read.
--
-- A client usually sends one head and waits: the buffer ends in an empty line, which is not searched.

-- Note [Order of the verdicts]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- The fault reported depends on the bytes alone, not on how they arrived: sizes first, then the request
-- line, the version, the fields in order, @Host@, the framing, repetitions and last the method. The
-- first byte of a request line is judged at once, so that a client that speaks TLS gets an answer.

-- | The outcome of 'parseRequest'.
data Parsed
  = -- | The head is incomplete. The next call, given the number, skips the bytes already searched.
    Incomplete !Int
  | -- | Malformed; answer with 'faultStatus' and close.
    Bad !Fault
  | -- | A request and the length of its head in bytes: the body, or the next request, follows.
    Parsed !RequestHead !Int
  deriving stock (Eq, Show)

-- | Parse the request head at the front of a buffer; the number is 0, or that of the last 'Incomplete'.
--
-- >>> parseRequest defaultLimits 0 "GET / HTTP/1.1\r\nHost: a\r\n"
-- Incomplete 24
-- >>> parseRequest defaultLimits 0 "GET / HTTP/1.1\r\n\r\n"
-- Bad MissingHost
parseRequest :: Limits -> Int -> ByteString -> Parsed
parseRequest limits scanned buffer = emptyLines 0 (limitEmptyLines limits)
  where
    size = B.length buffer

    emptyLines !s !room
      | s >= size = Incomplete s
      | isTokenByte (U.unsafeIndex buffer s) = located limits buffer s (max s scanned)
      | U.unsafeIndex buffer s /= CR || room <= 0 = Bad BadRequestLine
      | s + 1 >= size = Incomplete s
      | U.unsafeIndex buffer (s + 1) == LF = emptyLines (s + 2) (room - 1)
      | otherwise = Bad BadRequestLine

-- | Find the end of the head that starts at the first offset, searching from the second.
located :: Limits -> ByteString -> Int -> Int -> Parsed
located limits buffer s from
  -- See Note [The head is its own sentinel]. The buffer is within the limits, and so is the head.
  | size - s <= longest,
    size - s > 3,
    U.unsafeIndex buffer (size - 1) == LF,
    U.unsafeIndex buffer (size - 2) == CR,
    U.unsafeIndex buffer (size - 3) == LF =
      parseHead limits s (U.unsafeDrop s buffer)
  | otherwise = searched limits buffer s from
  where
    size = B.length buffer
    longest = longestLine limits

-- | A request line as long as the head may be leaves no room for the rest.
longestLine :: Limits -> Int
longestLine limits = min (limitRequestLine limits) (limitHead limits - 1)

-- | Slow path of 'located': search for the end.
searched :: Limits -> ByteString -> Int -> Int -> Parsed
searched limits buffer s from = case endOfHead buffer from of
  Ends end
    | lineTooLong (end - s) -> Bad RequestLineTooLong
    | end - s > limitHead limits -> Bad HeadTooLarge
    | otherwise -> parseHead limits s (slice s end buffer)
  Resume next
    | lineTooLong (size - s) -> Bad RequestLineTooLong
    | size - s >= limitHead limits -> Bad HeadTooLarge
    | otherwise -> Incomplete next
  where
    size = B.length buffer
    longest = longestLine limits
    lineTooLong available =
      available > longest && B.notElem LF (slice s (s + max 0 longest) buffer)

-- | Parse a complete head at this offset of its buffer. See Note [The head is its own sentinel].
parseHead :: Limits -> Int -> ByteString -> Parsed
parseHead limits start h
  -- GET is by far the most frequent method.
  | at 0 == 0x47 && at 1 == 0x45 && at 2 == 0x54 && at 3 == SP = path Get 4 4
  | otherwise = name 0
  where
    at = U.unsafeIndex h

    name !m
      | isTokenByte (at m) = name (m + 1)
      | at m == SP = path (methodOf (slice 0 m h)) (m + 1) (m + 1)
      | otherwise = Bad BadRequestLine

    -- The target is from @b@ to @t@; its path ends at @q@, at a @?@ or at @t@.
    path method !b !q
      | isPathByte (at q) = path method b (q + 1)
      | otherwise = query method b q q
    query method !b !q !t
      | isTargetByte (at t) = query method b q (t + 1)
      | t == b || at t /= SP || not (protocol t) = Bad BadRequestLine
      | at (t + 9) == LF = Bad BareLineFeed
      | at (t + 9) /= CR = Bad BadRequestLine
      | at (t + 10) /= LF = Bad BareCarriageReturn
      | at (t + 6) /= 0x31 = Bad UnsupportedVersion
      | otherwise = fieldsBehind method (if at (t + 8) == 0x30 then Http10 else Http11) (slice b t h) (q - b) (t + 11)

    fieldsBehind method !version !whole !q !from = case targetOf method whole q of
      NoTarget -> Bad BadTarget
      TargetParts here query' authority -> case scanFields (limitFields limits) h from of
        ScannedFields (Just fault) _ _ _ _ -> Bad fault
        ScannedFields Nothing fields named picked end -> case settle version authority named picked of
          Unsettled fault -> Bad fault
          Settled host body
            | pickedRepeated picked -> Bad RepeatedField
            | not (isImplemented limits method) -> Bad UnknownMethod
            | otherwise ->
                Parsed
                  RequestHead
                    { headMethod = method,
                      headVersion = version,
                      headTarget = whole,
                      headPath = here,
                      headQuery = query',
                      headHost = host,
                      headFields = fields,
                      headFraming = body,
                      headClose = pickedClose picked,
                      headKeepAlive = pickedKeepAlive picked,
                      -- HTTP/1.0 clients do not know 100 (RFC 9110, section 10.1.1).
                      headExpectation = case pickedExpectation picked of
                        ExpectContinue | Http10 <- version -> NoExpectation
                        asked -> asked,
                      headConditions = pickedConditions picked
                    }
                  (start + end)

    -- "HTTP/" DIGIT "." DIGIT. None of these is CR or LF, so a mismatch is met before the end.
    protocol t = isHttp11 t || isHttp t
    isHttp11 t = t + 9 <= B.length h && word64At h (t + 1) == http11
    isHttp t = "HTTP/" `B.isPrefixOf` U.unsafeDrop (t + 1) h && isDigit (at (t + 6)) && at (t + 7) == 0x2e && isDigit (at (t + 8))

http11 :: Word64
http11 = W64# (indexWord64OffAddr# "HTTP/1.1"# 0#)

methodOf :: ByteString -> Method
methodOf name = fromMaybe (Extension name) (lookup name known)
  where
    known = [(methodName method, method) | method <- [Get, Head, Post, Put, Delete, Options, Trace, Patch, Connect]]

data TargetParts
  = -- | Path, query with its @?@, and authority if the target has one.
    TargetParts !ByteString !ByteString !(Maybe ByteString)
  | -- | Not one of the forms of its method.
    NoTarget

-- | Split a target (RFC 9112, section 3.2), given the offset of the first @?@ or the length.
targetOf :: Method -> ByteString -> Int -> TargetParts
targetOf method whole q
  | Connect <- method =
      if isHostAndPort whole && B.elem 0x3a whole then TargetParts "" "" (Just whole) else NoTarget
  | U.unsafeHead whole == 0x2f = TargetParts (U.unsafeTake q whole) (U.unsafeDrop q whole) Nothing
  | whole == "*" = if method == Options then TargetParts whole "" Nothing else NoTarget
  | otherwise = case absolute (U.unsafeTake q whole) of
      Nothing -> NoTarget
      Just (authority, path) -> TargetParts path (U.unsafeDrop q whole) (Just authority)

-- | The authority and path of an absolute @http@ or @https@ URI without query.
absolute :: ByteString -> Maybe (ByteString, ByteString)
absolute uri
  | B.null afterColon || B.take 3 afterColon /= "://" || not http = Nothing
  | B.null authority || U.unsafeHead authority == 0x3a || not (isHostAndPort authority) = Nothing
  | otherwise = Just (authority, if B.null path then "/" else path)
  where
    (scheme, afterColon) = B.break (== 0x3a) uri
    http = eqCaseless "http" scheme || eqCaseless "https" scheme
    (authority, path) = B.break (== 0x2f) (B.drop 3 afterColon)

data Settled
  = Settled !(Maybe ByteString) !Framing
  | -- | The fields contradict each other or the version.
    Unsettled !Fault

-- | The authority of the target wins over @Host@ (RFC 9112, section 3.2.2).
settle :: Version -> Maybe ByteString -> Once -> Picked -> Settled
settle version authority named picked = case named of
  Repeated -> Unsettled RepeatedHost
  Absent
    | version == Http11 -> Unsettled MissingHost
    | otherwise -> framed authority
  Once host
    | not (isHostAndPort host) -> Unsettled BadHost
    | otherwise -> case authority of
        Nothing -> framed (Just host)
        given -> framed given
  where
    framed host = case framing version (pickedLength picked) (pickedCodings picked) of
      Left fault -> Unsettled fault
      Right body -> Settled host body

isImplemented :: Limits -> Method -> Bool
isImplemented limits = \case
  Connect -> limitConnect limits
  Extension _ -> limitExtensionMethods limits
  _ -> True
