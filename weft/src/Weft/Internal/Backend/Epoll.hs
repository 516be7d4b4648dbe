{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The epoll backend
--
-- Linux's @epoll@ as a poller. Workers use it edge-triggered: a descriptor is
-- registered once, the first time that an operation on it waits, and no call is made
-- for it again. The front end for workers is "Weft.Internal.Backend.Readiness", that for
-- plain @IO@ "Weft.EventManager".
module Weft.Internal.Backend.Epoll (newEpoll, epoll) where

import Control.Monad (void)
import Weft.Internal.Backend (Backend, Post)
import Weft.Internal.Backend.Readiness (newReadiness)
import Weft.Internal.Backend.Readiness.Poller
import Weft.Internal.Os.Pool (Pool)
import Weft.Internal.Os.Sys qualified as Sys

-- | An event source on a new epoll instance. Files go to the pool; a result comes
-- back through the post. Throws an 'IOError' when the kernel
-- refuses the instance.
newEpoll :: Pool -> Post -> IO (Backend w)
newEpoll = newReadiness epoll

-- | Linux's @epoll@: a wait costs time for what is ready, and none for what is not. It
-- refuses regular files with @EPERM@; 'Weft.EventManager.register' takes them to be
-- always ready. Throws an 'IOError' when the kernel refuses an instance.
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
