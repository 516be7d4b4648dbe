{-# OPTIONS_HADDOCK not-home #-}

-- | The queue between workers that log and the one writer thread. Enqueueing is one atomic exchange and
-- never waits; the writer takes everything at once. Not fast-logger, whose single writer dies on
-- @\/dev\/full@, so that the queue grows and a flush never ends.
module Weft.Http.AccessLog.Queue
  ( Queue,
    newQueue,
    enqueue,
    askReopen,
    askClose,
    droppedSoFar,
    Pending (..),
    QueueState (..),
    takeBatch,
    awaitBatch,
    countLost,
    finish,
  )
where

import Control.Monad (join, void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.IORef
import Weft
import Weft.Kernel (Outcome (..), Waiter, deliver, suspend)

newtype Queue = Queue (IORef Pending)

-- | Lines, newest first, and their memory; lines without room since the last batch, and lost
-- altogether; the writer, if it waits; the threads that wait for the file to be reopened.
data Pending = Pending
  { pendingLines :: [ByteString],
    pendingBytes :: !Int,
    pendingRefused :: !Int,
    pendingLost :: !Int,
    pendingWriter :: !(Maybe (Waiter ())),
    pendingReopen :: [Waiter Bool],
    pendingState :: !QueueState
  }

data QueueState = Open | Closing !(Waiter ()) | Closed

newQueue :: IO Queue
newQueue = Queue <$> newIORef (Pending [] 0 0 0 Nothing [] Open)

-- | Change the queue atomically, then run what follows from the change.
step :: Queue -> (Pending -> (Pending, IO ())) -> IO ()
step (Queue ref) change = join (atomicModifyIORef' ref change)

waking :: Pending -> (Pending, IO ())
waking p = (p {pendingWriter = Nothing}, mapM_ (answer ()) (pendingWriter p))

answer :: a -> Waiter a -> IO ()
answer a waiter = void (deliver waiter (Answered a))

-- | Enqueue a line unless the queue would exceed the given number of bytes. From any thread.
enqueue :: Queue -> Int -> ByteString -> IO ()
enqueue queue most line = step queue $ \p ->
  if pendingBytes p + size > most || isClosed (pendingState p)
    then (p {pendingRefused = pendingRefused p + 1, pendingLost = pendingLost p + 1}, pure ())
    else waking p {pendingLines = line : pendingLines p, pendingBytes = pendingBytes p + size}
  where
    -- The line and its overhead.
    size = B.length line + 64
    isClosed = \case Closed -> True; _ -> False

-- | Ask the writer to reopen its file, and wait for its success; 'False' at once if closed.
askReopen :: Queue -> Thread Bool
askReopen queue = suspend "the access log to be opened again" $ \waiter -> step queue $ \p ->
  case pendingState p of
    Closed -> (p, answer False waiter)
    _ -> waking p {pendingReopen = waiter : pendingReopen p}

-- | Ask the writer to write all and end, and wait for that; a second call returns at once.
askClose :: Queue -> Thread ()
askClose queue = suspend "the access log to be written" $ \waiter -> step queue $ \p ->
  case pendingState p of
    Open -> waking p {pendingState = Closing waiter}
    _ -> (p, answer () waiter)

-- | Lines lost since the log was opened: no room, or not writable.
droppedSoFar :: Queue -> IO Int
droppedSoFar (Queue ref) = pendingLost <$> readIORef ref

-- | Take all in one step, oldest first: each line is in one batch, and a request to reopen is in the
-- batch of the lines that were enqueued before it.
takeBatch :: Queue -> IO Pending
takeBatch (Queue ref) = atomicModifyIORef' ref $ \p ->
  ( p {pendingLines = [], pendingBytes = 0, pendingRefused = 0, pendingReopen = []},
    p {pendingLines = reverse (pendingLines p), pendingReopen = reverse (pendingReopen p)}
  )

-- | Wait until the queue holds lines or requests.
awaitBatch :: Queue -> Thread ()
awaitBatch queue = suspend "access log entries" $ \waiter -> step queue $ \p ->
  case pendingState p of
    Open | null (pendingLines p), null (pendingReopen p) -> (p {pendingWriter = Just waiter}, pure ())
    _ -> (p, answer () waiter)

countLost :: Queue -> Int -> IO ()
countLost queue n = step queue (\p -> (p {pendingLost = pendingLost p + n}, pure ()))

-- | Close the queue as the writer ends: later requests are answered at once.
finish :: Queue -> Waiter () -> IO ()
finish queue waiter = step queue $ \p ->
  (p {pendingState = Closed, pendingReopen = []}, mapM_ (answer False) (pendingReopen p) >> answer () waiter)
