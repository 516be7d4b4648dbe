{-# LANGUAGE MultiWayIf #-}
{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Existing web services inside Weft threads, beside warp
--
-- Two services written for GHC's threads: an application that sleeps for a millisecond a request,
-- and scotty that asks such a one by http-client (the program @weft-ghc-io-gateway@). Each server is a process of
-- its own on processors of its own, asked over connections that send their next request when the answer has come.
module Weft.Bench.Services
  ( Service (..),
    serviceName,
    Host (..),
    hostName,
    serveSleeping,
    serviceWork,
    isWhole,
  )
where

import Control.Concurrent (threadDelay)
import Control.Exception (IOException, bracket)
import Control.Exception qualified as Exception
import Control.Monad (replicateM, unless)
import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as Bytes
import Data.Char (toLower)
import Data.Text (Text)
import Data.Text qualified as Text
import Network.HTTP.Types (hContentLength, status200)
import Network.Socket (Family (AF_INET), SockAddr (SockAddrInet), bind, close, defaultProtocol, socket)
import Network.Socket qualified as Network
import Network.Wai (Application, responseLBS)
import Network.Wai.Handler.Warp qualified as Warp
import System.Environment (getExecutablePath)
import Weft (Settings (..), Thread, defaultSettings, liftIO, runWith, try)
import Weft.Bench.Child
import Weft.Bench.Contest
import Weft.Bench.Http.Probe (freePort)
import Weft.Bench.Machine (raiseDescriptors)
import Weft.Bench.Measure
import Weft.Bench.Proc
import Weft.Concurrently (forConcurrently_)
import Weft.GhcIO qualified as GhcIO
import Weft.Socket (Socket, connectTcp, receive, sendAll)
import Weft.Time (milliseconds, seconds, sleep)
import Weft.Wai qualified as Wai

-- | The service that is measured.
data Service = Sleeping | Gateway
  deriving stock (Eq, Show, Enum, Bounded)

-- | Its name on the command line and in reports.
serviceName :: Service -> Text
serviceName = \case
  Sleeping -> "sleeping"
  Gateway -> "gateway"

-- | The server that runs it: warp, direct threads that are relinked, or as they are.
data Host = OnWarp | OnRelinked | OnDirect
  deriving stock (Eq, Show, Enum, Bounded)

-- | Its name on the command line and in reports.
hostName :: Host -> Text
hostName = \case
  OnWarp -> "warp"
  OnRelinked -> "relinked"
  OnDirect -> "direct"

-- | On 127.0.0.1 and this port, until the process ends.
serveSleeping :: Host -> Int -> IO ()
serveSleeping host port = case host of
  OnWarp -> Warp.runSettings (Warp.setHost "127.0.0.1" (Warp.setPort port Warp.defaultSettings)) sleeping
  OnRelinked -> GhcIO.install >> serveSleeping OnDirect port
  OnDirect -> Wai.runSettings (Wai.setHost "127.0.0.1" (Wai.setPort port (Wai.setApplicationStyle Wai.Direct Wai.defaultSettings))) sleeping

sleeping :: Application
sleeping _ respond = threadDelay 1000 >> respond (responseLBS status200 [(hContentLength, "5")] "slept")

-- | @connections@ make @requests@ in all; the server has as many @capabilities@ or workers, and
-- the first processors, one for each. The processor time is the server's. The first argument is the program of the gateway.
serviceWork :: Maybe FilePath -> Service -> Host -> Point -> Either String (IO Work)
serviceWork gateway service host point = do
  capabilities <- number point "capabilities"
  connections <- number point "connections"
  requests <- number point "requests"
  let each = max 1 (requests `div` connections)
      runtime = ["+RTS", "-N" <> show capabilities, "-A4m", "-n256k", "-I0", "-RTS"]
  start <- case (service, host, gateway) of
    (Sleeping, _, _) -> Right (\port -> (`Command` (["ghc-io-server", Text.unpack (hostName host), show port] ++ runtime)) <$> getExecutablePath)
    (Gateway, OnWarp, Just program) -> Right (\port -> pure (Command program (["warp", show port] ++ runtime)))
    (Gateway, OnRelinked, Just program) -> Right (\port -> pure (Command program (["weft", show port] ++ runtime)))
    (Gateway, OnDirect, _) -> Left "the gateway is served by warp or relinked"
    (Gateway, _, Nothing) -> Left "build weft-ghc-io-gateway, too"
  pure . endingOnSignals . withNursery $ \nursery -> do
    _ <- raiseDescriptors
    port <- twoPorts
    server <- start port >>= startChild nursery . confined capabilities
    runWith defaultSettings {settingWorkers = Just 1} $ do
      first <- ready port (500 :: Int)
      sockets <- (first :) <$> replicateM (connections - 1) (connection port)
      before <- liftIO (groupCpuTime (childGroup server))
      begin <- liftIO now
      forConcurrently_ sockets (times each . ask request)
      time <- liftIO (elapsedSince begin)
      spent <- cpuTimeSince before <$> liftIO (groupCpuTime (childGroup server))
      pure (Work (each * connections) time (Nanoseconds (cpuScheduled spent)) [])
  where
    request = case service of
      Sleeping -> requestFor "/"
      Gateway -> requestFor "/cost/bread/3"
    connection port = connectTcp (seconds 10) "127.0.0.1" (show port)
    -- Until it answers as it is to: the gateway may begin before its store.
    ready port tries =
      try (connection port >>= \s -> s <$ ask request s) >>= \case
        Right s -> pure s
        Left e
          | tries <= 1 -> liftIO (ioError e)
          | otherwise -> sleep (milliseconds 20) >> ready port (tries - 1)

-- | A port that is free, as is the next one, which the store of the gateway takes.
twoPorts :: IO Int
twoPorts = do
  port <- freePort
  next <- Exception.try (bracket (socket AF_INET Network.Stream defaultProtocol) close (`bind` SockAddrInet (fromIntegral port + 1) 0))
  either (\(_ :: IOException) -> twoPorts) (const (pure port)) next

requestFor :: ByteString -> ByteString
requestFor path = "GET " <> path <> " HTTP/1.1\r\nHost: localhost\r\n\r\n"

-- | A request and its answer, which must be a success.
ask :: ByteString -> Socket -> Thread ()
ask request s = sendAll s request >> go ""
  where
    go before = do
      more <- receive s 4096
      let got = before <> more
      if
        | Bytes.null more -> failed "the server has closed the connection"
        | not (isWhole got) -> go got
        | otherwise -> unless ("HTTP/1.1 200" `Bytes.isPrefixOf` got) (failed (show (Bytes.takeWhile (/= '\r') got)))
    failed = liftIO . ioError . userError

-- | Has an answer come to its end, by its length or by its last chunk?
isWhole :: ByteString -> Bool
isWhole got
  | Bytes.null rest = False
  | (_, field) <- Bytes.breakSubstring "content-length:" (Bytes.map toLower top),
    Just (size, _) <- Bytes.readInt (Bytes.dropSpace (Bytes.drop 15 field)) =
      Bytes.length body >= size
  | otherwise = "0\r\n\r\n" `Bytes.isSuffixOf` body
  where
    (top, rest) = Bytes.breakSubstring "\r\n\r\n" got
    body = Bytes.drop 4 rest
