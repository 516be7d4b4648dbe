{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : The end of a run, from outside and for the stubborn
--
-- That the end of a run releases everything is a test of "Weft.Conformance"; here it is
-- ended by an exception to its caller, and does not wait for ever.
module Test.Ending (tests) where

import Control.Concurrent (forkIO, killThread, newEmptyMVar, putMVar, takeMVar)
import Control.Exception (SomeException)
import Control.Exception qualified as Exception
import Control.Monad (forM_)
import Data.IORef
import Data.List (isInfixOf)
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Mask (uninterruptibleMask_)
import Weft.Time (minutes)

tests :: TestTree
tests =
  testGroup
    "Ending"
    [ testGroup "an exception thrown to the caller of run" [testCase (describeConfig c) (interrupted c) | c <- configurations],
      testCase "what does not end in time is reported by label, and dropped" reported
    ]

interrupted :: Config -> Assertion
interrupted c = do
  begun <- newEmptyMVar
  ended <- newEmptyMVar
  finalized <- newIORef (0 :: Int)
  t <- forkIO $ do
    x <- Exception.try . runWith (settingsFor c) $ do
      fork_ (sleep (minutes 60) `finally` liftIO (atomicModifyIORef' finalized (\n -> (n + 1, ()))))
      yield
      (liftIO (putMVar begun ()) >> sleep (minutes 60)) `finally` liftIO (atomicModifyIORef' finalized (\n -> (n + 1, ())))
    putMVar ended (x :: Either SomeException ())
  takeMVar begun
  killThread t
  takeMVar ended >>= either (\e -> show e @?= "thread killed") (\() -> assertFailure "it ended well")
  readIORef finalized >>= (@?= 2)

reported :: Assertion
reported = forM_ [Config Epoll 1, Config Epoll 2] $ \c -> do
  reports <- newIORef []
  runWith (settingsFor c) {settingGrace = 30_000_000, settingReport = \l -> atomicModifyIORef' reports (\ls -> (l : ls, ()))} $ do
    _ <- forkWith defaultForkOptions {forkLabel = "the stubborn one"} (uninterruptibleMask_ (newGate >>= waitGate))
    fork_ (sleep (minutes 60))
    yield
  told <- reverse <$> readIORef reports
  assertBool (show told) (any ("the stubborn one" `isInfixOf`) told && not (any ("sleep" `isInfixOf`) told))
