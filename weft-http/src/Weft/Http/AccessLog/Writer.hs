{-# OPTIONS_HADDOCK not-home #-}

-- | The thread that writes an access log, each batch in one system call, and its queue. Enqueueing is one
-- atomic exchange and never waits; the writer takes everything at once, and reopens its file where a request
-- in the queue asks for it. Not fast-logger, whose writer dies on @\/dev\/full@, and a flush never ends.
module Weft.Http.AccessLog.Writer
  ( LogTarget (..),
    LogOutput,
    openOutput,
    writer,

    -- * The queue
    Queue,
    newQueue,
    enqueue,
    askReopen,
    askClose,
    droppedSoFar,
  )
where

import Control.Exception (IOException)
import Control.Monad (join, void, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Foldable (for_)
import Data.IORef
import Foreign.C.Types (CInt)
import System.IO (hFlush, stdout)
import Weft
import Weft.File
import Weft.Internal.Core.SystemCall qualified as Call
import Weft.Internal.Core.Trace (call)
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

-- | Take all in one step, oldest first. A request to reopen is in the batch of the lines before it.
takeBatch :: Queue -> IO Pending
takeBatch (Queue ref) = atomicModifyIORef' ref $ \p ->
  ( p {pendingLines = [], pendingBytes = 0, pendingRefused = 0, pendingReopen = []},
    p {pendingLines = reverse (pendingLines p), pendingReopen = reverse (pendingReopen p)}
  )

awaitBatch :: Queue -> Thread ()
awaitBatch queue = suspend "access log entries" $ \waiter -> step queue $ \p ->
  case pendingState p of
    Open | null (pendingLines p), null (pendingReopen p) -> (p {pendingWriter = Just waiter}, pure ())
    _ -> (p, answer () waiter)

-- | Close the queue as the writer ends: later requests are answered at once.
finish :: Queue -> Waiter () -> IO ()
finish queue waiter = step queue $ \p ->
  (p {pendingState = Closed, pendingReopen = []}, mapM_ (answer False) (pendingReopen p) >> answer () waiter)

-- | The destination of lines.
data LogTarget
  = LogStdout
  | -- | Appends to the file at this path.
    LogFile !ByteString
  deriving stock (Eq, Show)

data LogOutput
  = ToStdout
  | -- | The path, and the permissions of a new file.
    ToFile !ByteString !CInt !File

-- | Open a target. Throws an 'IOError'. The permissions are those of a new file.
openOutput :: CInt -> LogTarget -> Thread LogOutput
openOutput permissions = \case
  LogStdout -> pure ToStdout
  LogFile path -> ToFile path permissions <$> openFileAt CurrentDirectory path Append defaultOpenFlags {openPermissions = permissions}

data Writing = Writing
  { writingOutput :: !LogOutput,
    -- | The file ends in an incomplete line.
    writingTorn :: !Bool,
    -- | The number of lines lost in the current spell, which was reported.
    writingLost :: !(Maybe Int)
  }

-- | Write until the log is closed. The action reports to the operator.
writer :: (String -> IO ()) -> Queue -> LogOutput -> Thread ()
writer report queue output = go (Writing output False Nothing)
  where
    go before = do
      batch <- liftIO (takeBatch queue)
      written <- put before batch
      after <- reopened (pendingReopen batch) written
      case pendingState batch of
        -- The last batch, unless it holds something.
        Closing waiter
          | null (pendingLines batch),
            null (pendingReopen batch) -> do
              liftIO (recovered after)
              closeOutput (writingOutput after)
              liftIO (finish queue waiter)
        Closing _ -> go after
        _ -> awaitBatch queue >> go after

    put before batch
      -- No write was tried, so the failure may persist.
      | null (pendingLines batch) = if pendingRefused batch == 0 then pure before else lost (pendingRefused batch) Nothing before
      | otherwise = do
          let start = ["\n" | writingTorn before]
              text = B.concat (start <> pendingLines batch)
          (count, failure) <- writeAll (writingOutput before) text
          let done = B.take count text
              torn = if B.null done then writingTorn before else C.last done /= '\n'
              missing = length (pendingLines batch) - (C.count '\n' done - (if count > 0 then length start else 0))
          liftIO . when (missing > 0) $ step queue (\p -> (p {pendingLost = pendingLost p + missing}, pure ()))
          lost (pendingRefused batch + missing) failure before {writingTorn = torn}

    -- Reports once when a spell of lost lines begins, and once when it ends.
    lost n failure state
      | n == 0 = state {writingLost = Nothing} <$ liftIO (recovered state)
      | otherwise = do
          liftIO $ case (writingLost state, failure) of
            (Just _, _) -> pure ()
            (_, Just e) -> report ("the access log cannot be written: " <> show (e :: IOException))
            _ -> report "the access log cannot be written as fast as it grows; entries are dropped"
          pure state {writingLost = Just (maybe n (+ n) (writingLost state))}
    recovered state = for_ (writingLost state) $ \n ->
      report (show n <> (if n == 1 then " access log entry was" else " access log entries were") <> " dropped")

    -- A request that comes during this is answered with the next batch.
    reopened [] state = pure state
    reopened waiters state = do
      (ok, state') <- case writingOutput state of
        ToStdout -> pure (True, state)
        old@(ToFile path permissions _) ->
          try (openOutput permissions (LogFile path)) >>= \case
            Right new -> do
              -- It may be the same file, if it was not renamed.
              torn <- if writingTorn state then sameFile old new else pure False
              (True, state {writingOutput = new, writingTorn = torn}) <$ closeOutput old
            Left e -> do
              liftIO (report ("the access log cannot be opened again, and the old file is kept: " <> show (e :: IOException)))
              pure (False, state)
      liftIO (for_ waiters (\w -> deliver w (Answered ok)))
      pure state'

sameFile :: LogOutput -> LogOutput -> Thread Bool
sameFile a b = either (\(_ :: IOException) -> False) id <$> try ((==) <$> identity a <*> identity b)
  where
    identity = \case
      ToStdout -> pure Nothing
      ToFile _ _ file -> (\s -> Just (statusDevice s, statusInode s)) <$> fileStatus file

-- | Close the file. An error says nothing that a failed write has not said.
closeOutput :: LogOutput -> Thread ()
closeOutput = \case
  ToStdout -> pure ()
  ToFile _ _ file -> void (try @_ @IOException (closeFile file))

-- | Write all; the number of bytes written, and the error that stopped it.
writeAll :: LogOutput -> ByteString -> Thread (Int, Maybe IOException)
writeAll output text = case output of
  ToStdout ->
    -- The handle does not say how many bytes it wrote before a failure.
    either (\e -> (0, Just e)) (\() -> (B.length text, Nothing)) <$> try (blocking (B.hPut stdout text >> hFlush stdout))
  ToFile _ _ file ->
    let go count
          | count >= B.length text = pure (count, Nothing)
          | otherwise =
              try (call (Call.WriteFile file (B.drop count text) (-1))) >>= \case
                Right n -> go (count + n)
                Left e -> pure (count, Just e)
     in go 0
