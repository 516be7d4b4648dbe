-- |
-- Description : A log on the disk that survives a crash
--
-- A file of batches. Each is written at the end and synced before the next is begun, so a
-- crash can spoil one batch only, the last. When the log is opened, a spoilt batch at
-- its end is cut off: it was never acknowledged. One that whole batches follow was not
-- spoilt by a crash but later, by the disk; what it held may have been acknowledged, and
-- such a log is refused.
--
-- The log comes into being under another name and is renamed when it is on the disk; so it
-- always begins with its header, and rewriting it is the same thing.
--
-- Operations raise 'IOError' for what the system refuses. A log belongs to one thread.
module Replicated.Log
  ( Log,
    Record,
    withLog,
    appendBatch,
    syncLog,
    rewriteLog,
    logSize,
    LogDamaged (..),
  )
where

import Control.Monad (forM_, unless, when)
import Control.Monad.Catch (bracketOnError, mask_)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Data.List (unfoldr)
import Replicated.LogFormat
import System.IO.Error (isDoesNotExistError)
import Weft
import Weft.File

-- | An open log.
data Log = Log
  { logDirectory :: !ByteString,
    -- | The file, and how much of it is the log. The rest of the file is left of a
    -- batch that could not be written, and the next one is written over it.
    logState :: !(IORef (File, Int))
  }

-- | Open the log of a directory while the body runs, which gets all its records, oldest
-- first. They are on the disk. Directory and log are made if they are not there. Raises
-- 'LogDamaged'.
withLog :: ByteString -> (Log -> [Record] -> Thread a) -> Thread a
withLog directory body = do
  there <- exists directory
  unless there $ makeDirectory directory
  bracket openLog closeLog $ \opened -> do
    (file, size) <- liftIO (readIORef (logState opened))
    bytes <- readAt file 0 size
    (records, whole) <- either throwM pure (scan bytes)
    when (whole < size) $ do
      setFileSize file (fromIntegral whole)
      liftIO (writeIORef (logState opened) (file, whole))
    -- The records found may be in the system's memory only: perhaps the process that wrote it did not
    -- live to see it on the disk, and the machine did not crash.
    sync file >> syncDirectory directory >> syncDirectory (parentOf directory)
    body opened records
  where
    openLog = do
      there <- exists (logName directory)
      unless there $ writeNew directory [] >>= closeFile . fst >> install directory
      size <- fromIntegral . statusSize <$> pathStatus (logName directory)
      file <- openFile (logName directory) ReadWrite
      Log directory <$> liftIO (newIORef (file, size))
    closeLog opened = liftIO (readIORef (logState opened)) >>= closeFile . fst

-- | Write records after all others. They are not on the disk before 'syncLog'. When
-- this fails, the log is as it was.
appendBatch :: Log -> [Record] -> Thread ()
appendBatch opened records = do
  (file, size) <- liftIO (readIORef (logState opened))
  let batch = encodeBatch size records
  writeAt file (fromIntegral size) batch
  liftIO (writeIORef (logState opened) (file, size + ByteString.length batch))

-- | Wait until all records are on the disk. When this fails it is not known which of them
-- are, now or later: the system forgets what it could not write.
syncLog :: Log -> Thread ()
syncLog opened = liftIO (readIORef (logState opened)) >>= syncData . fst

-- | Replace all records by these. A crash leaves the old ones or the new ones. Where
-- there is no room for the new ones, the old ones stay.
rewriteLog :: Log -> [Record] -> Thread ()
rewriteLog opened records = mask_ $ do
  (old, _) <- liftIO (readIORef (logState opened))
  try (writeNew directory records) >>= \case
    Left (_ :: IOError) -> handle (\(_ :: IOError) -> pure ()) (removePath (newName directory))
    Right new -> do
      install directory `onException` closeFile (fst new)
      liftIO (writeIORef (logState opened) new)
      closeFile old
  where
    directory = logDirectory opened

-- | In bytes.
logSize :: Log -> Thread Int
logSize opened = snd <$> liftIO (readIORef (logState opened))

-- | A log with these records, complete and on the disk, but under another name.
writeNew :: ByteString -> [Record] -> Thread (File, Int)
writeNew directory records = bracketOnError create closeFile $ \file -> do
  forM_ (zip offsets pieces) $ \(offset, piece) -> writeAt file (fromIntegral offset) piece
  (file, last offsets) <$ sync file
  where
    create = openFileAt CurrentDirectory (newName directory) ReadWrite defaultOpenFlags {openTruncate = True}
    pieces = header : zipWith encodeBatch (drop 1 offsets) (takeWhile (not . null) (unfoldr (Just . splitAt 100) records))
    offsets = scanl (+) 0 (map ByteString.length pieces)

-- | Give it the name of the log.
install :: ByteString -> Thread ()
install directory = do
  renamePath (newName directory) (logName directory)
  syncDirectory directory

logName, newName :: ByteString -> ByteString
logName directory = directory <> "/log"
newName directory = directory <> "/log.new"

exists :: ByteString -> Thread Bool
exists path = handle absent (True <$ pathStatus path)
  where
    absent e = if isDoesNotExistError e then pure False else throwM e

-- | Wait until the names in a directory are on the disk.
syncDirectory :: ByteString -> Thread ()
syncDirectory path = withFile path Directory sync

parentOf :: ByteString -> ByteString
parentOf path = case Char8.dropWhileEnd (/= '/') (Char8.dropWhileEnd (== '/') path) of
  "" -> "."
  above -> above
