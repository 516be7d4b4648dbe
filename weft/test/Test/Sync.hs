{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Mutexes, variables, channels and the rest, one at a time
--
-- Litmus programs with every allowed outcome, on one worker and on two; mutual
-- exclusion; channels against a model.
module Test.Sync (tests) where

import Control.Exception (ErrorCall, fromException)
import Control.Exception qualified as Exception
import Control.Monad (forM, forM_, join, replicateM, replicateM_, unless, void, when)
import Data.IORef
import Data.List (isInfixOf, sort)
import Data.Maybe (catMaybes, isNothing)
import Data.Sequence (Seq (..), (|>))
import Data.Sequence qualified as Seq
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck
import Weft
import Weft.Barrier qualified as Barrier
import Weft.Channel qualified as Channel
import Weft.Condition qualified as Condition
import Weft.Event qualified as Event
import Weft.Internal.Direct (await, direct)
import Weft.MVar qualified as MVar
import Weft.Mutex
import Weft.Semaphore qualified as Semaphore

tests :: TestTree
tests =
  testGroup
    "Synchronization"
    [ testGroup "mutex" mutexes,
      testGroup "condition" conditions,
      testGroup "event" events,
      testGroup "semaphore" semaphores,
      testGroup "barrier" barriers,
      testGroup "MVar" mvars,
      testGroup "channel" channels,
      testGroup "direct style" directly
    ]

one, two :: Config
one = Config Epoll 1
two = Config Epoll 2

-- | On one worker and on two.
both :: TestName -> (Config -> Assertion) -> TestTree
both name body = testGroup name [testCase (describeConfig c) (body c) | c <- [one, two]]

-- | What a program logs; it must be one of these.
allowed :: [[String]] -> Config -> ((String -> Thread ()) -> Thread ()) -> Assertion
allowed outcomes config program = do
  said <- newIORef []
  running config (program (\what -> liftIO (atomicModifyIORef' said (\es -> (what : es, ())))))
  got <- reverse <$> readIORef said
  assertBool (show got <> " is not one of " <> show outcomes) (got `elem` outcomes)

throws :: (HasCallStack, Show e) => (e -> Bool) -> Either e a -> Thread ()
throws expected = \case
  Right _ -> liftIO (assertFailure "it should have failed")
  Left e -> liftIO (assertBool ("unexpected: " <> show e) (expected e))

alreadyHeld, notHeld :: MutexError -> Bool
alreadyHeld = \case AlreadyHeld _ -> True; NotHeld _ -> False
notHeld = not . alreadyHeld

mutexes :: [TestTree]
mutexes =
  [ testCase "threads get it in the order in which they came" $
      allowed [["1", "2", "3", "4"]] one $ \say -> do
        m <- newMutex
        lock m
        waits <- forM [1 .. 4 :: Int] $ \i -> spawn (withMutex m (say (show i)))
        yield
        unlock m
        sequence_ waits,
    testCase "who unlocks cannot come in before those that wait" $
      allowed [["waited", "again"]] one $ \say -> do
        m <- newMutex
        lock m
        wait <- spawn (withMutex m (say "waited"))
        yield
        unlock m
        withMutex m (say "again")
        wait,
    testCase "locking again is an error, said at once" . running one $ do
      m <- newMutexNamed "accounts"
      lock m
      try (lock m) >>= throws (\e -> alreadyHeld e && "(accounts)" `isInfixOf` show e)
      held <- tryLock m
      liftIO (held @?= False)
      unlock m,
    testCase "unlocking what another thread holds is an error" . running one $ do
      m <- newMutex
      try (unlock m) >>= throws notHeld
      join (spawn (lock m))
      try (unlock m) >>= throws notHeld
      held <- isHeld m
      liftIO (held @?= True),
    testCase "a failing body unlocks" . running one $ do
      m <- newMutex
      try (withMutex m (throwM (userError "body"))) >>= throws @_ @() (== userError "body")
      held <- isHeld m
      liftIO (held @?= False),
    testCase "a thread that is cancelled while it waits is passed over" $
      allowed [["cancelled", "second"]] one $ \say -> do
        m <- newMutex
        lock m
        t <- fork (lock m `onException` say "cancelled")
        wait <- spawn (withMutex m (say "second"))
        yield
        cancel t
        sleep (milliseconds 1)
        unlock m
        wait
        held <- isHeld m
        when held (say "still held"),
    -- It was handed the mutex; so it holds it, and is cancelled at its next call.
    testCase "a cancellation after the hand-over does not undo it" $
      allowed [["has it", "cancelled", "free"]] one $ \say -> do
        m <- newMutex
        lock m
        t <- fork (withMutex m (say "has it" >> sleep (seconds 1000) >> say "not reached") `onException` say "cancelled")
        yield
        unlock m
        cancel t
        sleep (milliseconds 1)
        held <- isHeld m
        unless held (say "free"),
    both "one at a time" $ \config -> do
      inside <- newIORef (0 :: Int)
      worst <- newIORef 0
      turns <- newIORef (0 :: Int)
      running config $ do
        m <- newMutex
        waits <- forM [0 .. 19] $ \i -> spawnOn (Just i) . replicateM_ 500 . withMutex m $ do
          n <- liftIO (atomicModifyIORef' inside (\n -> (n + 1, n + 1)))
          liftIO (modifyIORef' worst (max n))
          -- Not atomic: only the mutex protects it.
          before <- liftIO (readIORef turns)
          when (before `mod` 3 == 0) yield
          liftIO (writeIORef turns $! before + 1)
          liftIO (atomicModifyIORef' inside (\k -> (k - 1, ())))
        sequence_ waits
        held <- isHeld m
        liftIO (held @?= False)
      readIORef worst >>= (@?= 1)
      readIORef turns >>= (@?= 10_000)
  ]

conditions :: [TestTree]
conditions =
  [ testCase "a signal wakes the first, a broadcast the rest" $
      allowed [["1", "2", "3"]] one $ \say -> do
        m <- newMutex
        c <- Condition.newCondition
        waits <- forM [1 .. 3 :: Int] $ \i -> spawn (withMutex m (Condition.wait c m >> say (show i)))
        yield
        Condition.signal c
        replicateM_ 5 yield
        Condition.broadcast c
        sequence_ waits,
    testCase "who is cancelled holds the mutex again" . running one $ do
      m <- newMutex
      c <- Condition.newCondition
      gate <- newGate
      -- Nobody else has locked, so only its own hold refuses it.
      t <- fork . withMutex m $ Condition.wait c m `onException` (tryLock m >>= openGate gate)
      yield
      cancel t
      got <- waitGate gate
      liftIO (got @?= False)
      sleep (milliseconds 1)
      held <- isHeld m
      liftIO (held @?= False),
    testCase "waiting without the mutex is an error" . running one $ do
      m <- newMutex
      c <- Condition.newCondition
      try (Condition.wait c m) >>= throws notHeld
      held <- isHeld m
      liftIO (held @?= False),
    testCase "who was cancelled before it waits gets the cancellation, and the mutex is free" . running one $ do
      m <- newMutex
      c <- Condition.newCondition
      got <- newGate
      _ <- fork $ do
        outcome <- try . withMutex m $ do
          -- Not yet a wait, so that it is noticed by the wait.
          myThreadId >>= cancel
          Condition.wait c m
        openGate got (either (Just . fromException) (const Nothing) outcome)
      outcome <- waitGate got
      liftIO (outcome @?= Just (Just Cancelled))
      held <- isHeld m
      liftIO (held @?= False),
    both "producers and consumers of a place for one" $ \config -> do
      got <- newIORef []
      running config $ do
        m <- newMutex
        changed <- Condition.newCondition
        place <- liftIO (newIORef Nothing)
        let untilJust look = liftIO look >>= maybe (Condition.wait changed m >> untilJust look) pure
            put a = withMutex m $ do
              untilJust (maybe (Just ()) (const Nothing) <$> readIORef place)
              liftIO (writeIORef place (Just a))
              Condition.broadcast changed
            take' = withMutex m $ do
              a <- untilJust (readIORef place)
              liftIO (writeIORef place Nothing)
              Condition.broadcast changed
              pure a
        producers <- forM [0 .. 3] $ \p -> spawnOn (Just p) (forM_ [1 .. 50] (\i -> put (p * 50 + i)))
        consumers <- forM [0 .. 3] $ \p -> spawnOn (Just p) (replicateM_ 50 (take' >>= \a -> liftIO (atomicModifyIORef' got (\as -> (a : as, ())))))
        sequence_ producers >> sequence_ consumers
      readIORef got >>= (@?= [1 .. 200]) . sort
  ]

events :: [TestTree]
events =
  [ testCase "all that wait go on when it is set, and later nobody waits" $
      allowed [["set", "1", "2", "late"]] one $ \say -> do
        e <- Event.newEvent
        waits <- forM ["1", "2"] $ \name -> spawn (Event.wait e >> say name)
        yield
        say "set"
        Event.set e
        sequence_ waits
        Event.wait e
        say "late",
    testCase "who was woken goes on although the event was cleared" $
      allowed [["woken", "cleared"]] one $ \say -> do
        e <- Event.newEvent
        wait <- spawn (Event.wait e >> say "woken")
        yield
        Event.set e
        Event.clear e
        wait
        still <- Event.isSet e
        unless still (say "cleared")
  ]

semaphores :: [TestTree]
semaphores =
  [ testCase "many permits are not overtaken by few" $
      allowed [["three", "one"]] one $ \say -> do
        s <- Semaphore.newSemaphore 2
        three <- spawn (Semaphore.acquire s 3 >> say "three" >> Semaphore.release s 3)
        yield
        single <- spawn (Semaphore.acquire s 1 >> say "one" >> Semaphore.release s 1)
        yield
        lucky <- Semaphore.tryAcquire s 1
        when lucky (say "overtook")
        Semaphore.release s 1
        three >> single,
    testCase "when the first is cancelled, those behind get what is there" $
      allowed [["one"]] one $ \say -> do
        s <- Semaphore.newSemaphore 1
        t <- fork (Semaphore.acquire s 3 >> say "three")
        yield
        single <- spawn (Semaphore.acquire s 1 >> say "one")
        yield
        cancel t
        single,
    both "never more inside than permits" $ \config -> do
      inside <- newIORef (0 :: Int)
      worst <- newIORef 0
      running config $ do
        s <- Semaphore.newSemaphore 3
        waits <- forM [0 .. 11] $ \i -> spawnOn (Just i) . replicateM_ 200 $ do
          let n = 1 + i `mod` 3
          Semaphore.withPermits s n $ do
            k <- liftIO (atomicModifyIORef' inside (\k -> (k + n, k + n)))
            liftIO (atomicModifyIORef' worst (\w -> (max w k, ())))
            yield
            liftIO (atomicModifyIORef' inside (\j -> (j - n, ())))
        sequence_ waits
        left <- Semaphore.available s
        liftIO (left @?= 3)
      readIORef worst >>= (@?= 3),
    testCase "a negative number is an error" . running one $ do
      s <- Semaphore.newSemaphore 1
      try (Semaphore.acquire s (-1)) >>= throws (const True :: ErrorCall -> Bool)
  ]

barriers :: [TestTree]
barriers =
  [ both "nobody is a round ahead" $ \config -> do
      counts <- replicateM 4 (newIORef (0 :: Int))
      running config $ do
        b <- Barrier.newBarrier 4
        waits <- forM (zip [0 ..] counts) $ \(i, mine) -> spawnOn (Just i) . forM_ [1 .. 100] $ \r -> do
          liftIO (writeIORef mine r)
          _ <- Barrier.arrive b
          others <- liftIO (mapM readIORef counts)
          liftIO (assertBool (show others) (all (== r) others))
          void (Barrier.arrive b)
        sequence_ waits,
    testCase "places are 0 to n - 1; who was cancelled has not arrived" . running one $ do
      b <- Barrier.newBarrier 3
      t <- fork (void (Barrier.arrive b))
      yield
      cancel t
      sleep (milliseconds 1)
      waits <- replicateM 3 (spawn (Barrier.arrive b))
      places <- sequence waits
      liftIO (sort places @?= [0, 1, 2])
  ]

mvars :: [TestTree]
mvars =
  [ testCase "takes are served in order, each by one put" $
      allowed [["1a", "2b", "3c"]] one $ \say -> do
        v <- MVar.newEmptyMVar
        waits <- forM ["1", "2", "3"] $ \i -> spawn (MVar.takeMVar v >>= \a -> say (i <> a))
        yield
        mapM_ (MVar.putMVar v) ["a", "b", "c"]
        sequence_ waits,
    testCase "puts are served in order, and their values are there at once" $
      allowed [["0", "Just 1", "2", "Nothing"]] one $ \say -> do
        v <- MVar.newMVar (0 :: Int)
        waits <- forM [1, 2] $ \i -> spawn (MVar.putMVar v i)
        yield
        MVar.takeMVar v >>= say . show
        -- The first putter has not run yet.
        MVar.tryTakeMVar v >>= say . show
        MVar.takeMVar v >>= say . show
        MVar.tryTakeMVar v >>= say . show
        sequence_ waits,
    testCase "reads come before takes that wait longer" $
      allowed [["read x", "read x", "take x"]] one $ \say -> do
        v <- MVar.newEmptyMVar
        taking <- spawn (MVar.takeMVar v >>= say . ("take " <>))
        yield
        reading <- replicateM 2 (spawn (MVar.readMVar v >>= say . ("read " <>)))
        yield
        MVar.putMVar v "x"
        taking >> sequence_ reading
        empty <- MVar.isEmptyMVar v
        unless empty (say "full"),
    testCase "modifyMVar_ puts the old value back when it fails" . running one $ do
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
    testCase "withMVar puts back under a pending cancellation" . running one $ do
      v <- MVar.newMVar 'a'
      done <- newGate
      fork_ ((MVar.withMVar v (\_ -> myThreadId >>= cancel) >> yield) `finally` openGate done ())
      waitGate done
      a <- MVar.tryReadMVar v
      liftIO (a @?= Just 'a'),
    both "a token goes round, and nothing else" $ \config -> running config $ do
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

channels :: [TestTree]
channels =
  [ testCase "a full channel holds the sender back" $
      allowed [["sent 1", "sent 2", "got 1", "got 2", "got 3", "sent 3"]] one $ \say -> do
        c <- Channel.newChannel 2
        wait <- spawn (forM_ [1 .. 3 :: Int] (\i -> Channel.send c i >> say ("sent " <> show i)))
        yield
        replicateM_ 3 (Channel.receive c >>= mapM_ (say . ("got " <>) . show))
        wait,
    testCase "what was sent before the end is received, then the end" $
      allowed [["Just 'a'", "Just 'b'", "Nothing", "EndOfChannel", "closed"]] one $ \say -> do
        c <- Channel.newUnboundedChannel
        mapM_ (Channel.send c) ['a', 'b']
        Channel.close c >> Channel.close c
        replicateM_ 3 (Channel.receive c >>= say . show)
        Channel.tryReceive c >>= say . show
        Channel.send c 'c' `catch` \(Channel.ChannelClosed _) -> say "closed",
    testCase "the end reaches receivers and senders that wait" $
      allowed [["end", "refused"]] one $ \say -> do
        c <- Channel.newChannel 1
        receiving <- spawn (Channel.receive c >>= \a -> when (isNothing (a :: Maybe ())) (say "end"))
        yield
        Channel.close c
        receiving
        d <- Channel.newChannel 1
        Channel.send d 'x'
        sending <- spawn (Channel.send d 'y' `catch` \(Channel.ChannelClosed _) -> say "refused")
        yield
        Channel.close d
        sending,
    testCase "a channel without room is refused" . running one $
      try (void (Channel.newChannel 0 :: Thread (Channel.Channel ()))) >>= throws (const True :: ErrorCall -> Bool),
    both "all arrives once, each sender's in order" $ \config ->
      forM_ [1, 3, 1000] $ \room -> do
        got <- newIORef []
        running config $ do
          c <- Channel.newChannel room
          senders <- forM [0 .. 3 :: Int] $ \s -> spawnOn (Just s) (forM_ [1 .. 500 :: Int] (\i -> Channel.send c (s, i)))
          receivers <- forM [0 .. 1] $ \r -> spawnOn (Just r) $ do
            let go acc = Channel.receive c >>= maybe (pure (reverse acc)) (go . (: acc))
            mine <- go []
            liftIO (atomicModifyIORef' got (\lists -> (mine : lists, ())))
          sequence_ senders
          Channel.close c
          sequence_ receivers
        lists <- readIORef got
        sort (concat lists) @?= [(s, i) | s <- [0 .. 3], i <- [1 .. 500]]
        -- A receiver sees each sender's values in their order.
        forM_ lists $ \list -> forM_ [0 .. 3] $ \s -> let mine = [i | (s', i) <- list, s' == s] in mine @?= sort mine,
    testProperty "is a queue with a bound and an end" channelModel
  ]

data Step = TrySend Int | TryReceive | Close
  deriving stock (Show)

instance Arbitrary Step where
  arbitrary = frequency [(20, TrySend <$> arbitrary), (10, pure TryReceive), (1, pure Close)]

-- | Without waiting, against a sequence.
channelModel :: Property
channelModel = forAll (chooseInt (1, 4)) $ \room -> forAll arbitrary $ \steps ->
  let expected = model room Seq.empty False steps
   in checkCoverage
        . cover 5 (Left (Just False) `elem` expected) "full"
        . cover 5 (Right Channel.NotYet `elem` expected) "empty"
        . cover 2 (Right Channel.EndOfChannel `elem` expected) "ended"
        . ioProperty
        $ do
          got <- runningQuietly $ do
            c <- Channel.newChannel room
            forM (steps :: [Step]) $ \case
              TrySend a -> Left . either (\(Channel.ChannelClosed _) -> Nothing) Just <$> try (Channel.trySend c a)
              TryReceive -> Right <$> Channel.tryReceive c
              Close -> Left Nothing <$ Channel.close c
          pure (got === expected)
  where
    model :: Int -> Seq Int -> Bool -> [Step] -> [Either (Maybe Bool) (Channel.Received Int)]
    model _ _ _ [] = []
    model room held shut (step : rest) = case step of
      TrySend a
        | shut -> Left Nothing : model room held shut rest
        | Seq.length held < room -> Left (Just True) : model room (held |> a) shut rest
        | otherwise -> Left (Just False) : model room held shut rest
      TryReceive -> case held of
        a :<| left -> Right (Channel.Received a) : model room left shut rest
        Empty -> Right (if shut then Channel.EndOfChannel else Channel.NotYet) : model room held shut rest
      Close -> Left Nothing : model room held True rest

-- | The operations in plain 'IO': what is held is given back, however the code ends.
directly :: [TestTree]
directly =
  [ both "withMutex, and an exception at an await and between two" $ \config -> running config $ do
      m <- newMutex
      forM_ [True, False] $ \atAwait -> do
        failed <- try . direct . await . withMutex m . direct $ do
          await yield
          () <- if atAwait then await (throwM (userError "boom")) else Exception.throwIO (userError "boom")
          await yield
        throws (const True) (failed :: Either IOError ())
        held <- isHeld m
        liftIO (held @?= False),
    both "withMutex, cancelled while it waits and while it holds" $ \config -> running config $ do
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
    both "lock and unlock, take and put" $ \config -> running config $ do
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
