{-# LANGUAGE OverloadedStrings #-}

-- |
-- Access logs that never hold up a worker: entries go into a bounded queue, and one
-- thread writes them out in batches, in the combined log format.
--
-- A log that cannot be written (a full disk) does not stop the service: the operator
-- is told once for each spell, entries are dropped meanwhile and counted, and writing
-- is tried again with the next batch.
module Weft.Http.AccessLog
  ( AccessLog,
    LogTarget (..),
    openAccessLog,
    logEntry,
    closeAccessLog,
    combined,
  )
where

import Control.Exception (IOException, evaluate)
import Control.Monad (unless, void, when)
import Data.Bits (shiftR, (.&.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder qualified as Builder
import Data.ByteString.Char8 qualified as Char8
import Data.ByteString.Lazy qualified as Lazy
import Data.Foldable (for_)
import Data.IORef
import Data.Int (Int64)
import Data.List (intercalate)
import Data.Word (Word8)
import Network.Socket (hostAddress6ToTuple, hostAddressToTuple)
import System.IO (hFlush, stdout)
import Weft
import Weft.File
import Weft.Http.Date (HttpTime (..), formatDate)
import Weft.Http.Request
import Weft.Http.Server.Types
import Weft.Http.Status
import Weft.Kernel (Outcome (..), Waiter, deliver, suspend)
import Weft.Socket (SockAddr (..))

-- | Where lines go.
data LogTarget
  = LogStdout
  | -- | Appended to.
    LogFile !ByteString
  deriving stock (Eq, Show)

-- | A log that takes entries.
data AccessLog = AccessLog
  { logQueue :: !(IORef Pending),
    logReport :: !(String -> IO ())
  }

-- | Lines that wait, newest first, the memory they take and how many were dropped; the
-- writer, if it waits for lines; whether the log was closed, and who waits for that.
data Pending = Pending
  { pendingLines :: [ByteString],
    pendingBytes :: !Int,
    pendingDropped :: !Int,
    pendingWriter :: !(Maybe (Waiter ())),
    pendingState :: !State
  }

data State = Open | Closing !(Waiter ()) | Closed

-- | Bytes of lines that may wait; beyond it entries are dropped.
mostPending :: Int
mostPending = 16_000_000

-- | Open a log and fork its writer. Fails with an 'IOError' if the file cannot be
-- opened. The action is for messages to the operator.
openAccessLog :: LogTarget -> (String -> IO ()) -> Thread AccessLog
openAccessLog target report = do
  put <- case target of
    LogStdout -> pure (\bytes -> blocking (B.hPut stdout bytes >> hFlush stdout))
    LogFile path -> do
      file <- openFileAt CurrentDirectory path Append defaultOpenFlags {openPermissions = 0o640}
      pure (append file)
  queue <- liftIO (newIORef (Pending [] 0 0 Nothing Open))
  let accessLog = AccessLog queue report
  _ <- forkWith defaultForkOptions {forkLabel = "access log"} (writer accessLog put False)
  pure accessLog

-- | Leave an entry for the writer. Does not block.
logEntry :: AccessLog -> Entry -> IO ()
logEntry accessLog entry = do
  -- Now, and not when the writer gets to it: the request's bytes are those of a
  -- buffer that the next request is received into.
  line <- evaluate (combined entry)
  wake <- atomicModifyIORef' (logQueue accessLog) $ \p ->
    if pendingBytes p >= mostPending
      then (p {pendingDropped = pendingDropped p + 1}, Nothing)
      else (p {pendingLines = line : pendingLines p, pendingBytes = pendingBytes p + B.length line + 64, pendingWriter = Nothing}, pendingWriter p)
  for_ wake (\w -> deliver w (Answered ()))

-- | Write what is left and end the writer.
closeAccessLog :: AccessLog -> Thread ()
closeAccessLog accessLog = suspend "the access log to be written" $ \waiter -> do
  (already, wake) <- atomicModifyIORef' (logQueue accessLog) $ \p -> case pendingState p of
    Open -> (p {pendingState = Closing waiter, pendingWriter = Nothing}, (False, pendingWriter p))
    _ -> (p, (True, Nothing))
  when already (void (deliver waiter (Answered ())))
  for_ wake (\w -> deliver w (Answered ()))

-- | Take batches and write them, until the log is closed. The flag: the last batch
-- could not be written, and the operator knows.
writer :: AccessLog -> (ByteString -> Thread ()) -> Bool -> Thread ()
writer accessLog put failing = do
  (batch, dropped, state) <- liftIO . atomicModifyIORef' (logQueue accessLog) $ \p ->
    (p {pendingLines = [], pendingBytes = 0, pendingDropped = 0}, (pendingLines p, pendingDropped p, pendingState p))
  failing' <-
    if null batch
      then pure failing
      else
        try (put (B.concat (reverse batch))) >>= \case
          Right () -> pure False
          Left e -> do
            liftIO . unless failing $ logReport accessLog ("the access log cannot be written: " <> show (e :: IOException))
            pure True
  when (dropped > 0) . liftIO $ logReport accessLog (show dropped <> " access log entries were dropped")
  case state of
    Closing waiter | null batch -> liftIO $ do
      atomicModifyIORef' (logQueue accessLog) (\p -> (p {pendingState = Closed}, ()))
      void (deliver waiter (Answered ()))
    _ -> do
      suspend "access log entries" $ \waiter -> do
        now' <- atomicModifyIORef' (logQueue accessLog) $ \p -> case pendingState p of
          Open | null (pendingLines p) -> (p {pendingWriter = Just waiter}, False)
          _ -> (p, True)
        when now' (void (deliver waiter (Answered ())))
      writer accessLog put failing'

-- | One line in the combined log format, with its line end. What a client chose is
-- escaped: a line is one line, and quotes are in place.
combined :: Entry -> ByteString
combined entry =
  Lazy.toStrict . Builder.toLazyByteString $
    Builder.byteString (host (entryPeer entry))
      <> " - - ["
      <> Builder.byteString (logDate (entryTime entry))
      <> "] \""
      <> maybe "-" requestLine (entryRequest entry)
      <> "\" "
      <> Builder.intDec (statusNumber (entryStatus entry))
      <> Builder.char7 ' '
      <> Builder.int64Dec (entryBytes entry)
      <> " \""
      <> field "referer"
      <> "\" \""
      <> field "user-agent"
      <> "\"\n"
  where
    field name = maybe "-" escaped (entryRequest entry >>= lookupField name . requestFields)
    requestLine r =
      escaped (methodName (requestMethod r)) <> " " <> escaped (requestTarget r) <> (case requestVersion r of Http10 -> " HTTP/1.0"; Http11 -> " HTTP/1.1")
    statusNumber = statusCode
    escaped = foldMap one . B.unpack
    one byte
      | byte == 0x22 || byte == 0x5c = Builder.char7 '\\' <> Builder.word8 byte
      | byte < 0x20 || byte >= 0x7f = "\\x" <> Builder.word8HexFixed byte
      | otherwise = Builder.word8 byte

-- | The address without its port; an IPv4 peer of an IPv6 socket as IPv4.
host :: SockAddr -> ByteString
host = \case
  SockAddrUnix _ -> "unix:"
  SockAddrInet _ address -> dotted (hostAddressToTuple address)
  SockAddrInet6 _ _ address _ -> case hostAddress6ToTuple address of
    (0, 0, 0, 0, 0, 0xffff, high, low) -> dotted (byte 8 high, byte 0 high, byte 8 low, byte 0 low)
    _ -> Char8.pack (takeWhile (/= ']') (drop 1 (show (SockAddrInet6 0 0 address 0))))
  where
    dotted (a, b, c, d) = Char8.pack (intercalate "." (map show [a, b, c, d]))
    byte by w = fromIntegral ((w `shiftR` by) .&. 0xff) :: Word8

-- | @21/Nov/2026:08:53:34 +0000@, out of @Sat, 21 Nov 2026 08:53:34 GMT@.
logDate :: Int64 -> ByteString
logDate second =
  B.concat [part 5 2, "/", part 8 3, "/", part 12 4, ":", part 17 8, " +0000"]
  where
    date = formatDate (HttpTime second)
    part from count = B.take count (B.drop from date)
