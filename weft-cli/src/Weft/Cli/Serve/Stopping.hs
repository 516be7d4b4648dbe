-- |
-- Description : The signals of a service
--
-- SIGHUP reloads what can be reloaded, at any time. SIGTERM and SIGINT drain; a second one stops at
-- once. The subscription stays open until the process has ended, so that a late signal does not
-- turn an orderly end into a failure.
module Weft.Cli.Serve.Stopping (subscribe, awaitStop, Haste, hasten, pauseFor) where

import Control.Monad (forever, void, when)
import System.Posix.Signals (sigHUP, sigINT, sigTERM)
import Weft
import Weft.Event
import Weft.Http.Server
import Weft.Signal
import Weft.Timeout

-- | From now on these signals can be awaited and have no other effect.
subscribe :: Thread Signals
subscribe = openSignals [sigTERM, sigINT, sigHUP]

-- | Wait for a signal to stop; run the action at each signal to reload.
awaitStop :: Signals -> Thread () -> Thread ()
awaitStop signals reload =
  nextSignal signals >>= \n ->
    when (n == sigHUP) (reload >> awaitStop signals reload)

-- | Whether a second signal has come.
newtype Haste = Haste Event

-- | Fork a thread that waits for a second signal, announces it, and then cuts off every present and
-- new connection.
hasten :: Signals -> Thread () -> Thread () -> Server -> Thread Haste
hasten signals reload announce server = do
  event <- newEvent
  fork_ $ do
    awaitStop signals reload
    announce
    set event
    -- More may come from the listen queue.
    forever (cutOff server >> sleep (milliseconds 20))
  pure (Haste event)

-- | Wait for this time, or until a second signal.
pauseFor :: Haste -> Duration -> Thread ()
pauseFor (Haste event) time = void (timeout time (wait event))
