-- |
-- Description : Machines that believe a stranger
--
-- The scenario of a segment of Ethernet notices a machine that changes what it knows of another one because somebody says so.
module LiesTest (tests) where

import Control.Exception (ErrorCall (..), try)
import Data.Bits (shiftR)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.List (isInfixOf)
import Data.Word (Word32)
import Explore.Ethernet
import Explore.Scenario
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Sim
import Weft.Tcp.Neighbours
import Weft.Tcp.Packet
import Weft.Tcp.Simulated

tests :: TestTree
tests =
  testGroup
    "lies"
    [ testCase "a machine that believes every answer is found" (found (naive (== 2))),
      testCase "one that believes questions and announcements is found" (found (naive (== 1))),
      testCase "one that believes none is not" $ mapM told [64 .. 67] >>= (@?= [Nothing | _ <- [64 :: Int .. 67]])
    ]
  where
    told seed = outcome (scenarioConfig ethernet seed) (scenarioProgram ethernet seed)
    found hearing = do
      let mistaken = ethernetWith (\ip -> ip {ipHearing = hearing})
      outcomes <- mapM (\seed -> outcome (scenarioConfig mistaken seed) (scenarioProgram mistaken seed)) [64 .. 67]
      assertBool (show outcomes) (any (maybe False ("to the hardware of another machine" `isInfixOf`)) outcomes)
    -- The segment says it to the thread that sends, or to the run.
    outcome config program =
      either
        (\(ErrorCall what) -> Just what)
        ( \r -> case resultOutcome r of
            Value [] -> Nothing
            other -> Just (show other)
        )
        <$> try (simulate 1 config program)

-- | What a frame of ARP of such a kind says of a host that is known is taken for the answer to a question (RFC 826).
naive :: (Int -> Bool) -> Hearing
naive believes = Hearing $ \now frame n ->
  let claimed = Address4 (number 28 frame)
      asked = fst (sendTo (now + 60000000) claimed (error "it is known, so no packet waits") n)
      own = case map attachmentAddress (stationAttachments (stationOf n)) of
        Address4 a : _ -> B.pack [fromIntegral (a `shiftR` s) | s <- [24, 16, 8, 0]]
        _ -> B.empty
      answer = B.take 20 frame <> B.pack [0, 2] <> B.take 16 (B.drop 22 frame) <> own
      (misled, _, _) = receiveFrame now answer asked
      isArp = B.length frame >= 42 && B.take 2 (B.drop 12 frame) == B.pack [8, 6]
   in if isArp && believes (fromIntegral (number 18 frame `mod` 65536)) && any ((== claimed) . fst) (knownHosts n) && notElem claimed (map fst (openQuestions n))
        then receiveFrame now frame misled
        else receiveFrame now frame n
  where
    number :: Int -> ByteString -> Word32
    number at = B.foldl' (\x b -> x * 256 + fromIntegral b) 0 . B.take 4 . B.drop at
