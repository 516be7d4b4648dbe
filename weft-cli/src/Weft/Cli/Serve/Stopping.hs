-- |
-- Description : What signals do to a service
--
-- SIGHUP loads again what can be loaded again, at any time. SIGTERM and SIGINT stop; the
-- second one stops at once. The subscription stays open until the process has ended: a
-- signal that comes while it ends finds somebody who takes it, and does not turn an orderly
-- end into a failure.
module Weft.Cli.Serve.Stopping
  ( subscribe,
    awaitStop,
    Haste,
    hasten,
    pauseFor,
  )
where

import Control.Monad (forever, void, when)
import System.Posix.Signals (sigHUP, sigINT, sigTERM)
import Weft
import Weft.Event
import Weft.Http.Server
import Weft.Signal
import Weft.Timeout

-- | From now on these signals have no effect but that they can be awaited.
subscribe :: Thread Signals
subscribe = openSignals [sigTERM, sigINT, sigHUP]

-- | Wait for a signal to stop, and do this for each that says to load again.
awaitStop :: Signals -> Thread () -> Thread ()
awaitStop signals reload =
  nextSignal signals >>= \n ->
    when (n == sigHUP) (reload >> awaitStop signals reload)

-- | Whether a second signal has come.
newtype Haste = Haste Event

-- | Fork a thread that waits for a second signal, says so, and then cuts off whatever
-- connection there is or comes.
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

-- | Wait for so long, but not after a second signal.
pauseFor :: Haste -> Duration -> Thread ()
pauseFor (Haste event) time = void (timeout time (wait event))
