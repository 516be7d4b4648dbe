{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : Connections that wait to be accepted
--
-- A listener is one for all shards of a stack: here each leaves its connections, and threads of any worker wait for
-- them. One immutable state that changes atomically: a connection that comes finds the waiting thread, or that
-- thread finds the connection. Functions are for any OS thread, but for 'pull'.
module Weft.Tcp.Stack.Backlog
  ( Backlog,
    newBacklog,
    waiting,

    -- * Connections
    push,
    Next (..),
    next,
    pull,
    forget,

    -- * Threads
    enroll,
    enlist,
    dismiss,
    close,
  )
where

import Data.Bits ((.&.))
import Data.IORef
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.Sequence (Seq, ViewL (..), viewl, (|>))
import Data.Sequence qualified as Sequence

-- | Of connections @c@ and threads @w@.
newtype Backlog c w = Backlog (IORef (BacklogState c w))

data BacklogState c w = BacklogState
  { -- By shard, oldest first; no queue is empty.
    queues :: !(IntMap (Seq c)),
    size :: !Int,
    -- How many were taken, and the shard whose turn it is next among all.
    taken, cursor :: !Int,
    -- Newest first.
    threads :: ![w],
    closed :: !Bool
  }

instance Eq (Backlog c w) where
  Backlog a == Backlog b = a == b

-- | No connections, no threads.
newBacklog :: IO (Backlog c w)
newBacklog = Backlog <$> newIORef (BacklogState IntMap.empty 0 0 0 [] False)

-- | How many connections wait, of all shards.
waiting :: Backlog c w -> IO Int
waiting (Backlog ref) = size <$> readIORef ref

-- | A connection of this shard is there. Answers the threads to be woken.
push :: Backlog c w -> Int -> c -> IO [w]
push (Backlog ref) shard c = atomicModifyIORef' ref $ \s ->
  (s {queues = IntMap.insertWith (\_ q -> q |> c) shard (Sequence.singleton c) (queues s), size = size s + 1, threads = []}, threads s)

-- | The shard whose connection is to be accepted next.
data Next = Nobody | Mine | Of !Int

-- | As a thread in the turn of this shard sees it: its own before others, so that the connection is used
-- where it lives. Every fourth is that of the next shard of all, so that none waits for ever.
next :: Backlog c w -> Int -> IO Next
next (Backlog ref) shard = look <$> readIORef ref
  where
    look s
      | size s == 0 = Nobody
      | taken s .&. 3 /= 3 && IntMap.member shard (queues s) = Mine
      | inTurn s == shard = Mine
      | otherwise = Of (inTurn s)

-- The shard whose turn it is among those that have connections, of which there is one.
inTurn :: BacklogState c w -> Int
inTurn s = maybe (fst (IntMap.findMin (queues s))) fst (IntMap.lookupGE (cursor s) (queues s))

-- | Take the oldest connection of this shard, and tell whether others wait. In its turn only.
pull :: Backlog c w -> Int -> IO (Maybe (c, Bool))
pull (Backlog ref) shard = atomicModifyIORef' ref $ \s -> case viewl <$> IntMap.lookup shard (queues s) of
  Just (c :< rest) ->
    ( s
        { queues = if Sequence.null rest then IntMap.delete shard (queues s) else IntMap.insert shard rest (queues s),
          size = size s - 1,
          taken = taken s + 1,
          cursor = if inTurn s == shard then shard + 1 else cursor s
        },
      Just (c, size s > 1)
    )
  _ -> (s, Nothing)

-- | No connection waits any more.
forget :: Backlog c w -> IO ()
forget (Backlog ref) = atomicModifyIORef' ref (\s -> (s {queues = IntMap.empty, size = 0}, ()))

-- | A thread waits. The function finds those that still do among the ones before it. Answers the threads to be
-- woken: all, if there is a connection, or there will be none any more.
enroll :: Backlog c w -> ([w] -> IO [w]) -> w -> IO [w]
enroll backlog@(Backlog ref) stillThere w = do
  left <- dismiss backlog >>= stillThere
  atomicModifyIORef' ref $ \s ->
    if size s > 0 || closed s then (s, w : left) else (s {threads = w : left <> threads s}, [])

-- | A thread waits for something else than a connection. Answers the threads to be woken, as 'enroll' does.
enlist :: Backlog c w -> w -> IO [w]
enlist (Backlog ref) w = atomicModifyIORef' ref (\s -> if closed s then (s, [w]) else (s {threads = w : threads s}, []))

-- | The threads that wait, to be woken.
dismiss :: Backlog c w -> IO [w]
dismiss (Backlog ref) = atomicModifyIORef' ref (\s -> (s {threads = []}, threads s))

-- | Nothing comes any more; the threads that wait.
close :: Backlog c w -> IO [w]
close (Backlog ref) = atomicModifyIORef' ref (\s -> (s {threads = [], closed = True}, threads s))
