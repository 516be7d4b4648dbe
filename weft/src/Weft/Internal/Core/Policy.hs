{-# OPTIONS_HADDOCK not-home #-}

-- | The order in which ready threads run, as a value. A 'Policy' makes the ready queue of each worker.
-- First-in-first-out is built into the scheduler; all others are records of functions that a user can write.
module Weft.Internal.Core.Policy
  ( Policy (..),
    fifo,
    priorities,
    favourConnections,
    favourAccepting,
    bands,
    Ready (..),
    Why (..),
    Queue (..),
    ReadyQueue (..),
    newReadyQueue,
    push,
    size,
    popAny,
    foldReady,
    takeSome,
  )
where

import Control.Monad (join, when)
import Data.Foldable (foldlM)
import Data.IORef
import Data.IntMap.Strict qualified as IntMap
import Weft.Internal.Core.Ring
import Weft.Internal.Core.Trace

-- | How a worker chooses which ready thread runs next.
data Policy
  = -- | In the order in which they became ready.
    Fifo
  | -- | Another queue: its name, and how each worker makes its own.
    Policy String (IO Queue)

instance Show Policy where
  show Fifo = "fifo"
  show (Policy name _) = name

-- | A thread that is ready to run. A policy may look at its 'tcbLabel' and 'tcbPriority'.
data Ready = Ready !Tcb !Resume

-- | A queue of ready threads, which gives back every thread once. For one worker at a time; must not block.
data Queue = Queue
  { enqueue :: Why -> Ready -> IO (),
    -- | 'Nothing' if and only if it is empty.
    dequeue :: IO (Maybe Ready),
    -- | Also called from other OS threads, for counters: it must only read.
    queued :: IO Int,
    -- | Visit every thread in the queue, for a dump.
    visitQueue :: forall r. (r -> Tcb -> r) -> r -> IO r
  }

-- | First in, first out: every ready thread runs before any runs twice.
fifo :: Policy
fifo = Fifo

-- | The thread with the smallest 'Weft.priority' number first; among equals, first in, first out. One of low
-- priority waits while any of higher priority is ready. Logarithmic in the number of distinct priorities of
-- ready threads.
priorities :: Policy
priorities = Policy "priorities" (newLevels (\_ tcb -> tcbPriority tcb))

-- | Knot's first policy (von Behren et al. 2003, section 5): a thread of an open connection runs before
-- a new connection is taken on. Under overload those that were accepted are served quickly, and the
-- others wait in the listen queue.
favourConnections :: Policy
favourConnections = bands "favour-connections" 2 (\why _ -> if why == Accepted then 1 else 0)

-- | Knot's second policy: threads that accept run first. Latency then grows with the number of connections.
favourAccepting :: Policy
favourAccepting = bands "favour-accepting" 2 (\why _ -> if why == Accepted then 0 else 1)

-- | This many queues; a thread goes into the one with this index (clamped); the first that has any is served.
bands :: String -> Int -> (Why -> Tcb -> Int) -> Policy
bands name count choose = Policy name (newLevels (\why tcb -> max 0 (min (max 1 count - 1) (choose why tcb))))

-- | Threads by level: the smallest first; within it, first in, first out.
--
-- Invariant: each level in the map has threads. A ring has 2 KB, so some that were emptied are kept for the
-- levels that come next: a band that is emptied at each dispatch makes none.
newLevels :: (Why -> Tcb -> Int) -> IO Queue
newLevels levelOf = do
  levels <- newIORef IntMap.empty
  total <- newIORef 0
  spares <- newIORef []
  let emptyRing =
        readIORef spares >>= \case
          ring : others -> ring <$ writeIORef spares others
          [] -> newRing
      ringOf level known = case IntMap.lookup level known of
        Just ring -> pure ring
        Nothing -> emptyRing >>= \ring -> ring <$ writeIORef levels (IntMap.insert level ring known)
      remove level ring known = do
        writeIORef levels $! IntMap.delete level known
        modifyIORef' spares (\kept -> if null (drop (mostSpares - 1) kept) then ring : kept else kept)
  pure
    Queue
      { enqueue = \why (Ready tcb resume) -> do
          ring <- readIORef levels >>= ringOf (levelOf why tcb)
          modifyIORef' total (+ 1)
          pushRing ring tcb resume,
        dequeue =
          readIORef levels >>= \known -> case IntMap.lookupMin known of
            Nothing -> pure Nothing
            Just (level, ring) -> popRing ring (pure Nothing) $ \tcb resume -> do
              modifyIORef' total (subtract 1)
              left <- sizeRing ring
              when (left == 0) (remove level ring known)
              pure (Just (Ready tcb resume)),
        queued = readIORef total,
        visitQueue = \f start -> readIORef levels >>= foldlM (foldRing f) start
      }
  where
    mostSpares = 16

-- | The queue of one worker: the built-in one, without calls through unknown functions, or a policy's.
data ReadyQueue
  = FifoQueue {-# UNPACK #-} !ReadyRing
  | PolicyQueue !Queue

newReadyQueue :: Policy -> IO ReadyQueue
newReadyQueue = \case
  Fifo -> FifoQueue <$> newRing
  Policy _ make -> PolicyQueue <$> make

push :: ReadyQueue -> Why -> Tcb -> Resume -> IO ()
push (FifoQueue ring) _ tcb resume = pushRing ring tcb resume
push (PolicyQueue q) why tcb resume = enqueue q why (Ready tcb resume)

size :: ReadyQueue -> IO Int
size (FifoQueue ring) = sizeRing ring
size (PolicyQueue q) = queued q

-- | Take the next thread (the scheduler has its own, faster way for 'Fifo').
popAny :: ReadyQueue -> IO (Maybe Ready)
popAny (FifoQueue ring) = popRing ring (pure Nothing) (\tcb resume -> pure (Just (Ready tcb resume)))
popAny (PolicyQueue q) = dequeue q

-- | Take those that are so of this many threads at the front. The others go to the end, but only if any
-- is taken, or the same ones would be passed over after each slice and never run. (Of a policy's queue
-- all are looked at to know that.)
takeSome :: ReadyQueue -> Int -> (Tcb -> IO Bool) -> IO [Ready]
takeSome queue most is = do
  any' <- case queue of
    FifoQueue ring -> anyRing most is ring
    PolicyQueue q -> join (visitQueue q (\found tcb -> found >>= \yes -> if yes then pure True else is tcb) (pure False))
  if any' then go most else pure []
  where
    go :: Int -> IO [Ready]
    go 0 = pure []
    go n =
      popAny queue >>= \case
        Nothing -> pure []
        Just r@(Ready tcb resume) ->
          is tcb >>= \yes -> if yes then (r :) <$> go (n - 1) else push queue Woken tcb resume >> go (n - 1)

foldReady :: ReadyQueue -> (r -> Tcb -> r) -> r -> IO r
foldReady (FifoQueue ring) f start = foldRing f start ring
foldReady (PolicyQueue q) f start = visitQueue q f start
