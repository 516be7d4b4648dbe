-- |
-- Description : The hosts of a link
--
-- Two stations find each other, and what others say changes nothing that was not asked for.
module NeighboursTest (tests) where

import Control.Exception (evaluate)
import Data.Bits (xor)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.IORef (mkWeakIORef, newIORef)
import Data.Int (Int64)
import Data.List qualified as List
import Data.Maybe (isNothing)
import Data.Word (Word32)
import Properties (atLeast, testCovered)
import System.Mem (performMajorGC)
import System.Mem.Weak (deRefWeak)
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (Assertion, testCase, (@?=))
import Test.Tasty.QuickCheck
import Weft.Tcp.Neighbours
import Weft.Tcp.Packet

tests :: TestTree
tests =
  testGroup
    "neighbours"
    [ testGroup "two stations find each other, and what waited goes in its order" [testCase (show version) (finds version) | version <- versions],
      testGroup "an answer counts for half a minute; one that is silent is forgotten after three questions" [testCase (show version) (ages version) | version <- versions],
      testGroup "this end has another hardware address, says so and is found by it" [testCase (show version) (renames version) | version <- versions],
      testGroup "a hardware address that changed is learnt" [testCase (show version) (changes version) | version <- versions],
      testGroup "one that is told unasked is learnt half a second later, unless the host is where it was" [testCase (show version) (claims version) | version <- versions],
      atLeast 500 . testProperty "what nobody asked for changes no entry" $ \version (frames :: [Frame]) ->
        let n = List.foldl' (\x (Frame f) -> let (x', _, _) = receiveFrame 1 (f version) x in x') (known version) frames
         in knownHosts n === knownHosts (known version),
      testCase "a station with addresses of both versions finds and answers each by that of its version" twofold,
      testCase "a host on another network is reached by the router, or not at all" routed,
      testCase "a host that looks for a duplicate of its address is told" duplicate,
      atLeast 500 . testProperty "what nobody asked for teaches nothing" $ \version (frames :: [Frame]) ->
        let n = List.foldl' (\x (Frame f) -> let (x', _, _) = receiveFrame 0 (f version) x in x') (noNeighbours (ours version) :: Neighbours ()) frames
         in (knownHosts n, openQuestions n) === ([], []),
      atLeast 200 . testProperty "no flood takes more than the bounds" $ \version (moves :: [Either Word32 Frame]) ->
        let flood = cycle moves
            go (now, n, count) m = case m of
              Left host -> let (n', out) = sendTo now (addressOf version (host `mod` 4000)) (B.singleton 1) n in (now + 100, n', count + length out)
              Right (Frame f) -> let (n', _, out) = receiveFrame now (f version) n in (now + 100, n', count + length out)
            (_, end, frames) = List.foldl' go (0 :: Int64, noNeighbours (ours version), 0 :: Int) (take (if null moves then 0 else 3000) flood)
         in conjoin
              [ property (length (knownHosts end) <= mostKnown),
                property (length (openQuestions end) <= mostAsked),
                property (all ((<= mostWaiting) . snd) (openQuestions end)),
                property (frames <= 3000 * (mostWaiting + 1))
              ],
      testCase "a packet that waits no more is not kept" forgets,
      testCase "a flood of hosts that are not there does not keep others from being found" crowded,
      atLeast 1000 . testProperty "any bytes" $ \version bytes -> case receiveFrame 0 (B.pack bytes) (noNeighbours (ours version) :: Neighbours ByteString) of
        (n, _, out) -> (knownHosts n, length out) === ([], 0),
      -- Those alone hardly ever come further than the first field.
      atLeast 5000 . testCovered "any bytes after a good beginning, or in its middle" $ \version (Frame f) (NonNegative at) bytes ->
        let good = f version
            (front, back) = B.splitAt (at `mod` (B.length good + 1)) good
            (n, _, out) = receiveFrame 0 (front <> B.pack (take 4 bytes) <> B.drop (length (take 4 bytes)) back) (noNeighbours (ours version) :: Neighbours ByteString)
         in cover 5 (not (null out)) "answered" . cover 20 (null out) "dropped" $ (knownHosts n, length out `min` 2) === ([], length out `min` 1)
    ]
  where
    versions = [V4, V6]

-- | What is kept of a host is not looked at while its packets come.
forgets :: Assertion
forgets = do
  oldest <- newIORef ()
  later <- newIORef ()
  left <- mkWeakIORef oldest (pure ())
  n <- evaluate (List.foldl' (\x (now, packet) -> fst (sendTo now (addressOf V4 9) packet x)) (noNeighbours (ours V4)) ((0, oldest) : map (,later) [1 .. 100]))
  performMajorGC
  deRefWeak left >>= (@?= True) . isNothing
  map snd (openQuestions n) @?= [mostWaiting]

data Version = V4 | V6
  deriving stock (Show, Eq)

instance Arbitrary Version where
  arbitrary = elements [V4, V6]

-- | A frame of another host: a question, an answer, or either with a changed bit.
newtype Frame = Frame (Version -> ByteString)

instance Show Frame where
  show (Frame f) = show (f V4, f V6)

instance Arbitrary Frame where
  arbitrary = do
    host <- choose (1, 4000)
    asks <- arbitrary
    changed <- frequency [(3, pure Nothing), (1, Just <$> choose (0, 8 * 86 - 1))]
    pure . Frame $ \version ->
      let frame = if asks then questionOf version host else answerOf version host
       in maybe frame (flipped frame) changed
    where
      flipped b i = case B.splitAt ((i `div` 8) `mod` B.length b) b of
        (front, back) -> front <> B.singleton (B.head back `xor` 4) <> B.tail back

addressOf :: Version -> Word32 -> Address
addressOf V4 n = Address4 (0x0a000000 + n)
addressOf V6 n = Address6 0xfd09000000000000 (fromIntegral n)

station :: Version -> Word32 -> Station
station version n = Station (Mac (0x020000000000 + fromIntegral n)) [Attachment (addressOf version n) (if version == V4 then 16 else 64) Nothing]

-- | It has the address that ends with 7.
ours :: Version -> Station
ours version = station version 7

said :: [Out a] -> [ByteString]
said out = [f | Say f <- out]

carried :: [Out a] -> [(Mac, a)]
carried out = [(m, a) | Carry m a <- out]

-- | A host's question about our station, and its answer to our question.
questionOf, answerOf :: Version -> Word32 -> ByteString
questionOf version host = B.concat (said (snd (sendTo 0 (addressOf version 7) () (noNeighbours (station version host)))))
answerOf version host = case sendTo 0 (addressOf version host) () (noNeighbours (ours version)) of
  (_, out) -> B.concat [answer | question <- said out, (_, _, reply) <- [receiveFrame 0 question (noNeighbours (station version host) :: Neighbours ())], answer <- said reply]

finds, ages, changes, claims :: Version -> IO ()
finds version = do
  let (a1, out1) = sendTo 0 (addressOf version 9) 'x' (noNeighbours (ours version))
      (a2, out2) = sendTo 10 (addressOf version 9) 'y' a1
  (length (said out1), length (said out2), carried (out1 <> out2)) @?= (1, 0, [])
  let (_, nothing, answers) = receiveFrame 20 (B.concat (said out1)) (noNeighbours (station version 9) :: Neighbours ())
      (a3, nothing', out3) = receiveFrame 30 (B.concat (said answers)) a2
      mac = Mac 0x020000000009
  (nothing, nothing') @?= (Nothing, Nothing)
  carried out3 @?= [(mac, 'x'), (mac, 'y')]
  knownHosts a3 @?= [(addressOf version 9, mac)]
  let (_, out4) = sendTo 1000 (addressOf version 9) 'z' a3
  (carried out4, said out4) @?= ([(mac, 'z')], [])
  -- The packet in a frame is the stack's; one for another station is not.
  let packet = B.pack [if version == V4 then 0x45 else 0x60, 2, 3]
      frame = frameFor (station version 9) (Mac 0x020000000007) packet
      stranger = frameFor (station version 9) (Mac 0x020000000008) packet
      takes f = let (_, p, _) = receiveFrame 40 f a3 in p
  (takes frame, takes stranger) @?= (Just packet, Nothing)

known :: Version -> Neighbours Char
known version = case receiveFrame 0 (answerOf version 9) (fst (sendTo 0 (addressOf version 9) 'a' (noNeighbours (ours version)))) of
  (n, _, _) -> n

ages version = do
  let at now n = let (n', out) = sendTo (now * 1000000) (addressOf version 9) 'p' n in (n', (length (carried out), length (said out)))
      (n1, o1) = at 29 (known version)
      (n2, o2) = at 30 n1
      (n3, o3) = at 31 n2
      (n4, o4) = at 32 n3
      (n5, o5) = at 33 n4
      (_, o6) = at 34 n5
  [o1, o2, o3, o4, o5, o6] @?= [(1, 0), (1, 1), (1, 1), (1, 1), (0, 1), (0, 1)]

changes version = do
  let moved = (station version 9) {stationMac = Mac 0x020000000777}
      (n1, out) = sendTo 31000000 (addressOf version 9) 'p' (known version)
      (_, _, answers) = receiveFrame 0 (B.concat (said out)) (noNeighbours moved :: Neighbours ())
      (n2, _, anew) = receiveFrame 31000010 (B.concat (said answers)) n1
      (_, _, unmoved) = receiveFrame 31000010 (answerOf version 9) n1
      -- An answer that comes before its question.
      (n3, _, _) = receiveFrame 31000010 (B.concat (said answers)) (known version)
  map snd (knownHosts n2) @?= [Mac 0x020000000777]
  -- What went to where the host was goes again, to where it is.
  (carried out, carried anew, carried unmoved) @?= ([(Mac 0x020000000009, 'p')], [(Mac 0x020000000777, 'p')], [])
  map snd (knownHosts n3) @?= [Mac 0x020000000009]

-- By an announcement, by a question of the host's to this one, and by an answer.
claims version = sequence_ [liar frame >> mover frame | frame <- [announced, questionBy, answerBy]]
  where
    host = addressOf version 9
    moved = (station version 9) {stationMac = Mac 0x020000000777}
    announced = B.concat (said (snd (present 0 (stationMac moved) (noNeighbours moved :: Neighbours ()))))
    questionBy = B.concat (said (snd (sendTo 0 (addressOf version 7) () (noNeighbours moved))))
    answerBy = answerFrom moved (questionAbout (ours version))
    questionAbout asker = B.concat (said (snd (sendTo 0 host () (noNeighbours asker))))
    answerFrom who asked = let (_, _, out) = receiveFrame 0 asked (noNeighbours who :: Neighbours ()) in B.concat (said out)
    doubted frame = let (n, _, out) = receiveFrame 700000 frame (known version) in (n, [f | f <- said out, B.take 6 f == B.pack [2, 0, 0, 0, 0, 9]])
    -- The host is where it was, and says so; answers of others count for nothing.
    liar frame = do
      let (n1, asked) = doubted frame
          (n2, out) = sendTo 1100000 host 'p' n1
          (n3, _, _) = receiveFrame 1200000 answerBy n2
          (n4, _, _) = receiveFrame 1200000 (answerFrom (station version 9) (B.concat asked)) n3
      length asked @?= 1
      -- It is used meanwhile, and nothing else asked.
      (carried out, length (said out)) @?= ([(Mac 0x020000000009, 'p')], 0)
      map snd (knownHosts n3) @?= [Mac 0x020000000009]
      carried (snd (sendTo 9000000 host 'q' n4)) @?= [(Mac 0x020000000009, 'q')]
      -- The next lie is checked a second later, and not at once.
      length (said (let (_, _, o) = receiveFrame 1300000 announced n4 in o)) @?= 0
      length (said (let (_, _, o) = receiveFrame 2300000 announced n4 in o)) @?= 1
    -- The host does not answer there any more.
    mover frame = do
      let (n1, _) = doubted frame
          (n2, out) = sendTo 1500000 host 'p' n1
          (n3, _, out') = receiveFrame 1500100 (answerFrom moved (B.concat (said out))) n2
      (carried out, map (B.take 1) (said out) /= [B.singleton 2]) @?= ([], True)
      (carried out', map snd (knownHosts n3)) @?= ([(Mac 0x020000000777, 'p')], [Mac 0x020000000777])

twofold :: Assertion
twofold = sequence_ [finds' version | version <- [V4, V6]]
  where
    both n = Station (Mac (0x020000000000 + fromIntegral n)) (concatMap (\v -> stationAttachments (station v n)) [V4, V6])
    finds' version = do
      let (a, out) = sendTo 0 (addressOf version 9) 'x' (noNeighbours (both 7))
          (_, _, answers) = receiveFrame 0 (B.concat (said out)) (noNeighbours (both 9) :: Neighbours ())
          (a', _, out') = receiveFrame 0 (B.concat (said answers)) a
      knownHosts a' @?= [(addressOf version 9, Mac 0x020000000009)]
      carried out' @?= [(Mac 0x020000000009, 'x')]
      -- It asks as a station with the one address does.
      said out @?= said (snd (sendTo 0 (addressOf version 9) 'x' (noNeighbours (ours version))))

renames :: Version -> Assertion
renames version = do
  let (a, out) = present 0 (Mac 0x020000000777) (noNeighbours (ours version) :: Neighbours ())
      more = scanl (\(n, _) at -> present at (Mac 0x020000000777) n) (a, []) [500000, 1000000, 1500000, 2000000, 9000000]
      told = [receiveFrame 0 frame (noNeighbours (station version 9) :: Neighbours ()) | frame <- said out]
      (_, _, answers) = receiveFrame 0 (questionOf version 9) a
  (length out, stationMac (stationOf a)) @?= (1, Mac 0x020000000777)
  -- Three times: one may be lost.
  map (length . snd) more @?= [0, 0, 1, 0, 1, 0]
  -- Nobody asked: another of our stations learns nothing of it, and says nothing.
  [(knownHosts n, length o) | (n, _, o) <- told] @?= [([], 0)]
  map (B.take 6 . B.drop 6) (said answers <> said out) @?= replicate 2 (B.pack [2, 0, 0, 0, 7, 0x77])

routed, duplicate, crowded :: IO ()
routed = do
  let there router = fmap fst (openQuestions (fst (sendTo 0 far 'p' (noNeighbours (by router)))))
      by router = (ours V4) {stationAttachments = [Attachment (addressOf V4 7) 16 router]}
      far = Address4 0x08080808
  there Nothing @?= []
  map (`isReachable` far) [by Nothing, by (Just (Address4 0x0a000001))] @?= [False, True]
  there (Just (Address4 0x0a000001)) @?= [Address4 0x0a000001]
duplicate = do
  let looking = Station (Mac 0x020000000055) [Attachment (Address6 0 0) 0 Nothing]
      question = B.concat (said (snd (sendTo 0 (addressOf V6 7) () (noNeighbours looking))))
      (_, _, answers) = receiveFrame 0 question (noNeighbours (ours V6) :: Neighbours ())
  -- To all hosts.
  map (B.take 6) (said answers) @?= [B.pack [0x33, 0x33, 0, 0, 0, 1]]
crowded = do
  let flood now hosts n0 = List.foldl' (\n h -> fst (sendTo now (addressOf V4 h) 'f' n)) n0 hosts
      (n1, _) = sendTo 1 (addressOf V4 9) 'p' (flood 0 [1000 .. 3000] (noNeighbours (ours V4)))
      (_, _, out) = receiveFrame 3 (answerOf V4 9) (flood 2 [3001 .. 3100] n1)
  map snd (carried out) @?= "p"
