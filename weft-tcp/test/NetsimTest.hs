-- |
-- Description : How well links are used and shared
--
-- A few cells of the tables in @worlds\/netsim.md@, so that a regression is seen; all of them are
-- @weft-tcp-worlds netsim@.
module NetsimTest (tests) where

import Netsim
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (assertBool, testCase)
import Weft.Tcp.Congestion
import Weft.Tcp.Connection

tests :: TestTree
tests =
  testGroup
    "netsim"
    $ [ testCase ("four flows share a link by " <> controlName control) $ do
          let (used, fair, dropped) = sharing 3 control 4
          assertBool (show (used, fair, dropped)) (used >= 0.8 && used <= 1.01 && fair >= 0.95 && dropped <= 0.02)
        | control <- [cubic, newReno]
      ]
      <> [ testCase "a buffer that grows fills a long path" $ do
             let fixed = filling defaultSettings {settingReceiveLimit = 0} 100000
                 growing = filling defaultSettings 100000
             assertBool (show (fixed, growing)) (growing >= 3 * fixed)
         ]
