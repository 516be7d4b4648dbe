-- |
-- Description : Runs that talk to each other, and links that lose packets
module Support
  ( -- * Runs
    ownSettings,
    ownSettingsWith,
    twoRuns,
    exchange,
    shortConnections,

    -- * Bytes
    content,

    -- * Threads
    beside,

    -- * Links
    roughLink,
  )
where

import Control.Concurrent (newEmptyMVar, putMVar, takeMVar)
import Control.Concurrent qualified as Ghc
import Control.Exception (SomeException, throwIO)
import Control.Exception qualified as Exception
import Control.Monad (forM, forM_, unless)
import Data.Bits (shiftL, shiftR, xor)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.IORef
import Data.Word (Word64)
import Test.Tasty.HUnit
import Weft
import Weft.Socket
import Weft.Tcp.Connection (Settings (..))
import Weft.Tcp.Connection qualified as Tcp
import Weft.Tcp.Device
import Weft.Tcp.Packet (Address)
import Weft.Tcp.Stack
import Weft.Test.Loopback (toEnd)

-- | A run over a stack of its own, with short times for repairs. Its end waits for what is still
-- to be sent, however slow the machine is.
ownSettings :: IO Device -> Address -> Weft.Settings
ownSettings = ownSettingsWith id

-- | 'ownSettings' with other settings of the stack.
ownSettingsWith :: (TcpSettings -> TcpSettings) -> IO Device -> Address -> Weft.Settings
ownSettingsWith change device address =
  defaultSettings
    { settingWorkers = Just 1,
      settingKernel = withTcp (change (defaultTcpSettings device [address]) {tcpConnections = Tcp.defaultSettings {settingMinimumRto = 20000, settingAckDelay = 5000}, tcpLinger = 60_000_000}) (systemKernel defaultSystemSettings)
    }

-- | A server and a client in runs of their own; what the client answers. The server says when it
-- is ready, and the client waits for that.
twoRuns :: Weft.Settings -> Weft.Settings -> (IO () -> Thread ()) -> (Thread () -> Thread a) -> IO a
twoRuns serverRun clientRun server client = do
  ready <- newEmptyMVar
  ended <- newEmptyMVar
  _ <- Ghc.forkOS (Exception.try (runWith serverRun (server (putMVar ready ()))) >>= putMVar ended)
  result <- runWith clientRun (client (blocking (takeMVar ready)))
  takeMVar ended >>= either (\e -> throwIO (e :: SomeException)) pure
  pure result

-- | Both send the given number of bytes at once, and compare what comes. The server's run, the client's, and
-- the server's address.
exchange :: Weft.Settings -> Weft.Settings -> HostName -> Int -> IO ()
exchange serverRun clientRun host size = do
  got <- twoRuns serverRun clientRun server client
  assertBool "the server's bytes, unchanged" (got == content size 2)
  where
    server :: IO () -> Thread ()
    server ready = withSocket (listenTcp (Just host) "80" 16) $ \l -> do
      liftIO ready
      withSocket (fst <$> accept l) $ \s -> do
        bytes <- talk s (content size 2)
        unless (bytes == content size 1) (liftIO (assertFailure "the client's bytes, unchanged"))
    client :: Thread () -> Thread ByteString
    client ready = ready >> withSocket (connectTcp (seconds 30) host "80") (\s -> talk s (content size 1))
    talk s bytes = do
      sending <- beside (sendAll s bytes >> shutdown s ShutdownSend)
      toEnd s <* sending

-- | The given number of connections, one after the other, which carry a byte each way.
shortConnections :: Weft.Settings -> Weft.Settings -> HostName -> Int -> IO ()
shortConnections serverRun clientRun host count = do
  got <- twoRuns serverRun clientRun server client
  got @?= [B.singleton (fromIntegral i) | i <- [1 .. count]]
  where
    server :: IO () -> Thread ()
    server ready = withSocket (listenTcp (Just host) "80" 16) $ \l -> do
      liftIO ready
      forM_ [1 .. count] $ \_ -> withSocket (fst <$> accept l) (\s -> receive s 1 >>= sendAll s)
    client :: Thread () -> Thread [ByteString]
    client ready = do
      ready
      forM [1 .. count] $ \i -> withSocket (connectTcp (seconds 30) host "80") (\s -> sendAll s (B.singleton (fromIntegral i)) >> toEnd s)

-- | The given number of bytes that look like no others.
content :: Int -> Int -> ByteString
content size k = fst (B.unfoldrN size (\x -> Just (fromIntegral (x `shiftR` 16), (x * 1103515245 + 12345) `mod` 2147483648)) k)

-- | Run beside this thread; the answer waits for its end.
beside :: Thread a -> Thread (Thread a)
beside body = do
  done <- liftIO newEmptyMVar
  fork_ (try body >>= liftIO . putMVar done)
  pure (blocking (takeMVar done) >>= either (\e -> throwM (e :: SomeException)) pure)

-- | One packet in twenty is lost, one comes twice, one after its successor, one with a changed byte;
-- by dice that begin with this.
roughLink :: Word64 -> IO Link
roughLink seed = do
  dice <- newIORef (seed * 0x9e3779b97f4a7c15)
  late <- newIORef []
  pure . Link 1000 $ \packet -> do
    n <- atomicModifyIORef' dice (\x -> let y = next x in (y, y `shiftR` 33))
    waiting <- atomicModifyIORef' late ([],)
    case n `mod` 20 of
      0 -> pure waiting
      1 -> pure (packet : packet : waiting)
      -- The memory of a packet may be a device's.
      2 -> waiting <$ writeIORef late [B.copy packet]
      3 -> let at = fromIntegral (n `shiftR` 8) `mod` B.length packet in pure (B.concat [B.take at packet, B.singleton (B.index packet at `xor` 1), B.drop (at + 1) packet] : waiting)
      _ -> pure (packet : waiting)
  where
    next x0 = let x1 = x0 `xor` (x0 `shiftL` 13); x2 = x1 `xor` (x1 `shiftR` 7) in x2 `xor` (x2 `shiftL` 17)
