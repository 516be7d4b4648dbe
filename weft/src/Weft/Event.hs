-- |
-- Events: a flag that threads wait for.
--
-- An event is set or it is not; threads that wait for it go on when it is set, all at
-- once, and as long as it stays set no thread waits. For "it has started", "it is time
-- to stop". An event belongs to one run.
module Weft.Event (Event, newEvent, newEventNamed, set, clear, isSet, wait) where

import Weft.Internal.Sync.Event
