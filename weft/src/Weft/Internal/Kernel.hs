{-# LANGUAGE GADTs #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | A kernel as a value: opened once for a run, started on every worker. There are the system kernel,
-- simulated ones (@weft-sim@), and either extended with an application's own calls ('extend').
module Weft.Internal.Kernel
  ( Kernel (..),
    Opened (..),
    Instance (..),
    Host (..),
    hostWorker,
    hostWorkers,
    hostReady,
    hostPost,
    hostPostTo,
    hostReport,
    AnswerCall (..),
    extend,
    answerSuspend,
  )
where

import Control.Exception (SomeException, toException, try)
import Control.Monad (void)
import Data.Primitive.Array (indexArray, sizeofArray)
import Data.Type.Equality ((:~~:) (HRefl))
import GHC.Exts (oneShot)
import Type.Reflection (Typeable, eqTypeRep, typeRep)
import Weft.Internal.Core.Park qualified as Park
import Weft.Internal.Core.Scheduler (AnswerCall (..))
import Weft.Internal.Core.SystemCall
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Counters (Gauges)
import Weft.Internal.Os.Masked (interruptiblyMasked)

-- | An operating system for threads, real or imagined.
data Kernel = Kernel
  { kernelName :: !String,
    -- | Make what they share, for the given number of workers. Once for each run.
    openKernel :: Int -> IO Opened
  }

-- | A kernel in use by the workers of one run.
data Opened = Opened
  { -- | Start it on one worker. Runs on the worker's OS thread, before any thread.
    startKernel :: Host -> IO Instance,
    -- | Numbers about what the workers share, for 'Weft.Counters.counters'. From any OS
    -- thread; must neither block nor lock, also after the end.
    openedGauges :: IO Gauges,
    -- | Release what the workers shared, after the last one has stopped.
    closeKernel :: IO ()
  }

-- | A worker, for its kernel, as its threads see it.
newtype Host = Host {hostHome :: Home}

-- | Have an action run on the worker with this index. From any OS thread.
hostPostTo :: Host -> Int -> IO () -> IO ()
hostPostTo host = homePost . indexArray (homePeers (hostHome host))

-- | Tell the operator something, on one line. From any OS thread.
hostReport :: Host -> String -> IO ()
hostReport = homeReport . hostHome

-- | The index of the worker, from 0, and how many workers there are.
hostWorker, hostWorkers :: Host -> Int
hostWorker = homeWorker . hostHome
hostWorkers = sizeofArray . homePeers . hostHome

-- | Make a thread ready. On this worker only.
hostReady :: Host -> Why -> Tcb -> Resume -> IO ()
hostReady = homeReady . hostHome

-- | Have an action run on this worker, soon. From any OS thread.
hostPost :: Host -> IO () -> IO ()
hostPost = homePost . hostHome

-- | A kernel that was started on one worker. All fields but 'instanceWake' and 'instanceGauges' are for
-- the worker's present carrier.
data Instance = Instance
  { -- | Answer a call with the next node, not forced (that is user code), or keep the continuation and answer
    -- 'Parked'; an error with 'Throw'. Must not block. Says how the wait is interrupted ('interruptible').
    instanceAnswer :: !AnswerCall,
    -- | Collect events and make threads ready. When true it may block until there
    -- is one, or until 'instanceWake'. Answers whether it found anything.
    instancePoll :: !(Bool -> IO Bool),
    -- | Make a blocking poll return. From any OS thread; coalesced.
    instanceWake :: !(IO ()),
    -- | From now on this OS thread is the worker's carrier.
    instanceAdopt :: !(IO ()),
    -- | Visit the waits of threads that are not parked ('homeParked'), for dumps.
    instanceWaits :: !(forall r. (Wait -> r -> IO r) -> r -> IO r),
    -- | Interrupt every such wait of a thread that has no identity, so that nothing
    -- else can; unless it is uninterruptible. Only when the run is closing.
    instanceInterrupt :: !(IO ()),
    -- | Is there nothing under way that could make a thread ready: no operation, no
    -- timer, no action in a pool? From any OS thread; may be a little old.
    instanceQuiet :: !(IO Bool),
    -- | Numbers about this worker's part, to be added up; like 'openedGauges'.
    instanceGauges :: !(IO Gauges),
    -- | Release everything. Nothing but 'instanceGauges' is called afterwards.
    instanceStop :: !(IO ())
  }

-- | Teach a kernel an application's own system calls: this function receives each request of type @e@
-- ('Weft.Kernel.request') with the waiter of its thread, on the worker. It must not block: it passes
-- the waiter to the application's event loop, which answers it from any OS thread (Li & Zdancewic 2007,
-- section 4.2).
extend :: forall e. (Typeable e) => (forall a. e a -> Waiter a -> IO ()) -> Kernel -> Kernel
extend interpret kernel = kernel {openKernel = fmap reopened . openKernel kernel}
  where
    reopened opened = opened {startKernel = \host -> extended host <$> startKernel opened host}
    extended :: Host -> Instance -> Instance
    extended host started = case instanceAnswer started of
      AnswerCall inner ->
        started
          { instanceAnswer = AnswerCall $ \tcb request k -> case request of
              Extend (e :: f a)
                | Just HRefl <- eqTypeRep (typeRep @f) (typeRep @e) ->
                    answerSuspend host request (\w -> pure () <$ interpret e w) tcb k
              _ -> inner tcb request k
          }

-- | Answer a 'Suspend': park the thread and hand its waiter to the action.
answerSuspend :: Host -> SystemCall a -> (Waiter a -> IO (IO ())) -> Tcb -> (a -> Trace) -> IO Trace
answerSuspend host request action tcb k =
  Parked <$ Park.waitFor (hostHome host) tcb (BlockedOn 0 request) () Park.resumed hand
  where
    hand place =
      -- A GHC thread that the action forks must not be masked uninterruptibly, as a worker is.
      try (interruptiblyMasked (action (Waiter (Park.answerFromAnywhere place . resumeAs k)))) >>= \case
        Left e -> pure () <$ Park.answerHere Woken place (resumeAs k (Failed (e :: SomeException)))
        -- An exception of this action must not end the worker.
        Right takeBack -> pure (void (try @SomeException takeBack))

-- | How a thread goes on with an outcome.
resumeAs :: (a -> Trace) -> Outcome a -> Resume
resumeAs k = \case
  Answered a -> oneShot (\_ -> k a)
  Failed e -> oneShot (\_ -> Throw (toException e))
