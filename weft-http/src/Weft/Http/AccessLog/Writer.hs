{-# OPTIONS_HADDOCK not-home #-}

-- | The thread that writes an access log, each batch in one system call. It alone uses the file:
-- reopening it is a request in the queue, served in its turn.
module Weft.Http.AccessLog.Writer (LogTarget (..), LogOutput, openOutput, writer) where

import Control.Exception (IOException)
import Control.Monad (void, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Foldable (for_)
import Foreign.C.Types (CInt)
import System.IO (hFlush, stdout)
import Weft
import Weft.File
import Weft.Http.AccessLog.Queue
import Weft.Internal.Core.SystemCall qualified as Call
import Weft.Internal.Core.Trace (call)
import Weft.Kernel (Outcome (..), deliver)

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
          liftIO (when (missing > 0) (countLost queue missing))
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
