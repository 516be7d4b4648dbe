-- |
-- Description : Where an application runs
-- Stability   : not home
--
-- A WAI application is plain 'IO' that now and then wants something of its connection. It
-- runs as a direct thread, or on a thread of GHC's own; either way it is given a function
-- that performs operations of threads.
module Weft.Wai.Internal.Perform
  ( ApplicationStyle (..),
    Perform (..),
    styled,
    awaiting,
  )
where

import Control.Concurrent (forkIO, forkIOWithUnmask, throwTo)
import Control.Concurrent.MVar
import Control.Exception (SomeException, throwIO)
import Control.Exception qualified as E
import Control.Monad (void, when)
import Data.IORef
import Weft
import Weft.IO (CannotSuspend (..), await, direct)
import Weft.Kernel (Outcome (..), deliver, suspend)
import Weft.Mask (uninterruptibleMask_)
import Weft.Outside (Runner, runThread, withRunner)

-- | What runs an application.
data ApplicationStyle
  = -- | The thread of the connection, on its worker, as a direct thread ("Weft.IO"): the
    -- fast one. The application must not be interrupted by GHC's asynchronous exceptions
    -- (@System.Timeout.timeout@) while it waits for its client.
    Direct
  | -- | A thread of GHC's own for each request, as under Warp: an application may block as
    -- it likes, and @timeout@, @throwTo@ and @myThreadId@ mean what they always do. Each
    -- operation on the connection crosses between OS threads.
    OwnThread
  deriving stock (Eq, Show, Enum, Bounded)

-- | Perform an operation of a thread in 'IO'.
newtype Perform = Perform (forall a. Thread a -> IO a)

-- Note [Where nothing can be suspended]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- A direct thread cannot be suspended inside the evaluation of a value, as when the body is
-- read lazily (`lazyRequestBody`), nor outside of itself, as when an application has its
-- response sent by a thread it has forked (`race`). There the operation is handed to a
-- thread of Weft's own, and GHC's waits for it. In the first case it holds up the worker,
-- which others then take over (within 20 ms); in the second the connection's thread waits
-- for the forked one, with the same effect.
--
-- `await` says that it cannot before it has begun. An exception of the operation itself may
-- say the same, hence the flag.

-- | Run an application on behalf of this thread.
styled :: ApplicationStyle -> Runner -> (Perform -> IO a) -> Thread a
styled style runner run' = case style of
  Direct -> direct (run' (awaiting runner))
  OwnThread -> onOwnThread run'

-- | Inside a direct thread.
awaiting :: Runner -> Perform
awaiting runner = Perform (awaitOrHandOver runner)

awaitOrHandOver :: Runner -> Thread a -> IO a
awaitOrHandOver runner operation = do
  begun <- newIORef False
  E.try (await (liftIO (writeIORef begun True) >> operation)) >>= \case
    Right a -> pure a
    Left e -> do
      inside <- readIORef begun
      if inside || e /= NothingToSuspend then throwIO e else runThread runner operation

-- | On a thread of GHC's, whose end this one awaits. What interrupts this one is raised
-- there, and when that has ended here.
onOwnThread :: (Perform -> IO a) -> Thread a
onOwnThread run' = mask $ \restore -> withRunner $ \runner -> do
  ended <- liftIO newEmptyMVar
  waiting <- liftIO (newIORef Nothing)
  thread <- liftIO $ forkIOWithUnmask $ \unmask -> do
    E.try (unmask (run' (Perform (runThread runner)))) >>= putMVar ended
    readIORef waiting >>= mapM_ (\waiter -> void (deliver waiter (Answered ())))
  let awaitEnd = do
        suspend "its application, on a thread of GHC's" $ \waiter -> do
          writeIORef waiting (Just waiter)
          over <- not <$> isEmptyMVar ended
          when over (void (deliver waiter (Answered ())))
        liftIO (readMVar ended)
  outcome <-
    restore awaitEnd `catch` \e -> do
      -- Not by this thread, which must not block until the exception is received.
      _ <- liftIO . forkIO $ throwTo thread (e :: SomeException)
      void (uninterruptibleMask_ awaitEnd)
      throwM e
  liftIO (either (throwIO :: SomeException -> IO a) pure outcome)
