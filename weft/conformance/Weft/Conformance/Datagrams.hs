{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Datagrams
--
-- They arrive whole, one by one, and say where they come from. On the same machine
-- none is lost and none overtakes another.
module Weft.Conformance.Datagrams (datagrams) where

import Control.Monad (forM_, replicateM)
import Data.ByteString qualified as ByteString
import Foreign.C.Error
import Test.Tasty
import Weft
import Weft.Conformance.Check
import Weft.Conformance.Connecting
import Weft.Conformance.Waiting
import Weft.Conformance.World
import Weft.Socket

-- | Over UDP.
datagrams :: World -> TestTree
datagrams world =
  testGroup
    "datagrams"
    [ conforms world "they keep their order and bounds, and say who sent them" (bounds world),
      conforms world "a socket that sends without an address is given one" answered,
      conforms world "a socket with a peer hears only that one" peers,
      conforms world "sent to nobody, and too long to be sent" nobody
    ]

-- | Two sockets with addresses.
two :: ((Socket, SockAddr) -> (Socket, SockAddr) -> Thread a) -> Thread a
two body = bound $ \a -> bound $ \b -> body a b
  where
    bound use = withSocket (openSocket AF_INET Datagram) $ \s -> do
      bind s (localHost 0)
      address <- localAddress s
      use (s, address)

bounds :: World -> Thread ()
bounds world = two $ \(a, here) (b, there) -> do
  wait <- beside world (replicateM 3 (receiveFrom b 5))
  forM_ ["one", "a longer one", ""] $ \d -> sendTo a d there
  wait ===> [("one", here), ("a lon", here), ("", here)]

answered :: Thread ()
answered = two $ \(a, there) _ -> withSocket (openSocket AF_INET Datagram) $ \s -> do
  sendTo s "question" there
  (question, from) <- receiveFrom a 100
  question `is` "question"
  waiting <- spawn (receiveFrom s 100)
  yield
  sendTo a "answer" from
  waiting ===> ("answer", there)

peers :: Thread ()
peers = two $ \(a, here) (b, there) -> withSocket (openSocket AF_INET Datagram) $ \s -> do
  connect s here
  peerAddress s ===> here
  mine <- localAddress s
  send s "to my peer" ===> 10
  receiveFrom a 100 ===> ("to my peer", mine)
  sendTo b "from a stranger" mine
  sendTo a "from my peer" mine
  receive s 100 ===> "from my peer"
  -- Its peer may be another.
  connect s there
  sendTo b "now it is you" mine
  receive s 100 ===> "now it is you"

nobody :: Thread ()
nobody = two $ \(a, _) _ -> do
  gone <- withSocket (openSocket AF_INET Datagram) (\s -> bind s (localHost 0) >> localAddress s)
  sendTo a "is anybody there?" gone
  failsWith [eMSGSIZE] (sendTo a (ByteString.replicate 65_508 0) gone)
  failsWith [eDESTADDRREQ] (send a "to whom?")
