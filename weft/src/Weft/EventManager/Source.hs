-- | Where an event manager learns what is ready. A 'Poller' is O'Sullivan and Tibell's back end (2010),
-- which the workers of "Weft" use, too. One of your own needs 'pollerWatch', 'pollerRemove', and
-- 'pollerLook' and 'pollerWait' that answer with 'putEvents'.
module Weft.EventManager.Source
  ( -- * Sources
    epoll,
    poll,
    select,
    ioUring,
    kqueue,
    hasKqueue,

    -- * A source for tests
    Script,
    scripted,
    setReady,
    scriptAt,
    scriptNow,

    -- * Writing one
    Poller (..),
    Trigger (..),
    Key,
    Interest,
    interestBits,
    Events,
    eventBits,
    invalid,
    putEvents,
    Result,
  )
where

import Weft.Internal.Backend.Pollers
import Weft.Internal.Backend.Readiness.Poller
import Weft.Internal.Backend.Readiness.Script
import Weft.Internal.Backend.Uring.Poller (ioUring)
import Weft.Internal.Os.Sys (Result)
