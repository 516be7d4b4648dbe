-- | Access logs that never block a worker: one thread writes the entries of a bounded queue in batches,
-- in the common, the combined or a JSON format.
--
-- A log that cannot be written (a full disk) does not stop the service: the log reports that once,
-- drops and counts entries, and tries again with each batch.
--
-- To rotate, rename the file and call 'reopenAccessLog', as on @SIGHUP@: no entry is lost or doubled.
module Weft.Http.AccessLog
  ( -- * Logs
    AccessLog,
    openAccessLogWith,
    logEntry,
    reopenAccessLog,
    closeAccessLog,
    entriesDropped,

    -- * Settings
    AccessLogSettings (..),
    defaultAccessLogSettings,
    LogTarget (..),
    LogFormat (..),

    -- * Lines
    renderLine,
  )
where

import Control.Exception (evaluate)
import Data.ByteString (ByteString)
import Data.IORef
import Foreign.C.Types (CInt)
import Weft
import Weft.Http.AccessLog.Line
import Weft.Http.AccessLog.Writer
import Weft.Http.Server.Types
import Weft.Internal.Os.Report (reportToStderr)
import Weft.Mask (mask_)

-- | A log that takes entries.
data AccessLog = AccessLog
  { logQueue :: !Queue,
    logFormat :: !LogFormat,
    logMost :: !Int,
    -- | The stamp of the last line, shared by all lines of its second.
    logStamp :: !(IORef Stamp)
  }

-- | The destination of a log, its format and its bounds.
data AccessLogSettings = AccessLogSettings
  { -- | Default: standard output.
    accessLogTarget :: !LogTarget,
    -- | Default: 'Combined'.
    accessLogFormat :: !LogFormat,
    -- | Bound of the queue in bytes, 64 for each line included; default 16,000,000. More is dropped.
    accessLogQueue :: !Int,
    -- | Permissions of a new file, before the process's umask; default 0640.
    accessLogPermissions :: !CInt,
    -- | Reports a line to the operator; default: standard error. It must not block.
    accessLogReport :: !(String -> IO ())
  }

-- | The defaults named at each field.
defaultAccessLogSettings :: AccessLogSettings
defaultAccessLogSettings = AccessLogSettings LogStdout Combined 16_000_000 0o640 reportToStderr

-- | Open a log and fork its writer. Throws an 'IOError' if the file cannot be opened.
openAccessLogWith :: AccessLogSettings -> Thread AccessLog
openAccessLogWith settings = do
  output <- openOutput (accessLogPermissions settings) (accessLogTarget settings)
  queue <- liftIO newQueue
  -- Masked, so that an asynchronous exception does not end the writer. It waits interruptibly.
  _ <- mask_ (forkWith defaultForkOptions {forkLabel = "access log"} (writer (accessLogReport settings) queue output))
  liftIO (AccessLog queue (accessLogFormat settings) (accessLogQueue settings) <$> newIORef (stampOf 0))

-- | Enqueue an entry for the writer. Does not block.
logEntry :: AccessLog -> Entry -> IO ()
logEntry accessLog entry = do
  known <- readIORef (logStamp accessLog)
  stamp <-
    if stampSecond known == entryTime entry
      then pure known
      else let new = stampOf (entryTime entry) in new <$ writeIORef (logStamp accessLog) new
  -- Rendered now: the entry's strings would keep all bytes that were received with the request.
  evaluate (render (logFormat accessLog) stamp entry) >>= enqueue (logQueue accessLog) (logMost accessLog)

-- | Reopen the log's file by its name after it was renamed, and wait for that: later entries go to the
-- new file. 'False' if it cannot be opened: the log reports that, and keeps the old one.
reopenAccessLog :: AccessLog -> Thread Bool
reopenAccessLog = askReopen . logQueue

-- | Write the queued entries, wait for that, and end the writer. Drops later entries.
closeAccessLog :: AccessLog -> Thread ()
closeAccessLog = askClose . logQueue

-- | Entries dropped since the log was opened: no room, or not writable. From any thread.
entriesDropped :: AccessLog -> IO Int
entriesDropped = droppedSoFar . logQueue

-- | Render the line of an entry, with its line end.
renderLine :: LogFormat -> Entry -> ByteString
renderLine format entry = render format (stampOf (entryTime entry)) entry
