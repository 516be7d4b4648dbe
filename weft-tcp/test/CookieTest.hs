-- |
-- Description : Connections from cookies
--
-- A cookie brings back the SYN's options, and a segment of another sender brings nothing.
module CookieTest (tests) where

import Data.Bits (rotateL, xor)
import Data.Maybe (isJust, isNothing)
import Data.Word (Word16, Word32, Word64, Word8)
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.QuickCheck
import Weft.Tcp.Connection
import Weft.Tcp.Cookie
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Segment
import Weft.Tcp.Sequence

tests :: TestTree
tests =
  testGroup
    "cookies"
    [ testProperty "the connection is the one that a table would have" prop_same,
      testProperty "a cookie is of one flow, one peer's number and a short time" prop_sealed
    ]

-- | A SYN: sequence number, window, segment size, and with timestamps: scale, SACK, ECN.
data Opening = Opening Word32 Word16 (Maybe Word16) (Maybe (Maybe Word8, Bool, Bool))
  deriving stock (Show)

instance Arbitrary Opening where
  arbitrary = Opening <$> arbitrary <*> arbitrary <*> oneof [pure Nothing, Just <$> elements [0, 1, 535, 536, 1220, 1399, 1460, 8940, 65535]] <*> arbitrary'
    where
      arbitrary' = oneof [pure Nothing, Just <$> ((,,) <$> oneof [pure Nothing, Just <$> choose (0, 14)] <*> arbitrary <*> arbitrary)]

segment :: Opening -> Segment
segment (Opening n window size more) = Segment (Seq n) (Seq 0) (maybe syn (\(_, _, e) -> if e then syn <> ece <> cwr else syn) more) window 0 options 0
  where
    options = case more of
      Nothing -> noOptions {optionMss = size}
      Just (shift, sack, _) -> Options size shift sack (Just (Timestamps 77 0)) [] Nothing

-- | The peer's next segment.
returned :: Segment -> Segment -> Segment
returned opening answer =
  Segment (segmentSeq opening `advance` 1) (segmentSeq answer `advance` 1) ack 500 0 noOptions {optionTimestamps = stamp <$> optionTimestamps (segmentOptions answer)} 0
  where
    stamp x = Timestamps 78 (timestampValue x)

-- A listener's secret; not a good one.
sealed :: Word64 -> Seal
sealed flow n = fromIntegral (((n `xor` flow) * 0x9e3779b97f4a7c15) `rotateL` 29 * 0xbf58476d1ce4e5b9 `rotateL` 17)

prop_same :: Opening -> Word32 -> NonNegative Int -> Property
prop_same o offset (NonNegative at) = case cookieAnswer defaultSettings (sealed 5) offset now opening of
  Nothing -> counterexample "no answer" False
  Just answer -> case (,) <$> cookieOpen defaultSettings (sealed 5) offset later' (returned opening answer) <*> passiveOpen defaultSettings (segmentSeq answer) offset now opening of
    Nothing -> counterexample "not opened" False
    Just (t, Step kept _ _) ->
      let Step t' _ answers = step later' (Arrived (returned opening answer)) t
          Step kept' _ _ = step later' (Arrived (returned opening answer)) kept
          common x = (tcbState x, rcvNxt x, sndNxt x, sndUna x, sndWnd x, rcvScale x, tcbState x, [x `is` m | m <- [SackOn, ScaleOn, TimestampsOn, EcnOn]])
          shifted x = if x `is` ScaleOn then sndScale x else 0
       in conjoin
            [ counterexample "not open" (Opened `elem` answers),
              counterexample "not the same" (not stamps || common t' == common kept'),
              shifted t' === if stamps then shifted kept' else 0,
              counterexample "a segment larger than the peer takes" (property (sndMss t' <= sndMss kept')),
              [t' `is` m | not stamps, m <- [SackOn, ScaleOn, TimestampsOn, EcnOn]] === [False | not stamps, _ <- [1 .. 4 :: Int]],
              -- Its timestamps do not go back.
              counterexample "of the future" (maybe True (\x -> Seq (timestampValue x) `upTo` Seq (clockValue later' t')) (optionTimestamps (segmentOptions answer)))
            ]
  where
    now = fromIntegral at * 10000000
    later' = now + 30000
    opening = segment o
    stamps = isJust (optionTimestamps (segmentOptions opening))

prop_sealed :: Opening -> Positive Word16 -> Property
prop_sealed o (Positive d) = case cookieAnswer defaultSettings (sealed 5) 9 0 opening of
  Nothing -> counterexample "no answer" False
  Just answer ->
    let r = returned opening answer
        opens flow at s = isJust (cookieOpen defaultSettings (sealed flow) 9 at s)
        by = fromIntegral d
     in conjoin
          [ counterexample "late" (opens 5 (cookieLife - 64000001) r),
            counterexample "too late" (not (opens 5 cookieLife r)),
            counterexample "of another flow" (not (opens 6 0 r)),
            counterexample "another number of the peer" (not (opens 5 0 r {segmentSeq = segmentSeq r `advance` by})),
            counterexample "another number of ours" (not (opens 5 0 r {segmentAck = segmentAck r `advance` by})),
            counterexample "a SYN, a RST" (not (opens 5 0 r {segmentFlags = ack <> syn} || opens 5 0 r {segmentFlags = ack <> rst})),
            counterexample "no acknowledgement" (isNothing (cookieOpen defaultSettings (sealed 5) 9 0 r {segmentFlags = mempty}))
          ]
  where
    opening = segment o
