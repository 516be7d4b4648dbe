{-# LANGUAGE MultiWayIf #-}
{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Cancellations that race with what they interrupt
--
-- Litmus programs, each with every outcome that is allowed, run many times.
module Weft.Conformance.Races (races) where

import Control.Exception (ErrorCall (..), SomeException, fromException)
import Control.Monad (forM_, forever, replicateM, replicateM_)
import Data.ByteString qualified as ByteString
import Data.IORef
import Data.Maybe (isJust)
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Conformance.Check
import Weft.Conformance.Connecting (receiveExactly, unixPair)
import Weft.Conformance.Litmus
import Weft.Conformance.Waiting
import Weft.Conformance.World
import Weft.Kernel (Outcome (..), Waiter, deliver, suspend)
import Weft.Mask (mask_)
import Weft.Socket

-- | Fork on the other worker, if there is one; the result waits for its end.
beside :: Thread () -> Thread (ThreadId, Thread ())
beside body = do
  ended <- newGate
  t <- forkWith defaultForkOptions {forkWorker = Just 1} (mask (\restore -> restore body `finally` openGate ended ()))
  pure (t, waitGate ended)

-- | A place where the action of a 'suspend' leaves its waiter, and where another
-- thread waits for that.
handing :: Thread (Waiter () -> IO (), Thread (Waiter ()))
handing = liftIO $ do
  place <- newIORef Nothing
  let look = maybe (yield >> look') pure =<< liftIO (readIORef place)
      look' = eventually "a value" (isJust <$> readIORef place) >> look
  pure (writeIORef place . Just, look)

-- | Threads that cancel themselves are here, on one worker; then the outcome is certain.
races :: World -> TestTree
races world =
  testGroup
    "cancellation litmus"
    [ litmus world "a thread that is cancelled before it begins reaches its first system call" (["began", "finalizer"] : [["began", "later", "finalizer"] | anyOrder world]) $ \say -> do
        ended <- newGate
        t <- fork (mask (\restore -> (say "began" >> restore (yield >> say "later")) `finally` say "finalizer") `finally` openGate ended ())
        cancel t
        waitGate ended,
      litmus world "a thread that cancels itself gets no further than its next system call" [["here", "finalizer"]] $ \say -> do
        (_, wait) <- beside ((myThreadId >>= cancel >> say "here" >> yield >> say "there") `finally` say "finalizer")
        wait,
      litmus world "several cancellations are raised in the order in which they came" [["1", "2", "Cancelled"]] $ \say -> do
        me <- myThreadId
        mask_ (cancelWith me (ErrorCall "1") >> cancelWith me (ErrorCall "2") >> cancel me)
        replicateM_ 3 (yield `catch` \e -> say (either (\(ErrorCall m) -> m) (const "Cancelled") (classify' e)))
        yield,
      litmus world "a handler is not interrupted before it waits" [["caught", "in the handler", "interrupted", "after"]] $ \say -> do
        me <- myThreadId
        r <- try $ do
          (cancel me >> yield) `catch` \Cancelled -> do
            say "caught"
            cancel me
            yield
            say "in the handler"
            block `catch` \Cancelled -> say "interrupted"
          say "after"
        r `is` (Right () :: Either Cancelled ()),
      litmus world "cancelling a thread that has ended does nothing" [["ended"]] $ \say -> do
        (t, wait) <- beside (say "ended")
        wait
        replicateM_ 3 (cancel t)
        yield,
      litmus
        world
        "an answer against a cancellation: the answer, and then the cancellation; or the cancellation alone, and the answer is refused"
        [["delivered True", "answered", "cancelled at the next call"], ["answered", "delivered True", "cancelled at the next call"], ["answered", "cancelled at the next call", "delivered True"], ["delivered False", "cancelled"], ["cancelled", "delivered False"]]
        $ \say -> do
          (handOver, taken) <- handing
          (t, wait) <- beside $ do
            r <- try (suspend "an answer" handOver)
            case r of
              Right () -> say "answered" >> (block `catch` \Cancelled -> say "cancelled at the next call")
              Left Cancelled -> say "cancelled"
          waiter <- taken
          cancel t
          won <- liftIO (deliver waiter (Answered ()))
          say ("delivered " <> show won)
          wait,
      litmus world "an answer before the cancellation is not lost" [["answered", "cancelled at the next call"]] $ \say -> do
        (handOver, taken) <- handing
        (t, wait) <- beside $ do
          r <- try (suspend "an answer" handOver)
          case r of
            Right () -> say "answered" >> (block `catch` \Cancelled -> say "cancelled at the next call")
            Left Cancelled -> say "cancelled"
        waiter <- taken
        won <- liftIO (deliver waiter (Answered ()))
        won `is` True
        cancel t
        wait,
      litmusIn world "bytes that are there against a cancellation: received whole, or still there" [["received"], ["still there"]] $ \dir say -> do
        (a, b) <- unixPair dir
        got <- liftIO (newIORef ByteString.empty)
        (t, wait) <- beside (mask_ (receive a 10 >>= liftIO . writeIORef got))
        yield
        sendAll b "bytes"
        cancel t
        wait
        taken <- liftIO (readIORef got)
        left <- receiveExactly a (5 - ByteString.length taken)
        say $
          if
            | taken <> left /= "bytes" -> "lost " <> show (taken, left)
            | ByteString.null taken -> "still there"
            | ByteString.null left || worldCuts world -> "received"
            | otherwise -> "torn " <> show taken
        mapM_ closeSocket [a, b],
      litmus world "two cancellers at once: both arrive" [["first", "second"]] $ \say -> do
        (t, wait) <- beside . mask_ $ do
          block `catch` \Cancelled -> say "first"
          block `catch` \Cancelled -> say "second"
        (_, other) <- beside (cancel t)
        cancel t
        other
        wait,
      testCase "threads that move between workers are found, each once" $ do
        hits <- newIORef (0 :: Int)
        let laps = worldRounds world 10
        running world . replicateM_ laps $ do
          -- All begin here; the surplus moves to the worker that sleeps, while they are
          -- cancelled.
          ts <- replicateM 500 (fork (forever yield `catch` \Cancelled -> liftIO (atomicModifyIORef' hits (\n -> (n + 1, ())))))
          replicateM_ 3 yield
          forM_ ts cancel
          forM_ ts (eventually "its end" . hasEnded)
        readIORef hits >>= (@?= 500 * laps)
    ]
  where
    classify' :: SomeException -> Either ErrorCall ()
    classify' e = maybe (Right ()) Left (fromException e)
