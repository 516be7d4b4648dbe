{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : The pictures of a load
-- Stability   : not home
--
-- Two charts as SVG: the latency by percentile, and what came over time. Colours and sizes of
-- text are in a style sheet, which the page has too, so that both follow the reader's choice of
-- light or dark. Pure.
module Weft.Cli.Load.Picture
  ( latencyChart,
    throughputChart,
    chartWidth,
    chartHeight,
    picture,
    styleSheet,
    legend,
    niceSteps,
  )
where

import Data.Bifunctor (bimap)
import Data.Maybe (isJust)
import Data.Text (Text)
import Data.Text qualified as Text
import Graphics.Svg
import Weft.Cli.Load.Histogram
import Weft.Cli.Load.Report
import Weft.Cli.Load.Run
import Weft.Cli.Load.Tally

-- | The size of a chart, and what of it is margin.
chartWidth, chartHeight, left, right, top, bottom :: Double
chartWidth = 860
chartHeight = 320
left = 76
right = 24
top = 16
bottom = 52

-- | Both charts as a file of their own.
picture :: Report -> Element
picture report =
  svg11_ content
    `with` [ViewBox_ <<- Text.unwords (map number [0, 0, chartWidth + 40, 2 * chartHeight + 168]), Width_ <<- number (chartWidth + 40), Height_ <<- number (2 * chartHeight + 168), Class_ <<- "load"]
  where
    result = reportResult report
    content =
      style_ [] (toElement styleSheet)
        <> rect_ [Width_ <<- "100%", Height_ <<- "100%", Class_ <<- "back"]
        <> text_ [X_ <<- "24", Y_ <<- "38", Class_ <<- "name"] (toElement (Text.pack (resultName result)))
        <> text_ [X_ <<- "24", Y_ <<- "62", Class_ <<- "quiet"] (toElement (Text.pack summary))
        <> placed 96 "Latency by percentile" (latencyChart report)
        <> placed (chartHeight + 132) "Responses over time" (throughputChart report)
    placed :: Double -> Text -> Element -> Element
    placed y heading chart =
      text_ [X_ <<- "24", Y_ <<- number y, Class_ <<- "heading"] (toElement heading)
        <> g_ [Transform_ <<- translate 20 (y + 4)] (legendIn report heading <> chart)
    summary =
      showCount (reportRate report)
        <> " responses a second, "
        <> showTime (percentile 0.5 (resultLatency result))
        <> " median, "
        <> showTime (percentile 0.99 (resultLatency result))
        <> " at 99%, "
        <> showFixed 1 (reportMeasured report)
        <> " of "
        <> showFixed 0 (reportOffered report)
        <> " requests in progress"

-- | The lines of a chart and their colours, where there are several.
legend :: Report -> Text -> [(Text, Text)]
legend report heading
  | heading == "Latency by percentile" = if isJust (resultRate result) then [("one", "since due"), ("two", "since sent")] else []
  | otherwise = [x | totalErrors (resultTotals result) > 0, x <- [("one", "responses"), ("bad", "errors")]]
  where
    result = reportResult report

-- Right-aligned on the line of the heading.
legendIn :: Report -> Text -> Element
legendIn report heading = mconcat (zipWith entry [0 :: Int ..] (reverse (legend report heading)))
  where
    entry i (colour, name) =
      let x = chartWidth - right - 90 * fromIntegral i
       in text_ [X_ <<- number x, Y_ <<- number (-5), Class_ <<- "tick end"] (toElement name)
            <> rect_ [X_ <<- number (x - 8 * fromIntegral (Text.length name) - 14), Y_ <<- number (-13), Width_ <<- "10", Height_ <<- "10", Class_ <<- ("fill " <> colour)]

-- | The latency by percentile. Both axes are logarithmic: what is rare is what one wants to see.
latencyChart :: Report -> Element
latencyChart report = frame yTicks xTicks "part of the responses" (mconcat (zipWith line curves ["two", "one"]))
  where
    result = reportResult report
    curves = [resultService result | isJust (resultRate result)] <> [resultLatency result]
    count = max 1 (distributionCount (resultLatency result))
    -- 1 is 90%, 2 is 99%; as far as one in the number of responses.
    farthest = max 2 (min 7 (logBase 10 (fromIntegral count))) :: Double
    atX u = left + (chartWidth - left - right) * u / farthest
    shown = zipWith const curves ["two", "one" :: Text]
    lowest = minimum (map (max 1 . distributionLeast) shown)
    highest = maximum (map distributionLargest shown)
    (low, high) = (logFloor lowest, max (2 * logFloor lowest) (logCeiling highest))
    atY v = chartHeight - bottom - (chartHeight - top - bottom) * logBase 10 (max 1 (fromIntegral v / fromIntegral low)) / logBase 10 (fromIntegral high / fromIntegral low)
    line d colour =
      -- The service curve comes first and is covered by the other where they agree.
      path_ [D_ <<- curve [(atX u, atY (percentile (1 - 10 ** negate u) d)) | i <- [0 .. 240 :: Int], let u = farthest * fromIntegral i / 240], Class_ <<- ("line " <> if length curves == 1 then "one" else colour)]
    yTicks = [(atY v, Text.pack (showTime v)) | v <- logSteps low high]
    xTicks = [(atX u, name) | (u, name) <- [(0, "0%"), (logBase 10 2, "50%"), (1, "90%"), (2, "99%"), (3, "99.9%"), (4, "99.99%"), (5, "99.999%"), (6, "99.9999%")], u <= farthest + 0.001]

-- | Responses, and errors if there are any, for each second.
throughputChart :: Report -> Element
throughputChart report = frame yTicks xTicks "seconds" (area <> line "one" responses <> (if totalErrors (resultTotals result) > 0 then line "bad" errors else mempty))
  where
    result = reportResult report
    points = Point 0 0 0 : filter ((> 0) . pointTime) (resultSeries result)
    rates f = [(fromIntegral (pointTime a + pointTime b) / 2e9, fromIntegral (f b - f a) * 1e9 / fromIntegral (pointTime b - pointTime a)) | (a, b) <- zip points (drop 1 points), pointTime b - pointTime a > 20_000_000] :: [(Double, Double)]
    responses = rates pointResponses
    errors = rates pointErrors
    end = max 0.1 (maximum (0 : map ((/ 1e9) . fromIntegral . pointTime) points))
    highest = maximum (1 : map snd (responses <> errors))
    steps = niceSteps highest
    ceiling' = maximum (highest : steps)
    atX t = left + (chartWidth - left - right) * t / end
    atY r = chartHeight - bottom - (chartHeight - top - bottom) * r / ceiling'
    placed = map (bimap atX atY)
    line colour values = path_ [D_ <<- curve (placed values), Class_ <<- ("line " <> colour)]
    area = case placed responses of
      [] -> mempty
      some@((x, _) : _) -> path_ [D_ <<- (curve some <> lA (fst (last some)) (atY 0) <> lA x (atY 0) <> z), Class_ <<- "area one"]
    yTicks = [(atY r, Text.pack (showCount r)) | r <- steps]
    xTicks = [(atX t, Text.pack (plainNumber t)) | t <- niceSteps end, t <= end]

-- | Axes, and what is between them.
frame :: [(Double, Text)] -> [(Double, Text)] -> Text -> Element -> Element
frame yTicks xTicks below inside =
  mconcat [rule left y (chartWidth - right) y <> text_ [X_ <<- number (left - 10), Y_ <<- number (y + 4), Class_ <<- "tick end"] (toElement name) | (y, name) <- yTicks]
    <> mconcat [rule x top x (chartHeight - bottom) <> text_ [X_ <<- number x, Y_ <<- number (chartHeight - bottom + 20), Class_ <<- "tick middle"] (toElement name) | (x, name) <- xTicks]
    <> text_ [X_ <<- number ((left + chartWidth - right) / 2), Y_ <<- number (chartHeight - 10), Class_ <<- "tick middle"] (toElement below)
    <> inside
  where
    rule x y x' y' = line_ [X1_ <<- number x, Y1_ <<- number y, X2_ <<- number x', Y2_ <<- number y', Class_ <<- "grid"]

-- | A line through points.
curve :: [(Double, Double)] -> Text
curve = \case
  [] -> ""
  (x, y) : rest -> mA x y <> mconcat (map (uncurry lA) rest)

-- | 1, 2 or 5 with zeros: the next at or below, and at or above.
logFloor, logCeiling :: Int -> Int
logFloor v = last (1 : takeWhile (<= v) rounded)
logCeiling v = head' (dropWhile (< v) rounded)
  where
    head' = foldr const maxBound

rounded :: [Int]
rounded = [m * 10 ^ e | e <- [0 .. 16 :: Int], m <- [1, 2, 5]]

-- | Where the lines of a logarithmic axis are: not too many.
logSteps :: Int -> Int -> [Int]
logSteps low high
  | length all' <= 8 = all'
  | otherwise = filter isPower all'
  where
    all' = takeWhile (<= high) (dropWhile (< low) rounded)
    isPower v = v `elem` takeWhile (<= v) (iterate (* 10) 1)

-- | Round numbers from 0 up to at least a number; at most seven.
niceSteps :: Double -> [Double]
niceSteps highest = [step * fromIntegral i | i <- [0 .. ceiling (highest / step - 1e-9) :: Int]]
  where
    raw = highest / 5
    magnitude = 10 ** fromIntegral (floor (logBase 10 raw) :: Int)
    step = foldr (\m rest -> if m * magnitude >= raw * 0.999 then m * magnitude else rest) (10 * magnitude) [1, 2, 2.5, 5]

-- | Without a fraction where there is none.
plainNumber :: Double -> String
plainNumber t
  | abs (t - fromIntegral n) < 1e-9 = show n
  | otherwise = reverse (dropWhile (== '0') (reverse (showFixed 3 t)))
  where
    n = round t :: Int

number :: Double -> Text
number x = Text.pack (showFixed 1 x)

-- | For the page and for the picture alone. No character in it needs escaping.
styleSheet :: Text
styleSheet =
  Text.unwords
    [ ":root { --back: #ffffff; --ink: #1f2933; --quiet: #616e7c; --grid: #e4e7eb; --one: #2563eb; --two: #d97706; --bad: #dc2626; --tile: #f5f7fa }",
      "@media (prefers-color-scheme: dark) { :root { --back: #15191e; --ink: #e4e7eb; --quiet: #9aa5b1; --grid: #2b333c; --one: #6aa4ff; --two: #fbbf24; --bad: #f87171; --tile: #1d232a } }",
      ".load text { font-family: system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif; fill: var(--ink) }",
      ".load .tick { font-size: 12px; fill: var(--quiet); font-variant-numeric: tabular-nums }",
      ".load .end { text-anchor: end } .load .middle { text-anchor: middle }",
      ".load .name { font-size: 20px; font-weight: 600 } .load .heading { font-size: 15px; font-weight: 600 } .load .quiet { font-size: 13px; fill: var(--quiet) }",
      ".load .back { fill: var(--back) } .load .grid { stroke: var(--grid); stroke-width: 1 }",
      ".load .line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round }",
      ".load .line.one { stroke: var(--one) } .load .line.two { stroke: var(--two) } .load .line.bad { stroke: var(--bad) }",
      ".load .area { stroke: none; opacity: 0.14 } .load .one.area, .load .fill.one { fill: var(--one) } .load .fill.two { fill: var(--two) } .load .fill.bad { fill: var(--bad) }"
    ]
