-- | Notifies a service manager (@sd_notify(3)@), if there is one: ready, reloading, stopping, alive.
--
-- @
-- notifier <- 'openNotifier' report
-- 'watchOver' notifier (pure True)
-- 'notifyReady' notifier
-- @
module Weft.Http.Notify
  ( -- * The service manager
    Notifier,
    openNotifier,
    closeNotifier,

    -- * Messages
    notifyReady,
    notifyReloading,
    notifyStopping,
    notifyStatus,
    notify,

    -- * Watchdog
    watchdogInterval,
    watchOver,

    -- * Parsing
    parseNotifySocket,
    parseWatchdog,
  )
where

import Control.Exception (IOException)
import Control.Monad (forever, unless, void, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Foldable (for_)
import Data.IORef
import System.Posix.Env.ByteString (getEnv, unsetEnv)
import System.Posix.Process (getProcessID)
import System.Posix.Types (ProcessID)
import Weft
import Weft.Http.Internal.Ascii (Decimal (..), decimal)
import Weft.Mask (mask_)
import Weft.Socket
import Weft.Time

-- | The connection to the service manager, if any.
data Notifier = Notifier
  { notifierSocket :: !(Maybe (Socket, SockAddr)),
    -- | The interval of the watchdog.
    notifierWatch :: !(Maybe Duration),
    notifierReport :: !(String -> IO ()),
    -- | A failure to send was reported.
    notifierFailed :: !(IORef Bool)
  }

-- | Open the notifier named in the environment, and remove the variables, so that no child process uses
-- them: call it once, early. The action reports invalid variables and the first failure to send.
openNotifier :: (String -> IO ()) -> Thread Notifier
openNotifier report = do
  (given, usec, pid, me) <- liftIO $ do
    values <- (,,,) <$> getEnv "NOTIFY_SOCKET" <*> getEnv "WATCHDOG_USEC" <*> getEnv "WATCHDOG_PID" <*> getProcessID
    mapM_ unsetEnv ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"]
    pure values
  address <- orReport (traverse parseNotifySocket given)
  watch <- orReport (parseWatchdog me usec pid)
  socket <- case address of
    Nothing -> pure Nothing
    Just a ->
      try (openSocket AF_UNIX Datagram) >>= \case
        Right s -> pure (Just (s, a))
        Left e -> Nothing <$ liftIO (report ("no socket to notify the service manager: " <> show (e :: IOException)))
  liftIO (Notifier socket (socket *> watch) report <$> newIORef False)
  where
    orReport = either (\why -> Nothing <$ liftIO (report why)) pure

-- | Close the notifier; it must not be used afterwards.
closeNotifier :: Notifier -> Thread ()
closeNotifier notifier = for_ (notifierSocket notifier) (closeSocket . fst)

-- | Parse @NOTIFY_SOCKET@: an absolute path, or @\@@ and an abstract name.
--
-- >>> parseNotifySocket "/run/systemd/notify"
-- Right /run/systemd/notify
parseNotifySocket :: ByteString -> Either String SockAddr
parseNotifySocket name
  | B.length name < 2 || C.head name `notElem` ("/@" :: String) = wrong "is neither a path nor an abstract name"
  | B.length name > longest = wrong "is too long"
  | C.head name == '@' = Right (SockAddrUnix ('\0' : C.unpack (B.drop 1 name)))
  | otherwise = Right (SockAddrUnix (C.unpack name))
  where
    wrong why = Left ("NOTIFY_SOCKET " <> why <> ": " <> C.unpack name)
    -- Leaves room for a final NUL.
    longest = 107

-- | The interval of the watchdog from @WATCHDOG_USEC@, if @WATCHDOG_PID@ is ours or absent.
parseWatchdog :: ProcessID -> Maybe ByteString -> Maybe ByteString -> Either String (Maybe Duration)
parseWatchdog me usec pid = case usec of
  Nothing -> Right Nothing
  Just text -> case (number text, traverse number pid) of
    (_, Nothing) -> Left ("WATCHDOG_PID is no number: " <> maybe "" C.unpack pid)
    (Just n, Just forWhom)
      | n > 0 -> Right (if maybe True (== fromIntegral me) forWhom then Just (microseconds n) else Nothing)
    _ -> Left ("WATCHDOG_USEC is no number of microseconds: " <> C.unpack text)
  where
    number :: ByteString -> Maybe Int
    number text = case decimal text of
      Decimal n | n <= fromIntegral (maxBound :: Int) `div` 1000 -> Just (fromIntegral n)
      _ -> Nothing

-- | Notify that the service has started, or has reloaded its configuration.
notifyReady :: Notifier -> Thread ()
notifyReady notifier = notify notifier ["READY=1"]

-- | Notify that the service reloads its configuration; 'notifyReady' follows.
notifyReloading :: Notifier -> Thread ()
notifyReloading notifier = do
  t <- now
  notify notifier ["RELOADING=1", "MONOTONIC_USEC=" <> C.pack (show (instantNanoseconds t `div` 1000))]

-- | Notify that the service is about to stop.
notifyStopping :: Notifier -> Thread ()
notifyStopping notifier = notify notifier ["STOPPING=1"]

-- | Send a status for people, on one line.
notifyStatus :: Notifier -> ByteString -> Thread ()
notifyStatus notifier text = notify notifier ["STATUS=" <> B.map (max 0x20) text]

-- | Send one message of assignments such as @READY=1@. Never fails; reports the first error.
notify :: Notifier -> [ByteString] -> Thread ()
notify notifier assignments = for_ (notifierSocket notifier) $ \(socket, address) ->
  try (sendTo socket (C.intercalate "\n" assignments) address) >>= \case
    Right () -> pure ()
    Left e -> liftIO $ do
      told <- atomicModifyIORef' (notifierFailed notifier) (True,)
      unless told (notifierReport notifier ("the service manager cannot be notified: " <> show (e :: IOException)))

-- | How often the service manager expects a sign of life. Without one it restarts the service.
watchdogInterval :: Notifier -> Maybe Duration
watchdogInterval = notifierWatch

-- | Fork a thread that sends a sign of life twice in each interval while the check succeeds.
watchOver :: Notifier -> Thread Bool -> Thread ()
watchOver notifier check = for_ (notifierWatch notifier) $ \interval ->
  -- Masked, so that an asynchronous exception does not end it. It sleeps interruptibly.
  void . mask_ . forkWith defaultForkOptions {forkLabel = "watchdog"} . forever $ do
    good <- check
    when good (notify notifier ["WATCHDOG=1"])
    sleep (nanoseconds (fromIntegral (durationNanoseconds interval `div` 2)))
