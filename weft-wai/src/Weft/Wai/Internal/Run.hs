{-# OPTIONS_HADDOCK not-home #-}

-- | A run that serves one application, from the socket to the end of the last connection.
module Weft.Wai.Internal.Run
  ( run,
    runEnv,
    runSettings,
    runSettingsSocket,
    withApplication,
    withApplicationSettings,
    testWithApplication,
    testWithApplicationSettings,
    openFreePort,
  )
where

import Control.Concurrent (forkIO, myThreadId, throwTo)
import Control.Concurrent.Async (race)
import Control.Concurrent.MVar
import Control.Exception (IOException, SomeException)
import Control.Exception qualified as E
import Control.Monad (unless, void, when)
import Data.IORef
import Data.Streaming.Network (bindPortTCP, bindRandomPortTCP)
import Foreign.C.Types (CInt)
import Network.Socket qualified as Network
import Network.Wai (Application)
import System.Environment (lookupEnv)
import Text.Read (readMaybe)
import Weft hiding (Settings, defaultSettings, myThreadId, run)
import Weft qualified
import Weft.Http.Server (drain, serve)
import Weft.IVar
import Weft.Internal.Core.SystemCall qualified as Internal
import Weft.Internal.Os.Descriptor (newDescriptor)
import Weft.Outside (RunnerClosed (..), startThread, withRunner)
import Weft.Socket (Socket, withSocket)
import Weft.Wai.Internal.Application
import Weft.Wai.Internal.Files
import Weft.Wai.Internal.Settings

-- | Serve an application on this port, with the default settings. Returns only with an exception.
run :: Int -> Application -> IO ()
run port = runSettings defaultSettings {settingsPort = port}

-- | 'run' on the port in the environment variable @PORT@, if set.
runEnv :: Int -> Application -> IO ()
runEnv port application =
  lookupEnv "PORT" >>= \case
    Nothing -> run port application
    Just text -> case readMaybe text of
      Just named -> run named application
      Nothing -> E.throwIO (userError ("the environment variable PORT is no port: " <> show text))

-- | Serve an application as the settings say. Returns once it was told to
-- ('Weft.Wai.setInstallShutdownHandler') and the connections have ended.
runSettings :: Settings -> Application -> IO ()
runSettings settings application = case settingsListen settings of
  Just listening -> serveWith settings listening application
  Nothing -> E.bracket (bindPortTCP (settingsPort settings) (settingsHost settings)) Network.close $ \socket ->
    runSettingsSocket settings socket application

-- | Serve on a listening socket, which the server closes when it ends.
runSettingsSocket :: Settings -> Network.Socket -> Application -> IO ()
runSettingsSocket settings given application =
  E.bracket (adopt given) abandon $ \(Adopted listener begun _) ->
    serveWith settings (listener <$ liftIO (writeIORef begun True)) application

-- | Serve on the listening socket that this opens in the run.
serveWith :: Settings -> Thread Socket -> Application -> IO ()
serveWith settings listening application =
  Weft.runWith (settingsRuntime settings Weft.defaultSettings) . withRunner $ \runner ->
    withSocket listening $ \listener -> bracket newFiles closeFiles $ \files -> do
      server <- newServerFor settings runner files application
      end <- newIVarNamed "the end of the service"
      failure <- liftIO (newIORef Nothing)
      let stop = startThread runner (void (fill end ())) `E.catch` \RunnerClosed -> pure ()
      liftIO (settingsInstallShutdownHandler settings stop)
      liftIO (settingsBeforeMainLoop settings)
      _ <-
        forkWith defaultForkOptions {forkLabel = "acceptor"} $
          serve server listener `catch` \e -> liftIO (writeIORef failure (Just (e :: IOException))) >> void (fill end ())
      readIVar end
      void (drain server [listener])
      liftIO (readIORef failure) >>= mapM_ throwM

-- | A socket that was taken over, whether there is a thread that will close it, and its number.
data Adopted = Adopted !Socket !(IORef Bool) !CInt

-- | Take a socket over from the package @network@.
adopt :: Network.Socket -> IO Adopted
adopt given = do
  address <- Network.getSocketName given
  let family = case address of
        Network.SockAddrInet {} -> Network.AF_INET
        Network.SockAddrInet6 {} -> Network.AF_INET6
        Network.SockAddrUnix {} -> Network.AF_UNIX
  number <- Network.socketToFd given
  Network.setNonBlockIfNeeded number
  descriptor <- newDescriptor number
  begun <- newIORef False
  pure (Adopted (Internal.Socket descriptor family Network.Stream) begun number)

-- | Close it if the run did not, because it has not come so far.
abandon :: Adopted -> IO ()
abandon (Adopted _ begun number) = do
  closed <- readIORef begun
  unless closed (Network.mkSocket number >>= Network.close)

-- | Serve an application on a free port while the action runs, which is given the port.
withApplication :: IO Application -> (Int -> IO a) -> IO a
withApplication = withApplicationSettings defaultSettings

-- | 'withApplication' with settings, whose port is ignored.
withApplicationSettings :: Settings -> IO Application -> (Int -> IO a) -> IO a
withApplicationSettings settings make action = do
  application <- make
  E.bracket openFreePort (Network.close . snd) $ \(port, socket) -> do
    ready <- newEmptyMVar
    let settings' = settings {settingsBeforeMainLoop = settingsBeforeMainLoop settings >> putMVar ready ()}
    race (runSettingsSocket settings' socket application) (takeMVar ready >> action port)
      >>= either (\() -> E.throwIO (userError "the server has ended before its test")) pure

-- | 'withApplication' that raises exceptions of the application in the calling thread, too.
testWithApplication :: IO Application -> (Int -> IO a) -> IO a
testWithApplication = testWithApplicationSettings defaultSettings

-- | 'testWithApplication' with settings.
testWithApplicationSettings :: Settings -> IO Application -> (Int -> IO a) -> IO a
testWithApplicationSettings settings make action = do
  caller <- myThreadId
  application <- make
  let watched request respond =
        application request respond `E.catch` \e -> do
          -- A worker must not wait until the exception is received.
          when (defaultShouldDisplayException e) (void (forkIO (throwTo caller (e :: SomeException))))
          E.throwIO e
  withApplicationSettings settings (pure watched) action

-- | A free port on the loopback address, and a socket that listens there.
openFreePort :: IO (Int, Network.Socket)
openFreePort = bindRandomPortTCP "127.0.0.1"
