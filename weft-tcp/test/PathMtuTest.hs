-- |
-- Description : Segments that vanish because they are too large, and the search for what passes
module PathMtuTest (tests) where

import Control.Monad (forM_)
import Data.Int (Int64)
import Data.Word (Word16, Word32)
import Netsim
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (assertBool, testCase, (@?=))
import Weft.Tcp.Congestion (windowBytes)
import Weft.Tcp.Connection
import Weft.Tcp.Icmp (Trouble (..))
import Weft.Tcp.Internal.PathMtu
import Weft.Tcp.Internal.Scoreboard
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Segment
import Weft.Tcp.Sequence

tests :: TestTree
tests =
  testGroup
    "path MTU"
    [ testCase "sizes are tried from the most on, then the usual ones, then any" $ do
        -- Packets of this length pass.
        tried 1400 1460 @?= [1460, 1410, 1380, 1360, 1370]
        tried 1390 1460 @?= [1460, 1410, 1380, 1360, 1300, 1330, 1345]
        tried 1500 1460 @?= [1460]
        tried 1280 1460 @?= [1460, 1410, 1380, 1360, 1300, 1270, 1255],
      testCase "a size is given up after its third loss" $ do
        let searches = scanl (\s now -> probeLost now 40 1240 1460 s) (reduced 0 1460 Nothing) [0, 1000000, 2000000]
        map searchTries searches @?= [0, 1, 2, 0]
        map searchHigh searches @?= [1460, 1460, 1460, 1459]
        -- Not sooner than a second after a loss.
        map searchAt searches @?= [0, 1000000, 2000000, 3000000]
        map (\s -> probeFor (searchAt s - 1) 40 1240 s) searches @?= [Nothing, Nothing, Nothing, Nothing]
        map (\s -> probeFor (searchAt s) 40 1240 s) searches @?= [Just 1460, Just 1460, Just 1460, Just 1410],
      testCase "when nothing is left to try, the search begins anew after ten minutes" $ do
        let ended = probeFound 5 40 1360 (Search 1370 1460 0 0 NoProbe)
        fmap searchHigh ended @?= Just 1460
        fmap searchAt ended @?= Just 600000005
        probeFound 5 40 1460 (Search 1460 1460 0 0 NoProbe) @?= Nothing,
      testCase "the third timeout of a full segment makes segments smaller, and later ones again" $ do
        let fired = timeouts 20000 plain
        map (segmentSize . stepTcb) fired @?= [1460, 1460, 1460, 1240, 512, 512]
        map (map segmentLength . stepSegments) (drop 1 fired) @?= [[1460], [1460], [1240], [512], [512]]
        -- A smaller one was lost by other causes.
        map (segmentSize . stepTcb) (timeouts 500 plain) @?= replicate 6 1460
        -- No path of version 6 takes less than 1,280 bytes.
        map (segmentSize . stepTcb) (timeouts 20000 plain {settingMss = 1440, settingHeaders = 60}) @?= [1440, 1440, 1440, 1220, 1220, 1220]
        map (segmentSize . stepTcb) (timeouts 20000 plain {settingPathProbing = False}) @?= replicate 6 1460,
      testCase "a probe has data and a window for three segments after it, and is alone" $ do
        lengths (step 1000 (Wrote 5180) searching) @?= [1460, 1240, 1240, 1240]
        lengths (step 999 (Wrote 5180) searching) @?= [1240, 1240, 1240, 1240, 220]
        lengths (step 1000 (Wrote 5179) searching) @?= [1240, 1240, 1240, 1240, 219]
        lengths (step 1000 (Wrote 5180) searching {sndWnd = 5179}) @?= [1240, 1240, 1240, 1240]
        lengths (step 1001 (Wrote 5180) (stepTcb (step 1000 (Wrote 5180) searching))) @?= [1240, 1240, 1240, 1240, 220],
      testCase "a probe waits for room in the congestion window" $ do
        let full = stepTcb (step 999 (Wrote 20000) searching)
            heard n = step 1000 (Arrived (reply (5001 + n))) full
        flight full @?= 13640
        -- Room for one of the usual size is not enough.
        lengths (step 1000 (Wrote 1) full {tcbWindow = (tcbWindow full) {windowBytes = 13640 + 1459}}) @?= []
        take 2 (lengths (heard 2480)) @?= [1460, 1240],
      testCase "what arrives is the size from then on, and the search for the most is over" $ do
        let s = next out 20000 (Arrived (reply 6461))
        (segmentSize (stepTcb s), boardSearch (tcbScoreboard (stepTcb s))) @?= (1460, Nothing)
        take 1 (lengths s) @?= [1460]
        -- Not while it is only a part of the probe that arrived.
        segmentSize (stepTcb (next out 20000 (Arrived (reply 6460)))) @?= 1240,
      testCase "a probe that is lost alone is sent again in segments that pass, and the window stays" . forM_ [const 1000, (+ 20000)] $ \clock -> do
        -- Also where the clock is coarser than a round trip.
        let heard s k = next s (clock k) (Arrived (behind 5001 k))
            steps = drop 1 (scanl heard out [1 .. 6])
            t = stepTcb (last steps)
        [(segmentSeq g, segmentLength g) | g <- concatMap stepSegments steps, segmentSeq g `before` sndNxt (stepTcb out)] @?= [(Seq 5001, 1240), (Seq 6241, 220)]
        (windowBytes (tcbWindow t), tcbRecovery t, segmentSize t) @?= (14600, Open, 1240)
        fmap searchTries (search t) @?= Just 1
        fmap searchProbe (search t) @?= Just NoProbe
        -- Whatever arrives now does not say that the probe did.
        segmentSize (stepTcb (next (last steps) 40000 (Arrived (reply 10000)))) @?= 1240,
      testCase "a probe that is lost with others is congestion" $ do
        -- The first segment after it did not arrive either.
        let t = stepTcb (foldl (\s k -> next s (20000 + k) (Arrived (behind 6241 k))) out [1, 2, 3])
        case tcbRecovery t of
          Fast _ -> pure ()
          r -> assertBool (show r) False
        assertBool "the window stays" (windowBytes (tcbWindow t) < 14600),
      testCase "a router's word about a probe is taken" $ do
        let told mtu number = segmentSize (stepTcb (next out 1005 (Icmp (TooBig mtu) (Seq number))))
        told 1440 5001 @?= 1400
        -- Another segment was none too large, and the probe passes a link that takes it.
        told 1440 6461 @?= 1240
        told 1500 5001 @?= 1240
        told 1000 6461 @?= 960,
      testCase "large packets vanish: the bytes arrive, and the size is found" $ do
        let m = narrowing defaultSettings 60 (const 1400)
        map segmentSize (measuredSenders m) @?= [1348]
        -- The link takes 12 million.
        assertBool (show (measuredBytes m)) (sum (measuredBytes m) > 10000000)
        sum (measuredBytes (narrowing defaultSettings {settingPathProbing = False} 60 (const 1400))) @?= 0,
      testCase "a path becomes narrow, and wide again after the search" $ do
        let path now = if now > 10000000 && now < 300000000 then 1420 else 1500
        map (\time -> map segmentSize (measuredSenders (narrowing defaultSettings time path))) [9, 60, 600, 680] @?= [[1448], [1368], [1368], [1448]]
    ]
  where
    tried :: Int -> Word16 -> [Word16]
    tried mtu most = go 1240 most
      where
        go low high = case nextSize 40 low high most of
          Nothing -> []
          Just size
            | fromIntegral size + 40 <= mtu -> size : if size == most then [] else go size high
            | otherwise -> size : go low (size - 1)
    -- The steps of timers, none of whose segments arrives.
    timeouts n settings = take 6 (iterate (\s -> next s (deadline (stepTcb s)) Due) (step 1 (Wrote n) (opened settings)))
    lengths = map segmentLength . stepSegments
    search = boardSearch . tcbScoreboard
    -- From a thousand microseconds on a segment of 1,460 bytes is tried.
    searching = (opened plain) {sndMss = 1240, tcbScoreboard = emptyScoreboard {boardSearch = Just (reduced 1000 1460 Nothing)}}
    out = step 1000 (Wrote 20000) searching
    -- The peer has a number of segments behind the probe, from this number of bytes after its end on.
    behind from k = (reply 5001) {segmentOptions = noOptions {optionSack = [Range (Seq (from + 1460)) (Seq (from + 1460 + 1240 * fromIntegral k))]}}

plain :: Settings
plain = defaultSettings {settingTimestamps = False, settingScaling = False, settingQuickAcks = 0, settingTailProbe = False}

-- Established at 0 by a peer whose numbers begin at 1000, and that takes more; this end's begin at 5000.
opened :: Settings -> Tcb
opened settings = case passiveOpen settings (Seq 5000) 0 0 (Segment (Seq 1000) (Seq 0) syn 60000 0 noOptions {optionMss = Just 9000, optionSackPermitted = True} 0) of
  Just s -> stepTcb (step 0 (Arrived (reply 5001)) (stepTcb s))
  Nothing -> error "no SYN"

reply :: Word32 -> Segment
reply a = Segment (Seq 1001) (Seq a) ack 60000 0 noOptions 0

next :: Step -> Int64 -> Input -> Step
next s now i = step now i (stepTcb s)
