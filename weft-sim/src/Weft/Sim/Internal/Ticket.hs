-- |
-- Description : A system call of a simulated kernel, from the question to the answer
-- Stability   : not home
--
-- Every call is asked with an 'Ask' and answered at once or by a 'Ticket', which its
-- thread waits for. Here is decided when an answer that is known reaches the thread, and
-- which of an answer and a cancellation wins. Used by whoever runs the simulation.
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

    -- * Answering later
    Ticket,
    park,
    settle,
    isOpen,

    -- * All tickets
    Tickets,
    newTickets,
    openTickets,
    visitTickets,
    interruptAnonymous,

    -- * Failures
    failure,
  )
where

import Control.Exception (SomeException, toException)
import Control.Monad (join, unless, void)
import Data.IORef
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Foreign.C.Error (Errno, errnoToIOError)
import GHC.Exts (oneShot)
import Weft.Internal.Cancel
import Weft.Internal.Kernel (Host (..))
import Weft.Internal.Trace
import Weft.Sim.Internal.Conditions
import Weft.Sim.Internal.Events
import Weft.Sim.Internal.Random
import Weft.Sim.Internal.World

-- Note [The life of a ticket]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~
--   Open     --settle-->   Settled   the result is decided: what it did to the world is done
--   Open     --cancel-->   Closed    the thread goes on with its cancellation; the withdrawal ran
--   Settled  --deliver-->  Closed    the thread goes on with the result
--
-- A settled ticket is delivered at once or by an event of its own (`lateCompletions`). A
-- cancellation that finds it settled does nothing: what has succeeded is not lost, as of
-- an io_uring request whose completion is in the queue already. One that finds it open
-- takes effect at once or by an event (`lateCancellations`), and until then the operation
-- may still succeed. So all three orders of a completion and a cancellation occur.

-- | One system call: in which world, on which worker, on which machine, of which
-- thread.
data Ask = Ask
  { askWorld :: !World,
    askTickets :: !Tickets,
    askHost :: !Host,
    askMachine :: !Machine,
    askWait :: !Wait
  }

-- | The thread that asks.
askTcb :: Ask -> Tcb
askTcb = waitTcb . askWait

-- | How a part of the kernel answers: given the call and the thread's continuation, the
-- next node of its trace.
type Answering a = Ask -> (a -> Trace) -> IO Trace

-- | The answer to a call that cannot wait.
answerNow :: Answering' a
answerNow _ k = pure . either Throw k
{-# INLINE answerNow #-}

type Answering' a = Ask -> (a -> Trace) -> Either SomeException a -> IO Trace

-- | The answer to a call that might have had to wait, and did not: at once or, as
-- it is decided, by a completion.
answer :: Why -> Answering' a
answer why ask k result = do
  late <- isLate (askWorld ask)
  if late
    then do
      park ask k $ \ticket -> do
        void (settleLate ticket why result)
        pure (pure ())
    else answerNow ask k result
{-# INLINE answer #-}

isLate :: World -> IO Bool
isLate world = (> 0) <$> decide world (Completing (lateCompletions (worldConditions world)))
{-# INLINE isLate #-}

-- | The right to answer a thread that is parked.
data Ticket a = Ticket
  { ticketAsk :: !Ask,
    ticketNumber :: !Int,
    ticketResume :: a -> Trace,
    ticketState :: !(IORef State)
  }

data State = Open | Settled | Closed
  deriving stock (Eq)

-- | The tickets that are not closed, by number: the worker, who waits, what a cancellation
-- does.
newtype Tickets = Tickets (IORef (Int, IntMap OpenTicket))

data OpenTicket = OpenTicket !Int !Wait (IO ())

-- | None.
newTickets :: IO Tickets
newTickets = Tickets <$> newIORef (0, IntMap.empty)

-- | How many there are.
openTickets :: Tickets -> IO Int
openTickets (Tickets ref) = IntMap.size . snd <$> readIORef ref

-- | Visit who waits, of the threads of one worker.
visitTickets :: Tickets -> Int -> (Wait -> r -> IO r) -> r -> IO r
visitTickets (Tickets ref) worker f start = do
  (_, waits) <- readIORef ref
  let go r [] = pure r
      go r (OpenTicket w wait _ : rest)
        | w == worker = f wait r >>= \r' -> go r' rest
        | otherwise = go r rest
  go start (IntMap.elems waits)

-- | Interrupt the waits of the worker's threads without an identity
-- ('Weft.Kernel.instanceInterrupt').
interruptAnonymous :: Tickets -> Int -> IO ()
interruptAnonymous (Tickets ref) worker = do
  (_, waits) <- readIORef ref
  sequence_ [abort | OpenTicket w wait abort <- IntMap.elems waits, w == worker, anonymous (waitTcb wait)]
  where
    anonymous tcb = case tcbIdentity tcb of
      Nobody -> stateMasking (tcbState tcb) /= MaskedUninterruptible
      Identity {} -> False

-- | Park the thread. The action leaves the ticket where it will be found, or settles it, and
-- answers how to take it back when the wait is cancelled; neither may throw.
park :: Ask -> (a -> Trace) -> (Ticket a -> IO (IO ())) -> IO Trace
park ask k leave = do
  let Tickets ref = askTickets ask
      world = askWorld ask
      tcb = askTcb ask
  (number, waits) <- readIORef ref
  state <- newIORef Open
  withdrawal <- newIORef (pure ())
  let ticket = Ticket ask number k state
      cancelIt =
        readIORef state >>= \case
          Open -> do
            writeIORef state Closed
            forgetTicket ticket
            join (readIORef withdrawal)
            (tcb', resume) <- orClosing (hostHome (askHost ask)) tcb (\_ -> Throw (toException Cancelled))
            homeReady (hostHome (askHost ask)) Completed tcb' resume
          _ -> pure ()
      abort = do
        open <- (== Open) <$> readIORef state
        late <- if open then decide world (Cancelling (lateCancellations (worldConditions world))) else pure 0
        if late > 0
          then do
            d <- within (worldRandom world) (completionDelay (worldConditions world))
            void (after (worldEvents world) d cancelIt)
          else cancelIt
  writeIORef ref (number + 1, IntMap.insert number (OpenTicket (homeWorker (hostHome (askHost ask))) (askWait ask) abort) waits)
  leave ticket >>= writeIORef withdrawal
  closed <- (== Closed) <$> readIORef state
  unless closed (interruptible tcb abort)
  pure Parked

forgetTicket :: Ticket a -> IO ()
forgetTicket ticket = modifyIORef' ref (\(n, waits) -> let !left = IntMap.delete (ticketNumber ticket) waits in (n, left))
  where
    Tickets ref = askTickets (ticketAsk ticket)

-- | Is nothing decided?
isOpen :: Ticket a -> IO Bool
isOpen ticket = (== Open) <$> readIORef (ticketState ticket)

-- | Decide the result; it reaches the thread at once or a little later. False if it was
-- decided before, or the wait was cancelled: then what was to be handed over must go back.
settle :: Ticket a -> Why -> Either SomeException a -> IO Bool
settle ticket why result =
  readIORef (ticketState ticket) >>= \case
    Open -> do
      late <- isLate (askWorld (ticketAsk ticket))
      if late then settleLate ticket why result else True <$ deliverTicket ticket why result
    _ -> pure False

settleLate :: Ticket a -> Why -> Either SomeException a -> IO Bool
settleLate ticket why result =
  readIORef (ticketState ticket) >>= \case
    Open -> do
      writeIORef (ticketState ticket) Settled
      let world = askWorld (ticketAsk ticket)
      d <- within (worldRandom world) (completionDelay (worldConditions world))
      True <$ after (worldEvents world) d (deliverTicket ticket why result)
    _ -> pure False

deliverTicket :: Ticket a -> Why -> Either SomeException a -> IO ()
deliverTicket ticket why result = do
  writeIORef (ticketState ticket) Closed
  forgetTicket ticket
  let k = ticketResume ticket
  homeReady (hostHome (askHost (ticketAsk ticket))) why (askTcb (ticketAsk ticket)) $ case result of
    Right a -> oneShot (\_ -> k a)
    Left e -> oneShot (\_ -> Throw e)

-- | What the operating system's refusal is in the thread: the operation, the path if it is about
-- one, the reason.
failure :: String -> Maybe FilePath -> Errno -> SomeException
failure what path e = toException (errnoToIOError what e Nothing path)
