-- | Formats times in the preferred format of RFC 9110, section 5.6.7, and parses all three. Pure.
module Weft.Http.Date
  ( -- * Times
    HttpTime (..),

    -- * Formatting
    formatDate,
    formatMinute,

    -- * Parsing
    parseDate,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as C
import Data.Int (Int64)
import Data.Maybe (listToMaybe)
import Data.Time.Clock.POSIX (posixSecondsToUTCTime, utcTimeToPOSIXSeconds)
import Data.Time.Format (defaultTimeLocale, formatTime, parseTimeM)
import Network.HTTP.Date (epochTimeToHTTPDate, formatHTTPDate, httpDateToUTC, parseHTTPDate)

-- | Whole seconds since 1970-01-01 00:00:00 UTC, without leap seconds.
newtype HttpTime = HttpTime Int64
  deriving newtype (Eq, Ord, Show)

-- | The preferred format. Clamps the time to the years 1970 to 9999.
--
-- >>> formatDate (HttpTime 784111777)
-- "Sun, 06 Nov 1994 08:49:37 GMT"
formatDate :: HttpTime -> ByteString
formatDate = formatHTTPDate . epochTimeToHTTPDate . fromIntegral . seconds . representable

-- | To the minute, for listings.
--
-- >>> formatMinute (HttpTime 784111777)
-- "1994-11-06 08:49"
formatMinute :: HttpTime -> ByteString
formatMinute = C.pack . formatTime defaultTimeLocale "%Y-%m-%d %H:%M" . posixSecondsToUTCTime . fromIntegral . seconds . representable

-- http-date writes 1969 as @s969@.
representable :: HttpTime -> HttpTime
representable = max (HttpTime 0) . min (HttpTime 253402300799)

seconds :: HttpTime -> Int64
seconds (HttpTime n) = n

-- | Parse the preferred format, that of RFC 850 with its two-digit year (69 to 99: 1900s), or that of
-- C's @asctime@. The input must be what the format prints: a wrong weekday is refused.
--
-- >>> parseDate "Sunday, 06-Nov-94 08:49:37 GMT"
-- Just 784111777
-- >>> parseDate "Sun Nov  6 08:49:37 1994"
-- Just 784111777
-- >>> parseDate "Mon, 06 Nov 1994 08:49:37 GMT"
-- Nothing
parseDate :: ByteString -> Maybe HttpTime
parseDate given = listToMaybe ([t | Just date <- [parseHTTPDate given], let { t = fromUtc (httpDateToUTC date) }, formatDate t == given] <> slowly)
  where
    -- http-date also reads 99:99:99 and trailing bytes; the time package takes 30 times as long.
    slowly = [fromUtc time | format <- formats, Just time <- [parseTimeM False defaultTimeLocale format text], formatTime defaultTimeLocale format time == text]
    formats = ["%a, %d %b %0Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %0Y", "%a %b %d %H:%M:%S %0Y"]
    -- No date is longer than "Wednesday, 31-Dec-99 23:59:60 GMT".
    text = C.unpack (C.take 34 given)
    fromUtc = HttpTime . floor . utcTimeToPOSIXSeconds
