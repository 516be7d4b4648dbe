-- | Threads that outlive their application can use neither its sink nor its body once their request
-- was answered. Nor can two threads send one response. And when a body can be received: again after
-- an interruption, beside the response, and after it.
module LeftBehindTest (tests) where

import Control.Exception (ErrorCall (..), IOException, SomeException, displayException, throwIO)
import Control.Monad (forM_, unless, void, when)
import Data.ByteString qualified as B
import Data.ByteString.Builder (byteString)
import Data.Either (fromRight)
import Data.Foldable (toList)
import Data.IORef
import Data.List (isInfixOf)
import ServerRig
import System.IO.Unsafe (unsafePerformIO)
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Event qualified as Event
import Weft.Http.Server hiding (Server)
import Weft.Http.Server.Phase (currentPhase, endPhase)
import Weft.Http.Server.State (Open (..), Phase (..), Server (..))
import Weft.Http.Status
import Weft.Socket hiding (Raw)
import Weft.Test.Loopback (toEnd, untilFound)
import Weft.Test.Message (get, getLast, post, statuses)
import Weft.Test.Observing (has, lacks)

tests :: TestTree
tests =
  localOption (mkTimeout 20_000_000) $
    testGroup
      "left behind"
      [ testGroup
          "a sink whose response has ended raises, and the next response is whole"
          [ testCase (name <> ", " <> about) (sinkKept again use)
            | (about, again) <- [("on the same connection", True), ("on another one", False)],
              (name, use) <- sinkUses
          ],
        testCase "what is flushed while something is written is sent once" flushedMeanwhile,
        testCase "a response that two threads send ends the connection, and the operator is told" twoSend,
        testCase "a response that was interrupted while it was sent ends the connection" interrupted,
        testCase "a body whose request was answered raises, and the next request is whole" bodyKept,
        testCase "a body that somebody waits for when its request was answered ends the connection" bodyAwaited,
        testCase "a body that was waited for in vain can be waited for again" (bodyAgain [] ["200"]),
        testCase "and the client that waits for 100 is told once" (bodyAgain ["Expect: 100-continue"] ["100", "200"]),
        testCase "a piece of a body that comes in the moment of an interruption is not lost" bodyMeanwhile,
        testCase "a piece of a body that comes in the moment of its time limit does not keep the client from being told" bodyTooLate,
        testCase "a client that takes nothing has its time limit also where it sends a body" bodyWhileSending,
        testCase "an application that receives a body after its response is no handler at work" bodyAfter,
        testCase "what is around a connection is no handler at work after its last request" aroundAfter,
        testCase "an application that has failed cannot answer later" answerKept
      ]

sinkUses :: [(String, Sink -> Thread ())]
sinkUses =
  [ ("written to", \sink -> sinkWrite sink (byteString big)),
    ("flushed", sinkFlush),
    ("written to in IO", \sink -> liftIO (sinkWriteNow sink (byteString big)) >>= sequence_),
    ("flushed in IO", \sink -> liftIO (sinkFlushNow sink) >>= sequence_)
  ]
  where
    big = B.replicate 20_000 0x21

sinkKept :: Bool -> (Sink -> Thread ()) -> Assertion
sinkKept again use = do
  kept <- newIORef Nothing
  outcome <- newIORef Nothing
  let handler request
        | requestPath request == "/first" = pure (streamed ok200 [] (\sink -> liftIO (writeIORef kept (Just sink)) >> sinkWrite sink "first"))
        | otherwise = pure . streamed ok200 [] $ \sink -> do
            sinkWrite sink "sec" >> sinkFlush sink
            liftIO (readIORef kept) >>= mapM_ (\old -> try (use old) >>= liftIO . writeIORef outcome . Just)
            sinkWrite sink "ond"
  (answer, seen) <- withHandler id handler $ \rig ->
    if again
      then conversation rig [get "/first", get "/second"]
      else (<>) <$> conversation rig [getLast "/first"] <*> conversation rig [get "/second"]
  statuses answer @?= ["200", "200"]
  assertBool (show answer) ("\r\n\r\n3\r\nsec\r\n3\r\nond\r\n0\r\n\r\n" `B.isSuffixOf` answer)
  lacks "!" answer
  readIORef outcome >>= (@?= Just (Left SinkEnded))
  (seenReports seen, seenUncaught seen) @?= ([], [])

-- | As by another thread, while the content is made.
flushedMeanwhile :: Assertion
flushedMeanwhile = do
  let handler _ = pure . (\body -> Response ok200 [] body Nothing) . Streamed (Just 11) $ \sink ->
        [] <$ do
          sinkWrite sink "first"
          let made = unsafePerformIO ("second" <$ (sinkFlushNow sink >>= maybe (pure ()) (\_ -> throwIO (userError "not sent"))))
          sinkWrite sink (byteString made)
  (answer, seen) <- withHandler id handler (\rig -> conversation rig [get "/" <> getLast "/"])
  statuses answer @?= ["200", "200"]
  assertBool (show answer) ("\r\n\r\nfirstsecond" `B.isSuffixOf` answer)
  (seenReports seen, seenUncaught seen) @?= ([], [])

-- | The client takes nothing while the second one tries.
twoSend :: Assertion
twoSend = do
  events <- newIORef Nothing
  let handler _ = pure . streamed ok200 [] $ \sink -> do
        (sending, tried) <- liftIO (readIORef events) >>= maybe (throwM (userError "no events")) pure
        -- More than the socket's buffers take.
        fork_ (void (try @_ @SomeException (sinkWrite sink (byteString (B.replicate 20_000_000 0x21)))))
        Event.wait sending
        (sinkWrite sink "second" >> sinkFlush sink) `finally` Event.set tried
  (answer, seen) <- withHandler id handler (unread events)
  statuses answer @?= ["200"]
  lacks "second" answer
  assertBool "the stream has ended as one that is whole" (not ("0\r\n\r\n" `B.isSuffixOf` answer))
  assertBool (show seen) (any ("two threads" `isInfixOf`) (seenReports seen))

-- | Ask twice; say when something of the response has come, and take the rest when that was
-- heard.
unread :: IORef (Maybe (Event.Event, Event.Event)) -> Rig -> Thread B.ByteString
unread events rig = do
  sending <- Event.newEvent
  tried <- Event.newEvent
  liftIO (writeIORef events (Just (sending, tried)))
  rigClient rig $ \client -> do
    sendAll client (get "/" <> get "/")
    told <- untilFound client "!!!"
    Event.set sending
    Event.wait tried
    (told <>) <$> toEnd client

interrupted :: Assertion
interrupted = do
  events <- newIORef Nothing
  again <- newIORef Nothing
  let handler _ = pure . streamed ok200 [] $ \sink -> do
        (sending, tried) <- liftIO (readIORef events) >>= maybe (throwM (userError "no events")) pure
        stopped <- Event.newEvent
        thread <- fork (sinkWrite sink (byteString (B.replicate 20_000_000 0x21)) `finally` Event.set stopped)
        Event.wait sending
        cancel thread
        Event.wait stopped
        outcome <- try (sinkWrite sink "more" >> sinkFlush sink)
        liftIO (writeIORef again (Just (either (displayException @SomeException) (const "sent") outcome)))
        Event.set tried
  (answer, seen) <- withHandler id handler (unread events)
  statuses answer @?= ["200"]
  lacks "more" answer
  assertBool "the stream has ended as one that is whole" (not ("0\r\n\r\n" `B.isSuffixOf` answer))
  told <- readIORef again
  assertBool (show told) (maybe False ("interrupted while it sent" `isInfixOf`) told)
  assertBool (show seen) (any ("interrupted while it sent" `isInfixOf`) (seenReports seen))

bodyKept :: Assertion
bodyKept = do
  kept <- newIORef Nothing
  outcome <- newIORef Nothing
  let handler request
        | requestPath request == "/first" = plain ok200 [] "first" <$ liftIO (writeIORef kept (Just request))
        | otherwise = do
            liftIO (readIORef kept) >>= mapM_ (\old -> try (receiveBody old) >>= liftIO . writeIORef outcome . Just)
            plain ok200 [] <$> readBody 100 request
  (answer, _) <- withHandler id handler $ \rig ->
    conversation rig [post "/first" ["Content-Length: 5"] "first", post "/second" ["Content-Length: 6"] "sec", "ond"]
  statuses answer @?= ["200", "200"]
  assertBool (show answer) ("\r\n\r\nsecond" `B.isSuffixOf` answer)
  readIORef outcome >>= \case
    Just (Left e) -> has "was answered before" (foldMap (B.singleton . fromIntegral . fromEnum) (show (e :: IOException)))
    other -> assertFailure (show other)

-- | The phases of all connections.
phasesOf :: IORef (Maybe Server) -> Thread [Phase]
phasesOf ref = liftIO $ do
  server <- readIORef ref >>= maybe (throwIO (userError "no server")) pure
  members <- openConnections <$> readIORef (serverConnections server)
  mapM (fmap (\(phase, _, _) -> phase) . currentPhase) (toList members)

-- | Until the only connection waits for a piece of a body.
untilReceiving :: IORef (Maybe Server) -> Thread ()
untilReceiving ref = do
  phases <- phasesOf ref
  unless (phases `elem` [[ReceivingBody], [ReceivingAtPace]]) (yield >> untilReceiving ref)

bodyAwaited :: Assertion
bodyAwaited = do
  server <- newIORef Nothing
  let handler request = do
        fork_ (void (try @_ @SomeException (receiveBody request)))
        plain ok200 [] "" <$ untilReceiving server
  (answer, _) <- withHandler id handler $ \rig -> do
    liftIO (writeIORef server (Just (rigServer rig)))
    rigClient rig $ \client -> do
      sendAll client (post "/" ["Content-Length: 5"] "")
      told <- untilFound client "\r\n\r\n"
      _ <- try @_ @IOException (sendAll client ("first" <> get "/second"))
      (told <>) <$> toEnd client
  statuses answer @?= ["200"]

-- | With these fields, and these statuses of all responses.
bodyAgain :: [B.ByteString] -> [B.ByteString] -> Assertion
bodyAgain fields expected = do
  server <- newIORef Nothing
  waited <- newIORef False
  let handler request = do
        stopped <- Event.newEvent
        waiting <- fork (void (receiveBody request) `finally` Event.set stopped)
        untilReceiving server
        cancel waiting
        Event.wait stopped
        liftIO (writeIORef waited True)
        plain ok200 [] <$> readBody 100 request
  (answer, _) <- withHandler id handler $ \rig -> do
    liftIO (writeIORef server (Just (rigServer rig)))
    rigClient rig $ \client -> do
      sendAll client (post "/" (fields <> ["Content-Length: 5", "Connection: close"]) "")
      let untilWaited = liftIO (readIORef waited) >>= \done -> unless done (yield >> untilWaited)
      untilWaited
      sendAll client "hello"
      toEnd client
  statuses answer @?= expected
  has "hello" answer

-- | The interruption comes when the second receive, that of the body, has succeeded. The handler goes on.
bodyMeanwhile :: Assertion
bodyMeanwhile = do
  server <- newIORef Nothing
  receives <- newIORef (0 :: Int)
  let layer _ below client = pure (below {transportReceive = receiving below}, client)
      receiving below buffer offset count = do
        n <- transportReceive below buffer offset count
        number <- liftIO (atomicModifyIORef' receives (\i -> (i + 1, i + 1)))
        n <$ when (number == 2) (myThreadId >>= cancel)
      handler request = do
        first <- try @_ @Cancelled (receiveBody request)
        -- It is raised here, if it was not before.
        _ <- try @_ @Cancelled yield
        plain ok200 [] . (fromRight "" first <>) <$> readBody 100 request
  (answer, _) <- withHandler (\s -> s {serverLayers = [layer]}) handler $ \rig -> do
    liftIO (writeIORef server (Just (rigServer rig)))
    rigClient rig $ \client -> do
      sendAll client (post "/" ["Content-Length: 5", "Connection: close"] "")
      untilReceiving server
      sendAll client "hello" >> shutdown client ShutdownSend
      toEnd client
  statuses answer @?= ["200"]
  has "hello" answer

-- | The ticker ends the phase, a piece has come, and then the ticker shuts the socket down.
bodyTooLate :: Assertion
bodyTooLate = do
  server <- newIORef Nothing
  (answer, _) <- withHandler id (fmap (plain ok200 []) . readBody 100) $ \rig -> do
    liftIO (writeIORef server (Just (rigServer rig)))
    rigClient rig $ \client -> do
      sendAll client (post "/" ["Content-Length: 50"] "")
      let tooLate = do
            untilReceiving server
            sendAll client "x"
            members <- liftIO (readIORef (serverConnections (rigServer rig)))
            forM_ (openConnections members) $ \m -> do
              (_, word, deadline) <- liftIO (currentPhase m)
              -- Not where the piece was received before.
              endPhase m word deadline (\_ -> pure ()) >>= \did -> unless did tooLate
      tooLate
      toEnd client
  statuses answer @?= ["408"]

-- | The body is received by one thread while another waits for the client to take something.
bodyWhileSending :: Assertion
bodyWhileSending = do
  server <- newIORef Nothing
  found <- newIORef []
  recorded <- newIORef False
  let sending = [[Sending], [SendingAtPace]]
      untilPhase some = phasesOf server >>= \phases -> unless (phases `elem` some) (yield >> untilPhase some)
      handler request = pure . streamed ok200 [] $ \sink -> do
        sent <- Event.newEvent
        -- More than the socket's buffers take.
        fork_ (sinkWrite sink (byteString (B.replicate 20_000_000 0x21)) `finally` Event.set sent)
        untilPhase sending
        _ <- receiveBody request
        phasesOf server >>= liftIO . writeIORef found
        liftIO (writeIORef recorded True)
        Event.wait sent
  (answer, _) <- withHandler id handler $ \rig -> do
    liftIO (writeIORef server (Just (rigServer rig)))
    rigClient rig $ \client -> do
      sendAll client (post "/" ["Content-Length: 5", "Connection: close"] "")
      untilPhase (sending <> [[ReceivingBody], [ReceivingAtPace]])
      sendAll client "hello"
      let untilRecorded = liftIO (readIORef recorded) >>= \done -> unless done (yield >> untilRecorded)
      untilRecorded
      toEnd client
  assertBool "the response is whole" ("0\r\n\r\n" `B.isSuffixOf` answer)
  phases <- readIORef found
  assertBool (show phases) (phases `elem` sending)

-- | Of a handler at work the time is limited.
bodyAfter :: Assertion
bodyAfter = do
  server <- newIORef Nothing
  outcome <- newIORef Nothing
  let application request respond = do
        sent <- respond (plain ok200 [] "here")
        body <- receiveBody request
        phases <- phasesOf server
        sent <$ liftIO (writeIORef outcome (Just (body, phases)))
  (answer, _) <- withApplication id application $ \rig -> do
    liftIO (writeIORef server (Just (rigServer rig)))
    rigClient rig $ \client -> do
      sendAll client (post "/" ["Content-Length: 5"] "")
      told <- untilFound client "here"
      sendAll client "hello" >> shutdown client ShutdownSend
      (told <>) <$> toEnd client
  statuses answer @?= ["200"]
  readIORef outcome >>= (@?= Just ("hello", [Finishing]))

aroundAfter :: Assertion
aroundAfter = do
  server <- newIORef Nothing
  found <- newIORef []
  let around _ session = session >> phasesOf server >>= liftIO . writeIORef found
      settings s = s {serverAccessLog = Nothing, serverObserver = Nothing, serverAround = Just around}
  (answer, _) <- withHandler settings (\_ -> pure (plain ok200 [] "here")) $ \rig -> do
    liftIO (writeIORef server (Just (rigServer rig)))
    rigClient rig (\client -> sendAll client (getLast "/") >> toEnd client)
  statuses answer @?= ["200"]
  readIORef found >>= (@?= [Finishing])

answerKept :: Assertion
answerKept = forM_ kinds $ \(name, settings) -> do
  kept <- newIORef Nothing
  outcome <- newIORef Nothing
  let application request respond
        | requestPath request == "/first" = liftIO (writeIORef kept (Just respond)) >> liftIO (throwIO (ErrorCall "boom"))
        | otherwise = do
            liftIO (readIORef kept) >>= mapM_ (\old -> try @_ @IOException (old (plain ok200 [] "stray")) >>= liftIO . writeIORef outcome . Just . either show (const "sent"))
            respond (plain ok200 [] "second")
  (answer, _) <- withApplication settings application (\rig -> conversation rig [get "/first", get "/second"])
  (name, statuses answer) @?= (name, ["500", "200"])
  lacks "stray" answer
  told <- readIORef outcome
  assertBool (show told) (maybe False ("twice" `isInfixOf`) told)
  where
    kinds = [("plain" :: String, id), ("counted", \s -> s {serverMaxHandlers = 5})]
