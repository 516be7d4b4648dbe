-- | Clients that do not speak TLS, or not well.
module BadClientTest (tests) where

import Control.Monad (void)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.IORef
import Data.List (isInfixOf, isSuffixOf)
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Concurrently (forConcurrently)
import Weft.Http.Metrics (newRegistry, scrape)
import Weft.Http.Server
import Weft.Internal.Data.Time (Instant (..))
import Weft.Socket
import Weft.Test.Loopback (connected, toEnd, tryConverse)
import Weft.Test.Waiting (eventually)
import Weft.Tls
import Weft.Tls.Internal.Failure
import Weft.Tls.Metrics (countFailures)
import World

tests :: World -> TestTree
tests w =
  testGroup
    "bad clients"
    [ testCase "plain HTTP is answered with 400, in plain" $ world $ \served -> do
        answer <- said served ["GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"]
        liftIO (assertBool (show answer) ("HTTP/1.1 400 Bad Request\r\n" `B.isPrefixOf` answer))
        let (_, body) = B.breakSubstring "\r\n\r\n" answer
        liftIO (assertBool (show answer) (C.pack ("Content-Length: " <> show (B.length body - 4) <> "\r\n") `B.isInfixOf` answer))
        failed served [PlainHttp],
      testCase "garbage ends the connection" $ world $ \served -> do
        answers <- mapM (said served . pure) ["\0\1\2\3", "\128\46\1\3\1", "\21\3\1\0\2\2\10", "\255"]
        liftIO (answers @?= ["", "", "", ""])
        failed served (replicate 4 NotTls)
        -- A message of a handshake, of a kind that there is not: an alert.
        answer <- said served ["\22\3\1\0\4\104\0\0\0"]
        liftIO (B.take 2 answer @?= "\21\3")
        -- A record that is longer than allowed, and one of nothing.
        void (said served ["\22\3\1\255\255", B.replicate 70_000 0])
        void (said served ["\22\3\1\0\0"])
        eventually "all have ended" $ (== 7) . length <$> readIORef (servedFailures served),
      testCase "a handshake that stalls has the time of a head" $
        serving (settingsOf w ["ecdsa"]) (\s -> s {serverTimeouts = defaultTimeouts {timeoutHead = milliseconds 10}}) $ \served -> do
          answers <- forConcurrently ["\22", "\22\3\1\2\0\1\0\1"] $ \bytes -> connected (servedAddress served) $ \socket -> sendAll socket bytes >> toEnd socket
          liftIO (map (B.take 1) answers @?= ["", ""])
          failed served [Vanished, Vanished]
          observed <- liftIO (readIORef (servedObserved served))
          liftIO (length [() | TimedOut ExpiredHead <- observed] @?= 2)
          liftIO (length [() | LayerFailed <- observed] @?= 2),
      testCase "renegotiation is refused" $ world $ \served -> do
        out <- commanding w served ["-tls1_2"] "R" "RENEGOTIATING"
        liftIO (assertBool out (not ("HTTP/1.1 200" `isInfixOf` out)))
        eventually "the server has ended it" $ any isClosed <$> readIORef (servedObserved served),
      testCase "failures are observed, with their reasons, and are no errors of the server" $ world $ \served -> do
        _ <- program "openssl" ["s_client", "-connect", "127.0.0.1:" <> servedPort served, "-alpn", "h2"]
        _ <- program "openssl" ["s_client", "-connect", "127.0.0.1:" <> servedPort served, "-tls1_1", "-cipher", "ALL:@SECLEVEL=0"]
        _ <- program "openssl" ["s_client", "-connect", "127.0.0.1:" <> servedPort served, "-verify_return_error", "-verify", "5"]
        eventually "three failures" $ (== 3) . length <$> readIORef (servedFailures served)
        failures <- liftIO (reverse <$> readIORef (servedFailures served))
        liftIO (map failedAlert failures @?= [Just "no_application_protocol", Just "protocol_version", Just "unknown_ca"])
        case map failedWhy failures of
          [Refused alpn, Refused version, RefusedByPeer alert] ->
            liftIO (assertBool (show failures) ("NoApplicationProtocol" `isInfixOf` alpn && "ProtocolVersion" `isInfixOf` version && alert == "unknown_ca"))
          _ -> liftIO (assertFailure (show failures)),
      testCase "failures are counted by reason and alert, and a line tells of them" $ do
        registry <- newRegistry
        count <- countFailures registry
        lines' <- newIORef []
        let settings = (settingsOf w ["ecdsa"]) {tlsReport = \text -> atomicModifyIORef' lines' (\ls -> (text : ls, ()))}
        told <- servingWith count settings $ \served -> do
          void (said served ["\22\3\1\255\255"])
          _ <- said served []
          void (said served ["GET / HTTP/1.1\r\n\r\n"])
          void (said served ["GET / HTTP/1.1\r\n\r\n"])
          eventually "four failures" $ (== 4) . length <$> readIORef (servedFailures served)
          liftIO (readIORef lines')
        -- One line, of the first: the others come within ten seconds.
        case told of
          [line] -> assertBool line ("failed: TLS: refused: " `isInfixOf` line && "; alert sent: record_overflow" `isSuffixOf` line)
          _ -> assertFailure (show told)
        page <- scrape registry
        let counted reason alert n = C.concat ["weft_tls_handshake_failures_total{reason=\"", reason, "\",alert=\"", alert, "\"} ", n, "\n"]
        mapM_ (\l -> assertBool (show page) (l `B.isInfixOf` page)) [counted "refused" "record_overflow" "1", counted "nothing_sent" "none" "1", counted "plain_http" "none" "2"],
      testCase "of failures a line is told every ten seconds, with the number of the others" $ do
        let at n = Instant (n * 1_000_000_000)
            step (quiet, told) n = let (quiet', one) = admit (at n) quiet in (quiet', told <> [one])
        snd (foldl step (Loud, []) [5, 6, 14, 15, 16, 40, 41]) @?= [Just 0, Nothing, Nothing, Just 2, Nothing, Just 1, Nothing]
    ]
  where
    servingWith count settings = serving settings {tlsOnFailure = Just count} id
    world = serving (settingsOf w ["ecdsa"]) id
    isClosed = \case
      ConnectionClosed -> True
      _ -> False
    said :: Served -> [B.ByteString] -> Thread B.ByteString
    said served pieces = connected (servedAddress served) (tryConverse pieces)
    failed served wanted = do
      eventually (show wanted) $ (>= length wanted) . length <$> readIORef (servedFailures served)
      failures <- liftIO (readIORef (servedFailures served))
      liftIO (map failedWhy failures @?= wanted)
