-- | Dates against the http-date package, and back.
module DateTest (tests) where

import Data.ByteString.Char8 qualified as C
import Data.Int (Int64)
import Network.HTTP.Date qualified as Peer
import Test.QuickCheck
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck (testProperty)
import Weft.Http.Date

tests :: TestTree
tests =
  testGroup
    "dates"
    [ testProperty "formatted as http-date does" prop_format,
      testProperty "read back" prop_readBack,
      testProperty "in order, second by second" prop_successor,
      testCase "the three formats" formats,
      testCase "refused" refused,
      testCase "at the ends" ends
    ]

-- | From 1970 to the end of the year 9999.
genTime :: Gen Int64
genTime = frequency [(3, choose (0, 4102444800)), (1, choose (0, 253402300799))]

prop_format :: Property
prop_format = forAll genTime $ \t ->
  formatDate (HttpTime t) === Peer.formatHTTPDate (Peer.epochTimeToHTTPDate (fromIntegral t))

prop_readBack :: Property
prop_readBack = forAll (choose (-62167219200, 253402300799)) $ \t ->
  parseDate (formatDate (HttpTime t)) === Just (HttpTime t)

prop_successor :: Property
prop_successor = forAll (elements [0, 951782399, 4107542399, 1709164799]) $ \t ->
  -- Around the ends of Februaries in leap years, in 2100, and the epoch.
  conjoin [parseDate (formatDate (HttpTime s)) === Just (HttpTime s) | s <- [t - 3 .. t + 3]]

formats :: Assertion
formats = do
  let time = Just (HttpTime 784111777)
  parseDate "Sun, 06 Nov 1994 08:49:37 GMT" @?= time
  parseDate "Sunday, 06-Nov-94 08:49:37 GMT" @?= time
  parseDate "Sun Nov  6 08:49:37 1994" @?= time
  parseDate "Sun Nov 06 08:49:37 1994" @?= time
  parseDate "Wednesday, 01-Jan-70 00:00:00 GMT" @?= Just (HttpTime 0)
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
  formatDate (HttpTime minBound) @?= "Sat, 01 Jan 0000 00:00:00 GMT"
