{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Sends responses: gathered if they are in memory, so that pipelined ones leave in few sends.
module Weft.Http.Server.Outgoing
  ( Output,
    noOutput,
    isEmptyOutput,
    flush,
    bounded,
    Answering (..),
    transmit,
    recorded,
    refuse,
    isProtocol,
    leave,
    linger,
    announce,
  )
where

import Control.Exception (IOException, SomeAsyncException, fromException)
import Control.Monad (unless, void, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Foldable (for_)
import Data.IORef
import Data.Int (Int64)
import Data.Maybe (isJust, isNothing)
import Weft
import Weft.Buffer (newBuffer)
import Weft.Http.Server.Exchange
import Weft.Http.Server.Incoming
import Weft.Http.Server.Input
import Weft.Http.Server.Layout
import Weft.Http.Server.Phase
import Weft.Http.Server.Render
import Weft.Http.Server.State
import Weft.Http.Server.Streaming
import Weft.Http.Server.Whole
import Weft.Http.Server.Wire
import Weft.Internal.Os.Report (exceptionText)
import Weft.Socket (ShutdownHow (..), receiveInto, shutdown)
import Weft.Time
import Weft.Timeout (timeout)

-- | Rendered responses that wait to be sent, newest first, and their size.
data Output = Output [ByteString] !Int

noOutput :: Output
noOutput = Output [] 0

isEmptyOutput :: Output -> Bool
isEmptyOutput (Output waiting _) = null waiting

-- | Send the output when it is large: responses to many pipelined requests must not gather in memory.
bounded :: Context -> Connection -> Output -> Thread Output
bounded context c waiting@(Output _ size)
  | size > 256 * 1024 = noOutput <$ flush context c waiting
  | otherwise = pure waiting

flush :: Context -> Connection -> Output -> Thread ()
flush context c output = flushAlso context c output []

flushAlso :: Context -> Connection -> Output -> [ByteString] -> Thread ()
flushAlso context c (Output waiting _) more = runOnce $ case (waiting, more) of
  ([], []) -> pure ()
  _ -> write context c (reverse waiting <> more)

data Answering = Answering
  { answeringRequest :: !Request,
    answeringInput :: !Input,
    answeringKeep :: !Bool,
    -- | When it began, in nanoseconds; 0 where that is not needed.
    answeringSince :: !Int64,
    answeringBody :: !Incoming,
    answeringLayout :: !Layout,
    -- | Which the thread that sends the response owns.
    answeringExchange :: !Exchange
  }

-- | Add a response to the output, or send it if it is not in memory. Does the connection go on?
transmit :: Context -> Connection -> Answering -> Response -> Output -> Thread (Bool, Output)
transmit context c answering response output =
  runOnce $
    if
      | Just bytes <- atHand request (answeringKeep answering) response ->
          (True, gathered [bytes]) <$ recorded context c answering status (bodyLength (responseBody response))
      | Raw conversation <- responseBody response -> do
          flush context c output
          conversing conversation
          recorded context c answering status 0
          -- Bytes that came after the request are not in its input, so 'leave' does not know of them.
          (False, noOutput) <$ linger context c
      -- The client would take the next response for this one.
      | statusCode status < 200, not (isSwitch && statusCode status == 101) -> faulty ("answered with " <> show (statusCode status) <> ", which is no final response")
      | Just h <- renderedNow response,
        not (inMemory (responseBody response)),
        -- It says so in the way of HTTP\/1.1.
        not keepable || chunks ->
          leaving keepable (if keepable then h else sayingClose h)
      | otherwise ->
          liftIO (readIORef (serverOwnFields server) >>= \own -> layOut (answeringLayout answering) own status (responseFields response)) >>= \case
            Left bad -> faulty ("made a field that cannot be sent: " <> show bad)
            Right beginning -> do
              let !keep = keepable && not (beginningCloses beginning)
              leaving keep (renderResponseHead beginning (persistenceOf request keep) chunks response)
  where
    server = contextServer context
    request = answeringRequest answering
    status = responseStatus response
    Output waiting waitingSize = output
    faulty what = do
      report context ("a handler " <> what)
      releaseBody (responseBody response)
      transmit context c answering (errorResponse internalServerError500 "") output
    gathered = \case
      [bytes] -> Output (bytes : waiting) (waitingSize + B.length bytes)
      pieces -> Output (reverse pieces <> waiting) (waitingSize + sum (map B.length pieces))
    chunks = requestVersion request == Http11
    -- The end of content of any length is that of the connection, where there are no chunks.
    delimited = case responseBody response of
      Streamed Nothing _ -> chunks || bare
      Switch _ -> False
      Raw _ -> False
      -- After a success its client takes all that comes for the tunnel.
      _ -> not (isConnect request)
    isSwitch = case responseBody response of
      Switch _ -> True
      _ -> False
    keepable = answeringKeep answering && delimited
    bare = isHead request || hasNoBody status
    leaving keep h = do
      (sent, output') <- body h
      recorded context c answering status sent
      when isSwitch (linger context c)
      pure (keep, output')

    -- The number of octets of content that were sent, and what waits now.
    body h = case responseBody response of
      FileBody file parts end release ->
        ((,noOutput) <$> sendFileBody h file parts end) `finally` release
      Bytes pieces | not bare -> pure (bodyLength (responseBody response), gathered (h : pieces))
      Streamed size' make | not bare -> (,noOutput) <$> sendStream h size' make
      Switch conversation -> do
        liftIO (beginAnswer (answeringExchange answering))
        flushAlso context c output [h]
        (0, noOutput) <$ conversing conversation
      _ -> pure (0, gathered [h])

    sendFileBody h file parts end
      | bare || bodyLength (responseBody response) == 0 = 0 <$ flushAlso context c output [h]
      | otherwise = do
          flush context c output
          -- From here on the client has its time to take the response.
          liftIO (enter server c Sending)
          bodyLength (responseBody response) <$ sendParts h file parts end
    sendParts before file parts end = case parts of
      [] -> write context c [before, end]
      FilePart preamble offset count : rest -> do
        writeFilePart context c (if B.null preamble then before else before <> preamble) file offset count
        sendParts B.empty file rest end

    sendStream h size' make = do
      flush context c output
      liftIO (enter server c Streaming)
      stream <- liftIO (newStream h (maybe (if chunks then Chunked else UntilClose) Exactly size') (answeringExchange answering))
      let making :: (forall x. Thread x -> Thread x) -> Thread Int64
          making guarded = do
            trailers <- make (streamSink context c stream guarded)
            guarded (streamEnd context c stream trailers)
      attending context making `onException` liftIO (failContent (answeringExchange answering))

    conversing conversation = do
      first <- liftIO (newIORef $! unread (answeringInput answering))
      let receiving = do
            kept <- liftIO (atomicModifyIORef' first (B.empty,))
            if B.null kept then receivePiece c 16_384 else pure kept
          sending pieces = write context c pieces >> liftIO (enter server c Streaming)
      liftIO (enter server c Streaming)
      attending context $ \guarded -> conversation (Duplex (guarded receiving) (guarded . sending))

-- | Do what may fail by itself while a response is sent (the operator is told), or with the connection.
attending :: Context -> ((forall x. Thread x -> Thread x) -> Thread a) -> Thread a
attending context act = do
  broken <- liftIO (newIORef False)
  act (`onException` liftIO (writeIORef broken True)) `catch` \e -> do
    known <- liftIO (readIORef broken)
    if
      | known -> throwM e
      | Just (_ :: SomeAsyncException) <- fromException e -> throwM e
      | Just (_ :: BodyError) <- fromException e -> throwM e
      | otherwise -> do
          liftIO (observe (contextServer context) HandlerFailed)
          let why = "a handler failed while its response was sent: " <> exceptionText e
          report context why
          throwM (Aborted why (Just e))

-- | Tell the access log and the observer that a response was sent.
recorded :: Context -> Connection -> Answering -> Status -> Int64 -> Thread ()
recorded context c answering status sent
  | contextQuiet context = pure ()
  | otherwise = do
      end <- now
      received <- liftIO (receivedSoFar (answeringBody answering))
      record context c (Just (answeringRequest answering)) status sent received (instantNanoseconds end - answeringSince answering)

record :: Context -> Connection -> Maybe Request -> Status -> Int64 -> Int64 -> Int64 -> Thread ()
record context c request status sent received duration = liftIO $ do
  tick <- readClock (serverClock server)
  let entry = Entry (clientAddress (connectionClient c)) (tickSecond tick) request status sent received duration
  for_ (serverAccessLog settings) ($ entry)
  for_ (serverObserver settings) ($ ResponseSent entry)
  where
    server = contextServer context
    settings = serverSettings server

refuse :: Context -> Connection -> Status -> ByteString -> Thread ()
refuse context c status detail = do
  -- To say so has its own time, if there is none left.
  own <- liftIO (revive server c Sending >> readIORef (serverOwnFields server))
  let response = errorResponse status detail
      body = case responseBody response of Bytes pieces -> pieces; _ -> []
  for_ (renderBeginning own status (responseFields response)) $ \beginning ->
    write context c (renderResponseHead beginning Closing True response : body)
  unless (contextQuiet context) $ record context c Nothing status (bodyLength (responseBody response)) 0 0
  linger context c
  where
    server = contextServer context

-- | Does another protocol follow the head of the response, or stand in its place?
isProtocol :: Body -> Bool
isProtocol = \case
  Switch _ -> True
  Raw _ -> True
  _ -> False

-- | End the connection after a response without a body of the request. A client that sends nothing more
-- is not waited for: nothing comes that would cause a reset.
leave :: Context -> Connection -> RequestHead -> Input -> Thread ()
leave context c h input
  | isNothing (connectionTransport c), not (isPersistent h), B.null (unread input) = pure ()
  | otherwise = linger context c

-- | Close without losing the response: end our direction, and throw away what the client still sends,
-- for a moment. Closing with unread input causes a reset, which can overtake the response.
--
-- Where the ticker has shut our receiving direction down, the end of ours has the same effect on a client
-- that still sends (RFC 1122, section 4.2.2.13; Linux does so): it waits for a pause of the client, of
-- which the socket tells; a layer may wait for the rest of a record.
linger :: Context -> Connection -> Thread ()
linger context c = do
  liftIO (enter (contextServer context) c Lingering)
  shut <- liftIO (wasRevived (connectionMember c))
  -- Not that of the connection, in which there are requests that may have been kept.
  buffer <- liftIO (newBuffer usualSize)
  if shut then pausing buffer False else endingSoon c >> skipping buffer
  where
    -- Each is bounded by the deadline of the phase, which nothing moves.
    unlessExpired act = liftIO (expiredIn c) >>= \expired -> unless expired act
    skipping buffer = receiveTo c buffer 0 maxBound >>= \n -> unlessExpired (unless (n == 0) (skipping buffer))
    -- 0 does not mean that the client has ended.
    pausing buffer paused =
      receiveInto (connectionSocket c) buffer 0 maxBound >>= \n ->
        unlessExpired $
          if
            | n > 0 -> pausing buffer False
            | paused -> endingSoon c >> departing
            | otherwise -> aWhile >> pausing buffer True
    -- A connection of which both directions have ended, or that was reset, cannot be shut down any more.
    departing = do
      aWhile
      gone <- either (\(_ :: IOException) -> True) (const False) <$> try (shutdown (connectionSocket c) ShutdownReceive)
      unlessExpired (unless gone departing)
    aWhile = sleep (milliseconds 100)

-- | A session is over: announce the end in a layer, where 'linger' has not.
announce :: Connection -> Thread ()
announce c = when (isJust (connectionTransport c)) $ do
  (phase, _, _) <- liftIO (currentPhase (connectionMember c))
  unless (phase == Lingering) (endingSoon c)

-- | End our direction. The client may be gone, or take nothing of what a layer says then: nothing moves
-- an expired connection, so this has a limit of its own.
endingSoon :: Connection -> Thread ()
endingSoon c = void (try @_ @IOException (timeout (seconds 2) (endSending c)))
