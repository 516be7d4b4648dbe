{-# OPTIONS_HADDOCK not-home #-}

-- | The report of a load as a page. One self-contained HTML file: figures, charts, tables. A name
-- that ends in @.svg@ gets the charts alone.
module Weft.Cli.Load.Page (writePage) where

import Chart
import Data.ByteString qualified as B
import Data.ByteString.Lazy qualified as L
import Data.List (isSuffixOf)
import Data.Maybe (isJust)
import Data.Text (Text)
import Data.Text qualified as Text
import Data.Text.Encoding qualified as Text
import Graphics.Svg
import Weft.Cli.Load.Histogram
import Weft.Cli.Load.Report
import Weft.Cli.Load.Run
import Weft.Cli.Load.Tally

-- | The file name selects the format.
writePage :: FilePath -> Result -> IO ()
writePage path result
  | ".svg" `isSuffixOf` path = B.writeFile path (Text.encodeUtf8 (renderCharts (Text.pack (resultName result)) (pictures result)))
  | otherwise = L.writeFile path (renderPage result)

renderPage :: Result -> L.ByteString
renderPage result =
  "<!DOCTYPE html>\n"
    <> renderBS
      ( term "html" [makeAttribute "lang" "en"] . mconcat $
          [ term "head" [] . mconcat $
              [ makeElementNoEnd "meta" `with` [makeAttribute "charset" "utf-8"],
                makeElementNoEnd "meta" `with` [makeAttribute "name" "viewport", makeAttribute "content" "width=device-width, initial-scale=1"],
                element "title" [] ("weft load: " <> name),
                element "style" [] pageStyle
              ],
            term "body" [] (term "main" [] content)
          ]
      )
    <> "\n"
  where
    counted = resultTotals result
    name = Text.pack (resultName result)
    content =
      mconcat
        [ element "h1" [] name,
          element "p" [("class", "how")] (Text.pack (manner result <> ", " <> showTime (resultElapsed result))),
          block "div" "tiles" (map tile tiles),
          mconcat [block "ul" "warnings" [element "li" [] (Text.pack w) | w <- warningsOf result] | not (null (warningsOf result))],
          block "div" "charts" (map chartElement (pictures result)),
          block "div" "tables" [percentileTable, countTable]
        ]
    tiles =
      [ (showCount (responseRate result), "responses a second"),
        (showTime (percentile 0.5 latency), "median latency"),
        (showTime (percentile 0.99 latency), "99% within"),
        (showFixed 1 (measuredLoad result) <> " / " <> showFixed 0 (offeredLoad result), "measured / offered load"),
        (showCount (fromIntegral (totalErrors counted + totalRefused counted)), "errors")
      ]
    latency = resultLatency result
    tile (figure', what) = block "div" "tile" [element "b" [] (Text.pack figure'), element "span" [] what]
    open = isJust (resultRate result)
    percentileTable =
      term "table" [] . mconcat $
        row "th" ("latency" : if open then ["since due", "since sent"] else [""])
          : [row "td" (Text.pack what : map (Text.pack . f) (latency : [resultService result | open])) | (what, f) <- latencyRows]
    countTable =
      term "table" [] . mconcat $
        row "th" ["counted", ""]
          : [row "td" [what, Text.pack (showCount (fromIntegral n))] | (what, n) <- counts]
    counts =
      ("responses", totalResponses counted)
        : [(Text.pack (show d <> "xx"), n) | (d, n) <- zip [1 :: Int ..] (totalStatus counted), n > 0]
          <> [("errors: " <> Text.pack (errorText kind), n) | (kind, n) <- totalErrorsBy counted, n > 0]
          <> [("errors: status", totalRefused counted) | totalRefused counted > 0]
          <> [("connections opened", distributionCount (resultConnect result)), ("opened again", totalReopened counted), ("bytes", totalBytes counted)]
          <> maybe [] (\i -> [("idle connections", idleAtStart i), ("idle, at the end", idleAtEnd i), ("idle, opened again", idleReopened i)]) (resultIdle result)
    row cell cells = term "tr" [] (mconcat (map (element cell []) cells))

element :: Text -> [(Text, Text)] -> Text -> Element
element name attributes text = term name (map (uncurry makeAttribute) attributes) (toElement text)

block :: Text -> Text -> [Element] -> Element
block name class' inside = term name [makeAttribute "class" class'] (mconcat inside)

pageStyle :: Text
pageStyle =
  Text.unwords
    [ ":root { --back: #ffffff; --ink: #1f2933; --quiet: #616e7c; --grid: #e4e7eb; --mark: #d97706; --tile: #f5f7fa }",
      "@media (prefers-color-scheme: dark) { :root { --back: #12171d; --ink: #e4e7eb; --quiet: #9aa5b1; --grid: #2b333c; --mark: #fbbf24; --tile: #1d232a } }",
      "body { margin: 0; background: var(--back); color: var(--ink); font: 15px/1.5 system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif }",
      "main { max-width: 900px; margin: 0 auto; padding: 32px 20px 48px }",
      "h1 { font-size: 22px; margin: 0; overflow-wrap: anywhere } .how { color: var(--quiet); margin: 4px 0 24px }",
      ".tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px }",
      ".tile { background: var(--tile); border-radius: 8px; padding: 12px 16px } .tile b { display: block; font-size: 20px; font-variant-numeric: tabular-nums } .tile span { color: var(--quiet); font-size: 13px }",
      ".warnings { background: var(--tile); border-left: 4px solid var(--mark); margin: 20px 0 0; padding: 10px 16px 10px 32px; border-radius: 4px }",
      ".charts svg { width: 100%; height: auto; display: block; margin-top: 20px }",
      ".tables { display: grid; grid-template-columns: repeat(auto-fit, minmax(280px, 1fr)); gap: 32px; margin-top: 28px; align-items: start }",
      "table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums } th { text-align: left; font-size: 13px; color: var(--quiet); font-weight: 500 }",
      "td, th { padding: 4px 0; border-bottom: 1px solid var(--grid) } td:not(:first-child), th:not(:first-child) { text-align: right }"
    ]

pictures :: Result -> [Chart]
pictures result =
  [ Chart "Latency by percentile" (Text.pack summary) [] (latencies result),
    Chart "Responses over time" (Text.pack (resultName result)) [] (responses result)
  ]
  where
    summary =
      showCount (responseRate result)
        <> " responses a second, "
        <> showTime (percentile 0.5 (resultLatency result))
        <> " median, "
        <> showTime (percentile 0.99 (resultLatency result))
        <> " at 99%, "
        <> showFixed 1 (measuredLoad result)
        <> " of "
        <> showFixed 0 (offeredLoad result)
        <> " requests in progress"

-- Both axes are logarithmic, to show what is rare.
latencies :: Result -> Content
latencies result = Lines (Axis "part of the responses" Logarithmic parts) (Axis "latency" Logarithmic times) (map line curves)
  where
    curves
      | isJust (resultRate result) = [("since sent", Look "amber" Solid False, resultService result), ("since due", Look "blue" Solid True, resultLatency result)]
      | otherwise = [("latency", Look "blue" Solid True, resultLatency result)]
    -- 10 is 90%, 100 is 99%, up to one in the number of responses.
    farthest = max 2 (min 7 (logBase 10 (fromIntegral (max 1 (distributionCount (resultLatency result)))))) :: Double
    line (name, look, d) = Series name look [(10 ** u, fromIntegral (percentile (1 - 10 ** negate u) d)) | i <- [0 .. 240 :: Int], let u = farthest * fromIntegral i / 240]
    parts = [(x, name) | (x, name) <- zip (1 : 2 : iterate (* 10) 10) ["0%", "50%", "90%", "99%", "99.9%", "99.99%", "99.999%", "99.9999%"], x <= 10 ** farthest * 1.001]
    times = [(t, Text.pack (showTime (round t))) | t <- ticksOf Logarithmic (concat [[fromIntegral (max 1 (distributionLeast d)), fromIntegral (max 1 (distributionLargest d))] | (_, _, d) <- curves])]

-- Responses, and errors if there are any, in each second.
responses :: Result -> Content
responses result = Lines (Axis "seconds" Linear []) (Axis "a second" Linear []) (Series "responses" (Look "blue" Solid True) (rates pointResponses) : [Series "errors" (Look "pink" Solid False) (rates pointErrors) | totalErrors (resultTotals result) > 0])
  where
    points = Point 0 0 0 : filter ((> 0) . pointTime) (resultSeries result)
    rates f = [(fromIntegral (pointTime a + pointTime b) / 2e9, fromIntegral (f b - f a) * 1e9 / fromIntegral (pointTime b - pointTime a)) | (a, b) <- zip points (drop 1 points), pointTime b - pointTime a > 20_000_000]
