-- |
-- Description : The HTTP server, explored
module Explore.Http (scenarios) where

import Explore.HttpAnswers qualified as Answers
import Explore.HttpApplications qualified as Applications
import Explore.HttpBodies qualified as Bodies
import Explore.HttpClients qualified as Clients
import Explore.HttpEnding qualified as Ending
import Explore.HttpExchange qualified as Exchange
import Explore.HttpFiles qualified as Files
import Explore.HttpLimits qualified as Limits
import Explore.HttpPace qualified as Pace
import Explore.HttpPatience qualified as Patience
import Explore.Scenario

-- | All that is explored of it.
scenarios :: [Scenario]
scenarios =
  concat
    [ Answers.scenarios,
      Bodies.scenarios,
      Applications.scenarios,
      Exchange.scenarios,
      Clients.scenarios,
      Files.scenarios,
      Patience.scenarios,
      Pace.scenarios,
      Limits.scenarios,
      Ending.scenarios
    ]
