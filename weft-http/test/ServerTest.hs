-- | The server engine with handlers made for the purpose: server and client are
-- threads of one run, with a loopback connection between them.
module ServerTest (tests) where

import Control.Monad (join, void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.ByteString.Unsafe (unsafeUseAsCStringLen)
import Data.IORef
import Foreign.Marshal.Utils (copyBytes)
import Foreign.Ptr (castPtr, plusPtr)
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Buffer
import Weft.File (OpenMode (ReadOnly), closeFile, openFile)
import Weft.Http.Request
import Weft.Http.Server
import Weft.Http.Server.State (Interruption (..), Reason (..))
import Weft.Http.Status
import Weft.Socket
import Weft.Test.Loopback (connected, loopbackListener, serving, toEnd)
import Weft.Test.Message (get, getLast, statuses)
import Weft.Test.Observing (recorder)

tests :: TestTree
tests =
  localOption (mkTimeout 180_000_000) $
    testGroup
      "server"
      [ testCase "an exception of a handler is a 500, and the connection goes on" $ do
          (answer, _) <- talk (\r -> if requestPath r == "/bad" then throwM (userError "boom") else pure (plain ok200 [] "fine")) [get "/bad", getLast "/"]
          statuses answer @?= ["500", "200"],
        testCase "a field that cannot be sent is a 500" $ do
          (answer, _) <- talk (\_ -> pure (plain ok200 [Field "X" "a\r\nSet-Cookie: b"] "")) [getLast "/"]
          statuses answer @?= ["500"]
          assertBool (show answer) (not ("Set-Cookie" `B.isInfixOf` answer)),
        testCase "a file body is released once, also when its head cannot be sent" $ do
          released <- newIORef (0 :: Int)
          let handler fields _ = do
                file <- openFile "/dev/null" ReadOnly
                pure (Response ok200 fields (FileBody file [] "end" (closeFile file >> liftIO (modifyIORef' released (+ 1)))) Nothing)
          _ <- talk (handler [Field "X" "a\nb"]) [getLast "/"]
          readIORef released >>= (@?= 1)
          (answer, _) <- talk (handler []) [getLast "/"]
          readIORef released >>= (@?= 2)
          assertBool (show answer) ("\r\n\r\nend" `B.isSuffixOf` answer),
        testCase "HEAD, 204 and 304 have no body, whatever the handler says" $ do
          let rendered = (plain ok200 [] "body") {responseRendered = Just (Rendered "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody" [])}
          (answer, _) <- talk (\_ -> pure rendered) ["HEAD / HTTP/1.1\r\nHost: t\r\n\r\n", "HEAD / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"]
          assertBool (show answer) (not ("body" `B.isInfixOf` answer))
          (empty, _) <- talk (\_ -> pure (plain notModified304 [] "body")) [getLast "/"]
          assertBool (show empty) ("\r\n\r\n" `B.isSuffixOf` empty),
        testCase "pieces of a body come in order" $ do
          (answer, _) <- talk (\_ -> pure (Response ok200 [] (Bytes ["a", "", "bc", "d"]) Nothing)) [get "/", getLast "/"]
          statuses answer @?= ["200", "200"]
          assertBool (show answer) ("\r\n\r\nabcd" `B.isSuffixOf` answer && "Content-Length: 4\r\n" `B.isInfixOf` answer),
        testCase "many pipelined large responses come whole" $ do
          let body = B.replicate 100_000 0x61
          (answer, _) <- talk (\_ -> pure (plain ok200 [] body)) [B.concat (replicate 20 (get "/") <> [getLast "/"])]
          C.count 'a' answer `div` 100_000 @?= 21,
        testCase "each response is an entry of the log" $ do
          (_, entries) <- talk (\_ -> pure (plain ok200 [] "12345")) [get "/x", getLast "/y"]
          [(statusCode (entryStatus e), entryBytes e) | e <- entries] @?= [(200, 5), (200, 5)],
        testCase "what a layer holds when its connection is asked to rest is not waited for" $ do
          answer <- interruptedInLayer
          statuses answer @?= ["200", "200"],
        testCase "a server that drains says close" $ do
          -- The handler sees to it that draining begins while it works.
          answer <- drainingWhileHandled
          statuses answer @?= ["200"]
          assertBool (show answer) ("Connection: close\r\n" `B.isInfixOf` answer)
      ]

-- | Send these bytes to a server with such a handler: all it sends, and its log.
talk :: Handler -> [ByteString] -> IO (ByteString, [Entry])
talk handler requests = do
  (note, logged) <- recorder
  answer <- run $ do
    server <- newServer defaultServerSettings {serverAccessLog = Just note} (const handler)
    serving (serve server) (drain server . pure) $ \address ->
      connected address (\client -> mapM_ (sendAll client) requests >> toEnd client)
  (,) answer <$> logged

-- | Two requests through a layer that is interrupted in the moment in which it has received the
-- second: the socket does not become readable for that again.
interruptedInLayer :: IO ByteString
interruptedInLayer = do
  receives <- newIORef (0 :: Int)
  held <- newIORef B.empty
  let layer _ below client = pure (below {transportReceive = receiving below, transportPending = not . B.null <$> readIORef held}, client)
      receiving below buffer offset count = do
        n <- liftIO (atomicModifyIORef' receives (\n -> (n + 1, n + 1)))
        if n == 2
          then do
            own <- liftIO (newBuffer 4096)
            got <- transportReceive below own 0 4096
            valid <- liftIO (copyBuffer own 0 got >>= writeIORef held >> newIORef True)
            throwM (Interruption BufferUnused valid)
          else do
            bytes <- liftIO (atomicModifyIORef' held (B.empty,))
            if B.null bytes
              then transportReceive below buffer offset count
              else liftIO $ do
                withBuffer buffer $ \p -> unsafeUseAsCStringLen bytes $ \(q, size) -> copyBytes (p `plusPtr` offset) (castPtr q) size
                pure (B.length bytes)
  run $ do
    server <- newServer defaultServerSettings {serverLayers = [layer]} (\_ _ -> pure (plain ok200 [] "fine"))
    serving (serve server) (drain server . pure) $ \address -> connected address $ \client -> do
      sendAll client (get "/")
      first <- receive client 65536
      sendAll client (getLast "/")
      (first <>) <$> toEnd client

-- | Not taken over: the handler must not answer before 'drain' has made its first step.
drainingWhileHandled :: IO ByteString
drainingWhileHandled = runWith defaultSettings {settingCarriers = 0} $ do
  begin <- liftIO (newIORef (pure ()))
  server <- newServer defaultServerSettings $ \_ _ -> do
    join (liftIO (readIORef begin))
    pure (plain ok200 [] "last")
  listener <- loopbackListener
  -- 'drain' marks the server in its first step, before it waits for anything.
  liftIO (writeIORef begin (fork_ (void (drain server [listener])) >> yield))
  fork_ (serve server listener)
  address <- localAddress listener
  connected address $ \client -> do
    sendAll client (get "/")
    toEnd client
