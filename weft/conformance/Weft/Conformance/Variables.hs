-- |
-- Description : Variables, and locks in plain IO
--
-- 'Weft.MVar.MVar' in litmus programs with every allowed outcome; mutexes and variables
-- in direct style, where what is held is given back however the code ends.
module Weft.Conformance.Variables (variables) where

import Control.Exception (ErrorCall)
import Control.Exception qualified as Exception
import Control.Monad (forM, forM_, replicateM, replicateM_, unless, void, when)
import Data.IORef
import Data.Maybe (catMaybes)
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Conformance.Check
import Weft.Conformance.Litmus
import Weft.Conformance.Waiting
import Weft.Conformance.World
import Weft.Internal.Core.Direct (await, direct)
import Weft.MVar qualified as MVar
import Weft.Mutex

-- | Variables, and direct style.
variables :: World -> TestTree
variables world = testGroup "variables" [testGroup "MVar" (mvars world), testGroup "direct style" (directly world)]

mvars :: World -> [TestTree]
mvars world =
  catMaybes
    [ ordered world "takes are served in order, each by one put" $
        allowed world [["1a", "2b", "3c"]] $ \say -> do
          v <- MVar.newEmptyMVar
          waits <- forM ["1", "2", "3"] $ \i -> spawn (MVar.takeMVar v >>= \a -> say (i <> a))
          yield
          mapM_ (MVar.putMVar v) ["a", "b", "c"]
          sequence_ waits,
      ordered world "puts are served in order, and their values are there at once" $
        allowed world [["0", "Just 1", "2", "Nothing"]] $ \say -> do
          v <- MVar.newMVar (0 :: Int)
          waits <- forM [1, 2] $ \i -> spawn (MVar.putMVar v i)
          yield
          MVar.takeMVar v >>= say . show
          -- The first putter has not run yet.
          MVar.tryTakeMVar v >>= say . show
          MVar.takeMVar v >>= say . show
          MVar.tryTakeMVar v >>= say . show
          sequence_ waits,
      ordered world "reads come before takes that wait longer" $
        allowed world [["read x", "read x", "take x"]] $ \say -> do
          v <- MVar.newEmptyMVar
          taking <- spawn (MVar.takeMVar v >>= say . ("take " <>))
          yield
          reading <- replicateM 2 (spawn (MVar.readMVar v >>= say . ("read " <>)))
          yield
          MVar.putMVar v "x"
          taking >> sequence_ reading
          empty <- MVar.isEmptyMVar v
          unless empty (say "full"),
      -- A thread that waits alone to take has a state of its own: `One` in
      -- "Weft.Internal.Sync.MVar".
      always "one that waits to take is cancelled, alone and in front of others" . running world $ do
        v <- MVar.newEmptyMVar
        forM_ [0, 1, 2] $ \behind -> do
          done <- newGate
          first <- fork (void (MVar.takeMVar v) `finally` openGate done ())
          yield
          others <- replicateM behind (spawn (MVar.takeMVar v))
          yield
          cancel first
          waitGate done
          forM_ others (\_ -> MVar.putMVar v 'a')
          got <- sequence others
          MVar.putMVar v 'b'
          left <- MVar.tryTakeMVar v
          again <- spawn (MVar.takeMVar v)
          yield
          MVar.putMVar v 'c'
          c <- again
          liftIO ((got, left, c) @?= ('a' <$ others, Just 'b', 'c')),
      ordered world "what was handed to the one that waits is its own, though it is cancelled" $
        allowed world [["took x", "empty"]] $ \say -> do
          v <- MVar.newEmptyMVar
          done <- newGate
          taking <- fork ((MVar.takeMVar v >>= say . ("took " <>) >> yield >> say "went on") `finally` openGate done ())
          yield
          MVar.putMVar v "x"
          cancel taking
          waitGate done
          empty <- MVar.isEmptyMVar v
          when empty (say "empty"),
      always "modifyMVar_ puts the old value back when it fails" . running world $ do
        v <- MVar.newMVar 'a'
        try (MVar.modifyMVar_ v (\_ -> throwM (userError "f"))) >>= throws (== userError "f")
        a <- MVar.tryReadMVar v
        liftIO (a @?= Just 'a')
        try (MVar.modifyMVar v (\_ -> pure (error "pair"))) >>= throws @_ @() (const True :: ErrorCall -> Bool)
        kept <- MVar.tryReadMVar v
        liftIO (kept @?= Just 'a')
        MVar.modifyMVar_ v (pure . succ)
        old <- MVar.swapMVar v 'z'
        full <- MVar.tryPutMVar v 'y'
        b <- MVar.modifyMVar v (\c -> pure (succ c, c))
        liftIO ((old, full, b) @?= ('b', False, 'z')),
      -- The value is put back although the cancellation is on its way.
      always "withMVar puts back under a pending cancellation" . running world $ do
        v <- MVar.newMVar 'a'
        done <- newGate
        fork_ ((MVar.withMVar v (\_ -> myThreadId >>= cancel) >> yield) `finally` openGate done ())
        waitGate done
        a <- MVar.tryReadMVar v
        liftIO (a @?= Just 'a'),
      always "a token goes round, and nothing else" $ running world $ do
        vs <- replicateM 8 MVar.newEmptyMVar
        let laps = 250 :: Int
        waits <- forM (zip3 [0 ..] vs (drop 1 (cycle vs))) $ \(i, from, to) -> spawnOn (Just i) . replicateM_ laps $ do
          n <- MVar.takeMVar from
          MVar.putMVar to (n + 1 :: Int)
        forM_ (take 1 vs) (`MVar.putMVar` 0)
        sequence_ waits
        left <- mapM MVar.tryTakeMVar vs
        liftIO (catMaybes left @?= [8 * laps])
    ]

-- | The operations in plain 'IO': what is held is given back, however the code ends.
directly :: World -> [TestTree]
directly world =
  catMaybes
    [ always "withMutex, and an exception at an await and between two" $ running world $ do
        m <- newMutex
        forM_ [True, False] $ \atAwait -> do
          failed <- try . direct . await . withMutex m . direct $ do
            await yield
            () <- if atAwait then await (throwM (userError "boom")) else Exception.throwIO (userError "boom")
            await yield
          throws (const True) (failed :: Either IOError ())
          held <- isHeld m
          liftIO (held @?= False),
      always "withMutex, cancelled while it waits and while it holds" $ running world $ do
        m <- newMutex
        finalized <- liftIO (newIORef (0 :: Int))
        forM_ [True, False] $ \whileWaiting -> do
          inside <- newGate
          when whileWaiting (lock m)
          t <- fork . direct $ do
            when whileWaiting $ await (openGate inside ())
            await (withMutex m (direct (await (openGate inside () >> sleep (seconds 1000)) `Exception.finally` atomicModifyIORef' finalized (\n -> (n + 1, ())))))
          waitGate inside
          cancel t
          when whileWaiting (unlock m)
          -- Held again only if it was given back or never taken.
          withMutex m (pure ())
        n <- liftIO (readIORef finalized)
        liftIO (assertBool (show n) (n `elem` [1, 2])),
      always "lock and unlock, take and put" $ running world $ do
        m <- newMutex
        v <- MVar.newMVar (0 :: Int)
        sum' <- liftIO (newIORef (0 :: Int))
        done <- replicateM 10 . spawn . direct $ replicateM_ 50 $ do
          n <- await (MVar.takeMVar v)
          await yield
          await (MVar.putMVar v (n + 1))
          await (lock m)
          k <- readIORef sum'
          await yield
          writeIORef sum' (k + 1)
          await (unlock m)
        sequence_ done
        n <- MVar.takeMVar v
        k <- liftIO (readIORef sum')
        liftIO ((n, k) @?= (500, 500))
    ]
