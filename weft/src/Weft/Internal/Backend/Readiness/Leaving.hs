{-# OPTIONS_GHC -O2 -fno-full-laziness #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Operations on streams that end early. For the worker that owns the backend only.
module Weft.Internal.Backend.Readiness.Leaving (cancelWaiter, cancelWaiters) where

import Data.Foldable (for_)
import Weft.Internal.Backend.Readiness.Jobs
import Weft.Internal.Backend.Readiness.Poller (Direction (..))
import Weft.Internal.Backend.Readiness.Source
import Weft.Internal.Backend.Readiness.Stream (settle)
import Weft.Internal.Backend.Readiness.Table
import Weft.Internal.Os.Sys qualified as Sys

-- | Cancel one operation that waits, or is on its way through the pool.
cancelWaiter :: Source w -> TokenParts -> IO ()
cancelWaiter src parts =
  existingSlot (sourceTable src) (partNumber parts) >>= \case
    Nothing -> pure ()
    Just slot ->
      standing slot >>= \case
        Standing _ _ w | direction == Reading, waiterSequence w == partSequence parts -> leavePlace slot >> completeLater src Sys.canceled w
        _ -> do
          ws <- readWaiters slot direction
          case takeWaiter (partSequence parts) ws of
            Nothing -> withdrawJob src (partSequence parts)
            Just (w, rest) -> do
              writeWaiters slot direction rest
              settle src slot (partNumber parts)
              completeLater src Sys.canceled w
  where
    direction = partDirection parts

-- | Cancel all that wait on a slot; answers how many there were.
cancelWaiters :: Source w -> Slot w -> IO Int
cancelWaiters src slot = do
  ws <- allWaiters slot
  for_ [Reading, Writing] \direction -> writeWaiters slot direction NoWaiter
  leavePlace slot
  mapM_ (completeLater src Sys.canceled) ws
  pure (length ws)
