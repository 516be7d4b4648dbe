-- |
-- Description : The thread that writes an access log
-- Stability   : not home
--
-- Takes what waits and writes it in one system call, again and again. It alone knows the
-- file: to open it again is a request like a line, and comes in its turn.
module Weft.Http.AccessLog.Writer
  ( LogTarget (..),
    Output,
    openOutput,
    writer,
  )
where

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
import Weft.Internal.SystemCall qualified as Call
import Weft.Internal.Trace (call)
import Weft.Kernel (Outcome (..), deliver)

-- | Where lines go.
data LogTarget
  = LogStdout
  | -- | Appended to.
    LogFile !ByteString
  deriving stock (Eq, Show)

-- | It is open.
data Output
  = ToStdout
  | -- | With the path, and the permissions if it has to be made.
    ToFile !ByteString !CInt !File

-- | Fails with an 'IOError'. The permissions are for a file that is made.
openOutput :: CInt -> LogTarget -> Thread Output
openOutput permissions = \case
  LogStdout -> pure ToStdout
  LogFile path -> ToFile path permissions <$> openFileAt CurrentDirectory path Append defaultOpenFlags {openPermissions = permissions}

-- | What the writer knows from one batch to the next.
data Writing = Writing
  { writingOutput :: !Output,
    -- | The last bytes that reached the file were no whole line.
    writingTorn :: !Bool,
    -- | Lines were lost: the operator knows, and how many were it so far?
    writingLost :: !(Maybe Int)
  }

-- | Write until the log is closed. The action tells the operator.
writer :: (String -> IO ()) -> Queue -> Output -> Thread ()
writer report queue output = go (Writing output False Nothing)
  where
    go before = do
      batch <- liftIO (takeBatch queue)
      written <- put before batch
      after <- reopened (batchReopen batch) written
      case batchNext batch of
        Finish waiter
          | null (batchLines batch),
            null (batchReopen batch) -> do
              liftIO (recovered after)
              closeOutput (writingOutput after)
              liftIO (finish queue waiter)
        Finish _ -> go after
        Continue -> awaitBatch queue >> go after

    put before batch
      -- Nothing was tried: what was wrong may still be.
      | null (batchLines batch) = if batchRefused batch == 0 then pure before else lost (batchRefused batch) Nothing before
      | otherwise = do
          let start = ["\n" | writingTorn before]
              text = B.concat (start <> batchLines batch)
          (count, failure) <- writeAll (writingOutput before) text
          let done = B.take count text
              torn = if B.null done then writingTorn before else C.last done /= '\n'
              missing = length (batchLines batch) - (C.count '\n' done - (if count > 0 then length start else 0))
          liftIO (when (missing > 0) (countLost queue missing))
          lost (batchRefused batch + missing) failure before {writingTorn = torn}

    -- Once when it begins, and once when it is over.
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

    -- Whoever asks meanwhile is answered with the next batch.
    reopened [] state = pure state
    reopened waiters state = do
      (ok, state') <- case writingOutput state of
        ToStdout -> pure (True, state)
        old@(ToFile path permissions _) ->
          try (openOutput permissions (LogFile path)) >>= \case
            Right new -> do
              -- It may be the same file, if nobody has renamed it.
              torn <- if writingTorn state then sameFile old new else pure False
              (True, state {writingOutput = new, writingTorn = torn}) <$ closeOutput old
            Left e -> do
              liftIO (report ("the access log cannot be opened again, and the old file is kept: " <> show (e :: IOException)))
              pure (False, state)
      liftIO (for_ waiters (\w -> deliver w (Answered ok)))
      pure state'

-- | Do both write to one file?
sameFile :: Output -> Output -> Thread Bool
sameFile a b = either (\(_ :: IOException) -> False) id <$> try ((==) <$> identity a <*> identity b)
  where
    identity = \case
      ToStdout -> pure Nothing
      ToFile _ _ file -> (\s -> Just (statusDevice s, statusInode s)) <$> fileStatus file

-- | A failure to close says nothing that a failed write had not said.
closeOutput :: Output -> Thread ()
closeOutput = \case
  ToStdout -> pure ()
  ToFile _ _ file -> void (try @_ @IOException (closeFile file))

-- | How many bytes were written, and why no more.
writeAll :: Output -> ByteString -> Thread (Int, Maybe IOException)
writeAll output text = case output of
  ToStdout ->
    -- How much of it has come out before a failure, the handle does not say.
    either (\e -> (0, Just e)) (\() -> (B.length text, Nothing)) <$> try (blocking (B.hPut stdout text >> hFlush stdout))
  ToFile _ _ file ->
    let go count
          | count >= B.length text = pure (count, Nothing)
          | otherwise =
              try (call (Call.WriteFile file (B.drop count text) (-1))) >>= \case
                Right n -> go (count + n)
                Left e -> pure (count, Just e)
     in go 0
