-- |
-- Description : One flow over many kinds of links
--
-- The matrix of @worlds\/netsim.md@: algorithms, rates, round trips, buffers, segments that are overtaken and segments that are lost. Each
-- cell is what one flow delivers in a second. The committed table shows a change for the worse, the model of the link a table that is
-- wrong.
module Matrix
  ( Cell (..),
    cells,
    delivered,
    atMost,
    atLeast,

    -- * The table
    table,
    committed,
    worse,
  )
where

import Data.Char (isDigit)
import Data.Int (Int64)
import Data.List (intercalate)
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Word (Word64)
import Netsim
import Weft.Tcp.Congestion
import Weft.Tcp.Connection

-- | A link, and the flow over it: its algorithm, the rate in Mbit\/s, milliseconds there and back, bytes of the receive buffer, and of a
-- thousand segments, how many are overtaken and how many are lost.
data Cell = Cell {cellControl :: String, cellRate, cellTrip, cellBuffer, cellLate, cellLoss :: Int64}
  deriving stock (Eq, Ord, Show)

-- | All cells, by rows.
cells :: [Cell]
cells = concat rows

rows :: [[Cell]]
rows = [[Cell control rate trip buffer late loss | loss <- losses] | control <- ["cubic", "newreno"], rate <- [1, 20, 200], trip <- [2, 20, 100], buffer <- [8192, 65536, 1048576], late <- [0, 20]]

losses :: [Int64]
losses = [0, 1, 10, 30, 100, 200, 300]

-- | Kilobytes that the flow delivers in a second, with a queue of 64 KB: in 20 seconds, or four over 200 Mbit\/s. What is overtaken is
-- late by a quarter of the round trip.
delivered :: Cell -> Int64
delivered c = sum (measuredBytes m) `div` (1000 * time)
  where
    time = if cellRate c > 100 then 4 else 20
    trip = 1000 * cellTrip c
    m =
      measure
        Net
          { netSettings = defaultSettings {settingControl = if cellControl c == "cubic" then cubic else newReno, settingReceiveBuffer = fromIntegral (cellBuffer c), settingReceiveLimit = 0},
            netFlows = 1,
            netRate = 125000 * cellRate c,
            netQueue = 65536,
            netLoss = per100000 (cellLoss c),
            netLate = (per100000 (cellLate c), trip `div` 4),
            netMtu = const maxBound,
            netRoundTrip = trip,
            netFrom = 0,
            netUntil = time * 1000000
          }
    per100000 n = fromIntegral (100 * n) :: Word64

-- | By the model of the link: its rate less headers (without options), or a buffer in each round trip. A segment takes whole
-- microseconds, which are up to a hundredth less than it should.
atMost :: Cell -> Int64
atMost c = min (126 * cellRate c * 1448 `div` 1488) (cellBuffer c `div` cellTrip c) + 1

-- | What the model asks for where nothing is lost or overtaken: three quarters of that. A flow that has to find out about more than the
-- queue holds is in slow start, or after it, for a good part of the time: a sixth.
atLeast :: Cell -> Int64
atLeast c
  | cellLoss c > 0 || cellLate c > 0 = 0
  | 125 * cellRate c * cellTrip c > 65536 && cellBuffer c > 65536 = atMost c `div` 6
  | otherwise = 3 * atMost c `div` 4

-- | As in @netsim.md@, given what each cell delivers.
table :: (Cell -> Int64) -> [String]
table what =
  row (["control", "Mbit/s", "RTT, ms", "buffer", "overtaken"] <> map (\l -> thousandth l <> " %") losses)
    : ("|" <> concat (replicate (5 + length losses) "---|"))
    : [row ([cellControl c, show (cellRate c), show (cellTrip c), show (cellBuffer c), thousandth (cellLate c) <> " %"] <> map (show . what) r) | r@(c : _) <- rows]
  where
    row columns = "| " <> intercalate " | " columns <> " |"

thousandth :: Int64 -> String
thousandth n = show (fromIntegral n / 10 :: Double)

-- | The cells of a page with such a table.
committed :: String -> Map Cell Int64
committed page = Map.fromList [(cell, read value) | line <- lines page, control : rate : trip : buffer : late : values <- [columns line], control `elem` ["cubic", "newreno"], length values == length losses, (loss, value) <- zip losses values, all isDigit value, let cell = Cell control (read rate) (read trip) (read buffer) (round (10 * (read (takeWhile (/= ' ') late) :: Double))) loss]
  where
    columns line = case break (== '|') line of
      (_, '|' : rest) -> go rest
      _ -> []
    go text = case break (== '|') text of
      (column, '|' : rest) -> unwords (words column) : go rest
      _ -> []

-- | What is wrong with a cell, given what the table says: it delivers more than a tenth less (of very little, three kilobytes), or a number that the
-- link does not allow.
worse :: Map Cell Int64 -> Cell -> [String]
worse known c =
  [ show c <> ": " <> show now <> " KB/s, " <> what
    | (what, True) <-
        [ ("not in the table", Map.notMember c known),
          (maybe "" show old <> " in the table", maybe False (\o -> now < o - max 3 (o `div` 10)) old),
          (show (atMost c) <> " by the model of the link", now > atMost c),
          (show (atLeast c) <> " at least by the model of the link", now < atLeast c)
        ]
  ]
  where
    old = Map.lookup c known
    now = delivered c
