{-# OPTIONS_HADDOCK not-home #-}

-- | A worker: one loop that alternates between running ready threads and polling the kernel, sleeps when
-- there is nothing to do, and shares work. On the carrier that owns it; all other code uses its 'WorkerHandle'.
module Weft.Internal.Run.Worker
  ( startWorker,
    adoptWorker,
    carry,
    Ended (..),
    stopWorker,
    seemComputing,
  )
where

import Control.Concurrent qualified as Ghc
import Control.Exception (SomeException)
import Control.Monad (unless, when)
import Data.Foldable (for_)
import Data.IORef
import Data.Primitive.Array
import Data.Primitive.PrimVar
import Weft.Internal.Core.Cancel (hasWaited, moveTo)
import Weft.Internal.Core.Guests (takeExpected)
import Weft.Internal.Core.Park (parkings)
import Weft.Internal.Core.Policy
import Weft.Internal.Core.Retries
import Weft.Internal.Core.Scheduler
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Conditional
import Weft.Internal.Data.CreationTimes
import Weft.Internal.Data.Inbox
import Weft.Internal.Kernel
import Weft.Internal.Observe.Timeline.Recorder (recordTakeover, recordedPolls, recordedSlice)
import Weft.Internal.Os.Control
import Weft.Internal.Os.Report (exceptionText)
import Weft.Internal.Os.Sys (monotonicNow)
import Weft.Internal.Run.Ending
import Weft.Internal.Run.Handle

-- | Why a carrier has left its worker.
data Ended
  = -- | It was time to stop; the worker is to be stopped ('stopWorker').
    Stopped
  | -- | Another carrier has taken it over.
    TakenOver
  deriving stock (Eq, Show)

-- | Make a worker. On its first carrier.
startWorker :: WorkerSettings -> Carrier -> IO Worker
startWorker settings carrier = do
  let own = indexArray (workerHandles settings) (workerIndex settings)
      home = handleHome own
  kernel <-
    maybe id recordedPolls (workerRecorder settings) <$> startKernel (workerKernel settings) (Host home)
  writeIORef (handleWake own) (instanceWake kernel)
  scheduler <-
    newScheduler
      (handleQueue own)
      carrier
      home
      (workerFuel settings)
      (instanceAnswer kernel)
      (workerUncaught settings)
      (homeReport home . stray)
  nowAwake settings carrier
  let worker = Worker settings kernel scheduler
  worker <$ writeIORef (handleWorker own) (Just worker)

-- | Said of an exception that was thrown at a worker.
stray :: SomeException -> String
stray e =
  concat
    [ "an asynchronous exception of GHC was thrown at a worker, while no thread of Weft ran there, and is dropped: ",
      exceptionText e,
      " (System.Timeout.timeout, or throwTo: a worker runs many threads. Weft.IO.timeout and Weft.cancel mean one.)"
    ]

-- | The same worker for the carrier that takes it over. On that carrier.
adoptWorker :: Carrier -> Worker -> IO Worker
adoptWorker carrier worker = do
  stuck <- currentThread before
  (away, scheduler) <- successor carrier stuck before
  tally scheduler Takeovers 1
  for_ (workerRecorder settings) (`recordTakeover` stuck)
  let heir = worker {workerScheduler = scheduler}
  writeIORef (handleWorker (handleOf worker)) (Just heir)
  instanceAdopt (workerInstance worker)
  workerTakenOver settings $
    Lost
      { lostThread = away,
        lostWorker = workerIndex settings,
        lostCarrier = carrierNumber (schedulerCarrier before),
        lostAway = schedulerAway scheduler
      }
  pure heir
  where
    before = workerScheduler worker
    settings = workerSettings worker

-- | Release what a worker holds, when it is time to stop. On its last carrier.
stopWorker :: Worker -> IO ()
stopWorker worker = do
  setAwake (schedulerCarrier (workerScheduler worker)) False
  writeIORef (handleWake (handleOf worker)) (pure ())
  instanceStop (workerInstance worker)

-- | Be the worker's carrier. One turn is a slice of ready threads, the inbox, and a poll, which does not
-- block while threads are ready: neither starves the other. After a takeover the poll comes first: the last
-- may be old, and a carrier that came to stop the worker must not run a thread that could hold it, too.
carry :: Worker -> IO Ended
carry worker = case workerRecorder (workerSettings worker) of
  Nothing -> carryBy runSlice worker
  Just recorder -> carryBy (recordedSlice recorder) worker

-- | Inlined, so that there are two loops and the plain one knows nothing of recorders.
carryBy :: (Scheduler -> Int -> IO Bool) -> Worker -> IO Ended
carryBy slice worker@(Worker settings kernel scheduler) = foundBefore False False >>= look
  where
    own = handleOf worker
    carrier = schedulerCarrier scheduler
    foundBefore quiet computing = Before quiet computing <$> readCounter scheduler Dispatches <*> parkings home
    turn quiet computing = do
      tally scheduler Slices 1
      receiveStrays scheduler
      before <- foundBefore quiet computing
      ifM (slice scheduler (workerSlice settings)) (look before) (pure TakenOver)
    home = schedulerHome scheduler
    look !before = do
      drain (handleInbox own)
      lookAgain (homeRetries home)
      next <- readCounter scheduler NextNumber
      readPrimVar (homeClock home) >>= noteCreationTimes (homeCreationTimes home) next
      whenM (readIORef (homeClosing home)) (endThreads (workerEnding settings) scheduler kernel)
      ready <- readyCount scheduler
      stop <- workerStop settings
      if stop
        then pure Stopped
        else do
          if ready > 0
            then do
              computing <- if several then shareWork settings scheduler before ready else pure False
              found <- ask False
              -- The slice was long: other threads of GHC may wait for this capability.
              whenM (wasCut scheduler) Ghc.yield
              turn (not found) computing
            else do
              found <- ask False
              waits <- if found then pure False else someWait (homeRetries home)
              if waits then tellAll (homeRetries home) NoMore else unless found sleep
              turn False False
    ask mayBlock = do
      tally scheduler Polls 1
      found <- instancePoll kernel mayBlock
      found <$ when found (tally scheduler Fruitful 1)
    several = sizeofArray (workerHandles settings) > 1
    -- Threads of GHC's that run for threads of this worker would else begin when it sleeps:
    -- each would wake it with its first word, and wait for the capability again.
    letGuestsRun = whenM (takeExpected (homeGuests home)) Ghc.yield
    -- Note [No lost wake-up] in "Weft.Internal.Data.Inbox"
    sleep = do
      letGuestsRun
      whenM (trySleep (handleInbox own)) $ do
        setAwake carrier False
        tally scheduler Sleeps 1
        _ <- ask True
        nowAwake settings carrier
        whenM (awake (handleInbox own)) (tally scheduler WakeUps 1)

-- | Say that the worker is awake, and wake the monitor if that sleeps, as it does when no worker is.
nowAwake :: WorkerSettings -> Carrier -> IO ()
nowAwake settings carrier = do
  setAwake carrier True
  whenM (monitorAsleep carrier) (workerWakeMonitor settings)

-- Note [When threads move]
-- ~~~~~~~~~~~~~~~~~~~~~~~~
-- A worker that sleeps may be waiting for messages of threads that are ready here. Of two threads that send
-- each other messages one is ready and one waits, so to move half of the ready threads parts the pairs, and
-- from then on every message wakes an OS thread on another processor, which costs more than what most threads
-- do between two waits. Nothing brings a pair together again. Hence:
--
--   A thread that has waited at its worker moves only if the threads there compute, or if none has
--   been parked or woken since a poll that found nothing.
--
-- So threads move that were forked, or yielded: all that are ready if none was parked nor woken since a poll
-- that found nothing, and otherwise those that have not waited at this worker. And threads move when they
-- compute: when a dispatch of the last slice took longer than waking a worker does, or when all that are
-- ready, at that rate, would keep this worker busy for a time beside which moving them is nothing. Two slices
-- in a row must say so: a collection, or an OS thread that the system holds up, makes one look long.

-- | Given the nanoseconds that a slice took, its dispatches, and the number of ready threads: do
-- these compute? The bounds are some time that waking a worker takes, and fifty times as long.
seemComputing :: Int -> Int -> Int -> Bool
seemComputing slice dispatches ready = each >= 20_000 || each * ready >= 1_000_000
  where
    each = slice `div` max 1 dispatches

-- | What was found before a slice.
data Before = Before
  { -- | Did the poll find nothing?
    beforeQuiet :: !Bool,
    -- | Did the slice before look as if threads compute?
    beforeComputing :: !Bool,
    beforeDispatches :: !Int,
    beforeParkings :: !Int
  }

-- | Hand up to half of the ready threads to a worker that sleeps: Note [When threads move]. After a slice;
-- the clock still shows the poll before it. Answers whether the threads compute, as far as this slice tells.
shareWork :: WorkerSettings -> Scheduler -> Before -> Int -> IO Bool
shareWork settings scheduler !before !ready
  | ready <= surplus = pure False
  | otherwise = go 0
  where
    handles = workerHandles settings
    home = schedulerHome scheduler
    surplus = 4
    go i
      | i >= sizeofArray handles = pure False
      | i == workerIndex settings = go (i + 1)
      | otherwise = do
          let there = indexArray handles i
          ifM (isAsleep (handleInbox there)) (offer there) (go (i + 1))
    offer there = do
      slice <- (-) <$> (fromIntegral <$> monotonicNow) <*> readPrimVar (homeClock home)
      dispatches <- subtract (beforeDispatches before) <$> readCounter scheduler Dispatches
      noneParked <- (== beforeParkings before) <$> parkings home
      let computing = seemComputing slice dispatches ready
          anyone = computing && beforeComputing before || beforeQuiet before && noneParked
      when (anyone || beforeQuiet before) $ give there (if anyone then \_ -> pure True else fmap not . hasWaited)
      pure computing
    give there may = do
      moved <- takeSome (schedulerQueue scheduler) (min 256 (ready `div` 2)) (may . tcbIdentity)
      unless (null moved) $ do
        for_ moved (\(Ready tcb _) -> moveTo (handleHome there) (tcbIdentity tcb))
        tally scheduler Shared (length moved)
        homePost (handleHome there) (for_ moved (\(Ready tcb resume) -> push (handleQueue there) Started tcb resume))
