-- |
-- Module      : Weft.Bench.Plot.Svg
-- Description : The few shapes that charts are made of, and their style sheet
--
-- Shapes carry classes and no colours; the style sheet gives each class a colour for
-- light pages and one for dark pages. The ground is painted too, because a page may be
-- dark where the reader's system says light. Called by "Weft.Bench.Plot". Pure.
module Weft.Bench.Plot.Svg
  ( document,
    palette,

    -- * Shapes
    words',
    turned,
    stroke,
    polyline,
    leader,
    dot,
    rectangle,
  )
where

import Data.Text (Text)
import Data.Text qualified as Text
import Graphics.Svg (Element, makeAttribute, makeElement, toElement, with)
import Numeric (showFFloat)

-- | A whole file: width, height, what it shows, and the shapes.
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

-- | The classes that are colours: the name, on a light page, on a dark one.
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

-- | Text: its class, where, and which end of it is there (@start@, @middle@, @end@).
words' :: Text -> Double -> Double -> Text -> Text -> Element
words' kind x y anchor text =
  shape "text" [("class", kind), ("x", number x), ("y", number y), ("text-anchor", anchor)] [toElement text]

-- | The same, from bottom to top, its middle there.
turned :: Text -> Double -> Double -> Text -> Element
turned kind x y text =
  shape "text" [("class", kind), ("text-anchor", "middle"), ("transform", "translate(" <> number x <> " " <> number y <> ") rotate(-90)")] [toElement text]

-- | A straight line.
stroke :: Text -> Double -> Double -> Double -> Double -> Element
stroke kind x1 y1 x2 y2 =
  shape "line" [("class", kind), ("x1", number x1), ("y1", number y1), ("x2", number x2), ("y2", number y2)] []

-- | A line through points.
polyline :: Text -> [(Double, Double)] -> Element
polyline kind points =
  shape "polyline" [("class", kind), ("points", Text.unwords [number x <> "," <> number y | (x, y) <- points])] []

-- | A thin one, from the end of a line to its name.
leader :: Text -> [(Double, Double)] -> Element
leader kind = polyline (kind <> " leader")

-- | A point that was measured.
dot :: Text -> (Double, Double) -> Element
dot kind (x, y) = shape "circle" [("class", kind), ("cx", number x), ("cy", number y), ("r", "2.8")] []

-- | Its corner, its width and its height.
rectangle :: Text -> Double -> Double -> Double -> Double -> Element
rectangle kind x y width height =
  shape "rect" [("class", kind), ("x", number x), ("y", number y), ("width", number width), ("height", number height)] []

-- The library escapes text and the values of attributes.
shape :: Text -> [(Text, Text)] -> [Element] -> Element
shape name attributes inner = with (makeElement name (mconcat inner)) (map (uncurry makeAttribute) attributes)

number :: Double -> Text
number v = Text.pack (showFFloat (Just 1) v "")
