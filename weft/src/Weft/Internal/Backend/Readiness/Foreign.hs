{-# OPTIONS_HADDOCK not-home #-}

-- | Waiting for descriptors that Weft does not own. The operations of a readiness backend on them,
-- for the worker that owns it only: Note [Foreign numbers].
module Weft.Internal.Backend.Readiness.Foreign
  ( awaitForeign,
    wakeForeign,
    foreignSerial,
    settleForeign,
  )
where

import Control.Monad (unless)
import Data.Bits ((.&.), (.|.))
import Data.Foldable (for_)
import Data.Word (Word32)
import Foreign.C.Error (ePERM)
import Foreign.C.Types (CInt)
import Weft.Internal.Backend
import Weft.Internal.Backend.Readiness.Poller
import Weft.Internal.Backend.Readiness.Source
import Weft.Internal.Backend.Readiness.Stream
import Weft.Internal.Backend.Readiness.Table
import Weft.Internal.Os.Sys (Result)
import Weft.Internal.Os.Sys qualified as Sys

-- Note [Foreign numbers]
-- ~~~~~~~~~~~~~~~~~~~~~~
-- Weft registers a descriptor of its own once, and knows when it is closed. A foreign one is used and
-- closed by code that does not say so. So each wait has the poller told anew, for one level-triggered
-- event ('Once'; where the poller does not know that, it is told to drop what no operation waits for).
-- What it still knows of a file that is gone is replaced, or finds no waiter.
--
-- The operations wait in the slot of the number while it is not 'Occupied'. All events of foreign numbers
-- have one serial, which no descriptor of Weft's has. An event that was
-- collected before the number was closed can end a wait for the number's next file: the caller tries
-- its operation and waits again.
--
-- A number can be Weft's on this worker, because the program has given the number of its socket to a
-- library: then the operation waits as those on the socket do, since the poller has one registration for a
-- number. It can become Weft's while an operation waits for it as a foreign one
-- ('Weft.Socket.adoptSocket'): these waits end ('withSlot').

-- | The serial in the events of foreign numbers.
foreignSerial :: Word32
foreignSerial = 0

-- | 'submit' for a wait for a foreign number.
awaitForeign :: Source w -> Direction -> CInt -> Operation -> Completion w -> IO Answer
awaitForeign src direction number op done
  | number < 0 = pure Sys.badDescriptor
  | otherwise =
      existingSlot (sourceTable src) number >>= \case
        Just slot -> waitIn slot
        Nothing -> do
          -- Any number at all must not make the table large.
          r <- Sys.readyNow number (interestBits (interestIn direction))
          if r == Sys.wouldBlock then slotAt (sourceTable src) number >>= waitIn else pure r
  where
    waitIn slot = do
      phase <- slotPhase slot
      if phase == Occupied then submitStream src slot direction number op done else waitForeign slot
    waitForeign slot = do
      others <- waitedFor slot
      r <- watchForeign src number (others <> interestIn direction)
      if
        | r == Sys.failureCode ePERM -> pure 0
        | Sys.isFailure r -> pure r
        | otherwise -> do
            key <- nextSequence src
            readWaiters slot direction >>= writeWaiters slot direction . appendWaiter (StreamWaiter key op done)
            pure (pending (streamToken key number direction))

-- | Have the poller report this, once.
watchForeign :: Source w -> CInt -> Interest -> IO Result
watchForeign src number = pollerWatch poller number (makeKey number foreignSerial) (if pollerHasOnce poller then Once else Level)
  where
    poller = sourcePoller src

-- | Some operations have ended: have the poller report what the others wait for. Answers how many
-- completions ran, because the poller refuses.
settleForeign :: Source w -> Slot w -> CInt -> IO Int
settleForeign src slot number = do
  wanted <- waitedFor slot
  if wanted == noInterest
    then 0 <$ unless (pollerHasOnce (sourcePoller src)) (pollerRemove (sourcePoller src) number)
    else do
      r <- watchForeign src number wanted
      if Sys.isFailure r then endWaits slot [Reading, Writing] r else pure 0

-- | Complete all that wait in these directions; answers how many there were.
endWaits :: Slot w -> [Direction] -> Result -> IO Int
endWaits slot directions r = do
  ended <- concat <$> mapM (fmap listWaiters . readWaiters slot) directions
  for_ directions \direction -> writeWaiters slot direction NoWaiter
  for_ ended \w -> complete (waiterCompletion w) r
  pure (length ended)

-- | An event: the readiness bits of a foreign number. Answers how many completions ran.
wakeForeign :: Source w -> Slot w -> CInt -> Int -> IO Int
wakeForeign src slot number bits = do
  phase <- slotPhase slot
  if
    | phase == Occupied -> pure 0
    | bits .&. Sys.invalidBit /= 0 -> endWaits slot [Reading, Writing] Sys.badDescriptor <* settleForeign src slot number
    | otherwise -> do
        met <- endWaits slot (filter concerned [Reading, Writing]) 0
        (met +) <$> settleForeign src slot number
  where
    concerned = \case
      Reading -> bits .&. (Sys.readableBit .|. Sys.readHangupBit) /= 0
      Writing -> bits .&. (Sys.writableBit .|. Sys.writeHangupBit) /= 0
