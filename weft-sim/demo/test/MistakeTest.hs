{-# LANGUAGE GADTs #-}

-- | The disk, the clocks and the network at their worst: what the service does, and what
-- becomes of it with each of the mistakes.
module MistakeTest (tests) where

import Control.Monad (forM_)
import Data.IORef
import Data.Int (Int64)
import Faults
import Harness
import Replicated.Client
import Replicated.Entry
import Replicated.Log
import Replicated.Message
import Replicated.Mistake
import Replicated.Replica
import Test.Tasty hiding (after)
import Test.Tasty.HUnit
import Weft
import Weft.Kernel (SystemCall (..))

tests :: TestTree
tests =
  testGroup
    "at the worst"
    [ testCase "a full disk: refuses, still tells, and takes more when there is room" $ do
        full <- newIORef False
        withSettings 1 (runWithout (whenSo full (\case WriteFile {} -> Just diskFull; _ -> Nothing))) $ \settings -> do
          serving settings . withClientOf settings "a" $ \a -> do
            put a "x" "1" >>= is (Done ())
            liftIO (writeIORef full True)
            put a "x" "2" >>= \case
              Unknown why -> why `says` "no space left on device"
              other -> liftIO (assertFailure (show other))
            get a "x" >>= is (Done (Just "1"))
            liftIO (writeIORef full False)
            put a "x" "3" >>= is (Done ())
            get a "x" >>= is (Done (Just "3"))
          serving settings . withClientOf settings "b" $ \b -> get b "x" >>= is (Done (Just "3")),
      testCase "what a log was found to hold is on the disk before anybody hears of it" $ do
        syncs <- newIORef (0 :: Int)
        let counting :: SystemCall a -> IO (Instead a)
            counting = \case
              SyncFile {} -> TheTruth <$ atomicModifyIORef' syncs (\n -> (n + 1, ()))
              _ -> pure TheTruth
        withSettings 1 (runWithout counting) $ \settings -> do
          let directory = replicaDirectory (theFirst settings)
          withLog directory $ \opened _ -> appendBatch opened [("x", Entry (Version 1 1) "1")]
          before <- liftIO (readIORef syncs)
          withLog directory $ \_ found -> do
            map fst found `is` ["x"]
            after <- liftIO (readIORef syncs)
            -- The log, its name in the directory, and the name of that.
            (after - before) `is` 3,
      testCase "after a sync that failed nothing is acknowledged any more" $
        putsWithoutSync [] >>= \(one, other) -> do
          assertBool (show one) (isUnknown one)
          assertBool (show other) (isUnknown other),
      testCase "ack-before-sync: what is on no disk is acknowledged" $
        putsWithoutSync [AckBeforeSync] >>= \(one, _) -> one @?= Done (),
      testCase "a value put later, by a clock that is behind, is the newer one" $
        putsByClocks [] >>= (@?= Done (Just "2")),
      testCase "wall-clock-versions: it is not" $
        putsByClocks [WallClockVersions] >>= (@?= Done (Just "1")),
      testCase "a read after one that found the new value finds it, too" $
        readsAfterReads [] >>= (@?= (Done (Just "new"), Done (Just "new"))),
      testCase "no-write-back: finds the old one" $
        readsAfterReads [NoWriteBack] >>= (@?= (Done (Just "new"), Done (Just "old")))
    ]
  where
    isUnknown = \case
      Unknown _ -> True
      _ -> False

-- | Raise the error for such calls while the flag is set.
whenSo :: IORef Bool -> (forall b. SystemCall b -> Maybe IOError) -> SystemCall a -> IO (Instead a)
whenSo flag wrong asked = maybe (pure TheTruth) (\e -> (\so -> if so then Raise e else TheTruth) <$> readIORef flag) (wrong asked)

-- | Two puts, one after the other, the first of them when the disk cannot write what it
-- was given.
putsWithoutSync :: [Mistake] -> IO (Outcome (), Outcome ())
putsWithoutSync mistakes = do
  broken <- newIORef False
  withSettings 1 (runWithout (whenSo broken (\case SyncFile {} -> Just inputOutputError; _ -> Nothing))) $ \settings ->
    serving [s {replicaMistakes = mistakes} | s <- settings] . withClientOf settings "a" $ \a -> do
      get a "x" >>= is (Done Nothing)
      liftIO (writeIORef broken True)
      one <- put a "x" "1"
      liftIO (writeIORef broken False)
      (one,) <$> put a "x" "2"

-- | Two puts, one after the other, by clients with different clocks, and what is found.
putsByClocks :: [Mistake] -> IO (Outcome (Maybe Value))
putsByClocks mistakes = do
  clock <- newIORef (2_000_000_000 :: Int64)
  let skewed :: SystemCall a -> IO (Instead a)
      skewed = \case
        WallClock -> Instead <$> readIORef clock
        _ -> pure TheTruth
  withSettings 3 (runWithout skewed) $ \settings -> do
    let client name = withClient (clientOf settings name) {clientMistakes = mistakes}
    serving settings . client "a" $ \a -> client "b" $ \b -> do
      put a "x" "1" >>= is (Done ())
      liftIO (writeIORef clock 1_000_000_000)
      put b "x" "2" >>= is (Done ())
      get a "x"

-- | A put came as far as one of three replicas. One reader asks that one and another;
-- the next asks the two others.
readsAfterReads :: [Mistake] -> IO (Outcome (Maybe Value), Outcome (Maybe Value))
readsAfterReads mistakes = withSettings 3 run $ \settings -> do
  let client name = withClient (clientOf settings name) {clientMistakes = mistakes}
      holds value s = tell (replicaAddress s) (Store "x" value) >>= is Stored
  serving settings $ do
    forM_ settings $ holds (Entry (Version 1 1) "old")
    holds (Entry (Version 2 2) "new") (theFirst settings)
  one <- serving (take 2 settings) $ client "b" (`get` "x")
  other <- serving (drop 1 settings) $ client "c" (`get` "x")
  pure (one, other)
