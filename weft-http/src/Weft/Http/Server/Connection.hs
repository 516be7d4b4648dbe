{-# LANGUAGE MultiWayIf #-}
{-# LANGUAGE OverloadedStrings #-}
{-# OPTIONS_GHC -O2 -fno-full-laziness #-}

-- |
-- Description : The life of one connection
-- Stability   : not home
--
-- The session of one client, as a plain sequential thread: receive a head, have it
-- answered, send the response, begin again. Pipelined requests are answered in
-- order, their responses gathered into few sends. Runs as the connection's own
-- thread, which closes its socket at the end.
module Weft.Http.Server.Connection
  ( Reception (..),
    attendTo,
  )
where

import Control.Exception (IOException, SomeAsyncException, SomeException, displayException, fromException, throwIO)
import Control.Exception qualified as E
import Control.Monad (unless, void, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.IORef
import Data.Int (Int64)
import Data.Maybe (fromMaybe, isJust, isNothing)
import Weft
import Weft.Buffer (Buffer, newBuffer)
import Weft.Http.Internal.Address (peerAddress)
import Weft.Http.Request
import Weft.Http.RequestHead
import Weft.Http.Server.Incoming
import Weft.Http.Server.Input
import Weft.Http.Server.Outgoing
import Weft.Http.Server.Phase
import Weft.Http.Server.Registry
import Weft.Http.Server.Render
import Weft.Http.Server.State
import Weft.Http.Server.Types
import Weft.Http.Server.Wire
import Weft.Http.Status
import Weft.Mask (interruptible)
import Weft.Socket (SockAddr (..), SocketOption (..), awaitReadable, closeSocket, setOption)
import Weft.Time

-- | What the connections that a listening socket has accepted share: the server, and the
-- address that they were accepted at.
data Reception = Reception
  { receptionContext :: !Context,
    receptionLocal :: !SockAddr
  }

-- | What a connection does next.
data Next
  = -- | A client has come back.
    Wakes
  | -- | It waits for one, without a buffer.
    Rests
  | Ends
  | -- | It ends, and its thread with this exception.
    Fails SomeException

-- | The life of a connection, until its socket is closed. Starts masked. While the
-- connection rests nothing is on the stack but what closes it: Note [A connection at rest]
-- in "Weft.Http.Server.State".
attendTo :: Reception -> Member -> Thread ()
attendTo reception m = awake reception m $ \c -> do
  -- Responses leave at once; ours are whole, so there is nothing to wait for.
  case clientAddress (connectionClient c) of
    SockAddrUnix _ -> pure ()
    _ -> setOption (memberSocket m) NoDelay 1
  session context c
  where
    context = receptionContext reception

-- | Serve, until it rests or ends.
awake :: Reception -> Member -> (Connection -> Thread ()) -> Thread ()
awake reception m body =
  ((Ends <$ interruptible (maybe id ($ client) (serverAround settings) (body c))) `catch` judged context) >>= goOn reception m
  where
    context = receptionContext reception
    settings = serverSettings (contextServer context)
    client = Client (peerAddress (memberPeer m)) (receptionLocal reception) Nothing
    c = Connection m Nothing client

-- | Wait for the client.
resting :: Reception -> Member -> Thread ()
resting reception m = do
  draining <- liftIO (lieDown m >> isDraining (contextServer context))
  if draining
    then goOn reception m Ends
    else ((Wakes <$ awaitReadable (memberSocket m)) `catch` judged context) >>= goOn reception m
  where
    context = receptionContext reception

goOn :: Reception -> Member -> Next -> Thread ()
goOn reception m = \case
  Wakes -> awake reception m (\c -> receiving context c emptyInput)
  Rests -> resting reception m
  Ends -> close
  Fails e -> close >> throwM e
  where
    context = receptionContext reception
    server = contextServer context
    close = liftIO (retire m) >> (closeSocket (memberSocket m) `finally` liftIO (unregister server m))
{-# NOINLINE goOn #-}

-- | What becomes of a connection whose thread has raised this.
judged :: Context -> SomeException -> Thread Next
judged context e
  | Just (Interruption reason _) <- fromException e = pure (if reason == BufferUnused then Rests else Ends)
  -- A client that goes away is no news.
  | Just (_ :: IOException) <- fromException e = pure Ends
  | Just (_ :: BodyError) <- fromException e = pure Ends
  | Just (Aborted _ _) <- fromException e = pure Ends
  | Just (_ :: SomeAsyncException) <- fromException e = pure (Fails e)
  | otherwise = Ends <$ report context ("a connection failed: " <> displayException e)

-- | Serve one connection until it ends; where there is nothing around the session, only until
-- its wait is interrupted because nobody comes ('BufferUnused'), which is for 'awake'.
session :: Context -> Connection -> Thread ()
session context plainly
  | isBare settings = begin plainly
  | otherwise = do
      -- Who the client is comes first, and then whether it may have one more connection.
      known <- layered context (maybe [] pure (serverProxy settings)) plainly
      bracket (liftIO (admit server (clientAddress (connectionClient known)))) (mapM_ liftIO) $ \admitted -> do
        c <- layered context (serverLayers settings) known
        if isJust admitted
          then serving context c (begin c)
          else do
            liftIO (observe server ConnectionRefused)
            refuse context c emptyInput serviceUnavailable503 "There are too many connections from your address."
  where
    server = contextServer context
    settings = serverSettings server
    begin c = requests context c emptyInput 0 noOutput

-- | Is there nothing that a session must go back to: no layers, nobody who wants to be around
-- it, and nobody who counts it?
isBare :: ServerSettings -> Bool
isBare settings =
  null (serverLayers settings)
    && isNothing (serverProxy settings)
    && isNothing (serverAround settings)
    && serverMaxPerPeer settings <= 0

-- | Put layers around a connection.
layered :: Context -> [Layer] -> Connection -> Thread Connection
layered _ [] c = pure c
layered context (layer : others) c = do
  (transport, client) <-
    layer (connectionSocket c) (fromMaybe (socketTransport (connectionSocket c)) (connectionTransport c)) (connectionClient c) `catch` failed
  layered context others c {connectionTransport = Just transport, connectionClient = client}
  where
    failed e
      | Just (_ :: SomeAsyncException) <- fromException e = throwM e
      | otherwise = do
          liftIO (observe (contextServer context) LayerFailed)
          throwM (Aborted ("a layer failed: " <> displayException e) (Just e))

-- | The same where something is around the session, and stays there: serve requests until
-- the wait for one is interrupted; then wait without a buffer (Note [Deadlines] in
-- "Weft.Http.Server.Phase"). The interrupted wait has neither input nor output, so nothing is
-- lost, and no request pays for a handler of its own.
serving :: Context -> Connection -> Thread () -> Thread ()
serving context c body = do
  rests <- (False <$ body) `catch` asked
  when rests $ do
    draining <- liftIO (lieDown (connectionMember c) >> isDraining (contextServer context))
    unless draining $ do
      -- What a layer has received in the moment in which it was interrupted does not make
      -- the socket readable again.
      pending <- maybe (pure False) (liftIO . transportPending) (connectionTransport c)
      unless pending $ awaitReadable (connectionSocket c)
      serving context c (receiving context c emptyInput)
  where
    asked e@(Interruption reason _)
      | reason == BufferUnused = pure True
      | otherwise = throwM e

-- Note [What is rare]
-- ~~~~~~~~~~~~~~~~~~~
-- The way of nearly all requests is 'requests', 'handled', 'receiving'. What is rare, and
-- what takes server and connection apart, are functions of their own that are not inlined. Otherwise
-- GHC takes both apart at the beginning, and each closure on the way holds a dozen of
-- their fields instead of the two.

-- | Answer the requests that have come; then wait for more. The number says how much of the
-- unread input the parser has seen already.
requests :: Context -> Connection -> Input -> Int -> Output -> Thread ()
requests context c input scanned output
  | B.null given = flush context c output >> awaitRequest context c input
  | otherwise = runOnce $ case parseRequest (serverLimits (serverSettings (contextServer context))) scanned given of
      Parsed h used -> let !rest = discard used input in respond context c h rest output
      Incomplete seen -> incomplete context c input seen output
      Bad fault -> bad context c input fault output
  where
    given = unread input

-- | Receive more of a head, of which so much was seen.
incomplete :: Context -> Connection -> Input -> Int -> Output -> Thread ()
incomplete context c input seen output = do
  flush context c output
  -- The first byte of a head starts its time; more bytes do not extend it.
  liftIO (enterHead (contextServer context) c)
  receiveMore c input >>= \case
    Just input' -> requests context c input' seen noOutput
    Nothing -> endOfInput context c input
{-# NOINLINE incomplete #-}

-- | What has come is no request.
bad :: Context -> Connection -> Input -> Fault -> Output -> Thread ()
bad context c input fault output = do
  flush context c output
  refuse context c input (faultStatus fault) (faultText fault)
{-# NOINLINE bad #-}

-- | Between two requests. The connection keeps its buffer for a while: to wait without one
-- costs another turn through the event source for each request.
awaitRequest :: Context -> Connection -> Input -> Thread ()
awaitRequest context c input = do
  ending <- liftIO $ do
    -- A new connection keeps the phase it was registered in: its first head is due.
    fresh <- isNew c
    if fresh then pure False else becomeIdle context c
  unless ending (receiving context c input)

-- | The connection has nothing to do. Answers whether it is to end, because the server drains.
becomeIdle :: Context -> Connection -> IO Bool
becomeIdle context c = do
  enter server c (if isJust (connectionTransport c) then Dormant else Idle)
  -- Whoever drains sets the flag and then looks at the phases; we have entered ours
  -- and look at the flag: one of the two sees the other.
  isDraining server
  where
    server = contextServer context
{-# OPAQUE becomeIdle #-}

-- | Receive the beginning of the next request; the input is used up.
receiving :: Context -> Connection -> Input -> Thread ()
receiving context c = \case
  Input buffer _ _ -> receivingInto context c buffer
  NoInput -> liftIO (newBuffer usualSize) >>= receivingInto context c

receivingInto :: Context -> Connection -> Buffer -> Thread ()
receivingInto context c buffer = runOnce $ do
  n <- receiveTo c buffer 0 maxBound
  unless (n == 0) $ requests context c (Input buffer 0 n) 0 noOutput

-- | The client sends no more, or its time is up.
endOfInput :: Context -> Connection -> Input -> Thread ()
endOfInput context c input = do
  -- A connection that was idle when draining began is closed without a word, though some
  -- of a request may have come since: the client then knows that it can try again.
  late <- liftIO ((&&) <$> expiredIn c <*> (not <$> isDraining (contextServer context)))
  when (late && not (B.null (unread input))) $ do
    refuse context c input requestTimeout408 "The request took too long to arrive."

-- | Have one request answered, and go on with what follows it.
respond :: Context -> Connection -> RequestHead -> Input -> Output -> Thread ()
respond context c h input output = case serverAnswers server of
  ByHandler handler | plainly -> handled context c handler h input output
  ByApplication application | plainly -> appliedPlainly context c application h input output
  ByPlain application | plainly, isEmptyOutput output -> appliedAtOnce context c application h input
  _ -> answeredAtLength context c h input output
  where
    server = contextServer context
    -- There is no body, and nothing to be asked first.
    plainly = case headFraming h of
      NoBody -> serverMaxHandlers (serverSettings server) <= 0 && headExpectation h /= ExpectUnknown
      _ -> False
{-# INLINE respond #-}

-- | What happens almost always.
handled :: Context -> Connection -> Handler -> RequestHead -> Input -> Output -> Thread ()
handled context c handler h input output = runOnce $ do
  lastOne <- liftIO (beginHandling context c)
  let !request = Request h EmptyBody (connectionClient c)
      !persistent = isPersistent h && not lastOne
  if contextQuiet context
    then handledSince context c handler request input output persistent 0
    else now >>= handledSince context c handler request input output persistent . instantNanoseconds
{-# NOINLINE handled #-}

handledSince :: Context -> Connection -> Handler -> Request -> Input -> Output -> Bool -> Int64 -> Thread ()
handledSince context c handler request !input !output persistent start = runOnce $ do
  response <- handler request `catch` failing context
  case input of
    -- One request has come.
    Input buffer from to
      | from == to,
        isEmptyOutput output ->
          liftIO (sendQuickly context c request persistent response) >>= \case
            Idled | contextQuiet context -> receivingInto context c buffer
            quick -> afterwards context c request input persistent start response quick
    _ -> transmitted context c request input persistent start response output
{-# NOINLINE handledSince #-}

-- | Go on after what 'sendQuickly' has done.
afterwards :: Context -> Connection -> Request -> Input -> Bool -> Int64 -> Response -> Quick -> Thread ()
afterwards context c request input persistent start response = \case
  Slowly -> transmitted context c request input persistent start response noOutput
  Partly goesOn left -> do
    sendPieces context c [left]
    told'
    if goesOn then awaitRequest context c (used input) else linger context c input
  Idled -> told' >> receiving context c (used input)
  Final -> told' >> linger context c input
  Drained -> told'
  where
    told' = recorded context c (answeringOf request input persistent start) (responseStatus response) (bodyLength (responseBody response))
    used = \case
      Input buffer _ _ -> Input buffer 0 0
      NoInput -> NoInput
{-# NOINLINE afterwards #-}

-- | Send the response of a handler together with those before it, or by itself if it is large.
transmitted :: Context -> Connection -> Request -> Input -> Bool -> Int64 -> Response -> Output -> Thread ()
transmitted context c request input persistent start response output = do
  -- From here on the client has its time to take the response.
  draining <- liftIO (enter server c Sending >> isDraining server)
  (goesOn, output') <- transmit context c (answeringOf request input (persistent && not draining) start) response output
  waiting <- bounded context c output'
  if goesOn
    then requests context c input 0 waiting
    else flush context c waiting >> linger context c input
  where
    server = contextServer context
{-# NOINLINE transmitted #-}

-- | A request without a body that is being answered.
answeringOf :: Request -> Input -> Bool -> Int64 -> Answering
answeringOf request input keep start = Answering request input keep start (pure ()) (pure 0)

-- | A request has come and is going to be answered. Answers whether it is the last one of its
-- connection, because there were so many.
beginHandling :: Context -> Connection -> IO Bool
beginHandling context c = do
  enter server c Handling
  if most <= 0
    then pure False
    else do
      n <- countRequest (connectionMember c)
      pure (n >= most)
  where
    server = contextServer context
    most = serverMaxRequests (serverSettings server)
{-# OPAQUE beginHandling #-}

-- | When it has come, in nanoseconds, if somebody wants to know.
beginning :: Context -> Thread Int64
beginning context = if contextQuiet context then pure 0 else instantNanoseconds <$> now
{-# INLINE beginning #-}

-- | The same for an application, which is there while its response is sent: that is not
-- kept for the next one to go with, because nobody knows what the application does then.
appliedPlainly :: Context -> Connection -> Application -> RequestHead -> Input -> Output -> Thread ()
appliedPlainly context c application h input output = runOnce $ do
  lastOne <- liftIO (beginHandling context c)
  start <- beginning context
  let !request = Request h EmptyBody (connectionClient c)
      sending response = do
        draining <- liftIO (beginSending server c)
        transmit context c (answeringOf request input (isPersistent h && not draining && not lastOne) start) response output
          >>= finished context c
  goesOn <- applied context c application request sending
  if goesOn then requests context c input 0 noOutput else linger context c input
  where
    server = contextServer context
{-# NOINLINE appliedPlainly #-}

-- | The same for one in plain 'IO'.
appliedAtOnce :: Context -> Connection -> PlainApplication -> RequestHead -> Input -> Thread ()
appliedAtOnce context c application h input = runOnce $ do
  lastOne <- liftIO (beginHandling context c)
  start <- beginning context
  let !request = Request h EmptyBody (connectionClient c)
      answering draining = answeringOf request input (isPersistent h && not draining && not lastOne) start
      settling = case input of
        -- One request has come.
        Input _ from to | from == to -> (\ends -> if ends then Stops else Waits) <$> becomeIdle context c
        _ -> Proceeds True <$ withdraw (connectionMember c)
  appliedPlain context c application request answering settling >>= \case
    Waits | Input buffer _ _ <- input -> receivingInto context c buffer
    Waits -> awaitRequest context c input
    Proceeds True -> requests context c input 0 noOutput
    Proceeds False -> linger context c input
    Stops -> pure ()
{-# NOINLINE appliedAtOnce #-}

-- | What a connection does after an application.
data After
  = -- | It is idle already.
    Waits
  | -- | Whether it goes on.
    Proceeds !Bool
  | -- | The server drains.
    Stops

-- | A request that may have a body, or one of which there may be too many.
answeredAtLength :: Context -> Connection -> RequestHead -> Input -> Output -> Thread ()
answeredAtLength context c h input output = do
  lastOne <- liftIO (beginHandling context c)
  start <- beginning context
  -- What came before may be what the client waits for, to go on with its body.
  flush context c output
  incoming <- liftIO (openBody context h input)
  let request = Request h (requestBodyOf context c incoming) (connectionClient c)
      sending = sendingOnce context c (isPersistent h && not lastOne) incoming request input start
  (goesOn, output') <- answered context c request sending
  if not goesOn
    then flush context c output' >> linger context c input
    else case headFraming h of
      NoBody -> bounded context c output' >>= requests context c input 0
      _ -> do
        flush context c output'
        skipRest context c incoming >>= \case
          GoesOn input' -> requests context c input' 0 noOutput
          TooFar -> linger context c input
{-# NOINLINE answeredAtLength #-}

-- | What has become of a response that was to be sent at once.
data Quick
  = -- | It is none that can be.
    Slowly
  | -- | It was sent, and the connection is idle.
    Idled
  | -- | It was sent, and the client will send no more requests.
    Final
  | -- | It was sent, and the server drains.
    Drained
  | -- | Whether the connection goes on after it, and what the socket did not take.
    Partly !Bool !ByteString

-- | Send a small response in the same breath, without a system call of the thread, without
-- a deadline (because nothing waits), and with the step to the next request.
sendQuickly :: Context -> Connection -> Request -> Bool -> Response -> IO Quick
sendQuickly context c request persistent response = do
  draining <- isDraining (contextServer context)
  tick <- readClock (serverClock (contextServer context))
  case rendered context (answeringOf request NoInput (persistent && not draining) 0) response tick of
    Nothing -> pure Slowly
    Just (goesOn, bytes) -> do
      n <- sendNow c bytes
      if
        | n < B.length bytes -> pure (Partly goesOn (B.drop n bytes))
        | not goesOn -> pure Final
        | otherwise -> (\ends -> if ends then Drained else Idled) <$> becomeIdle context c
{-# OPAQUE sendQuickly #-}

-- | Send a response to a request that may have a body: answers whether the connection goes
-- on, and what waits to be sent.
sendingOnce :: Context -> Connection -> Bool -> Incoming -> Request -> Input -> Int64 -> Response -> Thread (Bool, Output)
sendingOnce context c persistent incoming request input start response = do
  (draining, skippable) <- liftIO ((,) <$> beginSending (contextServer context) c <*> isSkippable context incoming)
  let answering rest = Answering request rest (persistent && not draining && skippable) start (beginAnswer incoming) (receivedSoFar incoming)
  if isProtocol (responseBody response)
    then -- The other protocol begins behind the body.

      skipRest context c incoming >>= \case
        GoesOn rest -> transmit context c (answering rest) response noOutput
        TooFar -> transmit context c (answering input) (closing (errorResponse badRequest400 "The request has a body.")) noOutput
    else transmit context c (answering input) response noOutput
  where
    isProtocol = \case
      Switch _ -> True
      Raw _ -> True
      _ -> False

-- | Have a request answered by a handler or an application.
answered :: Context -> Connection -> Request -> (Response -> Thread (Bool, Output)) -> Thread (Bool, Output)
answered context c request sending
  | requestExpectation request == ExpectUnknown = sending (errorResponse expectationFailed417 "")
  | FixedBody n <- requestFraming request,
    n > serverMaxBody settings =
      sending (closing (errorResponse contentTooLarge413 "The request body is too large."))
  | otherwise =
      bracket (liftIO (beginHandler server >>= newIORef)) (liftIO . ended) $ \working -> do
        begun <- liftIO (readIORef working)
        if begun
          then case serverAnswers server of
            ByHandler handler -> do
              response <- handler request `catch` failing context
              -- A client that takes its time is no handler at work.
              unless (isMade (responseBody response)) (liftIO (ended working))
              sending response
            -- As above: what an application has answered is sent.
            ByApplication application -> (,noOutput) <$> applied context c application request sentAtOnce
            ByPlain (PlainApplication host application) ->
              let suspending r once = Sent <$ host (\way -> application way r (pure . Just . void . once))
               in (,noOutput) <$> applied context c suspending request sentAtOnce
          else do
            liftIO (observe server RequestShed)
            sending (withRetry (errorResponse serviceUnavailable503 "The server is busy."))
  where
    server = contextServer context
    settings = serverSettings server
    ended working = do
      was <- readIORef working
      when was (writeIORef working False >> endHandler server)
    isMade = \case
      Streamed _ _ -> True
      Switch _ -> True
      Raw _ -> True
      _ -> False
    withRetry response = response {responseFields = Field "Retry-After" "1" : responseFields response}
    sentAtOnce response = sending response >>= finished context c

-- | From here on the client has its time to take the response, also one that had none left.
-- Answers whether the server drains.
beginSending :: Server -> Connection -> IO Bool
beginSending server c = revive server c Sending >> isDraining server

-- | What an application has answered is sent before it goes on, and then it may take as long as
-- it likes.
finished :: Context -> Connection -> (Bool, Output) -> Thread Bool
finished context c (goesOn, output) = do
  flush context c output
  goesOn <$ liftIO (enter (contextServer context) c Finishing)

-- | Have a request answered by an application; its response is sent by the action, which
-- says whether the connection goes on, as this does.
applied :: Context -> Connection -> Application -> Request -> (Response -> Thread Bool) -> Thread Bool
applied context c application request sending = do
  progress <- liftIO (newIORef Unsent)
  let once response =
        liftIO (readIORef progress) >>= \case
          Unsent -> do
            liftIO (writeIORef progress UnderWay)
            goesOn <- sending response `catch` asItWas
            Sent <$ liftIO (writeIORef progress (Done goesOn))
          _ -> throwM (userError twice)
  ended <- try (application request once)
  stage <- liftIO (readIORef progress)
  concluded context c stage (void ended) sending

-- | An application has ended, having come so far with its response, for which there is the
-- action if it is to be sent yet. Answers whether the connection goes on.
concluded :: Context -> Connection -> Progress -> Either SomeException () -> (Response -> Thread Bool) -> Thread Bool
concluded context c stage ended sending = case (stage, ended) of
  -- Its response was right, whatever it did then.
  (Done goesOn, _) -> do
    either (told context) pure ended
    goesOn <$ liftIO (withdraw (connectionMember c))
  (UnderWay, Left e) -> halfway e
  (UnderWay, Right ()) -> pure False
  (Unsent, Left e) -> failing context e >>= sending
  (Unsent, Right ()) -> do
    report context "an application has not answered a request"
    sending (errorResponse internalServerError500 "")

-- | What an application is told that does so.
twice :: String
twice = "an application has answered a request twice"

-- | The same for one in plain 'IO', and a request without a body: a small response is sent
-- without suspending it. The last action is run in the same breath when all went well.
appliedPlain :: Context -> Connection -> PlainApplication -> Request -> (Bool -> Answering) -> IO After -> Thread After
appliedPlain context c (PlainApplication host application) request answering settling = do
  outcome <- host $ \way -> do
    progress <- newIORef Unsent
    ended <- E.try (application way request (once progress))
    stage <- readIORef progress
    case (stage, ended) of
      -- What happens almost always.
      (Done True, Right ()) -> Left <$> settling
      -- A thread that it has left behind comes too late with a response.
      _ -> Right (progress, stage, ended) <$ writeIORef progress UnderWay
  case outcome of
    Left settled -> pure settled
    Right (progress, stage, ended) -> Proceeds <$> concluded context c stage ended (later progress)
  where
    server = contextServer context
    once progress response =
      readIORef progress >>= \case
        Unsent -> do
          enter server c Sending
          expired <- expiredIn c
          draining <- isDraining server
          tick <- readClock (serverClock server)
          case wholeNow context (answering draining) response tick of
            Just (goesOn, bytes) | not expired -> do
              writeIORef progress UnderWay
              n <- sendNow c bytes
              if n == B.length bytes
                then Nothing <$ (writeIORef progress (Done goesOn) >> unlimited c)
                else pure . Just $ do
                  sendPieces context c [B.drop n bytes]
                  liftIO (writeIORef progress (Done goesOn) >> enter server c Finishing)
            _ -> do
              writeIORef progress UnderWay
              pure (Just (void (later progress response)))
        _ -> throwIO (userError twice)
    later progress response = do
      draining <- liftIO (beginSending server c)
      goesOn <- (transmit context c (answering draining) response noOutput `catch` asItWas) >>= finished context c
      goesOn <$ liftIO (writeIORef progress (Done goesOn))

-- | What has made a response fail, as the application has raised it.
asItWas :: Aborted -> Thread a
asItWas aborted@(Aborted _ why) = maybe (throwM aborted) throwM why

-- | An exception has left an application while its response was under way. The operator knows
-- of it already.
halfway :: SomeException -> Thread a
halfway e = case fromException e of
  Just (_ :: SomeAsyncException) -> throwM e
  Nothing -> throwM (Aborted (displayException e) (Just e))

-- | How far an application is with its response.
data Progress
  = Unsent
  | UnderWay
  | -- | It was sent; whether the connection goes on.
    Done !Bool

-- | The response to a request whose handler has raised an exception; or the end of the
-- connection, where there is nobody to be answered.
failing :: Context -> SomeException -> Thread Response
failing context e
  | Just (Interruption reason _) <- fromException e = case reason of
      HandlerTooSlow -> pure (closing (errorResponse serviceUnavailable503 "The request took too long to answer."))
      _ -> throwM e
  | Just (_ :: SomeAsyncException) <- fromException e = throwM e
  | Just failure <- fromException e = case failure of
      BodyTooLarge -> pure (closing (errorResponse contentTooLarge413 "The request body is too large."))
      BodyMalformed fault -> pure (closing (errorResponse (faultStatus fault) (faultText fault)))
      BodyTimedOut -> pure (closing (errorResponse requestTimeout408 "The request body took too long to arrive."))
      BodyCutOff -> throwM e
  | otherwise = do
      liftIO (observe (contextServer context) HandlerFailed)
      report context ("a handler failed: " <> displayException e)
      pure (errorResponse internalServerError500 "")

-- | An exception that came after the response.
told :: Context -> SomeException -> Thread ()
told context e = case fromException e of
  Just (_ :: SomeAsyncException) -> throwM e
  Nothing -> do
    liftIO (observe (contextServer context) HandlerFailed)
    report context ("a handler failed after its response: " <> displayException e)

-- | After this response the connection ends.
closing :: Response -> Response
closing response = response {responseFields = Field "Connection" "close" : responseFields response}
