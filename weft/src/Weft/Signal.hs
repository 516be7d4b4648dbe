-- |
-- Signals as events: subscribe, and take them one by one in a thread.
--
-- >>> import Control.Monad.IO.Class (liftIO)
-- >>> import System.Posix.Signals (raiseSignal, sigUSR1)
-- >>> import Weft
-- >>> :{
-- run . withSignals [sigUSR1] $ \signals -> do
--   liftIO (raiseSignal sigUSR1)
--   caught <- nextSignal signals
--   pure (caught == sigUSR1)
-- :}
-- True
module Weft.Signal (Signals, SignalNumber, withSignals, openSignals, nextSignal, closeSignals) where

import Control.Monad.Catch (bracket)
import Weft.Internal.Core.SystemCall
import Weft.Internal.Core.Trace

-- | Subscribe while the body runs. The signals have no default effect in the whole process for that time.
withSignals :: [SignalNumber] -> (Signals -> Thread a) -> Thread a
withSignals wanted = bracket (openSignals wanted) closeSignals

-- | Subscribe. Signals that arrive are kept, up to 1,000, until they are taken.
openSignals :: [SignalNumber] -> Thread Signals
openSignals wanted = Thread (\k -> foldr seq (unThread (call (OpenSignals wanted)) k) wanted)

-- | Take the oldest signal, or wait for the next. An earlier thread that waits fails with an 'IOError'.
nextSignal :: Signals -> Thread SignalNumber
nextSignal = call . NextSignal

-- | Unsubscribe. A thread that waits for a signal, now or later, fails with an 'IOError'.
closeSignals :: Signals -> Thread ()
closeSignals = call . CloseSignals
