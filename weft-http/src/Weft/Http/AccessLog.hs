-- |
-- Access logs that never hold up a worker: entries go into a bounded queue, and one
-- thread writes them out in batches, in the common, the combined or a JSON format.
--
-- A log that cannot be written (a full disk) does not stop the service: the operator
-- is told once for each spell, entries are dropped meanwhile and counted, and writing
-- is tried again with the next batch.
--
-- To rotate, rename the file and have it opened again ('reopenAccessLog'), as with
-- @SIGHUP@: no entry is lost, and none is in both files.
module Weft.Http.AccessLog
  ( -- * Logs
    AccessLog,
    openAccessLogWith,
    openAccessLog,
    logEntry,
    logLine,
    reopenAccessLog,
    closeAccessLog,
    entriesDropped,

    -- * Settings
    AccessLogSettings (..),
    defaultAccessLogSettings,
    LogTarget (..),
    LogFormat (..),

    -- * Lines
    Line (..),
    LineRequest (..),
    lineOf,
    renderLine,
    combined,
  )
where

import Control.Exception (evaluate)
import Data.ByteString (ByteString)
import Data.IORef
import Foreign.C.Types (CInt)
import Weft
import Weft.Http.AccessLog.Line
import Weft.Http.AccessLog.Queue
import Weft.Http.AccessLog.Writer
import Weft.Http.Request
import Weft.Http.Server.Types
import Weft.Http.Status
import Weft.Internal.Report (reportToStderr)
import Weft.Mask (mask_)

-- | A log that takes entries.
data AccessLog = AccessLog
  { logQueue :: !Queue,
    logFormat :: !LogFormat,
    logMost :: !Int,
    -- | Of the last line; those of one second share it.
    logStamp :: !(IORef Stamp)
  }

-- | How a log is kept.
data AccessLogSettings = AccessLogSettings
  { -- | Default: standard output.
    accessLogTarget :: !LogTarget,
    -- | Default: 'Combined'.
    accessLogFormat :: !LogFormat,
    -- | Bytes of lines that may wait for the writer, 64 more for each line; default
    -- 16,000,000. Beyond it entries are dropped.
    accessLogQueue :: !Int,
    -- | Of a file that is made, before the process's mask; default 0640.
    accessLogPermissions :: !CInt,
    -- | Told what the operator should know, a line each; default: standard error. It must
    -- not block.
    accessLogReport :: !(String -> IO ())
  }

-- | The defaults named at each field.
defaultAccessLogSettings :: AccessLogSettings
defaultAccessLogSettings = AccessLogSettings LogStdout Combined 16_000_000 0o640 reportToStderr

-- | Open a log and fork its writer. Fails with an 'IOError' if the file cannot be
-- opened.
openAccessLogWith :: AccessLogSettings -> Thread AccessLog
openAccessLogWith settings = do
  output <- openOutput (accessLogPermissions settings) (accessLogTarget settings)
  queue <- liftIO newQueue
  -- Masked: what is thrown at a worker must not end it. It waits interruptibly.
  _ <- mask_ (forkWith defaultForkOptions {forkLabel = "access log"} (writer (accessLogReport settings) queue output))
  liftIO (AccessLog queue (accessLogFormat settings) (accessLogQueue settings) <$> newIORef (stampOf 0))

-- | A log in the combined format. The action is for messages to the operator.
openAccessLog :: LogTarget -> (String -> IO ()) -> Thread AccessLog
openAccessLog target report = openAccessLogWith defaultAccessLogSettings {accessLogTarget = target, accessLogReport = report}

-- | Leave an entry for the writer. Does not block.
logEntry :: AccessLog -> Entry -> IO ()
logEntry accessLog = logLine accessLog . lineOf

-- | The same with a line of your own making.
logLine :: AccessLog -> Line -> IO ()
logLine accessLog line = do
  known <- readIORef (logStamp accessLog)
  stamp <-
    if stampSecond known == lineTime line
      then pure known
      else let new = stampOf (lineTime line) in new <$ writeIORef (logStamp accessLog) new
  -- Now, and not when the writer gets to it: the request's bytes are those of a
  -- buffer that the next request is received into.
  evaluate (render (logFormat accessLog) stamp line) >>= enqueue (logQueue accessLog) (logMost accessLog)

-- | Open the file of the log again by its name, for it has been renamed: entries that were
-- left before go to the old file, those that are left after this returns to the new one,
-- and those meanwhile to one of the two. Answers whether it could be opened; if not, the
-- old file is kept and the operator told. Of standard output there is nothing to open.
reopenAccessLog :: AccessLog -> Thread Bool
reopenAccessLog = askReopen . logQueue

-- | Write what is left and end the writer. Entries that come later are not written.
closeAccessLog :: AccessLog -> Thread ()
closeAccessLog = askClose . logQueue

-- | How many entries were lost since the log was opened, for want of room or because they
-- could not be written. From any thread.
entriesDropped :: AccessLog -> IO Int
entriesDropped = droppedSoFar . logQueue

-- | What an entry says.
lineOf :: Entry -> Line
lineOf entry =
  Line
    { lineClient = entryPeer entry,
      lineTime = entryTime entry,
      lineRequest = request <$> entryRequest entry,
      lineStatus = statusCode (entryStatus entry),
      lineBytes = entryBytes entry,
      lineDuration = Just (entryDuration entry),
      lineTls = securityVersion <$> (entryRequest entry >>= clientSecurity . requestClient)
    }
  where
    request r =
      LineRequest
        { lineMethod = methodName (requestMethod r),
          lineTarget = requestTarget r,
          lineVersion = case requestVersion r of Http10 -> "HTTP/1.0"; Http11 -> "HTTP/1.1",
          lineHost = requestHost r,
          lineReferer = lookupField "referer" (requestFields r),
          lineUserAgent = lookupField "user-agent" (requestFields r)
        }

-- | One line with its line end, as 'logLine' leaves it for the writer.
renderLine :: LogFormat -> Line -> ByteString
renderLine format line = render format (stampOf (lineTime line)) line

-- | An entry in the combined format.
combined :: Entry -> ByteString
combined = renderLine Combined . lineOf
