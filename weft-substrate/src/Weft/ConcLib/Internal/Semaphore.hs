{-# OPTIONS_HADDOCK hide #-}

-- |
-- Description : Semaphores of the threads of both libraries
--
-- A quantity, and the threads that wait for a part of it, in their order.
module Weft.ConcLib.Internal.Semaphore
  ( QSem,
    newQSem,
    waitQSem,
    signalQSem,
    QSemN,
    newQSemN,
    waitQSemN,
    signalQSemN,
    waitersForQSemN,
  )
where

import Control.Exception (onException)
import Control.Monad (when)
import Weft.ConcLib.Internal.Queue
import Weft.ConcLib.Internal.Threads
import Weft.ConcLib.Internal.Waiter
import Weft.Substrate

-- | A quantity that is taken and given back in units.
newtype QSem = QSem QSemN
  deriving newtype (Eq)

-- | A quantity that is taken and given back in parts.
newtype QSemN = QSemN (PVar Quantity)
  deriving newtype (Eq)

-- | What is there, and what is waited for.
data Quantity = Quantity !Int !(Queue Part)

data Part = Part !Int !(Waiter ())

-- | With this quantity, which is not negative ('userError').
newQSem :: Int -> IO QSem
newQSem n = QSem <$> newQSemN n

-- | Take a unit; wait until one is there. Interruptible while it waits.
waitQSem :: QSem -> IO ()
waitQSem (QSem s) = waitQSemN s 1

-- | Give a unit back. Does not wait.
signalQSem :: QSem -> IO ()
signalQSem (QSem s) = signalQSemN s 1

-- | With this quantity, which is not negative ('userError').
newQSemN :: Int -> IO QSemN
newQSemN n = do
  when (n < 0) (ioError (userError "newQSemN: the quantity is negative"))
  QSemN <$> newPVarIO (Quantity n empty)

-- | Take a part; wait until it is there, and until those have theirs that came before. Interruptible while it waits.
waitQSemN :: QSemN -> Int -> IO ()
waitQSemN s@(QSemN v) n =
  performWaiting
    ( readPVar v >>= \(Quantity there waiting) -> case pop waiting of
        Nothing | n <= there -> Right () <$ writePVar v (Quantity (there - n) empty)
        _ -> pure (Left (Quantity there waiting))
    )
    (\(Quantity there waiting) w -> among (\(Part _ one) -> one) waiting (Part n w) >>= writePVar v . Quantity there)
    -- Those that came later may have waited for this one only.
    `onException` signalQSemN s 0

-- | Give a part back. Does not wait.
signalQSemN :: QSemN -> Int -> IO ()
signalQSemN (QSemN v) n = atomicPTM (readPVar v >>= \(Quantity there waiting) -> serve (there + n) waiting >>= writePVar v)

-- | Give parts to those that wait, in their order, as far as it goes.
serve :: Int -> Queue Part -> PTM Quantity
serve there waiting =
  popping waiting >>= \case
    Nothing -> pure (Quantity there empty)
    Just (Part n w, rest) ->
      isWaiting w >>= \case
        False -> serve there rest
        True
          | n <= there -> give w () >> serve (there - n) rest
          | otherwise -> pure (Quantity there waiting)

-- | How many threads wait for a part, for tests; one that was interrupted may still count.
waitersForQSemN :: QSemN -> IO Int
waitersForQSemN (QSemN v) = (\(Quantity _ waiting) -> length (toList waiting)) <$> atomicPTM (readPVar v)
