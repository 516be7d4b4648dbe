{-# OPTIONS_HADDOCK not-home #-}

-- | One request and its response on one connection. The content is received on demand, so that back
-- pressure reaches the server. A second thread sends a long body: a server may answer in the middle.
module Weft.Http.Client.Exchange
  ( exchange,
    TimeLimits (..),
    within,
    Unanswered (..),
    ClientResponse (..),
    receivePiece,
  )
where

import Control.Exception (Exception (..), IOException, SomeAsyncException (..), SomeException)
import Control.Monad (unless, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Int (Int64)
import Data.Maybe (catMaybes, isJust)
import Numeric (showHex)
import Weft
import Weft.Event
import Weft.Http.Body
import Weft.Http.Client.Pool (ClientConnection (connectionTransport), Lease (..), Verdict (..), closeConnection, sendPieces)
import Weft.Http.Client.Pool qualified as Connection
import Weft.Http.Client.Types
import Weft.Http.Internal.ResponseHead
import Weft.Http.Internal.Types (Field, Framing (..), Limits, Version)
import Weft.Http.Status
import Weft.Http.Transport (transportPending)
import Weft.Ref
import Weft.Scope
import Weft.Time (Instant, after, now)
import Weft.Timeout (timeout, timeoutAt)

data TimeLimits = TimeLimits
  { clockTimeouts :: !ClientTimeouts,
    clockEnd :: !(Maybe Instant)
  }

-- | Limit an action to the time of its phase; throws 'TimedOut'.
within :: TimeLimits -> ClientPhase -> Thread a -> Thread a
within clock phase body = do
  own <- traverse (\d -> after d <$> now) limit
  case catMaybes [own, clockEnd clock] of
    [] -> body
    ends -> timeoutAt (minimum ends) body >>= maybe (throwM (TimedOut phase)) pure
  where
    limit = case phase of
      Waiting -> Nothing
      Connecting -> Just (timeoutConnect timeouts)
      Sending -> Just (timeoutPiece timeouts)
      AwaitingHead -> Just (timeoutHead timeouts)
      ReceivingBody -> Just (timeoutPiece timeouts)
    timeouts = clockTimeouts clock

-- | A response whose content may still have to be received.
data ClientResponse = ClientResponse
  { -- | The final status; interim responses were skipped.
    responseStatus :: !Status,
    -- | As the server names it in the status line.
    responseVersion :: !Version,
    -- | In the order received.
    responseFields :: ![Field],
    -- | The URL of this response, after redirections.
    responseUrl :: !Url,
    responseInput :: !ResponseInput
  }

data ResponseInput = ResponseInput
  { inputConnection :: !ClientConnection,
    inputClock :: !TimeLimits,
    inputState :: !(Ref ReceiveState),
    inputSending :: !(Ref SendState)
  }

data ReceiveState
  = -- | The decoder and the bytes received after its position.
    Content !Decoder !ByteString
  | -- | The content lasts until the connection ends.
    ToTheEnd !ByteString
  | -- | The content has ended; these bytes followed it.
    Ended !ByteString
  | -- | The response was abandoned or has ended.
    Over

data SendState
  = Unsent
  | -- | Sent at this time.
    Sent !Instant
  | -- | The connection has refused it since this time.
    SendFailed !Instant
  | -- | The producer of the body failed or took too long; raised where the response is awaited.
    BodyFailed !SomeException

-- | The connection ended before the first byte of a response: a reused one may have been closed before.
newtype Unanswered = Unanswered HttpError
  deriving stock (Show)

instance Exception Unanswered

exchange :: Limits -> TimeLimits -> Lease -> ClientRequest -> ByteString -> (ClientResponse -> Thread a) -> Thread (a, Verdict)
exchange limits clock lease request h use = do
  state <- newRef Over
  sending <- newRef Unsent
  let connection = leaseConnection lease
      input = ResponseInput connection clock state sending
      answered interim final = do
        (response, reusable) <- receiveHead limits input request interim
        _ <- final
        a <- use response
        ended <- settled input
        sent <- atomicReadRef sending
        -- Excess bytes would be taken for the next response.
        more <- liftIO (transportPending (connectionTransport connection))
        pure (a, if reusable && ended && isSent sent && not more then Keep else Discard)
      isSent = \case Sent _ -> True; _ -> False
      became outcome = now >>= atomicWriteRef sending . outcome
      send pieces = within clock Sending (sendPieces connection pieces)
      -- A server may refuse a request, and close, before it has all of it; its response may be here.
      sendOr failed act = act `catch` \e -> failed (e :: IOException)
      sendUnlessClosed = sendOr (\_ -> became SendFailed)
      inline pieces = do
        sendUnlessClosed (send pieces >> became Sent)
        answered (pure ()) (pure ())
      apart body = do
        sendUnlessClosed (send [h])
        goAhead <- newEvent
        unless (requestExpectContinue request) (set goAhead)
        withScope $ \scope -> do
          sender <- forkDaemonIn scope $ do
            _ <- timeout (timeoutContinue (clockTimeouts clock)) (wait goAhead)
            failure <- try (body (\piece -> unless (B.null piece) (sendOr (throwM . NotTaken) (send (chunk piece)))))
            case failure of
              Right () -> became Sent
              Left e
                | Just (SomeAsyncException _) <- fromException e -> throwM e
                | Just (NotTaken _) <- fromException e -> became SendFailed
                | otherwise -> atomicWriteRef sending (BodyFailed e) >> closeConnection connection
          answered (set goAhead) $ do
            -- A final response to Expect: 100-continue refuses the body.
            asked <- not <$> isSet goAhead
            when asked (cancel (childThread sender))
      chunk piece = case requestBody request of
        Streamed Nothing _ -> [C.pack (showHex (B.length piece) "\r\n"), piece, "\r\n"]
        _ -> [piece]
      expects = requestExpectContinue request
      -- The failure of the body caused those that follow.
      blamed e =
        atomicReadRef sending >>= \case
          BodyFailed cause | isConnectionTrouble e -> throwM cause
          _ -> throwM e
  flip finally (writeRef state Over) . handle blamed $ case requestBody request of
    Empty -> inline [h]
    Whole bytes
      | B.length bytes <= 16 * 1024 && not expects -> inline [h, bytes]
      | otherwise -> apart (\out -> mapM_ out (inPieces bytes))
    Streamed (Just n) produce -> apart (counted n produce)
    Streamed Nothing produce -> apart (\out -> produce out >> sendOr (throwM . NotTaken) (send ["0\r\n\r\n"]))

newtype NotTaken = NotTaken IOException
  deriving stock (Show)

instance Exception NotTaken

isConnectionTrouble :: SomeException -> Bool
isConnectionTrouble e = case fromException e of
  Just (ConnectionLost _ _) -> True
  _ -> isJust (fromException e :: Maybe Unanswered)

-- | Split a body; each piece has the time limit of its own.
inPieces :: ByteString -> [ByteString]
inPieces bytes
  | B.null bytes = []
  | otherwise = let (piece, rest) = B.splitAt (256 * 1024) bytes in piece : inPieces rest

-- | Hold a producer to its promised length.
counted :: Int64 -> ((ByteString -> Thread ()) -> Thread ()) -> (ByteString -> Thread ()) -> Thread ()
counted n produce out = do
  left <- newRef n
  produce $ \piece -> do
    before <- readRef left
    let rest = before - fromIntegral (B.length piece)
    when (rest < 0) (throwM (InvalidLength n))
    writeRef left rest
    out piece
  rest <- readRef left
  unless (rest == 0) (throwM (InvalidLength n))

-- | Receive the final head; may another request follow? The action runs on an interim response.
receiveHead :: Limits -> ResponseInput -> ClientRequest -> Thread () -> Thread (ClientResponse, Bool)
receiveHead limits input request interim = do
  (h, rest) <- go (0 :: Int) 0 B.empty
  writeRef (inputState input) $ case headExtent h of
    Framed NoBody -> Ended rest
    Framed framing -> Content (bodyDecoder limits framing) rest
    UntilClose -> ToTheEnd rest
  pure (ClientResponse (headStatus h) (headVersion h) (headFields h) (requestUrl request) input, isReusable h)
  where
    go passed scanned have = case if B.null have then IncompleteResponse 0 else parseResponse limits (requestMethod request) scanned have of
      BadResponse fault -> throwM (MalformedResponse fault)
      ParsedResponse h n
        | status == 101 -> throwM (MalformedResponse UnexpectedSwitch)
        | status >= 200 -> pure (h, B.drop n have)
        | passed >= mostInterim -> throwM (MalformedResponse TooManyInterim)
        | otherwise -> interim >> go (passed + 1) 0 (B.drop n have)
        where
          status = statusCode (headStatus h)
      IncompleteResponse seen -> do
        -- Inside of the time limit: a server that is late may be at work on the request.
        more <- patiently input (receiveSome input AwaitingHead `catch` (if B.null have && passed == 0 then throwM . Unanswered else throwM))
        go passed seen (have <> more)
    mostInterim = 32

-- | Wait for more of a head. Its time limit begins when the request has been sent.
patiently :: ResponseInput -> Thread a -> Thread a
patiently input body = do
  t <- now
  begun <- since' t <$> atomicReadRef (inputSending input)
  let end = after (timeoutHead (clockTimeouts clock)) begun
  timeoutAt (maybe end (min end) (clockEnd clock)) body >>= \case
    Just a -> pure a
    Nothing -> do
      t' <- now
      later <- since' t' <$> atomicReadRef (inputSending input)
      if later > begun && maybe True (> t') (clockEnd clock) then patiently input body else throwM (TimedOut AwaitingHead)
  where
    clock = inputClock input
    -- Sending has time limits of its own.
    since' t = \case
      Sent at -> at
      SendFailed at -> at
      _ -> t

receiveSome :: ResponseInput -> ClientPhase -> Thread ByteString
receiveSome input phase = do
  bytes <- Connection.receiveSome (inputConnection input) `catch` (throwM . ConnectionLost phase . Just)
  if B.null bytes then throwM (ConnectionLost phase Nothing) else pure bytes

-- | Wait for the next piece of the content; empty at its end. Throws 'HttpError'. Can be cancelled.
receivePiece :: ClientResponse -> Thread ByteString
receivePiece response =
  readRef state >>= \case
    Over -> throwM ResponseOver
    Ended _ -> pure B.empty
    ToTheEnd rest
      | B.null rest -> do
          bytes <- within (inputClock input) ReceivingBody (Connection.receiveSome (inputConnection input)) `catch` (throwM . ConnectionLost ReceivingBody . Just)
          when (B.null bytes) (writeRef state (Ended B.empty))
          pure bytes
      | otherwise -> rest <$ writeRef state (ToTheEnd B.empty)
    Content decoder rest -> go decoder rest
  where
    input = responseInput response
    state = inputState input
    go decoder rest = case decode decoder rest of
      Piece piece rest' decoder' -> piece <$ writeRef state (Content decoder' rest')
      End _ rest' -> B.empty <$ writeRef state (Ended rest')
      Broken fault -> throwM (MalformedContent fault)
      More decoder' -> do
        writeRef state (Content decoder' B.empty)
        within (inputClock input) ReceivingBody (receiveSome input ReceivingBody) >>= go decoder'

-- | Has the content ended, with no bytes after it? Skips content that is already here.
settled :: ResponseInput -> Thread Bool
settled input =
  readRef (inputState input) >>= \case
    Ended rest -> pure (B.null rest)
    Content decoder rest -> pure $ case skip decoder rest of
      End _ rest' -> B.null rest'
      _ -> False
    _ -> pure False
