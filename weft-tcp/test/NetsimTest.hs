-- |
-- Description : How well links are used and shared
--
-- Some cells of the tables in @worlds\/netsim.md@, so that a regression is seen. @weft-tcp-worlds netsim@ makes all of them, and
-- @make explore-tcp@ compares the matrix.
module NetsimTest (tests) where

import Data.Map.Strict qualified as Map
import Matrix
import Netsim
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (assertBool, testCase, (@?=))
import Weft.Tcp.Congestion
import Weft.Tcp.Connection

tests :: TestTree
tests =
  testGroup
    "netsim"
    $ [ testCase ("flows that share a link by " <> controlName control <> ": " <> show flows) $ do
          let (used, fair, dropped) = sharing 3 control flows
          assertBool (show (used, fair, dropped)) (used >= 0.8 && used <= 1.01 && fair >= least && dropped <= most)
        | control <- [cubic, newReno],
          -- How even 64 flows are shows after more than a second (the table has ten).
          (flows, least, most) <- [(1, 1, 0.02), (4, 0.95, 0.02), (16, 0.9, 0.02), (64, 0.8, 0.1)]
      ]
      <> [ testCase "a buffer that grows fills a long path" $ do
             let fixed = filling defaultSettings {settingReceiveLimit = 0} 100000
                 growing = filling defaultSettings 100000
             assertBool (show (fixed, growing)) (growing >= 3 * fixed),
           testCase "the matrix has no cell that the model of its link does not allow" $ do
             known <- committed <$> readFile "worlds/netsim.md"
             [(c, atLeast c, n, atMost c) | c <- cells, let { n = Map.findWithDefault (-1) c known }, n < atLeast c || n > atMost c] @?= [],
           testCase "a part of it is as in the table" $ do
             known <- committed <$> readFile "worlds/netsim.md"
             concatMap (worse known) [c | (n, c) <- zip [0 :: Int ..] cells, n `mod` 37 == 5] @?= []
         ]
