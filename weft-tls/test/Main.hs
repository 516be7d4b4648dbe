-- | The tests of weft-tls: against @openssl@, @curl@ and Python as peers, and against itself.
module Main (main) where

import BadClientTest qualified
import CertificatesTest qualified
import ClientTest qualified
import DribbleTest qualified
import DuplexTest qualified
import HttpsTest qualified
import KeptTest qualified
import LimitsTest qualified
import PeersTest qualified
import RecordsTest qualified
import SizesTest qualified
import Test.Tasty
import World

main :: IO ()
main = withWorld $ \world ->
  defaultMain . localOption (mkTimeout 180_000_000) $
    testGroup
      "weft-tls"
      [ CertificatesTest.tests world,
        RecordsTest.tests world,
        SizesTest.tests world,
        DribbleTest.tests world,
        DuplexTest.tests world,
        KeptTest.tests world,
        LimitsTest.tests world,
        ClientTest.tests world,
        HttpsTest.tests world,
        PeersTest.tests world,
        BadClientTest.tests world
      ]
