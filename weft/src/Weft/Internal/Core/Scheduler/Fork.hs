{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Starting threads. Puts new threads on a ready queue: this worker's, or another's by a message.
module Weft.Internal.Core.Scheduler.Fork (startThread, fork, forkAnonymous, ThreadExit (..)) where

import Control.Exception (Exception)
import Data.Primitive.Array (indexArray, sizeofArray)
import Weft.Internal.Core.Cancel (newIdentity)
import Weft.Internal.Core.Policy
import Weft.Internal.Core.Scheduler.Anonymous
import Weft.Internal.Core.Scheduler.State
import Weft.Internal.Core.Trace

-- | Put a new thread on the ready queue.
startThread :: Scheduler -> Tcb -> Resume -> IO ()
startThread s tcb resume = bump s ThreadsStarted 1 >> push (schedulerQueue s) Started tcb resume

-- | Start an anonymous child of this thread, which has a number.
forkAnonymous :: Scheduler -> Tcb -> Resume -> IO ()
forkAnonymous s parent child = inherit s parent 0 >>= \shared -> startThread s shared child

-- | Start a child with an identity; this thread has a number.
fork :: Scheduler -> Tcb -> ForkOptions -> Resume -> IO ThreadId
fork s parent options child = do
  plain <- tcbState <$> inherit s parent (forkScope options)
  number <- bump s NextNumber (schedulerStride s)
  state <- withOptions s options plain
  case forkWorker options of
    Nothing -> do
      own <- newIdentity (schedulerHome s) number
      ThreadId own <$ startThread s (Tcb own state) child
    Just worker -> do
      let peers = homePeers (schedulerHome s)
          there = indexArray peers (worker `mod` sizeofArray peers)
      own <- newIdentity there number
      _ <- bump s ThreadsStarted 1
      let !block = Tcb own state
      ThreadId own <$ homePost there (homeReady there Started block child)

-- | Raised by 'Weft.exit': ends the thread after its finalizers, silently.
data ThreadExit = ThreadExit
  deriving stock (Show)

instance Exception ThreadExit
