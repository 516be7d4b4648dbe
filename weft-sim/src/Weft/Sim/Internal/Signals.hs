{-# OPTIONS_HADDOCK not-home #-}

-- | The simulated processes' signals. Every machine runs one process, and a signal comes to it when
-- the world sends one. A thread that has subscribed gets it in a queue of its own, as from the
-- system kernel; real signals do not come here.
module Weft.Sim.Internal.Signals
  ( SignalTable,
    newSignalTable,
    openSignals,
    nextSignal,
    closeSignals,
    raiseSignal,
    crashSignals,
  )
where

import Control.Monad (forM_)
import Data.IORef
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.List (nub)
import Foreign.C.Error (eINVAL)
import Weft.Internal.Core.SystemCall
import Weft.Internal.Core.Trace
import Weft.Internal.Kernel.Signals qualified as System
import Weft.Sim.Internal.Ticket
import Weft.Sim.Internal.World

-- | The subscriptions of each machine, by its number, in the order of their beginning.
newtype SignalTable = SignalTable (IORef (IntMap [Signals]))

newSignalTable :: IO SignalTable
newSignalTable = SignalTable <$> newIORef IntMap.empty

openSignals :: SignalTable -> [SignalNumber] -> Answering Signals
openSignals (SignalTable ref) several ask k
  | any System.isUnheard several = answerNow ask k (Left (failure "installHandler" Nothing eINVAL))
  | otherwise = do
      subscription <- Signals (nub several) <$> newIORef (Arrived [])
      modifyIORef' ref (IntMap.insertWith (flip (<>)) (machineNumber (askMachine ask)) [subscription])
      answerNow ask k (Right subscription)

-- | Take the oldest signal that has arrived, or wait for the next. At most one thread waits on a
-- subscription: an earlier one fails.
nextSignal :: Signals -> Answering SignalNumber
nextSignal s ask k = park ask k $ \ticket ->
  System.nextSignal s . Waiter $
    settle ticket Woken . \case
      Failed e -> Left e
      Answered n -> Right n

-- | Unsubscribe; a thread that waits fails, and so does one that comes later.
closeSignals :: SignalTable -> Signals -> Answering ()
closeSignals (SignalTable ref) s ask k = do
  modifyIORef' ref (IntMap.map (filter ((/= signalsState s) . signalsState)))
  System.endSubscription System.wasClosed s
  answerNow ask k (Right ())

-- | The process on a machine gets a signal. False if no thread there has subscribed to it: its
-- default effect would end the process.
raiseSignal :: SignalTable -> Machine -> SignalNumber -> IO Bool
raiseSignal (SignalTable ref) machine n = do
  subscriptions <- IntMap.findWithDefault [] (machineNumber machine) <$> readIORef ref
  let wanting = filter ((n `elem`) . signalsWanted) subscriptions
  not (null wanting) <$ mapM_ (System.giveSignal n) wanting

-- | A machine has lost its power, and with it all subscriptions.
crashSignals :: SignalTable -> Machine -> IO ()
crashSignals (SignalTable ref) machine = do
  known <- readIORef ref
  writeIORef ref (IntMap.delete (machineNumber machine) known)
  forM_ (IntMap.findWithDefault [] (machineNumber machine) known) (System.endSubscription "the machine has lost its power")
