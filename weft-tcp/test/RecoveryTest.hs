-- |
-- Description : Repairs, and clocks that wrap
--
-- Proportional rate reduction (RFC 6937) and F-RTO (RFC 5682) by segments made by hand; timestamps whose comparison wraps, and those of a peer
-- that was silent for long (RFC 7323, section 5).
module RecoveryTest (tests) where

import Data.Int (Int64)
import Data.List (mapAccumL)
import Data.Maybe (fromMaybe)
import Data.Word (Word32)
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (assertBool, testCase, (@?=))
import Weft.Tcp.Congestion
import Weft.Tcp.Connection
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Segment
import Weft.Tcp.Sequence

-- | Established at 0, with a round trip of 100 milliseconds and a window of this number of segments of 1,000 bytes; the peer's numbers
-- begin at 1000, this end's at 5000.
established :: Settings -> Options -> Word32 -> Tcb
established settings options segments = t {rttSmooth = 100000, rttVar = 10000, rttLeast = 100000, tcbWindow = (tcbWindow t) {windowBytes = segments * 1000}}
  where
    t = stepTcb (step 0 (Arrived (heard 1001 5001 ack 0) {segmentOptions = later'}) (stepTcb (fromMaybe (error "no SYN") (passiveOpen settings (Seq 5000) 0 0 (heard 1000 0 syn 0) {segmentOptions = options {optionMss = Just size}}))))
    size = if settingTimestamps settings then 1012 else 1000
    later' = noOptions {optionTimestamps = optionTimestamps options}

heard :: Word32 -> Word32 -> Flags -> Word32 -> Segment
heard s a f = Segment (Seq s) (Seq a) f 60000 0 noOptions

plain, selective, stamping :: Settings
plain = defaultSettings {settingTimestamps = False, settingSack = False, settingScaling = False, settingControl = newReno, settingTailProbe = False}
selective = plain {settingSack = True}
stamping = plain {settingTimestamps = True}

-- | How many segments are sent at each of these times and inputs, and the connection in the end.
feed :: Tcb -> [(Instant, Input)] -> (Tcb, [Int])
feed = mapAccumL (\t (now, i) -> let Step t' segments _ = step now i t in (t', length [s | s <- segments, segmentLength s > 0]))

tests :: TestTree
tests =
  testGroup
    "recovery"
    [ testCase "a repair halves the rate, evenly (RFC 6937)" $ do
        let begun = established selective noOptions {optionSackPermitted = True} 20
            reports n = (heard 1001 5001 ack 0) {segmentOptions = noOptions {optionSack = [Range (Seq 6001) (Seq (6001 + 1000 * n))]}}
            -- The first of twenty is lost. The others arrive a millisecond apart.
            (_, first) = feed begun [(1000, Wrote 60000)]
            (reported, sent) = feed (fst (feed begun [(1000, Wrote 60000)])) [(100000 + 1000 * fromIntegral n, Arrived (reports n)) | n <- [1 .. 19]]
            (ended, _) = feed reported [(201000, Arrived (heard 1001 25001 ack 0))]
        first @?= [20]
        -- Two by limited transmit until the loss is seen, then one for every two that are delivered, the lost one first, until half of
        -- the window is on the way.
        sent @?= [1, 1] <> take 15 (cycle [1, 0]) <> [0, 0]
        (windowBytes (tcbWindow ended), windowThreshold (tcbWindow ended)) @?= (10000, 10000),
      testGroup
        "after a timeout two new segments tell whether it was needed (RFC 5682)"
        [ testCase "an acknowledgement of what was sent once undoes it" $ do
            let (t, sent) = feed timedOut [(700000, Arrived (heard 1001 6001 ack 0)), (701000, Arrived (heard 1001 7001 ack 0))]
            -- The window is as before, and both the acknowledgement's room and the new segments' are used.
            take 1 sent @?= [2]
            assertBool (show (tcbWindow t)) (windowBytes (tcbWindow t) >= 10000 && windowThreshold (tcbWindow t) > 1000000),
          testCase "a duplicate does not" $ do
            let (t, sent) = feed timedOut [(700000, Arrived (heard 1001 6001 ack 0)), (701000, Arrived (heard 1001 6001 ack 0))]
            take 1 sent @?= [2]
            assertBool (show (tcbWindow t)) (windowBytes (tcbWindow t) <= 4000 && windowThreshold (tcbWindow t) == 5000)
        ],
      testGroup
        "timestamps (RFC 7323, section 5)"
        [ testCase "wrap" $ do
            takes 0xffffffe0 [(0xfffffff0, 1000), (0x10, 2000), (0xfffffff8, 3000), (0x11, 4000)] @?= [True, True, False, True],
          testCase "a difference of less than 2^31 is newer, one of more is older" $ do
            takes 1000 [(1000 + 0x7fffffff, 1000)] @?= [True]
            takes 1000 [(1000 + 0x80000001, 1000)] @?= [False],
          testCase "of a peer that was silent for more than 24 days say nothing" $ do
            takes 1000 [(1000 + 0x80000001, 24 * day)] @?= [False]
            takes 1000 [(1000 + 0x80000001, 24 * day + 2)] @?= [True]
        ]
    ]
  where
    day = 86400 * 1000000 :: Int64
    -- Ten segments are out, and the timer fires.
    timedOut = fst (feed (established plain noOptions 10) [(1000, Wrote 60000), (600000, Due)])
    -- Whether data with this timestamp at this time are taken, by a connection whose peer began with the first.
    takes first = snd . mapAccumL takesOne (established stamping noOptions {optionTimestamps = Just (Timestamps first 0)} 10)
    takesOne t (stamp, now) =
      let Seq n = rcvNxt t
          Step t' _ answers = step now (Arrived (heard n 5001 ack 10) {segmentOptions = noOptions {optionTimestamps = Just (Timestamps stamp 0)}}) t
       in (t', or [True | Store _ <- answers])
