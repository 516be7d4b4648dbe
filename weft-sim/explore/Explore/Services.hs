{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Servers, readers and relays under exploration
--
-- Clients that come, talk, go away and are reset, a server that is stopped or cancelled at any
-- step, in a world where accepting fails and descriptors are few. What must hold: no session
-- outlives its server, no descriptor is left (which is checked of every scenario), and what is read
-- is what was sent.
module Explore.Services (scenarios) where

import Control.Monad (forM_, replicateM_, unless, void, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Data.List (sort)
import Data.Maybe (isJust)
import Explore.Draw
import Explore.Scenario
import Weft
import Weft.Event qualified as Event
import Weft.Mask (mask_)
import Weft.Reader
import Weft.Relay
import Weft.Scope
import Weft.Serve
import Weft.Sim hiding (Exception)
import Weft.Socket
import Weft.Time (microseconds)
import Weft.Timeout (timeout)

scenarios :: [Scenario]
scenarios =
  [ small "serve/cancel" 1 "a server that is cancelled at any step ends after its session, and closes everything" cancelAnywhere,
    (drawn "serve/storm" "clients of all kinds, failing accepts, few descriptors: the server ends, nothing is left" storm)
      { scenarioConfig = \seed -> hostile (draw seed (between 8 40)) (configOf seed)
      },
    drawn "reader/interrupted" "reads that are given up at any time lose no byte" interrupted,
    small "receive/standing" 2 "of two loops on one socket, one cancelled at any step, each byte goes to one" standing,
    (drawn "relay/ends" "half-closes, resets and cancellations end a relay; what came through is what was sent" relayed)
      { scenarioConfig = lossy . configOf
      }
  ]

-- | Accepts fail, connections are reset, and there are few descriptors.
hostile :: Int -> Config -> Config
hostile descriptors config =
  config
    { configMaxSteps = 1_000_000,
      configConditions = (configConditions config) {acceptErrors = 0.2, connectionResets = 0.01, descriptorLimit = descriptors}
    }

lossy :: Config -> Config
lossy config = config {configMaxSteps = 1_000_000, configConditions = (configConditions config) {streamBuffer = 3_000}}

-- | A listening socket on this machine.
listening :: Thread (Socket, SockAddr)
listening = do
  l <- listenTcp (Just "127.0.0.1") "0" 16
  (l,) <$> localAddress l

-- | How many sessions there are, and a session that is counted.
counted :: Thread (IORef Int, (Socket -> SockAddr -> Thread ()) -> Socket -> SockAddr -> Thread ())
counted = do
  alive <- liftIO (newIORef 0)
  let count by = liftIO (modifyIORef' alive (+ by))
  pure (alive, \session client peer -> bracket_ (count 1) (yield >> count (-1)) (session client peer))

cancelAnywhere :: Thread Complaints
cancelAnywhere = do
  (listener, address) <- listening
  (alive, counting) <- counted
  left <- liftIO (newIORef 0)
  server <-
    forkOn 1 $
      serveOn defaultServeSettings listener (counting (\client _ -> void (receive client 10)))
        `finally` liftIO (readIORef alive >>= writeIORef left)
  -- The connection stands, in the backlog at least.
  bracket (openSocket AF_INET Stream) closeSocket $ \client -> do
    connect client address
    yield
    cancel server
    quiet
    ended <- receive client 10 `catch` \(_ :: IOError) -> pure ""
    sessions <- liftIO (readIORef left)
    pure (expectEqual "sessions left when the server had ended" 0 sessions <> expectEqual "received" "" ended)

data Client = Client
  { clientDelay :: !Int,
    clientManner :: !Manner
  }

data Manner
  = -- | It says this number of lines, and goes.
    Polite !Int
  | -- | It says something and closes without reading the answer.
    Rude
  | -- | It connects, and stays for this number of microseconds.
    Silent !Int
  | -- | It has the session fail.
    Breaking

data End = Stopped | Cancelled'
  deriving stock (Eq, Show)

storm :: Draw (Thread Complaints)
storm = do
  clients <- several 1 8 (Client <$> between 0 20_000 <*> manner)
  limit <- between 1 4
  end <- oneOf [pure Stopped, pure Cancelled']
  endAfter <- between 0 30_000
  grace <- oneOf [pure mempty, microseconds <$> between 1 20_000]
  pure (runStorm clients limit end endAfter grace)
  where
    manner =
      weighted
        [ (4, Polite <$> between 1 3),
          (2, pure Rude),
          (1, Silent <$> between 0 30_000),
          (1, pure Breaking)
        ]

runStorm :: [Client] -> Int -> End -> Int -> Duration -> Thread Complaints
runStorm clients limit end endAfter grace = do
  (listener, address) <- listening
  (alive, counting) <- counted
  most <- liftIO (newIORef 0)
  stop <- Event.newEvent
  left <- liftIO (newIORef Nothing)
  let settings =
        defaultServeSettings
          { serveMaxConnections = limit,
            serveUntil = Just (Event.wait stop),
            serveGrace = grace,
            -- Failures are what some clients are for.
            serveFailed = \_ _ -> pure ()
          }
      session client _ = do
        liftIO (readIORef alive >>= \n -> modifyIORef' most (max n))
        reader <- newReader client
        let go =
              readLine reader 100 >>= \case
                Just "break" -> throwM (userError "as you wish")
                Just line -> sendAll client (line <> "\n") >> go
                Nothing -> pure ()
        go
  server <- forkOn 1 (serveOn settings listener (counting session) `finally` liftIO (readIORef alive >>= writeIORef left . Just))
  complaints <- newLog
  withScope $ \scope -> do
    forM_ clients $ \c -> forkIn_ scope (sleep (microseconds (clientDelay c)) >> talk address (clientManner c) complaints)
    sleep (microseconds endAfter)
    if end == Stopped then Event.set stop else cancel server
  quiet
  wrong <- said complaints
  sessions <- liftIO (readIORef left)
  n <- liftIO (readIORef most)
  pure (wrong <> expectEqual "sessions left when the server had ended" (Just 0) sessions <> expect ("there were " <> show n <> " sessions") (n <= limit))

-- | Whatever happens to the connection, an answer is what was said.
talk :: SockAddr -> Manner -> Log String -> Thread ()
talk address manner complaints = handle (\(_ :: IOError) -> pure ()) . withSocket (openSocket AF_INET Stream) $ \s -> do
  connectBefore (seconds 5) s address
  case manner of
    Silent us -> sleep (microseconds us)
    Rude -> sendAll s "hello\nhello\n"
    Breaking -> sendAll s "break\n" >> void (timeout (seconds 5) (receive s 10))
    Polite n -> do
      reader <- newReader s
      forM_ [1 .. n] $ \i -> do
        let line = "line " <> Char8.pack (show i)
        sendAll s (line <> "\n")
        answer <- try (timeout (seconds 5) (readLine reader 100))
        case answer of
          Right (Just (Just got)) -> unless (got == line) $ say complaints ("said " <> show line <> ", heard " <> show got)
          Right _ -> pure ()
          Left (_ :: ReadError) -> pure ()

-- | Two threads receive from one stream, each in a loop whose receive stands, and one of them is cancelled.
standing :: Thread Complaints
standing = do
  got <- newLog
  (listener, address) <- listening
  bracket (openSocket AF_INET Stream) closeSocket $ \a -> do
    connect a address
    (b, _) <- accept listener
    closeSocket listener
    -- Masked, so that a cancellation ends a wait and nothing else.
    let loop = mask_ . receiveEach b 2 $ \bytes ->
          if ByteString.null bytes then pure (Just ()) else Nothing <$ say got bytes
    t <- forkOn 0 loop
    _ <- forkOn 1 loop
    _ <- forkOn 0 (sendAll a "ab" >> yield >> sendAll a "c")
    _ <- forkOn 1 (cancel t)
    quiet
    shutdown a ShutdownSend
    quiet
    closeSocket b
  bytes <- sort . concatMap Char8.unpack <$> said got
  pure (expectEqual "bytes" "abc" bytes)

-- | A stream is read line by line under short time limits, by threads that are cancelled.
interrupted :: Draw (Thread Complaints)
interrupted = do
  lines' <- several 1 6 (Char8.pack . concatMap show <$> several 0 12 (between 0 999))
  pauses <- several 1 8 (between 0 3_000)
  limits <- several 1 8 (between 1 2_000)
  sizes <- several 1 8 (between 1 9)
  pure $ do
    (listener, address) <- listening
    bracket (openSocket AF_INET Stream) closeSocket $ \a -> do
      connect a address
      (b, _) <- accept listener
      closeSocket listener
      reader <- newReader b
      _ <- forkOn 1 $ do
        let stream = ByteString.concat (map (<> "\r\n") lines')
        forM_ (zip (cycle pauses) (piecesOf (cycle sizes) stream)) $ \(us, piece) -> sendAll a piece >> sleep (microseconds us)
        shutdown a ShutdownSend
      got <- collect reader (cycle limits) []
      closeSocket b
      pure (expectEqual "lines" (map Just lines') got)
  where
    collect reader (us : later) found = do
      answer <- liftIO (newIORef Nothing)
      -- One by a time limit, one by a cancellation.
      line <- timeout (microseconds us) (readLine reader 1_000)
      case line of
        Just (Just l) -> collect reader later (Just l : found)
        Just Nothing -> pure (reverse found)
        Nothing -> do
          ended <- Event.newEvent
          t <- forkOn 0 ((readLine reader 1_000 >>= liftIO . writeIORef answer . Just) `finally` Event.set ended)
          _ <- timeout (microseconds us) (Event.wait ended)
          cancel t
          Event.wait ended
          liftIO (readIORef answer) >>= \case
            Nothing -> collect reader later found
            Just Nothing -> pure (reverse found)
            Just l -> collect reader later (l : found)
    collect _ [] found = pure (reverse found)

-- | A stream in pieces of these lengths.
piecesOf :: [Int] -> ByteString -> [ByteString]
piecesOf (n : ns) bytes
  | not (ByteString.null bytes) = ByteString.take n bytes : piecesOf ns (ByteString.drop n bytes)
piecesOf _ _ = []

relayed :: Draw (Thread Complaints)
relayed = do
  up <- between 0 9_000
  down <- between 0 9_000
  slow <- between 0 200
  blow <- oneOf [pure Nothing, Just <$> between 0 20_000]
  pure $ do
    (listener, address) <- listening
    bracket (openSocket AF_INET Stream) closeSocket $ \client -> bracket (openSocket AF_INET Stream) closeSocket $ \right -> do
      connect client address
      (left, _) <- accept listener
      connect right address
      (server, _) <- accept listener
      closeSocket listener
      counts <- liftIO (newIORef Nothing)
      over <- Event.newEvent
      proxy <- forkOn 1 ((relay left right >>= liftIO . writeIORef counts . Just) `finally` (closeSocket left >> closeSocket right >> Event.set over))
      heardUp <- newLog
      heardDown <- newLog
      withScope $ \scope -> do
        forkIn_ scope (quietly (sendAll client (content 1 up) >> shutdown client ShutdownSend))
        forkIn_ scope (quietly (sendAll server (content 2 down) >> shutdown server ShutdownSend))
        forkIn_ scope (quietly (hear server heardUp slow))
        forkIn_ scope (quietly (hear client heardDown slow))
        forM_ blow $ \us -> forkIn_ scope (sleep (microseconds us) >> cancel proxy)
        Event.wait over
      got <- liftIO (readIORef counts)
      upstream <- ByteString.concat <$> said heardUp
      downstream <- ByteString.concat <$> said heardDown
      closeSocket server
      pure $
        expect "what came through upstream is not what was sent" (upstream `ByteString.isPrefixOf` content 1 up)
          <> expect "what came through downstream is not what was sent" (downstream `ByteString.isPrefixOf` content 2 down)
          <> case got of
            Just both -> expectEqual "counted" (fromIntegral up, fromIntegral down) both <> expectEqual "came through" (up, down) (ByteString.length upstream, ByteString.length downstream)
            Nothing -> expect "it has not ended well, and nobody cancelled it" (isJust blow)
  where
    quietly = handle (\(_ :: IOError) -> pure ())
    hear s log' us = do
      bytes <- receive s 700
      unless (ByteString.null bytes) $ do
        say log' bytes
        when (us > 100) $ replicateM_ 1 (sleep (microseconds us))
        hear s log' us
    content k n = ByteString.pack (take n (map fromIntegral (iterate (\x -> (x * 31 + k) `mod` 65_521) (k :: Int))))
