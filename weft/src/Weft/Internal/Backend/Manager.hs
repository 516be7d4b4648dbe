{-# OPTIONS_HADDOCK not-home #-}

-- | An event manager for plain IO: made, stepped and freed, for "Weft.EventManager".
module Weft.Internal.Backend.Manager
  ( newEventManager,
    freeEventManager,
    step,
    loop,
    wake,
    stop,
  )
where

import Control.Concurrent (myThreadId, yield)
import Control.Concurrent.MVar
import Control.Exception (bracket_, finally, mask, mask_, onException, uninterruptibleMask_)
import Control.Monad (unless, void, when)
import Data.Foldable (for_)
import Data.IORef
import Data.IntSet qualified as IntSet
import Data.Primitive.PrimVar (newPrimVar)
import Data.Sequence qualified as Seq
import Weft.Internal.Backend.Manager.State
import Weft.Internal.Backend.Manager.Table
import Weft.Internal.Backend.Manager.Timeouts
import Weft.Internal.Backend.Readiness.Collector
import Weft.Internal.Backend.Readiness.Poller (Poller)
import Weft.Internal.Backend.Wakeup (wakeUp)
import Weft.Internal.Data.Conditional
import Weft.Internal.Data.Inbox (drain, newInbox)
import Weft.Internal.Data.Time (Duration (..))
import Weft.Internal.Data.Timers qualified as Timers

-- | Make a manager on a source ("Weft.EventManager.Source"), which it owns from then on. A descriptor
-- should be registered with one manager at a time. Throws an 'IOError' where the kernel refuses.
newEventManager :: IO Poller -> IO EventManager
newEventManager source =
  mask_ $
    EventManager
      <$> newCollector source
      <*> newInbox
      <*> newStripes
      <*> newPrimVar 1
      <*> Timers.new
      <*> newMVar ()
      <*> newIORef Nothing
      <*> newIORef Seq.empty
      <*> newIORef IntSet.empty
      <*> newIORef False
      <*> newIORef False

-- | Be the stepper for the time of an action.
asStepper :: EventManager -> String -> IO a -> IO a
asStepper m place action = do
  refuseInCallback m place
  bracket_ (enterStep m) (leaveStep m) action

enterStep, leaveStep :: EventManager -> IO ()
enterStep m = do
  me <- myThreadId
  takeMVar (managerStepping m)
  writeIORef (managerStepper m) (Just me)
leaveStep m = writeIORef (managerStepper m) Nothing >> putMVar (managerStepping m) ()

-- | Run what is due, wait for events if there was nothing, for as long as the second argument says
-- ('Nothing': any time), and run their callbacks; answers how many ran. It also ends, perhaps with 0,
-- when 'wake' is called, or when something was registered or set since the last wait.
--
-- One thread at a time steps; others wait for it. Throws what a callback throws, and an 'IOError' from
-- a callback.
step :: EventManager -> Maybe Duration -> IO Int
step m limit = asStepper m "step" (refuseWhenFree m "step" >> turn m limit)

-- | Run what is to run, wait for at most this long, and handle the events. On the stepper, of a manager
-- that is not freed. Masked but for callbacks: Note [Exceptions of callbacks].
turn :: EventManager -> Maybe Duration -> IO Int
turn m limit = mask \restore -> do
  let run = runPending restore m
      receive = uninterruptibleMask_ (drain (managerInbox m)) >> enqueueDue m
  receive
  told <- run
  always <- readIORef (managerAlways m)
  unlessM (hasEvents collector) $
    if told > 0 || not (IntSet.null always)
      then void (collect collector 0)
      else untilNext m >>= await . earlier (maybe (-1) (max 0 . durationNanoseconds) limit)
  uninterruptibleMask_ (for_ (IntSet.toList always) (handleAlways m . fromIntegral))
  ready <- run
  handled <- uninterruptibleMask_ (handleAll restore m)
  receive
  late <- run
  pure (told + ready + handled + late)
  where
    collector = managerCollector m
    await bound
      | bound == 0 = void (collect collector 0)
      | otherwise = lookOr (lookOr (void (collect collector bound)))
    -- To block is to give the capability away and get it back, which costs more than the rest of a
    -- step. A thread that was woken goes first, and so does one that it forks: they may make
    -- something ready.
    lookOr block = yield >> collect collector 0 >>= \n -> when (n == 0) block
    earlier a b
      | a < 0 = b
      | b < 0 = a
      | otherwise = min a b

-- | Handle the events, one after the other with its callbacks; answers how many callbacks
-- ran. What one callback unregisters or closes, a later event does not find. Masked uninterruptibly,
-- but for the callbacks.
handleAll :: (forall a. IO a -> IO a) -> EventManager -> IO Int
handleAll restore m = handleEvents (managerCollector m) maxBound \key bits -> do
  handleEvent m key bits
  runPending restore m

-- | Step until 'stop' is called, or the manager is freed. Throws what a callback throws.
loop :: EventManager -> IO ()
loop m = do
  stopped <- atomicModifyIORef' (managerIsStopped m) (False,)
  -- Asked as the stepper: the thread that frees the manager is one too, and so cannot come in between.
  ended <- asStepper m "loop" do
    isFree <- readIORef (managerIsFree m)
    if stopped || isFree then pure True else False <$ turn m Nothing
  unless ended (loop m)

-- | End the wait that the stepper is in, or if it is in none, its next one.
wake :: EventManager -> IO ()
wake = wakeUp . collectorWakeup . managerCollector

-- | Have 'loop' return after the step that it is in, or else have the next 'loop' return at once.
stop :: EventManager -> IO ()
stop m = do
  writeIORef (managerIsStopped m) True
  wake m

-- | Free a manager, as its last step: registered callbacks are told 'closed', on the calling thread;
-- descriptors stay open. All run, and what the first to throw has thrown is thrown at the end. Timeouts
-- do not run, and threads that wait get an 'IOError'. Ends the step that another thread is in and waits
-- for it; an exception that ends this wait leaves the manager to another call. Nothing can be
-- registered afterwards; a second call does nothing.
freeEventManager :: EventManager -> IO ()
freeEventManager m = mask \restore -> do
  refuseInCallback m "freeEventManager"
  unlessM (atomicModifyIORef' (managerIsFree m) (True,)) do
    stop m
    -- Interrupted while another thread is in a step, it has freed nothing: one that comes later does.
    enterStep m `onException` writeIORef (managerIsFree m) False
    flip finally (freeCollector (managerCollector m) >> leaveStep m) do
      drain (managerInbox m)
      closeAll m
      -- A close that this has waited for may have left more.
      drain (managerInbox m)
      dropAll m
      restore (runPendingToTheEnd m)
