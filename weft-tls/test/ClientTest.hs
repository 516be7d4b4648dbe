-- | Our own client: which servers it trusts, and how it learns that something is missing.
module ClientTest (tests) where

import Control.Exception (IOException)
import Control.Monad (forM, forM_, void, (>=>))
import Data.ByteString qualified as B
import Data.IORef
import Data.List (isInfixOf)
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Buffer
import Weft.Concurrently (concurrently)
import Weft.Http.Server
import Weft.Socket
import Weft.Test.Loopback (connected)
import Weft.Test.Waiting (eventually)
import Weft.Timeout (timeout)
import Weft.Tls
import Weft.Tls.Internal.Library (optionalCertificates)
import World

tests :: World -> TestTree
tests w =
  testGroup
    "client"
    [ testCase "trusts a server whose certificate is for the host, name or address" $ world $ \served -> do
        tls <- trusting
        mapM_ (shaken served tls >=> either (liftIO . assertFailure . show) (\_ -> pure ())) ["localhost", "LOCALHOST", "localhost.", "127.0.0.1", "::1", "::0.0.0.1", "0:0::0001", "fe80::10%lo"],
      testCase "tells a server the name without a dot at its end, and no address" $ world $ \served -> do
        tls <- trusting
        names <- forM ["localhost.", "localhost", "127.0.0.1", "::0.0.0.1"] $ \host ->
          withSocket (openSocket AF_INET Stream) $ \socket -> do
            connect socket (servedAddress served)
            transport <- connectTls tls host socket
            answer <- exchange transport [ask "/"]
            pure (not (B.null (snd (B.breakSubstring "securityServerName = Just \"localhost\"" answer))))
        liftIO (names @?= [True, True, False, False]),
      testCase "does not trust others, and says why" $ world $ \served -> do
        tls <- trusting
        shaken served tls "elsewhere.test" >>= untrusted "not for elsewhere.test"
        forM_ ["127.0.0.2", "::2", "::0.0.0.2", "127.2"] $ \host ->
          shaken served tls host >>= untrusted ("not for " <> host)
        stranger <- clientTls (AuthoritiesFrom (at "stranger.pem")) Nothing
        shaken served stranger "localhost" >>= untrusted "authority is not known"
        anybody <- clientTls NoVerification Nothing
        shaken served anybody "elsewhere.test" >>= either (liftIO . assertFailure . show) (\_ -> pure ())
        -- The server is told.
        eventually "six refusals" $ (== 6) . length . filter (isRefusal . failedWhy) <$> readIORef (servedFailures served),
      testCase "the system's authorities do not trust a stranger" $ world $ \served ->
        try (clientTls SystemAuthorities Nothing) >>= \case
          Left (LoadError _ what) -> liftIO (assertBool what ("no certificates" `isInfixOf` what))
          Right tls -> shaken served tls "localhost" >>= untrusted "authority is not known",
      testCase "both see what was agreed on" $ world $ \served -> do
        tls <- trusting
        ours <- shaken served tls "localhost"
        theirs <- withConnection served tls (\t -> exchange t [ask "/"])
        let agreed = either (\_ -> "") securityCipher ours
            expected = Security "TLS1.3" agreed (Just "http/1.1") (Just "localhost") Nothing
        liftIO (either (assertFailure . show) (\s -> s {securityServerName = Just "localhost"} @?= expected) ours)
        liftIO (assertBool (show agreed) (agreed `elem` ["TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"]))
        liftIO (assertBool (show theirs) (show' expected `B.isSuffixOf` theirs)),
      testCase "a handshake can be given up" $ run $ do
        tls <- clientTls NoVerification Nothing
        listener <- listenTcp (Just "127.0.0.1") "0" 16
        address <- localAddress listener
        withSocket (openSocket AF_INET Stream) $ \socket -> do
          -- It waits in the listen queue, and no thread answers.
          connect socket address
          outcome <- timeout (milliseconds 20) (connectTls tls "localhost" socket)
          liftIO (maybe (pure ()) (\_ -> assertFailure "it came about") outcome)
        closeSocket listener,
      testCase "one thread sends while another receives, both as much as they can" $ world $ \served -> do
        tls <- trusting
        withConnection served tls $ \transport -> do
          buffer <- liftIO (newBuffer 65_536)
          let sendAll' bytes
                | B.null bytes = pure ()
                | otherwise = transportSend transport [bytes] >>= \n -> sendAll' (B.drop n bytes)
              receiveExactly n
                | n <= 0 = pure []
                | otherwise = do
                    got <- transportReceive transport buffer 0 n
                    piece <- liftIO (copyBuffer buffer 0 got)
                    if got == 0 then pure [] else (piece :) <$> receiveExactly (n - got)
          (_, echoed) <-
            concurrently
              (sendAll' "GET /echo HTTP/1.1\r\nHost: localhost\r\n\r\n" >> sendAll' large)
              (B.concat <$> receiveExactly (B.length large))
          liftIO (assertBool (show (B.length echoed)) (echoed == large))
          transportEnd transport
          rest <- transportToEnd transport
          liftIO (rest @?= ""),
      testCase "a stream that is cut off is not one that has ended" $ world $ \served -> do
        tls <- trusting
        connected (servedAddress served) $ \socket -> do
          -- Bytes after this number are withheld.
          left <- liftIO (newIORef (100_000 :: Int))
          let plainly = socketTransport socket
              cut buffer offset count = do
                n <- liftIO (readIORef left)
                if n <= 0
                  then pure 0
                  else do
                    got <- transportReceive plainly buffer offset (min n count)
                    got <$ liftIO (modifyIORef' left (subtract got))
          (transport, _) <- connectTlsWith tls "localhost" plainly {transportReceive = cut}
          outcome <- try (exchange transport [ask "/large"])
          liftIO (either (@?= Truncated) (\_ -> assertFailure "it was taken for the end") outcome),
      testCase "announces its end, though it has received no session ticket" $
        serving (settingsOf w ["ecdsa"]) {tlsSessions = 0} id $ \served -> do
          tls <- trusting
          connected (servedAddress served) $ \socket -> do
            sent <- liftIO (newIORef [])
            let plainly = socketTransport socket
                noting pieces = do
                  n <- transportSend plainly pieces
                  n <$ liftIO (modifyIORef' sent (n :))
            (transport, _) <- connectTlsWith tls "localhost" plainly {transportSend = noting}
            liftIO (writeIORef sent [])
            transportEnd transport
            -- A header, an alert, the kind of its content, and the tag.
            liftIO (readIORef sent >>= (@?= [5 + 2 + 1 + 16])),
      testCase "a record that was tampered with ends the connection, on both sides" $ do
        world $ \served -> do
          tls <- trusting
          connected (servedAddress served) $ \socket -> do
            sends <- liftIO (newIORef (0 :: Int))
            let plainly = socketTransport socket
                tampering pieces = do
                  n <- liftIO (readIORef sends)
                  liftIO (writeIORef sends (n + 1))
                  let bytes = B.concat pieces
                  -- The first two are the handshake's.
                  if n < 2 then transportSend plainly [bytes] else B.length bytes <$ sendAll socket (B.init bytes <> B.singleton (B.last bytes + 1))
            (transport, _) <- connectTlsWith tls "localhost" plainly {transportSend = tampering}
            outcome <- try (exchange transport [ask "/"])
            liftIO (either (\e -> assertBool (show e) (isRefusal e)) (assertFailure . show) outcome),
      testGroup
        "certificates of clients"
        [ testCase "one that is required" $ serving (settingsOf w ["ecdsa"]) {tlsClients = RequiredFrom (at "ca.pem")} id $ \served -> do
            alice <- clientTls (AuthoritiesFrom (at "ca.pem")) (Just (files w "alice"))
            answer <- withConnection served alice (\t -> exchange t [ask "/"])
            liftIO (assertBool (show answer) ("securitySubject = Just \"O=Weft,CN=alice\"" `B.isInfixOf` answer))
            none <- trusting
            refuses served none
            stranger <- clientTls (AuthoritiesFrom (at "ca.pem")) (Just (files w "stranger"))
            refuses served stranger
            -- For a server, and not for a client.
            misused <- clientTls (AuthoritiesFrom (at "ca.pem")) (Just (files w "ecdsa"))
            refuses served misused
            -- In TLS 1.2, too.
            (_, old, _) <- program "curl" (curl served <> ["--tls-max", "1.2", "--cert", at "alice.pem", "--key", at "alice.key"])
            liftIO (assertBool old ("CN=alice" `isInfixOf` old))
            (_, refused, _) <- program "curl" (curl served <> ["--tls-max", "1.2"])
            liftIO (refused @?= ""),
          testCase "one that is optional, or said to be impossible" . possibly $ \served -> do
            none <- trusting
            answer <- withConnection served none (\t -> exchange t [ask "/"])
            liftIO (assertBool (show answer) ("securitySubject = Nothing" `B.isInfixOf` answer))
            (_, old, _) <- program "curl" (curl served <> ["--tls-max", "1.2"])
            liftIO (assertBool old ("securitySubject = Nothing" `isInfixOf` old))
            stranger <- clientTls (AuthoritiesFrom (at "ca.pem")) (Just (files w "stranger"))
            refuses served stranger
        ]
    ]
  where
    world = serving (settingsOf w ["ecdsa"]) id
    at name = directory w <> "/" <> name
    trusting = clientTls (AuthoritiesFrom (at "ca.pem")) Nothing
    possibly use
      | optionalCertificates = serving optional id use
      | otherwise =
          run (try (loadTls optional)) >>= \case
            Left (LoadError _ why) -> assertBool why ("tls of this version" `isInfixOf` why)
            Right _ -> assertFailure "loaded"
    optional = (settingsOf w ["ecdsa"]) {tlsClients = OptionalFrom (at "ca.pem")}
    curl served = ["--silent", "--cacert", at "ca.pem", "https://localhost:" <> servedPort served <> "/"]
    isRefusal = \case
      Refused _ -> True
      RefusedByPeer _ -> True
      _ -> False
    show' s = B.pack (map (fromIntegral . fromEnum) (show (Just s)))
    untrusted part = \case
      Left (Untrusted reasons) -> liftIO (assertBool (show reasons) (any (part `isInfixOf`) reasons))
      other -> liftIO (assertFailure (show other))
    shaken :: Served -> ClientTlsSettings -> HostName -> Thread (Either TlsFailure Security)
    shaken served tls host = connected (servedAddress served) $ \socket -> do
      try $ do
        (transport, security) <- connectTlsWith tls host (socketTransport socket)
        transportEnd transport
        security <$ transportToEnd transport
    -- In TLS 1.3 the client learns of it when it receives.
    refuses served tls = do
      outcome <- try @_ @TlsFailure (try @_ @IOException (withConnection served tls (\t -> exchange t [ask "/"])))
      case outcome of
        Right (Right answer) -> liftIO (assertFailure (show answer))
        _ -> void (pure ())
