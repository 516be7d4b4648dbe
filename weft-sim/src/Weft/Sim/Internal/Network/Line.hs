{-# OPTIONS_HADDOCK not-home #-}

-- | Threads that wait in line for the same thing. What may have to wait (to receive, to send, to
-- accept) is an 'Attempt': it does the whole of its work or nothing. It is tried when it is asked
-- for, and again whenever its 'Line' is served: so bytes move when their receiver is answered, and
-- one whose wait was cancelled before has moved none.
module Weft.Sim.Internal.Network.Line
  ( Attempt,
    blocked,
    success,
    refusal,
    andThen,
    Line,
    newLine,
    isDeserted,
    standIn,
    serve,
    sweep,
    dismiss,
    desert,
  )
where

import Control.Exception (SomeException)
import Control.Monad (unless, void, when)
import Data.Foldable (for_)
import Data.IORef
import Data.Int (Int64)
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Foreign.C.Error (Errno, eTIMEDOUT)
import Weft.Internal.Core.Trace (Trace, Why (..))
import Weft.Sim.Internal.Ticket
import Weft.Sim.Internal.World

-- | The result, if there can be one now. 'Nothing' means that nothing was done.
type Attempt a = IO (Maybe (Either SomeException a))

blocked :: Attempt a
blocked = pure Nothing

success :: a -> Attempt a
success a = pure (Just (Right a))

-- | It cannot be done: the operation's name and the reason.
refusal :: String -> Errno -> Attempt a
refusal what e = pure (Just (Left (failure what Nothing e)))

-- | Go on with the result, if there is one.
andThen :: Attempt a -> (a -> Attempt b) -> Attempt b
andThen attempt use =
  attempt >>= \case
    Just (Right a) -> use a
    Just (Left e) -> pure (Just (Left e))
    Nothing -> blocked

newtype Line = Line (IORef Queue)

-- The number of the next to come, and the threads that wait.
data Queue = Queue !Int !(IntMap Waiting)

data Waiting = Waiting
  { -- | Is it done now?
    waitingTry :: IO Bool,
    waitingRefuse :: Errno -> IO ()
  }

newLine :: IO Line
newLine = Line <$> newIORef (Queue 0 IntMap.empty)

isDeserted :: Line -> IO Bool
isDeserted (Line ref) = readIORef ref >>= \(Queue _ ws) -> pure $! IntMap.null ws

-- | Answer a call of this name with an attempt: at once if none waits before it and it can be done,
-- or when its turn has come, or with @ETIMEDOUT@ at the limit.
standIn :: Why -> Line -> String -> Maybe Int64 -> Attempt a -> Answering a
standIn why line what limit attempt ask k = do
  first <- isDeserted line
  result <- if first then attempt else blocked
  case result of
    Nothing -> wait why line what limit attempt ask k
    -- Through the ready queue, so that the policy decides between it and others.
    Just r | Accepted <- why -> park ask k (\ticket -> pure () <$ settle ticket why r)
    Just r -> answer why ask k r
{-# INLINE standIn #-}

wait :: Why -> Line -> String -> Maybe Int64 -> Attempt a -> Ask -> (a -> Trace) -> IO Trace
wait why line what limit attempt ask k = park ask k $ \ticket -> do
  let enter done =
        enterLine line $
          Waiting
            { waitingTry =
                attempt >>= \case
                  Nothing -> pure False
                  Just r -> True <$ (done >> settle ticket why r),
              waitingRefuse = \e -> done >> void (settle ticket why (Left (failure what Nothing e)))
            }
  case limit of
    Nothing -> giveUp <$> enter (pure ())
    Just instant -> do
      place <- newIORef (-1)
      let events = worldEvents (askWorld ask)
      alarm <- at events instant $ do
        void (settle ticket why (Left (failure what Nothing eTIMEDOUT)))
        readIORef place >>= giveUp
      key <- enter (void (revoke events alarm))
      writeIORef place key
      pure (void (revoke events alarm) >> giveUp key)
  where
    -- The next in line may want less.
    giveUp key = leave line key >> serve line

enterLine :: Line -> Waiting -> IO Int
enterLine (Line ref) w = do
  Queue n ws <- readIORef ref
  n <$ writeIORef ref (Queue (n + 1) (IntMap.insert n w ws))

leave :: Line -> Int -> IO ()
leave (Line ref) key = modifyIORef' ref (\(Queue n ws) -> Queue n (IntMap.delete key ws))

-- | Try a thread that waits. It is not in the line meanwhile: an attempt that succeeds may make this
-- line be served again before it is answered, and must not be tried twice.
tryNow :: Line -> Int -> Waiting -> IO Bool
tryNow line@(Line ref) key w = do
  leave line key
  done <- waitingTry w
  done <$ unless done (modifyIORef' ref (\(Queue n ws) -> Queue n (IntMap.insert key w ws)))

-- | Something has changed: try the threads that wait, in order, up to the first that must go on.
serve :: Line -> IO ()
serve line@(Line ref) = do
  Queue _ ws <- readIORef ref
  for_ (IntMap.lookupMin ws) $ \(key, w) -> do
    done <- tryNow line key w
    when done (serve line)

-- | Try every thread that waits, in order: they wait for different things.
sweep :: Line -> IO ()
sweep line@(Line ref) = do
  Queue _ ws <- readIORef ref
  for_ (IntMap.toList ws) $ \(key, w) -> do
    Queue _ now <- readIORef ref
    when (IntMap.member key now) (void (tryNow line key w))

dismiss :: Line -> Errno -> IO ()
dismiss (Line ref) e = do
  Queue n ws <- readIORef ref
  unless (IntMap.null ws) $ do
    writeIORef ref (Queue n IntMap.empty)
    for_ ws (`waitingRefuse` e)

desert :: Line -> IO ()
desert (Line ref) = modifyIORef' ref (\(Queue n _) -> Queue n IntMap.empty)
