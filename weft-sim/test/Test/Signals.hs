-- |
-- Description : Simulated signals
module Test.Signals (tests) where

import Control.Monad (forM_, replicateM, replicateM_, void)
import Data.List (isInfixOf)
import Foreign.C.Error
import Test.InWorld
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Scope
import Weft.Signal
import Weft.Sim.Internal.Kernel (Sim (..))
import Weft.Sim.Internal.Signals (crashSignals, raiseSignal)
import Weft.Sim.Internal.World (Machine)

tests :: TestTree
tests =
  testGroup
    "Signals"
    [ everywhere "every subscription gets a signal" eachGets,
      everywhere "kept in order, up to a thousand" kept,
      everywhere "one waiter: a second one makes the first fail" oneWaiter,
      everywhere "closing ends a wait" closingEnds,
      everywhere "named twice, delivered once" once,
      everywhere "a cancelled wait takes nothing" cancelledWait,
      everywhere "not to be handled: refused" refused,
      everywhere "each machine has its own" perMachine,
      everywhere "a crash ends subscriptions" crashes
    ]

usr1, usr2 :: SignalNumber
usr1 = 10
usr2 = 12

raise :: SignalNumber -> Thread Bool
raise n = homeSteer (\sim m -> raiseSignal (simSignals sim) m n)

raiseOn :: Machine -> SignalNumber -> Thread Bool
raiseOn machine n = homeSteer (\sim _ -> raiseSignal (simSignals sim) machine n)

failing :: String -> Thread a -> Thread ()
failing wanted action =
  try action >>= \case
    Left e -> liftIO (assertBool (show (e :: IOError)) (wanted `isInfixOf` show e))
    Right _ -> liftIO (assertFailure "it should have failed")

eachGets :: Thread ()
eachGets = do
  raise usr1 ===> False
  withSignals [usr1, usr2] $ \both -> withSignals [usr1] $ \first -> withScope $ \scope -> do
    waiter <- forkIn scope (nextSignal first)
    sleep (milliseconds 1)
    raise usr1 ===> True
    awaitChild waiter ===> usr1
    nextSignal both ===> usr1
    raise usr2 ===> True
    nextSignal both ===> usr2
  raise usr1 ===> False

kept :: Thread ()
kept = withSignals [usr1, usr2] $ \s -> do
  replicateM_ 600 (raise usr1 >> raise usr2)
  got <- replicateM 1000 (nextSignal s)
  liftIO (got @?= concat (replicate 500 [usr1, usr2]))
  -- No more were kept.
  _ <- raise usr1
  nextSignal s ===> usr1

oneWaiter :: Thread ()
oneWaiter = withSignals [usr1] $ \s -> withScope $ \scope -> do
  earlier <- forkIn scope (failing "another thread waits" (nextSignal s))
  sleep (milliseconds 1)
  later <- forkIn scope (nextSignal s)
  awaitChild earlier
  _ <- raise usr1
  awaitChild later ===> usr1

closingEnds :: Thread ()
closingEnds = withScope $ \scope -> do
  s <- openSignals [usr1]
  waiting <- forkIn scope (failing "closed" (nextSignal s))
  sleep (milliseconds 1)
  closeSignals s
  awaitChild waiting

once :: Thread ()
once = withSignals [usr1, usr1] $ \s -> do
  _ <- raise usr1
  _ <- raise usr1
  replicateM 2 (nextSignal s) ===> [usr1, usr1]
  withScope $ \scope -> do
    waiting <- forkIn scope (failing "closed" (nextSignal s))
    sleep (milliseconds 1)
    closeSignals s
    awaitChild waiting

cancelledWait :: Thread ()
cancelledWait = withSignals [usr1] $ \s -> do
  waiter <- fork (void (nextSignal s))
  sleep (milliseconds 1)
  cancel waiter
  -- Also in rough weather the cancellation has had its effect by then.
  sleep (milliseconds 1)
  _ <- raise usr1
  nextSignal s ===> usr1

refused :: Thread ()
refused = do
  forM_ [9, 19, 0, -1, 65] (failsWith eINVAL . openSignals . (: [usr1]))
  -- Nothing of it stays.
  raise usr1 ===> False

perMachine :: Thread ()
perMachine = do
  other <- newMachine "other"
  withSignals [usr1] $ \here -> onMachine other $ withSignals [usr1] $ \there -> do
    raiseOn other usr1 ===> True
    nextSignal there ===> usr1
    -- Nothing has come to the other subscription.
    withScope $ \scope -> do
      waiting <- forkIn scope (failing "closed" (nextSignal here))
      sleep (milliseconds 1)
      closeSignals here
      awaitChild waiting

crashes :: Thread ()
crashes = withSignals [usr1] $ \s -> withScope $ \scope -> do
  waiting <- forkIn scope (failing "lost its power" (nextSignal s))
  sleep (milliseconds 1)
  homeSteer (crashSignals . simSignals)
  awaitChild waiting
  raise usr1 ===> False
