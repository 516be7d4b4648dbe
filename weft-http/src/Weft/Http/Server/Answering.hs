{-# LANGUAGE OverloadedStrings #-}
{-# OPTIONS_GHC -O2 -fno-full-laziness #-}

-- |
-- Description : Having a request answered
-- Stability   : not home
--
-- Calls handlers and applications, and answers for them when they fail, answer twice, or not
-- at all.
module Weft.Http.Server.Answering
  ( answered,
    applied,
    appliedPlain,
    After (..),
    sendingOnce,
    beginSending,
    finished,
    failing,
  )
where

import Control.Exception (SomeAsyncException, SomeException, displayException, fromException, throwIO)
import Control.Exception qualified as E
import Control.Monad (unless, void, when)
import Data.ByteString qualified as B
import Data.IORef
import Data.Int (Int64)
import Weft
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
import Weft.Internal.SendNow (endTurn, newTurn, readTurn, takeTurn)
import Weft.Internal.SystemCall (socketDescriptor)

-- | What a connection does after an application.
data After
  = -- | It is idle already.
    Waits
  | -- | Whether it goes on.
    Proceeds !Bool
  | -- | The server drains.
    Stops

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
  turn <- liftIO newTurn
  let once response =
        liftIO (takeTurn turn (socketDescriptor (connectionSocket c))) >>= \case
          0 -> do
            goesOn <- sending response `catch` asItWas
            Sent <$ liftIO (endTurn turn (sentAs goesOn))
          _ -> throwM (userError twice)
  outcome <- try (application request once)
  -- What it has left behind comes too late with a response.
  stage <- liftIO (takeTurn turn (socketDescriptor (connectionSocket c)))
  concluded context c (stageOf stage) (void outcome) sending

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
    turn <- newTurn
    outcome <- E.try (application way request (once turn))
    stage <- readTurn turn
    case (stageOf stage, outcome) of
      -- What happens almost always.
      (Done True, Right ()) -> Left <$> settling
      -- A thread that it has left behind comes too late with a response.
      _ -> (\stage' -> Right (turn, stageOf stage', outcome)) <$> takeTurn turn descriptor
  case outcome of
    Left settled -> pure settled
    Right (turn, stage, outcome') -> Proceeds <$> concluded context c stage outcome' (later turn)
  where
    server = contextServer context
    descriptor = socketDescriptor (connectionSocket c)
    once turn response = do
      expired <- expiredIn c
      draining <- isDraining server
      tick <- readClock (serverClock server)
      let asked = answering draining
      case wholeNow context (answeringRequest asked) (answeringKeep asked) response tick of
        Just (goesOn, bytes)
          | not expired ->
              sendNowInTurn turn c bytes >>= \case
                Taken n
                  -- The phase first: when the turn has ended, the session may enter the next one.
                  | n == B.length bytes -> Nothing <$ (enter server c Finishing >> endTurn turn (sentAs goesOn))
                  | otherwise -> begun $ do
                      sendPieces context c [B.drop n bytes]
                      liftIO (enter server c Finishing >> endTurn turn (sentAs goesOn))
                NotYours -> throwIO (userError twice)
                Gone -> throwIO (userError "the connection has ended")
        _ ->
          takeTurn turn descriptor >>= \case
            0 -> begun (void (later turn response))
            _ -> throwIO (userError twice)
    -- The handler has answered: what was to end it must not come before the rest is performed.
    begun rest = Just rest <$ enter server c Sending
    later turn response = do
      draining <- liftIO (beginSending server c)
      goesOn <- (transmit context c (answering draining) response noOutput `catch` asItWas) >>= finished context c
      goesOn <$ liftIO (endTurn turn (sentAs goesOn))

-- | What has made a response fail, as the application has raised it.
asItWas :: Aborted -> Thread a
asItWas aborted@(Aborted _ why) = maybe (throwM aborted) throwM why

-- | An exception has left an application while its response was under way. The operator knows
-- of it already.
halfway :: SomeException -> Thread a
halfway e = case fromException e of
  Just (_ :: SomeAsyncException) -> throwM e
  Nothing -> throwM (Aborted (displayException e) (Just e))

-- | How far an application is with its response, which is sent by who has its 'Turn'.
data Progress
  = Unsent
  | UnderWay
  | -- | It was sent; whether the connection goes on.
    Done !Bool

stageOf :: Int -> Progress
stageOf = \case
  0 -> Unsent
  1 -> UnderWay
  n -> Done (n == sentAs True)
{-# INLINE stageOf #-}

-- | As what a 'Turn' ends.
sentAs :: Bool -> Int
sentAs goesOn = if goesOn then 3 else 2
{-# INLINE sentAs #-}

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
