{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The monitor of a run
--
-- Starts and stops the OS thread that watches the workers
-- (@cbits/weft_monitor.c@) and gives a worker that is stuck in user code to another
-- carrier. A run has one monitor; it sleeps while all workers do.
--
-- See Note [Takeover] in "Weft.Internal.Os.Control".
module Weft.Internal.Os.Monitor (Monitor, withMonitor, wakeMonitor, monitorEnding) where

import Control.Exception (bracket, throwIO)
import Control.Monad (when)
import Data.Int (Int64)
import Foreign.C.Types (CInt (..))
import Foreign.Ptr (Ptr, nullPtr)
import Foreign.StablePtr (StablePtr, freeStablePtr, newStablePtr)
import Weft.Internal.Os.Control

-- | A monitor that runs.
newtype Monitor = Monitor (Ptr Monitor)

type Carry = Int -> Int -> IO ()

foreign import ccall "weft_monitor_start"
  c_start :: CInt -> Ptr Int -> Int64 -> Int64 -> Int64 -> Int64 -> CInt -> CInt -> StablePtr Carry -> IO (Ptr Monitor)

foreign import ccall unsafe "weft_monitor_wake" c_wake :: Ptr Monitor -> IO ()

foreign import ccall unsafe "weft_monitor_ending" c_ending :: Ptr Monitor -> CInt -> IO ()

foreign import ccall safe "weft_monitor_stop" c_stop :: Ptr Monitor -> IO ()

-- | From one look at the workers to the next while one of them seems to be stuck, in
-- nanoseconds.
tick :: Int64
tick = 1_500_000

-- | From one look to the next while none does, at most. Twice this is the longest that the
-- other threads of a stuck worker are delayed (Note [When the monitor looks] in
-- @cbits/weft_monitor.c@), beside which GHC may keep the new carrier from running until the
-- end of its own time slice, 20 milliseconds by default.
longest :: Int64
longest = 8_000_000

-- | A carrier may be in one dispatch for this long. A takeover costs some 30 microseconds.
patience :: Int64
patience = 3_500_000

-- | A carrier that is not needed any more stays for this long.
linger :: Int64
linger = 1_000_000_000

-- | The number of carriers beside the workers' own that may be busy with threads that run; those that
-- GHC knows to be blocked do not count. More would only wait for each other, and the workers
-- for them: GHC gives each its time slice.
few :: CInt
few = 64

-- | A monitor for some workers with at most the given number of carriers beside theirs, for the time
-- of an action, at whose end no worker runs any more. The function is called on a
-- bound OS thread, masked, with the index of a worker and the number of its new owner, or
-- with one of the negative numbers of @cbits/weft_monitor.h@, and must not throw.
withMonitor :: Int -> Int -> Words -> Carry -> (Monitor -> IO a) -> IO a
withMonitor workers others shared carry = bracket begin end
  where
    begin = do
      callback <- newStablePtr carry
      m <- c_start (fromIntegral workers) (wordsAddress shared) tick longest patience linger few (fromIntegral others) callback
      when (m == nullPtr) $ freeStablePtr callback >> throwIO (userError "no OS thread for the monitor could be started")
      pure (Monitor m)
    -- Carriers that are still in user code return through the callback: the last one
    -- frees it.
    end (Monitor m) = c_stop m

-- | A worker has woken while the monitor slept.
wakeMonitor :: Monitor -> IO ()
wakeMonitor (Monitor m) = c_wake m

-- | The run is to end: workers may be taken over the given number of times more, beyond the limit. First
-- so that they cancel their threads ('endReserve'), and then once each to be stopped.
monitorEnding :: Monitor -> Int -> IO ()
monitorEnding (Monitor m) = c_ending m . fromIntegral
