-- Without full laziness: decision 120.
{-# OPTIONS_GHC -O2 -fno-full-laziness #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Calls handlers and applications, and answers for them when they fail, answer twice, or not at all.
module Weft.Http.Server.Answering (answered, appliedPlain, After (..), failing) where

import Control.Exception (SomeAsyncException, SomeException, fromException, throwIO)
import Control.Exception qualified as E
import Control.Monad (unless, void, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.IORef
import Weft
import Weft.Http.RequestHead
import Weft.Http.Server.Exchange
import Weft.Http.Server.Incoming
import Weft.Http.Server.Input (Input (NoInput))
import Weft.Http.Server.Outgoing
import Weft.Http.Server.Phase
import Weft.Http.Server.Registry
import Weft.Http.Server.Render
import Weft.Http.Server.State
import Weft.Http.Server.Whole
import Weft.Http.Server.Wire
import Weft.Internal.Os.Report (exceptionText)

-- | The outcome of a response, and the next step of its connection.
data After
  = -- | It was sent, and the connection is idle already.
    Waits
  | -- | It was sent: whether the connection goes on.
    Proceeds !Bool
  | -- | It was sent, and the server drains.
    Stops
  | -- | Whether the connection goes on after it, and what the client has not taken at once.
    Partly !Bool !ByteString
  | -- | It is none that can be sent at once.
    Slowly

-- | Send a response to a request that may have a body. Does the connection go on? And what is not yet sent.
sendingOnce :: Context -> Connection -> Answering -> Response -> Thread (Bool, Output)
sendingOnce context c possible response = do
  (draining, skippable) <- liftIO ((,) <$> beginSending (contextServer context) c <*> isSkippable context (answeringBody possible))
  let answering = possible {answeringKeep = answeringKeep possible && not draining && skippable}
      sending input answer = transmit context c answering {answeringInput = input} answer noOutput
  -- Another protocol begins after the body.
  after <- if isProtocol (responseBody response) then skipRest context c (answeringBody possible) else pure (Just (answeringInput possible))
  maybe (sending NoInput (closing (errorResponse badRequest400 "The request has a body."))) (`sending` response) after

answered :: Context -> Connection -> Answering -> Thread (Bool, Output)
answered context c answering
  | requestExpectation request == ExpectUnknown = sending (errorResponse expectationFailed417 "")
  | FixedBody n <- requestFraming request,
    n > serverMaxBody settings =
      sending (closing (errorResponse requestEntityTooLarge413 "The request body is too large."))
  | otherwise =
      bracket (liftIO (beginHandler server >>= newIORef)) (liftIO . ended) $ \working -> do
        begun <- liftIO (readIORef working)
        if begun
          then case serverAnswers server of
            ByHandler _ handler -> do
              response <- handler request `catch` failing context
              -- A client that takes its time is no handler at work.
              unless (isMade (responseBody response)) (liftIO (ended working))
              mine <- claiming (claim exchange)
              unless mine $ releaseBody (responseBody response) >> throwM (Aborted "the connection has ended" Nothing)
              sending response
            -- As above: what an application has answered is sent.
            ByApplication application -> (,noOutput) <$> applied context c exchange application request sentAtOnce
            ByPlain application -> do
              PlainAnswer host answer <- liftIO (application (requestHead request))
              let suspending r once = Sent <$ host (pure ()) (\way -> answer way r (pure . Just . void . once))
              (,noOutput) <$> applied context c exchange suspending request sentAtOnce
          else do
            liftIO (observe server RequestShed)
            sending (withRetry (errorResponse serviceUnavailable503 "The server is busy."))
  where
    server = contextServer context
    settings = serverSettings server
    request = answeringRequest answering
    exchange = answeringExchange answering
    sending = sendingOnce context c answering
    ended working = do
      was <- readIORef working
      when was (writeIORef working False >> endHandler server)
    isMade = \case
      Streamed _ _ -> True
      body -> isProtocol body
    withRetry response = response {responseFields = Field "Retry-After" "1" : responseFields response}
    sentAtOnce response = sending response >>= finished context c

-- | From here on the client has its time to take the response, even if none was left. Is it a drain?
beginSending :: Server -> Connection -> IO Bool
beginSending server c = revive server c Sending >> isDraining server

-- | The responses of an application are sent before it goes on, so it may take as long as it likes.
finished :: Context -> Connection -> (Bool, Output) -> Thread Bool
finished context c (goesOn, output) = do
  flush context c output
  goesOn <$ liftIO (enter (contextServer context) c Finishing)

-- | Have an application answer. The action sends the response. Both say if the connection goes on.
applied :: Context -> Connection -> Exchange -> Application -> Request -> (Response -> Thread Bool) -> Thread Bool
applied context c exchange application request sending = do
  outcome <- try (application request once)
  progress <- liftIO (conclude exchange)
  concluded context c progress (void outcome) sending
  where
    once response = do
      mine <- claiming (claim exchange)
      unless mine $ releaseBody (responseBody response) >> throwM (userError twice)
      goesOn <- sending response `catch` asItWas
      Sent <$ liftIO (settle exchange goesOn)

-- | An application has ended, having come so far with its response; the action sends one if none was.
concluded :: Context -> Connection -> Progress -> Either SomeException () -> (Response -> Thread Bool) -> Thread Bool
concluded context c progress ended sending = case (progress, ended) of
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

twice :: String
twice = "an application has answered a request twice"

-- | 'applied' for an application in plain 'IO', and a request without a body: a small response is sent
-- without suspending it. In one effect: the first action, the second, and the last if all went well.
appliedPlain :: Context -> Connection -> PlainAnswer -> IO () -> IO Answering -> IO After -> Thread After
appliedPlain context c (PlainAnswer host answer) first begin settling = runOnce $ do
  outcome <- host first $ \way -> do
    !answering <- begin
    outcome <- E.try (answer way (answeringRequest answering) (respondOnce context c answering))
    progress <- conclude (answeringExchange answering)
    case (progress, outcome) of
      -- Almost always.
      (Done True, Right ()) -> Left <$> settling
      _ -> pure (Right (Unsettled answering progress outcome))
  case outcome of
    Left settled -> pure settled
    Right (Unsettled answering progress outcome') -> Proceeds <$> concluded context c progress outcome' (sentLater context c answering)

-- | What 'concluded' is told of an application that has ended.
data Unsettled = Unsettled !Answering !Progress !(Either SomeException ())

-- | Send the response of a plain application, or say what sends it. OPAQUE: its closure is small.
respondOnce :: Context -> Connection -> Answering -> Response -> IO (Maybe (Thread ()))
respondOnce context c answering response =
  claim exchange >>= \case
    Claimed -> do
      expired <- expiredIn c
      draining <- isDraining server
      wholeNow context (answeringLayout answering) (answeringRequest answering) (answeringKeep answering && not draining) response >>= \case
        Whole goesOn bytes
          | not expired -> do
              n <- tryWrite context c bytes
              if n == B.length bytes
                then Nothing <$ sent goesOn
                else begun (write context c [B.drop n bytes] >> liftIO (sent goesOn))
        _ -> begun (sentLater context c answering response >>= liftIO . settle exchange)
    _
      | inMemory (responseBody response) -> throwIO (userError twice)
      | otherwise -> pure (Just (releaseBody (responseBody response) >> throwM (userError twice)))
  where
    server = contextServer context
    exchange = answeringExchange answering
    -- The phase first: when this is settled, the session may enter the next one.
    sent goesOn = enter server c Finishing >> settle exchange goesOn
    -- The handler has answered: an interruption of the handler must not come before the rest is performed.
    begun rest = Just rest <$ enter server c Sending
{-# OPAQUE respondOnce #-}

sentLater :: Context -> Connection -> Answering -> Response -> Thread Bool
sentLater context c answering response = do
  draining <- liftIO (beginSending (contextServer context) c)
  (transmit context c answering {answeringKeep = answeringKeep answering && not draining} response noOutput `catch` asItWas) >>= finished context c

-- | Raise what has made a response fail as the application has raised it.
asItWas :: Aborted -> Thread a
asItWas aborted@(Aborted _ why) = maybe (throwM aborted) throwM why

-- | An exception has left an application while its response was under way. The operator knows already.
halfway :: SomeException -> Thread a
halfway e = case fromException e of
  Just (_ :: SomeAsyncException) -> throwM e
  Nothing -> throwM (Aborted (exceptionText e) (Just e))

-- | The response to a request whose handler has raised this, or the end of a connection without client.
failing :: Context -> SomeException -> Thread Response
failing context e
  | Just (Interruption HandlerTooSlow _) <- fromException e = ending serviceUnavailable503 "The request took too long to answer."
  | Just (_ :: SomeAsyncException) <- fromException e = throwM e
  | Just failure <- fromException e = case failure of
      BodyTooLarge -> ending requestEntityTooLarge413 "The request body is too large."
      BodyMalformed fault -> ending (faultStatus fault) (faultText fault)
      BodyTimedOut -> ending requestTimeout408 "The request body took too long to arrive."
      BodyCutOff -> throwM e
  | otherwise = do
      liftIO (observe (contextServer context) HandlerFailed)
      report context ("a handler failed: " <> exceptionText e)
      pure (errorResponse internalServerError500 "")
  where
    ending status = pure . closing . errorResponse status

told :: Context -> SomeException -> Thread ()
told context e = case fromException e of
  Just (_ :: SomeAsyncException) -> throwM e
  Nothing -> do
    liftIO (observe (contextServer context) HandlerFailed)
    report context ("a handler failed after its response: " <> exceptionText e)

closing :: Response -> Response
closing response = response {responseFields = Field "Connection" "close" : responseFields response}
