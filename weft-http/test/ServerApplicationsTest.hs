-- | Applications, and what stands around them: observers, reports, layers, transports.
module ServerApplicationsTest (applications, surroundings) where

import Control.Exception (ErrorCall (..), throwIO)
import Control.Monad (forM_, zipWithM_)
import Data.Bits (xor)
import Data.ByteString qualified as B
import Data.IORef
import Data.List (isInfixOf)
import Foreign.Storable (pokeElemOff)
import ServerRig
import ServerTalk
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Buffer
import Weft.Event qualified as Event
import Weft.File (OpenMode (ReadOnly), closeFile, openFile)
import Weft.Http.Server
import Weft.Http.Status
import Weft.Socket hiding (Raw)
import Weft.Test.Loopback (toEnd, untilFound)
import Weft.Test.Message (get, getLast, post, statuses)
import Weft.Test.Observing (has)

applications :: TestTree
applications =
  testGroup
    "applications"
    [ testCase "hold what they hold until the response was sent, and let go of it once" $ do
        log' <- newIORef ([] :: [String])
        let say what = liftIO (modifyIORef' log' (what :))
            application _ respond = bracket_ (say "take") (say "give") (respond (streamed ok200 [] (\sink -> say "make" >> sinkWrite sink "x")))
        (answer, _) <- applying application (\rig -> conversation rig [get "/", get "/"])
        statuses answer @?= ["200", "200"]
        readIORef log' >>= (@?= concat (replicate 2 ["take", "make", "give"])) . reverse,
      testCase "what was sent was sent" $ do
        -- The client lets the application go on, when it has the response.
        (answer, _) <- gated $ \gate ->
          (\_ respond -> respond (plain ok200 [] "here") >>= \sent -> sent <$ Event.wait gate, Event.set gate)
        statuses answer @?= ["200"],
      testCase "answer once" $ do
        refusals <- newIORef (0 :: Int)
        let application _ respond = do
              sent <- respond (plain ok200 [] "one")
              again <- try (respond (plain ok200 [] "two"))
              case again of
                Left (_ :: IOError) -> liftIO (modifyIORef' refusals (+ 1))
                Right _ -> pure ()
              pure sent
        (answer, _) <- applying application (\rig -> conversation rig [get "/" <> get "/"])
        statuses answer @?= ["200", "200"]
        readIORef refusals >>= (@?= 2),
      testCase "answer once, and the file of another answer is released" $ do
        released <- newIORef (0 :: Int)
        let application _ respond = do
              sent <- respond (plain ok200 [] "one")
              file <- openFile "/dev/null" ReadOnly
              let release = closeFile file >> liftIO (modifyIORef' released (+ 1))
              _ <- try @_ @IOError (respond (Response ok200 [] (FileBody file [] "two" release) Nothing))
              pure sent
        (answer, _) <- applying application (\rig -> conversation rig [get "/"])
        statuses answer @?= ["200"]
        readIORef released >>= (@?= 1),
      testCase "that fail before their response are answered with 500" $ do
        (answer, seen) <- applying (\_ _ -> throwM (userError "boom")) (\rig -> conversation rig [get "/", get "/"])
        statuses answer @?= ["500", "500"]
        length (seenReports seen) @?= 2,
      testCase "that fail after their response have answered, and the operator is told" $ do
        (answer, seen) <- applying (\_ respond -> respond (plain ok200 [] "") >> throwM (userError "boom")) (\rig -> conversation rig [get "/", get "/"])
        statuses answer @?= ["200", "200"]
        length (seenReports seen) @?= 2,
      testCase "that fail while their response is sent end the connection" $ do
        (answer, seen) <- applying (\_ respond -> respond (streamed ok200 [] (\sink -> sinkWrite sink "a" >> sinkFlush sink >> liftIO (throwIO (ErrorCall "boom"))))) (\rig -> conversation rig [get "/", get "/"])
        statuses answer @?= ["200"]
        assertBool (show answer) ("1\r\na\r\n" `B.isSuffixOf` answer)
        assertBool (show seen) (any ("boom" `isInfixOf`) (seenReports seen)),
      testCase "and bodies" $ do
        (answer, _) <- applying (\r respond -> readBody 100 r >>= respond . plain ok200 []) (\rig -> conversation rig [post "/" ["Content-Length: 5"] "hello" <> post "/" ["Transfer-Encoding: chunked"] "2\r\nab\r\n0\r\n\r\n", getLast "/"])
        statuses answer @?= ["200", "200", "200"]
    ]
  where
    applying application body = do
      (a, seen) <- withApplication id application body
      seenUncaught seen @?= []
      pure (a, seen)
    gated make = do
      chosen <- newIORef (\_ respond -> respond (plain ok200 [] ""))
      applying (\r respond -> liftIO (readIORef chosen) >>= \application -> application r respond) $ \rig -> do
        gate <- Event.newEvent
        let (application, open) = make gate
        liftIO (writeIORef chosen application)
        rigClient rig $ \client -> do
          sendAll client (getLast "/")
          here <- untilFound client "here"
          () <- open
          (here <>) <$> toEnd client

surroundings :: TestTree
surroundings =
  testGroup
    "surroundings"
    [ testCase "observers that fail do not matter" $ do
        (answer, _) <- talkingWith (\s -> s {serverObserver = Just (const failing), serverAccessLog = Just (const failing), serverReport = const failing}) (\r -> if requestPath r == "/bad" then throwM (userError "boom") else echo r) (\rig -> conversation rig [get "/", get "/bad", get "/"])
        statuses answer @?= ["200", "500", "200"],
      testCase "a report is one line, whatever a client puts into it" $ do
        (_, seen) <- talking (\_ -> throwM (userError "no file a\nweft: forged\r\ESC[2K")) (\rig -> conversation rig [get "/"])
        seenReports seen @?= ["a handler failed: user error (no file a\\nweft: forged\\r\\ESC[2K)"],
      testCase "a rendered response that asks to close closes" $ do
        let rendered = (plain ok200 [Field "Connection" "close"] "body") {responseRendered = Just (Rendered "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody" [])}
        -- Alone, when it is sent at once, and before another request.
        forM_ [get "/", get "/" <> get "/"] $ \requests' -> do
          (answer, _) <- talking (\_ -> pure rendered) $ \rig -> rigClient rig $ \client -> do
            sendAll client requests'
            told <- untilFound client "body"
            _ <- try @_ @IOError (sendAll client (get "/") >> shutdown client ShutdownSend)
            (told <>) <$> toEnd client
          statuses answer @?= ["200"]
          has "Connection: close\r\n" answer,
      testCase "a layer that fails ends its connection" $ do
        (answer, seen) <- talkingWith (\s -> s {serverLayers = [\_ _ _ -> liftIO failing]}) echo (\rig -> conversation rig [get "/"])
        answer @?= ""
        assertBool (show seen) ("layer failed" `elem` seenObserved seen),
      testCase "a transport that fails ends its connection" $ do
        (answer, _) <- talkingWith (\s -> s {serverLayers = [\_ transport client -> pure (transport {transportSend = \_ -> liftIO failing}, client)]}) echo (\rig -> conversation rig [get "/"])
        answer @?= "",
      testCase "bytes go through all layers" $ do
        (answer, _) <- talkingWith (\s -> s {serverLayers = [veil 1, veil 2]}) echo (\rig -> B.map (xor 3) <$> conversation rig (map (B.map (xor 3)) [post "/" ["Content-Length: 5"] "hello" <> get "/", get "/"]))
        statuses answer @?= ["200", "200", "200"]
        has "\r\n\r\nhello" answer
    ]
  where
    failing = throwIO (ErrorCall "observer")
    veil key _ transport client =
      pure
        ( transport
            { transportReceive = \buffer offset count -> do
                own <- liftIO (newBuffer 100)
                n <- transportReceive transport own 0 (min 100 (min count (bufferSize buffer - offset)))
                bytes <- B.map (xor key) <$> liftIO (copyBuffer own 0 n)
                n <$ liftIO (withBuffer buffer (\p -> zipWithM_ (pokeElemOff p) [offset ..] (B.unpack bytes))),
              transportSend = \pieces -> do
                let bytes = B.take 70 (B.concat pieces)
                transportSend transport [B.map (xor key) bytes]
            },
          client
        )
