-- |
-- Module      : Weft.Bench.Plot
-- Description : Lines and bars, as SVG
--
-- Pictures for the documentation, readable on a light and on a dark page: a title, axes
-- that name their units, and beside the end of each line its name, so that nobody has to
-- match colours with a legend. Pure. What is drawn, and how the servers look, is for
-- "Weft.Bench.Http.Figures".
module Weft.Bench.Plot
  ( -- * Charts
    Chart (..),
    Content (..),
    renderChart,

    -- * Lines
    Axis (..),
    Scale (..),
    Series (..),

    -- * Bars
    Bar (..),

    -- * Looks
    Look (..),
    Dash (..),

    -- ** Pure parts
    ticksOf,
    spreadOut,
    grouped,
  )
where

import Data.List (sortOn)
import Data.Text (Text)
import Data.Text qualified as Text
import Data.Text.Lazy qualified as Lazy
import Graphics.Svg (Element, renderText)
import Numeric (showFFloat)
import Weft.Bench.Plot.Svg

-- | A picture.
data Chart = Chart
  { chartTitle :: !Text,
    -- | what exactly was done, a line
    chartSubtitle :: !Text,
    -- | where the figures come from, a line each
    chartSource :: ![Text],
    chartContent :: !Content
  }

-- | What is in it.
data Content
  = Lines !Axis !Axis ![Series]
  | -- | the unit, and the bars in the order in which they are drawn
    Bars !Text ![Bar]

-- | An axis.
data Axis = Axis
  { -- | with its unit
    axisLabel :: !Text,
    axisScale :: !Scale,
    -- | places to mark and what is written there; empty: where it is useful
    axisMarks :: ![(Double, Text)]
  }

-- | A linear one begins at 0.
data Scale = Linear | Logarithmic
  deriving stock (Eq, Show)

-- | A line.
data Series = Series
  { seriesName :: !Text,
    seriesLook :: !Look,
    seriesPoints :: ![(Double, Double)]
  }

-- | A bar.
data Bar = Bar
  { barName :: !Text,
    barLook :: !Look,
    barValue :: !Double,
    -- | written behind the value
    barNote :: !Text
  }

-- | How something is drawn: in a colour of the palette ('palette'), and whether it is
-- what the picture is about.
data Look = Look
  { lookColour :: !Text,
    lookDash :: !Dash,
    lookOurs :: !Bool
  }

-- | How a line is drawn.
data Dash = Solid | Dashed | Dotted
  deriving stock (Eq, Show)

-- | The file's text.
renderChart :: Chart -> Text
renderChart chart = Lazy.toStrict (renderText (document 800 height (chartTitle chart) (header : body ++ sources))) <> "\n"
  where
    header = words' "title" 16 28 "start" (chartTitle chart) <> words' "muted" 16 48 "start" (chartSubtitle chart)
    (body, bottom) = case chartContent chart of
      Lines x y series -> (linesIn x y series, 462)
      Bars unit bars -> (barsIn unit bars, 88 + 28 * fromIntegral (length bars))
    sources = [words' "muted" 16 (bottom + 18 + 16 * n) "start" s | (n, s) <- zip [0 ..] (chartSource chart)]
    height = bottom + 14 + 16 * fromIntegral (length (chartSource chart))

-- Lines in a frame; the names stand to the right of it, in the order in which the
-- lines end.
linesIn :: Axis -> Axis -> [Series] -> [Element]
linesIn xAxis yAxis series =
  gridX
    ++ gridY
    ++ [words' "label" ((left + right) / 2) 448 "middle" (axisLabel xAxis)]
    ++ [turned "label" 22 ((top + bottom) / 2) (axisLabel yAxis)]
    ++ concatMap line (sortOn (lookOurs . seriesLook) drawn)
    ++ names
  where
    (left, right, top, bottom) = (84, 596, 66, 404)
    drawn = [s {seriesPoints = points} | s <- series, let points = filter (\(a, b) -> usable xAxis a && usable yAxis b) (seriesPoints s), not (null points)]
    usable axis v = axisScale axis == Linear || v > 0
    values f = concatMap (map f . seriesPoints) drawn
    (xTicks, xPlace) = placing xAxis (left, right) (values fst)
    (yTicks, yPlace) = placing yAxis (bottom, top) (values snd)
    gridX = concat [[stroke "grid" x top x bottom, words' "tick" x (bottom + 18) "middle" t] | (v, t) <- xTicks, let x = xPlace v]
    gridY = concat [[stroke "grid" left y right y, words' "tick" (left - 8) (y + 4) "end" t] | (v, t) <- yTicks, let y = yPlace v]
    line s =
      let at = [(xPlace a, yPlace b) | (a, b) <- seriesPoints s]
       in polyline (lookClasses (seriesLook s)) at : [dot (lookClasses (seriesLook s)) p | p <- at]
    ends = [(yPlace (snd (last (seriesPoints s))), xPlace (fst (last (seriesPoints s))), s) | s <- drawn]
    names =
      concat
        [ [ leader (lookClasses (seriesLook s)) [(x + 5, y), (right + 6, place), (right + 26, place)],
            words' (if lookOurs (seriesLook s) then "name ours" else "name") (right + 32) (place + 4) "start" (seriesName s)
          ]
          | (place, (y, x, s)) <- spreadOut 17 (top, bottom) (\(y, _, _) -> y) ends
        ]

barsIn :: Text -> [Bar] -> [Element]
barsIn unit bars = words' "label" left 72 "start" unit : concat (zipWith bar [0 ..] bars)
  where
    left = 150
    most = maximum (1e-9 : map barValue bars)
    bar n b =
      let y = 82 + 28 * n
          width = max 2 (400 * max 0 (barValue b) / most)
       in [ words' (if lookOurs (barLook b) then "name ours" else "name") (left - 10) (y + 15) "end" (barName b),
            rectangle (lookClasses (barLook b)) left y width 20,
            words' "tick" (left + width + 8) (y + 15) "start" (amount (barValue b) <> barNote b)
          ]

lookClasses :: Look -> Text
lookClasses l = Text.unwords ([lookColour l] ++ ["ours" | lookOurs l] ++ maybe [] pure (lookup (lookDash l) [(Dashed, "dashed"), (Dotted, "dotted")]))

-- Marks with their texts, and where a value lies between two places of the picture.
placing :: Axis -> (Double, Double) -> [Double] -> ([(Double, Text)], Double -> Double)
placing axis (from, to) values = (marks, place)
  where
    ticks = ticksOf (axisScale axis) values
    marks = if null (axisMarks axis) then [(t, short (amount t)) | t <- ticks] else axisMarks axis
    (low, high) = case axisScale axis of
      Linear -> (0, maximum (1e-9 : ticks))
      Logarithmic -> let all' = map fst marks ++ values in (log (minimum all'), log (maximum all'))
    place v =
      let s = (if axisScale axis == Linear then v else log v) - low
       in if high <= low then (from + to) / 2 else from + (to - from) * s / (high - low)

-- | Round values that span the given ones: from 0 by an even step, or by 1, 2 and 5
-- of the powers of ten (the powers alone where these are many).
--
-- >>> ticksOf Linear [3, 87]
-- [0.0,20.0,40.0,60.0,80.0,100.0]
-- >>> ticksOf Logarithmic [1.5, 700]
-- [1.0,10.0,100.0,1000.0]
ticksOf :: Scale -> [Double] -> [Double]
ticksOf scale values = case scale of
  _ | null values -> []
  Linear ->
    let most = max 1e-9 (maximum values)
        step = head' [s | e <- [-9 ..], m <- [1, 2, 5], let s = m * 10 ^^ (e :: Int), most / s <= 6]
     in map (* step) [0 .. fromIntegral (ceiling (most / step - 1e-9) :: Int)]
  Logarithmic ->
    let (least, most) = (minimum values, maximum values)
        -- What is a hundredth outside is inside: a load of 0.99 begins at 1.
        slack = 1.02
        exponent' = floor (logBase 10 (least * slack)) :: Int
        fine = [m * 10 ^^ e | e <- [exponent' .. exponent' + 20], m <- [1, 2, 5]]
        coarse = [10 ^^ e | e <- [exponent' .. exponent' + 20]]
        cover list = let (small, rest) = span (< most / slack) (dropWhileBelow list) in small ++ take 1 rest
        dropWhileBelow list = case list of
          _ : more@(b : _) | b <= least * slack -> dropWhileBelow more
          _ -> list
     in if length (cover fine) <= 7 then cover fine else cover coarse
  where
    head' list = case list of
      x : _ -> x
      [] -> 1

-- | Give things places at least so far apart, near where they want to be and between two
-- bounds where there is room for all; in the order of their wishes.
spreadOut :: Double -> (Double, Double) -> (a -> Double) -> [a] -> [(Double, a)]
spreadOut apart (low, high) wish things = zip (reverse (pushUp (reverse (pushDown (map wish sorted))))) sorted
  where
    sorted = sortOn wish things
    pushDown = go low
      where
        go _ [] = []
        go least (w : more) = let p = max least w in p : go (p + apart) more
    pushUp = go high
      where
        go _ [] = []
        go most (w : more) = let p = min most w in p : go (p - apart) more

-- A number for people: thousands apart, and no more digits than mean something.
amount :: Double -> Text
amount v
  | v == 0 = "0"
  | abs v >= 100 || abs (v - fromIntegral whole) < 1e-9 = grouped whole
  | otherwise = Text.pack (showFFloat (Just digits) v "")
  where
    whole = round v :: Integer
    digits = max 1 (2 - floor (logBase 10 (abs v) :: Double)) :: Int

-- Without zeros that say nothing.
short :: Text -> Text
short t
  | Text.any (== '.') t = Text.dropWhileEnd (== '.') (Text.dropWhileEnd (== '0') t)
  | otherwise = t

-- | A whole number with its thousands apart.
--
-- >>> grouped (-1234567)
-- "-1,234,567"
grouped :: Integer -> Text
grouped n
  | n < 0 = "-" <> grouped (negate n)
  | otherwise = Text.intercalate "," (reverse (map Text.reverse (Text.chunksOf 3 (Text.reverse (Text.pack (show n))))))
