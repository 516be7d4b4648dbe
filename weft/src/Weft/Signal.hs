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

-- | Subscribe while the body runs. The signals lose their default effect in the
-- whole process for that time, and have it again afterwards.
withSignals :: [SignalNumber] -> (Signals -> Thread a) -> Thread a
withSignals wanted = bracket (openSignals wanted) closeSignals

-- | Subscribe. Signals that arrive are kept, up to 1,000, until they are taken.
openSignals :: [SignalNumber] -> Thread Signals
openSignals wanted = Thread (\k -> foldr seq (unThread (call (OpenSignals wanted)) k) wanted)

-- | Take the oldest signal that has arrived, or wait for the next one. Only one
-- thread at a time may wait: an earlier one fails with an 'IOError'.
nextSignal :: Signals -> Thread SignalNumber
nextSignal = call . NextSignal

-- | Unsubscribe. A thread that waits fails with an 'IOError', and so does one that asks for
-- a signal afterwards.
closeSignals :: Signals -> Thread ()
closeSignals = call . CloseSignals
