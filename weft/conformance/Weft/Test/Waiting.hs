-- |
-- Waiting for what another thread or process does. What has not come after two minutes hangs:
-- the limit only has to be longer than anything takes on a busy machine.
module Weft.Test.Waiting
  ( eventually,
    eventuallyThread,
    eventuallyIO,
    within,
  )
where

import Control.Concurrent (threadDelay)
import Control.Monad (unless)
import System.Timeout qualified as System
import Test.Tasty.HUnit
import Weft
import Weft.Timeout (timeout)

-- | Look every millisecond, and let other threads run, until a condition holds.
eventually :: (HasCallStack) => String -> IO Bool -> Thread ()
eventually what = eventuallyThread what . liftIO

-- | 'eventually', with a condition that is a thread's.
eventuallyThread :: (HasCallStack) => String -> Thread Bool -> Thread ()
eventuallyThread what condition = timeout (seconds 120) go >>= maybe (liftIO (never what)) pure
  where
    go = condition >>= \holds -> unless holds (sleep (milliseconds 1) >> go)

-- | 'eventually', for a test outside of a run.
eventuallyIO :: (HasCallStack) => String -> IO Bool -> IO ()
eventuallyIO what condition = within what go
  where
    go = condition >>= \holds -> unless holds (threadDelay 2_000 >> go)

-- | Fail if the action has not ended after two minutes.
within :: (HasCallStack) => String -> IO a -> IO a
within what act = System.timeout 120_000_000 act >>= maybe (never what) pure

never :: (HasCallStack) => String -> IO a
never what = assertFailure ("waited two minutes for " <> what)
