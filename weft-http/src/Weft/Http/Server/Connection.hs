{-# LANGUAGE OverloadedStrings #-}
{-# OPTIONS_GHC -O2 -fno-full-laziness #-}

-- |
-- Description : The life of one connection
-- Stability   : not home
--
-- The session of one client, as a plain sequential thread: receive a head, have it
-- answered, send the response, begin again. Pipelined requests are answered in
-- order, their responses gathered into few sends. Runs as the connection's own
-- thread; everything it holds is released by who forked it.
module Weft.Http.Server.Connection
  ( session,
  )
where

import Control.Exception (SomeAsyncException, SomeException, displayException, fromException, throwIO)
import Control.Exception qualified as E
import Control.Monad (unless, void, when)
import Data.ByteString qualified as B
import Data.IORef
import Data.Int (Int64)
import Data.Maybe (fromMaybe, isJust)
import Data.Primitive.PrimVar
import Weft
import Weft.Buffer (newBuffer)
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
import Weft.IO (direct)
import Weft.Socket (awaitReadable)
import Weft.Time

-- | Serve one connection until it ends.
session :: Context -> Connection -> Thread ()
session context plainly = do
  -- Who the client is comes first, and then whether it may have one more connection.
  known <- layered context (maybe [] pure (serverProxy settings)) plainly
  bracket (liftIO (admit server (clientAddress (connectionClient known)))) (mapM_ liftIO) $ \admitted -> do
    c <- layered context (serverLayers settings) known
    if isJust admitted
      then serving context c (requests context c emptyInput 0 noOutput)
      else do
        liftIO (observe server ConnectionRefused)
        refuse context c emptyInput serviceUnavailable503 "There are too many connections from your address."
  where
    server = contextServer context
    settings = serverSettings server

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

-- | Serve requests, until the wait for one is interrupted because none comes; then wait
-- without a buffer (Note [Deadlines] in "Weft.Http.Server.Phase"). The interrupted wait has
-- neither input nor output, so nothing is lost, and no request pays for a handler of its own.
serving :: Context -> Connection -> Thread () -> Thread ()
serving context c body = do
  asked <- (False <$ body) `catch` resting
  when asked $ do
    draining <- liftIO (lieDown c >> isDraining (contextServer context))
    unless draining $ do
      -- What a layer has received in the moment in which it was interrupted does not make
      -- the socket readable again.
      pending <- maybe (pure False) (liftIO . transportPending) (connectionTransport c)
      unless pending $ awaitReadable (connectionSocket c)
      serving context c (receiving context c emptyInput)
  where
    resting e@(Interruption reason _)
      | reason == BufferUnused = pure True
      | otherwise = throwM e

-- | Answer the requests that have come; then wait for more. The number says how much of the
-- unread input the parser has seen already.
requests :: Context -> Connection -> Input -> Int -> Output -> Thread ()
requests context c input scanned output
  | B.null given = flush context c output >> awaitRequest context c input
  | otherwise = case parseRequest (serverLimits settings) scanned given of
      Parsed h used -> respond context c h (discard used input) output
      Incomplete seen -> do
        flush context c output
        -- The first byte of a head starts its time; more bytes do not extend it.
        liftIO (enterHead (contextServer context) c)
        receiveMore c input >>= \case
          Just input' -> requests context c input' seen noOutput
          Nothing -> endOfInput context c input
      Bad fault -> do
        flush context c output
        refuse context c input (faultStatus fault) (faultText fault)
  where
    given = unread input
    settings = serverSettings (contextServer context)

-- | Between two requests. The connection keeps its buffer for a while: to wait without one
-- costs another turn through the event source for each request.
awaitRequest :: Context -> Connection -> Input -> Thread ()
awaitRequest context c input = do
  ending <- liftIO $ do
    -- A new connection keeps the phase it was registered in: its first head is due.
    fresh <- isNew c
    unless fresh (enter server c (if isJust (connectionTransport c) then Dormant else Idle))
    -- Whoever drains sets the flag and then looks at the phases; we have entered ours
    -- and look at the flag: one of the two sees the other.
    draining <- isDraining server
    pure (draining && not fresh)
  unless ending (receiving context c input)
  where
    server = contextServer context

-- | Receive the beginning of the next request; the input is used up.
receiving :: Context -> Connection -> Input -> Thread ()
receiving context c = \case
  Input buffer _ _ -> into buffer
  NoInput -> liftIO (newBuffer usualSize) >>= into
  where
    into buffer = do
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
respond context c h input output = do
  lastOne <- liftIO (enter server c Handling >> isLast)
  start <- if contextQuiet context then pure 0 else instantNanoseconds <$> now
  case (serverAnswers server, headFraming h) of
    (ByHandler handler, NoBody)
      | serverMaxHandlers settings <= 0,
        headExpectation h /= ExpectUnknown -> do
          -- What happens almost always.
          let !request = Request h EmptyBody (connectionClient c)
          response <- handler request `catch` failing context
          -- From here on the client has its time to take the response.
          draining <- liftIO (enter server c Sending >> isDraining server)
          let keep = isPersistent h && not draining && not lastOne
              answering = Answering request input keep start (pure ()) (pure 0)
          case response of
            -- One request has come, its response is at hand.
            Response {responseRendered = Just bytes, responseBody = body}
              | inMemory body,
                keep,
                Get <- headMethod h,
                isEmptyOutput output,
                Http11 <- headVersion h,
                Input buffer from to <- input,
                from == to -> do
                  n <- sendOnce c bytes
                  unless (n == B.length bytes) (sendPieces context c [B.drop n bytes])
                  unless (contextQuiet context) $
                    recorded context c answering (responseStatus response) (bodyLength (responseBody response))
                  awaitRequest context c (Input buffer 0 0)
            _ -> do
              (goesOn, output') <- transmit context c answering response output
              waiting <- bounded context c output'
              if goesOn
                then requests context c input 0 waiting
                else flush context c waiting >> linger context c input
    -- The same for an application, which is there while its response is sent: that is not
    -- kept for the next one to go with, because nobody knows what the application does then.
    (ByApplication application, NoBody)
      | serverMaxHandlers settings <= 0,
        headExpectation h /= ExpectUnknown -> do
          let !request = Request h EmptyBody (connectionClient c)
              sending response = do
                draining <- liftIO (beginSending server c)
                transmit context c (Answering request input (isPersistent h && not draining && not lastOne) start (pure ()) (pure 0)) response output
                  >>= finished context c
          goesOn <- applied context c application request sending
          if goesOn then requests context c input 0 noOutput else linger context c input
    (ByDirect application, NoBody)
      | serverMaxHandlers settings <= 0,
        headExpectation h /= ExpectUnknown,
        isEmptyOutput output -> do
          let !request = Request h EmptyBody (connectionClient c)
              answering draining = Answering request input (isPersistent h && not draining && not lastOne) start (pure ()) (pure 0)
          goesOn <- appliedDirect context c application request answering
          case input of
            -- One request has come, and was answered.
            Input buffer from to | goesOn, from == to -> awaitRequest context c (Input buffer 0 0)
            _
              | goesOn -> requests context c input 0 noOutput
              | otherwise -> linger context c input
    _ -> do
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
  where
    server = contextServer context
    settings = serverSettings server
    isLast
      | serverMaxRequests settings <= 0 = pure False
      | otherwise = do
          n <- (+ 1) <$> readPrimVar (connectionServed c)
          writePrimVar (connectionServed c) n
          pure (n >= serverMaxRequests settings)

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
            ByDirect application ->
              let suspending r once = Sent <$ direct (application r (pure . Just . void . once))
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
    goesOn <$ liftIO (withdraw c)
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
-- without suspending it.
appliedDirect :: Context -> Connection -> DirectApplication -> Request -> (Bool -> Answering) -> Thread Bool
appliedDirect context c application request answering = do
  outcome <- direct $ do
    progress <- newIORef Unsent
    ended <- E.try (application request (once progress))
    stage <- readIORef progress
    case (stage, ended) of
      -- What happens almost always.
      (Done True, Right ()) -> Nothing <$ withdraw c
      _ -> pure (Just (progress, stage, ended))
  case outcome of
    Nothing -> pure True
    Just (progress, stage, ended) -> concluded context c stage ended (later progress)
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
