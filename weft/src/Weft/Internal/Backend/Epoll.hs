{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The epoll backend
--
-- Linux's @epoll@ as a poller, edge-triggered: a descriptor is registered once,
-- the first time that an operation on it waits, and no call is made for it
-- again. Used through the front end "Weft.Internal.Backend.Readiness" on the
-- worker that owns it.
module Weft.Internal.Backend.Epoll
  ( newEpoll,
  )
where

import Control.Exception (onException)
import Control.Monad (void)
import Weft.Internal.Backend (Backend, Post)
import Weft.Internal.Backend.Readiness (newReadiness)
import Weft.Internal.Backend.Readiness.Poller
import Weft.Internal.Os.Pool (Pool)
import Weft.Internal.Os.Sys qualified as Sys

-- | An event source on a new epoll instance. Files go to the pool; what comes
-- back from it goes through the post. Throws an 'IOError' when the kernel
-- refuses the instance.
newEpoll :: Pool -> Post -> IO (Backend w)
newEpoll pool post = do
  instanceNumber <- fromIntegral <$> Sys.throwFailure "epoll_create1" Sys.epollCreate
  let closeInstance = void (Sys.close instanceNumber)
  newReadiness
    Poller
      { pollerName = "epoll",
        pollerTrigger = Edge,
        pollerWatch = \number (Key key) (Interest bits) -> Sys.epollAdd instanceNumber number key bits,
        pollerRemove = void . Sys.epollRemove instanceNumber,
        pollerLook = \events capacity -> Sys.epollWaitNoBlock instanceNumber events capacity 0,
        pollerWait = Sys.epollWait instanceNumber,
        pollerFree = closeInstance
      }
    pool
    post
    `onException` closeInstance
