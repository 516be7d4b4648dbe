-- |
-- Description : Lines and bars, as SVG
--
-- Pictures for reports and for the documentation, readable on a light and on a dark page: a
-- title, axes that name their units, and beside the end of each line its name, so that no reader
-- has to match colours with a legend. Pure. @weft load@ draws with it what it measured, and
-- @weft-bench@ its comparisons.
module Chart
  ( -- * Charts
    Chart (..),
    Content (..),
    renderChart,
    renderCharts,
    chartElement,

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
import Graphics.Svg (Element, makeAttribute, makeElement, renderText, toElement, with)
import Numeric (showFFloat)

data Chart = Chart
  { chartTitle :: !Text,
    -- | what exactly was done, a line
    chartSubtitle :: !Text,
    -- | where the figures come from, a line each
    chartSource :: ![Text],
    chartContent :: !Content
  }

-- | The curves or bars, and their axes.
data Content
  = Lines !Axis !Axis ![Series]
  | -- | lines, and for each the ranges of its points: place, least, most
    Ranged !Axis !Axis ![(Series, [(Double, Double, Double)])]
  | -- | the unit, and the bars in the order in which they are drawn
    Bars !Text ![Bar]

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

data Series = Series
  { seriesName :: !Text,
    seriesLook :: !Look,
    seriesPoints :: ![(Double, Double)]
  }

data Bar = Bar
  { barName :: !Text,
    barLook :: !Look,
    barValue :: !Double,
    -- | written after the value
    barNote :: !Text
  }

-- | How something is drawn: in a colour of the palette ('palette'), and whether it is
-- what the picture is about.
data Look = Look
  { lookColour :: !Text,
    lookDash :: !Dash,
    lookOurs :: !Bool
  }

data Dash = Solid | Dashed | Dotted
  deriving stock (Eq, Show)

-- | The text of a file with one chart.
renderChart :: Chart -> Text
renderChart chart = fileOf (chartElement chart)

-- | The text of a file with several charts, one below the other.
renderCharts :: Text -> [Chart] -> Text
renderCharts title charts = fileOf (document 800 (sum heights) title (zipWith below (scanl (+) 0 heights) charts))
  where
    heights = map chartHeight charts
    below y chart = chartElement chart `with` [makeAttribute "y" (number y)]

fileOf :: Element -> Text
fileOf picture = Lazy.toStrict (renderText picture) <> "\n"

-- | A chart as an element of HTML or SVG.
chartElement :: Chart -> Element
chartElement chart = document 800 (chartHeight chart) (chartTitle chart) (header : body ++ sources)
  where
    header = textAt "title" 16 28 "start" (chartTitle chart) <> textAt "muted" 16 48 "start" (chartSubtitle chart)
    body = case chartContent chart of
      Lines x y series -> linesIn x y [(s, []) | s <- series]
      Ranged x y series -> linesIn x y series
      Bars unit bars -> barsIn unit bars
    sources = [textAt "muted" 16 (chartBottom chart + 18 + 16 * n) "start" s | (n, s) <- zip [0 ..] (chartSource chart)]

chartHeight, chartBottom :: Chart -> Double
chartHeight chart = chartBottom chart + 14 + 16 * fromIntegral (length (chartSource chart))
chartBottom chart = case chartContent chart of
  Lines {} -> 462
  Ranged {} -> 462
  Bars _ bars -> 88 + 28 * fromIntegral (length bars)

-- Lines in a frame; the names stand to the right of it, in the order in which the
-- lines end. A range is a thin line through its point.
linesIn :: Axis -> Axis -> [(Series, [(Double, Double, Double)])] -> [Element]
linesIn xAxis yAxis ranged =
  gridX
    ++ gridY
    ++ [textAt "label" ((left + right) / 2) 448 "middle" (axisLabel xAxis)]
    ++ [turned "label" 22 ((top + bottom) / 2) (axisLabel yAxis)]
    ++ [polyline (lookClasses (seriesLook s) <> " leader") [(xPlace x, yPlace low), (xPlace x, yPlace high)] | (s, ranges) <- ranged, (x, low, high) <- ranges, usable xAxis x, usable yAxis low, low < high]
    ++ concatMap line (sortOn (lookOurs . seriesLook) drawn)
    ++ names
  where
    (left, right, top, bottom) = (84, 596, 66, 404)
    drawn = [s {seriesPoints = points} | (s, _) <- ranged, let points = filter (\(a, b) -> usable xAxis a && usable yAxis b) (seriesPoints s), not (null points)]
    usable axis v = axisScale axis == Linear || v > 0
    values f = concatMap (map f . seriesPoints) drawn
    (xTicks, xPlace) = placing xAxis (left, right) (values fst)
    (yTicks, yPlace) = placing yAxis (bottom, top) (values snd ++ filter (usable yAxis) (concat [[low, high] | (_, ranges) <- ranged, (_, low, high) <- ranges]))
    gridX = concat [[stroke "grid" x top x bottom, textAt "tick" x (bottom + 18) "middle" t] | (v, t) <- xTicks, let x = xPlace v]
    gridY = concat [[stroke "grid" left y right y, textAt "tick" (left - 8) (y + 4) "end" t] | (v, t) <- yTicks, let y = yPlace v]
    line s =
      let at = [(xPlace a, yPlace b) | (a, b) <- seriesPoints s]
       in polyline (lookClasses (seriesLook s)) at : [dot (lookClasses (seriesLook s)) p | length at <= 40, p <- at]
    ends = [(yPlace (snd (last (seriesPoints s))), xPlace (fst (last (seriesPoints s))), s) | s <- drawn]
    names =
      concat
        [ [ leader (lookClasses (seriesLook s)) [(x + 5, y), (right + 6, place), (right + 26, place)],
            textAt (if lookOurs (seriesLook s) then "name ours" else "name") (right + 32) (place + 4) "start" (seriesName s)
          ]
          | (place, (y, x, s)) <- spreadOut 17 (top, bottom) (\(y, _, _) -> y) ends
        ]

barsIn :: Text -> [Bar] -> [Element]
barsIn unit bars = textAt "label" left 72 "start" unit : concat (zipWith bar [0 ..] bars)
  where
    left = 150
    most = maximum (1e-9 : map barValue bars)
    bar n b =
      let y = 82 + 28 * n
          width = max 2 (400 * max 0 (barValue b) / most)
       in [ textAt (if lookOurs (barLook b) then "name ours" else "name") (left - 10) (y + 15) "end" (barName b),
            rectangle (lookClasses (barLook b)) left y width 20,
            textAt "tick" (left + width + 8) (y + 15) "start" (amount (barValue b) <> barNote b)
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
ticksOf :: Scale -> [Double] -> [Double]
ticksOf scale values = case scale of
  _ | null values -> []
  Linear ->
    let most = max 1e-9 (maximum values)
        step = head' [s | e <- [-9 ..], m <- [1, 2, 5], let s = m * 10 ^^ (e :: Int), most / s <= 6]
     in map (* step) [0 .. fromIntegral (ceiling (most / step - 1e-9) :: Int)]
  Logarithmic ->
    let (least, most) = (minimum values, maximum values)
        -- A value up to a hundredth outside counts as inside: a load of 0.99 begins at 1.
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
grouped :: Integer -> Text
grouped n
  | n < 0 = "-" <> grouped (negate n)
  | otherwise = Text.intercalate "," (reverse (map Text.reverse (Text.chunksOf 3 (Text.reverse (Text.pack (show n))))))

-- ---------------------------------------------------------------------------
-- Shapes carry classes and no colours; the style sheet gives each class a colour for light
-- pages and one for dark pages. The ground is painted too, because a page may be dark where
-- the reader's system says light.

-- A whole file: width, height, what it shows, and the shapes.
document :: Double -> Double -> Text -> [Element] -> Element
document width height title shapes =
  shape
    "svg"
    [ ("xmlns", "http://www.w3.org/2000/svg"),
      ("viewBox", Text.unwords ["0", "0", number width, number height]),
      ("width", number width),
      ("height", number height),
      ("role", "img"),
      ("aria-label", title)
    ]
    (shape "style" [] [toElement styleSheet] : rectangle "ground" 0 0 width height : shapes)

-- The classes that are colours: the name, on a light page, on a dark one.
palette :: [(Text, Text, Text)]
palette =
  [ ("orange", "#c2410c", "#fb923c"),
    ("amber", "#a16207", "#facc15"),
    ("green", "#15803d", "#4ade80"),
    ("teal", "#0f766e", "#2dd4bf"),
    ("blue", "#1d4ed8", "#7aa2ff"),
    ("sky", "#0284c7", "#7dd3fc"),
    ("violet", "#7e22ce", "#c084fc"),
    ("pink", "#be185d", "#f472b6"),
    ("grey", "#64748b", "#94a3b8")
  ]

styleSheet :: Text
styleSheet =
  Text.unlines $
    [ "",
      "text { font: 13px ui-sans-serif, system-ui, sans-serif; fill: #1f2933 }",
      ".title { font-size: 16px; font-weight: 600 } .muted { font-size: 12px; fill: #616e7c }",
      ".tick { font-size: 12px; fill: #52606d } text.ours { font-weight: 600 }",
      ".ground { fill: #ffffff } .grid { stroke: #e4e7eb }",
      "polyline { fill: none; stroke-width: 1.6; stroke-linejoin: round } polyline.ours { stroke-width: 2.8 }",
      "polyline.leader { stroke-width: 1; opacity: .7 } .dashed { stroke-dasharray: 6 4 } .dotted { stroke-dasharray: 2 3 }",
      "circle { stroke: none } rect { stroke: none }"
    ]
      ++ map (colour id) palette
      ++ [ "@media (prefers-color-scheme: dark) {",
           "text { fill: #e4e7eb } .muted { fill: #9aa5b1 } .tick { fill: #b8c2cc }",
           ".ground { fill: #12171d } .grid { stroke: #2b333c }"
         ]
      ++ map (colour dark) palette
      ++ ["}"]
  where
    colour pick entry = let (name, c, _) = pick entry in "polyline." <> name <> " { stroke: " <> c <> " } circle." <> name <> ", rect." <> name <> " { fill: " <> c <> " }"
    dark (name, _, c) = (name, c, c)

-- Text: its class, where, and which end of it is there (@start@, @middle@, @end@).
textAt :: Text -> Double -> Double -> Text -> Text -> Element
textAt kind x y anchor text =
  shape "text" [("class", kind), ("x", number x), ("y", number y), ("text-anchor", anchor)] [toElement text]

-- Text from bottom to top, its middle there.
turned :: Text -> Double -> Double -> Text -> Element
turned kind x y text =
  shape "text" [("class", kind), ("text-anchor", "middle"), ("transform", "translate(" <> number x <> " " <> number y <> ") rotate(-90)")] [toElement text]

-- A straight line.
stroke :: Text -> Double -> Double -> Double -> Double -> Element
stroke kind x1 y1 x2 y2 =
  shape "line" [("class", kind), ("x1", number x1), ("y1", number y1), ("x2", number x2), ("y2", number y2)] []

-- A line through points.
polyline :: Text -> [(Double, Double)] -> Element
polyline kind points =
  shape "polyline" [("class", kind), ("points", Text.unwords [number x <> "," <> number y | (x, y) <- points])] []

-- A thin line from the end of a line to its name.
leader :: Text -> [(Double, Double)] -> Element
leader kind = polyline (kind <> " leader")

-- A point that was measured.
dot :: Text -> (Double, Double) -> Element
dot kind (x, y) = shape "circle" [("class", kind), ("cx", number x), ("cy", number y), ("r", "2.8")] []

-- A filled rectangle: its corner, its width and its height.
rectangle :: Text -> Double -> Double -> Double -> Double -> Element
rectangle kind x y width height =
  shape "rect" [("class", kind), ("x", number x), ("y", number y), ("width", number width), ("height", number height)] []

-- The library escapes text and the values of attributes.
shape :: Text -> [(Text, Text)] -> [Element] -> Element
shape name attributes inner = with (makeElement name (mconcat inner)) (map (uncurry makeAttribute) attributes)

number :: Double -> Text
number v = Text.pack (showFFloat (Just 1) v "")
