-- |
-- Description : The plan of a world of two connections
--
-- The settings of both ends, what their users do and what the link does to packets. A plan is drawn
-- from a seed; a failing one is made smaller ("World.Shrink").
module World.Plan
  ( Plan (..),
    SidePlan (..),
    Link (..),
    Side (..),
    other,
    planOf,
    setSide,
    drawPlan,
    draw,

    -- * What happens
    Logged (..),
    Call (..),
  )
where

import Data.Bits (shiftR, xor)
import Data.Int (Int64)
import Data.IntSet (IntSet)
import Data.IntSet qualified as IntSet
import Data.Word (Word64)
import Weft.Tcp.Congestion
import Weft.Tcp.Connection
import Weft.Tcp.Segment (Segment)
import Weft.Tcp.Sequence (Seq (..))

-- | An end. A opens the connection.
data Side = A | B
  deriving stock (Eq, Ord, Show)

-- | The peer.
other :: Side -> Side
other A = B
other B = A

-- | A world. Times are in microseconds.
data Plan = Plan
  { -- | Where the dice begin.
    planDice :: Word64,
    planLink :: Link,
    planA, planB :: SidePlan,
    -- | One end resets the connection at this time.
    planBreak :: Maybe (Int64, Side),
    -- | Both open at once.
    planBoth :: Bool,
    -- | Does a stack try after each step to keep an end in few words? Otherwise when a timer has fired.
    planRests :: Bool,
    -- | Do the users write a little at a time, and only when the peer has all that they wrote before?
    planTalks :: Bool,
    -- | The numbers of packets that suffer nothing.
    planSpared :: IntSet
  }

-- | An end and its user.
data SidePlan = SidePlan
  { sideSettings :: Settings,
    sideIss :: Seq,
    -- | How many bytes it sends, and what they are made of.
    sideBytes :: Int,
    sideSalt :: Word64,
    -- | How long the user waits before it reads; 0: it reads at once.
    sideSlow :: Int64
  }

-- | Both directions: delay, how much longer a packet may take, time for a byte, how long packets may
-- wait; of a thousand packets, how many are lost, doubled, corrupted and marked; and the largest that does not vanish.
data Link = Link {linkDelay, linkJitter, linkByte, linkQueue :: Int64, linkLoss, linkTwice, linkBad, linkMark :: Word64, linkMtu :: Int}

-- | Random numbers (SplitMix).
draw :: Word64 -> Word64
draw z0 = z3 `xor` (z3 `shiftR` 31)
  where
    z1 = z0 * 0x9e3779b97f4a7c15 + 0x9e3779b97f4a7c15
    z2 = (z1 `xor` (z1 `shiftR` 30)) * 0xbf58476d1ce4e5b9
    z3 = (z2 `xor` (z2 `shiftR` 27)) * 0x94d049bb133111eb

-- | An end of a plan.
planOf :: Side -> Plan -> SidePlan
planOf A = planA
planOf B = planB

-- | Change an end.
setSide :: Side -> (SidePlan -> SidePlan) -> Plan -> Plan
setSide A f p = p {planA = f (planA p)}
setSide B f p = p {planB = f (planB p)}

-- | The plan of a seed.
drawPlan :: Word64 -> Plan
drawPlan seed =
  Plan
    { planDice = base,
      planLink =
        Link
          { linkDelay = oneOf 1 [10, 1000, 20000, 150000],
            linkJitter = oneOf 2 [1, 1, 500, 30000],
            linkByte = oneOf 3 [0, 0, 1, 20],
            linkQueue = oneOf 4 [20000, 500000],
            linkLoss = oneOf 5 [0, 0, 10, 50, 300],
            linkTwice = oneOf 6 [0, 0, 100],
            linkBad = oneOf 7 [0, 0, 50],
            linkMark = oneOf 9 [0, 100],
            linkMtu = oneOf 13 [maxBound, maxBound, maxBound, 1400, 600]
          },
      planA = side 100,
      planB = side 200,
      planBreak = if breaks then Just (fromIntegral (pick 11 2000000), oneOf 15 [A, B]) else Nothing,
      planBoth = pick 8 8 == 0,
      planRests = pick 16 2 == 0,
      planTalks = pick 17 4 == 0,
      planSpared = IntSet.empty
    }
  where
    base = draw seed * 1000003
    pick i n = fromIntegral (draw (base + i) `mod` n) :: Int
    oneOf i xs = xs !! pick i (fromIntegral (length xs))
    breaks = pick 10 6 == 0
    side i =
      SidePlan
        { sideSettings = settings i,
          sideIss = Seq (oneOf (i + 8) [0, 0xfffffff0, 0x7ffffff0, fromIntegral (draw (base + i))]),
          sideBytes = oneOf (i + 9) [0, 1, 700, 5000, 40000],
          sideSalt = i + 1,
          sideSlow = oneOf (i + 10) [0, 0, 5000, 700000]
        }
    settings i =
      defaultSettings
        { settingReceiveBuffer = oneOf (i + 1) [600, 4000, 20000, 65535, 300000],
          settingReceiveLimit = oneOf (i + 15) [0, 262144, 6291456],
          settingMss = oneOf (i + 2) [100, 536, 1460, 9000],
          settingControl = oneOf (i + 3) [newReno, cubic],
          settingNoDelay = oneOf (i + 4) [True, False],
          settingSack = oneOf (i + 5) [True, True, False],
          settingTimestamps = oneOf (i + 6) [True, True, False],
          settingScaling = oneOf (i + 7) [True, True, False],
          settingEcn = oneOf (i + 12) [NoEcn, AcceptEcn, OfferEcn],
          settingQuickAcks = oneOf (i + 13) [0, 16],
          settingTailProbe = oneOf (i + 14) [True, True, False],
          settingSynRetries = 15,
          settingKeepAlive = if breaks then Just (KeepAlive 10000000 1000000 5) else Nothing,
          settingUserTimeout = if breaks then 100000000 else 100000000000
        }

-- | An event at an end, and its time. A packet has a number.
data Logged
  = Called Int64 Side Call
  | -- | And what the link did to it.
    Sent Int64 Side Int Segment String
  | Came Int64 Side Int Segment

-- | A call of a user, or an answer to it.
data Call = Connects | Accepts | Writes Int | Reads Int | Shuts | Aborts
  deriving stock (Eq, Show)
