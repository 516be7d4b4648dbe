-- |
-- Description : A worker: one loop that runs ready threads and polls its kernel
-- Stability   : not home
--
-- Owns the loop that alternates between running ready threads
-- ("Weft.Internal.Scheduler") and polling the event source
-- ("Weft.Internal.Kernel"), falls asleep when there is nothing to do, and hands
-- work to workers that are idle. Everything here runs on the worker's own bound
-- OS thread, except what goes through a 'Door'.
module Weft.Internal.Worker
  ( -- * Doors
    Door,
    newDoor,
    postThrough,
    openUp,

    -- * Workers
    WorkerSettings (..),
    runWorker,
  )
where

import Control.Exception (SomeException, finally)
import Control.Monad (join, unless, when)
import Data.Foldable (for_)
import Data.IORef
import Data.Primitive.Array
import Weft.Internal.Inbox
import Weft.Internal.Kernel
import Weft.Internal.Policy
import Weft.Internal.Scheduler
import Weft.Internal.Trace

-- | How the rest of the program reaches a worker, from any OS thread.
data Door = Door
  { doorInbox :: !Inbox,
    -- | Set when the worker's kernel has started.
    doorWake :: !(IORef (IO ())),
    -- | To be touched on the worker only; here so that a posted action can.
    doorQueue :: !ReadyQueue
  }

-- | The door of a worker that has not started yet.
newDoor :: Policy -> IO Door
newDoor policy = Door <$> newInbox <*> newIORef (pure ()) <*> newReadyQueue policy

-- | Have an action run on the worker, soon.
postThrough :: Door -> IO () -> IO ()
postThrough door = post (doorInbox door) (join (readIORef (doorWake door)))

-- | Make the worker look around, even if it sleeps.
openUp :: Door -> IO ()
openUp door = postThrough door (pure ())

-- | What a worker is started with.
data WorkerSettings = WorkerSettings
  { workerIndex :: !Int,
    -- | Of all workers, by index.
    workerDoors :: !(Array Door),
    -- | Threads dispatched between two polls.
    workerSlice :: !Int,
    -- | Nodes of one trace run between two dispatches.
    workerFuel :: !Int,
    -- | Is it time to stop?
    workerStop :: !(IO Bool),
    workerReport :: !(String -> IO ()),
    workerUncaught :: !(Tcb -> SomeException -> IO ()),
    workerKernel :: !Opened,
    -- | The thread to begin with, if any.
    workerFirst :: !(Maybe Resume),
    -- | Called when the kernel has started, before any thread runs.
    workerStarted :: !(Scheduler -> IO ())
  }

-- | Be a worker until it is time to stop. Call on a bound OS thread.
runWorker :: WorkerSettings -> IO ()
runWorker settings = do
  let me = workerIndex settings
      doors = workerDoors settings
      door = indexArray doors me
      count = sizeofArray doors
      queue = doorQueue door
  kernel <-
    startKernel (workerKernel settings) $
      Host
        { hostWorker = me,
          hostWorkers = count,
          hostReady = push queue,
          hostPost = postThrough door,
          hostPostTo = postThrough . indexArray doors,
          hostReport = workerReport settings
        }
  writeIORef (doorWake door) (instanceWake kernel)
  flip finally (writeIORef (doorWake door) (pure ()) >> instanceStop kernel) $ do
    let elsewhere i tcb resume =
          let there = indexArray doors (i `mod` count)
           in postThrough there (push (doorQueue there) Started tcb resume)
    scheduler <- newScheduler queue me count (workerFuel settings) (instanceAnswer kernel) elsewhere (workerUncaught settings)
    for_ (workerFirst settings) (startThread scheduler (newTcb 0 rootContext))
    workerStarted settings scheduler
    workerLoop settings door kernel scheduler

-- | The loop. One turn is: a slice of ready threads, the inbox, a poll. The poll
-- does not block while threads are ready, and it comes after every slice, so
-- neither starves the other.
workerLoop :: WorkerSettings -> Door -> Instance -> Scheduler -> IO ()
workerLoop settings door kernel scheduler = turn
  where
    turn = do
      runSlice scheduler (workerSlice settings)
      drain (doorInbox door)
      ready <- readyCount scheduler
      stop <- workerStop settings
      unless stop $
        if ready > 0
          then do
            when (ready > 1 && several) (shareWork settings scheduler ready)
            _ <- instancePoll kernel False
            turn
          else do
            found <- instancePoll kernel False
            unless found sleep
            turn
    several = sizeofArray (workerDoors settings) > 1
    -- Note [No lost wake-up] in "Weft.Internal.Inbox"
    sleep = do
      mayBlock <- trySleep (doorInbox door)
      when mayBlock $ do
        _ <- instancePoll kernel True
        awake (doorInbox door)

-- | Hand half of the ready threads to a worker that sleeps, if one does. Moving a
-- thread costs more than running a short one (its descriptors are then known to
-- two event sources), so this is for a real surplus: more than one slice holds.
shareWork :: WorkerSettings -> Scheduler -> Int -> IO ()
shareWork settings scheduler ready =
  when (ready > surplus) $ go 0
  where
    doors = workerDoors settings
    surplus = 4
    go i
      | i >= sizeofArray doors = pure ()
      | i == workerIndex settings = go (i + 1)
      | otherwise = do
          let there = indexArray doors i
          asleep <- isAsleep (doorInbox there)
          if asleep
            then do
              moved <- takeReady (min 256 (ready `div` 2))
              postThrough there (for_ moved (\(Ready tcb resume) -> push (doorQueue there) Started tcb resume))
            else go (i + 1)
    takeReady :: Int -> IO [Ready]
    takeReady 0 = pure []
    takeReady n =
      popAny (schedulerQueue scheduler) >>= \case
        Nothing -> pure []
        Just r -> (r :) <$> takeReady (n - 1)
