-- |
-- Events: a flag that threads wait for. They go on when it is set, all at once; as long as it stays set none
-- waits. An event belongs to one run.
module Weft.Event (Event, newEvent, newEventNamed, set, clear, isSet, wait) where

import Weft.Internal.Sync.Event
