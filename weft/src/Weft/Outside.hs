-- |
-- The way in for other OS threads: plain 'IO', GHC's own threads, callbacks.
--
-- @
-- 'Weft.run' $ 'withRunner' $ \\runner -> do
--   jobs <- 'Weft.Channel.newChannel' 100
--   _ <- liftIO . forkIO $ do
--     'sendFrom' runner jobs "from a GHC thread"
--     answer <- 'runThread' runner someThread
--     ...
--   'Weft.Channel.receive' jobs
-- @
--
-- Each call crosses to a worker and back: a message, and the wake-up of an OS thread
-- if either side sleeps (some microseconds).
module Weft.Outside
  ( Runner,
    withRunner,
    RunnerClosed (..),

    -- * From any OS thread
    runThread,
    startThread,
    sendFrom,
    receiveFrom,

    -- * Out and back
    onGhcThread,
  )
where

import Control.Concurrent (forkIO, throwTo)
import Control.Concurrent qualified as Ghc
import Control.Concurrent.MVar
import Control.Exception (Exception (..), SomeException, catch, mask, throwIO, try)
import Control.Monad (join, void, when)
import Control.Monad.Catch qualified as Catch
import Data.Foldable (sequenceA_)
import Data.IORef
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Weft.Channel
import Weft.Internal.AtEnd (closeDoor, forget, openDoor, register)
import Weft.Internal.Cancel
import Weft.Internal.Direct (Performer (..), hosted)
import Weft.Internal.Guests (Work (..), engage, expect)
import Weft.Internal.Sync
import Weft.Internal.SystemCall
import Weft.Internal.Trace

-- | A run that takes in threads from outside.
data Runner = Runner !Home !(IORef Calls)

-- | The calls that are under way.
data Calls
  = -- | The next key, and what to do when the runner is closed.
    Open !Int !(IntMap (IO ()))
  | Closed

-- | The runner is closed: its 'withRunner' has ended. What was asked for did not
-- happen, or was cancelled in the middle.
data RunnerClosed = RunnerClosed
  deriving stock (Eq)

instance Show RunnerClosed where
  show _ = "Weft.Outside: the runner is closed, because its withRunner has ended"

instance Exception RunnerClosed

-- | Take in threads from outside while a thread runs; they start on this worker. When
-- it has ended, calls that are under way fail with 'RunnerClosed' and their threads
-- are cancelled.
--
-- While it is open somebody outside may make a thread go on, so that threads that all
-- wait for each other are not reported as a deadlock. The end of the run closes it too,
-- even if the thread was dropped ('Weft.settingGrace').
withRunner :: (Runner -> Thread a) -> Thread a
withRunner use = do
  (runner, end) <- internal $ \home _ -> do
    runner <- Runner home <$> newIORef (Open 0 IntMap.empty)
    openDoor (homeAtEnd home)
    -- The run may end first: then this has no finally, and is dropped.
    end <- register (homeAtEnd home) (shut runner)
    pure (runner, end)
  andFinally (use runner) . immediate $ \home -> do
    forget (homeAtEnd home) end
    shut runner
    closeDoor (homeAtEnd home)

-- | From now on calls fail, and so do those that are under way. Once.
shut :: Runner -> IO ()
shut (Runner _ calls) =
  atomicModifyIORef' calls (Closed,) >>= \case
    Open _ underWay -> sequenceA_ underWay
    Closed -> pure ()

-- | Run a thread and wait for it; its exceptions are raised here. An asynchronous
-- exception in the caller cancels the thread, waits for its end, and is raised again;
-- a second one ends that wait.
--
-- Throws 'RunnerClosed'. Blocks the calling OS or GHC thread: not for use on a worker.
runThread :: Runner -> Thread a -> IO a
runThread (Runner home calls) body = mask $ \restore -> do
  result <- newEmptyMVar
  stage <- newIORef Waiting'
  let answer = void . tryPutMVar result
      thread = do
        t <- Thread Identify
        wanted <- immediate $ \_ -> atomicModifyIORef' stage $ \case
          Waiting' -> (Running t, True)
          other -> (other, False)
        -- Nothing is raised between here and the handler, nor behind it: there is no system
        -- call, and no effect, in front of which one that has no fuel left may be cancelled.
        when wanted $ Catch.try body >>= \outcome -> immediate (\here -> expect (homeGuests here) >> answer outcome)
      -- True: it has begun, and will answer.
      interrupt = do
        begun <- atomicModifyIORef' stage $ \case
          Running t -> (Running t, Just t)
          _ -> (Dropped, Nothing)
        maybe (pure False) (\t -> True <$ condemn t (toException Cancelled)) begun
      leave key = atomicModifyIORef' calls $ \case
        Open n underWay -> (Open n (IntMap.delete key underWay), ())
        Closed -> (Closed, ())
  entered <- atomicModifyIORef' calls $ \case
    Open n underWay ->
      (Open (n + 1) (IntMap.insert n (answer (Left (toException RunnerClosed)) >> void interrupt) underWay), Just n)
    Closed -> (Closed, Nothing)
  case entered of
    Nothing -> throwIO RunnerClosed
    Just key -> do
      begin home thread
      outcome <-
        restore (readMVar result) `catch` \e -> do
          begun <- interrupt
          when begun (void (readMVar result))
          leave key
          throwIO (e :: SomeException)
      leave key
      either throwIO pure outcome

-- | Where the thread of a call is.
data Stage = Waiting' | Running !ThreadId | Dropped

-- | Start a thread and do not wait for it. An exception that leaves it is reported
-- like that of any thread.
--
-- Throws 'RunnerClosed'. A runner that is closed later does not cancel the thread.
startThread :: Runner -> Thread () -> IO ()
startThread (Runner home calls) body =
  readIORef calls >>= \case
    Open _ _ -> begin home body
    Closed -> throwIO RunnerClosed

begin :: Home -> Thread () -> IO ()
begin home body = homePost home (homeStart home (newTcb Nobody rootContext) (\_ -> toTrace body))

-- | Send a value to a channel; wait while there is no room. Throws as 'send' and
-- 'runThread' do.
sendFrom :: Runner -> Channel a -> a -> IO ()
sendFrom runner channel = runThread runner . send channel

-- | Receive a value from a channel; wait while there is none. Throws as 'runThread'
-- does; a value that was received when an asynchronous exception came is lost.
receiveFrom :: Runner -> Channel a -> IO (Maybe a)
receiveFrom runner = runThread runner . receive

-- Note [A thread of GHC's for a thread of Weft]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- The two take turns, and a variable says where they are. Each step is atomic, and who comes
-- second finds what the first has left: the end finds the waiter, the wait finds the end, an
-- interruption finds the thread to throw to, or the thread finds the interruption when it
-- begins. So no end is missed, and none is told twice.
--
-- What interrupts the wait is thrown to the action by a third, because who throws waits until
-- it is received. Then the action's end is awaited, uninterruptibly, as that of a child.

-- | Where the action of 'onGhcThread' is.
data Turn a
  = -- | Under way or about to be, and who waits for its end.
    Acting !Actor !(Maybe (Waiter ()))
  | Over !(Either SomeException a)

data Actor
  = Unborn
  | -- | It ends before it begins.
    Unwanted !SomeException
  | Actor !Ghc.ThreadId
  | -- | Somebody throws to it, or is about to: that thread gets no other work afterwards.
    Interrupted

-- | Perform plain 'IO' on a thread of GHC's own, and wait for its end. There it may do
-- whatever GHC's threads may: block, be thrown to, be cancelled by @System.Timeout.timeout@,
-- ask for its 'Control.Concurrent.myThreadId'. The thread is the action's until that ends; then it
-- may be given another one. It takes no OS thread while it blocks, and costs about a
-- kilobyte and, where the worker is busy, a microsecond; for what blocks in a foreign call
-- it is no better than 'Weft.blocking'. The function that it is given performs operations of
-- threads, as 'runThread' with this runner does, on this thread's worker; and so does
-- 'Weft.IO.await' there, so that all of "Weft.IO" can be used.
--
-- Its exceptions are raised here. What interrupts this thread is thrown to the action, and is
-- raised here when that has ended.
onGhcThread :: forall a. Runner -> ((forall x. Thread x -> IO x) -> IO a) -> Thread a
onGhcThread (Runner _ calls) action = Catch.mask $ \restore -> do
  turn <- immediate $ \home -> do
    turn <- newIORef (Acting Unborn Nothing)
    turn <$ engage (homeAtEnd home) (homeGuests home) (Work (act turn (runThread (Runner home calls))))
  let end = do
        call . Suspend (because "an action on a thread of GHC's") $ \waiter ->
          fmap pure . join . atomicModifyIORef' turn $ \case
            Acting actor _ -> (Acting actor (Just waiter), pure ())
            over -> (over, void (deliver waiter (Answered ())))
        effect (readIORef turn)
  over <-
    restore end `Catch.catch` \e -> do
      effect . join . atomicModifyIORef' turn $ \case
        Acting Unborn waiter -> (Acting (Unwanted e) waiter, pure ())
        Acting (Actor thread) waiter -> (Acting Interrupted waiter, void (forkIO (throwTo thread (e :: SomeException))))
        other -> (other, pure ())
      _ <- Catch.uninterruptibleMask_ end
      Catch.throwM e
  case over of
    Over outcome -> either Catch.throwM pure outcome
    Acting _ _ -> Catch.throwM (userError "Weft.Outside.onGhcThread: answered before its end")
  where
    act :: IORef (Turn a) -> (forall x. Thread x -> IO x) -> (forall x. IO x -> IO x) -> IO Bool
    act turn perform unmask = do
      me <- Ghc.myThreadId
      unwanted <- atomicModifyIORef' turn $ \case
        Acting Unborn waiter -> (Acting (Actor me) waiter, Nothing)
        other@(Acting (Unwanted e) _) -> (other, Just e)
        other -> (other, Nothing)
      outcome <- maybe (try (unmask (hosted (Performer perform) (action perform)))) (pure . Left) unwanted
      join . atomicModifyIORef' turn $ \case
        Acting actor waiter -> (Over outcome, isFree actor <$ mapM_ (\w -> deliver w (Answered ())) waiter)
        other -> (other, pure True)
    isFree = \case
      Interrupted -> False
      _ -> True
