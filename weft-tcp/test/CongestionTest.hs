-- |
-- Description : How windows grow, by numbers worked out by hand
module CongestionTest (tests) where

import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (testCase, (@?=))
import Weft.Tcp.Congestion
import Weft.Tcp.Sequence

-- | An acknowledgement of this number of segments of 1,000 bytes, with a window that is used up.
heard :: Window -> Int -> Acked
heard w n =
  Acked
    { ackedAt = 1000000,
      ackedBytes = fromIntegral n * 1000,
      ackedFlight = windowBytes w,
      ackedMss = 1000,
      ackedRtt = 1000,
      ackedSample = 0,
      ackedUna = Seq 0,
      ackedNxt = Seq 100000
    }

tests :: TestTree
tests =
  testGroup
    "congestion"
    [ testCase "an acknowledgement of many segments opens as many in slow start" $
        [windowBytes (controlAcked control (heard w n) w) | control <- [cubic, newReno], n <- [1, 10, 44]] @?= concat (replicate 2 [51000, 60000, 94000]),
      testCase "in conservative slow start a quarter of them" $
        windowBytes (controlAcked cubic (heard w 8) w {windowMemory = SlowStart (Rounds (Seq 100000) maxBound maxBound 0 3 1000)}) @?= 52000,
      testCase "CUBIC grows as Reno at its pace up to the window before the loss (RFC 9438, section 4.3)" $ do
        let lost = controlLoss cubic 1000
            -- Two losses: the second at a smaller window, so fast convergence makes the top 68 segments.
            second = lost w {windowBytes = 80000, windowMemory = windowMemory (lost w {windowBytes = 100000})}
            reno from = case windowMemory (controlAcked cubic (heard second 10) second {windowMemory = began from (windowMemory second)}) of
              Cubic _ _ _ _ r -> r - from
              _ -> 0
            began from = \case
              Cubic top prior _ _ _ -> Cubic top prior 999000 56 from
              other -> other
            grows = fromIntegral . (round :: Double -> Int) . (* 1000)
        windowBytes second @?= 56000
        -- Ten segments of a window of 56, and 3 (1 - 0.7) / (1 + 0.7) of that.
        map (grows . reno) [60, 70, 79, 80] @?= [95, 95, 95, 179 :: Integer]
    ]
  where
    w = (initialWindow 1000) {windowBytes = 50000}
