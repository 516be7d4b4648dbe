-- |
-- Description : The page of the works: pictures, tables, verdicts
--
-- Makes Markdown and SVG of what was measured. Pure.
module Weft.Bench.Works.Page (Result (..), resultRows, pageOf, picturesOf, subjectOf, busyNote) where

import Chart
import Data.List (nub, partition, sortOn)
import Data.Maybe (fromMaybe, listToMaybe, mapMaybe)
import Data.Text (Text)
import Data.Text qualified as Text
import Weft.Bench.Contest
import Weft.Bench.Report
import Weft.Bench.Works.Claim
import Weft.Bench.Works.Plan

-- | An experiment and its samples.
data Result = Result
  { resultPlanned :: !Planned,
    resultContest :: !Contest,
    resultSamples :: ![Sample]
  }

-- | The rows of an experiment.
resultRows :: Result -> [Row]
resultRows r = map (("experiment", Name (plannedName (resultPlanned r))) :) (contestRows (resultContest r) (resultSamples r))

-- | The page: the size, the machine and the versions, the results, rows of other commands, all
-- claims; pictures lie in the directory that is named.
pageOf :: Extent -> [Row] -> Text -> [Result] -> [Row] -> [Claim] -> Text
pageOf size about directory results others claims =
  Text.intercalate "\n" $
    [ "# The works' experiments, repeated\n",
      "Made by `make figures`; not to be changed by hand. What the works state is in",
      "[works.json](../weft-bench/works.json), in our words and with their places; nothing was read off a plot.",
      "Figures and sections of Li & Zdancewic 2007 are those of *A language-based approach to unifying events",
      "and threads*. A claim is *reproduced* where the figure here is within its bounds at all sizes,",
      "*reversed* where it is at none. [weft-bench/README.md](../weft-bench/README.md) says who the contenders",
      "are and how they are measured.\n"
    ]
      ++ [ "> **This is a quick run**: one round, small sizes. It shows that everything works; none of its figures\n> is to be quoted, and its verdicts may be those of chance.\n"
           | size /= Whole
         ]
      ++ concat [busyNote row | row <- about, nameAt "kind" row == Just "machine"]
      ++ [renderMarkdown [drop 1 row | row <- about, nameAt "kind" row == Just kind] | kind <- ["machine", "version"]]
      ++ concatMap section results
      ++ concatMap (other . snd) (groups others)
      ++ aims
      ++ ["## Not yet measured\n" | not (null unmeasured)]
      ++ ["- " <> claimWork c <> ", " <> claimPlace c <> ": " <> claimStates c <> ". *" <> why <> ".*" | (c, why) <- unmeasured]
      ++ [""]
  where
    (asked, stated) = partition isAim claims
    -- Below all experiments, so that a reader sees what is lost in one place.
    aims = case [aimRow r c | r <- results, c <- asked, experimentOf c == Just (plannedName (resultPlanned r))] of
      [] -> []
      rows -> ["## What is asked of Weft\n", "Our own aims, whatever the works state: ratios in the same rounds, at every size. A loss has its reason beside it.\n", renderMarkdown rows]
    aimRow r c =
      let (words', here) = aimText (judge (resultContest r) (resultSamples r) c)
       in [ ("experiment", Name (plannedTitle (resultPlanned r))),
            ("aim", Name (claimStates c)),
            ("here", Name here),
            ("verdict", Name words'),
            ("why", Name (claimNote c))
          ]
    unmeasured =
      [(c, why) | c@Claim {claimTest = Missing why} <- stated]
        ++ [(c, "not part of this run") | c <- stated, Just e <- [experimentOf c], e `notElem` (map (plannedName . resultPlanned) results ++ map fst (groups others))]
    groups rows = [(name, [row | row <- rows, nameAt "benchmark" row == Just name]) | name <- nub (mapMaybe (nameAt "benchmark") rows)]
    -- Rows of another command: a table as it is.
    other rows =
      let name = fromMaybe "" (nameAt "benchmark" =<< listToMaybe rows)
       in ["## " <> name <> "\n", "Printed by another command of weft-bench, with this in its rows.\n"]
            ++ [renderMarkdown [verdictRow c (judgeRows rows c) | c <- stated, experimentOf c == Just name]]
            ++ [renderMarkdown (map (drop 1) rows)]
    section r =
      let name = plannedName (resultPlanned r)
          rows = contestRows (resultContest r) (resultSamples r)
       in ["## " <> plannedTitle (resultPlanned r) <> "\n", plannedAbout (resultPlanned r) <> "\n"]
            ++ ["![" <> title <> "](" <> directory <> "/" <> file <> ".svg)\n" | (file, title, _) <- picturesOf size about r]
            ++ [renderMarkdown [verdictRow c (judge (resultContest r) (resultSamples r) c) | c <- stated, experimentOf c == Just name]]
            ++ ["Nobody could be measured.\n" | null rows]
            ++ [silent | silent <- [missing r rows], not (Text.null silent)]
    verdictRow c verdict =
      let (words', here) = verdictText verdict
       in [ ("claim", Name (claimStates c)),
            ("source", Name (claimWork c <> ", " <> claimPlace c)),
            ("their machine", Name (claimMachine c)),
            ("theirs", Name (claimTheirs c)),
            ("here", Name (subject c <> here)),
            ("verdict", Name (words' <> (if Text.null (claimNote c) then "" else " (" <> claimNote c <> ")")))
          ]
    subject c = let about' = subjectOf c in if Text.null about' then "" else about' <> ": "
    missing r rows = case [n | n <- map contenderName (contestContenders (resultContest r)), n `notElem` mapMaybe (nameAt "contender") rows] of
      [] -> ""
      absent -> "Without a figure: " <> Text.intercalate ", " absent <> ".\n"

-- | Said of a machine that did something else when a run began.
busyNote :: Row -> [Text]
busyNote row =
  [ "> **The machine was busy** when this run began (a load of "
      <> renderFigure load
      <> "): times and rates are also those of what else ran, two processors more than one.\n"
    | Just load <- [numberAt "load_before" row],
      load > 0.5
  ]

-- | What the figures of a claim are of.
subjectOf :: Claim -> Text
subjectOf c = case claimTest c of
  Measured _ b ->
    boundsOf b
      <> maybe "" (" over " <>) (boundsOver b)
      <> (if boundsField b == "per_second" then "" else ", " <> Text.replace "_" " " (boundsField b))
      <> maybe "" (", r along " <>) (boundsAlong b)
  _ -> ""

experimentOf :: Claim -> Maybe Text
experimentOf c = case claimTest c of
  Missing _ -> Nothing
  Unreachable e _ -> Just e
  Measured e _ -> Just e

-- | For each combination of the parameters that are not along the picture: the name of its
-- file, its title, its chart.
picturesOf :: Extent -> [Row] -> Result -> [(Text, Text, Chart)]
picturesOf size about r =
  [ (name, title, Chart title subtitle sources content)
    | others <- nub (map (filter ((/= xKey) . fst)) (pointsPlanned p)),
      (group, within) <- groupsOf p,
      let mine = [row | row <- rows, and [numberAt k row == Just (read (Text.unpack v)) | (k, v) <- others], maybe False within (nameAt "contender" row)]
          changing = [(k, v) | (k, v) <- others, maybe False ((> 1) . length) (lookup k (plannedKeys p))]
          name = Text.replace " " "-" . Text.intercalate "-" $ ("works" : plannedName p : [group | not (Text.null group)] ++ [k <> v | (k, v) <- changing])
          title = plannedTitle p <> (if Text.null group then "" else ": " <> group) <> (if null changing then "" else ": " <> Text.intercalate ", " [k <> " " <> v | (k, v) <- changing])
          subtitle = Text.intercalate ", " [k <> " " <> grouped (read (Text.unpack v)) | (k, v) <- others, (k, v) `notElem` changing],
      Just content <- [contentOf mine]
  ]
  where
    p = resultPlanned r
    (xKey, xLabel) = plannedX p
    (along, up) = scalesOf p
    (field, unit, yLabel) = plannedY p
    rows = contestRows (resultContest r) (resultSamples r)
    names rows' = nub (mapMaybe (nameAt "contender") rows')
    few = length (fromMaybe [] (lookup xKey (plannedKeys p))) <= 2
    contentOf mine
      | null values = Nothing
      | few = Just (Bars (yLabel <> lastOf mine) [Bar n (lookOf n) (v * unit) "" | (n, v) <- sortOn snd (barsOf mine)])
      | otherwise = Just (Ranged (Axis xLabel along []) (Axis yLabel up []) [(series n mine, ranges n mine) | n <- names mine])
      where
        values = mapMaybe (numberAt field) mine
    -- Bars are of the last place along the picture: the most processors.
    barsOf mine = [(n, v) | row <- atLast mine, Just n <- [nameAt "contender" row], Just v <- [numberAt field row]]
    atLast mine = [row | row <- mine, numberAt xKey row == lastX mine]
    lastX mine = case mapMaybe (numberAt xKey) mine of
      [] -> Nothing
      xs -> Just (maximum xs)
    lastOf mine = maybe "" (\x -> ", " <> grouped (round x) <> " " <> xLabel) (lastX mine)
    -- On a logarithmic axis nothing is at 0.
    place x = if xKey == "idle" then x + 1 else x
    series n mine = Series n (lookOf n) [(place x, y * unit) | (x, y) <- at n field mine]
    ranges n mine = [(place x, low * unit, high * unit) | ((x, low), (_, high)) <- zip (at n (field <> "_least") mine) (at n (field <> "_most") mine)]
    at n f mine = sortOn fst [(x, y) | row <- mine, nameAt "contender" row == Just n, Just x <- [numberAt xKey row], Just y <- [numberAt f row]]
    sources =
      (if size /= Whole then "A quick run: nothing to quote from." else "Medians of " <> Text.pack (show (plannedRounds p)) <> " interleaved rounds; thin lines are their range.")
        : [Text.intercalate ", " (mapMaybe (`nameAt` row) ["processor", "kernel"]) | row <- about, nameAt "kind" row == Just "machine"]

-- Which contenders are in a picture together; sixteen lines cannot be told apart.
groupsOf :: Planned -> [(Text, Text -> Bool)]
groupsOf p = case plannedName p of
  "toy" -> [("toys", isToy), ("production servers", \n -> not (isToy n) || n == "toy-weft-epoll")]
  _ -> [("", const True)]
  where
    isToy = Text.isPrefixOf "toy-"

-- The scales along and up: linear where a work speaks of a line, logarithmic up where it has it so or the
-- contenders are powers of ten apart.
scalesOf :: Planned -> (Scale, Scale)
scalesOf p
  | plannedWorkload p == "toy" = (Linear, Linear)
  | plannedName p `elem` ["select", "events-delays", "events-idle"] = (Logarithmic, Logarithmic)
  | otherwise = (Logarithmic, Linear)

-- Colours that differ in print too, by their lines.
lookOf :: Text -> Look
lookOf name =
  fromMaybe (Look "grey" Dotted False) . lookup name $
    [ -- Toys, and servers.
      ("toy-weft-epoll", Look "orange" Solid True),
      ("toy-weft-io_uring", Look "orange" Dashed True),
      ("toy-direct-epoll", Look "amber" Solid False),
      ("toy-direct-io_uring", Look "amber" Dashed False),
      ("toy-forkIO", Look "blue" Solid False),
      ("toy-nptl", Look "teal" Solid False),
      ("toy-fork", Look "teal" Dotted False),
      ("toy-pth", Look "violet" Dashed False),
      ("toy-st", Look "violet" Solid False),
      ("weft-connections", Look "orange" Solid True),
      ("weft-accept", Look "orange" Dashed True),
      ("weft-fifo", Look "amber" Solid False),
      ("nginx", Look "green" Solid False),
      ("nginx-threads", Look "green" Dashed False),
      ("lighttpd", Look "sky" Solid False),
      ("apache-worker", Look "pink" Solid False),
      ("apache-prefork", Look "pink" Dotted False),
      ("apache-event", Look "pink" Dashed False),
      ("mini-httpd", Look "grey" Dashed False),
      ("forkIO-select", Look "blue" Dotted False),
      ("ghc", Look "blue" Solid False),
      ("ghc-select", Look "blue" Dotted False),
      ("weft-poll", Look "amber" Solid False),
      ("weft-select", Look "amber" Dotted False),
      ("weft-epoll", Look "orange" Solid True),
      ("weft-io_uring", Look "orange" Dashed True),
      ("direct-epoll", Look "amber" Solid False),
      ("direct-io_uring", Look "amber" Dashed False),
      ("forkIO", Look "blue" Solid False),
      ("NPTL", Look "green" Dashed False),
      ("weft-epoll-on-ConcLib_OS", Look "orange" Dotted False),
      ("ConcLib_OS", Look "violet" Dashed False),
      ("ConcLib_MP", Look "violet" Solid False),
      ("ConcLib_MP-epoll-HEC", Look "violet" Dotted False),
      ("Go", Look "sky" Dotted False),
      ("tokio", Look "pink" Dotted False)
    ]
