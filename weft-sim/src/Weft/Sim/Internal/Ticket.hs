{-# OPTIONS_HADDOCK not-home #-}

-- | A system call of a simulated kernel, from the question to the answer. Every call is asked with
-- an 'Ask' and answered at once or by a 'Ticket', which its thread waits for. This module decides
-- when an answer that is known reaches the thread, and whether an answer or a cancellation wins.
--
-- See Note [The life of a ticket].
module Weft.Sim.Internal.Ticket
  ( -- * Calls
    Ask (..),
    Answering,
    askTcb,

    -- * Answering at once
    answer,
    answerNow,
    instantly,
    refuse,

    -- * Answering later
    Ticket,
    park,
    settle,
    settleAtOnce,
    isOpen,

    -- * All tickets
    Tickets,
    newTickets,
    openTickets,
    visitTickets,
    interruptAnonymous,

    -- * Failures
    failure,
    canceled,
  )
where

import Control.Exception (SomeException, toException)
import Control.Monad (void, when)
import Data.Foldable (foldlM)
import Data.IORef
import Foreign.C.Error (Errno (..), errnoToIOError)
import GHC.Exts (oneShot)
import Weft.Internal.Core.Cancel
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Slots (Slots)
import Weft.Internal.Data.Slots qualified as Slots
import Weft.Internal.Kernel (Host (..))
import Weft.Sim.Internal.World

-- Note [The life of a ticket]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~
--   Open     --settle-->   Settled   the result is decided: what it did to the world is done
--   Open     --cancel-->   Closed    the thread goes on with its cancellation; the withdrawal ran
--   Settled  --deliver-->  Closed    the thread goes on with the result
--
-- A settled ticket is delivered at once or by an event of its own (`lateCompletions`). A
-- cancellation that finds it settled does nothing: an operation that has succeeded is not lost, as of
-- an io_uring request whose completion is in the queue already. One that finds it open
-- takes effect at once or by an event (`lateCancellations`), and until then the operation
-- may still succeed. So all three orders of a completion and a cancellation occur.

data Ask = Ask
  { askWorld :: !World,
    askTickets :: !Tickets,
    askHost :: !Host,
    askMachine :: !Machine,
    askWait :: !Wait
  }

askTcb :: Ask -> Tcb
askTcb = waitTcb . askWait

-- | How a part of the kernel answers: given the call and the thread's continuation, the next node
-- of its trace.
type Answering a = Ask -> (a -> Trace) -> IO Trace

answerNow :: Reply a
answerNow _ k = \case
  Right a -> pure (k a)
  Left e -> pure (Throw e)
{-# INLINE answerNow #-}

type Reply a = Ask -> (a -> Trace) -> Either SomeException a -> IO Trace

-- | Carry out a call of this name that never waits.
instantly :: String -> IO (Either Errno a) -> Answering a
instantly what act ask k = act >>= answerNow ask k . either (Left . failure what Nothing) Right

refuse :: String -> Errno -> Answering a
refuse what e = instantly what (pure (Left e))

-- | The answer to a call that might have had to wait: at once or, as it is decided, by a
-- completion.
answer :: Why -> Reply a
answer why ask k result = do
  late <- isLate (askWorld ask)
  if late
    then park ask k $ \ticket -> pure () <$ settleLate ticket why result
    else answerNow ask k result
{-# OPAQUE answer #-}

isLate :: World -> IO Bool
isLate world
  | often <= 0 = pure False
  | otherwise = (> 0) <$> decide world (Unusual often)
  where
    often = lateCompletions (worldConditions world)

data Ticket a = Ticket
  { ticketAsk :: !Ask,
    ticketKey :: {-# UNPACK #-} !Slots.SlotKey,
    ticketResume :: a -> Trace,
    ticketState :: !(IORef State)
  }

data State
  = -- | What takes the ticket back from where it was left.
    Open (IO ())
  | Settled
  | Closed

newtype Tickets = Tickets (Slots OpenTicket)

data OpenTicket = OpenTicket !Ask !(IORef State)

newTickets :: IO Tickets
newTickets = Tickets <$> Slots.new

openTickets :: Tickets -> IO Int
openTickets (Tickets slots) = Slots.size slots

-- | The open tickets of one worker, in the order of their slots.
ticketsOf :: Tickets -> Int -> IO [(Slots.SlotKey, OpenTicket)]
ticketsOf (Tickets slots) worker = reverse <$> Slots.foldM (\found key t -> pure (if workerOf t == worker then (key, t) : found else found)) [] slots
  where
    workerOf (OpenTicket ask _) = homeWorker (hostHome (askHost ask))

visitTickets :: Tickets -> Int -> (Wait -> r -> IO r) -> r -> IO r
visitTickets tickets worker f start = ticketsOf tickets worker >>= foldlM (\r (_, OpenTicket ask _) -> f (askWait ask) r) start

-- | Interrupt the waits of the worker's threads without an identity
-- ('Weft.Kernel.instanceInterrupt').
interruptAnonymous :: Tickets -> Int -> IO ()
interruptAnonymous tickets worker = do
  open <- ticketsOf tickets worker
  sequence_ [abort ask state key | (key, OpenTicket ask state) <- open, endsWithRun (askTcb ask)]

-- | Park the thread. The action leaves the ticket where it will be found, or settles it, and
-- answers how to take it back when the wait is cancelled; neither may throw.
park :: Ask -> (a -> Trace) -> (Ticket a -> IO (IO ())) -> IO Trace
park ask k leave = do
  let Tickets slots = askTickets ask
  state <- newIORef (Open (pure ()))
  key <- Slots.insert slots (OpenTicket ask state)
  withdraw <- leave (Ticket ask key k state)
  let mayEnd = interruptible (askTcb ask) (abort ask state key)
  Parked
    <$ ( readIORef state >>= \case
           Open _ -> writeIORef state (Open withdraw) >> mayEnd
           Settled -> mayEnd
           Closed -> pure ()
       )

abort :: Ask -> IORef State -> Slots.SlotKey -> IO ()
abort ask state key =
  readIORef state >>= \case
    Open _ -> do
      late <- decide world (Unusual (lateCancellations (worldConditions world)))
      if late > 0 then soon world cancelIt else cancelIt
    _ -> pure ()
  where
    world = askWorld ask
    Tickets slots = askTickets ask
    home = hostHome (askHost ask)
    cancelIt =
      readIORef state >>= \case
        Open withdraw -> do
          writeIORef state Closed
          Slots.remove slots key
          withdraw
          (tcb, resume) <- orClosing home (askTcb ask) (\_ -> Throw (toException Cancelled))
          homeReady home Completed tcb resume
        _ -> pure ()

soon :: World -> IO () -> IO ()
soon world act = do
  delay <- lasting (worldRandom world) (completionDelay (worldConditions world))
  void (after (worldEvents world) delay act)

isOpen :: Ticket a -> IO Bool
isOpen ticket =
  readIORef (ticketState ticket) >>= \case
    Open _ -> pure True
    _ -> pure False

-- | Decide the result; it reaches the thread at once or a little later. False if it was
-- decided before, or the wait was cancelled: then what was to be handed over must go back.
settle :: Ticket a -> Why -> Either SomeException a -> IO Bool
settle ticket why result = do
  open <- isOpen ticket
  open <$ when open (isLate (askWorld (ticketAsk ticket)) >>= \late -> (if late then settleLate else deliverTicket) ticket why result)

settleAtOnce :: Ticket a -> Why -> Either SomeException a -> IO Bool
settleAtOnce ticket why result = do
  open <- isOpen ticket
  open <$ when open (deliverTicket ticket why result)

-- | Decide the result of an open ticket, which reaches the thread a little later.
settleLate :: Ticket a -> Why -> Either SomeException a -> IO ()
settleLate ticket why result = do
  writeIORef (ticketState ticket) Settled
  soon (askWorld (ticketAsk ticket)) (deliverTicket ticket why result)

deliverTicket :: Ticket a -> Why -> Either SomeException a -> IO ()
deliverTicket ticket why result = do
  let Ask {askTickets = Tickets slots, askHost = host} = ticketAsk ticket
      k = ticketResume ticket
      ready = homeReady (hostHome host) why (askTcb (ticketAsk ticket))
  writeIORef (ticketState ticket) Closed
  Slots.remove slots (ticketKey ticket)
  case result of
    Right a -> ready (oneShot (\_ -> k a))
    Left e -> ready (oneShot (\_ -> Throw e))

-- | The refusal by the operating system: the operation, the path if it is about one, the reason.
failure :: String -> Maybe FilePath -> Errno -> SomeException
failure what path e = toException (errnoToIOError what e Nothing path)

-- | As an operation ends whose descriptor is closed: @ECANCELED@ (on Linux).
canceled :: Errno
canceled = Errno 125
