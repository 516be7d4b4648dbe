{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : A stack in parts, one for each worker
--
-- Which shard has a socket or a flow, and how a shard gives another what is not its own.
module Weft.Tcp.Stack.Shards
  ( -- * Which one
    alone,
    shardAt,
    shardOf,
    ownerOf,
    hasFlow,
    isTaken,
    others,

    -- * Sums
    allShards,
    total,
    openSockets,
    timeWaits,

    -- * Giving
    Job,
    passTo,
    passPacket,
    instantHere,
  )
where

import Control.Monad (join, when)
import Data.Bits (unsafeShiftR)
import Data.Foldable (toList)
import Data.IORef
import Data.Maybe (isJust)
import Data.Primitive.SmallArray
import Weft.Internal.Core.Home (Home)
import Weft.Internal.Core.SystemCall (Socket (..))
import Weft.Internal.Os.Descriptor (Descriptor (..))
import Weft.Tcp.Connection (Instant)
import Weft.Tcp.Stack.Flow
import Weft.Tcp.Stack.State
import Weft.Tcp.Stack.Table (Table)
import Weft.Tcp.Stack.Table qualified as Table
import Weft.Tcp.Stack.Turn

-- Note [Shards]
-- ~~~~~~~~~~~~~
-- A stack has a shard for each worker of its run. A shard is all that the stack of one worker is: tables, timers, clock,
-- a thread that reads its queue of the device, and a turn. Between shards these hold:
--
--   1. A socket belongs to one shard for ever: the one that the remainder of its number names ('shardOf'). The
--      connection of a socket is in the tables of the socket's shard.
--   2. A flow is in the tables of one shard at most. That is its owner, by a keyed hash ('ownerOf'), or it is a
--      stray: a connection of a socket that was bound before it was connected, or for which no port with the right owner
--      was free. Strays are opened under 'stackOpening', after a look into the tables of all. Listeners do not wait for
--      that: if a peer opens the very flow of a stray to one of them at that moment, both shards have it, the owner gets
--      the segments, and the stray fails.
--   3. A shard that gets a segment and has its flow takes it, owner or not. Otherwise it passes it on: to the
--      owner, or as the owner to the shard that has it. Only an owner whom no other tells of the flow goes on to
--      listeners and refusals. So a segment is passed twice at most, as long as no table changes in between.
--   4. A shard changes only its own tables, in its own turn, and what is common, atomically. It may read those of others:
--      a look-up misses no record that is there all the while (Note [Linear hashing] in "Weft.Tcp.Stack.Table"), and a flow
--      enters its next table before it leaves the last one, so that 'hasFlow' misses none either. What another is to
--      do is a job for its turn ('passTo'), which may find the world changed.
--   5. No shard waits for another. Jobs that are brought to a free turn are the first of that turn, so packets that a
--      shard passes to another stay in order. Those of a device are taken in by the worker of the other shard; those of the stack to
--      itself at once, if its turn is free, as a system's loopback does. Turns are held inside of each other
--      only so, and are not waited for.
--   6. Of sockets and TIME-WAIT the bounds are those of all shards together. They, and the half-open connections
--      of a listener and its backlog, may be exceeded by one for each other shard, when several count at once.
--
-- The addresses of a flow do not tell its owner to a peer, who does not know the secret. A queue of a TUN device gets
-- the packets of the flows that its shard has written last; Linux remembers 4,096 of these, for some seconds, and
-- deals out those of others by a hash of its own. Therefore what comes is usually its reader's, and need not be.

-- | Is there one shard only?
alone :: Stack -> Bool
alone st = sizeofSmallArray (stackShards st) == 1

-- | The shard with this index, or with this remainder.
shardAt :: Stack -> Int -> Stack
shardAt st i
  | alone st = st
  | otherwise = indexSmallArray (stackShards st) (i `rem` sizeofSmallArray (stackShards st))

-- | The shard that has a socket, whose number is negative.
shardOf :: Stack -> Socket -> Stack
shardOf st s = shardAt st (negate (fromIntegral (descriptorNumber (socketDescriptor s))))

-- | The index of the shard that has new connections of this flow. By the high bits of the hash: tables use the low ones, of
-- which a shard needs all.
ownerOf :: Stack -> Flow -> IO Int
ownerOf st flow = (\secret -> (flowHash secret flow `unsafeShiftR` 40) `rem` sizeofSmallArray (stackShards st)) <$> secretOf st

-- | Has this shard the flow? From any OS thread: the tables are asked in the order in which a flow passes through them.
hasFlow :: Stack -> Flow -> IO Bool
hasFlow st flow = do
  half <- isJust <$> Table.lookup (stackHalves st) flow
  conn <- if half then pure True else isJust <$> Table.lookup (stackConns st) flow
  if conn then pure True else isJust <$> Table.lookup (stackWaits st) flow

-- | Has any shard the flow?
isTaken :: Stack -> Flow -> IO Bool
isTaken st flow = go (allShards st)
  where
    go = \case
      [] -> pure False
      shard : rest -> hasFlow shard flow >>= \found -> if found then pure True else go rest

-- | All but this one.
others :: Stack -> [Stack]
others st = filter ((/= stackShard st) . stackShard) (allShards st)

-- | All of them, in their order.
allShards :: Stack -> [Stack]
allShards st = toList (stackShards st)

-- | How many sockets are open.
openSockets :: Stack -> IO Int
openSockets = total stackSocks

-- | How many connections are in TIME-WAIT.
timeWaits :: Stack -> IO Int
timeWaits = total stackWaits

-- | How many records such a table of all shards has.
total :: (Stack -> Table k v) -> Stack -> IO Int
total table st
  | alone st = Table.size (table st)
  | otherwise = sum <$> mapM (Table.size . table) (allShards st)

-- | Something that a shard does in its turn. Must not throw.
type Job = Maybe Home -> Instant -> IO ()

-- | Have another shard do something, after all that it was given before, soon.
passTo :: Stack -> Job -> IO ()
passTo other job = do
  idle <- bring other job
  when idle (join (readIORef (stackSummon other)))

-- | Pass a packet from this shard to another, which takes it in by the job. It is lost if too many wait. True: nobody
-- has the other's turn, which the caller must see to.
passPacket :: Stack -> Stack -> Job -> IO Bool
passPacket st other job = do
  count st PassedOn
  full <- mostJobs (stackTurn other)
  if full then pure False else bring other job

bring :: Stack -> Job -> IO Bool
bring other job = bringJob (stackTurn other) (\here -> instantHere other here >>= job here)

-- | The time as this worker knows it, or else as the shard does.
instantHere :: Stack -> Maybe Home -> IO Instant
instantHere st = maybe (readIORef (stackNow st)) (instantOf st)
