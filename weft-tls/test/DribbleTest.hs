-- | Peers that send and take one byte at a time, so that a handshake and a transfer are
-- suspended wherever they can be; and peers that are gone at any byte.
module DribbleTest (tests) where

import Control.Exception (IOException)
import Control.Monad (forM_, void, when, (>=>))
import Data.ByteString qualified as B
import Data.IORef
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Concurrently (forConcurrently)
import Weft.Http.Server
import Weft.Socket
import Weft.Test.Loopback (connected)
import Weft.Tls
import World

tests :: World -> TestTree
tests w =
  testGroup
    "byte by byte"
    [ testGroup
        "a handshake and a transfer"
        [ testCase (show backend <> ", " <> certificate <> ", " <> show oldest) $
            servingOn (systemKernel defaultSystemSettings {systemBackend = backend}) (settingsOf w [certificate]) slowly $ \served -> do
              tls <- clientTls (AuthoritiesFrom (directory w <> "/ca.pem")) Nothing
              connected (servedAddress served) $ \socket -> do
                (transport, _) <- connectTlsWith tls {clientOldest = oldest} "localhost" (dribble (socketTransport socket))
                answer <- exchange transport ["POST /sum HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 3000\r\n\r\n", B.replicate 3000 0x61]
                liftIO (assertBool (show answer) ("\r\n\r\n3000 " `B.isInfixOf` answer))
          | (backend, certificate, oldest) <-
              [(Epoll, "rsa", Tls12), (Epoll, "ecdsa", Tls13), (Uring, "ecdsa", Tls12), (Poll, "ecdsa", Tls12)]
        ],
      testCase "a client that is gone after any number of bytes leaves nothing behind" $
        serving (settingsOf w ["ecdsa"]) id $ \served -> do
          tls <- clientTls (AuthoritiesFrom (directory w <> "/ca.pem")) Nothing
          forM_ ([0 .. 20] <> [25, 45 .. 700]) $ \most -> withSocket (openSocket AF_INET Stream) $ \socket -> do
            -- A reset rather than an end, for half of them.
            when (even most) (setOption socket Linger 0 `catch` \(_ :: IOException) -> pure ())
            connect socket (servedAddress served)
            left <- liftIO (newIORef most)
            let cut ps = do
                  n <- liftIO (readIORef left)
                  when (n <= 0) (throwM (userError "gone"))
                  sent <- transportSend (socketTransport socket) [B.take n (B.concat ps)]
                  sent <$ liftIO (modifyIORef' left (subtract sent))
            void . try @_ @IOException $ do
              (transport, _) <- connectTlsWith tls "localhost" (socketTransport socket) {transportSend = cut}
              void (exchange transport [ask "/"])
          -- And it serves others.
          answer <- withConnection served tls (\t -> exchange t [ask "/"])
          liftIO (assertBool (show answer) ("HTTP/1.1 200" `B.isPrefixOf` answer))
          failures <- liftIO (readIORef (servedFailures served))
          liftIO (filter (`notElem` [NothingSent, Vanished]) (map failedWhy failures) @?= []),
      testCase "a ticket goes with the response to a request that has come with the client's last message" $ do
        sends <- newIORef []
        let counting s = s {serverLayers = (\_ transport client -> pure (counted sends transport, client)) : serverLayers s}
        servingOn (systemKernel defaultSystemSettings) (settingsOf w ["ecdsa"]) counting $ \served -> do
          tls <- clientTls (AuthoritiesFrom (directory w <> "/ca.pem")) Nothing
          connected (servedAddress served) $ \socket -> do
            held <- liftIO (newIORef (0 :: Int, []))
            let holding ps = do
                  (n, before) <- liftIO (readIORef held)
                  -- After the first message comes the last one.
                  if n == 1 then liftIO (writeIORef held (2, ps)) else liftIO (writeIORef held (n + 1, [])) >> sendMany socket (before <> ps)
                  pure (sum (map B.length ps))
            (transport, _) <- connectTlsWith tls {clientOldest = Tls13} "localhost" (socketTransport socket) {transportSend = holding}
            answer <- exchange transport [ask "/"]
            liftIO (assertBool (show answer) ("HTTP/1.1 200" `B.isPrefixOf` answer))
        -- The handshake's, the response, the end.
        readIORef sends >>= (@?= 3) . length,
      testCase "many handshakes at a time" $
        serving (settingsOf w ["ecdsa"]) id $ \served -> do
          tls <- clientTls (AuthoritiesFrom (directory w <> "/ca.pem")) Nothing
          answers <- forConcurrently [1 .. 100 :: Int] (\_ -> withConnection served tls (\t -> exchange t [ask "/"]))
          liftIO (filter (not . B.isPrefixOf "HTTP/1.1 200") answers @?= [])
          liftIO (length answers @?= 100)
    ]
  where
    slowly s = s {serverLayers = (\_ transport client -> pure (dribble transport, client)) : serverLayers s}

-- | Notes how much each send has sent.
counted :: IORef [Int] -> Transport -> Transport
counted sends t = t {transportSend = transportSend t >=> \n -> n <$ liftIO (atomicModifyIORef' sends (\ns -> (n : ns, ())))}

-- | One byte at a time, and others run in between.
dribble :: Transport -> Transport
dribble t =
  t
    { transportReceive = \buffer offset count -> yield >> transportReceive t buffer offset (min 1 count),
      transportSend = \pieces -> yield >> transportSend t [B.take 1 (B.concat pieces)]
    }
