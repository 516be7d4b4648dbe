-- |
-- Description : The pictures of the comparison of servers
--
-- Which figures are drawn from the rows of a run, and how each server looks in all of
-- them: a colour for a family, a dash for a variant, ours thick. Pure; the rows may
-- be those of a run that ended long ago.
module Weft.Bench.Http.Figures (figures) where

import Chart
import Data.List (nub, sort, sortOn)
import Data.Maybe (fromMaybe, isJust, mapMaybe)
import Data.Text (Text)
import Data.Text qualified as Text
import Weft.Bench.Http.Experiment
import Weft.Bench.Http.Scenario
import Weft.Bench.Report (Row, nameAt, numberAt)

-- | The name of each figure and its SVG. What the rows do not tell is not drawn.
figures :: [Row] -> [(Text, Text)]
figures rows =
  [ (name, renderChart chart {chartSource = chartSource chart ++ source rows (summaries e rows)})
    | (name, e, draw) <-
        [ ("http-page-throughput", PageLoad, curves measured (axis "requests per second" Linear) "requests_per_second" 1 keptNotTheirs),
          ("http-page-response", PageLoad, curves measured (axis "mean response time, milliseconds" Logarithmic) "mean_us" 1e-3 keptNotTheirs),
          ("http-page-cpu", PageLoad, curves clients (axis "server CPU per request, microseconds" Logarithmic) "cpu_ns_per_request" 1e-3 []),
          ("http-hello-cpu", HelloLoad, bars "server CPU per request, microseconds" "cpu_ns_per_request" 1e-3),
          ("http-cached", CachedFiles, curves clients (axis "requests per second" Linear) "requests_per_second" 1 []),
          ("http-cached-cpu", CachedFiles, curves clients (axis "server CPU per request, microseconds" Linear) "cpu_ns_per_request" 1e-3 []),
          ("http-disk", ColdFiles, curves clients (axis "requests per second" Linear) "requests_per_second" 1 ["After Li & Zdancewic 2007, figure 23."]),
          ("http-tail", TailLatency, const (tailChart rows)),
          ("http-memory", IdleMemory, bars "resident bytes per idle connection, beyond the kernel's" "resident_per_connection" 1),
          ("http-idle", IdleBeside, const (besideIdle rows))
        ],
      Just chart <- [draw e]
  ]
  where
    keptNotTheirs = ["The size and the loads of Kerneis & Chroboczek 2009, figure 2, but on kept connections: not their figure."]
    axis label scale = Axis label scale []
    clients = ("clients", axis "clients (connections kept alive)" Logarithmic)
    measured = ("measured_load", axis "measured load: mean number of requests under way" Logarithmic)
    curves = curveChart rows
    bars = barChart rows

-- A line for each server over the loads of an experiment.
curveChart :: [Row] -> (Text, Axis) -> Axis -> Text -> Double -> [Text] -> ExperimentName -> Maybe Chart
curveChart rows (xField, xAxis) yAxis yField unit sources e
  | all ((< 2) . length . seriesPoints) series = Nothing
  | otherwise = Just (Chart (experimentTitle e) ("at " <> Text.intercalate ", " (map (grouped . fromIntegral) loads) <> " clients") sources (Lines xAxis yAxis series))
  where
    loads = nub (sort (mapMaybe clientsOf mine))
    mine = summaries e rows
    series =
      [ Series server (lookOf server) [(x, y * unit) | r <- sortOn clientsOf mine, serverOf r == Just server, Just x <- [xOf r], Just y <- [numberAt yField r]]
        | server <- serversIn mine
      ]
    xOf r = if xField == "clients" then fromIntegral <$> clientsOf r else numberAt xField r
    clientsOf r = scenarioActive <$> scenarioOf r

-- A bar for each server, at the first load of the experiment; the best first.
barChart :: [Row] -> Text -> Text -> Double -> ExperimentName -> Maybe Chart
barChart rows label yField unit e
  | null values = Nothing
  | otherwise = Just (Chart (experimentTitle e) (subtitle first) [] (Bars label (map bar values)))
  where
    mine = summaries e rows
    first = mapMaybe scenarioOf (take 1 mine)
    values = sortOn snd [(server, y * unit) | r <- mine, take 1 (mapMaybe scenarioOf [r]) == first, Just server <- [serverOf r], Just y <- [numberAt yField r]]
    bar (server, y) = Bar server (lookOf server) y ""
    subtitle = Text.intercalate ", " . map load
    load s
      | e == IdleMemory = grouped (fromIntegral (scenarioIdle s)) <> " connections that have each asked once"
      | otherwise = grouped (fromIntegral (scenarioActive s)) <> " connections"

-- Latency by percentile.
tailChart :: [Row] -> Maybe Chart
tailChart rows
  | null series = Nothing
  | otherwise =
      Just . Chart (experimentTitle TailLatency) subtitle ["Latencies count from when a request was due."] $
        Lines (Axis "percentile" Logarithmic [(2, "50"), (100, "99"), (1000, "99.9")]) (Axis "latency, milliseconds" Logarithmic []) series
  where
    mine = summaries TailLatency rows
    subtitle = case mapMaybe scenarioOf (take 1 mine) of
      s : _ -> grouped (fromIntegral (scenarioActive s)) <> " connections; " <> (if scenarioPace s == HalfOfOwn then "each server at half of what it can answer" else "all at half of what the slowest can answer")
      [] -> ""
    first = take 1 (map (lookup "scenario") mine)
    series =
      [ Series (server <> rate r) (lookOf server) points
        | r <- mine,
          [lookup "scenario" r] == first,
          let points = [(x, y / 1000) | (x, f) <- [(2, "p50_us"), (100, "p99_us"), (1000, "p999_us")], Just y <- [numberAt f r]],
          length points == 3,
          Just server <- [serverOf r]
      ]
    rate r = maybe "" (\n -> ", " <> grouped (round (n / 1000)) <> "k/s") (numberAt "rate_asked" r)

-- Throughput that is left, by the number of idle connections.
besideIdle :: [Row] -> Maybe Chart
besideIdle rows
  | all ((< 2) . length . seriesPoints) series = Nothing
  | otherwise =
      Just . Chart (experimentTitle IdleBeside) "what is left of the throughput without idle connections" ["After O'Sullivan & Tibell 2010, figure 2."] $
        Lines (Axis "idle connections" Linear []) (Axis "share of the throughput" Linear []) series
  where
    mine = summaries IdleBeside rows
    series = [Series server (lookOf server) ((0, 1) : points server) | server <- serversIn mine, not (null (points server))]
    points :: Text -> [(Double, Double)]
    points server = [(fromIntegral (scenarioIdle s), y) | r <- mine, serverOf r == Just server, Just s <- [scenarioOf r], Just y <- [numberAt "with_idle_ratio" r]]

-- ---------------------------------------------------------------------------

summaries :: ExperimentName -> [Row] -> [Row]
summaries e = filter (\r -> is "kind" "summary" r && is "experiment" (experimentName e) r)
  where
    is key value r = nameAt key r == Just value

serversIn :: [Row] -> [Text]
serversIn = nub . mapMaybe serverOf

serverOf :: Row -> Maybe Text
serverOf = nameAt "server"

scenarioOf :: Row -> Maybe Scenario
scenarioOf r = nameAt "scenario" r >>= either (const Nothing) Just . parseScenario

-- The line under every picture: how its own figures were measured, on which machine.
source :: [Row] -> [Row] -> [Text]
source rows mine =
  ("weft-bench http: server on one processor, client on another; medians of " <> rounds <> ". Over the loopback.")
    : [Text.intercalate ", " parts | r <- rows, nameAt "kind" r == Just "machine", let parts = mapMaybe (`nameAt` r) ["processor"] ++ maybe [] (\k -> ["Linux " <> k]) (nameAt "kernel" r)]
  where
    rounds = case nub (mapMaybe (numberAt "rounds") mine) of
      [1] -> "one round"
      counts | isJust (lookup "rounds" (concat mine)) -> Text.pack (show (round (minimum counts) :: Int)) <> " rounds"
      _ -> "several rounds"

lookOf :: Text -> Look
lookOf server = fromMaybe (Look "grey" Solid False) (lookup server looks)
  where
    looks =
      [ ("weft-epoll", Look "orange" Solid True),
        ("weft-io_uring", Look "orange" Dashed True),
        ("plain-epoll", Look "amber" Solid True),
        ("plain-io_uring", Look "amber" Dashed True),
        ("weft-wai", Look "amber" Dotted True),
        ("nginx", Look "green" Solid False),
        ("nginx-copy", Look "green" Dashed False),
        ("nginx-threads", Look "green" Dotted False),
        ("lighttpd", Look "teal" Solid False),
        ("apache-worker", Look "violet" Solid False),
        ("apache-event", Look "violet" Dashed False),
        ("warp", Look "blue" Solid False),
        ("go", Look "sky" Solid False),
        ("hyper", Look "pink" Solid False),
        ("rawloop", Look "grey" Dashed False)
      ]
