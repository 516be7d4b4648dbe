{-# OPTIONS_HADDOCK not-home #-}

-- | Epoll as a source of readiness. Workers use it edge-triggered: a descriptor is registered once, the
-- first time that an operation on it waits.
module Weft.Internal.Backend.Epoll (epoll) where

import Control.Monad (void)
import Weft.Internal.Backend.Readiness.Poller
import Weft.Internal.Os.Sys qualified as Sys

-- | Linux's @epoll@: a wait costs time for what is ready. It refuses regular files with @EPERM@, which
-- 'Weft.EventManager.register' takes to be always ready. Throws an 'IOError' when the kernel refuses an
-- instance.
epoll :: IO Poller
epoll = do
  instanceNumber <- fromIntegral <$> Sys.throwFailure "epoll_create1" Sys.epollCreate
  pure
    Poller
      { pollerName = "epoll",
        pollerTrigger = Edge,
        pollerHasOnce = True,
        pollerIsShared = True,
        pollerClock = Sys.monotonicNow,
        pollerWatch = \number (Key key) trigger (Interest bits) ->
          Sys.epollWatch instanceNumber number key (fromEnum trigger) bits,
        pollerRemove = void . Sys.epollRemove instanceNumber,
        pollerLook = \events capacity -> Sys.epollWaitNoBlock instanceNumber events capacity 0,
        pollerWait = Sys.epollWait instanceNumber,
        pollerFree = void (Sys.close instanceNumber)
      }
