-- | Limits on requests, connections, handlers, and on bytes that no client takes.
module ServerLimitsTest (limited) where

import Control.Monad (join, replicateM_, unless, void)
import Data.ByteString qualified as B
import Data.ByteString.Builder (byteString)
import Data.IORef
import Data.Primitive.PrimVar (readPrimVar, writePrimVar)
import ServerRig
import ServerTalk
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Event qualified as Event
import Weft.File (OpenMode (ReadOnly), closeFile, openFile)
import Weft.Http.Server
import Weft.Http.Server.State (Server (..))
import Weft.Http.Status
import Weft.Socket hiding (Raw)
import Weft.Test.Loopback (toEnd, untilFound)
import Weft.Test.Message (get, getLast, post, statuses)
import Weft.Test.Observing (has)

limited :: TestTree
limited =
  testGroup
    "limits"
    [ testCase "requests of a connection" $ do
        (answer, _) <- talkingWith (\s -> s {serverMaxRequests = 2}) echo (\rig -> conversation rig [get "/" <> get "/" <> get "/"])
        statuses answer @?= ["200", "200"]
        has "Connection: close\r\n" answer,
      testCase "connections of a peer" $ do
        (answers, seen) <- talkingWith (\s -> s {serverMaxPerPeer = 1}) echo $ \rig -> do
          (first, second) <- rigClient rig $ \client -> do
            sendAll client (get "/")
            first <- untilFound client "\r\n\r\n"
            second <- conversation rig [get "/"]
            sendAll client (getLast "/")
            _ <- toEnd client
            pure (first, second)
          third <- eventually (conversation rig [get "/"]) ((== ["200"]) . statuses)
          pure (map statuses [first, second, third])
        answers @?= [["200"], ["503"], ["200"]]
        assertBool (show seen) ("refused" `elem` seenObserved seen),
      testCase "one more connection is refused at once; one more when there is room is served" $ do
        (answers, _) <- talkingWith (\s -> s {serverMaxConnections = 1, serverOverload = RefuseQuickly 7}) echo $ \rig -> do
          (first, second) <- rigClient rig $ \client -> do
            sendAll client (get "/")
            first <- untilFound client "\r\n\r\n"
            second <- rigClient rig toEnd
            sendAll client (getLast "/")
            _ <- toEnd client
            pure (first, second)
          untilM ((== 0) <$> liftIO (connectionCount (rigServer rig)))
          third <- conversation rig [get "/"]
          has' "Retry-After: 7\r\n" second
          pure (map statuses [first, second, third])
        answers @?= [["200"], ["503"], ["200"]],
      testCase "that the limit of connections is reached is counted, and said once a minute" $ do
        (due, seen) <- talkingWith (\s -> s {serverMaxConnections = 1}) echo $ \rig -> do
          let several = replicateM_ 3 (conversation rig [get "/"])
              said = serverFullSaid (rigServer rig)
          several
          since <- liftIO (readPrimVar (serverSince (rigServer rig)))
          due <- subtract (fromIntegral since) <$> liftIO (readPrimVar said)
          -- A minute goes by.
          liftIO (writePrimVar said (fromIntegral since)) >> several
          pure due
        assertBool (show due) (due > 50_000_000_000 && due <= 60_000_000_000)
        length (filter (== "limit") (seenObserved seen)) @?= 6
        seenReports seen @?= replicate 2 "the limit of 1 connections is reached; more wait in the listen queue",
      testCase "the system keeps little of what a client does not take" $ do
        taken <- newIORef (0 :: Int)
        let making sink = replicateM_ 64 (sinkWrite sink (byteString (B.replicate 16_384 0x61)) >> sinkFlush sink >> liftIO (modifyIORef' taken (+ 16_384)))
        void . talkingWith id (\r -> pure (if requestPath r == "/" then plain ok200 [] "" else streamed ok200 [] making)) $ \rig -> do
          -- Then it has begun to serve.
          _ <- conversation rig [get "/"]
          rigClient rig $ \client -> do
            sendAll client (getLast "/much")
            -- The first byte is there when the maker has been stopped, or is not any more.
            _ <- receive client 1
            _ <- eventually (liftIO (readIORef taken)) (> 0)
            replicateM_ 200 yield
            n <- liftIO (readIORef taken)
            liftIO (assertBool (show n) (n < 700_000))
            _ <- toEnd client
            liftIO (readIORef taken >>= (@?= 64 * 16_384)),
      testCase "handlers at work" $ do
        gate <- newIORef (pure ())
        working <- newIORef (pure ())
        let handler r = case requestPath r of
              "/slow" -> do
                join (liftIO (readIORef working))
                join (liftIO (readIORef gate))
                pure (plain ok200 [] "")
              _ -> pure (plain ok200 [] "")
        (answers, seen) <- talkingWith (\s -> s {serverMaxHandlers = 1}) handler $ \rig -> do
          opened <- Event.newEvent
          began <- Event.newEvent
          liftIO (writeIORef gate (Event.wait opened) >> writeIORef working (Event.set began))
          rigClient rig $ \client -> do
            sendAll client (getLast "/slow")
            Event.wait began
            second <- conversation rig [post "/" ["Content-Length: 2"] "hi" <> get "/"]
            Event.set opened
            first <- toEnd client
            third <- conversation rig [get "/"]
            pure (map statuses [first, second, third])
        answers @?= [["200"], ["503", "503"], ["200"]]
        length (filter (== "shed") (seenObserved seen)) @?= 2,
      testCase "a client that is slow to take a file holds up no handler" $ do
        (answers, _) <- talkingWith (\s -> s {serverMaxHandlers = 1}) aFile $ \rig -> rigClient rig $ \slow -> do
          sendAll slow (getLast "/file")
          head' <- untilFound slow "\r\n\r\n"
          second <- conversation rig [get "/"]
          _ <- toEnd slow
          pure (map statuses [head', second])
        answers @?= [["200"], ["200"]]
    ]
  where
    has' part bytes = liftIO (has part bytes)
    aFile r
      | requestPath r == "/file" = do
          file <- openFile "/proc/self/exe" ReadOnly
          -- More than the socket's buffers take.
          pure (Response ok200 [] (FileBody file (replicate 20 (FilePart "" 0 1_000_000)) "" (closeFile file)) Nothing)
      | otherwise = pure (plain ok200 [] "")
    eventually act good = act >>= \a -> if good a then pure a else yield >> eventually act good
    untilM test = test >>= \done -> unless done (yield >> untilM test)
