{-# LANGUAGE OverloadedStrings #-}
{-# OPTIONS_GHC -O2 #-}

-- |
-- Description : The life of one connection
-- Stability   : not home
--
-- The session of one client, as a plain sequential thread: receive a head, have it
-- answered, send the response, begin again. Pipelined requests are answered in
-- order, their responses gathered into few sends. Runs as the connection's own
-- thread; everything it holds is released by who forked it.
module Weft.Http.Server.Connection
  ( Context (..),
    session,
  )
where

import Control.Exception (SomeException, displayException)
import Control.Monad (unless, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Foldable (for_)
import Data.Int (Int64)
import Weft
import Weft.Http.Body qualified as Body
import Weft.Http.Request
import Weft.Http.Server.Input
import Weft.Http.Server.Registry
import Weft.Http.Server.Render
import Weft.Http.Server.Types
import Weft.Http.Status
import Weft.Socket

-- | What all sessions of a server share.
data Context = Context
  { contextServer :: !Server,
    contextBuffers :: !BufferPool
  }

-- | Tell the operator.
contextReport :: Context -> String -> IO ()
contextReport = serverReport . serverSettings . contextServer

-- | Rendered responses that wait to be sent, newest first, and their size.
data Output = Output [ByteString] !Int

noOutput :: Output
noOutput = Output [] 0

-- | In bytes: with more waiting, it is sent before the next request is looked at.
mostGathered :: Int
mostGathered = 256 * 1024

-- | Serve one connection until it ends.
session :: Context -> Connection -> Thread ()
session context c = requests context c emptyInput 0 noOutput

-- | Answer the requests that have come; then wait for more. The number says how
-- much of the unread input the parser has seen already.
requests :: Context -> Connection -> Input -> Int -> Output -> Thread ()
requests context c input scanned output
  | B.null given = flush context c output >> awaitRequest context c input
  | otherwise = case parseRequest (serverLimits settings) scanned given of
      Parsed request used -> respond context c request (discard used input) output
      Incomplete seen -> do
        flush context c output
        -- The first byte of a head starts its time; more bytes do not extend it.
        liftIO (enterHead (contextServer context) c)
        receiveMore context c input >>= \case
          Just input' -> requests context c input' seen noOutput
          Nothing -> endOfInput context c input
      Bad fault -> do
        flush context c output
        refuse context c input (faultStatus fault) (faultText fault)
  where
    given = unread input
    settings = serverSettings (contextServer context)

-- | Between two requests. The connection keeps its buffer: to wait without one costs
-- another turn through the event source for each request.
awaitRequest :: Context -> Connection -> Input -> Thread ()
awaitRequest context c input = do
  (ending, roomy) <- liftIO $ do
    -- A new connection keeps the phase it was registered in: its first head is due.
    fresh <- isNew c
    unless fresh (enter server c Idle)
    -- Whoever drains sets the flag and then looks at the phases; we have entered ours
    -- and look at the flag: one of the two sees the other.
    draining <- isDraining server
    (,) (draining && not fresh) <$> withRoom (contextBuffers context) input
  unless ending $ case roomy of
    Input buffer from to -> do
      n <- receiveInto (connectionSocket c) buffer to maxBound
      unless (n == 0) $ requests context c (Input buffer from (to + n)) 0 noOutput
    NoInput -> pure ()
  where
    server = contextServer context

-- | Receive into what room there is; 'Nothing' at the end of the stream.
receiveMore :: Context -> Connection -> Input -> Thread (Maybe Input)
receiveMore context c input = do
  roomy <- liftIO (withRoom (contextBuffers context) input)
  case roomy of
    NoInput -> pure Nothing
    Input buffer from to -> do
      n <- receiveInto (connectionSocket c) buffer to maxBound
      pure (if n == 0 then Nothing else Just (Input buffer from (to + n)))

-- | The client sends no more, or its time is up.
endOfInput :: Context -> Connection -> Input -> Thread ()
endOfInput context c input = do
  -- A connection that was idle when draining began is closed without a word, though some
  -- of a request may have come since: the client then knows that it can try again.
  late <- liftIO ((&&) <$> expiredIn c <*> (not <$> isDraining (contextServer context)))
  when (late && not (B.null (unread input))) $ do
    liftIO (revive (contextServer context) c Sending)
    refuse context c input requestTimeout408 "The request took too long to arrive."

-- | Have one request answered, and go on with what follows it.
respond :: Context -> Connection -> Request -> Input -> Output -> Thread ()
respond context c request input output = do
  liftIO (enter server c Handling)
  response <- answered context request
  -- From here on the client has its time to take the response.
  draining <- liftIO (enter server c Sending >> isDraining server)
  let keep = isPersistent request && not draining && skippable
  case response of
    -- What happens almost always: one request has come, its response is at hand.
    Response {responseRendered = Just bytes}
      | keep,
        Get <- requestMethod request,
        Output [] _ <- output,
        Http11 <- requestVersion request,
        NoBody <- requestFraming request,
        Nothing <- serverAccessLog settings,
        Input buffer from to <- input,
        from == to -> do
          n <- send (connectionSocket c) bytes
          unless (n == B.length bytes) (sendPieces context c [B.drop n bytes])
          awaitRequest context c (Input buffer 0 0)
    _ -> do
      let persistence
            | not keep = Closing
            | requestVersion request == Http10 = PersistentSaid
            | otherwise = Persistent
      output' <- emit context c request persistence response output >>= bounded
      if not keep
        then flush context c output' >> linger context c input
        else case requestFraming request of
          NoBody -> requests context c input 0 output'
          framing -> do
            flush context c output'
            liftIO (enter server c ReceivingBody)
            skipBody context c (serverSkipBody settings) (Body.bodyDecoder (serverLimits settings) framing) input
  where
    server = contextServer context
    settings = serverSettings server
    -- What many pipelined requests are answered with must not gather in memory.
    bounded waiting@(Output _ size)
      | size > mostGathered = noOutput <$ flush context c waiting
      | otherwise = pure waiting
    -- A client that waits for 100 may send its body after the response, or not:
    -- nobody can tell where the next request begins.
    skippable = case requestFraming request of
      NoBody -> True
      FixedBody n -> n <= serverSkipBody settings && requestExpectation request == NoExpectation
      ChunkedBody -> requestExpectation request == NoExpectation

-- | The handler's response, or one that says it has failed.
answered :: Context -> Request -> Thread Response
answered context request
  | requestExpectation request == ExpectUnknown = pure (errorResponse expectationFailed417 "")
  | otherwise =
      serverHandler (contextServer context) request `catch` \e -> do
        liftIO (contextReport context ("a handler failed: " <> displayException (e :: SomeException)))
        pure (errorResponse internalServerError500 "")

-- | Read a request's body and throw it away, at most so much.
skipBody :: Context -> Connection -> Int64 -> Body.Decoder -> Input -> Thread ()
skipBody context c budget decoder input = case Body.skip decoder given of
  Body.SkipEnd rest -> requests context c (discard (B.length given - B.length rest) input) 0 noOutput
  Body.SkipMore decoder'
    | left < 0 -> linger context c used
    | otherwise -> do
        more <- receiveMore context c used
        liftIO (enter (contextServer context) c ReceivingBody)
        for_ more (skipBody context c left decoder')
  Body.SkipBroken fault -> refuse context c used (faultStatus fault) (faultText fault)
  where
    given = unread input
    used = discard (B.length given) input
    left = budget - fromIntegral (B.length given)

-- | Add a response to the output, or send it where it is not in memory.
emit :: Context -> Connection -> Request -> Persistence -> Response -> Output -> Thread Output
emit context c request persistence response output
  | Persistent <- persistence,
    Just bytes <- responseRendered response,
    requestMethod request /= Head =
      output' [bytes] <$ logged
  | otherwise = do
      tick <- liftIO (readClock (serverClock server))
      case renderResponseHead (serverName settings) (tickDate tick) persistence response of
        Left bad -> do
          liftIO (contextReport context ("a handler made a field that cannot be sent: " <> show bad))
          case responseBody response of
            FileBody _ _ _ releaseFile -> releaseFile
            _ -> pure ()
          emit context c request persistence (errorResponse internalServerError500 "") output
        Right h -> case responseBody response of
          FileBody file parts end releaseFile -> (noOutput <$ sendFileBody h file parts end) `finally` releaseFile
          Bytes pieces
            | not bare ->
                output' (h : pieces) <$ logged
          _ -> output' [h] <$ logged
  where
    server = contextServer context
    settings = serverSettings server
    Output waiting size = output
    bare = requestMethod request == Head || hasNoBody (responseStatus response)
    output' pieces = Output (reverse pieces <> waiting) (size + sum (map B.length pieces))
    logged = for_ (serverAccessLog settings) $ \logEntry -> liftIO $ do
      tick <- readClock (serverClock server)
      logEntry (Entry (connectionPeer c) (tickSecond tick) (Just request) (responseStatus response) (bodyLength (responseBody response)))
    sendFileBody h file parts end = do
      let headOnly = bare || bodyLength (responseBody response) == 0
      flushAlso context c output [h | headOnly]
      unless headOnly $ do
        let go before [] = sendPieces context c [before, end]
            go before (FilePart preamble offset count : rest) = do
              sendPieces context c [before, preamble]
              sendPart file offset count
              go B.empty rest
        go h parts
      logged
    -- In turns, so that progress moves the deadline. A file that has become shorter
    -- cannot be made good: what was promised is missing, and only the end of the
    -- connection can say so.
    sendPart file offset count = unless (count <= 0) $ do
      liftIO (enter server c Sending)
      n <- sendFile (connectionSocket c) file offset (fromIntegral (min count (512 * 1024)))
      when (n == 0) $ do
        liftIO (contextReport context "a file became shorter while it was sent; the connection was cut off")
        throwM (userError "file became shorter")
      sendPart file (offset + fromIntegral n) (count - fromIntegral n)

-- | Send what waits.
flush :: Context -> Connection -> Output -> Thread ()
flush context c output = flushAlso context c output []

flushAlso :: Context -> Connection -> Output -> [ByteString] -> Thread ()
flushAlso context c (Output waiting _) more = case (waiting, more) of
  ([], []) -> pure ()
  ([bytes], []) -> do
    -- The usual case: one response, one system call. It needs its deadline all the
    -- same: the buffers of a client that reads nothing may be full already.
    liftIO (enter (contextServer context) c Sending)
    n <- send (connectionSocket c) bytes
    unless (n == B.length bytes) (sendPieces context c [B.drop n bytes])
  _ -> sendPieces context c (reverse waiting <> more)

-- | Send all pieces; whenever the client takes some of it, its time begins anew.
sendPieces :: Context -> Connection -> [ByteString] -> Thread ()
sendPieces context c = go . filter (not . B.null)
  where
    go [] = pure ()
    go pieces = do
      liftIO (enter (contextServer context) c Sending)
      n <- sendVector (connectionSocket c) pieces
      go (dropped n pieces)
    dropped _ [] = []
    dropped n (p : ps)
      | n >= B.length p = dropped (n - B.length p) ps
      | otherwise = B.drop n p : ps

-- | Answer with an error and end the connection.
refuse :: Context -> Connection -> Input -> Status -> ByteString -> Thread ()
refuse context c input status detail = do
  sendError context c status detail
  linger context c input

sendError :: Context -> Connection -> Status -> ByteString -> Thread ()
sendError context c status detail = do
  tick <- liftIO (readClock (serverClock server))
  let response = errorResponse status detail
      body = case responseBody response of Bytes pieces -> pieces; _ -> []
  for_ (renderResponseHead (serverName settings) (tickDate tick) Closing response) $ \h ->
    sendPieces context c (h : body)
  for_ (serverAccessLog settings) $ \logEntry ->
    liftIO (logEntry (Entry (connectionPeer c) (tickSecond tick) Nothing status (bodyLength (responseBody response))))
  where
    server = contextServer context
    settings = serverSettings server

-- | Close without losing the response: end our direction, and throw away what the
-- client still sends, for a moment. Closing with unread input makes the system send
-- a reset, which can overtake the response.
linger :: Context -> Connection -> Input -> Thread ()
linger context c input = do
  shutdown (connectionSocket c) ShutdownSend
  liftIO (enter (contextServer context) c Lingering)
  drainInput (discard (B.length (unread input)) input)
  where
    -- Bounded by the deadline of the phase, which nothing moves.
    drainInput now' = do
      more <- receiveMore context c now'
      expired <- liftIO (expiredIn c)
      unless expired . for_ more $ \input' -> drainInput (discard (B.length (unread input')) input')
