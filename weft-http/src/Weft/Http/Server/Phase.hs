-- |
-- Description : What a connection is doing, and for how long it may
-- Stability   : not home
--
-- Setting a deadline is one store to memory that belongs to the connection: no
-- timer is set or cancelled for a request (Note [Deadlines]).
module Weft.Http.Server.Phase
  ( -- * By the connection's thread
    enter,
    enterHead,
    allowances,
    revive,
    isNew,
    expiredIn,
    currentPhase,
    withdraw,
    lieDown,
    retire,
    servedBy,
    unlimited,

    -- * By others
    expire,
    expireIdle,
    interrupt,
    shutdownFor,
    shutdownQuietly,
  )
where

import Control.Exception (toException)
import Control.Monad (unless, void, when)
import Data.Bits (complement, (.&.))
import Data.Foldable (for_)
import Data.IORef
import Data.Int (Int64)
import Data.Primitive.PrimArray
import Data.Primitive.PrimVar
import Weft
import Weft.Http.Server.State
import Weft.Http.Server.Types
import Weft.Internal.Cancel (condemnOnce)
import Weft.Internal.Trace (Cancellation (..))
import Weft.Socket
import Weft.Time

-- Note [Deadlines]
-- ~~~~~~~~~~~~~~~~
-- A connection is in a phase, and its deadline belongs to the phase. The thread of
-- the connection writes both when it enters a phase; the ticker reads them once a
-- second. When the deadline has passed the ticker swaps the phase for `Expired` and
-- shuts the socket down, so that whatever system call the thread waits in ends:
-- receiving only while a request is awaited (the thread can still send a 408, or answer
-- the request if it has come meanwhile), both directions while a response is sent. The
-- thread then finds `Expired` and closes.
--
-- A handler is not waiting on the socket. When its time is up, or its client has reset the
-- connection, the phase becomes `Cut` and the thread is condemned, with a reference that
-- says whether that still applies. The thread drops it when it enters its next phase: a
-- handler that has answered in that moment has answered.
--
-- In the same way a connection that has been idle for a while is asked to rest (`Resting`):
-- its receive ends, and it waits without a buffer. If the receive has succeeded in that
-- moment, it returns, and the next that the thread does is to enter a phase: it has just been
-- dispatched, and has the fuel for that, so the interruption cannot come between. One with a layer is not asked: its receive
-- may consist of several, the first of which would be lost.
--
-- The swap is a compare-and-swap against the phase that was read, and a phase word
-- carries the count of phases entered: a deadline can only end the phase that it
-- was set for. A thread that enters a new phase between the ticker's look and its
-- swap wins.

phaseOf :: Int -> Phase
phaseOf word = toEnum (word .&. 15)

withPhase :: Int -> Phase -> Int
withPhase word phase = (word .&. complement 15) + fromEnum phase

-- | Enter a phase. A connection that has expired stays so: 'expiredIn' tells. Only where a
-- whole request has come in that moment is it revived, because that is answered yet. An
-- interruption that is on its way does not apply any more.
enter :: Server -> Connection -> Phase -> IO ()
enter server c phase = do
  word <- readPrimVar (connectionPhase c)
  let current = phaseOf word
  if current == Expired
    then when (phase == Handling) (revive server c phase)
    else do
      when (current == Cut || current == Resting) (withdraw c)
      since' <- readPrimVar (serverSince server)
      let allowed = indexPrimArray (serverAllowed server) (fromEnum phase)
      -- Later than the old deadline or earlier: in either case first the deadline,
      -- then the phase it belongs to.
      writePrimVar (connectionDeadline c) (if allowed == maxBound then maxBound else since' + allowed)
      -- Fails if the ticker has ended the old phase meanwhile.
      before <- casInt (connectionPhase c) word (withPhase (word + 16) phase)
      unless (before == word) (enter server c phase)
-- A function of its own: it is called from many places of the session, each of
-- which would be several times as large with it.
{-# OPAQUE enter #-}

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

-- | Some of a head is there and the rest is awaited. What trickles in does not begin
-- the phase, and its deadline, anew.
enterHead :: Server -> Connection -> IO ()
enterHead server c = do
  word <- readPrimVar (connectionPhase c)
  unless (phaseOf word == ReceivingHead) (enter server c ReceivingHead)

-- | Enter a phase even where the connection has expired, to say so to the client:
-- that, too, must have a deadline.
revive :: Server -> Connection -> Phase -> IO ()
revive server c phase = do
  word <- readPrimVar (connectionPhase c)
  -- The ticker leaves an expired connection alone, so nobody else writes here.
  when (phaseOf word == Expired) (writePrimVar (connectionPhase c) (withPhase (word + 16) Handling))
  enter server c phase

-- | Has no request come on it yet?
isNew :: Connection -> IO Bool
isNew c = (< 32) <$> readPrimVar (connectionPhase c)

-- | Has a deadline cut this connection off?
expiredIn :: Connection -> IO Bool
expiredIn c = (== Expired) . phaseOf <$> readPrimVar (connectionPhase c)

-- | From now on this phase may take as long as it likes. Whoever has read the old deadline
-- looks again before anything is ended.
unlimited :: Connection -> IO ()
unlimited c = writePrimVar (connectionDeadline c) maxBound

-- | Which thread serves a connection.
servedBy :: Connection -> ThreadId -> IO ()
servedBy c thread = writeIORef (connectionFate c) (Fate (Just thread) [])

-- | End a phase whose deadline has passed, if the connection is in it yet.
expire :: Connection -> Int -> Int64 -> IO (Maybe Expiry)
expire c word deadline = do
  -- Read again: the deadline must be of the phase that was read.
  deadline' <- readPrimVar (connectionDeadline c)
  case expiryOf (phaseOf word) of
    Just expiry | deadline' == deadline -> do
      did <-
        if phaseOf word == Handling
          then interrupt c word Cut HandlerTooSlow
          else (== word) <$> casInt (connectionPhase c) word (withPhase word Expired)
      pure (if did then Just expiry else Nothing)
    _ -> pure Nothing

-- | Which limit ends a phase.
expiryOf :: Phase -> Maybe Expiry
expiryOf = \case
  Idle -> Just ExpiredIdle
  Dormant -> Just ExpiredIdle
  ReceivingHead -> Just ExpiredHead
  ReceivingBody -> Just ExpiredBody
  Handling -> Just ExpiredHandler
  Sending -> Just ExpiredWrite
  Lingering -> Just ExpiredWrite
  Streaming -> Nothing
  Expired -> Nothing
  Cut -> Nothing
  Resting -> Nothing
  Finishing -> Nothing

-- | Which way to shut a connection down that has expired in this phase.
shutdownFor :: Phase -> Maybe ShutdownHow
shutdownFor = \case
  -- A request may be on its way to the thread; then it is answered.
  Idle -> Just ShutdownReceive
  Dormant -> Just ShutdownReceive
  ReceivingHead -> Just ShutdownReceive
  ReceivingBody -> Just ShutdownReceive
  Sending -> Just ShutdownBoth
  Lingering -> Just ShutdownBoth
  _ -> Nothing

-- | Interrupt the thread of a connection, if it is in the phase that was read yet; says
-- whether it was.
interrupt :: Connection -> Int -> Phase -> Reason -> IO Bool
interrupt c word phase reason =
  readIORef (connectionFate c) >>= \case
    Fate (Just thread) _ -> do
      valid <- newIORef True
      -- Whoever finds the new phase finds this. It is added and not put in the place of
      -- what there is: two may interrupt at a time, and one of them will have.
      atomicModifyIORef' (connectionFate c) (\(Fate t valids) -> (Fate t (valid : valids), ()))
      before <- casInt (connectionPhase c) word (withPhase word phase)
      if before == word
        then condemnOnce thread (Cancellation (toException (Interruption reason valid)) (Just valid))
        else atomicModifyIORef' (connectionFate c) (\(Fate t valids) -> (Fate t (filter (/= valid) valids), ()))
      pure (before == word)
    _ -> pure False

-- | The interruptions that were sent to this thread do not apply any more.
withdraw :: Connection -> IO ()
withdraw c = do
  valids <- atomicModifyIORef' (connectionFate c) (\(Fate thread valids) -> (Fate thread [], valids))
  for_ valids (`writeIORef` False)

-- | An interrupted receive has ended: from now on the connection is dormant, and its
-- deadline is what it was.
lieDown :: Connection -> IO ()
lieDown c = do
  withdraw c
  word <- readPrimVar (connectionPhase c)
  -- Nobody else changes that phase; but who lies down looks then if the server drains, and
  -- the other way round, so this must have happened when it looks.
  when (phaseOf word == Resting) (void (casInt (connectionPhase c) word (withPhase word Dormant)))

-- | The connection has ended: nobody ends or interrupts it from now on.
retire :: Connection -> IO ()
retire c = do
  word <- readPrimVar (connectionPhase c)
  before <- casInt (connectionPhase c) word (withPhase (word + 16) Expired)
  if before == word then withdraw c else retire c

-- | End a connection that is between two requests.
expireIdle :: Connection -> Thread ()
expireIdle c = do
  word <- liftIO (readPrimVar (connectionPhase c))
  when (phaseOf word `elem` [Idle, Dormant]) $ do
    before <- liftIO (casInt (connectionPhase c) word (withPhase word Expired))
    for_ (shutdownFor Idle) (when (before == word) . shutdownQuietly c)

-- | As the ticker reads it.
currentPhase :: Connection -> IO (Phase, Int, Int64)
currentPhase c = do
  word <- readPrimVar (connectionPhase c)
  (phaseOf word,word,) <$> readPrimVar (connectionDeadline c)

-- | Shut the socket down, if it is not closed.
shutdownQuietly :: Connection -> ShutdownHow -> Thread ()
shutdownQuietly c how = void (try @_ @IOError (shutdown (connectionSocket c) how))
