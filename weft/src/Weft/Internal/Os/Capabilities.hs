{-# OPTIONS_HADDOCK not-home #-}

-- | How many capabilities GHC has. A run needs a capability for each of its workers, and may begin
-- while another one does.
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
-- what is missing, and releases as many as it had noted. If another thread has added some during the
-- wait, it never releases those: no thread runs on them, and the next collection waits for them for
-- ever. So the number is read and raised under one lock of the process.

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
