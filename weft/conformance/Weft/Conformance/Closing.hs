{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Closing, also while others wait
--
-- A thread that waits on a socket that is closed is told; closing twice is closing once; and
-- what was closed is refused even when its number is in use again.
module Weft.Conformance.Closing (closing) where

import Data.ByteString qualified as ByteString
import Foreign.C.Error
import Test.Tasty
import Weft
import Weft.Conformance.Check
import Weft.Conformance.Connecting
import Weft.Conformance.Waiting
import Weft.Conformance.World
import Weft.Socket

-- | The end of sockets.
closing :: World -> TestTree
closing world =
  testGroup
    "closing"
    [ conforms world "close while another thread waits, on every kind of wait" closeWaiting,
      conforms world "close from another worker" (closeElsewhere world),
      conforms world "a connection of which both directions have ended cannot be shut down" endedTwice,
      conforms world "a closed socket is refused, even when its number is in use again" closedTwice
    ]

closeWaiting :: Thread ()
closeWaiting = do
  listener <- listenTcp (Just "127.0.0.1") "0" 16
  acceptor <- spawn (failsWith [eCANCELED, eBADF] (accept listener))
  (a, b) <- connected
  receiver <- spawn (failsWith [eCANCELED, eBADF] (receive a 10))
  (e, f) <- connected
  readable <- spawn (failsWith [eCANCELED, eBADF] (awaitReadable e))
  (p, q) <- connected
  sender <- spawn (failsWith [eCANCELED, eBADF] (sendAll p (ByteString.replicate 30_000_000 0)))
  datagram <- openSocket AF_INET Datagram
  bind datagram (localHost 0)
  datagrams <- spawn (failsWith [eCANCELED, eBADF] (receiveFrom datagram 10))
  sleep (milliseconds 2)
  mapM_ closeSocket [listener, a, e, p, datagram]
  sequence_ [acceptor, receiver, readable, sender, datagrams]
  mapM_ closeSocket [b, f, q]

closeElsewhere :: World -> Thread ()
closeElsewhere world = do
  (a, b) <- connected
  waiting <- newGate
  receiver <- beside world (openGate waiting () >> failsWith [eCANCELED, eBADF] (receive a 10))
  waitGate waiting
  closeSocket a
  receiver
  receive b 10 ===> ""
  closeSocket b
  -- Closed by both sides at once: once in effect, no error.
  (p, q) <- connected
  closers <- mapM (beside world . closeSocket) [p, q, p, q]
  mapM_ closeSocket [q, p]
  sequence_ closers

endedTwice :: Thread ()
endedTwice = do
  (a, b) <- connected
  shutdown a ShutdownSend
  receive b 10 ===> ""
  shutdown a ShutdownSend
  shutdown b ShutdownReceive
  shutdown b ShutdownSend
  receive a 10 ===> ""
  failsWith [eNOTCONN] (shutdown a ShutdownReceive)
  failsWith [eNOTCONN] (shutdown a ShutdownBoth)
  closeSocket a >> closeSocket b

closedTwice :: Thread ()
closedTwice = do
  old <- openSocket AF_INET Stream
  closeSocket old
  closeSocket old
  (a, b) <- connected
  let refusedBy = failsWith [eBADF]
  -- The number of the old one is one of the two now.
  refusedBy (receive old 10)
  refusedBy (sendAll old "x")
  refusedBy (sendVector old ["x", "y"])
  refusedBy (receiveFrom old 10)
  refusedBy (sendTo old "x" (localHost 1))
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
  refusedBy (awaitWritable old)
  sendAll a "still here"
  receiveExactly b 10 ===> "still here"
  closeSocket a >> closeSocket b
