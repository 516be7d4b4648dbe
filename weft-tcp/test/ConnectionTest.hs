-- |
-- Description : One connection against segments made by hand
module ConnectionTest (tests) where

import Data.Int (Int64)
import Data.Maybe (fromMaybe)
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (testCase, (@?=))
import Weft.Tcp.Connection
import Weft.Tcp.Cookie
import Weft.Tcp.Icmp (Trouble (..))
import Weft.Tcp.Internal.RoundTrip (measure)
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Options
import Weft.Tcp.Segment
import Weft.Tcp.Sequence

plain :: Settings
plain = defaultSettings {settingTimestamps = False, settingSack = False, settingScaling = False, settingQuickAcks = 0}

-- | Established at 0 by a peer whose numbers begin at 1000; this end's begin at 5000.
established :: Settings -> Tcb
established = establishedWith noOptions

establishedWith :: Options -> Settings -> Tcb
establishedWith options settings = case passiveOpen settings (Seq 5000) 0 0 (segment 1000 0 syn 0) {segmentOptions = options {optionMss = Just 1460}} of
  Just s -> stepTcb (step 0 (Arrived (segment 1001 5001 ack 0)) (stepTcb s))
  Nothing -> error "no SYN"

segment :: Int64 -> Int64 -> Flags -> Int64 -> Segment
segment s a f n = Segment (Seq (fromIntegral s)) (Seq (fromIntegral a)) f 60000 0 noOptions (fromIntegral n)

-- | The flags, numbers and lengths of what is sent.
sent :: Step -> [(Flags, Seq, Seq, Int)]
sent s = [(segmentFlags g, segmentSeq g, segmentAck g, fromIntegral (segmentLength g)) | g <- stepSegments s]

next :: Step -> Instant -> Input -> Step
next s now i = step now i (stepTcb s)

tests :: TestTree
tests =
  testGroup
    "connection"
    [ testCase "the timeout of RFC 6298" $ do
        let t1 = measure 1 100000 open {rttSmooth = 0}
            t2 = measure 2 300000 t1
        (rttSmooth t1, rttVar t1, retransmissionTimeout t1) @?= (100000, 50000, 300000)
        -- 3/4 of 50 ms and 1/4 of 200; 7/8 of 100 ms and 1/8 of 300.
        (rttSmooth t2, rttVar t2, retransmissionTimeout t2) @?= (125000, 87500, 475000)
        retransmissionTimeout t2 {sndBackoff = 2} @?= 1900000,
      testCase "the least round trip counts for five minutes" $ do
        let second = 1000000
            leasts = scanl (\t (at, sample) -> measure (at * second) sample t) open {rttSmooth = 0}
        map rttLeast (drop 1 (leasts [(0, 20000), (100, 30000), (200, 10000), (500, 40000), (501, 40000), (502, 35000), (700, 50000), (803, 50000)]))
          @?= [20000, 20000, 10000, 10000, 40000, 35000, 35000, 50000],
      testCase "a SYN without a segment size stands for 536 bytes, 1,220 over version 6" $ do
        let sizes settings = case passiveOpen settings (Seq 5000) 0 0 (segment 1000 0 syn 0) of
              Just s -> (segmentSize (stepTcb s), fmap segmentSize (cookieAnswer settings (const 0) 0 0 (segment 1000 0 syn 0) >>= \a -> cookieOpen settings (const 0) 0 0 (segment 1001 0 ack 0) {segmentAck = segmentSeq a `advance` 1}))
              Nothing -> error "no SYN"
        sizes plain @?= (536, Just 536)
        sizes plain {settingMss = 1440, settingHeaders = 60} @?= (1220, Just 1220),
      testCase "after a SYN that was sent again the timeout is three seconds, or what timestamps say" $ do
        let asked settings = next (activeOpen settings (Seq 5000) 0 0) 1000000 Due
            answer options s = next s 1050000 (Arrived (segment 1000 5001 (syn <> ack) 0) {segmentOptions = options})
            timeout s = deadline (stepTcb (next s 1060000 (Wrote 10))) - 1060000
            stamped echo' = noOptions {optionTimestamps = Just (Timestamps 77 echo')}
            stamping = plain {settingTimestamps = True}
            first = stepTcb (answer (stamped 0) (asked stamping))
            second = stepTcb (answer (stamped 1000) (asked stamping))
        timeout (answer noOptions (asked plain)) @?= 3000000
        -- The echo is of the second SYN, or of none.
        rttSmooth first @?= 0
        (rttSmooth second, retransmissionTimeout second) @?= (50000, 250000)
        -- What answers the first SYN of two is perhaps a repetition, after the peer's timeout.
        let again = next (asked stamping) 3000000 Due
            late = stepTcb (next again 3001000 (Arrived (segment 1000 5001 (syn <> ack) 0) {segmentOptions = stamped 1000}))
            last' = stepTcb (next again 3001000 (Arrived (segment 1000 5001 (syn <> ack) 0) {segmentOptions = stamped 3000}))
        (rttSmooth late, retransmissionTimeout late) @?= (0, 3000000)
        (rttSmooth last', retransmissionTimeout last') @?= (1000, 201000)
        -- Of a listener.
        let heard = fromMaybe (error "no SYN") (passiveOpen stamping (Seq 5000) 0 0 (segment 1000 0 syn 0) {segmentOptions = stamped 0})
            told = next (next heard 1000000 Due) 1020000 (Arrived (segment 1001 5001 ack 0) {segmentOptions = stamped 1000})
        rttSmooth (stepTcb told) @?= 20000
        -- It answers a SYN that comes again with the timestamp of that one.
        let repeated = next heard 900000 (Arrived (segment 1000 0 syn 0) {segmentOptions = noOptions {optionTimestamps = Just (Timestamps 977 0)}})
        [timestampEcho <$> optionTimestamps (segmentOptions s) | s <- stepSegments repeated] @?= [Just 977]
        -- And measures by what answers that.
        let known = next repeated 901000 (Arrived (segment 1001 5001 ack 0) {segmentOptions = (stamped 900) {optionTimestamps = Just (Timestamps 978 900)}})
        rttSmooth (stepTcb known) @?= 1000,
      testCase "a close between the SYNs of two ends waits for the handshake, or its end" $ do
        let crossed = next (activeOpen plain (Seq 5000) 0 0) 1000 (Arrived (segment 1000 0 syn 0))
            closing = next crossed 2000 Close
            over = next closing 3000 (Arrived (segment 1001 5001 ack 0))
            alone = iterate (\t -> stepTcb (step (deadline t) Due t)) (stepTcb closing)
        (sent crossed, sent closing) @?= ([(syn <> ack, Seq 5000, Seq 1001, 0)], [])
        (sent over, tcbState (stepTcb over)) @?= ([(fin <> ack, Seq 5001, Seq 1001, 0)], FinWait1)
        tcbState (alone !! (fromIntegral (settingSynRetries plain) + 1)) @?= Closed,
      testCase "ten segments at first" $
        length (stepSegments (step 1 (Wrote 100000) open)) @?= 10,
      testCase "a reset with the exact number" $ do
        stepAnswers (step 1 (Arrived (segment 1001 0 rst 0)) open) @?= [Failed Reset]
        sent (step 1 (Arrived (segment 1002 0 rst 0)) open) @?= [(ack, Seq 5001, Seq 1001, 0)]
        sent (step 1 (Arrived (segment 999999 0 rst 0)) open) @?= [],
      testCase "a SYN is challenged, and not ten thousand times" $ do
        let one = step 1 (Arrived (segment 1001 5001 syn 0)) open
        sent one @?= [(ack, Seq 5001, Seq 1001, 0)]
        sent (next one 2 (Arrived (segment 1001 5001 syn 0))) @?= []
        length (sent (next one 600000 (Arrived (segment 1001 5001 syn 0)))) @?= 1,
      testCase "an acknowledgement of the future is challenged" $ do
        let s = step 1 (Arrived (segment 1001 9999 ack 10)) open
        sent s @?= [(ack, Seq 5001, Seq 1001, 0)]
        stepAnswers s @?= [],
      testCase "Nagle's algorithm" $ do
        let one = step 1 (Wrote 10) open
            two = next one 2 (Wrote 10)
        sent one @?= [(ack <> psh, Seq 5001, Seq 1001, 10)]
        sent two @?= []
        sent (next two 3 (Arrived (segment 1001 5011 ack 0))) @?= [(ack <> psh, Seq 5011, Seq 1001, 10)]
        length (sent (next (step 1 (Wrote 10) (established plain {settingNoDelay = True})) 2 (Wrote 10))) @?= 1,
      testCase "the second segment is acknowledged at once, the first after 40 ms" $ do
        let one = step 1 (Arrived (segment 1001 5001 ack 1460)) open
        sent one @?= []
        deadline (stepTcb one) @?= 40001
        sent (next one 40001 Due) @?= [(ack, Seq 5001, Seq 2461, 0)]
        sent (next one 2 (Arrived (segment 2461 5001 ack 1460))) @?= [(ack, Seq 5001, Seq 3921, 0)],
      testCase "a timer and the acknowledgement that is kept back at one moment" $ do
        let heard = stepTcb (next (step 1 (Wrote 100) (establishedWith noOptions {optionSackPermitted = True} plain {settingSack = True})) 1 (Arrived (segment 1001 5001 ack 10)))
            -- The timer finds nothing to send.
            both = step (ackAt heard) Due (put TimerReorder True heard) {timerAt = ackAt heard}
        sent both @?= [(ack, Seq 5101, Seq 1011, 0)]
        deadline (stepTcb both) > ackAt heard @?= True,
      testCase "the third duplicate acknowledgement sends a segment again" $ do
        let begun = step 1 (Wrote 14600) open
            dup s n = next s n (Arrived (segment 1001 5001 ack 0))
            two = dup (dup begun 2) 3
        sent (dup begun 2) @?= []
        take 1 (sent (dup two 4)) @?= [(ack, Seq 5001, Seq 1001, 1460)],
      testCase "duplicates count also if the peer shows less room" $ do
        let dup s n = next s n (Arrived (segment 1001 5001 ack 0) {segmentWindow = 50000})
            two = dup (dup (step 1 (Wrote 14600) open) 2) 3
        take 1 (sent (dup two 4)) @?= [(ack, Seq 5001, Seq 1001, 1460)],
      testCase "a window that repetitions make smaller is believed once the timer has fired" $ do
        let small = Arrived (segment 1001 5001 ack 0) {segmentWindow = 500}
            fires s = next s (deadline (stepTcb s)) Due
            once = fires (next (step 1 (Wrote 3000) open) 2 small)
        sent once @?= [(ack, Seq 5001, Seq 1001, 1460)]
        sent (fires (next once (deadline (stepTcb once) - 1) small)) @?= [(ack <> psh, Seq 5001, Seq 1001, 500)],
      testCase "segments shorter than the largest that arrived out of turn are known" $ do
        let begun = iterate (\s -> next s 1 (Wrote 100)) (Step (establishedWith noOptions {optionSackPermitted = True} plain {settingSack = True, settingNoDelay = True}) [] []) !! 4
            reporting = (segment 1001 5001 ack 0) {segmentOptions = noOptions {optionSack = [Range (Seq 5101) (Seq 5401)]}}
        sent (next begun 2 (Arrived reporting)) @?= [(ack <> psh, Seq 5001, Seq 1001, 100)],
      testCase "a closed window is probed, and the pauses grow" $ do
        let closed = step 1 (Arrived (segment 1001 5001 ack 0) {segmentWindow = 0}) open
            waits = next closed 2 (Wrote 100)
            first = deadline (stepTcb waits)
            probe = next waits first Due
        sent waits @?= []
        sent probe @?= [(ack, Seq 5000, Seq 1001, 0)]
        deadline (stepTcb probe) - first @?= 2 * (first - 2)
        sent (next probe (first + 1) (Arrived (segment 1001 5001 ack 0))) @?= [(ack <> psh, Seq 5001, Seq 1001, 100)],
      testCase "a peer that only answers probes is waited for, but not for ever after the close" $ do
        let none = (segment 1001 5001 ack 0) {segmentWindow = 0}
            waits = next (next (step 1 (Arrived none) open) 2 (Wrote 100)) 3 Shutdown
            probed s = let at = deadline (stepTcb s) in next (next s at Due) (at + 1) (Arrived none)
            -- More than half an hour later.
            long = iterate probed waits !! 40
            closed = next long (deadline (stepTcb long) - 1) Close
        map (tcbState . stepTcb) [long, closed, probed closed, iterate probed closed !! 40]
          @?= [FinWait1, FinWait1, FinWait1, Closed],
      testCase "the user's patience ends" $ do
        let s = next (step 1 (Wrote 100) open) 300000001 Due
        stepAnswers s @?= [Failed TimedOut]
        deadline (stepTcb s) @?= never,
      testCase "patience may have no end" $ do
        let s = step 1 (Wrote 100) (established plain {settingUserTimeout = never})
        tcbState (stepTcb (next s (deadline (stepTcb s)) Due)) @?= Established,
      testCase "two ends wait for as long as the more patient one (RFC 5482)" $ do
        let minutes n = n * 60000000
            agree own = plain {settingUserTimeout = minutes own, settingTimeoutOption = AgreeTimeout (minutes 2) (minutes 60) 0}
            told s = map (optionUserTimeout . segmentOptions) (stepSegments s)
            -- The client's, the server's, and the client's answer.
            handshake mine theirs =
              let syn' = activeOpen mine (Seq 1000) 0 0
                  synAck = fromMaybe (error "no SYN") (passiveOpen theirs (Seq 5000) 0 0 (head (stepSegments syn')))
                  answered = step 1 (Arrived (head (stepSegments synAck))) (stepTcb syn')
                  there = step 2 (Arrived (head (stepSegments answered))) (stepTcb synAck)
               in (told syn' <> told synAck <> told answered, [answered, there])
            -- The minute in which it gives up what it sends at 10.
            givesUp s = untilClosed (step 10 (Wrote 100) (stepTcb s))
            untilClosed s =
              let at = deadline (stepTcb s)
                  after = next s at Due
               in if tcbState (stepTcb after) == Closed then (at - 10) `div` minutes 1 else untilClosed after
        -- Seconds, and minutes with the upper bit.
        fst (handshake (agree 3) (agree 1000)) @?= [Just 180, Just (0x8000 + 1000), Just 180]
        -- The longer one, within the bounds; one's own is never cut.
        map givesUp (snd (handshake (agree 3) (agree 10))) @?= [10, 10]
        map givesUp (snd (handshake (agree 3) (agree 100))) @?= [60, 100]
        map givesUp (snd (handshake (agree 1) (agree 1))) @?= [2, 2]
        -- Where it is not wanted it is neither sent nor read.
        fst (handshake plain (agree 10)) @?= [Nothing, Just 600, Nothing]
        map givesUp (snd (handshake plain (agree 10))) @?= [5, 10]
        -- A user with a timeout of its own tells it at once, and has it.
        let client = head (snd (handshake (agree 3) (agree 10)))
            own = settingsWith (either (error "no option") id (setValue (6, 18) 240000 noValues)) (agree 3)
            tuned = step 3 (Tune own) (stepTcb client)
        told tuned @?= [Just 240]
        givesUp tuned @?= 4,
      testCase "a user timeout of 0 is not valid, and a listener's connection keeps what the peer told" $ do
        let agree = plain {settingTimeoutOption = AgreeTimeout 1000000 1000000000 0}
            heard n = stepTcb (step 1 (Arrived (segment 1001 5001 ack 0) {segmentOptions = noOptions {optionUserTimeout = Just n}}) (established agree))
        map (settingTimeoutOption . tcbSettings . heard) [0, 0x8000, 400] @?= map (AgreeTimeout 1000000 1000000000) [0, 0, 400000000]
        settingTimeoutOption (retuned noValues agree (tcbSettings (heard 400))) @?= AgreeTimeout 1000000 1000000000 400000000,
      testCase "keep-alive asks three times" $ do
        let ask s = next s (deadline (stepTcb s)) Due
            quiet = established plain {settingKeepAlive = Just (KeepAlive 1000000 100000 3)}
            steps = take 4 (drop 1 (iterate ask (Step quiet [] [])))
        map (length . stepSegments) steps @?= [1, 1, 1, 1]
        map stepAnswers steps @?= [[], [], [], [Failed TimedOut]],
      testCase "keep-alive that was held up asks once, and waits for the answer" $ do
        let quiet = established plain {settingKeepAlive = Just (KeepAlive 10000000 1000000 3)}
            late = deadline quiet + 5000000
            asked = step late Due quiet
            again = next asked (late + 1000000) Due
        map (length . stepSegments) [asked, again] @?= [1, 1]
        map (deadline . stepTcb) [asked, again] @?= [late + 1000000, late + 2000000]
        deadline (stepTcb (next asked (late + 10) (Arrived (segment 1001 5001 ack 0)))) @?= late + 10000010,
      testCase "after the FIN of both, TIME-WAIT ends" $ do
        let mine = step 1 Shutdown open
            acked = next mine 2 (Arrived (segment 1001 5002 ack 0))
            theirs = next acked 3 (Arrived (segment 1001 5002 (ack <> fin) 0))
        map (tcbState . stepTcb) [mine, acked, theirs] @?= [FinWait1, FinWait2, TimeWait]
        stepAnswers theirs @?= [EndOfStream]
        sent theirs @?= [(ack, Seq 5002, Seq 1002, 0)]
        deadline (stepTcb theirs) @?= 60000003
        tcbState (stepTcb (next theirs 60000003 Due)) @?= Closed,
      testCase "data for a user that is gone are answered with a reset" $ do
        let s = next (step 1 Close open) 2 (Arrived (segment 1001 5002 ack 10))
        map (\(f, _, _, _) -> f) (sent s) @?= [rst]
        tcbState (stepTcb s) @?= Closed,
      testCase "a user that closes without having read resets" $ do
        let s = next (step 1 (Arrived (segment 1001 5001 ack 10)) open) 2 Close
        map (\(f, _, _, _) -> f) (sent s) @?= [rst <> ack],
      testCase "a path of version 6 takes 1,280 bytes, whatever a message says" $ do
        let begun = step 1 (Wrote 5000) (established plain {settingMss = 1440, settingHeaders = 60})
            sizeAfter mtu = segmentSize (stepTcb (next begun 2 (Icmp (TooBig mtu) (Seq 5001))))
        map sizeAfter [1300, 1280, 1279, 0] @?= [1240, 1220, 1440, 1440],
      testCase "a closed port" $ do
        fmap segmentFlags (refusal (segment 1 2 syn 0)) @?= Just (rst <> ack)
        fmap segmentAck (refusal (segment 1 2 syn 0)) @?= Just (Seq 2)
        fmap segmentSeq (refusal (segment 1 2 ack 0)) @?= Just (Seq 2)
        refusal (segment 1 2 rst 0) @?= Nothing
    ]
  where
    open = established plain
