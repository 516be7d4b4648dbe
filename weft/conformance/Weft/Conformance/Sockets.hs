{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Connections: how they come about
--
-- Listening, connecting and accepting over TCP and Unix-domain sockets, with and
-- without time limits, one and many. With two workers the peers are on different ones.
module Weft.Conformance.Sockets (sockets) where

import Control.Monad (forM, forM_, replicateM, unless, when)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.List (isInfixOf, nub)
import Data.Maybe (isNothing)
import Foreign.C.Error
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Conformance.Check
import Weft.Conformance.Connecting
import Weft.Conformance.Waiting
import Weft.Conformance.World
import Weft.Socket

-- | How connections come about.
sockets :: World -> TestTree
sockets world =
  testGroup
    "sockets"
    [ with "TCP over IPv4" (echoes world (listenTcp (Just "127.0.0.1") "0" 16) AF_INET),
      testCase "TCP over IPv6" $ do
        there <- worldIPv6 world
        when there . keepingDescriptors world . running world $ echoes world (listenTcp (Just "::1") "0" 16) AF_INET6,
      inDirectory world "Unix domain" (\dir -> echoes world (listenUnix (Char8.unpack dir <> "/s")) AF_UNIX),
      with "connect to nobody is refused, and names the address" refused,
      inDirectory world "connect to a path without a listener" refusedPath,
      with "connect by name and service" byName,
      with "connect gives up at its limit" limited,
      with "accept within a time" acceptLimited,
      with "connections are accepted in the order in which they came" (inOrder world),
      with "a listener that is closed resets those that wait in its backlog" abandoned,
      with "many connections at once" (many world),
      with "a socket closed and another with its number get their own data" (reuse world)
    ]
  where
    with = conforms world

echoes :: World -> Thread Socket -> Family -> Thread ()
echoes world open family = withSocket open $ \listener -> do
  address <- localAddress listener
  server <- beside world $ withSocket (fst <$> accept listener) $ \s -> do
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

refused :: Thread ()
refused = do
  address <- withSocket (listenTcp (Just "127.0.0.1") "0" 1) localAddress
  withSocket (openSocket AF_INET Stream) $ \s -> do
    r <- try (connect s address)
    case r of
      Right () -> liftIO (assertFailure "somebody listens")
      Left e -> holds (show e) (showAddress address `isInfixOf` show (e :: IOError))
  withSocket (openSocket AF_INET Stream) $ \s -> failsWith [eCONNREFUSED] (connect s address)

refusedPath :: ByteString.ByteString -> Thread ()
refusedPath dir = do
  let path = Char8.unpack dir <> "/s"
      attempt errors = withSocket (openSocket AF_UNIX Stream) (\s -> failsWith errors (connect s (SockAddrUnix path)))
  attempt [eNOENT]
  -- The name outlives its socket.
  withSocket (listenUnix path) (\_ -> pure ())
  attempt [eCONNREFUSED]
  withSocket (openSocket AF_UNIX Stream) (\s -> failsWith [eADDRINUSE] (bind s (SockAddrUnix path)))

byName :: Thread ()
byName = do
  (listener, address) <- listenLocal 16
  forM_ ["localhost", "127.0.0.1"] $ \host -> do
    -- Of its addresses, the one with a listener.
    withSocket (connectTcp (seconds 5) host (port address)) (\s -> peerAddress s ===> address)
    accept listener >>= closeSocket . fst
  closeSocket listener
  failsWith [eCONNREFUSED] (connectTcp (seconds 5) "127.0.0.1" (port address))
  where
    port = \case
      SockAddrInet p _ -> show p
      other -> show other

-- | A listener whose backlog is full answers no further connection.
limited :: Thread ()
limited = withSocket (listenTcp (Just "127.0.0.1") "0" 0) $ \listener -> do
  address <- localAddress listener
  fillers <- replicateM 4 (openSocket AF_INET Stream)
  waits <- forM fillers $ \s -> spawn (try (connectBefore (milliseconds 60) s address) :: Thread (Either IOError ()))
  results <- sequence waits
  holds ("some connection must have been left waiting: " <> show results) (any (either (const True) (const False)) results)
  withSocket (openSocket AF_INET Stream) $ \s -> failsWith [eTIMEDOUT] (connectBefore (milliseconds 20) s address)
  mapM_ closeSocket fillers

acceptLimited :: Thread ()
acceptLimited = withSocket (listenTcp (Just "127.0.0.1") "0" 16) $ \listener -> do
  acceptBefore (milliseconds 5) listener >>= holds "nobody came" . isNothing
  address <- localAddress listener
  wait <- spawn (acceptBefore (seconds 10) listener)
  client <- openSocket AF_INET Stream
  connect client address
  wait >>= maybe (liftIO (assertFailure "somebody came")) (closeSocket . fst)
  closeSocket client
  -- Also when the limit has passed and the connection is there already.
  other <- openSocket AF_INET Stream
  connect other address
  awaitReadable listener
  acceptBefore (milliseconds (-1)) listener >>= maybe (liftIO (assertFailure "it was there")) (closeSocket . fst)
  closeSocket other

inOrder :: World -> Thread ()
inOrder world = do
  (listener, address) <- listenLocal 16
  clients <- replicateM 5 (openSocket AF_INET Stream)
  forM_ clients (`connect` address)
  mine <- mapM localAddress clients
  came <- replicateM 5 (accept listener)
  when (worldPunctual world && worldFirstCome world) $ map snd came `is` mine
  let accepted = [c | address' <- mine, c <- came, snd c == address']
  length (nub mine) `is` 5
  forM_ (zip clients accepted) $ \(c, (s, _)) -> do
    localAddress s ===> address
    mine' <- localAddress c
    peerAddress s ===> mine'
  mapM_ closeSocket (listener : clients <> map fst accepted)

abandoned :: Thread ()
abandoned = do
  (listener, address) <- listenLocal 16
  client <- openSocket AF_INET Stream
  connect client address
  closeSocket listener
  failsWith [eCONNRESET] (receive client 10)
  closeSocket client

many :: World -> Thread ()
many world = withSocket (listenTcp (Just "127.0.0.1") "0" 256) $ \listener -> do
  address <- localAddress listener
  server <- beside world $ forM_ [1 .. 200 :: Int] $ \_ -> do
    (s, _) <- accept listener
    fork_ ((receiveExactly s 3 >>= sendAll s) `finally` closeSocket s)
  clients <- forM [1 .. 200 :: Int] $ \i -> spawn . withSocket (openSocket AF_INET Stream) $ \s -> do
    connect s address
    let message = Char8.pack (show (100 + i))
    sendAll s message
    (== message) <$> receiveAll s
  results <- sequence clients
  holds "every answer came" (and results)
  server

reuse :: World -> Thread ()
reuse world = forM_ [1 .. 30 :: Int] $ \i -> do
  (a, b) <- connected
  old <- beside world (try (receive a 10) :: Thread (Either IOError ByteString.ByteString))
  yield
  closeSocket a
  closeSocket b
  _ <- old
  (a', b') <- connected
  let message = Char8.pack (show i)
  new <- beside world (receiveExactly a' (ByteString.length message))
  sendAll b' message
  new ===> message
  closeSocket a' >> closeSocket b'
