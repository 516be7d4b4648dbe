-- |
-- Description : Signals
--
-- A signal reaches every subscription that names it, once; those that arrive while
-- no thread waits are kept.
module Weft.Conformance.Signals (signals) where

import Control.Monad (forM_)
import Foreign.C.Error (eINVAL)
import System.Posix.Signals (sigKILL, sigSTOP, sigUSR1, sigUSR2)
import Test.Tasty
import Weft
import Weft.Conformance.Check
import Weft.Conformance.Waiting
import Weft.Conformance.World
import Weft.Signal

-- | Signals.
signals :: World -> TestTree
signals world =
  testGroup
    "signals"
    [ conforms world "every subscription gets those that it names" $
        withSignals [sigUSR1, sigUSR2] $ \both -> withSignals [sigUSR1] $ \first -> do
          waiter <- spawn (nextSignal first)
          yield
          raise sigUSR1
          waiter ===> sigUSR1
          nextSignal both ===> sigUSR1
          raise sigUSR2
          nextSignal both ===> sigUSR2,
      conforms world "what arrives while nobody waits is kept, in order" $
        withSignals [sigUSR1, sigUSR2] $ \both -> withSignals [sigUSR2] $ \other -> do
          raise sigUSR2
          -- It has arrived when the other has it.
          nextSignal other ===> sigUSR2
          raise sigUSR1
          nextSignal both ===> sigUSR2
          nextSignal both ===> sigUSR1,
      conforms world "closing ends the wait" $ do
        s <- openSignals [sigUSR2]
        waiting <- spawn (refuses (nextSignal s))
        yield
        closeSignals s
        waiting
        -- One that comes too late does not wait at all.
        refuses (nextSignal s),
      conforms world "what nobody can catch is refused" $
        forM_ [sigKILL, sigSTOP, 0, 1000] $
          \n -> failsWith [eINVAL] (openSignals [sigUSR1, n]),
      conforms world "named twice, delivered once" $
        withSignals [sigUSR2, sigUSR2] $ \s -> withSignals [sigUSR1] $ \other -> do
          raise sigUSR2
          nextSignal s ===> sigUSR2
          raise sigUSR1
          nextSignal other ===> sigUSR1
          again <- spawn (refuses (nextSignal s))
          sleep (milliseconds 1)
          closeSignals s
          again,
      conforms world "the next subscription begins with nothing" $ do
        withSignals [sigUSR1] (\s -> raise sigUSR1 >> (nextSignal s ===> sigUSR1))
        withSignals [sigUSR1] $ \s -> do
          waiting <- spawn (refuses (nextSignal s))
          sleep (milliseconds 1)
          closeSignals s
          waiting
    ]
  where
    raise = worldRaise world
    refuses wait = try wait >>= either (\(_ :: IOError) -> pure ()) (\n -> holds ("a signal came: " <> show n) False)
