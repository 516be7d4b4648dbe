{-# OPTIONS_HADDOCK not-home #-}

-- | Transactions that conflict, and how long they wait before they run again. GHC runs a transaction again at
-- once when another has committed to one of its variables. Two workers that change one variable then disturb
-- each other all the time, and each run moves the variable between processors, which costs as much as several
-- transactions. So a transaction waits before it runs again: twice as long as the last time, and less after
-- each that ran once (after the contention manager /Polite/ of Herlihy, Luchangco, Moir & Scherer 2003,
-- /Software transactional memory for dynamic-sized data structures/). The worker waits in user code, at most
-- 'longest': putting the thread aside would cost more.
module Weft.Internal.Core.BackOff
  ( BackOff,
    newBackOff,
    transactionally,
  )
where

import Control.Monad (when)
import Control.Monad.Primitive (RealWorld)
import Control.Monad.STM (STM, atomically)
import Data.Bits (unsafeShiftR)
import Data.Primitive.PrimArray
import GHC.Conc (unsafeIOToSTM)
import Weft.Internal.Os.Sys (spin)

-- | Of one worker: how often its transaction has begun, and the last wait of one that ran again, which
-- shrinks.
newtype BackOff = BackOff (MutablePrimArray RealWorld Int)

newBackOff :: IO BackOff
newBackOff = do
  a <- newPrimArray 2
  setPrimArray a 0 2 0
  pure (BackOff a)

-- | 'atomically' that waits before it runs the transaction again. On the worker; a carrier that has
-- lost it may still run one, which can make a wait too short or too long.
transactionally :: BackOff -> STM a -> IO a
transactionally (BackOff a) tx = do
  writePrimArray a begun 0
  r <- atomically (unsafeIOToSTM again >> tx)
  n <- readPrimArray a begun
  wait <- readPrimArray a pause
  when (n == 1 && wait > 0) (writePrimArray a pause (wait - 1 - wait `unsafeShiftR` 8))
  pure r
  where
    again = do
      n <- readPrimArray a begun
      writePrimArray a begun (n + 1)
      when (n > 0) $ do
        wait <- min longest . max shortest . (2 *) <$> readPrimArray a pause
        writePrimArray a pause wait
        spin wait
    begun = 0
    pause = 1

-- | In nanoseconds.
shortest, longest :: Int
shortest = 250
longest = 64_000
