-- |
-- A server for the tests with real clients: handlers that show each way in which a body
-- can be received and a response sent, which @weft serve@ alone does not have. Says where
-- it listens in a line, and stops on SIGTERM when all connections have ended.
--
-- > weft-http-echo [BACKEND]
module Main (main) where

import Control.Monad (unless)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder (byteString, intDec)
import Data.ByteString.Char8 qualified as C
import Data.Maybe (fromMaybe)
import GHC.Stats (GCDetails (..), RTSStats (..), getRTSStats, getRTSStatsEnabled)
import System.Environment (getArgs)
import System.Exit (die, exitFailure)
import System.IO (hFlush, stdout)
import System.Mem (performMajorGC)
import System.Posix.Signals (sigINT, sigTERM)
import Weft
import Weft.Counters
import Weft.Http.Server
import Weft.Http.Status
import Weft.Kernel (parseBackend)
import Weft.Signal
import Weft.Socket (SockAddr (..), listenTcp, localAddress)

main :: IO ()
main = do
  backend <-
    getArgs >>= \case
      [] -> pure Auto
      [name] -> either die pure (parseBackend name)
      _ -> die "usage: weft-http-echo [BACKEND]"
  ended <- runWith defaultSettings {settingKernel = systemKernel defaultSystemSettings {systemBackend = backend}} serving
  unless ended exitFailure

serving :: Thread Bool
serving = do
  listener <- listenTcp (Just "127.0.0.1") "0" 4096
  server <- newServer settings (const (fmap open . handler))
  withSignals [sigTERM, sigINT] $ \signals -> do
    _ <- forkWith defaultForkOptions {forkLabel = "acceptor"} (serve server listener)
    localAddress listener >>= \case
      SockAddrInet port _ -> liftIO (putStrLn ("echo: listening on 127.0.0.1:" <> show port) >> hFlush stdout)
      other -> throwM (userError (show other))
    _ <- nextSignal signals
    drain server [listener]
  where
    -- The page of the browser's test comes from the other server.
    open response = response {responseFields = Field "Access-Control-Allow-Origin" "*" : responseFields response}
    settings =
      defaultServerSettings
        { serverTimeouts = defaultTimeouts {timeoutHead = seconds 5, timeoutBody = seconds 5, timeoutIdle = seconds 20, timeoutWrite = seconds 5},
          -- Failures here are on purpose.
          serverReport = \_ -> pure ()
        }

-- | The path says which response is asked for, and the query how much of it.
handler :: Handler
handler request = case requestPath request of
  "/" -> pure (plain ok200 html "<!DOCTYPE html><title>echo</title><p>echo</p>\n")
  -- The body as it comes, and the trailer fields.
  "/echo" ->
    pure . responding (fromMaybe "application/octet-stream" (requestField "content-type" request)) $ \sink -> do
      forBody_ request (\piece -> sinkWrite sink (byteString piece) >> sinkFlush sink)
      requestTrailers request
  -- The body when it is complete.
  "/whole" -> plain ok200 [] <$> readBody 10_000_000 request
  -- How long it is.
  "/length" -> do
    n <- lengthOf request
    pure (plain ok200 [] (C.pack (show n <> "\n")))
  -- Without having looked at it.
  "/ignore" -> pure (plain ok200 [] "ignored\n")
  "/fail" -> throwM (userError "this handler fails")
  -- The request as it was read.
  "/head" -> pure (plain ok200 [] (C.unlines (requestTarget request : [name <> ": " <> value | Field name value <- requestFields request])))
  -- The given number of octets in chunks, and a trailer field that says how many.
  "/chunked" -> pure . responding "application/octet-stream" $ \sink -> do
    octets sink count
    pure [Field "X-Count" (C.pack (show count))]
  -- The given number of octets, announced.
  "/exact" -> pure (Response ok200 [] (Streamed (Just (fromIntegral count)) (\sink -> [] <$ octets sink count)) Nothing)
  -- The given number of lines, one every twentieth of a second.
  "/slow" -> pure . responding "text/plain" $ \sink -> do
    let go :: Int -> Thread ()
        go n = unless (n > count) $ do
          sinkWrite sink ("line " <> intDec n <> "\n")
          sinkFlush sink
          sleep (milliseconds 50)
          go (n + 1)
    [] <$ go 1
  -- Another protocol: everything comes back.
  "/upgrade" -> pure (Response switchingProtocols101 [Field "Upgrade" "echo", Field "Connection" "Upgrade"] (Switch echoing) Nothing)
  "/counters" -> liveNumbers
  _ -> pure (plain notFound404 [] "no such handler\n")
  where
    html = [Field "Content-Type" "text/html; charset=utf-8"]
    responding kind make = Response ok200 [Field "Content-Type" kind] (Streamed Nothing make) Nothing
    count = maybe 0 fst (C.readInt (B.drop 1 (requestQuery request)))

lengthOf :: Request -> Thread Int
lengthOf request = go 0
  where
    go n = do
      piece <- receiveBody request
      if B.null piece then pure n else go $! n + B.length piece

-- | The given number of octets in which every place is recognisable.
octets :: Sink -> Int -> Thread ()
octets sink n
  | n <= B.length pattern' = sinkWrite sink (byteString (B.take n pattern'))
  | otherwise = sinkWrite sink (byteString pattern') >> octets sink (n - B.length pattern')

pattern' :: ByteString
pattern' = B.concat [C.pack (take 10 (show n <> "..........")) | n <- [1000 .. 1999 :: Int]]

echoing :: Duplex -> Thread ()
echoing duplex = do
  bytes <- duplexReceive duplex
  unless (B.null bytes) (duplexSend duplex [bytes] >> echoing duplex)

-- | Threads of this run, and octets that are alive in the heap (if the program runs with
-- @+RTS -T@), after a collection.
liveNumbers :: Thread Response
liveNumbers = do
  c <- counters
  live <- liftIO $ do
    performMajorGC
    enabled <- getRTSStatsEnabled
    if enabled then gcdetails_live_bytes . gc <$> getRTSStats else pure 0
  pure (plain ok200 [] (C.pack (unlines ["threads " <> show (threadsAlive (total c)), "live " <> show live])))
