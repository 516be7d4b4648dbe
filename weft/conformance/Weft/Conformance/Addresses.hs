{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Names, addresses and options of sockets
--
-- The addresses of a socket on both sides, the names that lead to it, its options, and the calls
-- that are refused in each state.
module Weft.Conformance.Addresses (addresses) where

import Control.Monad (forM_)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Foreign.C.Error
import Network.Socket (AddrInfoFlag (AI_NUMERICHOST), defaultHints, tupleToHostAddress)
import Network.Socket qualified as Network
import Test.Tasty
import Weft
import Weft.Conformance.Check
import Weft.Conformance.Connecting
import Weft.Conformance.World
import Weft.Descriptor (awaitReadableFd, awaitWritableFd)
import Weft.Socket

-- | Names, addresses, options.
addresses :: World -> TestTree
addresses world =
  testGroup
    "addresses and options"
    [ conforms world "names are resolved" names,
      conforms world "bind chooses a port, and gives it to one" ports,
      conforms world "an address that is refused is named" refusedAddress,
      inDirectory world "the addresses of Unix-domain sockets" paths,
      conforms world "options can be set and read" options,
      conforms world "options that are not numbers for the system" unlikeNumbers,
      conforms world "a connection has the options of its listener" inherited,
      conforms world "what has no peer, or does not listen, is refused" unconnected,
      conforms world "connecting again leaves the connection as it is" again
    ]

names :: Thread ()
names = do
  local <- resolve Nothing (Just "localhost") (Just "80")
  holds "an address" (not (null local))
  holds (show local) (all (isLoopback . addrAddress) local)
  numeric <- resolve (Just defaultHints {addrFlags = [AI_NUMERICHOST], addrSocketType = Stream}) (Just "127.0.0.1") (Just "8080")
  map addrAddress numeric `is` [localHost 8080]
  six <- resolve (Just defaultHints {addrFlags = [AI_NUMERICHOST], addrSocketType = Stream}) (Just "::1") (Just "8080")
  map addrAddress six `is` [SockAddrInet6 8080 0 (0, 0, 0, 1) 0]
  -- Not a number, and no name is asked for.
  r <- try (resolve (Just defaultHints {addrFlags = [AI_NUMERICHOST]}) (Just "no.number") (Just "80"))
  holds "it is no number" (either (\(_ :: IOError) -> True) (const False) r)
  where
    isLoopback = \case
      SockAddrInet 80 host -> host == tupleToHostAddress (127, 0, 0, 1)
      SockAddrInet6 80 _ host _ -> host == (0, 0, 0, 1)
      _ -> False

ports :: Thread ()
ports = withSocket (openSocket AF_INET Stream) $ \s -> do
  bind s (localHost 0)
  address <- localAddress s
  holds (show address) (address /= localHost 0)
  failsWith [eINVAL] (bind s (localHost 0))
  listen s 1
  withSocket (openSocket AF_INET Stream) $ \other -> failsWith [eADDRINUSE] (bind other address)
  -- Another kind of socket has ports of its own.
  withSocket (openSocket AF_INET Datagram) $ \other -> bind other address
  -- An address of another machine (it is kept for documentation).
  withSocket (openSocket AF_INET Stream) $ \other ->
    failsWith [eADDRNOTAVAIL] (bind other (SockAddrInet 0 (tupleToHostAddress (192, 0, 2, 1))))

-- | The error must say which of many addresses it was.
refusedAddress :: Thread ()
refusedAddress = withSocket (listenTcp (Just "127.0.0.1") "0" 1) $ \taken -> do
  address <- localAddress taken
  let port = drop 1 (dropWhile (/= ':') (showAddress address))
  failsNaming ("listen on " <> showAddress address) (listenTcp (Just "127.0.0.1") port 1)
  failsNaming "listen on 192.0.2.1:0" (listenTcp (Just "192.0.2.1") "0" 1)
  withSocket (openSocket AF_INET Stream) $ \s -> failsNaming ("bind to " <> showAddress address) (bind s address)

paths :: ByteString -> Thread ()
paths dir = do
  let path = Char8.unpack dir <> "/s"
  withSocket (listenUnix path) $ \listener -> do
    localAddress listener ===> SockAddrUnix path
    withSocket (openSocket AF_UNIX Stream) $ \client -> do
      connect client (SockAddrUnix path)
      peerAddress client ===> SockAddrUnix path
      withSocket (fst <$> accept listener) (\server -> localAddress server ===> SockAddrUnix path)

options :: Thread ()
options = do
  (a, b) <- connected
  forM_ [NoDelay, KeepAlive, ReuseAddr] $ \option -> do
    setOption a option 1
    getOption a option >>= holds (show option) . (/= 0)
    setOption a option 0
    getOption a option ===> 0
  setOption a SendBuffer 16384
  getOption a SendBuffer >>= \n -> holds ("a send buffer of " <> show n) (n >= 16384)
  setOption a RecvBuffer 16384
  getOption a RecvBuffer >>= \n -> holds ("a receive buffer of " <> show n) (n >= 16384)
  getOption a SoError ===> 0
  -- 1 is a stream, 2 are datagrams.
  getOption a Network.Type ===> 1
  withSocket (openSocket AF_INET Datagram) (\s -> getOption s Network.Type ===> 2)
  closeSocket a >> closeSocket b

-- | Those that the system wants as a structure, and as a text.
unlikeNumbers :: Thread ()
unlikeNumbers = do
  (a, b) <- connected
  getOption a Linger ===> -1
  forM_ [(0, 0), (-7, -1)] $ \(value, kept) -> setOption a Linger value >> (getOption a Linger ===> kept)
  before <- getOption a congestion
  forM_ [named "reno", before] $ \name -> setOption a congestion name >> (getOption a congestion ===> name)
  failsWith [eNOENT] (setOption a congestion (named "nobody"))
  -- Closing resets the connection, though the peer has read all.
  setOption a Linger 0
  closeSocket a
  failsWith [eCONNRESET] (receive b 1)
  closeSocket b
  where
    congestion = SockOpt 6 13
    named = ByteString.foldr (\c n -> n * 256 + fromIntegral c) 0

inherited :: Thread ()
inherited = withSocket (openSocket AF_INET Stream) $ \listener -> do
  bind listener (localHost 0)
  listen listener 1
  setOption listener notSentLowAt 65_536
  getOption listener notSentLowAt ===> 65_536
  setOption listener NoDelay 1
  withSocket (openSocket AF_INET Stream) $ \client -> do
    localAddress listener >>= connect client
    withSocket (fst <$> accept listener) $ \server -> do
      getOption server notSentLowAt ===> 65_536
      getOption server NoDelay >>= holds "no delay" . (/= 0)

unconnected :: Thread ()
unconnected = do
  failsWith [eBADF] (adoptSocket (-1))
  failsWith [eBADF] (awaitReadableFd (-1))
  failsWith [eBADF] (awaitWritableFd (-1))
  withSocket (openSocket AF_INET Stream) $ \s -> do
    localAddress s ===> SockAddrInet 0 0
    failsWith [eNOTCONN] (peerAddress s)
    failsWith [eNOTCONN] (receive s 10)
    failsWith [ePIPE] (send s "x")
    failsWith [eNOTCONN] (shutdown s ShutdownBoth)
    failsWith [eINVAL] (accept s)
  withSocket (openSocket AF_INET Datagram) $ \s -> do
    failsWith [eOPNOTSUPP] (listen s 1)
    failsWith [eOPNOTSUPP] (accept s)
    failsWith [eNOTCONN] (peerAddress s)

again :: Thread ()
again = do
  (listener, address) <- listenLocal 16
  withSocket (openSocket AF_INET Stream) $ \s -> do
    connect s address
    -- Some event sources cannot tell it from the end of the first attempt.
    try (connect s address) >>= either (\e -> failsWith [eISCONN] (throwM (e :: IOError))) pure
    failsWith [eINVAL] (listen s 1)
    withSocket (fst <$> accept listener) $ \server -> do
      sendAll s "once"
      receiveExactly server 4 ===> "once"
  closeSocket listener
