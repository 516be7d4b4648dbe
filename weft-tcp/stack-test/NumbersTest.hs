-- |
-- Description : Initial sequence numbers
--
-- RFC 6528: those of one pair of addresses and ports follow a clock, and those of others say nothing of them.
module NumbersTest (tests) where

import Control.Monad (forM)
import Data.Bits (shiftR)
import Data.ByteString qualified as B
import Data.IORef
import Data.List (nub)
import Data.Word (Word16, Word32)
import Site
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Tcp.Connection (Instant)
import Weft.Tcp.Segment
import Weft.Tcp.Sequence (Seq (..))
import Weft.Tcp.Stack.State (Stack (..))

tests :: TestTree
tests =
  testGroup
    "initial sequence numbers"
    [ testCase "of one flow grow by one each four microseconds" $ do
        x <- secretly (1, 2)
        numbers <- forM [0, 4, 1000000, 3600000000, 17179869184] (number x 4000)
        map (subtract (sum (take 1 numbers))) numbers @?= [0, 1, 250000, 900000000, 0],
      testCase "of other ports are unrelated" $ do
        x <- secretly (1, 2)
        numbers <- forM [1024 .. 1279] (\port -> number x port 0)
        let steps = zipWith (-) (drop 1 numbers) numbers
        -- 256 draws of 256 have 162 values on the average.
        assertBool (show steps) (length (nub numbers) == 256 && all ((>= 130) . length . nub) [map (`shiftR` 24) numbers, map (`mod` 256) numbers, map (`shiftR` 24) steps]),
      testCase "depend on the stack's secret" $ do
        here <- secretly (1, 2) >>= \x -> number x 4000 0
        there <- secretly (1, 3) >>= \x -> number x 4000 0
        assertBool (show (here, there)) (here /= there)
    ]

secretly :: (Word, Word) -> IO Site
secretly (a, b) = do
  x <- site id
  x <$ writeIORef (stackSecret (siteStack x)) (Just (fromIntegral a, fromIntegral b))

-- | The number of the answer to a SYN from this port at this time. The peer resets the connection.
number :: Site -> Word16 -> Instant -> IO Word32
number x port at = do
  comesFrom port x at syn 100 (Seq 0) Nothing B.empty
  siteSent x >>= \case
    [s] | Seq n <- segmentSeq s -> n <$ comesFrom port x at rst 101 (Seq 0) Nothing B.empty
    other -> assertFailure (show other)
