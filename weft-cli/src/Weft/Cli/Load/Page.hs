{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : The report of a load as a page
-- Stability   : not home
--
-- One HTML file that needs nothing else: figures, pictures, tables. A name that ends in @.svg@
-- gets the pictures alone.
module Weft.Cli.Load.Page
  ( writePage,
    renderPage,
  )
where

import Data.ByteString.Lazy qualified as L
import Data.List (isSuffixOf)
import Data.Maybe (isJust)
import Data.Text (Text)
import Data.Text qualified as Text
import Graphics.Svg
import Weft.Cli.Load.Histogram
import Weft.Cli.Load.Picture
import Weft.Cli.Load.Report
import Weft.Cli.Load.Run
import Weft.Cli.Load.Tally

-- | Write the report that the name asks for.
writePage :: FilePath -> Report -> IO ()
writePage path report = L.writeFile path (if ".svg" `isSuffixOf` path then renderBS (picture report) else renderPage report)

-- | The page.
renderPage :: Report -> L.ByteString
renderPage report =
  "<!DOCTYPE html>\n"
    <> renderBS
      ( term "html" [makeAttribute "lang" "en"] . mconcat $
          [ term "head" [] . mconcat $
              [ makeElementNoEnd "meta" `with` [makeAttribute "charset" "utf-8"],
                makeElementNoEnd "meta" `with` [makeAttribute "name" "viewport", makeAttribute "content" "width=device-width, initial-scale=1"],
                element "title" [] ("weft load: " <> name),
                element "style" [] (styleSheet <> " " <> pageStyle)
              ],
            term "body" [] (term "main" [] content)
          ]
      )
    <> "\n"
  where
    result = reportResult report
    counted = resultTotals result
    name = Text.pack (resultName result)
    content =
      mconcat
        [ element "h1" [] name,
          element "p" [("class", "how")] (Text.pack how),
          block "div" "tiles" (map tile tiles),
          mconcat [block "ul" "warnings" [element "li" [] (Text.pack w) | w <- reportWarnings report] | not (null (reportWarnings report))],
          figure "Latency by percentile" (latencyChart report),
          figure "Responses over time" (throughputChart report),
          block "div" "tables" [percentileTable, countTable]
        ]
    how =
      showCount (fromIntegral (resultConnections result))
        <> " connections"
        <> (if resultDepth result > 1 then ", " <> show (resultDepth result) <> " requests at a time on each" else "")
        <> maybe ", closed loop" (\r -> ", " <> showCount r <> " requests a second (open loop)") (resultRate result)
        <> ", "
        <> showTime (resultElapsed result)
    tiles =
      [ (showCount (reportRate report), "responses a second"),
        (showTime (percentile 0.5 latency), "median latency"),
        (showTime (percentile 0.99 latency), "99% within"),
        (showFixed 1 (reportMeasured report) <> " / " <> showFixed 0 (reportOffered report), "measured / offered load"),
        (showCount (fromIntegral (totalErrors counted + totalRefused counted)), "errors")
      ]
    latency = resultLatency result
    tile (figure', what) = block "div" "tile" [element "b" [] (Text.pack figure'), element "span" [] what]
    figure heading chart =
      block
        "section"
        "chart"
        [ term "h2" [] (toElement (heading :: Text) <> mconcat [element "span" [("class", "key " <> colour)] what | (colour, what) <- legend report heading]),
          term "svg" [makeAttribute "viewBox" (Text.pack (showFixed 0 (0 :: Double) <> " 0 " <> showFixed 0 chartWidth <> " " <> showFixed 0 chartHeight)), makeAttribute "class" "load", makeAttribute "role" "img", makeAttribute "aria-label" heading] chart
        ]
    open = isJust (resultRate result)
    percentileTable =
      term "table" [] . mconcat $
        row "th" ("latency" : if open then ["since due", "since sent"] else [""])
          : [row "td" (what : map (Text.pack . f) (latency : [resultService result | open])) | (what, f) <- rows]
    rows =
      [("least", showTime . distributionLeast), ("mean", showTime . round . mean), ("deviation", showTime . round . deviation)]
        <> [(Text.pack (p <> "%"), showTime . percentile part) | (part, p) <- percentiles]
        <> [("largest", showTime . distributionLargest)]
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

-- | An element with text in it.
element :: Text -> [(Text, Text)] -> Text -> Element
element name attributes text = term name (map (uncurry makeAttribute) attributes) (toElement text)

-- | An element of a class with others in it.
block :: Text -> Text -> [Element] -> Element
block name class' inside = term name [makeAttribute "class" class'] (mconcat inside)

pageStyle :: Text
pageStyle =
  Text.unwords
    [ "body { margin: 0; background: var(--back); color: var(--ink); font: 15px/1.5 system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif }",
      "main { max-width: 900px; margin: 0 auto; padding: 32px 20px 48px }",
      "h1 { font-size: 22px; margin: 0; overflow-wrap: anywhere } .how { color: var(--quiet); margin: 4px 0 24px }",
      "h2 { font-size: 15px; margin: 28px 0 4px; display: flex; gap: 16px; align-items: baseline }",
      ".key { font-size: 12px; font-weight: 400; color: var(--quiet); border-left: 10px solid; padding-left: 6px; line-height: 10px }",
      ".key.one { border-color: var(--one) } .key.two { border-color: var(--two) } .key.bad { border-color: var(--bad) }",
      ".tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px }",
      ".tile { background: var(--tile); border-radius: 8px; padding: 12px 16px } .tile b { display: block; font-size: 20px; font-variant-numeric: tabular-nums } .tile span { color: var(--quiet); font-size: 13px }",
      ".warnings { background: var(--tile); border-left: 4px solid var(--two); margin: 20px 0 0; padding: 10px 16px 10px 32px; border-radius: 4px }",
      ".chart svg { width: 100%; height: auto; display: block }",
      ".tables { display: grid; grid-template-columns: repeat(auto-fit, minmax(280px, 1fr)); gap: 32px; margin-top: 28px; align-items: start }",
      "table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums } th { text-align: left; font-size: 13px; color: var(--quiet); font-weight: 500 }",
      "td, th { padding: 4px 0; border-bottom: 1px solid var(--grid) } td:not(:first-child), th:not(:first-child) { text-align: right }"
    ]
