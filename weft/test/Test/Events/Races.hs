{-# LANGUAGE BlockArguments #-}

-- |
-- Description : An event manager and several threads
module Test.Events.Races
  ( races,
  )
where

import Control.Concurrent
import Control.Concurrent.STM (atomically)
import Control.Exception
import Control.Monad (forM_, replicateM, replicateM_, unless, void, when, (>=>))
import Data.IORef
import GHC.Conc (BlockReason (..), ThreadStatus (..), threadStatus)
import System.Environment (lookupEnv)
import Test.Events.Rig
import Test.Signals (waitsOutSignals)
import Test.Tasty
import Test.Tasty.HUnit
import Weft.EventManager
import Weft.Internal.Data.Time

-- | Waking, waiting, and closing under each other's hands.
races :: Rig -> TestTree
races rig =
  testGroup
    (rigName rig)
    [ testCase "wake ends a wait, also one that has not begun" $ withRig rig \m _ _ -> do
        wake m
        step m Nothing >>= (@?= 0)
        answer <- forked (step m Nothing)
        wake m
        takeMVar answer >>= either throwIO (@?= 0),
      testCase "stop ends a loop, also one that has not begun" $ withRig rig \m _ _ -> do
        stop m
        loop m
        answer <- forked (loop m)
        stop m
        takeMVar answer >>= either throwIO pure,
      testCase "signals do not end a wait" $ withRig rig \m _ _ -> do
        _ <- step m (Just (nanoseconds 0))
        waitsOutSignals (step m . Just . nanoseconds . fromIntegral),
      testCase "freeing ends a loop and tells those who wait" $ withRig rig \_ new _ -> withLink new \link -> do
        (source, _, _) <- rigMake rig
        m <- newEventManager source
        looping <- forked (loop m)
        waiting <- forked (waitReadable m (linkNear link))
        delayed <- forked (delay m (seconds 3600))
        timer <- startTimer m (seconds 3600)
        -- Earlier posts are known to the loop when this delay has ended.
        delay m (nanoseconds 0)
        freeEventManager m
        takeMVar looping >>= either throwIO pure
        takeMVar waiting >>= isIOError "waitReadable"
        takeMVar delayed >>= isIOError "delay"
        atomically (awaitTimer timer) >>= (@?= False),
      testCase "freeing waits for a close that is going on, and those are told for whom it was" $ withRig rig \_ new _ -> withLink new \link -> do
        (source, _, _) <- rigMake rig
        m <- newEventManager source
        told <- newEmptyMVar
        _ <- register m (linkNear link) toRead OneShot \_ e -> putMVar told e
        begun <- newEmptyMVar
        go <- newEmptyMVar
        closing <- forked (closeWith m (linkNear link) \fd -> putMVar begun () >> takeMVar go >> closeNear link fd)
        takeMVar begun
        freed <- newEmptyMVar
        freeing <- forkIO (try (freeEventManager m) >>= putMVar freed)
        becomes freeing (ThreadBlocked BlockedOnMVar)
        putMVar go ()
        takeMVar closing >>= either throwIO pure
        takeMVar freed >>= either (throwIO :: SomeException -> IO ()) pure
        tryTakeMVar told >>= (@?= Just closed),
      testCase "freeing that was interrupted while it waited for a step can be tried again" $ withRig rig \_ new _ -> withLink new \link -> do
        (source, _, _) <- rigMake rig
        m <- newEventManager source
        told <- newEmptyMVar
        begun <- newEmptyMVar
        go <- newEmptyMVar
        ended <- newEmptyMVar
        _ <- register m (linkNear link) toRead OneShot \_ e -> putMVar told e
        _ <- setTimeout m (nanoseconds 0) (putMVar begun () >> takeMVar go)
        stepping <- forked (step m Nothing)
        takeMVar begun
        freeing <- forkIO (try (freeEventManager m) >>= putMVar ended)
        becomes freeing (ThreadBlocked BlockedOnMVar)
        killThread freeing
        takeMVar ended >>= (@?= Left ThreadKilled)
        putMVar go ()
        takeMVar stepping >>= either throwIO (@?= 1)
        tryTakeMVar told >>= (@?= Nothing)
        freeEventManager m
        tryTakeMVar told >>= (@?= Just closed),
      testCase "freeing ends a loop that is between two steps" . replicateM_ 200 $ withRig rig \_ _ _ -> do
        (source, _, _) <- rigMake rig
        m <- newEventManager source
        looping <- forked (loop m)
        replicateM_ 3 (wake m >> yield)
        freeEventManager m
        takeMVar looping >>= either throwIO pure,
      testCase "waiting for a descriptor" $ withLoopOf \m new -> withLink new \link -> do
        waitWritable m (linkNear link) >>= (@?= writable)
        choke link
        writes <- forked (waitWritable m (linkNear link))
        reads' <- forked (waitReadable m (linkNear link))
        fill link
        takeMVar reads' >>= either throwIO (@?= readable)
        unchoke link
        takeMVar writes >>= either throwIO (@?= writable),
      testCase "closing ends waits with an error" $ withLoopOf \m new -> withLink new \link -> do
        answers <- replicateM 10 (forked (waitReadable m (linkNear link)))
        -- Threads that come too late find the number closed.
        closeWith m (linkNear link) (closeNear link)
        forM_ answers (takeMVar >=> isIOError "a wait"),
      testCase "an interrupted wait leaves nothing behind" $ withLoopOf \m new -> withLink new \link -> do
        entered <- newEmptyMVar
        ended <- newEmptyMVar
        t <- mask_ $ forkIOWithUnmask \unmask ->
          (putMVar entered () >> unmask (void (waitReadable m (linkNear link)))) `catch` \e -> putMVar ended (show (e :: AsyncException))
        takeMVar entered
        killThread t
        takeMVar ended >>= (@?= "thread killed")
        fill link
        waitReadable m (linkNear link) >>= (@?= readable),
      testCase "10,000 threads delay for a millisecond" $ withLoopOf \m _ -> do
        answers <- replicateM 10_000 (forked (delay m (milliseconds 1)))
        forM_ answers (takeMVar >=> either throwIO pure),
      testCase "timeouts are put off, brought forward and cancelled by two threads" $ withLoopOf \m _ -> do
        ran <- newIORef (0 :: Int)
        replicateM_ 500 do
          done <- newEmptyMVar
          timeout <- setTimeout m (microseconds 300) (atomicModifyIORef' ran (\n -> (n + 1, ())) >> putMVar done True)
          other <- forked (forM_ [1 .. 20] \n -> updateTimeout timeout (microseconds (20 * n)))
          forM_ [1 .. 20] \n -> updateTimeout timeout (microseconds (200 - 10 * n))
          takeMVar other >>= either throwIO pure
          cancelled <- cancelTimeout timeout
          when cancelled $ putMVar done False
          takeMVar done >>= \r -> r @?= not cancelled,
      testCase "two threads register, close and reuse a number" $ withLoopOf \m _ -> contend rig m
    ]
  where
    withLoopOf body = do
      (source, new, _) <- rigMake rig
      withLoop source (`body` new)

-- | Each thread makes descriptors, registers for them and closes them; the numbers are the
-- same ones again and again, and go from one thread to the other. Every registration ends
-- once, by what happens to its own descriptor. (How often: `make reuses` asks for 100,000.)
contend :: Rig -> EventManager -> Assertion
contend rig m = do
  (_, new, _) <- rigMake rig
  count <- maybe 2_000 read <$> lookupEnv "WEFT_REUSES"
  answers <- replicateM 2 . forked $ replicateM_ count do
    told <- newEmptyMVar
    link <- new
    _ <- register m (linkNear link) toRead OneShot \_ e -> putMVar told e
    dropped <- register m (linkNear link) toWrite Persistent \_ _ -> pure ()
    _ <- unregister dropped
    closeWith m (linkNear link) (closeNear link)
    takeMVar told >>= (@?= closed)
    next <- new
    _ <- register m (linkNear next) toRead OneShot \_ e -> putMVar told e
    fill next
    takeMVar told >>= (@?= readable)
    release next
    release link
  forM_ answers (takeMVar >=> either throwIO pure)

-- | Wait until a thread has this status.
becomes :: ThreadId -> ThreadStatus -> IO ()
becomes t status = threadStatus t >>= \s -> unless (s == status) (yield >> becomes t status)

forked :: IO a -> IO (MVar (Either SomeException a))
forked action = do
  answer <- newEmptyMVar
  _ <- forkIO (try action >>= putMVar answer)
  pure answer

isIOError :: String -> Either SomeException a -> Assertion
isIOError what = \case
  Left e | Just (_ :: IOException) <- fromException e -> pure ()
  Left e -> assertFailure (what <> " threw " <> show e)
  Right _ -> assertFailure (what <> " came to an end")
