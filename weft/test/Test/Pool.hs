{-# LANGUAGE BlockArguments #-}

-- |
-- The pool of OS threads for what blocks.
module Test.Pool
  ( tests,
  )
where

import Control.Concurrent (yield)
import Control.Concurrent.MVar
import Control.Exception
import Control.Monad
import Data.Foldable (for_)
import Data.IORef
import GHC.Conc (getUncaughtExceptionHandler, setUncaughtExceptionHandler)
import System.Timeout (timeout)
import Test.Rig (withPool)
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Internal.Core.Interrupt
import Weft.Internal.Os.Masked (inMasking)
import Weft.Internal.Os.Pool
import Weft.Test.Waiting (eventuallyIO)
import Weft.Time (microseconds, milliseconds)

-- | The pool alone.
tests :: TestTree
tests =
  testGroup
    "pool"
    [ testCase "every job runs once" $ withPool settings \pool -> do
        count <- newIORef (0 :: Int)
        dones <- replicateM 500 do
          done <- newEmptyMVar
          _ <- submitPool pool (atomicModifyIORef' count (\n -> (n + 1, ())) >> putMVar done ())
          pure done
        mapM_ soon dones
        readIORef count >>= (@?= 500),
      testCase "no more threads than allowed, and all of those" $ withPool settings \pool -> do
        gate <- newEmptyMVar
        inside <- newMVar (0 :: Int)
        dones <- replicateM 10 do
          done <- newEmptyMVar
          _ <- submitPool pool do
            modifyMVar_ inside (pure . (+ 1))
            readMVar gate
            putMVar done ()
          pure done
        eventuallyIO "three jobs at a time" ((== 3) <$> readMVar inside)
        g <- poolGauge pool
        g @?= PoolGauge {gaugeThreads = 3, gaugeIdle = 0, gaugeWaiting = 7}
        putMVar gate ()
        mapM_ soon dones,
      testCase "jobs that wait run in order" $ withPool settings {poolMaxThreads = 1} \pool -> do
        gate <- newEmptyMVar
        order <- newIORef []
        done <- newEmptyMVar
        _ <- submitPool pool (readMVar gate)
        for_ [1 .. 20 :: Int] \i -> submitPool pool (modifyIORef' order (i :))
        _ <- submitPool pool (putMVar done ())
        putMVar gate ()
        soon done
        readIORef order >>= (@?= reverse [1 .. 20]),
      testCase "a job that waits is withdrawn, one that runs is not" $ withPool settings {poolMaxThreads = 1} \pool -> do
        gate <- newEmptyMVar
        ran <- newIORef False
        running <- submitPool pool (readMVar gate)
        waits <- submitPool pool (writeIORef ran True)
        cancelPool waits >>= (@?= True)
        cancelPool waits >>= (@?= False)
        cancelPool running >>= (@?= False)
        gauge <- poolGauge pool
        gaugeWaiting gauge @?= 0
        done <- newEmptyMVar
        _ <- submitPool pool (putMVar done ())
        putMVar gate ()
        soon done
        readIORef ran >>= (@?= False),
      testCase "withdrawn or run, never both and never neither" $ withPool settings \pool -> do
        outcomes <- replicateM 2_000 do
          ran <- newIORef (0 :: Int)
          job <- submitPool pool (atomicModifyIORef' ran \n -> (n + 1, ()))
          withdrawn <- cancelPool job
          pure (withdrawn, ran)
        shutdownPool pool
        for_ outcomes \(withdrawn, ran) -> readIORef ran >>= (@?= if withdrawn then 0 else 1),
      testCase "a job that throws kills nothing and is reported" $ withPool settings {poolMaxThreads = 1} \pool -> do
        reports <- newIORef (0 :: Int)
        let quiet _ = atomicModifyIORef' reports \n -> (n + 1, ())
        bracket (getUncaughtExceptionHandler <* setUncaughtExceptionHandler quiet) setUncaughtExceptionHandler \_ -> do
          for_ [1 .. 5 :: Int] \_ -> submitPool pool (throwIO (userError "a bug"))
          done <- newEmptyMVar
          _ <- submitPool pool (putMVar done ())
          soon done
        readIORef reports >>= (@?= 5)
        gauge <- poolGauge pool
        gaugeThreads gauge @?= 1,
      testCase "a thread is used again" $ withPool settings \pool -> for_ [1 .. 200 :: Int] \_ -> do
        done <- newEmptyMVar
        _ <- submitPool pool (putMVar done ())
        soon done
        eventuallyIO "the thread is idle" ((>= 1) . gaugeIdle <$> poolGauge pool)
        gauge <- poolGauge pool
        gaugeThreads gauge @?= 1,
      testCase "without a job no thread stays" $ withPool settings {poolIdle = milliseconds 1} \pool -> do
        gauge <- poolGauge pool
        gaugeThreads gauge @?= 0
        dones <- replicateM 10 do
          done <- newEmptyMVar
          done <$ submitPool pool (putMVar done ())
        mapM_ soon dones
        eventuallyIO "no thread" ((== PoolGauge 0 0 0) <$> poolGauge pool),
      testCase "nor does one that was started by somebody masked, as a worker is" $ withPool settings {poolIdle = milliseconds 1} \pool -> do
        done <- newEmptyMVar
        _ <- uninterruptibleMask_ (submitPool pool (putMVar done ()))
        soon done
        eventuallyIO "no thread" ((== PoolGauge 0 0 0) <$> poolGauge pool),
      testCase "a thread that retires loses no job" $ withPool settings {poolIdle = microseconds 1} \pool ->
        for_ [1 .. 2_000 :: Int] \_ -> do
          done <- newEmptyMVar
          _ <- submitPool pool (putMVar done ())
          soon done,
      testCase "shutdown waits for what was taken, and takes no more" do
        pool <- newPool settings {poolMaxThreads = 2}
        gate <- newEmptyMVar
        count <- newIORef (0 :: Int)
        for_ [1 .. 20 :: Int] \_ -> submitPool pool (readMVar gate >> atomicModifyIORef' count \n -> (n + 1, ()))
        putMVar gate ()
        shutdownPool pool
        readIORef count >>= (@?= 20)
        shutdownPool pool
        try (submitPool pool (pure ())) >>= \case
          Left PoolClosed -> pure ()
          Right _ -> assertFailure "a closed pool took a job"
        gauge <- poolGauge pool
        gaugeThreads gauge @?= 0,
      testCase "an unused pool shuts down" $ newPool settings >>= shutdownPool,
      testGroup
        "interrupting a job"
        [ testCase "before it begins: it never does" do
            begun <- newIORef False
            control <- newJobControl
            end control
            runs control (writeIORef begun True) >>= interrupted
            readIORef begun >>= (@?= False),
          testCase "while it waits" do
            control <- newJobControl
            runs control (end control >> newEmptyMVar >>= takeMVar) >>= interrupted,
          testCase "at any time: it ends, and the next one is not hit" $ withPool settings {poolMaxThreads = 1} \pool ->
            for_ [1 .. 500 :: Int] \i -> do
              control <- newJobControl
              done <- newEmptyMVar
              _ <- submitPool pool (runs control (newEmptyMVar >>= takeMVar) >>= putMVar done)
              replicateM_ (i `mod` 7) yield
              end control
              soon done >>= interrupted
              next <- newEmptyMVar
              _ <- submitPool pool (inMasking Unmasked (try (evaluate (sum [1 .. i]))) >>= putMVar next)
              soon next >>= either (\e -> assertFailure (show (e :: SomeException))) (@?= sum [1 .. i])
        ]
    ]

interrupted :: (HasCallStack) => JobEnd () -> Assertion
interrupted = \case
  Interrupted e | Just JobInterrupted <- fromException e -> pure ()
  Interrupted e -> assertFailure (show e)
  ByItself outcome -> assertFailure (show outcome)

runs :: JobControl -> IO a -> IO (JobEnd a)
runs control = uninterruptibleMask_ . runInterruptible control Unmasked

end :: JobControl -> IO ()
end control = interruptJob control (toException JobInterrupted)

settings :: PoolSettings
settings = defaultPoolSettings {poolMaxThreads = 3}

soon :: (HasCallStack) => MVar a -> IO a
soon done = timeout 60_000_000 (takeMVar done) >>= maybe (assertFailure "a job never ended") pure
