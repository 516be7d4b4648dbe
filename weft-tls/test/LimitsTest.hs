-- | Time limits, and ends that are not announced: what clients of the server are told.
module LimitsTest (tests) where

import Control.Monad (void, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.IORef
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Concurrently (concurrently)
import Weft.Http.Server hiding (Server)
import Weft.Http.Server.Phase (currentPhase, endPhase)
import Weft.Http.Server.State (Open (..), Phase (..), Server (..))
import Weft.Socket
import Weft.Test.Loopback (connected)
import Weft.Test.Message (statuses)
import Weft.Test.Waiting (eventually, eventuallyThread)
import Weft.Time (now, since)
import Weft.Tls
import World

-- In each of them the client reads up to an end that was announced; another is an exception.
tests :: World -> TestTree
tests w =
  testGroup
    "limits"
    [ testCase "a head that does not come to its end is answered with 408" $
        late "GET / HT" [ReceivingHead] ["408"],
      testCase "a body that does not come is answered with 408" $
        late postHead [ReceivingBody, ReceivingAtPace] ["408"],
      testCase "a connection that is idle for too long ends" $
        late "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" [Dormant] ["200"],
      testCase "a client that ends unannounced is told of the server's end" $ world id $ \served -> do
        tls <- trusting
        connected (servedAddress served) $ \socket -> do
          transport <- connectTls tls "localhost" socket
          shutdown socket ShutdownSend
          transportToEnd transport >>= liftIO . (@?= ""),
      testCase "a client that is late, and sends parts of a record, is not interrupted" $ do
        since' <- newIORef Nothing
        stopped <- newIORef False
        -- In parts for longer than the server waits if nothing comes, and not for as long as it waits at most.
        let slowly socket pieces = do
              begun <- liftIO (readIORef since')
              t <- now
              let slow = maybe False (\b -> since b t < milliseconds 400) begun
              when slow (sleep (milliseconds 5))
              transportSend (socketTransport socket) (if slow then [B.take 125 (B.concat pieces)] else pieces)
        lateWith slowly postHead [ReceivingBody, ReceivingAtPace] ["408"] $ \transport -> do
          now >>= liftIO . writeIORef since' . Just
          (_, answer) <-
            concurrently
              (transportSend transport [B.replicate 10_000 0x78] >> liftIO (writeIORef stopped True))
              (transportToEnd transport <* (liftIO (readIORef stopped) >>= liftIO . (@?= True)))
          pure answer
    ]
  where
    world = serving (settingsOf w ["ecdsa"])
    trusting = clientTls (AuthoritiesFrom (directory w <> "/ca.pem")) Nothing
    postHead = "POST /sum HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50000\r\n\r\n"
    late piece phases expected = lateWith (transportSend . socketTransport) piece phases expected transportToEnd
    -- A client sends a piece, and the limit passes in one of these phases.
    lateWith sending piece phases expected use = do
      received <- newIORef False
      let noting _ below client = pure (below {transportReceive = \buffer offset count -> transportReceive below buffer offset count <* liftIO (writeIORef received True)}, client)
      world (\s -> s {serverLayers = serverLayers s <> [noting]}) $ \served -> do
        tls <- trusting
        connected (servedAddress served) $ \socket -> do
          (transport, _) <- connectTlsWith tls "localhost" (socketTransport socket) {transportSend = sending socket}
          void (transportSend transport [piece :: ByteString])
          eventually "the piece" (readIORef received)
          passLimit (servedServer served) phases
          use transport >>= liftIO . (@?= expected) . statuses

-- | As the ticker does.
passLimit :: Server -> [Phase] -> Thread ()
passLimit server phases = eventuallyThread "the end of the phase" $ do
  members <- liftIO (readIORef (serverConnections server))
  or <$> mapM ended (openConnections members)
  where
    ended m = do
      (phase, word, deadline) <- liftIO (currentPhase m)
      if phase `elem` phases then endPhase m word deadline (\_ -> pure ()) else pure False
