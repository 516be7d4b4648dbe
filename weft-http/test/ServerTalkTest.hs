-- | The server in the middle of a conversation: bodies that are waited for, streams that fail,
-- and other protocols.
module ServerTalkTest (tests) where

import Control.Exception (ErrorCall (..), throwIO)
import Control.Monad (forM_, unless, void, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder (byteString)
import Data.IORef
import Data.List (isInfixOf)
import ServerApplicationsTest (applications, surroundings)
import ServerLimitsTest (limited)
import ServerRig
import ServerTalk
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Http.Server
import Weft.Http.Status
import Weft.Socket hiding (Raw)
import Weft.Test.Loopback (toEnd, untilFound)
import Weft.Test.Message (get, getLast, post, statuses)
import Weft.Test.Observing (has, lacks)

tests :: TestTree
tests =
  localOption (mkTimeout 180_000_000) $
    testGroup "server talk" [bodies, streams, protocols, applications, limited, surroundings]

waiting :: ByteString -> ByteString
waiting target = post target ["Content-Length: 5", "Expect: 100-continue"] ""

-- Bodies ---------------------------------------------------------------------------

bodies :: TestTree
bodies =
  testGroup
    "bodies"
    [ testCase "a client that waits for 100 is told, and goes on" $ do
        (answer, _) <- talking echo $ \rig -> rigClient rig $ \client -> do
          sendAll client (waiting "/")
          told <- untilFound client "\r\n\r\n"
          sendAll client ("hello" <> getLast "/")
          (told <>) <$> toEnd client
        statuses answer @?= ["100", "200", "200"]
        has "\r\n\r\nhello" answer,
      testCase "a client that waits for 100 of a handler that does not read is answered, and no more" $ do
        (answer, _) <- talking (\_ -> pure (plain ok200 [] "no")) (\rig -> conversation rig [waiting "/"])
        statuses answer @?= ["200"]
        has "Connection: close\r\n" answer,
      testCase "a client that waits for 100 and gives up is no news" $ do
        (answer, seen) <- talking echo (\rig -> conversation rig [waiting "/"])
        statuses answer @?= ["100"]
        seenReports seen @?= [],
      testCase "100 comes before the head of a stream that has not begun" $ do
        (answer, _) <- talking back $ \rig -> rigClient rig $ \client -> do
          sendAll client (waiting "/")
          told <- untilFound client "\r\n\r\n"
          sendAll client "hello"
          (told <>) <$> toEnd client
        statuses answer @?= ["100", "200"]
        has "5\r\nhello\r\n0\r\n\r\n" answer,
      testCase "there is no 100 within a response" $ do
        (answer, _) <- talking (\r -> pure (streamed ok200 [] (\sink -> sinkWrite sink "first" >> sinkFlush sink >> copy r sink))) $ \rig -> rigClient rig $ \client -> do
          sendAll client (waiting "/")
          told <- untilFound client "first\r\n"
          sendAll client "hello"
          (told <>) <$> toEnd client
        statuses answer @?= ["200"]
        has "\r\n\r\n5\r\nfirst\r\n5\r\nhello\r\n0\r\n\r\n" answer,
      testCase "a client that is gone within its body is no news" $ do
        (answer, seen) <- talking echo (\rig -> conversation rig [post "/" ["Content-Length: 5"] "hel"])
        (statuses answer, seenReports seen, filter (== "failed") (seenObserved seen)) @?= ([], [], []),
      testCase "a handler that forgives a malformed body answers once" $ do
        (answer, _) <- talking forgiving (\rig -> conversation rig [post "/" ["Transfer-Encoding: chunked"] "2\r\nab\r\nx\r\n", get "/"])
        statuses answer @?= ["200"],
      testCase "the strings of a head are there when the body has come" $ do
        (answer, _) <- talking (\r -> readBody 100_000 r >> pure (plain ok200 [] (requestPath r))) $ \rig ->
          conversation rig [post "/a-long-path" ["Content-Length: 50000"] "", B.replicate 25_000 0x62, B.replicate 25_000 0x63, get "/b"]
        statuses answer @?= ["200", "200"]
        has "\r\n\r\n/a-long-path" answer
        assertBool (show answer) ("\r\n\r\n/b" `B.isSuffixOf` answer),
      testCase "pieces of a body can be kept" $ do
        kept <- newIORef []
        _ <- talking (\r -> receiveBody r >>= \piece -> liftIO (modifyIORef' kept (piece :)) >> echo r) $ \rig -> rigClient rig $ \client ->
          -- One after the other, so that each is received where the one before was.
          forM_ ["hello", "world", "again"] (\body -> sendAll client (post "/" ["Content-Length: 5"] body) >> untilFound client "\r\n\r\n")
        all' <- readIORef kept
        reverse all' @?= ["hello", "world", "again"],
      testCase "chunks of a byte each are not a piece each" $ do
        pieces <- newIORef (0 :: Int)
        (answer, _) <- talking (\r -> forBody_ r (\_ -> liftIO (modifyIORef' pieces (+ 1))) >> pure (plain ok200 [] "")) $ \rig ->
          conversation rig [post "/" ["Transfer-Encoding: chunked"] (B.concat (replicate 10_000 "1\r\na\r\n") <> "0\r\n\r\n")]
        statuses answer @?= ["200"]
        n <- readIORef pieces
        assertBool (show n <> " pieces") (n < 200),
      testCase "a body of any pieces is put together" $ do
        let parts = [B.replicate n 0x61 | n <- [1, 1, 1, 5_000, 1, 4_095, 1, 1, 20_000, 3]]
        (answer, _) <- talking echo $ \rig -> rigClient rig $ \client -> do
          fork_ $ do
            sendAll client (post "/" ["Content-Length: " <> number (sum (map B.length parts)), "Connection: close"] "")
            forM_ parts (\part -> sendAll client part >> mapM_ (const yield) [1 :: Int .. 6])
          toEnd client
        B.drop 4 (snd (B.breakSubstring "\r\n\r\n" answer)) @?= B.concat parts,
      testCase "a body is read while what comes back is sent" $ do
        let pieces = [B.replicate n 0x61 | n <- [1, 500 .. 30_000]]
        (answer, _) <- talking back $ \rig -> rigClient rig $ \client -> do
          fork_ $ do
            sendAll client (post "/" ["Content-Length: " <> number (sum (map B.length pieces)), "Connection: close"] "")
            mapM_ (sendAll client) pieces
          toEnd client
        B.count 0x61 (snd (B.breakSubstring "\r\n\r\n" answer)) - hexAs answer @?= sum (map B.length pieces)
    ]
  where
    back r = pure (streamed ok200 [] (copy r))
    copy r sink = forBody_ r (\piece -> sinkWrite sink (byteString piece) >> sinkFlush sink)
    forgiving r = (plain ok200 [] <$> readBody 100 r) `catch` \e -> pure (plain ok200 [] (if e == BodyCutOff then "cut" else "bad"))
    -- Digits "a" in the sizes of chunks.
    hexAs answer = sum [1 | line <- sizes (B.drop 4 (snd (B.breakSubstring "\r\n\r\n" answer))), w <- B.unpack line, w == 0x61]
    sizes rest = case B.breakSubstring "\r\n" rest of
      (line, more)
        | B.null more -> []
        | otherwise -> line : sizes (snd (B.splitAt 2 (snd (B.breakSubstring "\r\n" (B.drop 2 more)))))

number :: Int -> ByteString
number = foldMap (B.singleton . fromIntegral . fromEnum) . show

-- Streams --------------------------------------------------------------------------

streams :: TestTree
streams =
  testGroup
    "streams"
    [ testGroup
        "one that fails is cut short, and the operator is told"
        [ testCase name $ do
            (answer, seen) <- talking (\_ -> pure (streamed ok200 [] (\sink -> sinkWrite sink "some" >> sinkFlush sink >> failure))) (\rig -> conversation rig [get "/", get "/"])
            statuses answer @?= ["200"]
            assertBool (show answer) ("4\r\nsome\r\n" `B.isSuffixOf` answer)
            assertBool (show seen) (any ("boom" `isInfixOf`) (seenReports seen) && "failed" `elem` seenObserved seen)
          | (name, failure) <- [("with an error of its own", liftIO (throwIO (ErrorCall "boom"))), ("with an IOError", throwM (userError "boom"))]
        ],
      testCase "one that is shorter than announced is cut short, and the operator is told" $ do
        (answer, seen) <- talking (known 6 "one") (\rig -> conversation rig [get "/", get "/"])
        statuses answer @?= ["200"]
        assertBool (show answer) ("\r\n\r\none" `B.isSuffixOf` answer)
        length (seenReports seen) @?= 1,
      testCase "one that is longer than announced sends no more than that, and the operator is told" $ do
        (answer, seen) <- talking (known 2 "one") (\rig -> conversation rig [get "/", get "/"])
        assertBool (show answer) (not ("e" `B.isSuffixOf` answer))
        length (seenReports seen) @?= 1,
      testCase "one whose client is gone is no news" $ do
        began <- newIORef False
        (_, seen) <- talking (\_ -> pure (streamed ok200 [] (\sink -> liftIO (writeIORef began True) >> mapM_ (const (sinkWrite sink (byteString (B.replicate 20_000 0x61)))) [1 :: Int .. 2_000]))) $ \rig -> rigClient rig $ \client -> do
          sendAll client (get "/")
          void (receive client 1)
        readIORef began >>= (@?= True)
        seenReports seen @?= [],
      testCase "none is made for HEAD, 204 and 304" $ do
        made <- newIORef (0 :: Int)
        let handler r = pure (streamed (if requestMethod r == Head then ok200 else if requestPath r == "/204" then noContent204 else notModified304) [] (\_ -> liftIO (modifyIORef' made (+ 1))))
        (answer, _) <- talking handler (\rig -> conversation rig ["HEAD / HTTP/1.1\r\nHost: t\r\n\r\n", get "/204", get "/304", get "/304"])
        statuses answer @?= ["200", "204", "304", "304"]
        readIORef made >>= (@?= 0),
      testCase "a response that is none yet is no response" $
        forM_ [100, 103] $ \code -> do
          (answer, seen) <- talking (\_ -> pure (plain (toEnum code) [] "")) (\rig -> conversation rig [get "/"])
          statuses answer @?= ["500"]
          length (seenReports seen) @?= 1
    ]
  where
    known n bytes _ = pure (Response ok200 [] (Streamed (Just n) (\sink -> [] <$ sinkWrite sink bytes)) Nothing)

-- Other protocols ------------------------------------------------------------------

protocols :: TestTree
protocols =
  testGroup
    "other protocols"
    [ testCase "what comes with the request for another protocol belongs to that" $ do
        (answer, _) <- talking (switching switchingProtocols101) (\rig -> conversation rig ["GET / HTTP/1.1\r\nHost: t\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nab", "cd"])
        has "HTTP/1.1 101 Switching Protocols\r\n" answer
        has "\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n" answer
        lacks "Content-Length" answer
        assertBool (show answer) ("\r\n\r\nabcd" `B.isSuffixOf` answer),
      testCase "a tunnel" $ do
        (answer, _) <- talkingWith tunnels (switching ok200) (\rig -> conversation rig ["CONNECT t:80 HTTP/1.1\r\nHost: t:80\r\n\r\nab", "cd"])
        statuses answer @?= ["200"]
        lacks "Content-Length" answer
        lacks "Transfer-Encoding" answer
        assertBool (show answer) ("\r\n\r\nabcd" `B.isSuffixOf` answer),
      testCase "CONNECT is not implemented unless it is asked for" $ do
        (answer, _) <- talking (switching ok200) (\rig -> conversation rig ["CONNECT t:80 HTTP/1.1\r\nHost: t:80\r\n\r\nab"])
        statuses answer @?= ["501"],
      testCase "the connection itself, with what has come" $ do
        (answer, _) <- talking (\_ -> pure (Response ok200 [] (Raw echoing) Nothing)) (\rig -> conversation rig [get "/" <> "ab", "cd"])
        answer @?= "abcd",
      testCase "responses before it come before it" $ do
        (answer, _) <- talking (\r -> pure (if requestPath r == "/raw" then Response ok200 [] (Raw echoing) Nothing else plain ok200 [] "first")) (\rig -> conversation rig [get "/" <> get "/raw" <> "ab"])
        assertBool (show answer) ("\r\n\r\nfirstab" `B.isSuffixOf` answer),
      testGroup
        "a body does not belong to the protocol after it"
        [ testCase name $ do
            (answer, _) <- talking (\r -> when reads' (void (readBody 100 r)) >> switching switchingProtocols101 r) (\rig -> conversation rig [post "/" ["Connection: upgrade", "Upgrade: echo", framing] (body <> "ab"), "cd"])
            statuses answer @?= ["101"]
            assertBool (show answer) ("\r\n\r\nabcd" `B.isSuffixOf` answer)
          | (name, framing, body, reads') <-
              [ ("read, of known length", "Content-Length: 5", "hello", True),
                ("read, in chunks", "Transfer-Encoding: chunked", "5\r\nhello\r\n0\r\n\r\n", True),
                ("not read, of known length", "Content-Length: 5", "hello", False),
                ("not read, in chunks", "Transfer-Encoding: chunked", "5\r\nhello\r\n0\r\n\r\n", False)
              ]
        ],
      testCase "one that ends lets the session end without an error" $ do
        ended <- newIORef False
        let around _ session = session >> liftIO (writeIORef ended True)
        _ <- talkingWith (\s -> s {serverAround = Just around}) (switching switchingProtocols101) (\rig -> conversation rig [get "/"])
        readIORef ended >>= (@?= True),
      testCase "one that fails is reported" $ do
        (_, seen) <- talking (\_ -> pure (Response switchingProtocols101 [] (Switch (\_ -> liftIO (throwIO (ErrorCall "boom")))) Nothing)) (\rig -> conversation rig [get "/"])
        assertBool (show seen) (any ("boom" `isInfixOf`) (seenReports seen))
    ]
  where
    tunnels s = s {serverLimits = defaultLimits {limitConnect = True}}
    switching status _ = pure (Response status [Field "Upgrade" "echo" | status /= ok200] (Switch echoing) Nothing)
    echoing duplex = duplexReceive duplex >>= \piece -> unless (B.null piece) (duplexSend duplex [piece] >> echoing duplex)
