-- |
-- Description : One workload, by programs of several kinds, at several sizes
--
-- A contender is a process: this program again, doing the work with one kind of thread,
-- or a program under @peers/@. All take the same arguments, @key=value@, and print one JSON
-- object that says how many operations they did and what these took. This module runs
-- them in interleaved rounds and makes rows of what they print.
module Weft.Bench.Contest
  ( -- * Sizes
    Point,
    number,
    pointArguments,
    parsePoint,

    -- * Contests
    Contender (..),
    Contest (..),
    Sample (..),
    runContest,
    rowsOf,

    -- * Rows
    contestRows,
    sampleRow,
    parseSample,

    -- * In a contender
    Work (..),
    printWork,
  )
where

import Control.Monad (forM)
import Data.Aeson (Value (..), eitherDecodeStrict)
import Data.Aeson.Key qualified as Key
import Data.Aeson.KeyMap qualified as KeyMap
import Data.ByteString qualified as Bytes
import Data.List (nub)
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Maybe (listToMaybe)
import Data.Text (Text)
import Data.Text qualified as Text
import Data.Text.Read qualified as Text
import Weft.Bench.Child
import Weft.Bench.Measure (Nanoseconds, toDouble)
import Weft.Bench.Peers (parsePrinted, rotate)
import Weft.Bench.Report
import Weft.Bench.Statistics (median, medianOfRatios)
import Weft.Internal.Os.Report (writeStderr)

-- | The size of one measurement: names and values, as a contender is given them.
type Point = [(Text, Text)]

-- | A number of the point.
number :: Point -> Text -> Either String Int
number point key = case Text.signed Text.decimal <$> lookup key point of
  Just (Right (n, "")) -> Right n
  Just _ -> Left (Text.unpack key ++ " is no number")
  Nothing -> Left (Text.unpack key ++ " is missing")

-- | The arguments of a program.
pointArguments :: Point -> [String]
pointArguments point = [Text.unpack (k <> "=" <> v) | (k, v) <- point]

-- | Read a point from arguments.
--
-- >>> parsePoint ["pairs=2"]
-- Right [("pairs","2")]
parsePoint :: [String] -> Either String Point
parsePoint = traverse $ \argument -> case Text.breakOn "=" (Text.pack argument) of
  (key, value) | not (Text.null key), Just v <- Text.stripPrefix "=" value -> Right (key, v)
  _ -> Left (argument ++ ": not key=value")

-- | A program that takes part.
data Contender = Contender
  { -- | as given to @--contenders@
    contenderName :: !Text,
    -- | the command for a point, or why it is known not to reach that size
    contenderCommand :: Point -> Either Text Command
  }

-- | Contenders, and the points at which they are compared.
data Contest = Contest
  { -- | the name of the workload
    contestName :: !Text,
    -- | the first is the base of the ratios
    contestContenders :: ![Contender],
    contestPoints :: ![Point],
    -- | at least 1
    contestRounds :: !Int,
    -- | seconds after which one measurement is given up
    contestPatience :: !Int
  }

-- | The figures that one contender printed at one point in one round.
data Sample = Sample
  { sampleContest :: !Text,
    sampleContender :: !Text,
    sampleRound :: !Int,
    samplePoint :: !Point,
    samplePrinted :: !(Map Text Double)
  }
  deriving stock (Eq, Show)

-- | Run a contest as of 'runContest' from its beginning to its end: its rows.
rowsOf :: Nursery -> Contest -> IO [Row]
rowsOf nursery c = contestRows c <$> runContest nursery [] (const (pure ())) c

-- | Run all contenders at all points, round by round, each in another order. The first
-- argument says what was measured before and need not be again; the second is told each
-- sample as soon as there is one. A contender that fails is reported on standard error
-- and left out.
runContest :: Nursery -> [Sample] -> (Sample -> IO ()) -> Contest -> IO [Sample]
runContest nursery before tell c =
  concat . concat <$> forM [1 .. contestRounds c] (forM (contestPoints c) . round')
  where
    round' r point = do
      say r point
      concat <$> forM (rotate (r - 1) (contestContenders c)) (one r point)
    one r point contender = case [s | s <- before, sampleContest s == contestName c, sampleContender s == contenderName contender, sampleRound s == r, samplePoint s == point] of
      s : _ -> pure [s]
      [] ->
        measureOnce nursery c r point contender >>= \case
          Left why -> [] <$ complain (contenderName contender) why
          Right s -> [s] <$ tell s
    say r point =
      writeStderr . Text.unpack $
        contestName c <> ", round " <> Text.pack (show r) <> " of " <> Text.pack (show (contestRounds c)) <> ": " <> Text.unwords [k <> "=" <> v | (k, v) <- point] <> "\n"
    complain name why = writeStderr ("weft-bench: " <> Text.unpack name <> ": " <> Text.unpack why <> "\n")

-- | One contender at one point, on as many processors as the point says.
measureOnce :: Nursery -> Contest -> Int -> Point -> Contender -> IO (Either Text Sample)
measureOnce nursery c r point contender = case contenderCommand contender point of
  Left why -> pure (Left why)
  Right command ->
    runChild nursery (contestPatience c) (within command) >>= \case
      Failed why -> pure (Left why)
      Finished output -> pure $ case parsePrinted output of
        Left why -> Left (Text.pack why)
        Right printed -> Right (Sample (contestName c) (contenderName contender) r point printed)
  where
    within = case number point "processors" of
      Right n | n >= 1 -> confined n
      _ -> id

-- | A row for each contender at each point: the operations in a second (median, least
-- and most of the rounds), processor time and allocated bytes for each; its ratio to the
-- first contender, and to itself on one processor, within the rounds.
contestRows :: Contest -> [Sample] -> [Row]
contestRows c samples =
  [ [("benchmark", Name (contestName c)), ("contender", Name name)]
      ++ [(k, maybe (Name v) (Count . fromIntegral) (either (const Nothing) Just (number point k))) | (k, v) <- point, k `notElem` places]
      ++ [ ("rounds", Count (fromIntegral (Map.size mine))),
           ("per_second", figure (median (Map.elems rates))),
           ("per_second_least", figure (bound minimum rates)),
           ("per_second_most", figure (bound maximum rates)),
           ("cpu_ns_per_operation", figure (median (Map.elems (costs mine)))),
           ("rate_ratio", figure (medianOfRatios rates (rate base))),
           ("cpu_ratio", figure (medianOfRatios (costs mine) (costs base)))
         ]
      ++ [("speedup", figure (medianOfRatios rates (rate (at (oneProcessor point) name)))) | length (nub [lookup "processors" p | p <- contestPoints c]) > 1]
      -- Whatever else it printed.
      ++ concat
        [ (field, figure (median (Map.elems m))) : [(field <> end, figure (bound pick m)) | Map.size mine > 1, (end, pick) <- [("_least", minimum), ("_most", maximum)]]
          | field <- nub (concatMap Map.keys (Map.elems mine)),
            field `notElem` (["operations", "seconds", "cpu_seconds"] ++ map fst point),
            let m = Map.mapMaybe (Map.lookup field) mine
        ]
    | point <- contestPoints c,
      name <- names,
      let mine = at point name
          base = maybe Map.empty (at point) (listToMaybe names)
          rates = rate mine,
      not (Map.null mine)
  ]
  where
    names = map contenderName (contestContenders c)
    at point name = Map.fromList [(sampleRound s, samplePrinted s) | s <- samples, sampleContest s == contestName c, sampleContender s == name, samplePoint s == point]
    rate = Map.mapMaybe (\p -> quotient (Map.lookup "operations" p) (Map.lookup "seconds" p))
    costs = Map.mapMaybe (\p -> quotient ((* 1e9) <$> Map.lookup "cpu_seconds" p) (Map.lookup "operations" p))
    quotient a b = case (a, b) of
      (Just x, Just y) | y > 0 -> Just (x / y)
      _ -> Nothing
    bound :: ([Double] -> Double) -> Map Int Double -> Maybe Double
    bound pick m = if Map.null m then Nothing else Just (pick (Map.elems m))
    oneProcessor = map (\(k, v) -> (k, if k == "processors" then "1" else v))
    -- Of this run only: a row with the name of a temporary file says nothing to others.
    places = ["file", "fifos"]

-- | A sample as a row, for a file from which a run is resumed.
sampleRow :: Sample -> Row
sampleRow s =
  [ ("contest", Name (sampleContest s)),
    ("contender", Name (sampleContender s)),
    ("round", Count (fromIntegral (sampleRound s))),
    ("point", Name (Text.unwords (map Text.pack (pointArguments (samplePoint s)))))
  ]
    ++ [("printed_" <> k, Figure v) | (k, v) <- Map.toList (samplePrinted s)]

-- | Of a line that 'sampleRow' made.
parseSample :: Bytes.ByteString -> Either String Sample
parseSample line =
  eitherDecodeStrict line >>= \case
    Object o
      | Just (String contest) <- field "contest" o,
        Just (String contender) <- field "contender" o,
        Just (Number r) <- field "round" o,
        Just (String point) <- field "point" o -> do
          parsed <- parsePoint (map Text.unpack (Text.words point))
          pure (Sample contest contender (round r) parsed (Map.fromList [(name, realToFrac n) | (k, Number n) <- KeyMap.toList o, Just name <- [Text.stripPrefix "printed_" (Key.toText k)]]))
    _ -> Left "not a sample"
  where
    field k = KeyMap.lookup (Key.fromText k)

-- | Work that a contender did.
data Work = Work
  { workOperations :: !Int,
    workTime :: !Nanoseconds,
    workCpu :: !Nanoseconds,
    -- | further figures, by name
    workMore :: ![(Text, Double)]
  }

-- | As 'runContest' reads it.
printWork :: Work -> IO ()
printWork w =
  printRows Json [row]
  where
    row =
      [ ("operations", Count (fromIntegral (workOperations w))),
        ("seconds", Figure (toDouble (workTime w) / 1e9)),
        ("cpu_seconds", Figure (toDouble (workCpu w) / 1e9))
      ]
        ++ [(k, Figure v) | (k, v) <- workMore w]
