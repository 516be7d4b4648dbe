-- |
-- Description : The claims of the works, and whether they hold here
--
-- The claims are in one file, each with its source; nothing in it was read off a plot. A
-- claim names a figure of one contender, or its ratio to another's, and bounds for it. Pure.
module Weft.Bench.Works.Claim
  ( Claim (..),
    Test (..),
    Bounds (..),
    isAim,
    parseClaims,

    -- * Verdicts
    Verdict (..),
    judge,
    judgeRows,
    verdictText,
    aimText,
  )
where

import Control.Monad (join)
import Data.Aeson (FromJSON (..), eitherDecodeStrict, withObject, (.!=), (.:), (.:?))
import Data.ByteString (ByteString)
import Data.List (nub)
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Maybe (listToMaybe, mapMaybe)
import Data.Text (Text)
import Data.Text qualified as Text
import Weft.Bench.Contest
import Weft.Bench.Report
import Weft.Bench.Statistics (correlation, medianOfRatios, per)

-- | A claim.
data Claim = Claim
  { claimWork :: !Text,
    -- | figure or table, and section
    claimPlace :: !Text,
    claimMachine :: !Text,
    -- | in our words
    claimStates :: !Text,
    -- | its number
    claimTheirs :: !Text,
    claimNote :: !Text,
    claimTest :: !Test
  }
  deriving stock (Eq, Show)

-- | How it can be looked at here.
data Test
  = -- | not measured yet, and why
    Missing !Text
  | -- | of an experiment, but not on this machine, and why
    Unreachable !Text !Text
  | -- | by figures of an experiment
    Measured !Text !Bounds
  deriving stock (Eq, Show)

-- | The figures, and their tolerance.
data Bounds = Bounds
  { -- | a field of the rows; @per_second@ and what contenders print have ratios. @failed@ is 1 where
    -- the contender has no figure, else 0
    boundsField :: !Text,
    -- | a contender
    boundsOf :: !Text,
    -- | the one it is compared with, or @best@: its own largest figure at all points
    boundsOver :: !(Maybe Text),
    -- | values that parameters must have, their least, and their most values
    boundsWhere :: !(Map Text Int),
    boundsFrom :: !(Map Text Int),
    boundsTo :: !(Map Text Int),
    -- | not the figures themselves but how well they lie on a straight line along this
    -- parameter (Pearson's r)
    boundsAlong :: !(Maybe Text),
    boundsLeast :: !(Maybe Double),
    boundsMost :: !(Maybe Double)
  }
  deriving stock (Eq, Show)

instance FromJSON Claim where
  parseJSON = withObject "claim" $ \o ->
    Claim
      <$> o .: "work"
      <*> o .: "place"
      <*> o .:? "machine" .!= ""
      <*> o .: "states"
      <*> o .:? "theirs" .!= ""
      <*> o .:? "note" .!= ""
      <*> (o .:? "missing" >>= maybe (reachable o) (pure . Missing))
    where
      reachable o = o .: "experiment" >>= \e -> o .:? "unreachable" >>= maybe (Measured e <$> bounds o) (pure . Unreachable e)
      bounds o =
        Bounds
          <$> o .: "field"
          <*> o .: "of"
          <*> o .:? "over"
          <*> o .:? "where" .!= Map.empty
          <*> o .:? "from" .!= Map.empty
          <*> o .:? "to" .!= Map.empty
          <*> o .:? "along"
          <*> o .:? "least"
          <*> o .:? "most"

-- | Read the claims of the file.
parseClaims :: ByteString -> Either String [Claim]
parseClaims = eitherDecodeStrict

-- | Does the claim say what is asked of Weft here, and not what a work states?
isAim :: Claim -> Bool
isAim c = claimWork c == "Weft"

-- | Does a claim hold here?
data Verdict
  = NotMeasured !Text
  | NotReachable !Text
  | -- | the figures here, and the points where they are not within the bounds, by the parameters that differ
    Judged ![Double] ![Text]
  deriving stock (Eq, Show)

-- | Look at a claim: the contest of its experiment, and what was measured.
judge :: Contest -> [Sample] -> Claim -> Verdict
judge contest samples = judgeBy (contestPoints contest) rowsFigure ratio ran
  where
    ran name point = not (null (mine name point))
    mine name point = [s | s <- samples, sampleContender s == name, samplePoint s == point]
    rowsFigure = rowFigure (contestRows contest samples)
    -- Within the rounds.
    ratio field point name other = medianOfRatios (figures name) (figures other)
      where
        figures who = Map.fromList [(sampleRound s, v) | s <- mine who point, Just v <- [printed field (samplePrinted s)]]
    printed field m = case field of
      "per_second" -> join (per <$> Map.lookup "operations" m <*> Map.lookup "seconds" m)
      "cpu_ns_per_operation" -> join (per . (* 1e9) <$> Map.lookup "cpu_seconds" m <*> Map.lookup "operations" m)
      _ -> Map.lookup field m

-- | Look at a claim about rows that another command has printed, which have a @contender@.
judgeRows :: [Row] -> Claim -> Verdict
judgeRows rows = judgeBy points figure' ratio ran
  where
    points = nub [[(k, Text.pack (show n)) | (k, Count n) <- row] | row <- rows]
    figure' = rowFigure rows
    ratio field point name other = join (per <$> figure' field point name <*> figure' field point other)
    ran name point = not (null (rowsAt rows point name))

-- Given all points, a figure of a contender at a point, the ratio of two contenders, and whether
-- one has a figure.
judgeBy :: [Point] -> (Text -> Point -> Text -> Maybe Double) -> (Text -> Point -> Text -> Text -> Maybe Double) -> (Text -> Point -> Bool) -> Claim -> Verdict
judgeBy all' cell ratio ran claim = case claimTest claim of
  Missing why -> NotMeasured why
  Unreachable _ why -> NotReachable why
  Measured _ b
    | null points -> NotMeasured "no size of this claim is part of this run"
    | null found || absent -> NotMeasured "no contender of this claim could be run"
    | otherwise -> Judged (map snd found) [Text.intercalate ", " [k <> " " <> at | (k, at) <- p, differs k] | (p, v) <- found, not (within v)]
    where
      within v = maybe True (v >=) (boundsLeast b) && maybe True (v <=) (boundsMost b)
      differs key = length (nub (map (lookup key) points)) > 1
      found = case boundsAlong b of
        Nothing -> [(p, v) | p <- points, Just v <- [value p]]
        Just key -> maybe [] (\v -> [([], v)]) (correlation [(fromIntegral x, y) | p <- points, Right x <- [number p key], Just y <- [value p]])
      -- A contender that never runs has not failed at a size.
      absent = boundsField b == "failed" && not (any (ran (boundsOf b)) all')
      points = [p | p <- all', all (fits (==) p) (Map.toList (boundsWhere b)), all (fits (>=) p) (Map.toList (boundsFrom b)), all (fits (<=) p) (Map.toList (boundsTo b))]
      fits ok point (key, bound) = either (const False) (`ok` bound) (number point key)
      own p = cell (boundsField b) p (boundsOf b)
      value point = case boundsOver b of
        Just "best" -> (`per` maximum (mapMaybe own all')) =<< own point
        Just other -> ratio (boundsField b) point (boundsOf b) other
        Nothing
          | boundsField b == "failed" -> Just (if ran (boundsOf b) point then 0 else 1)
          | otherwise -> own point

rowFigure :: [Row] -> Text -> Point -> Text -> Maybe Double
rowFigure rows field point name = listToMaybe (rowsAt rows point name) >>= numberAt field

rowsAt :: [Row] -> Point -> Text -> [Row]
rowsAt rows point name = [r | r <- rows, nameAt "contender" r == Just name, all (\(k, v) -> fmap cellText (lookup k r) == Just v) point]
  where
    cellText = \case
      Count n -> Text.pack (show n)
      Name t -> t
      _ -> ""

-- | A few words, and the figures.
verdictText :: Verdict -> (Text, Text)
verdictText = \case
  NotMeasured why -> ("not yet measured: " <> why, "")
  NotReachable why -> ("not reachable here: " <> why, "")
  Judged values outside -> (word (length values - length outside) (length values), rangeText values)
  where
    word ok n
      | ok == n = "reproduced"
      | ok == 0 = "reversed"
      | otherwise = "reproduced at " <> Text.pack (show ok) <> " of " <> Text.pack (show n) <> " sizes"

-- | 'verdictText' of an aim: where it is missed.
aimText :: Verdict -> (Text, Text)
aimText = \case
  Judged values outside -> (word (length values) outside, rangeText values)
  verdict -> verdictText verdict
  where
    word n outside
      | null outside = "met"
      | length outside == n = "**missed**"
      | otherwise = "**missed** at " <> Text.intercalate "; " outside

rangeText :: [Double] -> Text
rangeText values
  | minimum values == maximum values = renderFigure (minimum values)
  | otherwise = renderFigure (minimum values) <> " to " <> renderFigure (maximum values)
