-- |
-- Description : Receiving the body of a request
-- Stability   : not home
--
-- A handler receives the body of its request piece by piece, and what it leaves is
-- skipped afterwards so that the next request can be found. What came together with the
-- head is in the connection's buffer, and is copied when it is handed out; the rest is
-- received into memory of its own, which nobody writes to again.
module Weft.Http.Server.Incoming
  ( Incoming,
    openBody,
    requestBodyOf,
    isSkippable,
    beginAnswer,
    receivedSoFar,
    skipRest,
    Rest (..),
  )
where

import Control.Exception (IOException)
import Control.Monad (when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.IORef
import Data.Int (Int64)
import Data.Maybe (fromMaybe)
import Weft
import Weft.Http.Body
import Weft.Http.Request
import Weft.Http.Response (interimContinue)
import Weft.Http.Server.Input
import Weft.Http.Server.Phase
import Weft.Http.Server.State
import Weft.Http.Server.Types
import Weft.Http.Server.Wire

-- | A body that is on its way.
data Incoming
  = -- | There is none; the input after the head.
    Nobody' !Input
  | Incoming !(IORef State) !Input

data State = State
  { stateDecoder :: !Decoder,
    -- | Received and not yet decoded.
    statePending :: !ByteString,
    -- | Whether that is in the connection's buffer, at the end of its input.
    stateInBuffer :: !Bool,
    -- | Octets handed out.
    stateCount :: !Int64,
    -- | Whether the client waits for 100.
    stateExpected :: !Bool,
    -- | Whether it was sent a head already, behind which there is no place for a 100.
    stateAnswered :: !Bool,
    -- | The trailer fields, once the body has ended.
    stateEnded :: !(Maybe [Field])
  }

-- | The body after this head, of which the input may hold a part.
openBody :: Context -> RequestHead -> Input -> IO Incoming
openBody context h input = case headFraming h of
  NoBody -> pure (Nobody' input)
  framing -> do
    let decoder = bodyDecoder (serverLimits (serverSettings (contextServer context))) framing
        expected = headExpectation h == ExpectContinue && B.null (unread input)
    (`Incoming` input) <$> newIORef (State decoder (unread input) True 0 expected False Nothing)

-- | For the handler.
requestBodyOf :: Context -> Connection -> Incoming -> RequestBody
requestBodyOf context c = \case
  Nobody' _ -> noBody
  Incoming ref _ -> RequestBody (next context c ref) (liftIO (fromMaybe [] . stateEnded <$> readIORef ref))

-- | The next piece.
next :: Context -> Connection -> IORef State -> Thread ByteString
next context c ref = do
  state <- liftIO (readIORef ref)
  case stateEnded state of
    Just _ -> pure B.empty
    Nothing -> case decode (stateDecoder state) (statePending state) of
      Piece here rest decoder -> do
        let count = stateCount state + fromIntegral (B.length here)
        liftIO (writeIORef ref state {stateDecoder = decoder, statePending = rest, stateCount = count})
        when (count > serverMaxBody settings) (throwM BodyTooLarge)
        -- Now, and not when somebody looks at it: the buffer is used again.
        pure $! if stateInBuffer state then B.copy here else here
      End fields rest ->
        -- These, too, are read out of the buffer while it is there.
        foldr seq (pure ()) fields >> B.empty <$ liftIO (writeIORef ref state {stateDecoder = bodyDecoder (serverLimits settings) NoBody, statePending = rest, stateEnded = Just fields})
      Broken fault -> throwM (BodyMalformed fault)
      More decoder -> do
        phase <- liftIO ((\(phase, _, _) -> if phase == Streaming then Streaming else Handling) <$> currentPhase (connectionMember c))
        when (stateExpected state && not (stateAnswered state)) (sendPieces context c [interimContinue] `catch` cutOff)
        liftIO (enter server c ReceivingBody)
        bytes <- receivePiece c (wanted decoder) `catch` cutOff
        when (B.null bytes) $ do
          late <- liftIO (expiredIn c)
          -- What the handler does about it has its own time.
          when late (liftIO (revive server c phase))
          throwM (if late then BodyTimedOut else BodyCutOff)
        liftIO $ do
          enter server c phase
          writeIORef ref state {stateDecoder = decoder, statePending = bytes, stateInBuffer = False, stateExpected = False}
        next context c ref
  where
    server = contextServer context
    settings = serverSettings server
    cutOff :: IOException -> Thread a
    cutOff _ = throwM BodyCutOff

-- | How much to receive at a time. What follows a body of known length is not touched.
wanted :: Decoder -> Int
wanted = maybe 16_384 (fromIntegral . max 1 . min 65_536) . remaining

-- | Is it worth while to receive what the handler has left, so that the connection can go
-- on? A client that waits for 100 may send its body after the response, or not: nobody can
-- tell where its next request begins.
isSkippable :: Context -> Incoming -> IO Bool
isSkippable context = \case
  Nobody' _ -> pure True
  Incoming ref _ -> do
    state <- readIORef ref
    pure $ case stateEnded state of
      Just _ -> True
      Nothing ->
        not (stateExpected state)
          && maybe True (<= serverSkipBody (serverSettings (contextServer context))) (remaining (stateDecoder state))

-- | The head of the response is about to be sent.
beginAnswer :: Incoming -> IO ()
beginAnswer = \case
  Nobody' _ -> pure ()
  Incoming ref _ -> modifyIORef' ref (\state -> state {stateAnswered = True})

-- | Octets that were handed out.
receivedSoFar :: Incoming -> IO Int64
receivedSoFar = \case
  Nobody' _ -> pure 0
  Incoming ref _ -> stateCount <$> readIORef ref

-- | Where a body has ended.
data Rest
  = -- | The input after it.
    GoesOn !Input
  | -- | Too far, or nobody knows. Its request was answered: there is nothing more to say.
    TooFar

-- | Receive and throw away what is left of a body.
skipRest :: Context -> Connection -> Incoming -> Thread Rest
skipRest context c = \case
  Nobody' input -> pure (GoesOn input)
  Incoming ref input -> do
    state <- liftIO (readIORef ref)
    case stateEnded state of
      Just _ -> GoesOn <$> liftIO (after state (statePending state) input)
      Nothing
        | stateExpected state -> pure TooFar
        | otherwise -> go budget (stateDecoder state) (statePending state) (stateInBuffer state) input
  where
    server = contextServer context
    budget = serverSkipBody (serverSettings server)
    after state rest input
      | stateInBuffer state = pure (suffix rest input)
      | otherwise = inputOf rest
    suffix rest input = discard (B.length (unread input) - B.length rest) input
    go :: Int64 -> Decoder -> ByteString -> Bool -> Input -> Thread Rest
    go left decoder pending inBuffer input = case skip decoder pending of
      SkipEnd rest -> GoesOn <$> if inBuffer then pure (suffix rest input) else liftIO (inputOf rest)
      SkipBroken _ -> pure TooFar
      SkipMore decoder'
        | left' < 0 -> pure TooFar
        | otherwise -> do
            liftIO (enter server c ReceivingBody)
            bytes <- receivePiece c (wanted decoder')
            if B.null bytes then pure TooFar else go left' decoder' bytes False input
      where
        left' = left - fromIntegral (B.length pending)
