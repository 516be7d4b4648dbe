-- |
-- Description : Conditions under exploration
module Explore.Condition (scenarios) where

import Control.Monad (forM_, replicateM_, void, when)
import Control.Monad.Catch (Handler (..), catches)
import Data.IORef
import Explore.Draw
import Explore.Scenario
import Weft
import Weft.Condition
import Weft.Mask (mask_)
import Weft.Mutex (Mutex, MutexError, isHeld, newMutex, tryLock, unlock, withMutex)

scenarios :: [Scenario]
scenarios =
  [ small "condition/buffer" 2 "a producer and two consumers with room for one value" (buffer [False] 2),
    small "condition/cancelled" 3 "a thread that is cancelled at any time holds the mutex when wait throws, and leaves it free" (buffer [True] 2),
    small "condition/early" 2 "a thread that is cancelled just before it waits gets the cancellation, and nothing else" early,
    small "condition/signal" 2 "one signal wakes one that waits, and not one that was cancelled" signals,
    small "condition/broadcast" 2 "a broadcast wakes all" broadcasts,
    small "condition/not-held" 2 "to wait without the mutex fails, and does not take it" notHeld,
    drawn "condition/random" "producers and consumers of a buffer, some of them cancelled" random
  ]

-- | Wait until it is so.
untilSo :: IO Bool -> Condition -> Mutex -> Thread ()
untilSo so changed mutex = liftIO so >>= \is -> if is then pure () else wait changed mutex >> untilSo so changed mutex

-- | A place for one value; a consumer for each flag, which says whether it is cancelled.
buffer :: [Bool] -> Int -> Thread Complaints
buffer consumers values = do
  mutex <- newMutex
  changed <- newCondition
  place <- liftIO (newIORef [])
  log' <- newLog
  let produce n = withMutex mutex (untilSo (null <$> readIORef place) changed mutex >> liftIO (writeIORef place [n]) >> broadcast changed)
      consume = withMutex mutex . mask_ $ do
        untilSo (not . null <$> readIORef place) changed mutex
        n <- liftIO (readIORef place <* writeIORef place [])
        say log' n
        broadcast changed
  _ <- forkOn 0 (mapM_ produce [1 .. values])
  threads <- spread (replicate values consume <> [consume | True <- consumers])
  forM_ (zip threads consumers) $ \(t, doomed) -> when doomed . void $ forkOn 1 (cancel t)
  quiet
  got <- said log'
  free <- tryLock mutex
  when free (unlock mutex)
  pure (expectEqual "values in the order in which they came" [1 .. values] (concat got) <> expect "the mutex is held" free)

early :: Thread Complaints
early = do
  mutex <- newMutex
  changed <- newCondition
  waiter <- forkOn 0 (withMutex mutex (wait changed mutex))
  _ <- forkOn 0 (cancel waiter)
  quiet
  expect "the mutex is held" . not <$> isHeld mutex

signals :: Thread Complaints
signals = do
  mutex <- newMutex
  changed <- newCondition
  log' <- newLog
  threads <- spread [withMutex mutex (mask_ (wait changed mutex >> say log' i)) | i <- [1, 2 :: Int]]
  quiet
  _ <- forkOn 0 (mapM_ cancel (take 1 threads))
  _ <- forkOn 1 (signal changed)
  quiet
  got <- said log'
  held <- isHeld mutex
  pure (expectEqual "how many were woken" 1 (length got) <> expect "the mutex is held" (not held))

broadcasts :: Thread Complaints
broadcasts = do
  mutex <- newMutex
  changed <- newCondition
  log' <- newLog
  _ <- spread (replicate 2 (withMutex mutex (wait changed mutex >> say log' ())))
  quiet
  withMutex mutex (broadcast changed)
  quiet
  expectEqual "how many were woken" 2 . length <$> said log'

notHeld :: Thread Complaints
notHeld = do
  mutex <- newMutex
  changed <- newCondition
  log' <- newLog
  _ <- spread [wait changed mutex `catches` [Handler (\e -> say log' (e :: MutexError))]]
  _ <- forkOn 1 (withMutex mutex yield)
  quiet
  got <- said log'
  held <- isHeld mutex
  pure (expectEqual "how many were told" 1 (length got) <> expect "the mutex is held" (not held))

random :: Draw (Thread Complaints)
random = do
  producers <- several 1 3 (between 1 2)
  consumers <- several 1 3 (between 1 2)
  room <- between 1 2
  blows <- several 0 3 ((,) <$> between 0 (length producers + length consumers - 1) <*> between 0 12)
  pure $ do
    mutex <- newMutex
    free <- newCondition
    full <- newCondition
    content <- liftIO (newIORef [])
    sent <- newLog
    got <- newLog
    let produce = withMutex mutex . mask_ $ do
          untilSo ((< room) . length <$> readIORef content) free mutex
          liftIO (modifyIORef' content (<> [()]))
          say sent ()
          broadcast full
        consume = withMutex mutex . mask_ $ do
          untilSo (not . null <$> readIORef content) full mutex
          liftIO (modifyIORef' content (drop 1))
          say got ()
          broadcast free
    threads <- spread ([replicateM_ n produce | n <- producers] <> [replicateM_ n consume | n <- consumers])
    forM_ (zip [0 ..] blows) $ \(w, (target, turns)) -> forkOn w (replicateM_ turns yield >> cancel (threads !! target))
    quiet
    lockable <- tryLock mutex
    when lockable (unlock mutex)
    mapM_ cancel threads
    quiet
    put <- length <$> said sent
    taken <- length <$> said got
    left <- length <$> liftIO (readIORef content)
    held <- isHeld mutex
    pure . concat $
      [ expect "the mutex is held when nobody can run" lockable,
        expect "the mutex is held at the end" (not held),
        expectEqual "what is left" (put - taken) left
      ]
