{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Threads that wait for a stack
--
-- A thread that could not do what it wanted waits in a list of the thing that it waits for, and tries again when it is woken.
module Weft.Tcp.Stack.Wake (Wake (..), wake, wakeAll, stillThere) where

import Control.Monad (void)
import Weft.Internal.Core.Home (Home (..), Why (Completed))
import Weft.Internal.Core.Park qualified as Park
import Weft.Internal.Core.Tcb (Resume)

-- | A thread that waits: the worker where it does, its place, and how it tries again.
data Wake = Wake !Int !(Park.ParkedThread () Resume) Resume

-- | Have a thread try again, or go on as said. It is no thread of this worker if there is none.
wake :: Maybe Home -> Wake -> IO ()
wake here (Wake worker place resume) = case here of
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
      w@(Wake _ place _) : rest -> do
        waits <- Park.stillWaits place
        (if waits then (w :) else id) <$> go rest
