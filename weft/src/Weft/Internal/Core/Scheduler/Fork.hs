{-# LANGUAGE MagicHash #-}
{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Starting threads. Makes their control blocks, as light as they can be (Note [The weight of a thread]),
-- and puts them on a ready queue: this worker's, or another's by a message. Numbers anonymous threads.
module Weft.Internal.Core.Scheduler.Fork (startThread, fork, forkAnonymous, numbered, ThreadExit (..)) where

import Control.Exception (Exception)
import Control.Monad (when)
import Data.ByteString.Short qualified as ShortByteString
import Data.IORef (readIORef)
import Data.Maybe (fromMaybe)
import Data.Primitive.Array (indexArray, sizeofArray)
import Data.Primitive.MutVar
import GHC.Exts (isTrue#, reallyUnsafePtrEquality#)
import Weft.Internal.Core.Cancel
import Weft.Internal.Core.Policy
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

-- Note [The weight of a thread]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- A thread that waits in a queue costs the queue's two words (control block, continuation), its
-- continuation, and its control block if that is its own. So what threads of one parent have in common
-- is shared: a `Tcb` is a number and a pointer to a `ThreadState`, which siblings share until one
-- catches or masks, and which points to a `Context`, shared until one changes its label. An anonymous
-- thread has no identity of its own, so it shares the whole `Tcb`; the first question for its number gives it one
-- of its own. These are immutable: the scheduler puts a changed copy in its place. What must be found
-- by others, the `Status`, is a variable of the `Identity`.

-- | The control block of an anonymous child: no handlers, and what it inherits.
inherit :: Scheduler -> Tcb -> Int -> IO Tcb
inherit s (Tcb identity state) scope = do
  Inherited owner known masking into shared <- readMutVar (schedulerInherited s)
  if owner == number && masking == stateMasking state && into == scope && same known context
    then pure shared
    else do
      let child =
            Tcb nobody . ThreadState NoFrames (stateMasking state) $
              context {contextParent = number, contextScope = scope, contextLocals = contextInherited context}
      child <$ writeMutVar (schedulerInherited s) (Inherited number context (stateMasking state) scope child)
  where
    number = identityNumber identity
    context = stateContext state
    -- A context that is equal and not the same only costs a new block.
    same a b = isTrue# (reallyUnsafePtrEquality# a b)

-- | The state of a child with options; without any, the very state given: inlined, or returned in
-- parts, it would be built again for every child. That of the last child if its options were the same.
withOptions :: Scheduler -> ForkOptions -> ThreadState -> IO ThreadState
withOptions s (ForkOptions label priority _ _) !state
  | ShortByteString.null label, Nothing <- priority = pure state
  | otherwise = do
      Optioned before label' priority' made <- readMutVar (schedulerOptioned s)
      if isTrue# (reallyUnsafePtrEquality# before state) && label' == label && priority' == priority
        then pure made
        else do
          let context = stateContext state
              !new =
                state
                  { stateContext =
                      context
                        { contextLabel = if ShortByteString.null label then contextLabel context else label,
                          contextPriority = fromMaybe (contextPriority context) priority
                        }
                  }
          new <$ writeMutVar (schedulerOptioned s) (Optioned state label priority new)
{-# OPAQUE withOptions #-}

-- | The current thread with an identity of its own. In a run that is closing it is cancelled with that,
-- since no thread can have done so before (Note [The end of a run] in "Weft.Internal.Run.Ending").
numbered :: Scheduler -> Tcb -> IO Tcb
numbered s tcb
  | not (isNobody (tcbIdentity tcb)) = pure tcb
  | otherwise = do
      closing <- readIORef (homeClosing home)
      identity <-
        if closing
          then closingIdentity home
          else bump s NextNumber (schedulerStride s) >>= newIdentity home
      let !own = tcb {tcbIdentity = identity}
      become (schedulerHere s) own
      when closing $ cancelFrom home (ThreadId identity)
      pure own
  where
    home = schedulerHome s
