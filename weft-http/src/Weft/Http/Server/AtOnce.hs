-- Without full laziness: decision 120.
{-# OPTIONS_GHC -O2 -fno-full-laziness #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The steps of a session that wait for nothing, in plain 'IO', each in one effect of the thread.
module Weft.Http.Server.AtOnce
  ( Session (..),
    AtOnce (..),
    atOnce,
    sendQuickly,
    becomeIdle,
    idleAgain,
    afterHead,
    afterAll,
  )
where

import Control.Monad (join)
import Data.ByteString qualified as B
import Data.IORef
import Data.Maybe (isJust)
import Foreign.ForeignPtr.Unsafe (unsafeForeignPtrToPtr)
import Foreign.Ptr (minusPtr)
import Weft.Http.RequestHead
import Weft.Http.Server.Answering
import Weft.Http.Server.Heads
import Weft.Http.Server.Input
import Weft.Http.Server.Layout (Layout)
import Weft.Http.Server.Phase
import Weft.Http.Server.Registry
import Weft.Http.Server.State
import Weft.Http.Server.Whole
import Weft.Http.Server.Wire
import Weft.Internal.Core.Buffer (bufferFrom, unsafeSlice)
import Weft.Internal.Core.Standing (Arrival (..), Intake, bufferMemory, intakeBuffer, setIntakeOffset)

-- Note [In the first effect]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~
-- A request that has come alone, while the connection was idle, is answered in the first effect of its
-- thread if its response is at hand ('AtHand'). That waits for nothing, so it needs no phase and no
-- handler of exceptions (Note [Deadlines] in "Weft.Http.Server.Phase"). Nearly always its head has come
-- before, and what answered it then is kept with the head ("Weft.Http.Server.Heads"): it is run again,
-- and sent. Otherwise what is at hand is asked, and what it finds is kept if it has a small response
-- with its bytes, to a request that may be answered with them. So with a kept answer nothing of the
-- head is looked at. Everything else is left to the session.

-- | A session on a plain connection that waits in its intake: one record, with evaluated parts.
data Session = Session
  { sessionContext :: !Context,
    sessionConnection :: !Connection,
    sessionIntake :: !Intake
  }

-- | The remaining work for received bytes after the first effect.
data AtOnce
  = -- | They are a request, answered with this, the layout of its head, the input after it, and whether
    -- the connection can go on.
    Given !Request !Layout !Input !Bool !After !Response
  | -- | They are left to the session, to which the parser has said this.
    Unanswered !(Reading Answerer)
  | -- | They were not looked at.
    Unread

-- | Answer with what is at hand: Note [In the first effect]. 'Nothing': the connection is idle, and the
-- next request goes to the same memory. OPAQUE: a copy for each part of the server would be larger.
atOnce :: Session -> Arrival -> IO (Maybe AtOnce)
atOnce session@(Session context c intake) came@(Arrival from n) = do
  idle <- isIdle c
  draining <- isDraining server
  if not idle || draining || n == 0
    then pure (Just Unread)
    else
      findHead (serverHeads server) (unsafeSlice (intakeBuffer intake) from n) >>= \reading -> case reading of
        Known _ (AtHandBefore kept _) ->
          join (readIORef kept) >>= \case
            Nothing -> asking session came reading
            Just response -> repeated session came reading response
        _ -> asking session came reading
  where
    server = contextServer context
{-# OPAQUE atOnce #-}

-- | Send the response that a kept answer has given. Of its own, so that what it needs is not read before.
repeated :: Session -> Arrival -> Reading Answerer -> Response -> IO (Maybe AtOnce)
repeated session@(Session context c intake) came@(Arrival from _) reading response = case bytesAtHand response of
  Nothing -> giving session came reading response (sendQuickly context c (layoutOf reading) response)
  Just bytes -> do
    taken <- tryWrite context c bytes
    if taken < B.length bytes
      then giving session came reading response (\_ _ _ -> pure (Partly True (B.drop taken bytes)))
      else do
        ends <- idleAgain context c intake from
        if ends then giving session came reading response (\_ _ _ -> pure Stops) else pure Nothing
{-# OPAQUE repeated #-}

asking :: Session -> Arrival -> Reading Answerer -> IO (Maybe AtOnce)
asking (Session context c intake) came@(Arrival _ n) reading = case readingParsed reading of
  Parsed h used
    | used == n,
      isPlain (serverSettings (contextServer context)) h,
      AtHandFirst find <- contextShortcut context -> do
        let !request = Request h EmptyBody (connectionClient c)
        find request >>= \case
          Nothing -> pure unanswered
          Just again ->
            again >>= \case
              Nothing -> pure unanswered
              Just response -> do
                case (reading, atHand request (isPersistent h) response) of
                  -- It may hold its response, which the cache of files has given up.
                  (Known _ (AtHandBefore kept _), Just bytes) | B.length bytes <= 16_384 -> writeIORef kept again
                  _ -> pure ()
                let !input = afterAll intake came reading
                    !persistent = isPersistent h
                sent <- sendQuickly context c (layoutOf reading) response request input persistent
                pure (Just $! Given request (layoutOf reading) input persistent sent response)
  _ -> pure unanswered
  where
    unanswered = Just (Unanswered reading)
{-# OPAQUE asking #-}

-- | How a response is sent to a request, with the input after it; whether the connection can go on.
type Send = Request -> Input -> Bool -> IO After

-- | Send this response, in this way, to a request that is all that has come.
giving :: Session -> Arrival -> Reading Answerer -> Response -> Send -> IO (Maybe AtOnce)
giving (Session _ c intake) came reading response send = case readingParsed reading of
  Parsed h _ -> do
    let !request = Request h EmptyBody (connectionClient c)
        !input = afterAll intake came reading
        !persistent = isPersistent h
    sent <- send request input persistent
    pure (Just $! Given request (layoutOf reading) input persistent sent response)
  _ -> pure (Just Unread)
{-# OPAQUE giving #-}

-- | The input after a head that is all that has come.
afterAll :: Intake -> Arrival -> Reading k -> Input
afterAll intake (Arrival from n) reading = afterHead reading n (Input (bufferFrom from (intakeBuffer intake)) 0 n)

-- | Send a small response in the same effect, without a deadline, and step to the next request.
sendQuickly :: Context -> Connection -> Layout -> Response -> Send
sendQuickly context c layout response request input persistent = do
  draining <- isDraining (contextServer context)
  let possible = persistent && not draining
  case atHand request possible response of
    Just bytes -> sending True bytes
    Nothing ->
      wholeNow context layout request possible response >>= \case
        Whole goesOn bytes -> sending goesOn bytes
        NotWhole -> pure Slowly
  where
    sending goesOn bytes = do
      n <- tryWrite context c bytes
      if
        | n < B.length bytes -> pure (Partly goesOn (B.drop n bytes))
        | not goesOn -> pure (Proceeds False)
        | otherwise -> do
            ends <- becomeIdle context c input
            pure $! if ends then Stops else Waits
{-# OPAQUE sendQuickly #-}

-- | The connection is idle, and this input used up. Is its session to end (a drain, a handover)?
becomeIdle :: Context -> Connection -> Input -> IO Bool
becomeIdle context c input = do
  case input of
    -- The received bytes were given back. Of another buffer than its own the intake is not used again.
    Input buffer _ 0 | Just intake <- connectionIntake c -> setIntakeOffset intake (distance (intakeBuffer intake) buffer)
    _ -> pure ()
  goIdle context c
  where
    distance from to = unsafeForeignPtrToPtr (bufferMemory to) `minusPtr` unsafeForeignPtrToPtr (bufferMemory from)
{-# OPAQUE becomeIdle #-}

-- | 'becomeIdle' where what has come from this offset on was given back.
idleAgain :: Context -> Connection -> Intake -> Int -> IO Bool
idleAgain context c intake from = setIntakeOffset intake from >> goIdle context c

-- | 'becomeIdle' with an intake that is where it is to be.
goIdle :: Context -> Connection -> IO Bool
goIdle context c = do
  if isJust (connectionTransport c) then enter server c Dormant else stayIdle server c
  -- A drain sets the stage, then looks at the phases; this thread the other way: one sees the other.
  not <$> isKeeping server
  where
    server = contextServer context

-- | The input after a head of the given size, to which nothing refers if the head is a copy.
afterHead :: Reading k -> Int -> Input -> Input
afterHead reading = case reading of Known _ _ -> giveBack; Fresh _ -> discard
