-- | Both directions at a time, over sockets with small buffers: a thread that cannot send yet keeps none from receiving.
module DuplexTest (tests) where

import Control.Monad (unless)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Buffer
import Weft.Concurrently (concurrently)
import Weft.Http.Server
import Weft.Socket
import Weft.Timeout (timeout)
import Weft.Tls
import World

tests :: World -> TestTree
tests w =
  testGroup
    "both directions"
    [ testCase what $ run (timeout (seconds 120) (withEnds w (\client server -> concurrently (use client) (meanwhile server)))) >>= (@?= Just (True, True))
      | (what, use) <-
          [ ("each end receives while it sends", meanwhile),
            ("a client sends all before it receives", \client -> sendLarge client >> receiveLarge client)
          ]
    ]
  where
    meanwhile end = snd <$> concurrently (sendLarge end) (receiveLarge end)

-- | The two ends of a connection, the client's first.
withEnds :: World -> (Transport -> Transport -> Thread a) -> Thread a
withEnds w use = do
  context <- loadTls (settingsOf w ["ecdsa"])
  trusting <- clientTls (AuthoritiesFrom (directory w <> "/ca.pem")) Nothing
  withSocket (listenTcpWith small (Just "127.0.0.1") "0" 16) $ \listener -> withSocket (openSocket AF_INET Stream) $ \near -> do
    address <- localAddress listener
    mapM_ (uncurry (setOption near)) small
    connect near address
    withSocket (fst <$> accept listener) $ \far -> do
      (client, server) <-
        concurrently
          (fst <$> connectTlsWith trusting "localhost" (socketTransport near))
          (fst <$> tlsLayer context far (socketTransport far) (ClientInfo address address Nothing))
      use client server
  where
    small = [(RecvBuffer, 8_192), (SendBuffer, 8_192)]

-- | More than the buffers take.
sendLarge :: Transport -> Thread ()
sendLarge transport = go large
  where
    go bytes = unless (B.null bytes) (transportSend transport [bytes] >>= \n -> go (B.drop n bytes))

-- | Is it that which comes?
receiveLarge :: Transport -> Thread Bool
receiveLarge transport = do
  buffer <- liftIO (newBuffer 65_536)
  let go expected
        | B.null expected = pure True
        | otherwise = do
            n <- transportReceive transport buffer 0 (B.length expected)
            piece <- liftIO (copyBuffer buffer 0 n)
            let (here, others) = B.splitAt n expected
            if n > 0 && (piece :: ByteString) == here then go others else pure False
  go large
