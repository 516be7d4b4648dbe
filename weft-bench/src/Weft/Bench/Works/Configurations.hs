-- |
-- Description : The page of the six configurations
--
-- Makes Markdown of what @weft-bench substrate@ has measured: one table with each configuration in each figure of Li 2008,
-- section 5.4, what the text states beside it, and a verdict; and the goals. Pure.
module Weft.Bench.Works.Configurations (configurationsPage, configurationRows) where

import Data.Map.Strict qualified as Map
import Data.Text (Text)
import Data.Text qualified as Text
import Weft.Bench.Contest
import Weft.Bench.Report
import Weft.Bench.Works.Claim
import Weft.Bench.Works.Page
import Weft.Bench.Works.Plan

-- | A figure or table of the text: its experiment, the points that are its own, and the field in which a configuration is
-- shown of which the text states nothing, over C if it is a rate.
data Cited = Cited {citedName :: !Text, citedExperiment :: !Text, citedWhere :: ![(Text, Int)], citedField :: !Text}

citations :: [Cited]
citations =
  [ Cited "figure 5.4" "disk" [] "per_second",
    Cited "figure 5.5" "select" [] "cpu_ns_per_operation",
    Cited "figure 5.6" "pipes-token" [("pairs", 1)] "per_second",
    Cited "figure 5.7" "pipes-token" [("pairs", 128)] "per_second",
    Cited "table 5.1" "memory" [] "resident_bytes_per_thread"
  ]

-- | The configuration with which the others are compared.
base :: Text
base = "NPTL"

-- | The page: the size, rounds, the machine, the results, and all claims.
configurationsPage :: Extent -> Int -> Row -> [Result] -> [Claim] -> Text
configurationsPage size rounds machine results claims =
  Text.intercalate "\n" $
    [ "# Six configurations of threads\n",
      "Made by `weft-bench substrate --page`; not to be changed by hand. The experiments and configurations are those of Li 2008,",
      "section 5.4, of which ConcLib_MP has two forms here; direct threads are the eighth. What the text states is in",
      "[works.json](../../weft-bench/works.json), in our words; the goals are in [substrate.json](../../weft-bench/substrate.json).",
      "A figure of one configuration over another is the ratio of their rates, within a round. A claim is *reproduced* where the figure here is within its bounds at all",
      "sizes, *reversed* where it is at none. Medians of " <> Text.pack (show rounds) <> " interleaved rounds; memory, which is the same in each, of one.\n"
    ]
      ++ ["> **Not all sizes were run** (" <> extentName size <> "): this shows that everything works, and nothing of it is to be quoted.\n" | size /= Whole]
      ++ busyNote machine
      ++ [renderMarkdown [drop 1 machine], renderMarkdown (configurationRows results claims), "## Goals\n", renderMarkdown goalRows]
      ++ concat [["## " <> plannedTitle (resultPlanned r) <> "\n", plannedAbout (resultPlanned r) <> "\n", renderMarkdown (map (drop 1) (resultRows r))] | r <- results]
  where
    goalRows =
      [ [("goal", Name (claimStates c)), ("here", Name here), ("verdict", Name words'), ("why", Name (claimNote c))]
        | c <- claims,
          isAim c && claimPlace c == "goal",
          Just (words', here) <- [verdict c]
      ]
    verdict c = case claimTest c of
      Missing why -> Just ("not measured by this command", why)
      _ -> case [aimText (judge (resultContest r) (resultSamples r) c) | r <- results, isOf r c] of
        v : _ -> Just v
        [] -> Nothing

-- | One row for each claim about a configuration, and for each configuration of which the text states nothing.
configurationRows :: [Result] -> [Claim] -> [Row]
configurationRows results claims =
  [ [ ("figure", Name (citedName p)),
      ("of", Name who),
      ("stated", Name states),
      ("there", Name theirs),
      ("here", Name here),
      ("verdict", Name words')
    ]
    | p <- citations,
      r <- results,
      plannedName (resultPlanned r) == citedExperiment p,
      let names = map contenderName (contestContenders (resultContest r)),
      who <- names,
      let mine = [c | c <- claims, not (isAim c), isOf r c, (citedName p <> ",") `Text.isPrefixOf` claimPlace c, about names who c],
      (states, theirs, (words', here)) <- case mine of
        [] -> [("", "", (if who == base then "the others are compared with it" else "the text states nothing of it", snd (verdictText (judged r (unstated p who)))))]
        _ -> [(claimStates c <> note c, claimTheirs c, labelled c (verdictText (judged r c))) | c <- mine]
  ]
  where
    judged r = judge (resultContest r) (resultSamples r)
    note c = if Text.null (claimNote c) then "" else " (" <> claimNote c <> ")"
    labelled c (words', here) = (words', if Text.null here then here else subjectOf c <> ": " <> here)
    about names who c = case claimTest c of
      Measured _ b -> boundsOf b == who && maybe True (`elem` ("best" : names)) (boundsOver b)
      _ -> False
    unstated p who =
      Claim "" "" "" "" "" "" . Measured (citedExperiment p) $
        Bounds (citedField p) who (if citedField p == "per_second" && who /= base then Just base else Nothing) (Map.fromList (citedWhere p)) Map.empty Map.empty Nothing Nothing Nothing

isOf :: Result -> Claim -> Bool
isOf r c = case claimTest c of
  Missing _ -> False
  Unreachable e _ -> e == plannedName (resultPlanned r)
  Measured e _ -> e == plannedName (resultPlanned r)
