-- |
-- Description : How many connections, how fast, and how many idle ones beside them
--
-- Scenarios, as the command line names them: @64@ is 64 connections that ask as
-- fast as they are answered, @64+15000@ the same beside 15,000 that are open and
-- silent, @10000\@own@ 10,000 connections over which requests are sent at a fixed
-- rate, half of what this server can answer. Pure.
module Weft.Bench.Http.Scenario
  ( Scenario (..),
    Pace (..),
    closedLoop,
    parseScenario,
    showScenario,
    descriptorsNeeded,
  )
where

import Data.Text (Text)
import Data.Text qualified as Text
import Data.Text.Read qualified as Text

-- | One load.
data Scenario = Scenario
  { -- | connections that ask; at least 1
    scenarioActive :: !Int,
    -- | connections that are only open
    scenarioIdle :: !Int,
    scenarioPace :: !Pace
  }
  deriving stock (Eq, Ord, Show)

-- | When a request is sent.
data Pace
  = -- | as soon as the connection has the answer to the one before
    AsAnswered
  | -- | at a fixed rate: half of what this server answers in a closed loop
    HalfOfOwn
  | -- | at a fixed rate: half of what the slowest of the servers answers, so that all
    -- get the same load
    HalfOfLeast
  deriving stock (Eq, Ord, Show, Enum, Bounded)

-- | This number of connections, each of which asks as soon as it is answered, and no others.
closedLoop :: Int -> Scenario
closedLoop active = Scenario active 0 AsAnswered

-- | @ACTIVE@, @ACTIVE+IDLE@, @ACTIVE\@own@ or @ACTIVE\@least@.
parseScenario :: Text -> Either String Scenario
parseScenario t = case map Text.decimal (Text.splitOn "+" connections) of
  [Right (active, "")] | active > 0 -> Scenario active 0 <$> maybe refused Right (lookup pace paces)
  [Right (active, ""), Right (idle, "")] | active > 0, idle > 0, Text.null pace -> Right (Scenario active idle AsAnswered)
  _ -> refused
  where
    (connections, pace) = Text.breakOn "@" t
    paces = [(showPace p, p) | p <- [minBound ..]]
    refused :: Either String a
    refused = Left ("not a scenario (ACTIVE, ACTIVE+IDLE, ACTIVE@own or ACTIVE@least): " ++ Text.unpack t)

showPace :: Pace -> Text
showPace = \case
  AsAnswered -> ""
  HalfOfOwn -> "@own"
  HalfOfLeast -> "@least"

-- | The inverse of 'parseScenario'.
showScenario :: Scenario -> Text
showScenario (Scenario active idle pace)
  | idle == 0 = number active <> showPace pace
  | otherwise = number active <> "+" <> number idle
  where
    number = Text.pack . show

-- | Descriptors that a server needs for a scenario, its own included.
descriptorsNeeded :: Scenario -> Int
descriptorsNeeded s = scenarioActive s + scenarioIdle s + 64
