-- |
-- Description : The dates of HTTP
--
-- Seconds since the epoch to the preferred date format of RFC 9110, section
-- 5.6.7, and all three formats back. Formatting writes 29 bytes and allocates
-- nothing else, so that a server can refresh its @Date@ once a second in place.
module Weft.Http.Date
  ( -- * Times
    HttpTime (..),

    -- * Formatting
    formatDate,
    pokeDate,
    dateLength,
    formatMinute,

    -- * Parsing
    parseDate,
  )
where

import Control.Monad (guard)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.ByteString.Internal qualified as I
import Data.ByteString.Unsafe qualified as U
import Data.Int (Int64)
import Data.List (elemIndex)
import Data.Word (Word8)
import Foreign.Marshal.Utils (copyBytes)
import Foreign.Ptr (Ptr, castPtr, plusPtr)
import Foreign.Storable (pokeByteOff)
import Weft.Http.Internal.Ascii (isDigit)

-- | Whole seconds since 1970-01-01 00:00:00 UTC, without leap seconds. That is
-- all the precision that HTTP has.
newtype HttpTime = HttpTime Int64
  deriving newtype (Eq, Ord, Show)

-- | The number of bytes that 'pokeDate' writes: 29.
dateLength :: Int
dateLength = 29

-- | In the preferred format. A time outside the years 0 to 9999 is moved to the
-- nearest one inside.
--
-- >>> formatDate (HttpTime 784111777)
-- "Sun, 06 Nov 1994 08:49:37 GMT"
formatDate :: HttpTime -> ByteString
formatDate time = I.unsafeCreate dateLength (`pokeDate` time)

-- | Write what 'formatDate' gives to memory of at least 'dateLength' bytes.
pokeDate :: Ptr Word8 -> HttpTime -> IO ()
pokeDate p (HttpTime given) = do
  name 0 (3 * weekday) weekdays
  pokeByteOff p 3 comma
  space 4
  two 5 day
  space 7
  name 8 (3 * (month - 1)) months
  space 11
  two 12 (year `quot` 100)
  two 14 (year `rem` 100)
  space 16
  two 17 (second `quot` 3600)
  pokeByteOff p 19 colon
  two 20 (second `quot` 60 `rem` 60)
  pokeByteOff p 22 colon
  two 23 (second `rem` 60)
  U.unsafeUseAsCString " GMT" $ \from -> copyBytes (p `plusPtr` 25) (castPtr from) 4
  where
    seconds = max (-62167219200) (min 253402300799 given)
    (days, second64) = seconds `divMod` 86400
    second = fromIntegral second64 :: Int
    (year, month, day) = civil (fromIntegral days)
    -- 1970-01-01 was a Thursday.
    weekday = fromIntegral ((days + 4) `mod` 7) :: Int

    name at from table =
      U.unsafeUseAsCString table $ \t -> copyBytes (p `plusPtr` at) (castPtr t `plusPtr` from) 3
    space at = pokeByteOff p at (0x20 :: Word8)
    two at n = do
      pokeByteOff p at (fromIntegral (0x30 + n `quot` 10) :: Word8)
      pokeByteOff p (at + 1) (fromIntegral (0x30 + n `rem` 10) :: Word8)
    comma = 0x2c :: Word8
    colon = 0x3a :: Word8

-- | To the minute, for people to read in a listing.
--
-- >>> formatMinute (HttpTime 784111777)
-- "1994-11-06 08:49"
formatMinute :: HttpTime -> ByteString
formatMinute time = B.concat [at 12 4, "-", month, "-", at 5 2, " ", at 17 5]
  where
    date = formatDate time
    at from n = B.take n (B.drop from date)
    month = maybe "" twoDigits (elemIndex (at 8 3) (threes months))
    twoDigits i = C.pack (if i < 9 then '0' : show (i + 1) else show (i + 1))

weekdays, months :: ByteString
weekdays = "SunMonTueWedThuFriSat"
months = "JanFebMarAprMayJunJulAugSepOctNovDec"

-- | Year, month and day of a day counted from the epoch. The year is taken to
-- begin in March, which puts the leap day at its end; 400 years repeat exactly.
civil :: Int -> (Int, Int, Int)
civil days = (if month <= 2 then year + 1 else year, month, day)
  where
    (era, dayOfEra) = (days + 719468) `divMod` 146097
    yearOfEra = (dayOfEra - dayOfEra `quot` 1460 + dayOfEra `quot` 36524 - dayOfEra `quot` 146096) `quot` 365
    dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra `quot` 4 - yearOfEra `quot` 100)
    shifted = (5 * dayOfYear + 2) `quot` 153
    day = dayOfYear - (153 * shifted + 2) `quot` 5 + 1
    month = if shifted < 10 then shifted + 3 else shifted - 9
    year = yearOfEra + era * 400

-- | The inverse of 'civil'.
fromCivil :: Int -> Int -> Int -> Int
fromCivil year month day = era * 146097 + dayOfEra - 719468
  where
    y = if month <= 2 then year - 1 else year
    (era, yearOfEra) = y `divMod` 400
    dayOfYear = (153 * (if month > 2 then month - 3 else month + 9) + 2) `quot` 5 + day - 1
    dayOfEra = yearOfEra * 365 + yearOfEra `quot` 4 - yearOfEra `quot` 100 + dayOfYear

-- | Read any of the three formats: the preferred one, that of RFC 850 with its
-- two-digit year (70 to 99 are the nineteen-hundreds), and that of C's
-- @asctime@. The weekday has to be one but need not be the right one.
--
-- >>> parseDate "Sunday, 06-Nov-94 08:49:37 GMT"
-- Just 784111777
-- >>> parseDate "Sun Nov  6 08:49:37 1994"
-- Just 784111777
-- >>> parseDate "yesterday"
-- Nothing
parseDate :: ByteString -> Maybe HttpTime
parseDate b
  | B.length b == 29 && C.index b 3 == ',' = do
      weekdayAt 0
      guard (B.take 2 (B.drop 3 b) == ", " && C.index b 7 == ' ' && C.index b 11 == ' ')
      guard (C.index b 16 == ' ' && B.drop 25 b == " GMT")
      m <- monthAt 8
      year <- number 12 4
      day <- number 5 2
      assemble year m day 17
  | B.length b == 24 && C.index b 3 == ' ' = do
      weekdayAt 0
      guard (C.index b 7 == ' ' && C.index b 10 == ' ' && C.index b 19 == ' ')
      m <- monthAt 4
      day <- if C.index b 8 == ' ' then number 9 1 else number 8 2
      year <- number 20 4
      assemble year m day 11
  | (weekday, rest) <- C.break (== ',') b,
    B.length rest == 24 = do
      guard (weekday `elem` longWeekdays)
      let o = B.length weekday
      guard (B.take 2 rest == ", " && C.index b (o + 4) == '-' && C.index b (o + 8) == '-')
      guard (C.index b (o + 11) == ' ' && B.drop (o + 20) b == " GMT")
      m <- monthAt (o + 5)
      day <- number (o + 2) 2
      short <- number (o + 9) 2
      assemble (if short >= 70 then 1900 + short else 2000 + short) m day (o + 12)
  | otherwise = Nothing
  where
    weekdayAt i = guard (B.take 3 (B.drop i b) `elem` threes weekdays)
    monthAt i = (+ 1) <$> elemIndex (B.take 3 (B.drop i b)) (threes months)
    number i n = do
      let digits = B.take n (B.drop i b)
      guard (B.length digits == n && B.all isDigit digits)
      pure (B.foldl' (\acc w -> acc * 10 + fromIntegral w - 0x30) 0 digits :: Int)
    assemble year month day i = do
      guard (day >= 1 && day <= daysIn year month)
      guard (C.index b (i + 2) == ':' && C.index b (i + 5) == ':')
      hour <- number i 2
      minute <- number (i + 3) 2
      second <- number (i + 6) 2
      -- 60 is a leap second, which counts as the first of the next minute.
      guard (hour < 24 && minute < 60 && second <= 60)
      let days = fromCivil year month day
      pure (HttpTime (fromIntegral (days * 86400 + hour * 3600 + minute * 60 + second)))

daysIn :: Int -> Int -> Int
daysIn year month
  | month == 2 = if leap then 29 else 28
  | month `elem` [4, 6, 9, 11] = 30
  | otherwise = 31
  where
    leap = year `rem` 4 == 0 && (year `rem` 100 /= 0 || year `rem` 400 == 0)

threes :: ByteString -> [ByteString]
threes b
  | B.null b = []
  | otherwise = B.take 3 b : threes (B.drop 3 b)

longWeekdays :: [ByteString]
longWeekdays = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"]
