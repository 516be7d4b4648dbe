-- |
-- Description : The lines that wait to be written
-- Stability   : not home
--
-- Between those who log, on any worker, and the one thread that writes. Whoever logs does
-- one atomic exchange and never waits; the writer takes everything at once.
module Weft.Http.AccessLog.Queue
  ( Queue,
    newQueue,

    -- * Those who log
    enqueue,
    askReopen,
    askClose,
    droppedSoFar,

    -- * The writer
    Batch (..),
    Next (..),
    takeBatch,
    awaitBatch,
    countLost,
    finish,
  )
where

import Control.Monad (unless, void, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Foldable (for_)
import Data.IORef
import Weft
import Weft.Kernel (Outcome (..), Waiter, deliver, suspend)

-- | What waits.
newtype Queue = Queue (IORef Pending)

-- | Lines, newest first, and the memory they take; how many have found no room since the
-- last batch, and how many were lost altogether; the writer, if it waits; who waits for the
-- file to be opened again; and whether the log is to end.
data Pending = Pending
  { pendingLines :: [ByteString],
    pendingBytes :: !Int,
    pendingRefused :: !Int,
    pendingLost :: !Int,
    pendingWriter :: !(Maybe (Waiter ())),
    pendingReopen :: [Waiter Bool],
    pendingState :: !State
  }

data State = Open | Closing !(Waiter ()) | Closed

-- | Nothing waits.
newQueue :: IO Queue
newQueue = Queue <$> newIORef (Pending [] 0 0 0 Nothing [] Open)

-- | Leave a line for the writer, if with it not more than so many bytes wait. From any
-- thread.
enqueue :: Queue -> Int -> ByteString -> IO ()
enqueue (Queue ref) most line = do
  wake <- atomicModifyIORef' ref $ \p ->
    if pendingBytes p + size > most || isClosed (pendingState p)
      then (p {pendingRefused = pendingRefused p + 1, pendingLost = pendingLost p + 1}, Nothing)
      else (p {pendingLines = line : pendingLines p, pendingBytes = pendingBytes p + size, pendingWriter = Nothing}, pendingWriter p)
  for_ wake (\w -> deliver w (Answered ()))
  where
    -- With what the line costs beside its bytes.
    size = B.length line + 64
    isClosed = \case Closed -> True; _ -> False

-- | Wait until the writer has opened its file again, and learn whether it could. 'False' at
-- once if the log was closed.
askReopen :: Queue -> Thread Bool
askReopen (Queue ref) = suspend "the access log to be opened again" $ \waiter -> do
  (open, wake) <- atomicModifyIORef' ref $ \p -> case pendingState p of
    Closed -> (p, (False, Nothing))
    _ -> (p {pendingReopen = waiter : pendingReopen p, pendingWriter = Nothing}, (True, pendingWriter p))
  unless open (void (deliver waiter (Answered False)))
  for_ wake (\w -> deliver w (Answered ()))

-- | Wait until what waits is written and the writer has ended. At once if somebody has
-- asked before.
askClose :: Queue -> Thread ()
askClose (Queue ref) = suspend "the access log to be written" $ \waiter -> do
  (already, wake) <- atomicModifyIORef' ref $ \p -> case pendingState p of
    Open -> (p {pendingState = Closing waiter, pendingWriter = Nothing}, (False, pendingWriter p))
    _ -> (p, (True, Nothing))
  when already (void (deliver waiter (Answered ())))
  for_ wake (\w -> deliver w (Answered ()))

-- | Lines that were lost since the log was opened, for want of room or because they could
-- not be written.
droppedSoFar :: Queue -> IO Int
droppedSoFar (Queue ref) = pendingLost <$> readIORef ref

-- | What the writer has taken.
data Batch = Batch
  { -- | Oldest first.
    batchLines :: [ByteString],
    -- | How many found no room since the last one.
    batchRefused :: !Int,
    -- | Who waits for the file to be opened again, after these lines.
    batchReopen :: [Waiter Bool],
    batchNext :: !Next
  }

-- | What comes after a batch.
data Next
  = Continue
  | -- | This was the last one, unless something was left meanwhile; somebody waits.
    Finish !(Waiter ())

-- | All that waits, in one step: a line is in one batch, and whoever wants the file to be
-- opened again is in the batch with the lines that were there before.
takeBatch :: Queue -> IO Batch
takeBatch (Queue ref) = atomicModifyIORef' ref $ \p ->
  ( p {pendingLines = [], pendingBytes = 0, pendingRefused = 0, pendingReopen = []},
    Batch (reverse (pendingLines p)) (pendingRefused p) (reverse (pendingReopen p)) $ case pendingState p of
      Closing waiter -> Finish waiter
      _ -> Continue
  )

-- | Wait until there is something to do.
awaitBatch :: Queue -> Thread ()
awaitBatch (Queue ref) = suspend "access log entries" $ \waiter -> do
  already <- atomicModifyIORef' ref $ \p -> case pendingState p of
    Open | null (pendingLines p), null (pendingReopen p) -> (p {pendingWriter = Just waiter}, False)
    _ -> (p, True)
  when already (void (deliver waiter (Answered ())))

-- | So many lines could not be written.
countLost :: Queue -> Int -> IO ()
countLost (Queue ref) n = atomicModifyIORef' ref (\p -> (p {pendingLost = pendingLost p + n}, ()))

-- | The writer has ended: whoever comes now is answered at once.
finish :: Queue -> Waiter () -> IO ()
finish (Queue ref) waiter = do
  late <- atomicModifyIORef' ref (\p -> (p {pendingState = Closed, pendingReopen = []}, pendingReopen p))
  for_ late (\w -> deliver w (Answered False))
  void (deliver waiter (Answered ()))
