-- |
-- Module      : Weft.Bench.Http.Scenario
-- Description : How many connections, and how many idle ones beside them
--
-- What the command line calls a scenario: @64@ is 64 connections that ask as
-- fast as they are answered, @64+15000@ the same beside 15,000 that are open and
-- silent. Pure.
module Weft.Bench.Http.Scenario
  ( Scenario (..),
    parseScenario,
    showScenario,
    standardScenarios,
    descriptorsNeeded,
    listOf,
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
    scenarioIdle :: !Int
  }
  deriving stock (Eq, Ord, Show)

-- | @ACTIVE@ or @ACTIVE+IDLE@.
parseScenario :: Text -> Either String Scenario
parseScenario t = case map Text.decimal (Text.splitOn "+" t) of
  [Right (active, "")] | active > 0 -> Right (Scenario active 0)
  [Right (active, ""), Right (idle, "")] | active > 0, idle > 0 -> Right (Scenario active idle)
  _ -> Left ("not a scenario (ACTIVE or ACTIVE+IDLE): " ++ Text.unpack t)

-- | The inverse of 'parseScenario'.
showScenario :: Scenario -> Text
showScenario (Scenario active idle)
  | idle == 0 = number active
  | otherwise = number active <> "+" <> number idle
  where
    number = Text.pack . show

-- | Those for which the project states what is to be reached.
standardScenarios :: [Scenario]
standardScenarios = [Scenario 64 0, Scenario 1000 0, Scenario 64 15000]

-- | Descriptors that a server needs for a scenario, its own included.
descriptorsNeeded :: Scenario -> Int
descriptorsNeeded s = scenarioActive s + scenarioIdle s + 64

-- | A comma-separated list in which nothing is empty.
listOf :: (Text -> Either String a) -> Text -> Either String [a]
listOf item = traverse item . Text.splitOn ","
