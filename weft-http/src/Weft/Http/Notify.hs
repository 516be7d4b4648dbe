-- |
-- Telling a service manager what the service is doing, as @sd_notify(3)@ does: that it is
-- ready, reloads or stops, and that it is alive. Without a manager that wants to know
-- nothing is sent.
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

-- | The way to the service manager, if there is one.
data Notifier = Notifier
  { notifierSocket :: !(Maybe (Socket, SockAddr)),
    -- | How often it wants to hear that we live.
    notifierWatch :: !(Maybe Duration),
    notifierReport :: !(String -> IO ()),
    -- | The operator was told that messages do not arrive.
    notifierFailed :: !(IORef Bool)
  }

-- | Find out from the environment who wants to know, and remove the variables, so that no
-- child speaks for us: call it once, early. What is wrong with them, and later that messages
-- do not arrive, the operator is told once; the service goes on.
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

-- | Of no use any more.
closeNotifier :: Notifier -> Thread ()
closeNotifier notifier = for_ (notifierSocket notifier) (closeSocket . fst)

-- | The address in @NOTIFY_SOCKET@: an absolute path, or @\@@ and a name without a file.
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
    -- With the NUL behind a path.
    longest = 107

-- | How often the service manager wants to hear from us, by @WATCHDOG_USEC@ and
-- @WATCHDOG_PID@.
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

-- | The service has started, or has loaded its configuration again.
notifyReady :: Notifier -> Thread ()
notifyReady notifier = notify notifier ["READY=1"]

-- | It loads its configuration again; 'notifyReady' follows.
notifyReloading :: Notifier -> Thread ()
notifyReloading notifier = do
  t <- now
  notify notifier ["RELOADING=1", "MONOTONIC_USEC=" <> C.pack (show (instantNanoseconds t `div` 1000))]

-- | It is about to stop.
notifyStopping :: Notifier -> Thread ()
notifyStopping notifier = notify notifier ["STOPPING=1"]

-- | What it is doing, for people, on one line.
notifyStatus :: Notifier -> ByteString -> Thread ()
notifyStatus notifier text = notify notifier ["STATUS=" <> B.map (max 0x20) text]

-- | Send one message of assignments such as @READY=1@. Never fails: what cannot be sent the
-- operator is told, once.
notify :: Notifier -> [ByteString] -> Thread ()
notify notifier assignments = for_ (notifierSocket notifier) $ \(socket, address) ->
  try (sendTo socket (C.intercalate "\n" assignments) address) >>= \case
    Right () -> pure ()
    Left e -> liftIO $ do
      told <- atomicModifyIORef' (notifierFailed notifier) (True,)
      unless told (notifierReport notifier ("the service manager cannot be notified: " <> show (e :: IOException)))

-- | How often the service manager wants to hear that the service lives. If it does not, it
-- ends the process and starts another.
watchdogInterval :: Notifier -> Maybe Duration
watchdogInterval = notifierWatch

-- | Fork a thread that tells the service manager, twice in each interval, that the service
-- lives, as long as the check says so. Without a watchdog there is none.
watchOver :: Notifier -> Thread Bool -> Thread ()
watchOver notifier check = for_ (notifierWatch notifier) $ \interval ->
  -- Masked: what is thrown at a worker must not end it. It sleeps interruptibly.
  void . mask_ . forkWith defaultForkOptions {forkLabel = "watchdog"} . forever $ do
    good <- check
    when good (notify notifier ["WATCHDOG=1"])
    sleep (half interval)
  where
    half interval = nanoseconds (fromIntegral (durationNanoseconds interval `div` 2))
