{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Threads that wait for a stack
--
-- A thread that could not do what it wanted waits in a list of the thing that it waits for, and tries again when it is woken.
module Weft.Tcp.Stack.Wake
  ( Wake (..),
    receiving,
    goingOn,
    wake,
    wakeAll,
    stillThere,
    waitsStill,
  )
where

import Control.Monad (void)
import Weft.Internal.Core.Home (Home (..), Why (Completed))
import Weft.Internal.Core.Park qualified as Park
import Weft.Internal.Core.Standing (Arrival)
import Weft.Internal.Core.SystemCall (Intake)
import Weft.Internal.Core.Tcb (Resume)
import Weft.Internal.Core.Trace (Trace)

-- | A thread that waits: the worker where it does, its place, and how it tries again.
data Wake
  = Wake !Int !(Park.ParkedThread () Resume) Resume
  | -- | In a standing receive: also the intake, and how it goes on with what has come there.
    Receiving !Int !(Park.ParkedThread () Resume) Resume !Intake (Arrival -> Trace)

-- | A thread that waits in a standing receive.
receiving :: Intake -> (Arrival -> Trace) -> Wake -> Wake
receiving i k = \case
  Wake worker place resume -> Receiving worker place resume i k
  w -> w

-- | The thread goes on so when it is woken.
goingOn :: Resume -> Wake -> Wake
goingOn resume = \case
  Wake worker place _ -> Wake worker place resume
  Receiving worker place _ _ _ -> Wake worker place resume

-- | Have a thread try again, or go on as said. It is no thread of this worker if there is none.
wake :: Maybe Home -> Wake -> IO ()
wake here = \case
  Receiving worker place resume _ _ -> wake here (Wake worker place resume)
  Wake worker place resume -> case here of
    Just home | homeWorker home == worker -> Park.answerHere Completed place resume
    _ -> void (Park.answerFromAnywhere place resume)

-- | The one that has waited for longest is the last of the list.
wakeAll :: Maybe Home -> [Wake] -> IO ()
wakeAll here = \case
  [w] -> wake here w
  several -> mapM_ (wake here) (reverse several)

-- | Without those that were cancelled.
stillThere :: [Wake] -> IO [Wake]
stillThere = go
  where
    go = \case
      [] -> pure []
      w : rest -> do
        waits <- waitsStill w
        (if waits then (w :) else id) <$> go rest

-- | Was it neither woken nor cancelled?
waitsStill :: Wake -> IO Bool
waitsStill = \case
  Wake _ place _ -> Park.stillWaits place
  Receiving _ place _ _ _ -> Park.stillWaits place
