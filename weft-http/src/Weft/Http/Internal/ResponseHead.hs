{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The counterpart of "Weft.Http.RequestHead" for clients (RFC 9112, sections 4 and 6.3). Equally
-- strict: a response that two programs delimit differently can be forged. Pure.
--
-- 'scanFields' wants a head that ends in @LF LF@ or @LF CR LF@ and contains neither before; see
-- Note [The head is its own sentinel] in "Weft.Http.RequestHead".
module Weft.Http.Internal.ResponseHead
  ( parseResponse,
    ParsedResponse (..),
    ResponseHead (..),
    ResponseExtent (..),
    isReusable,
    ResponseFault (..),
    responseFaultText,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Unsafe qualified as U
import Weft.Http.Internal.Ascii
import Weft.Http.Internal.Fields
import Weft.Http.Internal.Framing
import Weft.Http.Internal.Types hiding (RequestHead (..))
import Weft.Http.Status

-- | A response head. Its strings are slices of the input.
data ResponseHead = ResponseHead
  { headVersion :: !Version,
    headStatus :: !Status,
    -- | The reason phrase, which has no meaning (RFC 9112, section 4).
    headReason :: {-# UNPACK #-} !ByteString,
    headFields :: ![Field],
    headExtent :: !ResponseExtent,
    headClose :: !Bool,
    headKeepAlive :: !Bool
  }
  deriving stock (Eq, Show)

-- | How the content ends.
data ResponseExtent
  = -- | By its framing; the next response follows.
    Framed !Framing
  | -- | By the end of the connection.
    UntilClose
  deriving stock (Eq, Show)

-- | May another request follow on the connection (RFC 9112, section 9.3)?
isReusable :: ResponseHead -> Bool
isReusable h
  | headClose h || headExtent h == UntilClose = False
  | otherwise = headVersion h == Http11 || headKeepAlive h

-- | Why a response is malformed: 'responseFaultText' explains each.
data ResponseFault
  = -- | Not a version, a status from 100 to 599, and a reason phrase.
    BadStatusLine
  | BadVersion
  | -- | In the fields, as in requests.
    BadHead !Fault
  | -- | A 101.
    UnexpectedSwitch
  | TooManyInterim
  deriving stock (Eq, Show)

-- | A short sentence without a full stop.
responseFaultText :: ResponseFault -> ByteString
responseFaultText = \case
  BadStatusLine -> "the status line is malformed"
  BadVersion -> "the version of HTTP is not supported"
  BadHead fault -> faultText fault
  UnexpectedSwitch -> "the server switches to another protocol unasked"
  TooManyInterim -> "too many interim responses"

data ParsedResponse
  = -- | The head is incomplete. The next call, given the number, skips the bytes already searched.
    IncompleteResponse !Int
  | -- | Malformed; close the connection.
    BadResponse !ResponseFault
  | -- | A head and its length in bytes.
    ParsedResponse !ResponseHead !Int
  deriving stock (Eq, Show)

-- | Parse the response head at the front of a buffer, for a request with this method.
--
-- >>> parseResponse defaultLimits Get 0 "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab"
-- ParsedResponse (ResponseHead {headVersion = Http11, headStatus = Status {statusCode = 200, statusMessage = "OK"}, headReason = "OK", headFields = [Field {fieldName = "Content-Length", fieldValue = "2"}], headExtent = Framed (FixedBody 2), headClose = False, headKeepAlive = False}) 38
-- >>> parseResponse defaultLimits Get 0 "SSH-2.0-OpenSSH"
-- BadResponse BadStatusLine
parseResponse :: Limits -> Method -> Int -> ByteString -> ParsedResponse
parseResponse limits method scanned buffer
  -- A peer that speaks another protocol may wait for us, so do not wait for a line end.
  | not (protocol `B.isPrefixOf` buffer || buffer `B.isPrefixOf` protocol) = BadResponse BadStatusLine
  | otherwise = case endOfHead buffer scanned of
      Ends end
        | end > limitHead limits -> BadResponse (BadHead HeadTooLarge)
        | otherwise -> parseHead limits method (U.unsafeTake end buffer) end
      Resume next
        | B.length buffer >= limitHead limits -> BadResponse (BadHead HeadTooLarge)
        | otherwise -> IncompleteResponse next

protocol :: ByteString
protocol = "HTTP/"

-- | Parse a complete head that begins with @HTTP/@.
parseHead :: Limits -> Method -> ByteString -> Int -> ParsedResponse
parseHead limits method h consumed
  -- Tested in order, and none of the expected bytes is CR or LF: a mismatch is met before the end.
  | not (isDigit (at 5)) || at 6 /= 0x2e || not (isDigit (at 7)) || at 8 /= SP = bad BadStatusLine
  | not (isDigit (at 9) && isDigit (at 10) && isDigit (at 11)) || code < 100 || code > 599 = bad BadStatusLine
  | at 12 /= SP && at 12 /= CR = bad BadStatusLine
  | at end /= CR = bad (if at end == LF then BadHead BareLineFeed else BadStatusLine)
  | at (end + 1) /= LF = bad (BadHead BareCarriageReturn)
  | at 5 /= 0x31 = bad BadVersion
  | otherwise = case scanFields (limitFields limits) h (end + 2) of
      ScannedFields (Just fault) _ _ _ _ -> bad (BadHead fault)
      ScannedFields Nothing fields _ picked _ -> case extentOf method version code picked of
        Left fault -> bad (BadHead fault)
        Right extent ->
          ParsedResponse
            ResponseHead
              { headVersion = version,
                headStatus = toEnum code,
                headReason = if at 12 == SP then slice 13 end h else B.empty,
                headFields = fields,
                headExtent = extent,
                headClose = pickedClose picked,
                headKeepAlive = pickedKeepAlive picked
              }
            consumed
  where
    at = U.unsafeIndex h
    bad = BadResponse
    digit i = fromIntegral (at i) - 0x30 :: Int
    code = digit 9 * 100 + digit 10 * 10 + digit 11
    version = if at 7 == 0x30 then Http10 else Http11
    -- The space after the status is required even without a reason, but often missing.
    end = fieldEnd h 12

-- | RFC 9112, section 6.3. An unknown coding is refused rather than read to the end of the connection.
extentOf :: Method -> Version -> Int -> Picked -> Either Fault ResponseExtent
extentOf method version code picked
  | method == Head || code < 200 || code == 204 || code == 304 = Right (Framed NoBody)
  | NoCodings <- pickedCodings picked, Absent <- pickedLength picked = Right UntilClose
  | otherwise = Framed <$> framing version (pickedLength picked) (pickedCodings picked)
