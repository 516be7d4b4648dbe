-- |
-- Description : What the works state, and whether it holds here
--
-- The claims are in one file, each with its source; nothing in it was read off a plot. A
-- claim names a figure of one contender, or its ratio to another's, and bounds for it. Pure.
module Weft.Bench.Works.Claim
  ( Claim (..),
    Test (..),
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
import Weft.Bench.Statistics (medianOfRatios)

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
  | -- | experiment, field, contender, the one it is compared with; values that parameters
    -- must have, least and most values of parameters; bounds of the figure
    Bounds !Text !Text !Text !(Maybe Text) !(Map Text Int) !(Map Text Int) !(Map Text Int) !(Maybe Double) !(Maybe Double)
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
      reachable o = o .: "experiment" >>= \e -> o .:? "unreachable" >>= maybe (bounds o e) (pure . Unreachable e)
      bounds o e =
        Bounds e
          <$> o .: "field"
          <*> o .: "of"
          <*> o .:? "over"
          <*> o .:? "where" .!= Map.empty
          <*> o .:? "from" .!= Map.empty
          <*> o .:? "to" .!= Map.empty
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

-- | Look at a claim: the name of the experiment, its contest, and what was measured.
judge :: Contest -> [Sample] -> Claim -> Verdict
judge contest samples claim = case claimTest claim of
  Missing why -> NotMeasured why
  Unreachable _ why -> NotReachable why
  Bounds _ field of' over wanted from to least most
    | null found -> NotMeasured "no contender of this claim could be run"
    | otherwise -> Judged found (length (filter (\v -> maybe True (v >=) least && maybe True (v <=) most) found))
    where
      found = mapMaybe value [p | p <- contestPoints contest, all (fits (==) p) (Map.toList wanted), all (fits (>=) p) (Map.toList from), all (fits (<=) p) (Map.toList to)]
      fits ok point (key, bound) = either (const False) (`ok` bound) (number point key)
      value point = case over of
        Just other | field == "per_second" -> medianOfRatios (rates point of') (rates point other)
        _ -> cell point
      rates point name = Map.fromList [(sampleRound s, ops / t) | s <- samples, sampleContender s == name, samplePoint s == point, Just ops <- [Map.lookup "operations" (samplePrinted s)], Just t <- [Map.lookup "seconds" (samplePrinted s)], t > 0]
      cell point = case [r | r <- contestRows contest samples, lookup "contender" r == Just (Name of'), all (\(k, v) -> fmap cellText (lookup k r) == Just v) point] of
        r : _ -> numberAt field r
        [] -> Nothing
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
