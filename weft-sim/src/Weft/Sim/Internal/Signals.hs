{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : The simulated processes' signals
--
-- Every machine runs one process, and a signal comes to it when the world sends one. A thread that
-- has subscribed gets it in a queue of its own, as from the system kernel; real signals do not
-- come here.
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

import Control.Exception (SomeException)
import Control.Monad (forM_, unless, void)
import Data.IORef
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.List (nub)
import Foreign.C.Error (eINVAL)
import Weft.Internal.Core.SystemCall
import Weft.Internal.Core.Trace
import Weft.Internal.Kernel.Signals (refusal, wasClosed)
import Weft.Sim.Internal.Ticket
import Weft.Sim.Internal.World

-- | The subscriptions of each machine, by its number, in the order of their beginning.
newtype SignalTable = SignalTable (IORef (IntMap [Signals]))

newSignalTable :: IO SignalTable
newSignalTable = SignalTable <$> newIORef IntMap.empty

openSignals :: SignalTable -> [SignalNumber] -> Answering Signals
openSignals (SignalTable ref) several ask k
  | any unhandled several = answerNow ask k (Left (failure "installHandler" Nothing eINVAL))
  | otherwise = do
      subscription <- Signals (nub several) <$> newIORef (Arrived [])
      modifyIORef' ref (IntMap.insertWith (flip (<>)) (machineNumber (askMachine ask)) [subscription])
      answerNow ask k (Right subscription)
  where
    unhandled n = n < 1 || n > 64 || n `elem` [9, 19]

-- | Take the oldest signal that has arrived, or wait for the next. At most one thread waits on a
-- subscription: an earlier one fails.
nextSignal :: Signals -> Answering SignalNumber
nextSignal s ask k =
  readIORef (signalsState s) >>= \case
    Arrived (n : rest) -> do
      writeIORef (signalsState s) (Arrived rest)
      answer Woken ask k (Right n)
    Arrived [] -> wait
    Expected _ earlier -> do
      void (deliver earlier (refusal "another thread waits for these signals now"))
      wait
    Unsubscribed -> answer Woken ask k (resultOf (refusal wasClosed))
  where
    wait = park ask k $ \ticket -> do
      me <- newIORef ()
      writeIORef (signalsState s) (Expected me (Waiter (settle ticket Woken . resultOf)))
      -- A waiter that was replaced has been answered, and its withdrawal never runs: the one
      -- found here is this one.
      pure (writeIORef (signalsState s) (Arrived []))

resultOf :: Outcome a -> Either SomeException a
resultOf = \case
  Failed e -> Left e
  Answered a -> Right a

-- | Unsubscribe; a thread that waits fails, and so does one that comes later.
closeSignals :: SignalTable -> Signals -> Answering ()
closeSignals (SignalTable ref) s ask k = do
  modifyIORef' ref (IntMap.map (filter ((/= signalsState s) . signalsState)))
  dismiss wasClosed s
  answerNow ask k (Right ())

dismiss :: String -> Signals -> IO ()
dismiss why s = do
  before <- readIORef (signalsState s)
  writeIORef (signalsState s) Unsubscribed
  case before of
    Expected _ waiter -> void (deliver waiter (refusal why))
    _ -> pure ()

-- | The process on a machine gets a signal. False if no thread there has subscribed to it: its
-- default effect would end the process.
raiseSignal :: SignalTable -> Machine -> SignalNumber -> IO Bool
raiseSignal (SignalTable ref) machine n = do
  subscriptions <- IntMap.findWithDefault [] (machineNumber machine) <$> readIORef ref
  let wanting = filter ((n `elem`) . signalsWanted) subscriptions
  mapM_ give wanting
  pure (not (null wanting))
  where
    give s =
      readIORef (signalsState s) >>= \case
        Arrived kept -> writeIORef (signalsState s) $! Arrived $! take limit (kept <> [n])
        Unsubscribed -> pure ()
        Expected _ waiter -> do
          writeIORef (signalsState s) (Arrived [])
          -- One whose result was decided before does not take it.
          taken <- deliver waiter (Answered n)
          unless taken (give s)
    limit = 1000

-- | A machine has lost its power, and with it all subscriptions.
crashSignals :: SignalTable -> Machine -> IO ()
crashSignals (SignalTable ref) machine = do
  known <- readIORef ref
  writeIORef ref (IntMap.delete (machineNumber machine) known)
  forM_ (IntMap.findWithDefault [] (machineNumber machine) known) (dismiss "the machine has lost its power")
