-- |
-- Description : Idle connections of a TCP of our own
--
-- Very many connections of one stack to itself, none of which has a descriptor: what an end takes
-- of the heap, what a thread that waits at it, and what a round trip among them costs.
module Weft.Bench.Tcp.Idle (measureIdle) where

import Control.Monad (forM, forM_, forever, replicateM, unless, void)
import Data.ByteString qualified as Bytes
import Data.IORef
import Network.Socket (tupleToHostAddress)
import System.Mem (performMajorGC)
import Weft
import Weft.Bench.Machine (raiseDescriptors)
import Weft.Bench.Measure
import Weft.Bench.Report
import Weft.Bench.Statistics (median)
import Weft.Socket
import Weft.Tcp.Device (noDevice)
import Weft.Tcp.Stack

-- | The given number of connections at once; rows for a thousand and for all. Both ends are in this process, and
-- a thread waits at every second one.
measureIdle :: Int -> IO [Row]
measureIdle most = do
  requireStats
  _ <- raiseDescriptors
  rows <- newIORef []
  runWith defaultSettings {settingWorkers = Just 1, settingKernel = withTcp stack (systemKernel defaultSystemSettings)} $ do
    listener <- listenTcp (Just "0.0.0.0") "7" 4096
    fork_ . forever $ accept listener >>= \(s, _) -> fork_ (serve s)
    one <- connecting 0
    -- Things that start once are no part of a connection.
    roundTrips one 1_000
    Bytes before <- liftIO liveBytes
    held <- liftIO (newIORef [one])
    forM_ [min 1_000 most, most] $ \count -> do
      open <- liftIO (length <$> readIORef held)
      sockets <- forM [open .. count - 1] $ \i -> do
        s <- connecting i
        s <$ roundTrips s 1
      liftIO (modifyIORef' held (sockets <>))
      Bytes now' <- liftIO liveBytes
      costs <- replicateM 5 $ do
        liftIO performMajorGC
        start <- liftIO processCpu
        roundTrips one trips
        Nanoseconds end <- liftIO (subtract start <$> processCpu)
        pure (fromIntegral end / fromIntegral trips / 1_000)
      liftIO . modifyIORef' rows . (:) $
        [ ("benchmark", Name "tcp"),
          ("experiment", Name "idle"),
          ("connections", Count (fromIntegral count)),
          ("bytes_per_connection", Figure (fromIntegral (now' - before) / fromIntegral (count - 1))),
          ("cpu_us_per_round_trip", figure (median costs))
        ]
    -- They are open until here.
    liftIO (readIORef held) >>= mapM_ closeSocket
  reverse <$> readIORef rows
  where
    trips = 40_000
    stack = (defaultTcpSettings (pure noDevice) []) {tcpMostSockets = pure (2 * most + 16), tcpLinger = 0}
    -- Waits without a buffer.
    serve s = do
      awaitReadable s
      bytes <- receive s 64
      unless (Bytes.null bytes) (sendAll s bytes >> serve s)
    roundTrips s n = times n (sendAll s "?" >> void (receive s 64))
    -- Without a limit, whose timer would be there for as long. An address has some 28,000 ports for
    -- one peer.
    connecting :: Int -> Thread Socket
    connecting i = do
      s <- openSocket AF_INET Stream
      s <$ connect s (SockAddrInet 7 (tupleToHostAddress (127, 1, 0, fromIntegral (i `div` 20_000))))
