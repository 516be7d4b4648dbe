{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Event managers for GHC's threads
--
-- The event manager of Weft on each source, and the one that GHC's threads have: in this program, or,
-- where it is linked without @-threaded@, its @select@. All are used by the same threads,
-- @forkIO@'s, so that nothing but the waiting differs.
module Weft.Bench.Events.Manager (Manager (..), Waits (..), managers, managerName, withWaits) where

import Control.Concurrent (threadDelay, threadWaitRead, threadWaitWrite)
import Control.Monad (void)
import Data.Text (Text)
import System.Posix.Types (Fd)
import Weft.EventManager
import Weft.EventManager.Source
import Weft.Time (milliseconds)

-- | The event manager.
data Manager
  = -- | 'Weft.EventManager', with a thread that steps it
    OfWeft !Text !(IO Poller)
  | -- | what GHC has
    OfGhc

-- | How a thread waits.
data Waits = Waits
  { untilReadable :: !(Fd -> IO ()),
    untilWritable :: !(Fd -> IO ()),
    -- | a number of milliseconds
    pause :: !(Int -> IO ())
  }

-- | All, in the order of the reports.
managers :: [Manager]
managers = OfGhc : [OfWeft "epoll" epoll, OfWeft "poll" poll, OfWeft "select" select, OfWeft "io_uring" ioUring]

-- | Its name on the command line and in reports.
managerName :: Manager -> Text
managerName = \case
  OfGhc -> "ghc"
  OfWeft source _ -> "weft-" <> source

-- | Use it. A callback that fails would end the action.
withWaits :: Manager -> (Waits -> IO a) -> IO a
withWaits manager use = case manager of
  OfGhc -> use (Waits threadWaitRead threadWaitWrite (threadDelay . (* 1000)))
  OfWeft _ source -> withLoop source $ \m ->
    use
      Waits
        { untilReadable = void . waitReadable m,
          untilWritable = void . waitWritable m,
          pause = delay m . milliseconds
        }
