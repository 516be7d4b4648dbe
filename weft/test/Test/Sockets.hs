{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Conformance of the socket calls, on every event source
--
-- The public interface on real sockets, for each backend with one worker and with
-- two. With two, the peers are on different workers.
module Test.Sockets (tests) where

import Control.Concurrent (threadDelay)
import Control.Exception qualified as Exception
import Control.Monad (forM, forM_, join, replicateM, unless, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Data.Int (Int64)
import Data.List (isInfixOf)
import Data.Maybe (isNothing)
import Foreign.C.Error
import Network.Socket qualified as Network
import System.IO.Temp (withSystemTempDirectory)
import System.Posix.IO qualified as Posix
import System.Posix.Resource qualified as Posix
import System.Posix.Types (Fd (..))
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.File
import Weft.Socket

tests :: TestTree
tests = testGroup "Sockets" [testGroup (describeConfig c) (map ($ c) conformance) | c <- configurations]

conformance :: [Config -> TestTree]
conformance =
  [ with "TCP over IPv4" (echoes (listenTcp (Just "127.0.0.1") "0" 16) AF_INET),
    \c -> testCase "TCP over IPv6" $ do
      there <- hasIPv6
      when there . running c $ echoes (listenTcp (Just "::1") "0" 16) AF_INET6 c,
    \c -> testCase "Unix domain" . withSystemTempDirectory "weft" $ \dir ->
      running c (echoes (listenUnix (dir <> "/s")) AF_UNIX c),
    with "UDP" datagrams,
    with "connect to nobody is refused, and names the address" refused,
    with "connect gives up at its limit" limited,
    with "half-close towards the server, then towards the client" halfClose,
    with "megabytes in both directions at once" bothWays,
    with "many pieces, empty ones among them" pieces,
    \c -> testCase "files, and files that shrink meanwhile" . withSystemTempDirectory "weft" $ \dir ->
      running c (files dir c),
    with "close while another thread waits, on every kind of wait" closeWaiting,
    with "close from another worker" closeElsewhere,
    with "a closed socket is refused, even when its number is in use again" closedTwice,
    with "accept within a time" acceptLimited,
    with "reset by the peer is an error of the receiver" reset,
    with "receiving and sending at once on one socket" fullDuplex,
    with "many connections at once" many,
    with "a socket closed and another with its number get their own data" reuse,
    testCase "no descriptor left: accept waits, uses no time, tells once, goes on" . starved
  ]
  where
    with name body c = testCase name (running c (body c))

hasIPv6 :: IO Bool
hasIPv6 = do
  r <- Exception.try $ Exception.bracket (Network.socket AF_INET6 Stream 0) Network.close $ \s ->
    Network.bind s (SockAddrInet6 0 0 (0, 0, 0, 1) 0)
  pure (either (\(_ :: IOError) -> False) (const True) r)

listenUnix :: FilePath -> Thread Socket
listenUnix path = do
  s <- openSocket AF_UNIX Stream
  bind s (SockAddrUnix path)
  listen s 16
  pure s

-- | A connected pair over TCP: what connected, what was accepted.
connected :: Thread (Socket, Socket)
connected = withSocket (listenTcp (Just "127.0.0.1") "0" 16) $ \listener -> do
  address <- localAddress listener
  wait <- spawn (fst <$> accept listener)
  client <- openSocket AF_INET Stream
  connect client address
  server <- wait
  pure (client, server)

-- | Fork on the other worker, where there is one.
beside :: Config -> Thread a -> Thread (Thread a)
beside c = spawnOn (Just (configWorkers c - 1))

receiveAll :: Socket -> Thread ByteString
receiveAll s = ByteString.concat <$> go
  where
    go = do
      bytes <- receive s 65536
      if ByteString.null bytes then pure [] else (bytes :) <$> go

receiveExactly :: Socket -> Int -> Thread ByteString
receiveExactly s n
  | n <= 0 = pure ByteString.empty
  | otherwise = do
      bytes <- receive s n
      if ByteString.null bytes then pure bytes else (bytes <>) <$> receiveExactly s (n - ByteString.length bytes)

(===>) :: (Eq a, Show a) => Thread a -> a -> Thread ()
action ===> wanted = action >>= \got -> liftIO (got @?= wanted)

infix 1 ===>

echoes :: Thread Socket -> Family -> Config -> Thread ()
echoes listening family c = withSocket listening $ \listener -> do
  address <- localAddress listener
  server <- beside c $ withSocket (fst <$> accept listener) $ \s -> do
    let loop = do
          bytes <- receive s 100
          unless (ByteString.null bytes) (sendAll s bytes >> loop)
    loop
  withSocket (openSocket family Stream) $ \s -> do
    connect s address
    peerAddress s ===> address
    forM_ [1 .. 20 :: Int] $ \i -> do
      let message = Char8.pack ("message " <> show i)
      sendAll s message
      receiveExactly s (ByteString.length message) ===> message
    shutdown s ShutdownSend
    receive s 10 ===> ""
  server

datagrams :: Config -> Thread ()
datagrams c = withSocket (openSocket AF_INET Datagram) $ \a -> withSocket (openSocket AF_INET Datagram) $ \b -> do
  forM_ [a, b] $ \s -> bind s (SockAddrInet 0 (Network.tupleToHostAddress (127, 0, 0, 1)))
  there <- localAddress b
  here <- localAddress a
  wait <- beside c (replicateM 3 (receiveFrom b 5))
  forM_ ["one", "a longer one", ""] $ \d -> sendTo a d there
  wait ===> [("one", here), ("a lon", here), ("", here)]

refused :: Config -> Thread ()
refused _ = do
  address <- withSocket (listenTcp (Just "127.0.0.1") "0" 1) localAddress
  withSocket (openSocket AF_INET Stream) $ \s -> do
    r <- try (connect s address)
    case r of
      Right () -> liftIO (assertFailure "somebody listens")
      Left e -> liftIO (assertBool (show e) (show address `isInfixOf` show (e :: IOError)))
  withSocket (openSocket AF_INET Stream) $ \s -> failsWith [eCONNREFUSED] (connect s address)

-- | A listener whose backlog is full answers no further connection.
limited :: Config -> Thread ()
limited _ = withSocket (listenTcp (Just "127.0.0.1") "0" 0) $ \listener -> do
  address <- localAddress listener
  fillers <- replicateM 4 (openSocket AF_INET Stream)
  waits <- forM fillers $ \s -> spawn (try (connectBefore (milliseconds 60) s address) :: Thread (Either IOError ()))
  results <- sequence waits
  liftIO (assertBool ("some connection must have been left waiting: " <> show results) (any (either (const True) (const False)) results))
  withSocket (openSocket AF_INET Stream) $ \s -> failsWith [eTIMEDOUT] (connectBefore (milliseconds 20) s address)
  mapM_ closeSocket fillers

halfClose :: Config -> Thread ()
halfClose c = do
  (client, server) <- connected
  answer <- beside c $ do
    asked <- receiveAll server
    sendMany server ["you said: ", asked]
    shutdown server ShutdownSend
  sendAll client "question"
  shutdown client ShutdownSend
  receiveAll client ===> "you said: question"
  answer
  failsWith [ePIPE] (sendAll client "more")
  closeSocket client >> closeSocket server

-- | Far more than the buffers of the system hold, so that both sides are stopped
-- and started many times.
bothWays :: Config -> Thread ()
bothWays c = do
  (a, b) <- connected
  let size = 3 * 1024 * 1024
      pattern' k = ByteString.pack (take 4099 (map fromIntegral (iterate (\x -> (x * 31 + k) `mod` 251) (k :: Int))))
      whole k = ByteString.take size (ByteString.concat (replicate (size `div` 4099 + 1) (pattern' k)))
  waits <-
    sequence
      [ beside c (sendAll a (whole 1) >> shutdown a ShutdownSend >> pure True),
        beside c ((== whole 2) <$> receiveAll a),
        spawn (sendAll b (whole 2) >> shutdown b ShutdownSend >> pure True),
        spawn ((== whole 1) <$> receiveAll b)
      ]
  sequence waits ===> [True, True, True, True]
  closeSocket a >> closeSocket b

pieces :: Config -> Thread ()
pieces c = do
  (a, b) <- connected
  let parts = concat [[Char8.pack (show i), ""] | i <- [1 .. 200 :: Int]] <> [ByteString.replicate 500_000 120]
  wait <- beside c (receiveAll b)
  sendMany a parts
  sendMany a []
  sendMany a [""]
  shutdown a ShutdownSend
  got <- wait
  liftIO (assertBool "pieces in order" (got == ByteString.concat parts))
  closeSocket a >> closeSocket b

files :: FilePath -> Config -> Thread ()
files dir c = do
  let path = Char8.pack (dir <> "/f")
      size = 2 * 1024 * 1024 :: Int
      content = ByteString.concat (replicate (size `div` 8) "12345678")
  withFile path WriteOnly (\f -> writeAt f 0 content)
  withFile path ReadWrite $ \f -> do
    (a, b) <- connected
    wait <- beside c (receiveAll b)
    sendFileAll a f 3 (fromIntegral size) ===> fromIntegral size - 3
    sendFileAll a f 1 4 ===> 4
    sendFileAll a f (fromIntegral size) 4 ===> 0
    shutdown a ShutdownSend
    got <- wait
    liftIO (assertBool "the file's bytes" (got == ByteString.drop 3 content <> "2345"))
    closeSocket a >> closeSocket b
    -- The file becomes shorter when the first part is under way.
    (a', b') <- connected
    sender <- beside c (sendFileAll a' f 0 (fromIntegral size) <* closeSocket a')
    first <- receive b' 1000
    setFileSize f 1000
    rest <- receiveAll b'
    sent <- sender
    liftIO (sent @?= (fromIntegral (ByteString.length first + ByteString.length rest) :: Int64))
    closeSocket b'
    -- A file that was closed is not read under its old number.
    (a'', b'') <- connected
    closeFile f
    failsWith [eBADF] (sendFile a'' f 0 10)
    closeSocket a'' >> closeSocket b''

closeWaiting :: Config -> Thread ()
closeWaiting _ = do
  listener <- listenTcp (Just "127.0.0.1") "0" 16
  acceptor <- spawn (failsWith [eCANCELED, eBADF] (accept listener))
  (a, b) <- connected
  receiver <- spawn (failsWith [eCANCELED, eBADF] (receive a 10))
  (e, f) <- connected
  readable <- spawn (failsWith [eCANCELED, eBADF] (awaitReadable e))
  (p, q) <- connected
  sender <- spawn (failsWith [eCANCELED, eBADF] (sendAll p (ByteString.replicate 30_000_000 0)))
  sleep (milliseconds 2)
  mapM_ closeSocket [listener, a, e, p]
  sequence_ [acceptor, receiver, readable, sender]
  mapM_ closeSocket [b, f, q]

closeElsewhere :: Config -> Thread ()
closeElsewhere c = do
  (a, b) <- connected
  waiting <- newGate
  receiver <- beside c (openGate waiting () >> failsWith [eCANCELED, eBADF] (receive a 10))
  waitGate waiting
  closeSocket a
  receiver
  receive b 10 ===> ""
  closeSocket b
  -- Closed by both sides at once: once in effect, no error.
  (p, q) <- connected
  closers <- mapM (beside c . closeSocket) [p, q, p, q]
  mapM_ closeSocket [q, p]
  sequence_ closers

closedTwice :: Config -> Thread ()
closedTwice _ = do
  old <- openSocket AF_INET Stream
  closeSocket old
  closeSocket old
  (a, b) <- connected
  let refusedBy = failsWith [eBADF]
  -- The number of the old one is one of the two now.
  refusedBy (receive old 10)
  refusedBy (sendAll old "x")
  refusedBy (shutdown old ShutdownBoth)
  refusedBy (localAddress old)
  refusedBy (peerAddress old)
  refusedBy (setOption old NoDelay 1)
  refusedBy (getOption old NoDelay)
  refusedBy (bind old (SockAddrInet 0 0))
  refusedBy (listen old 1)
  refusedBy (connect old (SockAddrInet 1 0))
  refusedBy (accept old)
  refusedBy (awaitReadable old)
  sendAll a "still here"
  receiveExactly b 10 ===> "still here"
  closeSocket a >> closeSocket b

acceptLimited :: Config -> Thread ()
acceptLimited _ = withSocket (listenTcp (Just "127.0.0.1") "0" 16) $ \listener -> do
  acceptBefore (milliseconds 5) listener >>= liftIO . assertBool "nobody came" . isNothing
  address <- localAddress listener
  wait <- spawn (acceptBefore (seconds 10) listener)
  client <- openSocket AF_INET Stream
  connect client address
  wait >>= maybe (liftIO (assertFailure "somebody came")) (closeSocket . fst)
  -- Also when the limit has passed and the connection is there already.
  closeSocket client

reset :: Config -> Thread ()
reset _ = do
  (a, b) <- connected
  sendAll b "unread"
  awaitReadable a
  receiver <- spawn (try (receive b 10))
  -- Closing with unread bytes resets the connection.
  closeSocket a
  r <- receiver
  case r of
    Left e -> liftIO (assertBool (show (e :: IOError)) ("reset" `isInfixOf` show e))
    Right bytes -> liftIO (assertFailure (show bytes))
  closeSocket b

fullDuplex :: Config -> Thread ()
fullDuplex c = do
  (a, b) <- connected
  receiver <- spawn (receiveExactly a 5)
  sender <- spawn (sendAll a "there")
  peer <- beside c (receiveExactly b 5 >>= \x -> sendAll b "hello" >> pure x)
  receiver ===> "hello"
  peer ===> "there"
  sender
  closeSocket a >> closeSocket b

many :: Config -> Thread ()
many c = withSocket (listenTcp (Just "127.0.0.1") "0" 256) $ \listener -> do
  address <- localAddress listener
  server <- beside c $ forM_ [1 .. 200 :: Int] $ \_ -> do
    (s, _) <- accept listener
    fork_ ((receive s 100 >>= sendAll s) `finally` closeSocket s)
  clients <- forM [1 .. 200 :: Int] $ \i -> spawn . withSocket (openSocket AF_INET Stream) $ \s -> do
    connect s address
    sendAll s (Char8.pack (show i))
    (== Char8.pack (show i)) <$> receiveAll s
  results <- sequence clients
  liftIO (assertBool "every answer came" (and results))
  server

reuse :: Config -> Thread ()
reuse c = forM_ [1 .. 30 :: Int] $ \i -> do
  (a, b) <- connected
  old <- beside c (try (receive a 10) :: Thread (Either IOError ByteString))
  yield
  closeSocket a
  closeSocket b
  _ <- old
  (a', b') <- connected
  new <- beside c (receive a' 10)
  sendAll b' (Char8.pack (show i))
  new ===> Char8.pack (show i)
  closeSocket a' >> closeSocket b'

-- | With every descriptor taken, connections wait in the backlog.
starved :: Config -> Assertion
starved c = do
  told <- newIORef (0 :: Int)
  uncaught <- newIORef []
  used <- openDescriptors
  limits <- Posix.getResourceLimit Posix.ResourceOpenFiles
  let settings = (settingsFor c) {settingReport = \_ -> atomicModifyIORef' told (\n -> (n + 1, ())), settingUncaught = \_ _ e -> modifyIORef' uncaught (show e :)}
      lowered = limits {Posix.softLimit = Posix.ResourceLimit (fromIntegral used + 60)}
  flip Exception.finally (Posix.setResourceLimit Posix.ResourceOpenFiles limits)
    . runWith settings
    . withSocket (listenTcp (Just "127.0.0.1") "0" 16)
    $ \listener -> do
      address <- localAddress listener
      clients <- replicateM 2 (openSocket AF_INET Stream)
      forM_ clients (`connect` address)
      -- Let every worker and the pool have started, with what they need.
      join (beside c (blocking (pure ())))
      liftIO (Posix.setResourceLimit Posix.ResourceOpenFiles lowered)
      hoard <- liftIO takeAll
      server <- beside c (replicateM 2 (fst <$> accept listener))
      cpu <- liftIO cpuTime
      blocking (threadDelay 100_000)
      cpu' <- liftIO cpuTime
      liftIO $ do
        assertBool ("it must not spin: " <> show (cpu' - cpu) <> " ns in 100 ms") (cpu' - cpu < 40_000_000)
        readIORef told >>= (@?= 1)
        mapM_ Posix.closeFd hoard
      accepted <- server
      mapM_ closeSocket (clients <> accepted)
  readIORef uncaught >>= (@?= [])
  where
    takeAll = do
      r <- Exception.try (Posix.dup (Fd 0))
      case r of
        Left (_ :: IOError) -> pure []
        Right fd -> (fd :) <$> takeAll
