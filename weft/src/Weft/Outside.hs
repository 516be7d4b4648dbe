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
-- Each call crosses to a worker and back: a message, and the wake-up of an OS thread if either side sleeps.
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

import Control.Concurrent.MVar
import Control.Exception (Exception (..), SomeException, catch, getMaskingState, mask, onException, throwIO)
import Control.Monad (void, when)
import Control.Monad.Catch qualified as Catch
import Data.Foldable (sequenceA_)
import Data.IORef
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Weft.Channel
import Weft.Internal.Core.Cancel
import Weft.Internal.Core.Direct.Hosted (Performer (..), hosted)
import Weft.Internal.Core.Guests (engage, expect)
import Weft.Internal.Core.Interrupt
import Weft.Internal.Core.SystemCall
import Weft.Internal.Core.Trace
import Weft.Internal.Os.AtEnd (addOutsider, forget, register, removeOutsider)
import Weft.Internal.Os.Masked (pendAgain, uninterruptiblyMasked)
import Weft.Internal.Sync (andFinally, immediate)

-- | A run that takes in threads from outside.
data Runner = Runner !Home !(IORef Calls)

-- | The calls that are under way.
data Calls
  = -- | The next key, and what to do when the runner is closed.
    Open !Int !(IntMap (IO ()))
  | Closed

-- | The 'withRunner' has ended. The requested action did not happen, or was cancelled in the middle.
data RunnerClosed = RunnerClosed
  deriving stock (Eq)

instance Show RunnerClosed where
  show _ = "Weft.Outside: the runner is closed, because its withRunner has ended"

instance Exception RunnerClosed

-- | Take in threads from outside while a thread runs; they start on this worker. When it has ended,
-- calls that are under way fail with 'RunnerClosed' and their threads are cancelled.
--
-- While it is open threads that all wait for each other are not reported as a deadlock. The end of the
-- run closes it too, even if the thread was dropped ('Weft.settingGrace').
withRunner :: (Runner -> Thread a) -> Thread a
withRunner use = do
  (runner, end) <- internal $ \home _ -> do
    runner <- Runner home <$> newIORef (Open 0 IntMap.empty)
    addOutsider (homeAtEnd home)
    -- The run may end first: then this has no finally, and is dropped.
    end <- register (homeAtEnd home) (shut runner)
    pure (runner, end)
  andFinally (use runner) . immediate (Uses []) $ \home -> do
    forget (homeAtEnd home) end
    shut runner
    removeOutsider (homeAtEnd home)

-- | From now on calls fail, and so do those that are under way. Once.
shut :: Runner -> IO ()
shut (Runner _ calls) =
  atomicModifyIORef' calls (Closed,) >>= \case
    Open _ underWay -> sequenceA_ underWay
    Closed -> pure ()

-- | Run a thread and wait for it, in the masking state of the caller; its exceptions are raised here.
-- An asynchronous exception in the caller cancels the thread and waits for its end; a second one ends
-- that wait, unless the caller is masked. If the thread had succeeded, its result is returned and the
-- exception is pending again, so that a masked caller loses nothing; else the exception is raised.
--
-- Throws 'RunnerClosed'. Blocks the calling OS or GHC thread: not for use on a worker.
runThread :: Runner -> Thread a -> IO a
runThread (Runner home calls) body = mask $ \restore -> do
  masking <- restore getMaskingState
  result <- newEmptyMVar
  stage <- newIORef NotStarted
  let answer = void . tryPutMVar result
      thread = do
        t <- myself
        wanted <- immediate (Uses []) $ \_ -> atomicModifyIORef' stage $ \case
          NotStarted -> (Running t, True)
          other -> (other, False)
        -- Nothing is raised between here and the handler, nor after it: there is no system
        -- call, and no effect, in front of which one that has no fuel left may be cancelled.
        when wanted $ Catch.try (if masking == Unmasked then body else under masking body) >>= \outcome -> immediate (Uses []) (\here -> expect (homeGuests here) >> answer outcome)
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
          end <- if begun then patiently masking (readMVar result) `onException` leave key else pure (Left e)
          case end of
            Right _ -> end <$ pendAgain e
            Left _ -> pure (Left (e :: SomeException))
      leave key
      either throwIO pure outcome
  where
    patiently = \case
      Unmasked -> id
      _ -> uninterruptiblyMasked

-- | Where the thread of a call is.
data OutsideStage = NotStarted | Running !ThreadId | Dropped

-- | Start a thread and do not wait for it. An exception that leaves it is reported like that of any
-- thread. A runner that is closed later does not cancel it. Throws 'RunnerClosed'.
startThread :: Runner -> Thread () -> IO ()
startThread (Runner home calls) body =
  readIORef calls >>= \case
    Open _ _ -> begin home body
    Closed -> throwIO RunnerClosed

begin :: Home -> Thread () -> IO ()
begin home body = homePost home (homeStart home (newTcb nobody rootContext) (\_ -> toTrace body))

-- | Send a value to a channel; wait while there is no room. Throws as 'send' and 'runThread' do.
sendFrom :: Runner -> Channel a -> a -> IO ()
sendFrom runner channel = runThread runner . send channel

-- | Receive a value from a channel; wait while there is none. Throws as 'runThread' does; a value that
-- was received when an asynchronous exception came is lost, unless the caller is masked.
receiveFrom :: Runner -> Channel a -> IO (Maybe a)
receiveFrom runner = runThread runner . receive

-- | Perform plain 'IO' on a thread of GHC's own, and wait for its end. There it may do whatever GHC's threads
-- may: block, be thrown to, be cancelled by @System.Timeout.timeout@, ask for its
-- 'Control.Concurrent.myThreadId'. The thread is the action's until that ends; the next action may be given
-- another one. It takes no OS thread while it blocks, and costs about a kilobyte and, where the worker is
-- busy, a microsecond; for what blocks in a foreign call it is no better than 'Weft.blocking'. The function
-- that it is given performs operations as 'runThread' does, on this thread's worker, as does 'Weft.IO.await'.
--
-- It runs in the masking state of this thread, and its exceptions are raised here. What interrupts this
-- thread is thrown to the action, and its end is awaited: a result is delivered; if the action has
-- failed, what interrupts the thread is raised.
onGhcThread :: forall a. Runner -> ((forall x. Thread x -> IO x) -> IO a) -> Thread a
onGhcThread runner action = Thread $ \k -> unThread myself $ \_ -> internally $ \home tcb -> do
  control <- newJobControl
  let perform :: forall x. Thread x -> IO x
      perform = runThread (onWorker home)
      begin' waiter = do
        engage (homeAtEnd home) (homeGuests home) $
          runInterruptible control (stateMasking (tcbState tcb)) (hosted (Performer perform) (action perform))
            >>= void . deliver waiter . Answered
        -- With the masking state that the thread itself has: the end of the action decides, so
        -- the call itself is not interrupted, as with a transaction that waits.
        interruptible tcb (interruption tcb >>= mapM_ (interruptJob control))
        pure (pure ())
  pure . unThread (under MaskedUninterruptible (call (Suspend (because "an action on a thread of GHC's") begin'))) $ \case
    ByItself (Right a) -> k a
    ByItself (Left e) -> Throw e
    Interrupted e -> internally (\_ now -> maybe (Throw e) Throw <$> takeInterruption now)
  where
    onWorker home = let Runner _ calls = runner in Runner home calls
