{-# OPTIONS_HADDOCK not-home #-}

-- | Waiting for descriptors that Weft does not own. The operations of a readiness backend on them,
-- for the worker that owns it only: Note [Foreign numbers].
module Weft.Internal.Backend.Readiness.Foreign
  ( awaitForeign,
    wakeForeign,
    foreignSerial,
    cancelForeign,
    cancelForeigners,
    foreigners,
    foreignTokens,
  )
where

import Control.Monad (unless, void)
import Data.Bits ((.&.), (.|.))
import Data.Foldable (for_)
import Data.Foldable qualified as Foldable
import Data.IntMap.Strict qualified as IntMap
import Data.List (partition)
import Data.Primitive.MutVar
import Data.Word (Word32)
import Foreign.C.Error (ePERM)
import Foreign.C.Types (CInt)
import Weft.Internal.Backend
import Weft.Internal.Backend.Readiness.Poller
import Weft.Internal.Backend.Readiness.Source
import Weft.Internal.Backend.Readiness.Stream
import Weft.Internal.Backend.Readiness.Table
import Weft.Internal.Data.Buckets
import Weft.Internal.Os.Sys (Result)
import Weft.Internal.Os.Sys qualified as Sys

-- Note [Foreign numbers]
-- ~~~~~~~~~~~~~~~~~~~~~~
-- Weft registers a descriptor of its own once, and knows when it is closed. A foreign one is used and
-- closed by code that does not say so. So each wait has the poller told anew, for one level-triggered
-- event ('Once'; where the poller does not know that, it is told to drop what no operation waits for).
-- What it still knows of a file that is gone is replaced, or finds no waiter.
--
-- All events of foreign numbers have one serial, which no descriptor of Weft's has. An event that was
-- collected before the number was closed can end a wait for the number's next file: the caller tries
-- its operation and waits again.
--
-- A number can be Weft's on this worker, because the program has given the number of its socket to a
-- library: then the operation waits in the slot, since the poller has one registration for a number. It
-- can become Weft's while an operation waits for it as a foreign one ('Weft.Socket.adoptSocket'): these
-- waits end ('dismissForeign').

-- | The serial in the events of foreign numbers.
foreignSerial :: Word32
foreignSerial = 0

-- | 'submit' for a wait for a foreign number.
awaitForeign :: Source w -> Direction -> CInt -> Operation -> Completion w -> IO Answer
awaitForeign src direction number op done
  | number < 0 = pure Sys.badDescriptor
  | otherwise =
      existingSlot (sourceTable src) number >>= \case
        Nothing -> foreignOnly
        Just slot -> do
          phase <- slotPhase slot
          if phase == Occupied then submitStream src slot direction number op done else foreignOnly
  where
    foreignOnly = do
      key <- nextSequence src
      waiting <- waitingFor src number
      let all' = Foreigner direction (StreamWaiter key op done) : waiting
      r <- watchForeign src number all'
      if
        | r == Sys.failureCode ePERM -> pure 0
        | Sys.isFailure r -> pure r
        | otherwise -> do
            writeWaiting src number all'
            pure (pending (streamToken key number direction))

waitingFor :: Source w -> CInt -> IO [Foreigner w]
waitingFor src number = IntMap.findWithDefault [] (fromIntegral number) <$> readMutVar (bucketOf (sourceForeign src) number)

writeWaiting :: Source w -> CInt -> [Foreigner w] -> IO ()
writeWaiting src number waiting =
  modifyMutVar' (bucketOf (sourceForeign src) number) $
    if null waiting then IntMap.delete (fromIntegral number) else IntMap.insert (fromIntegral number) waiting

-- | Have the poller report what these wait for.
watchForeign :: Source w -> CInt -> [Foreigner w] -> IO Result
watchForeign src number waiting =
  pollerWatch poller number (makeKey number foreignSerial) (if pollerHasOnce poller then Once else Level) $
    Foldable.foldl' (\all' (Foreigner direction _) -> all' <> interestIn direction) noInterest waiting
  where
    poller = sourcePoller src

-- | These are left to wait for the number, after an event or a cancellation.
settleForeign :: Source w -> CInt -> [Foreigner w] -> IO Int
settleForeign src number = \case
  [] -> do
    writeWaiting src number []
    unless (pollerHasOnce (sourcePoller src)) (pollerRemove (sourcePoller src) number)
    pure 0
  left -> do
    r <- watchForeign src number left
    if Sys.isFailure r
      then writeWaiting src number [] >> finish r left
      else 0 <$ writeWaiting src number left

-- | Complete these, oldest first; answers how many there were.
finish :: Result -> [Foreigner w] -> IO Int
finish r waiting = do
  for_ (reverse waiting) \(Foreigner _ w) -> complete (waiterCompletion w) r
  pure (length waiting)

-- | An event: the readiness bits of a foreign number. Answers how many completions ran.
wakeForeign :: Source w -> CInt -> Int -> IO Int
wakeForeign src number bits =
  waitingFor src number >>= \case
    [] -> pure 0
    waiting
      | bits .&. Sys.invalidBit /= 0 -> settleForeign src number [] >> finish Sys.badDescriptor waiting
      | otherwise -> do
          let (met, left) = partition (\(Foreigner direction _) -> concerned direction) waiting
          refused' <- settleForeign src number left
          (refused' +) <$> finish 0 met
  where
    concerned = \case
      Reading -> bits .&. (Sys.readableBit .|. Sys.readHangupBit) /= 0
      Writing -> bits .&. (Sys.writableBit .|. Sys.writeHangupBit) /= 0

-- | Cancel an operation, if it is one that waits here.
cancelForeign :: Source w -> TokenParts -> IO Bool
cancelForeign src parts = do
  waiting <- waitingFor src (partNumber parts)
  case partition (\(Foreigner _ w) -> waiterSequence w == partSequence parts) waiting of
    ([], _) -> pure False
    (gone, left) -> do
      -- A poller that reports once may report too much: 'wakeForeign' tells it again.
      if pollerHasOnce (sourcePoller src)
        then writeWaiting src (partNumber parts) left
        else void (settleForeign src (partNumber parts) left)
      True <$ cancelThese src gone

cancelForeigners :: Source w -> IO ()
cancelForeigners src = do
  waiting <- foreigners src
  eachBucket (sourceForeign src) (`writeMutVar` IntMap.empty)
  cancelThese src waiting

cancelThese :: Source w -> [Foreigner w] -> IO ()
cancelThese src waiting = for_ waiting \(Foreigner _ w) -> completeLater src Sys.canceled w

foreigners :: Source w -> IO [Foreigner w]
foreigners src = foldBuckets (\found _ ws -> ws <> found) [] (sourceForeign src)

-- | Their tokens, as of 'pendingTokens'.
foreignTokens :: Source w -> (w -> Bool) -> IO [Token]
foreignTokens src wanted = foldBuckets tokens [] (sourceForeign src)
  where
    tokens found number ws =
      [ streamToken (waiterSequence w) (fromIntegral number) direction
        | Foreigner direction w <- ws,
          wanted (completionFor (waiterCompletion w))
      ]
        <> found
