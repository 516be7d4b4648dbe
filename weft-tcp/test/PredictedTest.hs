-- |
-- Description : Header prediction is the full step
--
-- Of connections to which anything has happened, for segments, writes and reads that are usual or nearly so. Worlds check
-- the same at each of their steps.
module PredictedTest (tests) where

import Data.List qualified as List
import Data.Maybe (isJust)
import Data.Word (Word16, Word32)
import HostileTest (Move (..), Run (..), begin, move, opening)
import Properties (atLeast, testCovered)
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.QuickCheck
import Weft.Tcp.Connection
import Weft.Tcp.Internal.Form (written)
import Weft.Tcp.Internal.Predicted
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Internal.Written (tcbForm)
import Weft.Tcp.Segment
import Weft.Tcp.Sequence

-- | An input as it differs from the usual one.
data Nearly
  = Brings Int Int Word32 Flags Word16 (Maybe Int) [Int] (Maybe Word16)
  | Writes Word32
  | Reads Word32
  deriving stock (Show)

instance Arbitrary Nearly where
  arbitrary = frequency [(3, Brings <$> few (choose (-3, 3)) <*> few (choose (-3, 3)) <*> sizes <*> flags <*> frequency [(1, elements [0, 1]), (9, pure 60000)] <*> times <*> few' (choose (-5, 5)) <*> frequency [(9, pure Nothing), (1, Just <$> arbitrary)]), (2, Writes <$> sizes), (1, Reads <$> sizes)]
    where
      few other = frequency [(9, pure 0), (1, other)]
      few' other = frequency [(9, pure []), (1, listOf1 other)]
      sizes = frequency [(6, choose (0, 300)), (2, elements [1447, 1448, 1449, 1460]), (1, choose (0, 70000))]
      flags = frequency [(9, elements [ack, ack <> psh]), (1, Flags <$> choose (0, 1023))]
      times = frequency [(9, Just <$> elements [0, 1, 1, 2]), (1, pure (Just (-1))), (1, pure Nothing)]

-- | How long ago the connection began, in bytes: about where its first number begins to move.
newtype Far = Far Word32
  deriving newtype (Show)

instance Arbitrary Far where
  arbitrary = Far <$> elements [0, 1, 2 ^ (30 :: Int) - 1, 2 ^ (30 :: Int), 2 ^ (30 :: Int) + 1, 2 ^ (31 :: Int) - 1]

-- | What leads to states in which something is predicted, and anything else.
newtype Life = Life Move
  deriving newtype (Show)

instance Arbitrary Life where
  arbitrary =
    Life
      <$> frequency
        [ (20, (\n w t -> Segment' 0 0 n ack w t 0 []) <$> choose (0, 300) <*> elements [1000, 60000] <*> choose (0, 2)),
          (20, pure (Is 0)),
          (12, elements [Is 3, Is 4]),
          (12, Passes <$> frequency [(20, choose (0, 3000)), (1, choose (0, 300000))]),
          (1, arbitrary)
        ]

tests :: TestTree
tests =
  testGroup
    "header prediction"
    [ atLeast 3000 . testCovered "is the full step" $ \active options (NonNegative later') (lives :: [Life]) near (Far far) ->
        let r = List.foldl' move (begin active options) (opening active : [m | Life m <- lives])
            t = (\x -> if tcbState x == Established then x {sndFirst = sndUna x `retreat` far} else x) (runTcb r)
            now = runNow r + 1000 * fromIntegral (later' :: Int)
            prediction = predicted now (input t near) t
         in cover 15 (isJust prediction) "predicted" $
              fmap shown prediction === fmap (const (shown (stepInFull now (input t near) t))) prediction
    ]
  where
    -- Of settings the form says nothing.
    shown (Step t out told) = (out, told, written tcbForm t, settingTimeoutOption (tcbSettings t))
    input t = \case
      Writes n -> Wrote n
      Reads n -> Consumed n
      Brings s a n f w at sacks told -> Arrived (Segment (off (rcvNxt t) s) (off (sndNxt t) a) f w 0 (optionsOf t at sacks) {optionUserTimeout = told} n)
    off (Seq x) k = Seq (x + fromIntegral k)
    optionsOf t at sacks = noOptions {optionTimestamps = (\v -> Timestamps (tsRecent t + fromIntegral v) 7) <$> at, optionSack = [Range (sndUna t) (off (sndUna t) k) | k <- sacks]}
