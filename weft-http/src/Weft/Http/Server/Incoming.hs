{-# OPTIONS_HADDOCK not-home #-}

-- | Receives the body of a request piece by piece, and skips what the handler leaves. What came with
-- the head lies after it in the connection's buffer; the rest is received into memory of its own.
-- Neither is written again (Note [Bytes are received once] in "Weft.Http.Server.Input").
--
-- A thread that outlives its handler, and asks for more, would take the bytes of the next request. So a
-- thread that receives says so in the exchange, and the session ends the body there when it goes on.
module Weft.Http.Server.Incoming
  ( Incoming (..),
    openBody,
    requestBodyOf,
    isSkippable,
    receivedSoFar,
    skipRest,
  )
where

import Control.Exception (IOException, evaluate)
import Control.Monad (when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.IORef
import Data.Int (Int64)
import Data.Maybe (fromMaybe)
import Weft
import Weft.Http.Body
import Weft.Http.Internal.Types (Limits (..))
import Weft.Http.Response (interimContinue)
import Weft.Http.Server.Exchange
import Weft.Http.Server.Input
import Weft.Http.Server.Pace
import Weft.Http.Server.Phase
import Weft.Http.Server.State
import Weft.Http.Server.Wire
import Weft.Internal.Core.Buffer (trimmed)

data Incoming
  = -- | There is none; the input after the head.
    WithoutBody !Input
  | Incoming !Exchange !(IORef State) !Input

-- | Written by the thread that receives, which 'beginReceiving' makes the only one.
data State = State
  { stateDecoder :: !Decoder,
    statePending :: !ByteString,
    -- | Whether that is in the connection's buffer, at the end of its input.
    stateInBuffer :: !Bool,
    stateCount :: !Int64,
    stateExpected :: !Bool,
    -- | The trailer fields, once the body has ended.
    stateEnded :: !(Maybe [Field]),
    -- | How much to ask the socket for, in octets.
    stateRoom :: !Int,
    -- | For how long the client may yet be waited for ("Weft.Http.Server.Pace").
    stateCredit :: !Int64
  }

-- | The body after this head, of which the input may hold a part.
openBody :: Context -> Connection -> Exchange -> RequestHead -> Input -> IO Incoming
openBody context c exchange h input = case headFraming h of
  NoBody -> pure (WithoutBody input)
  framing -> do
    let limits = serverLimits (serverSettings (contextServer context))
        -- For head and trailer together.
        left = case framing of
          ChunkedBody -> limits {limitFields = limitFields limits - length (headFields h)}
          _ -> limits
        expected = headExpectation h == ExpectContinue && B.null (unread input)
    state <- newIORef (State (bodyDecoder left framing) (unread input) True 0 expected Nothing usualRoom (startingCredit (contextServer context) c))
    pure (Incoming exchange state input)

requestBodyOf :: Context -> Connection -> Incoming -> RequestBody
requestBodyOf context c = \case
  WithoutBody _ -> EmptyBody
  Incoming exchange ref _ ->
    RequestBody
      (liftIO (beginReceiving exchange >> readIORef ref) >>= nextOf context c exchange ref)
      (liftIO (fromMaybe [] . stateEnded <$> readIORef ref))

-- | The next piece, for a thread that owns the receiving end and has read the state.
nextOf :: Context -> Connection -> Exchange -> IORef State -> State -> Thread ByteString
nextOf context c exchange ref state = case stateEnded state of
  Just _ -> B.empty <$ free state
  Nothing -> case gather (stateDecoder state) (statePending state) of
    End fields rest -> B.empty <$ free state {stateDecoder = bodyDecoder (serverLimits settings) NoBody, statePending = rest, stateEnded = Just fields}
    Broken fault -> free state >> throwM (BodyMalformed fault)
    More decoder -> do
      phase <- afterPiece <$> liftIO phaseNow
      told <- informed phase `onException` free state
      receivedMore phase told decoder `onException` free told >>= nextOf context c exchange ref
    Piece piece rest decoder -> do
      let count = stateCount state + fromIntegral (B.length piece)
      free state {stateDecoder = decoder, statePending = rest, stateCount = count}
      when (count > serverMaxBody settings) (throwM BodyTooLarge)
      -- It may lie in a large buffer.
      liftIO (trimmed piece >>= evaluate)
  where
    server = contextServer context
    settings = serverSettings server
    -- From here on another thread may receive.
    free state' = liftIO (writeIORef ref state' >> endReceiving exchange)
    -- A client is told once, also where the wait after that is interrupted and begins again.
    informed phase
      | stateExpected state =
          liftIO (beginInforming exchange) >>= \case
            Nothing -> pure state
            Just stage ->
              state {stateExpected = False} <$ informing stage `onException` back [Sending, SendingAtPace] phase
      | otherwise = pure state
    receivedMore phase before decoder = do
      after <- received context c before decoder `catch` cutOff `onException` back [ReceivingBody, ReceivingAtPace] phase
      when (B.null (statePending after)) $ do
        late <- liftIO (expiredBefore c)
        -- The handler has its own time to deal with it.
        when late (liftIO (revive server c phase))
        throwM (if late then BodyTimedOut else BodyCutOff)
      back [ReceivingBody, ReceivingAtPace, Expired] phase
      pure after {stateExpected = False}
    -- When that is interrupted the part of it that has gone out is unknown, and nothing follows it.
    informing stage = do
      (write context c [interimContinue] `catch` cutOff) `onException` liftIO (failContent exchange)
      liftIO (endInforming exchange stage)
    cutOff :: IOException -> Thread a
    cutOff _ = throwM BodyCutOff
    phaseNow = (\(phase, _, _) -> phase) <$> currentPhase (connectionMember c)
    -- The phase after the wait. The time limit of another thread that sends content begins anew.
    afterPiece = \case
      Streaming -> Streaming
      Finishing -> Finishing
      Sending -> Sending
      SendingAtPace -> Sending
      _ -> Handling
    -- Go back to that from one of these phases; not from another, because another thread has begun to
    -- send. Where the handler has given up waiting, it and not the client takes its time from now on.
    back phases phase = liftIO $ do
      current <- phaseNow
      when (current `elem` phases) (enter server c phase)

-- | Receive more for this decoder; nothing pending at the end of the stream.
received :: Context -> Connection -> State -> Decoder -> Thread State
received context c before decoder = do
  (bytes, credit) <- receiveAtPace (contextServer context) c (stateCredit before) (receivePiece c asked)
  pure before {stateDecoder = decoder, statePending = bytes, stateInBuffer = False, stateCredit = credit, stateRoom = roomAfter asked (B.length bytes)}
  where
    room = stateRoom before
    -- Bytes after a body of known length are not touched.
    asked = maybe (min 16_384 room) (fromIntegral . max 1 . min (fromIntegral room)) (remaining decoder)

-- | The room of the first receive, in octets.
usualRoom :: Int
usualRoom = 16_384

-- | The room for the next receive: a client that sends bytes singly must not cost a large buffer each.
roomAfter :: Int -> Int -> Int
roomAfter asked came
  | came >= asked = min 65_536 (2 * max usualRoom asked)
  | 4 * came <= asked = max 1_024 (asked `div` 2)
  | otherwise = asked

-- | Is it worth while to receive what the handler has left? A client that waits for 100 may send its
-- body after the response, or not: the server cannot tell where its next request begins.
isSkippable :: Context -> Incoming -> IO Bool
isSkippable context = \case
  WithoutBody _ -> pure True
  Incoming _ ref _ -> do
    state <- readIORef ref
    pure $ case stateEnded state of
      Just _ -> True
      Nothing ->
        not (stateExpected state)
          && maybe True (<= serverSkipBody (serverSettings (contextServer context))) (remaining (stateDecoder state))

receivedSoFar :: Incoming -> IO Int64
receivedSoFar = \case
  WithoutBody _ -> pure 0
  Incoming _ ref _ -> stateCount <$> readIORef ref

-- | Throw away the rest of a body: the input after it, unless that is too far or cannot be told.
skipRest :: Context -> Connection -> Incoming -> Thread (Maybe Input)
skipRest context c = \case
  WithoutBody input -> pure (Just input)
  Incoming exchange ref input -> do
    taken <- liftIO (stopReceiving exchange)
    state <- liftIO (readIORef ref)
    case stateEnded state of
      -- A thread that outlives the handler waits for the next bytes that come.
      _ | taken -> pure Nothing
      Just _ -> Just <$> liftIO (after state (statePending state) input)
      Nothing
        | stateExpected state -> pure Nothing
        | otherwise -> go (serverSkipBody (serverSettings (contextServer context))) input state
  where
    after state rest input
      | stateInBuffer state = pure (discard (B.length (unread input) - B.length rest) input)
      | otherwise = inputOf rest
    go :: Int64 -> Input -> State -> Thread (Maybe Input)
    go left input state = case skip (stateDecoder state) (statePending state) of
      End _ rest -> Just <$> liftIO (after state rest input)
      More decoder | left' >= 0 -> do
        more <- received context c state decoder
        if B.null (statePending more) then pure Nothing else go left' input more
      _ -> pure Nothing
      where
        left' = left - fromIntegral (B.length (statePending state))
