-- |
-- Description : The first of several things, broadcasts, and results as they come
--
-- That exactly one thing happens, that nothing is lost to a cancellation, a limit or another
-- worker, and the laws of 'Concurrently'.
module Weft.Conformance.Selecting (selecting) where

-- The laws are stated as they are; what hlint would simplify is what is tested.
{- HLINT ignore "Alternative law, left identity" -}
{- HLINT ignore "Alternative law, right identity" -}
{- HLINT ignore "Use <$>" -}

import Control.Applicative (Alternative (..))
import Control.Exception (ErrorCall (..), SomeException)
import Control.Monad (forM, forM_, replicateM_, unless, void, when)
import Data.Either (isLeft)
import Data.IORef
import Data.List (sort)
import Data.Maybe (fromMaybe)
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck hiding (again, collect, label)
import Weft
import Weft.Broadcast qualified as Broadcast
import Weft.Channel
import Weft.Concurrently
import Weft.Conformance.Check
import Weft.Conformance.Waiting
import Weft.Conformance.World
import Weft.Event qualified as Event
import Weft.IVar
import Weft.JoinSet
import Weft.MVar
import Weft.Mask (mask_)
import Weft.Scope
import Weft.Select
import Weft.Timeout (timeout)

-- | Select, and what is made of it.
selecting :: World -> TestTree
selecting world =
  testGroup
    "the first of several"
    [ testGroup "select" (selects world),
      testGroup "broadcasts" (broadcasts world),
      testGroup "variables that are filled once" (ivars world),
      testGroup "children" (children world),
      testGroup "Concurrently" (laws world)
    ]

selects :: World -> [TestTree]
selects world =
  [ testCase "the first in the list that is there, and only that" . running world $ do
      a <- newChannel 2
      b <- newChannel 2
      var <- newMVar 'm'
      event <- Event.newEvent
      send b 'b'
      select [Just 'e' <$ onSet event, onReceive a, onReceive b, Just <$> onTake var] ===> Just 'b'
      select [onReceive a, Just <$> onRead var, onReceive b] ===> Just 'm'
      send a 'a' >> send b 'c' >> Event.set event
      select [Just 'e' <$ onSet event, onReceive a] ===> Just 'e'
      (,) <$> waitingValues a <*> waitingValues b ===> (1, 1)
      takeMVar var ===> 'm',
    testCase "whatever comes first, of all kinds" . running world . withScope $ \scope -> do
      full <- newChannel 1
      send full 'x'
      -- Each in its turn makes one of them happen.
      forM_ [0 .. 7 :: Int] $ \i -> do
        a <- newChannel 1
        var <- newEmptyMVar
        other <- newEmptyMVar
        event <- Event.newEvent
        filled <- newIVar
        news <- Broadcast.newBroadcast 1
        heard <- Broadcast.subscribe news
        gate <- Event.newEvent
        child <- forkDaemonIn scope ('c' <$ Event.wait gate)
        answer <- newIVar
        ready <- Event.newEvent
        _ <- forkIn scope $ do
          Event.set ready
          r <-
            select
              [ (0, 'r') <$ onReceive a,
                (,) 1 <$> onTake var,
                (,) 2 <$> onRead other,
                (3, 'e') <$ onSet event,
                (,) 4 <$> onFilled filled,
                maybe (5, 'n') (const (5, 'n')) <$> onMessage heard,
                (,) 6 <$> onChild child,
                (7, 's') <$ onSend full 'y'
              ]
          fill answer r
        Event.wait ready
        replicateM_ 3 yield
        case i of
          0 -> send a 'a'
          1 -> putMVar var 't'
          2 -> putMVar other 'p'
          3 -> Event.set event
          4 -> fill_ filled 'f'
          5 -> Broadcast.publish news ()
          6 -> Event.set gate
          _ -> receive full ===> Just 'x'
        (chosen, c) <- readIVar answer
        (chosen, c) `is` (i, "rtpefncs" !! i)
        -- A value that was not chosen is there still, and no thread waits for it.
        when (i /= 2) (tryPutMVar other 'q' ===> True)
        when (i /= 1) ((,) <$> tryPutMVar var 'q' <*> takeMVar var ===> (True, 'q'))
        when (i /= 0) ((send a 'z' >> receive a) ===> Just 'z')
      receive full ===> Just 'y',
    testCase "the end of a channel, and a send that is refused" . running world $ do
      a <- newChannel 1
      b <- newChannel 1
      send b 'x'
      waiting <- spawn (select [fmap Just <$> onReceive a, Nothing <$ onSend b 'y'] ===> (Nothing :: Maybe (Maybe Char)))
      yield
      close a
      waiting
      close b
      refused <- try (select [Nothing <$ onSend b 'y', Just <$> onReceive b])
      either (\(ChannelClosed _) -> True) (const False) refused `is` True
      c <- newChannel 1
      send c 'x'
      event <- Event.newEvent
      late <- spawn (try (select [onSet event, onSend c 'y']) >>= (`is` True) . either (\(ChannelClosed _) -> True) (const False))
      yield
      close c
      late,
    testCase "of nothing it waits until it is cancelled" . running world $ do
      timeout (milliseconds 1) (select [] :: Thread ()) ===> Nothing,
    testCase "an early one that is always there, and turns" . running world $ do
      a <- newChannel 100
      b <- newChannel 100
      forM_ [1 .. 10 :: Int] $ \i -> send a ('a', i) >> send b ('b', i)
      let merge :: Int -> Channel (Char, Int) -> Channel (Char, Int) -> Thread [Char]
          merge 0 _ _ = pure []
          merge n x y = do
            (from, value) <- select [(,) x <$> onReceive x, (,) y <$> onReceive y]
            (maybe ' ' fst value :) <$> if from == x then merge (n - 1) y x else merge (n - 1) x y
      merge 6 a b ===> "ababab",
    testCase "nothing is lost or doubled between workers, limits and cancellations" (storm world)
  ]

-- | Selectors on several workers, each over two channels to receive from and one to send to,
-- under time limits and cancellations. The values received are those that were sent.
storm :: World -> Assertion
storm world = do
  sent <- newIORef []
  got <- newIORef []
  let note ref x = liftIO (atomicModifyIORef' ref (\xs -> (x : xs, ())))
      values = [0 .. 399 :: Int]
  running world $ do
    a <- newChannel 1
    b <- newChannel 1
    out <- newChannel 1
    stop <- Event.newEvent
    dice <- newDice 7
    producers <- forM (zip [0 ..] [a, b]) $ \(w, c) -> spawnOn (Just w) . forM_ values $ \i ->
      mask_ (send c (w, i) >> note sent (w, i))
    -- Masked around the wait: a thread that is cancelled there has taken nothing, or says what.
    let selector w = do
          let loop = do
                over <- mask_ . fmap (fromMaybe False) . timeout (milliseconds 5) $ do
                  chosen <- select [Nothing <$ onSet stop, Just . Left <$> onReceive a, Just . Left <$> onReceive b, Just (Right ()) <$ onSend out (9, w)]
                  case chosen of
                    Nothing -> pure True
                    Just (Left (Just v)) -> False <$ note got v
                    Just (Left Nothing) -> pure True
                    Just (Right ()) -> False <$ note sent (9, w)
                unless over loop
              again = do
                outcome <- try loop
                case outcome of
                  Left Cancelled -> again
                  Right () -> pure ()
          again
    drainer <- spawnOn (Just 1) $ do
      let go = receive out >>= maybe (pure ()) (\v -> note got v >> go)
      go
    started <- forM [0 .. 2] $ \w -> do
      gate <- newGate
      ended <- spawnOn (Just w) (myThreadId >>= openGate gate >> selector w)
      (,) ended <$> waitGate gate
    blows <- spawnOn (Just 0) . replicateM_ 200 $ do
      n <- roll dice 3
      cancel (snd (started !! n))
      yield
    sequence_ producers
    blows
    -- The values that are still in the two channels are taken before the end.
    let emptied = do
          n <- (+) <$> waitingValues a <*> waitingValues b
          unless (n == 0) (yield >> emptied)
    emptied
    Event.set stop
    mapM_ fst started
    close out
    drainer
  s <- readIORef sent
  g <- readIORef got
  length (filter ((< 2) . fst) s) @?= 2 * length values
  sort g @?= sort s

broadcasts :: World -> [TestTree]
broadcasts world =
  [ testCase "each subscriber gets all from its subscription on" . running world $ do
      b <- Broadcast.newBroadcast 3
      early <- Broadcast.subscribe b
      Broadcast.publish b 'a'
      late <- Broadcast.subscribe b
      Broadcast.publish b 'b' >> Broadcast.close b >> Broadcast.close b
      mapM (const (Broadcast.nextMessage early)) [1 .. 4 :: Int] ===> [Just (Broadcast.Message 'a'), Just (Broadcast.Message 'b'), Nothing, Nothing]
      mapM (const (Broadcast.nextMessage late)) [1, 2 :: Int] ===> [Just (Broadcast.Message 'b'), Nothing]
      refused <- try (Broadcast.publish b 'c')
      either (\(ChannelClosed _) -> True) (const False) refused `is` True,
    testCase "a slow one is told how many it has missed, and holds nobody up" . running world $ do
      b <- Broadcast.newBroadcast 2
      slow <- Broadcast.subscribe b
      mapM_ (Broadcast.publish b) [1 .. 1000 :: Int]
      mapM (const (Broadcast.nextMessage slow)) [1 .. 3 :: Int] ===> [Just (Broadcast.Missed 998), Just (Broadcast.Message 999), Just (Broadcast.Message 1000)],
    testCase "room for nothing is refused" . running world $ do
      refused <- try (void (Broadcast.newBroadcast 0 :: Thread (Broadcast.Broadcast ())))
      throws (const True :: ErrorCall -> Bool) refused,
    testCase "on all workers every message is heard or counted, in order" . running world $ do
      b <- Broadcast.newBroadcast 8
      ears <- forM [0 .. 3] $ \w -> do
        ear <- Broadcast.subscribe b
        spawnOn (Just w) $ do
          let go n =
                Broadcast.nextMessage ear >>= \case
                  Nothing -> n `is` (1000 :: Int)
                  Just (Broadcast.Missed k) -> go (n + k)
                  Just (Broadcast.Message m) -> m `is` n >> go (n + 1)
          go 0
      forM_ [0 .. 999] $ \i -> Broadcast.publish b i >> when (i `mod` 7 == 0) yield
      Broadcast.close b
      sequence_ ears
  ]

ivars :: World -> [TestTree]
ivars world =
  [ testCase "filled once, read often" . running world $ do
      var <- newIVar
      reading <- mapM (\w -> spawnOn (Just w) (readIVar var ===> 'a')) [0 .. 3]
      yield
      fill var 'a' ===> True
      fill var 'b' ===> False
      failIVar var (ErrorCall "late") ===> False
      sequence_ reading
      readIVar var ===> 'a',
    testCase "an exception is raised in the readers" . running world $ do
      var <- newIVar
      reading <- spawn (try (readIVar var) >>= (`is` (Left (ErrorCall "no") :: Either ErrorCall Char)))
      yield
      failIVar var (ErrorCall "no") ===> True
      reading
      try (select [onFilled var]) ===> (Left (ErrorCall "no") :: Either ErrorCall Char),
    testCase "a thread that ends without filling it fails the readers" . running world $ do
      forM_ [pure (), throwM (ErrorCall "no"), myThreadId >>= cancel >> block, exit] $ \ending -> do
        var <- newIVar
        reading <- spawn (try (readIVar var) >>= (`is` (Left Abandoned :: Either Abandoned Char)))
        yield
        ended <- spawn (void (try (fillWithin var ending) :: Thread (Either SomeException ())))
        reading >> ended
      var <- newIVar
      fillWithin var (fill_ var 'a')
      readIVar var ===> 'a'
  ]

children :: World -> [TestTree]
children world =
  [ testCase "the first child that ends, and which" . running world . withScope $ \scope -> do
      gates <- mapM (const Event.newEvent) [0 .. 2 :: Int]
      kids <- mapM (\(i, g) -> forkIn scope (i <$ Event.wait g)) (zip [0 :: Int ..] gates)
      Event.set (gates !! 1)
      (k, i) <- awaitAny kids
      (k, i) `is` (kids !! 1, 1)
      -- Nothing was taken from it.
      awaitChild k ===> 1
      timeout (milliseconds 1) (awaitAny (filter (/= k) kids)) ===> Nothing
      mapM_ Event.set gates
      mapM_ awaitChild kids
      -- All have ended: the first in the list.
      fmap snd (awaitAny (drop 2 kids <> kids)) ===> 2,
    testCase "a child that fails or is cancelled has no result" . running world $ do
      failed <- try . withScope $ \scope -> do
        kid <- forkIn scope (yield >> throwM (ErrorCall "no"))
        void (awaitAny [kid]) :: Thread ()
      isLeft (failed :: Either ChildFailed ()) `is` True
      withScope $ \scope -> do
        kid <- forkIn scope (block :: Thread ())
        cancel (childThread kid)
        gone <- try (awaitAny [kid])
        isLeft (gone :: Either ChildFailed (Child (), ())) `is` True,
    testCase "results in the order in which the children end, also of children's children" . running world . withScope $ \scope -> do
      set <- newJoinSet scope
      let grow :: Int -> Thread Int
          grow n = n <$ when (n < 20) (void (forkInSet set (grow (2 * n))) >> void (forkInSet set (grow (2 * n + 1))))
          collect acc = joinNext set >>= maybe (pure acc) (\n -> collect (n : acc))
      _ <- forkInSet set (grow 1)
      got <- collect []
      sort got `is` [1 .. 39]
      joinNext set ===> Nothing,
    testCase "a thread that waits for a result and is cancelled takes none" . running world . withScope $ \scope -> do
      set <- newJoinSet scope
      gate <- Event.newEvent
      _ <- forkInSet set ('a' <$ Event.wait gate)
      timeout (milliseconds 1) (joinNext set) ===> Nothing
      Event.set gate
      joinNext set ===> Just 'a'
      joinNext set ===> Nothing
  ]

-- | A combined event, without effects that could be seen to come in an order.
data Part = Value Int | Yields Int Part | Both Part Part | First Part Part | Never Part
  deriving stock (Show)

instance Arbitrary Part where
  arbitrary = sized go
    where
      go 0 = Value <$> arbitrary
      go n = oneof [Value <$> arbitrary, Yields <$> chooseInt (1, 3) <*> go (n - 1), Both <$> half <*> half, First <$> half <*> half, Never <$> go (n - 1)]
        where
          half = go (n `div` 3)
  shrink = \case
    Value _ -> []
    Yields _ p -> [p]
    Both p q -> [p, q]
    First p q -> [p, q]
    Never p -> [p]

-- | At once.
together :: Part -> Concurrently [Int]
together = \case
  Value n -> pure [n]
  Yields n p -> Concurrently (replicateM_ n yield >> runConcurrently (together p))
  Both p q -> (<>) <$> together p <*> together q
  First p q -> together p <|> together q
  Never p -> empty <|> together p <|> empty

-- | All that it may come to.
possible :: Part -> [[Int]]
possible = \case
  Value n -> [[n]]
  Yields _ p -> possible p
  Both p q -> (<>) <$> possible p <*> possible q
  First p q -> possible p <> possible q
  Never p -> possible p

laws :: World -> [TestTree]
laws world =
  [ testProperty "a combination comes to what one of its parts allows" . withMaxSuccess 50 . mapSize (min 20) $ \part -> ioProperty $ do
      result <- running world (runConcurrently (together part))
      pure (counterexample (show result) (result `elem` possible part)),
    testProperty "identity, composition, homomorphism, interchange" . withMaxSuccess 20 $ \(Fn f) (Fn g) n -> ioProperty . running world $ do
      let v = Concurrently ((n :: Int) <$ yield)
          fs = Concurrently ((f :: Int -> Int) <$ yield)
          gs = Concurrently ((g :: Int -> Int) <$ yield)
          same x y = (==) <$> runConcurrently x <*> runConcurrently y
      and
        <$> sequence
          [ same (pure id <*> v) v,
            same (pure (.) <*> fs <*> gs <*> v) (fs <*> (gs <*> v)),
            same (pure f <*> pure n) (pure (f n)),
            same (fs <*> pure n) (pure ($ n) <*> fs),
            same (empty <|> v) v,
            same (v <|> empty) v
          ],
    testCase "both run at once, and an exception ends the other" . running world $ do
      gate <- Event.newEvent
      runConcurrently (Concurrently (Event.wait gate) *> Concurrently (Event.set gate))
      (bump, count) <- newCounter
      begun <- newGate
      outcome <-
        try . runConcurrently $
          Concurrently ((openGate begun () >> block) `finally` bump) <* Concurrently (waitGate begun >> throwM (ErrorCall "no") :: Thread ())
      outcome `is` (Left (ErrorCall "no") :: Either ErrorCall ())
      count ===> 1
  ]
