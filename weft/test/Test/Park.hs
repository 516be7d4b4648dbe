-- |
-- Description : The invariant of parked threads
--
-- Note [Where a parked thread is] in "Weft.Internal.Core.Park".
module Test.Park (tests) where

import Control.Concurrent (forkIO, newEmptyMVar, putMVar, readMVar, takeMVar)
import Control.Exception (SomeException)
import Control.Monad
import Data.IORef
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Internal.Core.Park (parkedCount, visitParked)
import Weft.Internal.Core.Trace (Home, internal)
import Weft.Kernel

tests :: TestTree
tests =
  testGroup
    "Parking"
    [ testGroup
        "of several OS threads that answer and a cancellation, one ends the wait"
        [testCase (show workers <> " workers") (oneWins workers) | workers <- [1, 2]],
      testCase "a thread that was answered from outside is seen until it is ready" seenUntilReady
    ]

oneWins :: Int -> Assertion
oneWins workers = runWith defaultSettings {settingWorkers = Just workers} . forM_ [1 .. 100 :: Int] $ \i -> do
  start <- liftIO newEmptyMVar
  parked <- liftIO newEmptyMVar
  answers <- liftIO newEmptyMVar
  ended <- liftIO newEmptyMVar
  answered <- liftIO (newIORef ([] :: [Int]))
  t <- forkWith defaultForkOptions {forkWorker = Just (i `mod` workers)} $ do
    r <- try . suspend "an answer" $ \waiter -> do
      forM_ [1 .. answering] $ \n -> forkIO $ do
        readMVar start
        won <- deliver waiter (Answered n)
        putMVar answers [n | won]
      putMVar parked ()
    liftIO (either (\(_ :: SomeException) -> pure ()) (\n -> writeIORef answered [n]) r >> putMVar ended ())
  blocking (takeMVar parked)
  liftIO (putMVar start ())
  when (even i) (cancel t)
  winners <- blocking (concat <$> replicateM answering (takeMVar answers))
  blocking (takeMVar ended)
  got <- liftIO (readIORef answered)
  liftIO (assertEqual "who won, and what came" winners got)
  -- A cancellation is the only other end.
  liftIO (assertBool (show winners) (length winners == 1 || (even i && null winners)))
  where
    answering = 3

-- | Or a look for deadlocks would find that no thread waits for anything outside.
seenUntilReady :: Assertion
seenUntilReady = runWith defaultSettings {settingWorkers = Just 1} $ do
  place <- liftIO (newIORef Nothing)
  ended <- liftIO (newIORef False)
  fork_ (suspend "an answer" (writeIORef place . Just) >> liftIO (writeIORef ended True))
  yield
  liftIO (readIORef place) >>= \case
    Nothing -> liftIO (assertFailure "it has not been parked")
    Just waiter -> do
      seen <- internal $ \home _ -> do
        before <- seenIn home
        won <- deliver waiter (Answered ())
        again <- deliver waiter (Answered ())
        after' <- seenIn home
        pure (before, won, again, after')
      liftIO (seen @?= ((1, 1), True, False, (1, 1)))
      let untilEnded = liftIO (readIORef ended) >>= \e -> unless e (yield >> untilEnded)
      untilEnded
      internal (\home _ -> seenIn home) >>= liftIO . (@?= (0, 0))

seenIn :: Home -> IO (Int, Int)
seenIn home = (,) <$> visitParked home (\_ n -> pure (n + 1)) 0 <*> parkedCount home
