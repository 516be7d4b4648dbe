-- |
-- Description : Segments that leave as one
--
-- The segments that a device cuts are those that a connection would have sent.
module JoinTest (tests) where

import Data.Word (Word32)
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck
import Weft.Tcp.Segment
import Weft.Tcp.Sequence
import Weft.Tcp.Stack.Engine (joined)

tests :: TestTree
tests =
  testGroup
    "segments that leave as one"
    [ testCase "a burst is one" $
        [(n, segmentLength s, segmentFlags s) | (n, s) <- joined (run (replicate 9 (1000, ack) <> [(300, ack <> psh)]))] @?= [(1000, 9300, ack <> psh)],
      testCase "no more than a packet holds" $
        assertBool "too long" (all ((<= 65535 - 60) . segmentLength . snd) (joined (run (replicate 100 (1460, ack))))),
      testProperty "cut again, it is what was sent" $ forAll bursts $ \segments ->
        let sent = joined segments
         in cover 30 (length sent < length segments) "joined" (counterexample (show sent) (concatMap cut sent === segments))
    ]

-- Segments of these lengths and flags, one after the other.
run :: [(Word32, Flags)] -> [Segment]
run = go (Seq 0xfffffc00)
  where
    go at = \case
      [] -> []
      (n, flags) : rest -> let s = Segment at (Seq 7) flags 1000 0 noOptions n in s : go (segmentEnd s) rest

-- Bursts, parts of which are lost, sent again, shorter, marked, or acknowledge something else.
bursts :: Gen [Segment]
bursts = do
  segments <- run <$> listOf ((,) <$> frequency [(9, pure 100), (1, choose (0, 150))] <*> frequency [(9, pure ack), (2, elements [ack <> psh, ack <> fin, ack <> cwr, ack <> ect])])
  concat <$> mapM disturbed segments
  where
    disturbed s = frequency [(20, pure [s]), (1, pure []), (1, pure [s, s]), (1, pure [s {segmentAck = Seq 8}]), (1, pure [s {segmentWindow = 2000}])]

-- As a device does it: only the last piece is marked.
cut :: (Int, Segment) -> [Segment]
cut (size, s)
  | fromIntegral (segmentLength s) <= size || size == 0 = [s]
  | otherwise = first : cut (size, s {segmentSeq = segmentEnd first, segmentLength = segmentLength s - piece})
  where
    piece = fromIntegral size
    first = s {segmentLength = piece, segmentFlags = if segmentFlags s `has` ect then ack <> ect else ack}
