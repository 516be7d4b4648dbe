-- |
-- The scheduler on a page: what running threads means. Read this first.
--
-- A thread is a value, the lazy tree of its system calls ('Trace'; Claessen 1999). So a scheduler is a
-- program that walks over such trees: it forces the first node of a tree, which runs the pure code of
-- that thread up to its next system call and no further; does what the node says; and walks on, in this
-- tree or in another (Li & Zdancewic 2007, section 3).
--
-- 'runModel' is that walk and nothing else. It takes turns: a thread runs until it yields, waits
-- or ends. The scheduler that programs run on ("Weft.Internal.Core.Scheduler") does the same under its
-- policy 'Weft.Policy.fifo' on one worker: the tests run random programs on both and compare what
-- they log. That scheduler adds:
--
-- * a thread runs for a limited number of nodes before it must let others run;
-- * a thread that waits is out of the queue until an event source has its answer;
-- * several OS threads run threads, each from a queue of its own;
-- * one thread can cancel another: the exception is raised in front of the next system call for
--   which the masking state allows it;
-- * locks, channels and the like, whose operations act on the queue themselves.
--
-- A thread has a masking state because of cancellation. No thread of the model is cancelled, so the
-- model only keeps account of that state: what a handler, a child and the end of a mask find.
--
-- >>> import Weft
-- >>> runModel (\_ -> pure Nothing) (do { fork_ (liftIO (putStrLn "child")); liftIO (putStrLn "parent"); yield; fail "no more" })
-- parent
-- child
-- [(1,user error (no more))]
module Weft.Model (runModel) where

import Control.Exception (SomeException, evaluate, throw, try)
import Data.Primitive.Array (indexArray)
import Data.Primitive.MutVar (newMutVar, readMutVar)
import Data.Sequence (Seq (..), (|>))
import Data.Sequence qualified as Seq
import Weft.Internal.Core.Policy (fifo)
import Weft.Internal.Core.Primitive (Behaviour (..), behaviourOf)
import Weft.Internal.Core.SystemCall (SystemCall)
import Weft.Internal.Core.Trace
import Weft.Internal.Data.Cell (newCell)
import Weft.Internal.Run.Handle (WorkerHandle (..), newHandles)

-- | Run a thread and all that it forks until all have ended. The result says which threads an
-- exception ended, and which exception, in the order in which it happened.
--
-- The function answers the system calls of all threads. One that is not answered yet ('Nothing')
-- is made again when it is its thread's turn again: only that thread waits.
--
-- A thread of the model does not wait for another, as for an 'Weft.MVar.MVar' to be filled: the run ends
-- with an 'IOError' that says so.
runModel :: (forall a. SystemCall a -> IO (Maybe a)) -> Thread () -> IO [(Int, SomeException)]
runModel answer program = nowhere >>= \home -> runOn home answer program

runOn :: Home -> (forall a. SystemCall a -> IO (Maybe a)) -> Thread () -> IO [(Int, SomeException)]
runOn home answer program = do
  main <- identify 1
  schedule 2 (Seq.singleton (newTcb main rootContext, toTrace program))
  where
    -- A step of the first thread: the number of the next new one, and the ready ones, each with its trace.
    schedule :: Int -> Seq (Tcb, Trace) -> IO [(Int, SomeException)]
    schedule _ Empty = pure []
    schedule new ((tcb@(Tcb me state), trace) :<| others) =
      firstNode (pure trace) >>= \case
        -- The calls that a scheduler answers by itself.
        Done -> schedule new others
        Yield rest -> schedule new (others |> (tcb, rest ()))
        Effect action -> firstNode action >>= goOn
        Fork _ child rest -> do
          identity <- identify new
          let born = Tcb identity state {stateFrames = NoFrames}
          schedule (new + 1) (((tcb, rest (ThreadId identity)) :<| others) |> (born, child ()))
        -- Calls that the outside world answers.
        Call place request rest ->
          try (answer request) >>= \case
            Left e -> goOn (Throw e)
            Right Nothing -> schedule new (others |> (tcb, Call place request rest))
            Right (Just a) -> goOn (rest a)
        -- Exceptions. A handler runs masked, so that nothing interrupts it before it has begun.
        Catch body handler -> goOnAs state {stateFrames = HandlerFrame handler (stateMasking state) (stateFrames state)} (body ())
        Leave rest a -> goOnAs (leaveFrame state) (rest a)
        Throw e -> case stateFrames state of
          HandlerFrame handler outside outer ->
            goOnAs state {stateFrames = MaskFrame outside outer, stateMasking = handlerMasking (stateMasking state)} (handler e)
          MaskFrame outside outer -> goOnAs state {stateFrames = outer, stateMasking = outside} (Throw e)
          NoFrames -> ((identityNumber me, e) :) <$> schedule new others
        -- Questions and changes of the thread's own control block, masks among them.
        Perform operation argument rest -> do
          variable <- newMutVar tcb
          tried <- behaviourAct (behaviourOf operation) (Here home variable) argument rest
          after <- readMutVar variable
          case tried of
            Got a -> schedule new ((after, rest a) :<| others)
            Instead next -> schedule new ((after, next) :<| others)
            Run next -> schedule new ((after, next) :<| others)
            Later -> noWorker
        Parked -> noWorker
        Enter _ -> noWorker
      where
        goOn = goOnAs state
        goOnAs changed rest = schedule new ((Tcb me changed, rest) :<| others)

-- | Run a thread up to its first node. What fails on the way is an exception of the thread.
firstNode :: IO Trace -> IO Trace
firstNode action = either Throw id <$> try (action >>= evaluate)

-- | An identity that cannot be cancelled, as of a thread that has ended.
identify :: Int -> IO Identity
identify n = Identity n <$> newCell Ended

-- | A worker on which nothing can be left to do.
nowhere :: IO Home
nowhere = do
  home <- handleHome . (`indexArray` 0) <$> newHandles fifo (\_ -> noWorker) 1
  pure home {homePost = \_ -> noWorker, homeReady = \_ _ _ -> noWorker, homeStart = \_ _ -> noWorker}

noWorker :: a
noWorker = throw (userError "Weft.Model: an operation that only a worker can perform")
