{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Applications that hold something, and servers that are cut off
--
-- An application releases the resources it holds around its response, once, however its client, it
-- itself or the server ends.
module Explore.HttpApplications (scenarios) where

import Control.Monad (forM, forM_, replicateM_, unless, void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Builder (byteString)
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Data.List (isInfixOf)
import Data.Text qualified as Text
import Explore.Draw
import Explore.HttpAnswers (pieces)
import Explore.HttpBodies (echoing)
import Explore.HttpClient
import Explore.HttpRig
import Explore.Scenario
import Weft
import Weft.Http.Server
import Weft.Http.Status
import Weft.Scope
import Weft.Socket hiding (Raw)
import Weft.Time

scenarios :: [Scenario]
scenarios =
  [ weathered "http/applications" "what an application holds it lets go of, once" $ \seed ->
      applications (weatherOf seed) (draw seed (several 1 3 ((,) <$> pieces <*> several 1 4 deed))),
    weathered "http/cut-off" "a server that is cut off anywhere ends soon, with all that was held let go" $ \seed ->
      cuttingOff False (draw seed (several 1 6 guest)) (draw seed (between 0 60_000)),
    weathered "http/grace-over" "the same where its grace is over while it drains" $ \seed ->
      cuttingOff True (draw seed (several 1 6 guest)) (draw seed (between 0 60_000))
  ]

-- | The behaviour of an application towards its response.
data Deed
  = -- | Send it.
    Sends
  | -- | Send it as it is made.
    Streams
  | -- | Fail before, while or after it is sent.
    FailsBefore
  | FailsWithin
  | FailsAfter
  | -- | Try to send another.
    SendsTwice
  deriving stock (Eq, Show, Read, Enum, Bounded)

deed :: Draw Deed
deed = oneOf (map pure [minBound ..])

-- | Each client asks for deeds, all at once; each answer must be that of its deed.
applications :: Weather -> [([Int], [Deed])] -> Thread Complaints
applications weather clients = do
  held <- liftIO (newIORef (0 :: Int, 0 :: Int))
  twice <- newLog
  let count f = liftIO (modifyIORef' held f)
      application request respond = bracket_ (count (\(a, b) -> (a + 1, b))) (count (\(a, b) -> (a, b + 1))) $ do
        let what = read (Char8.unpack (ByteString.drop 1 (requestPath request)))
        yield
        case what of
          Sends -> respond (plain ok200 [] "sent")
          Streams -> respond (streamed ok200 [] (\sink -> sinkWrite sink "str" >> sinkFlush sink >> yield >> sinkWrite sink "eamed"))
          FailsBefore -> throwM (userError "before")
          FailsWithin -> respond (streamed ok200 [] (\sink -> sinkWrite sink "part" >> sinkFlush sink >> throwM (userError "within")))
          FailsAfter -> respond (plain ok200 [] "sent") >> throwM (userError "after")
          SendsTwice -> do
            sent <- respond (plain ok200 [] "sent")
            again <- try (respond (plain ok200 [] "again"))
            either (\e -> say twice (show (e :: IOError))) (\_ -> say twice "sent") again
            pure sent
  wrong <- serving (answering echoing) {setupApplication = Just application} $ \rig -> do
    wrong <- gather [onNewMachine (Text.pack ("client" <> show i)) (one rig sizes deeds) | (i, (sizes, deeds)) <- zip [1 :: Int ..] clients]
    -- An application that fails after its response does so when its client has gone, perhaps.
    sleep (seconds 1)
    told <- reportsOf rig
    let faults = [d | (_, deeds) <- clients, d <- reached deeds, d `elem` [FailsBefore, FailsWithin, FailsAfter]]
    pure (wrong <> expect ("the operator was told " <> show told <> " of " <> show faults) (weather == Stormy || length told == length faults))
  (begun, ended) <- liftIO (readIORef held)
  again <- said twice
  pure (wrong <> expectEqual "what was held was let go" begun ended <> expect ("sent twice: " <> show again) (all ("twice" `isInfixOf`) again))
  where
    -- A connection ends with the first that fails within its response.
    reached deeds = case break (== FailsWithin) deeds of
      (before, within' : _) -> before <> [within']
      (before, []) -> before
    one rig sizes deeds =
      attempt (withClient (rigAddress rig) (\client -> sendIn sizes (pure ()) client (ByteString.concat [ask ("/" <> Char8.pack (show d)) | d <- deeds]) >> talk client deeds)) >>= \case
        Right wrong -> pure wrong
        -- A client that is cut off with requests unread sees a reset.
        Left e -> pure (expect (show e) (weather == Stormy || FailsWithin `elem` deeds))
    talk client deeds = do
      (got, end) <- answers client (map (const False) (takeWhile (/= FailsWithin) deeds))
      let wrong = concat [expectEqual (show d) (wanted d) (answerStatus a, body d a) | (d, a) <- zip deeds got]
      if weather == Stormy
        then pure wrong
        else do
          more <- if FailsWithin `elem` deeds then answer False client else pure (Left (Truncated ""))
          pure
            ( wrong <> maybe [] (\e -> [show e]) end <> case more of
                Left (Truncated _) -> []
                other -> ["a stream that has failed looks like " <> show other]
            )
    body d a = if d == FailsBefore then "" else answerBody a
    wanted = \case
      Streams -> (200, "streamed")
      FailsBefore -> (500, "")
      _ -> (200, "sent")

-- Cutting off ----------------------------------------------------------------------

-- | A client by its number, and its activity when the server ends.
data Guest = Guest Int Activity

data Activity = Uploading | Downloading | Working | Conversing | Asking | Idling | Refusing
  deriving stock (Eq, Show, Enum, Bounded)

guest :: Draw Guest
guest = Guest <$> between 0 50_000 <*> oneOf (map pure [minBound ..])

-- | Cut off, or drained with little grace, while all of them are at it.
cuttingOff :: Bool -> [Guest] -> Int -> Thread Complaints
cuttingOff byGrace guests micros = do
  held <- liftIO (newIORef (0 :: Int, 0 :: Int))
  let holding :: Thread a -> Thread a
      holding = bracket_ (count (\(a, b) -> (a + 1, b))) (count (\(a, b) -> (a, b + 1)))
      count f = liftIO (modifyIORef' held f)
      endless sink = holding (mapM_ (\_ -> sinkWrite sink (byteString (ByteString.replicate 3_000 0x61)) >> sinkFlush sink >> sleep (milliseconds 2)) [1 :: Int ..])
      handler request = case requestPath request of
        "/busy" -> holding (sleep (minutes 3)) >> pure (plain ok200 [] "")
        "/down" -> pure (streamed ok200 [] endless)
        "/talk" -> pure (Response switchingProtocols101 [] (Switch (\duplex -> holding (void (duplexReceive duplex) >> sleep (minutes 3)))) Nothing)
        "/up" -> holding (readBody 1_000_000 request) >>= \b -> pure (plain ok200 [] (Char8.pack (show (ByteString.length b))))
        _ -> pure (plain ok200 [] "ok")
      setup = (answering handler) {setupServer = \s -> s {serverGrace = milliseconds 700, serverMaxConnections = 4, serverOverload = RefuseQuickly 1, serverMaxHandlers = 3, serverMaxPerPeer = 2}}
  wrong <- servingBy setup $ \rig -> withScope $ \scope -> do
    forkIn_ scope (serve (rigServer rig) (rigListener rig))
    children <- forM (zip [1 :: Int ..] guests) $ \(i, Guest comes what) -> forkIn scope . onNewMachine (Text.pack ("guest" <> show i)) $ do
      sleep (microseconds comes)
      void (attempt (withClient (rigAddress rig) (activity what)))
    sleep (microseconds micros)
    draining <- forkIn scope (rigDrain rig)
    unless byGrace $ do
      -- Not before the sockets are closed: a client that comes later was not there to be cut off.
      sleep (milliseconds 100)
      cutOff (rigServer rig)
    ((_, late), took) <- within "ending" (0, 2_600) (awaitChild draining)
    forM_ children (cancel . childThread)
    pure (late <> took)
  (begun, ended) <- liftIO (readIORef held)
  pure (wrong <> expectEqual "what was held was let go" begun ended)
  where
    activity what client = case what of
      Uploading -> send' client (askWith "POST" "/up" ["Content-Length: 10000"]) >> replicateM_ 100 (send' client (ByteString.replicate 100 0x61) >> sleep (milliseconds 20)) >> wait client
      Downloading -> send' client (ask "/down") >> wait client
      Working -> send' client (ask "/busy") >> wait client
      Conversing -> send' client (ask "/talk") >> send' client "hello" >> wait client
      Asking -> replicateM_ 30 (send' client (ask "/") >> answer False client >> sleep (milliseconds 3))
      Idling -> send' client (ask "/") >> wait client
      Refusing -> send' client (ask "/down") >> sleep (minutes 5)
    send' client bytes = sendIn [1_000] (pure ()) client (bytes :: ByteString)
    wait client = void (receive (clientSocket client) 1_000) >> wait' client
    wait' client = receive (clientSocket client) 1_000 >>= \piece -> if ByteString.null piece then pure () else wait' client
