-- |
-- Description : All that is explored
module Explore.Catalogue
  ( catalogue,
    primitives,
  )
where

import Explore.Barrier qualified as Barrier
import Explore.Broadcast qualified as Broadcast
import Explore.Cancellation qualified as Cancellation
import Explore.Channel qualified as Channel
import Explore.Concurrently qualified as Concurrently
import Explore.Condition qualified as Condition
import Explore.Direct qualified as Direct
import Explore.Event qualified as Event
import Explore.Http qualified as Http
import Explore.Locals qualified as Locals
import Explore.MVar qualified as MVar
import Explore.Mutex qualified as Mutex
import Explore.Scenario
import Explore.Scopes qualified as Scopes
import Explore.Select qualified as Select
import Explore.Semaphore qualified as Semaphore
import Explore.Services qualified as Services
import Explore.Timeouts qualified as Timeouts
import Explore.Transactions qualified as Transactions

-- | In the order in which they are run.
catalogue :: [Scenario]
catalogue = primitives <> Http.scenarios

-- | Scenarios of the runtime's own operations.
primitives :: [Scenario]
primitives =
  concat
    [ Mutex.scenarios,
      MVar.scenarios,
      Channel.scenarios,
      Select.scenarios,
      Broadcast.scenarios,
      Semaphore.scenarios,
      Barrier.scenarios,
      Condition.scenarios,
      Event.scenarios,
      Transactions.scenarios,
      Scopes.scenarios,
      Concurrently.scenarios,
      Timeouts.scenarios,
      Cancellation.scenarios,
      Direct.scenarios,
      Locals.scenarios,
      Services.scenarios
    ]
