-- |
-- An example: simulations as tests of tasty, QuickCheck and hedgehog.
module Simulation.Properties
  ( main,
    tests,
    total,
  )
where

import Hedgehog (evalIO, forAll, property)
import Hedgehog qualified
import Hedgehog.Gen qualified as Gen
import Hedgehog.Range qualified as Range
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck (ioProperty, testProperty)
import Weft
import Weft.Concurrently
import Weft.Ref
import Weft.Sim

main :: IO ()
main = defaultMain tests

tests :: TestTree
tests =
  testGroup
    "the balance is the sum of all deposits"
    [ testCase "in all schedules with two preemptions" $
        checkAll defaultBounds defaultConfig (total [10, 20]) (is 30),
      testCase "in a hundred rough worlds" $
        check roughConfig [0 .. 99] (total [10, 20, 30]) (is 60),
      testProperty "whatever the deposits, in QuickCheck's words" $ \amounts seed ->
        ioProperty $ check roughConfig [fromIntegral (seed :: Word)] (total amounts) (is (sum amounts)),
      testCase "in hedgehog's words" $ do
        passed <- Hedgehog.check . property $ do
          amounts <- forAll (Gen.list (Range.linear 0 10) (Gen.int (Range.linear 0 100)))
          seed <- forAll (Gen.word Range.linearBounded)
          evalIO (check roughConfig [fromIntegral seed] (total amounts) (is (sum amounts)))
        assertBool "hedgehog has found something" passed
    ]

-- | Deposits, all at the same time.
total :: [Int] -> Thread Int
total amounts = do
  balance <- newRef 0
  forConcurrently_ amounts $ \amount -> atomicModifyRef_ balance (+ amount)
  atomicReadRef balance

-- | Nothing is wrong, and the answer is this.
is :: Int -> Verdict Int
is wanted = flawlessAnd (\n -> if n == wanted then Nothing else Just ("not " <> show wanted <> " but " <> show n))
