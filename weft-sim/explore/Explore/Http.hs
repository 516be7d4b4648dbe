-- |
-- Description : The HTTP server, explored
module Explore.Http (scenarios) where

import Explore.HttpAnswers qualified as Answers
import Explore.HttpClients qualified as Clients
import Explore.HttpEnding qualified as Ending
import Explore.HttpFiles qualified as Files
import Explore.Scenario

-- | All that is explored of it.
scenarios :: [Scenario]
scenarios = concat [Answers.scenarios, Clients.scenarios, Files.scenarios, Ending.scenarios]
