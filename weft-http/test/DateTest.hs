-- | Dates, against the time package, and what is no date.
module DateTest (tests) where

import Data.ByteString.Char8 qualified as C
import Data.Time.Clock.POSIX (posixSecondsToUTCTime)
import Data.Time.Format (defaultTimeLocale, formatTime)
import Test.QuickCheck
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck (testProperty)
import Weft.Http.Date

tests :: TestTree
tests =
  testGroup
    "dates"
    [ testProperty "read back" prop_readBack,
      testProperty "in order, second by second" prop_successor,
      testCase "the three formats" formats,
      testCase "refused" refused,
      testCase "at the ends" ends
    ]

-- | All four digits of the year, and those before the first that 'formatDate' writes.
prop_readBack :: Property
prop_readBack = forAll (choose (-62167219200, 253402300799)) $ \t ->
  let text = C.pack (formatTime defaultTimeLocale "%a, %d %b %0Y %H:%M:%S GMT" (posixSecondsToUTCTime (fromIntegral t)))
   in parseDate text === Just (HttpTime t) .&&. (t < 0 .||. formatDate (HttpTime t) === text)

prop_successor :: Property
prop_successor = forAll (elements [3, 951782399, 4107542399, 1709164799]) $ \t ->
  -- Around the ends of Februaries in leap years, in 2100, and the epoch.
  conjoin [parseDate (formatDate (HttpTime s)) === Just (HttpTime s) | s <- [t - 3 .. t + 3]]

formats :: Assertion
formats = do
  let time = Just (HttpTime 784111777)
  parseDate "Sun, 06 Nov 1994 08:49:37 GMT" @?= time
  parseDate "Sunday, 06-Nov-94 08:49:37 GMT" @?= time
  parseDate "Sun Nov  6 08:49:37 1994" @?= time
  parseDate "Sun Nov 06 08:49:37 1994" @?= time
  parseDate "Thursday, 01-Jan-70 00:00:00 GMT" @?= Just (HttpTime 0)
  parseDate "Thu, 31 Dec 1998 23:59:60 GMT" @?= Just (HttpTime 915148800)
  formatMinute (HttpTime 784111777) @?= "1994-11-06 08:49"

refused :: Assertion
refused =
  [t | t <- cases, Just _ <- [parseDate t]] @?= []
  where
    cases =
      [ "",
        "Sun, 06 Nov 1994 08:49:37 UTC",
        "Sun, 06 Nov 1994 08:49:37 GMT ",
        "Sun, 6 Nov 1994 08:49:37 GMT",
        "Sun, 31 Nov 1994 08:49:37 GMT",
        "Sun, 00 Nov 1994 08:49:37 GMT",
        "Sun, 29 Feb 1900 08:49:37 GMT",
        "Sun, 06 Nov 1994 24:00:00 GMT",
        "Sun, 06 Nov 1994 08:60:00 GMT",
        "Sun, 06 Nov 1994 08:49:61 GMT",
        "Sun, 06 nov 1994 08:49:37 GMT",
        "Mon, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:60 GMT",
        "Sun, 06 Nov 1994 08:49:37 GMT\0",
        "Sux, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov +994 08:49:37 GMT",
        "Sonntag, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 94",
        C.replicate 29 ' ',
        C.replicate 24 ','
      ]

ends :: Assertion
ends = do
  formatDate (HttpTime maxBound) @?= "Fri, 31 Dec 9999 23:59:59 GMT"
  formatDate (HttpTime minBound) @?= "Thu, 01 Jan 1970 00:00:00 GMT"
