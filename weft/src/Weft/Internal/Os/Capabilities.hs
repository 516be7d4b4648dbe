{-# OPTIONS_HADDOCK not-home #-}

-- | How many capabilities GHC has: one for each worker of every run.
module Weft.Internal.Os.Capabilities (raiseCapabilities) where

import Control.Concurrent (getNumCapabilities, setNumCapabilities)
import Control.Concurrent.MVar
import Control.Monad (when)
import System.IO.Unsafe (unsafePerformIO)

-- Note [One thread raises the number]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- At most one thread of Weft is in `setNumCapabilities`, and none lowers the number.
--
-- GHC's function (9.6.6) notes how many capabilities there are, waits until it holds all of them, adds
-- what is missing, and releases as many as it had noted. Those that another thread has added during the
-- wait are never released, and the next collection waits for them for ever.

-- | See Note [One thread raises the number].
raising :: MVar ()
raising = unsafePerformIO (newMVar ())
{-# NOINLINE raising #-}

-- | Have at least this many capabilities. From any thread of GHC's. Other code must not set the number
-- at the same time.
raiseCapabilities :: Int -> IO ()
raiseCapabilities count = withMVar raising $ \() -> do
  capabilities <- getNumCapabilities
  when (count > capabilities) (setNumCapabilities count)
