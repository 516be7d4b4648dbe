-- |
-- Description : How windows grow, by numbers worked out by hand
module CongestionTest (tests) where

import Data.Int (Int64)
import Data.Word (Word32)
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (assertBool, testCase, (@?=))
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
        map (grows . reno) [60, 70, 79, 80] @?= [95, 95, 95, 179 :: Integer],
      testCase "CUBIC follows its curve (RFC 9438, equation 1)" $ do
        -- A thousand segments before the loss; a round trip of a tenth of a second.
        let start = controlLoss cubic 1000 w {windowBytes = 1000000}
            seen = curve 150 start
            -- K is (1000 * 0.3 / 0.4) ^ (1/3), and the first acknowledgement began it.
            wanted n = 0.4 * (fromIntegral (n :: Int) / 10 - 750 ** (1 / 3)) ^ (3 :: Int) + 1000 :: Double
        windowBytes start @?= 700000
        [(n, x, wanted n) | (n, x) <- zip [0 ..] seen, n >= 2, abs (x - wanted n) > 0.02 * wanted n] @?= [],
      testCase "in its Reno-friendly region it is as quick as Reno would be" $ do
        -- Eleven segments before the loss, and a round trip in which the curve hardly moves.
        let start = controlLoss cubic 1000 w {windowBytes = 20000}
            seen = curveOf 10000 60 start
            -- 9/17 of a segment for each round trip until the window before, then one.
            wanted n = let slow = 14 + 9 / 17 * fromIntegral (n :: Int) in if slow <= 20 then slow else 20 + (fromIntegral n - 6 * 17 / 9) :: Double
        [(n, x, wanted n) | (n, x) <- zip [0 ..] seen, n >= 2, abs (x - wanted n) > 1.5] @?= [],
      testCase "fast convergence lowers the window that it returns to, if that was not reached" $ do
        let after n old = controlLoss cubic 1000 old {windowBytes = n}
            top x = case windowMemory x of Cubic t _ _ _ _ -> t; _ -> 0
        map (round . top) [after 100000 w, after 80000 (after 100000 w), after 120000 (after 100000 w)] @?= [100, 68, 120 :: Int],
      testCase "HyStart++ leaves slow start when the round trip grows, by five rounds at a quarter of the pace (RFC 9406)" $ do
        let rounds = scanl (flip (roundOf 20)) (0, initialWindow 1000) [100000, 100000, 114000, 114000, 114000, 114000, 114000, 114000]
            sizes = map (windowBytes . snd) rounds
            growths = zipWith (-) (drop 1 sizes) sizes
        -- Of the round in which it is noticed, the first acknowledgements count in full.
        (take 2 growths, [g | g <- drop 3 (take 7 growths), g /= 5000]) @?= ([20000, 20000], [])
        assertBool (show growths) (growths !! 2 > 5000 && growths !! 2 < 20000)
        -- Then it is over.
        let over = snd (last rounds)
        assertBool (show over) (windowThreshold over <= windowBytes over && windowBytes over < windowThreshold over + 1000),
      testCase "and goes on with it when the round trip is short again" $ do
        let rounds = scanl (flip (roundOf 20)) (0, initialWindow 1000) [100000, 100000, 114000, 100000, 100000]
            sizes = map (windowBytes . snd) rounds
        last sizes - last (init sizes) @?= 20000
        windowThreshold (snd (last rounds)) @?= maxBound,
      testCase "and does not take a few late acknowledgements for a queue" $ do
        let rounds = scanl (flip (roundOf 6)) (0, initialWindow 1000) [100000, 100000, 150000, 150000, 150000]
        map (windowBytes . snd) rounds @?= [10000, 16000, 22000, 28000, 34000, 40000]
    ]
  where
    w = (initialWindow 1000) {windowBytes = 50000}
    curve = curveOf 100000
    -- The window in segments after each of a number of round trips, in which all of it is acknowledged.
    curveOf :: Int64 -> Int -> Window -> [Double]
    curveOf trip n start = map (\x -> fromIntegral (windowBytes x) / 1000) (scanl inTrip start [0 .. n - 1])
      where
        inTrip x k =
          let acks = fromIntegral (windowBytes x) `div` 1000 :: Int64
           in foldl (\y i -> controlAcked cubic (heard y 1) {ackedAt = fromIntegral k * trip + i * trip `div` acks, ackedRtt = fromIntegral trip} y) x [0 .. acks - 1]
    -- A round of slow start with this number of acknowledgements of a segment each, each of which took this long.
    roundOf :: Word32 -> Word32 -> (Word32, Window) -> (Word32, Window)
    roundOf n trip (una, start) = (una + n, foldl (\x k -> controlAcked cubic (heard x 1) {ackedSample = trip, ackedUna = Seq ((una + k) * 1000), ackedNxt = Seq ((una + n) * 1000 + k * 1000)} x) start [1 .. n])
