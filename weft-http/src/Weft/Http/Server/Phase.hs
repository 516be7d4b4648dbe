{-# OPTIONS_HADDOCK not-home #-}

-- | The phase of a connection, and its deadline: one store, without a timer (Note [Deadlines]).
module Weft.Http.Server.Phase
  ( -- * By the connection's thread
    firstPhase,
    enter,
    enterWithin,
    enterHead,
    isIdle,
    stayIdle,
    allowances,
    graceOf,
    revive,
    isNew,
    isAtRest,
    expiredIn,
    expiredBefore,
    currentPhase,
    withdraw,
    lieDown,
    retire,
    servedBy,

    -- * By others
    endPhase,
    expireIdle,
    releaseIdle,
    interrupt,
    shutdownQuietly,
  )
where

import Control.Exception (toException)
import Control.Monad (unless, void, when)
import Data.Bits (complement, (.&.))
import Data.IORef
import Data.Int (Int64)
import Data.Primitive.PrimArray
import Data.Primitive.PrimVar
import Weft
import Weft.Http.Server.State
import Weft.Internal.Core.Cancel (condemnOnce)
import Weft.Internal.Core.Trace (Cancellation (..))
import Weft.Mask (uninterruptibleMask_)
import Weft.Socket
import Weft.Time

-- Note [Deadlines]
-- ~~~~~~~~~~~~~~~~
-- A connection is in a phase, with a deadline. The thread of the connection writes both when it enters
-- a phase; the ticker reads them once a second. When the deadline has passed the ticker swaps the phase
-- for `Expired` and shuts the socket down, so that the system call in which the thread waits ends: only
-- receiving while a request is awaited (the thread can still send a 408, or answer a request that has
-- come), both directions while a response is sent. The thread then finds `Expired` and closes.
--
-- A handler is not waiting on the socket. When its time is up, or its client has reset the connection,
-- the phase becomes `Cut` and the thread is condemned, with a reference that says whether that still
-- applies. The thread drops it when it enters its next phase: then it has answered.
--
-- A connection that has been idle for a while is asked to rest (`Resting`): its receive ends, and it
-- waits without a buffer. If the receive has succeeded in that moment, the next that the thread does is
-- to enter a phase: it has just been dispatched, and has the fuel for that, so the interruption cannot
-- come between. One with a layer is not asked: of several receives in one, the first would be lost.
--
-- A request that is answered with what is at hand is answered in the phase 'Idle', and the deadline
-- moves: one store. The ticker may have read the old deadline, which has just passed, and end the phase
-- after that: then the connection ends after its response, as if the deadline had passed after it. A
-- drain finds it idle, too: the response goes out, because only receiving is shut down.
--
-- The swap is a compare-and-swap against the word that was read, which counts the phases entered: a
-- deadline can only end its own phase. A thread that enters a new phase before the swap wins.

phaseOf :: Int -> Phase
phaseOf word = toEnum (word .&. 15)

-- | Is this the phase of a word? Two numbers are compared, and no phase is made.
isIn :: Phase -> Int -> Bool
isIn phase word = word .&. 15 == fromEnum phase

withPhase :: Int -> Phase -> Int
withPhase word phase = (word .&. complement 15) + fromEnum phase

-- | Replace the word that was read, if it is still there: was it?
swapped :: Member -> Int -> Int -> IO Bool
swapped m word new = (== word) <$> casInt (phaseWord m) word new

-- | Of a new connection its first head is due. One that another server has served before is between two requests.
firstPhase :: Server -> Bool -> IO Pulse
firstPhase server before = do
  let (entered, phase) = if before then (32, Idle) else (16, ReceivingHead)
  deadline <- deadlineOf server phase
  newPulse (entered + fromEnum phase) deadline (maybe 0 graceOf (serverResponseRate (serverSettings server)))

-- | When a phase that begins now must have ended.
deadlineOf :: Server -> Phase -> IO Int64
deadlineOf server phase = do
  since' <- readPrimVar (serverSince server)
  let allowed = indexPrimArray (serverAllowed server) (fromEnum phase)
  pure (if allowed == maxBound then maxBound else since' + allowed)

-- | Enter a phase. A connection that has expired stays so ('expiredIn'), unless a whole request has
-- come in that moment, which is answered. An interruption on its way does not apply any more.
enter :: Server -> Connection -> Phase -> IO ()
enter !server !c !phase = entering server c phase (deadlineOf server phase) (enter server c phase)
-- A function of its own: inlined, it would make many parts of the session several times as large.
{-# NOINLINE enter #-}

-- | Enter the first phase, or the second, of this length in nanoseconds, if it ends sooner. Not 'Handling'.
enterWithin :: Server -> Connection -> Phase -> Phase -> Int64 -> IO ()
enterWithin server c phase sooner time = do
  deadline <- deadlineOf server phase
  since' <- readPrimVar (serverSince server)
  -- A tick as in 'allowances'.
  let limit = since' + max 0 time + 1_000_000_000
      again = enterWithin server c phase sooner time
  if limit < deadline then entering server c sooner (pure limit) again else entering server c phase (pure deadline) again

-- | Enter a phase with this deadline. The last action does that again.
entering :: Server -> Connection -> Phase -> IO Int64 -> IO () -> IO ()
entering server c phase deadline again = do
  word <- readPrimVar (phaseWord m)
  if isIn Expired word
    then when (phase == Handling) (revive server c phase)
    else do
      when (isIn Cut word || isIn Resting word) (withdraw m)
      -- In any case first the deadline, then the phase it belongs to.
      deadline >>= writeDeadline m
      -- Fails if the ticker has ended the old phase meanwhile.
      did <- swapped m word (withPhase (word + 16) phase)
      unless did again
  where
    m = connectionMember c
{-# INLINE entering #-}

-- | Is it between two requests, and neither ended nor asked to rest?
isIdle :: Connection -> IO Bool
isIdle c = isIn Idle <$> readPrimVar (phaseWord (connectionMember c))

-- | 'enter' for 'Idle': where the connection has stayed idle, only its deadline moves.
stayIdle :: Server -> Connection -> IO ()
stayIdle server c = do
  idle <- isIdle c
  if idle then deadlineOf server Idle >>= writeDeadline (connectionMember c) else enter server c Idle

-- | How long each phase may last from the current tick on.
allowances :: Timeouts -> PrimArray Int64
allowances limits = primArrayFromList (map (allowed . limit) [minBound .. maxBound])
  where
    limit = \case
      Handling -> timeoutHandler limits
      Idle -> Just (timeoutIdle limits)
      Dormant -> Just (timeoutIdle limits)
      ReceivingHead -> Just (timeoutHead limits)
      ReceivingBody -> Just (timeoutBody limits)
      Sending -> Just (timeoutWrite limits)
      Lingering -> Just (seconds 2)
      _ -> Nothing
    -- The tick may be almost a second old, and a limit must not be cut short.
    allowed = maybe maxBound (\d -> durationNanoseconds (d <> seconds 1))

-- | In nanoseconds; 30 years at most, so that sums with the clock do not overflow.
graceOf :: MinimumRate -> Int64
graceOf = min 1_000_000_000_000_000_000 . durationNanoseconds . rateGrace

-- | Some of a head is there. What trickles in does not begin the phase, and its deadline, anew.
enterHead :: Server -> Connection -> IO ()
enterHead server c = do
  word <- readPrimVar (phaseWord m)
  if isIn ReceivingHead word
    then -- The first head has its time from the start, but the connection is not new any more.
      when (isNewWord word) (void (swapped m word (word + 16)))
    else enter server c ReceivingHead
  where
    m = connectionMember c

-- | Enter a phase even if the connection has expired, to say so to the client, with a deadline.
revive :: Server -> Connection -> Phase -> IO ()
revive server c phase = do
  word <- readPrimVar (phaseWord m)
  -- The ticker leaves an expired connection alone, so no other thread writes here.
  when (isIn Expired word) (writePrimVar (phaseWord m) (withPhase (word + 16) Handling) >> noteRevived m)
  enter server c phase
  where
    m = connectionMember c

isNew :: Connection -> IO Bool
isNew c = isNewWord <$> readPrimVar (phaseWord (connectionMember c))

isNewWord :: Int -> Bool
isNewWord = (< 32)

-- | Is it between two requests, or before the first, with no byte of one?
isAtRest :: Member -> IO Bool
isAtRest m = restsIn <$> readPrimVar (phaseWord m)

restsIn :: Int -> Bool
restsIn word = isIn Idle word || isIn Dormant word || isNewWord word && isIn ReceivingHead word

expiredIn :: Connection -> IO Bool
expiredIn c = isIn Expired <$> readPrimVar (phaseWord (connectionMember c))

-- | Has a deadline cut it off, now or before it was revived? The ticker ends the phase, then shuts the
-- socket down: what comes between is received, and the connection revived.
expiredBefore :: Connection -> IO Bool
expiredBefore c = (||) <$> expiredIn c <*> wasRevived (connectionMember c)

servedBy :: Member -> ThreadId -> IO ()
servedBy m thread = writeIORef (memberService m) (Served thread [])

-- | End a phase that is over, if the connection is in it yet, note the limit, and shut the socket down: did
-- it end? Nothing comes between, since nobody looks at an expired connection again; and a connection
-- that goes on meanwhile is not shut down.
endPhase :: Member -> Int -> Int64 -> (Expiry -> IO ()) -> Thread Bool
endPhase m word deadline note = uninterruptibleMask_ $ do
  -- Read again: the deadline must be of the phase that was read.
  same <- liftIO ((== deadline) <$> readDeadline m)
  case endOf (phaseOf word) of
    Just (expiry, how) | same -> do
      did <- liftIO (if isIn Handling word then interrupt m word Cut HandlerTooSlow else swapped m word (withPhase word Expired))
      did <$ when did (liftIO (note expiry) >> mapM_ (shutdownQuietly m) how)
    _ -> pure False

-- | The limit that ends a phase, and how the socket is shut down then.
endOf :: Phase -> Maybe (Expiry, Maybe ShutdownHow)
endOf = \case
  -- A request may be on its way to the thread; then it is answered.
  Idle -> Just (ExpiredIdle, Just ShutdownReceive)
  Dormant -> Just (ExpiredIdle, Just ShutdownReceive)
  ReceivingHead -> Just (ExpiredHead, Just ShutdownReceive)
  ReceivingBody -> Just (ExpiredBody, Just ShutdownReceive)
  ReceivingAtPace -> Just (ExpiredBodyRate, Just ShutdownReceive)
  Handling -> Just (ExpiredHandler, Nothing)
  Sending -> Just (ExpiredWrite, Just ShutdownBoth)
  SendingAtPace -> Just (ExpiredWriteRate, Just ShutdownBoth)
  Lingering -> Just (ExpiredWrite, Just ShutdownBoth)
  _ -> Nothing

-- | Interrupt the thread of a connection, if it is in the phase that was read yet: was it?
interrupt :: Member -> Int -> Phase -> Reason -> IO Bool
interrupt m word phase reason =
  readIORef (memberService m) >>= \case
    Unserved -> pure False
    Served thread _ -> do
      valid <- newIORef True
      -- A thread that finds the new phase finds this: added, since two may interrupt and one will have.
      _ <- changeSent m (valid :)
      did <- swapped m word (withPhase word phase)
      if did
        then condemnOnce thread (Cancellation (toException (Interruption reason valid)) (Just valid))
        else void (changeSent m (filter (/= valid)))
      pure did

-- | The interruptions that were sent to this thread do not apply any more.
withdraw :: Member -> IO ()
withdraw m = changeSent m (const []) >>= mapM_ (`writeIORef` False)

-- | Change the flags of the interruptions that were sent; what they were.
changeSent :: Member -> ([IORef Bool] -> [IORef Bool]) -> IO [IORef Bool]
changeSent m by = atomicModifyIORef' (memberService m) $ \case
  Served thread sent -> (Served thread (by sent), sent)
  Unserved -> (Unserved, [])

-- | An interrupted receive has ended: from now on the connection is dormant, with its deadline.
lieDown :: Member -> IO ()
lieDown m = do
  withdraw m
  word <- readPrimVar (phaseWord m)
  -- No other thread changes that phase; but the caller looks next at the stage, a drain at the phase.
  when (isIn Resting word) (void (swapped m word (withPhase word Dormant)))

-- | The connection has ended: no thread ends or interrupts it from now on.
retire :: Member -> IO ()
retire m = do
  word <- readPrimVar (phaseWord m)
  did <- swapped m word (withPhase (word + 16) Expired)
  if did then withdraw m else retire m

expireIdle :: Member -> Thread ()
expireIdle m = do
  word <- liftIO (readPrimVar (phaseWord m))
  when (phaseOf word `elem` [Idle, Dormant]) $ do
    did <- liftIO (swapped m word (withPhase word Expired))
    when did (shutdownQuietly m ShutdownReceive)

-- | Interrupt a connection that is at rest, so that its thread looks what becomes of it.
releaseIdle :: Member -> Thread ()
releaseIdle m = liftIO $ do
  word <- readPrimVar (phaseWord m)
  when (restsIn word) (void (interrupt m word Resting BufferUnused))

currentPhase :: Member -> IO (Phase, Int, Int64)
currentPhase m = do
  word <- readPrimVar (phaseWord m)
  (phaseOf word,word,) <$> readDeadline m

shutdownQuietly :: Member -> ShutdownHow -> Thread ()
shutdownQuietly m how = void (try @_ @IOError (shutdown (memberSocket m) how))
