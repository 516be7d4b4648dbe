-- |
-- Description : What the works state, and whether it holds here
--
-- The claims are in one file, each with its source; nothing in it was read off a plot. A
-- claim names a figure of one contender, or its ratio to another's, and bounds for it. Pure.
module Weft.Bench.Works.Claim
  ( Claim (..),
    Test (..),
    Bounds (..),
    parseClaims,

    -- * Verdicts
    Verdict (..),
    judge,
    verdictText,
  )
where

import Data.Aeson (FromJSON (..), eitherDecodeStrict, withObject, (.!=), (.:), (.:?))
import Data.ByteString (ByteString)
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Maybe (mapMaybe)
import Data.Text (Text)
import Data.Text qualified as Text
import Weft.Bench.Contest
import Weft.Bench.Report
import Weft.Bench.Statistics (correlation, medianOfRatios, per)

-- | One.
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

-- | Which figures, and within what.
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

-- | Of the file.
parseClaims :: ByteString -> Either String [Claim]
parseClaims = eitherDecodeStrict

-- | What became of a claim.
data Verdict
  = NotMeasured !Text
  | NotReachable !Text
  | -- | the figures here, and how many of them are within the bounds
    Judged ![Double] !Int
  deriving stock (Eq, Show)

-- | Look at a claim: the contest of its experiment, and what was measured.
judge :: Contest -> [Sample] -> Claim -> Verdict
judge contest samples claim = case claimTest claim of
  Missing why -> NotMeasured why
  Unreachable _ why -> NotReachable why
  Measured _ b
    | null found || absent -> NotMeasured "no contender of this claim could be run"
    | otherwise -> Judged found (length (filter (\v -> maybe True (v >=) (boundsLeast b) && maybe True (v <=) (boundsMost b)) found))
    where
      found = case boundsAlong b of
        Nothing -> mapMaybe value points
        Just key -> maybe [] pure (correlation [(fromIntegral x, y) | p <- points, Right x <- [number p key], Just y <- [value p]])
      -- Who never runs has not failed at a size.
      absent = boundsField b == "failed" && null [() | s <- samples, sampleContender s == boundsOf b]
      points = [p | p <- contestPoints contest, all (fits (==) p) (Map.toList (boundsWhere b)), all (fits (>=) p) (Map.toList (boundsFrom b)), all (fits (<=) p) (Map.toList (boundsTo b))]
      fits ok point (key, bound) = either (const False) (`ok` bound) (number point key)
      value point = case boundsOver b of
        Just "best" -> quotient (cell point) (mapMaybe cell (contestPoints contest))
        Just other -> medianOfRatios (figures point (boundsOf b)) (figures point other)
        Nothing
          | boundsField b == "failed" -> Just (if null (mine point (boundsOf b)) then 1 else 0)
          | otherwise -> cell point
      mine point name = [s | s <- samples, sampleContender s == name, samplePoint s == point]
      figures point name = Map.fromList [(sampleRound s, v) | s <- mine point name, Just v <- [printed (samplePrinted s)]]
      printed m
        | boundsField b == "per_second" = case (Map.lookup "operations" m, Map.lookup "seconds" m) of
            (Just ops, Just t) | t > 0 -> Just (ops / t)
            _ -> Nothing
        | boundsField b == "cpu_ns_per_operation" = case (Map.lookup "cpu_seconds" m, Map.lookup "operations" m) of
            (Just t, Just ops) | ops > 0 -> Just (t * 1e9 / ops)
            _ -> Nothing
        | otherwise = Map.lookup (boundsField b) m
      cell point = case [r | r <- contestRows contest samples, lookup "contender" r == Just (Name (boundsOf b)), all (\(k, v) -> fmap cellText (lookup k r) == Just v) point] of
        r : _ -> numberAt (boundsField b) r
        [] -> Nothing
      quotient v all' = if null all' then Nothing else (`per` maximum all') =<< v
      cellText = \case
        Count n -> Text.pack (show n)
        Name t -> t
        _ -> ""

-- | A few words, and the figures.
verdictText :: Verdict -> (Text, Text)
verdictText = \case
  NotMeasured why -> ("not yet measured: " <> why, "")
  NotReachable why -> ("not reachable here: " <> why, "")
  Judged values ok -> (word ok (length values), range values)
  where
    word ok n
      | ok == n = "reproduced"
      | ok == 0 = "reversed"
      | otherwise = "reproduced at " <> Text.pack (show ok) <> " of " <> Text.pack (show n) <> " sizes"
    range values
      | minimum values == maximum values = renderFigure (minimum values)
      | otherwise = renderFigure (minimum values) <> " to " <> renderFigure (maximum values)
